"""Objects as Protobuf messages: each value from a database brought into the type that the schema has at its place."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from reconcile.gather.log import protobuf
from reconcile.gather.log.protobuf import MessageType, is_map
from reconcile.repair.connect_schema import LeftOut
from reconcile.repair.json_values import ELEMENT, MisfitError, Path, RowMisfitError, dumps, loads, written

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor

_UNWRITABLE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)


def write_message(type_: MessageType, body: Mapping[str, Any], left_out: LeftOut) -> tuple[bytes, list[Path]]:
    """Build the bytes of an object, and list the fields that nothing was given for; raise MisfitError."""
    message: Any = type_.new()
    writing = _Writing(left_out, type_.patch)
    writing.fill(message, body, ())
    return message.SerializeToString(deterministic=True), writing.filled


class _Writing:
    def __init__(self, left_out: LeftOut, patch: bool) -> None:
        self._left_out, self._patch = left_out, patch
        self.filled: list[Path] = []

    def fill(self, message: Any, body: Any, path: Path) -> None:
        """Put what an object has into a message."""
        if not isinstance(body, Mapping):
            raise _misfit(path, message.DESCRIPTOR.name)
        known = message.DESCRIPTOR.fields_by_name
        unknown = sorted(set(body) - set(known))
        if unknown:
            raise MisfitError(f"topic.value gives {written((*path, unknown[0]))}, which the schema does not have")
        chosen: dict[str, str] = {}
        for name, field in known.items():
            where = (*path, name)
            if name in body:
                if body[name] is None:
                    if field.is_required:
                        raise _misfit(where, _kind(field))
                    continue
                oneof = field.containing_oneof
                if oneof is not None and (other := chosen.setdefault(oneof.name, name)) != name:
                    both = f"{written((*path, other))} and {written(where)}"
                    raise RowMisfitError(f"topic.value gives both {both}, of which a message has one")
                self._put(message, field, body[name], where)
            elif where in self._left_out.added:
                if not field.has_presence or field.is_required or field.has_default_value:
                    self._put(message, field, 0, where)
            elif self._patch and field.has_presence and not field.is_required:
                continue  # nothing is said of it
            elif where in self._left_out.unset:
                raise RowMisfitError(f"the topic's schema has {written(where)}, which an amount alone must not set")
            elif field.is_required:
                raise MisfitError(f"topic.value has no entry for {written(where)}, which the schema asks for")
            else:
                self.filled.append(where)

    def _put(self, message: Any, field: FieldDescriptor, value: Any, path: Path) -> None:
        try:
            if is_map(field):
                self._put_map(getattr(message, field.name), field, value, path)
            elif field.is_repeated:
                self._put_all(getattr(message, field.name), field, value, path)
            elif field.message_type is not None:
                inner = getattr(message, field.name)
                inner.SetInParent()
                self._message(inner, value, path)
            else:
                setattr(message, field.name, _scalar(value, field))
        except MisfitError:
            raise
        except _UNWRITABLE:
            raise _misfit(path, _kind(field)) from None

    def _put_map(self, there: Any, field: FieldDescriptor, value: Any, path: Path) -> None:
        if not isinstance(value, Mapping):
            raise _misfit(path, "map")
        key, inner = (field.message_type.fields_by_name[each] for each in ("key", "value"))
        for name, each in value.items():
            if inner.message_type is not None:
                self._message(there[_scalar(name, key)], each, (*path, str(name)))
            else:
                there[_scalar(name, key)] = _scalar(each, inner)

    def _put_all(self, there: Any, field: FieldDescriptor, value: Any, path: Path) -> None:
        if not isinstance(value, list):
            raise _misfit(path, "repeated")
        for each in value:
            if field.message_type is not None:
                self._message(there.add(), each, (*path, ELEMENT))
            else:
                there.append(_scalar(each, field))

    def _message(self, message: Any, value: Any, path: Path) -> None:
        """Put a value into the message that stands for it."""
        name = message.DESCRIPTOR.full_name
        if name == "google.protobuf.Timestamp":
            _put_instant(message, value)
        elif name in protobuf.TEXTS:
            message.FromJsonString(value)
        elif name in protobuf.WRAPPERS:
            message.value = _scalar(value, message.DESCRIPTOR.fields_by_name["value"])
        elif name in protobuf.STRUCTS:
            message.MergeFrom(_json_message(message, value))
        elif name == protobuf.DATE and isinstance(value, str):
            found_date = date.fromisoformat(value[:10])
            message.year, message.month, message.day = found_date.year, found_date.month, found_date.day
        elif name in protobuf.DECIMALS:
            _put_decimal(message, Decimal(str(value)))
        elif name == protobuf.ANY:
            raise _misfit(path, "Any")
        else:
            self.fill(message, value, path)


def _json_message(like: Any, value: Any) -> Any:
    """Build a message that holds JSON as such."""
    from google.protobuf.json_format import Parse

    return Parse(dumps(loads(value) if isinstance(value, str) else value), type(like)())


def _put_instant(message: Any, value: str) -> None:
    try:
        message.FromJsonString(value)  # which keeps nanoseconds
    except ValueError:
        found = datetime.fromisoformat(value)
        message.FromDatetime((found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC))


def _put_decimal(message: Any, value: Decimal) -> None:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError("no number")
    scale = max(0, -exponent)
    unscaled = int(Decimal((sign, digits, exponent + scale)))
    message.value = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    message.precision, message.scale = max(len(digits), scale), scale


def _scalar(value: Any, field: FieldDescriptor) -> Any:
    """Build a plain value; ValueError or TypeError where the type cannot hold it."""
    if field.enum_type is not None:
        return _of_enum(value, field)
    kind = field.cpp_type
    if kind == field.CPPTYPE_BOOL:
        return {"true": True, "false": False}[str(value).lower()]
    if kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        if isinstance(value, bool):
            raise ValueError("no number")
        found = float(value)
        if kind == field.CPPTYPE_FLOAT and math.isfinite(found) and abs(found) > 3.4028235677973366e38:
            raise ValueError("too large")
        return found
    if field.type == field.TYPE_BYTES:
        return bytes.fromhex(value[2:]) if value.startswith("\\x") else base64.b64decode(value, validate=True)
    if kind == field.CPPTYPE_STRING:
        return value if isinstance(value, str) else dumps(value)
    number = Decimal(str(value))
    if isinstance(value, bool) or number != int(number):
        raise ValueError("no whole number")
    return int(number)


def _of_enum(value: Any, field: FieldDescriptor) -> int:
    if isinstance(value, str):
        return int(field.enum_type.values_by_name[value].number)
    number = int(value)
    if isinstance(value, bool) or number != value:
        raise ValueError("no number of an enum")
    return number


def _kind(field: FieldDescriptor) -> str:
    """Choose the word that people have for a field's type."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    named = field.message_type or field.enum_type
    return str(named.name if named else FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower())


def _misfit(path: Path, kind: str) -> RowMisfitError:
    return RowMisfitError(f"topic.value gives nothing at {written(path)} that the schema takes for {kind}")
