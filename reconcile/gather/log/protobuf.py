"""Protobuf messages by the descriptors that a registry serves; a compiler is needed only where it serves texts alone.

A message is read as what its readers see: a field without presence always has a value, if only its default; one with
presence that is not set is null. On a topic of patches neither is there, as nothing is said of it. Names are those of
the schema, enums have theirs; wrappers, instants, `Struct`, dates and Connect's decimals are the values they stand for.
"""

from __future__ import annotations

import base64
import binascii
import functools
import importlib
import re
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from reconcile.config.extras import extras_named
from reconcile.errors import RefusedError
from reconcile.gather.log.schema_registry import Reference

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

_MOST = 1_000_000
"""How many values a message may have: one of a few bytes can stand for as many as its schema has fields."""
_DEEPEST = 100
_LONGEST_NUMBER = 1000
_LIBRARY = re.compile(r"google/(protobuf|type|rpc|api)/[a-z0-9_]+\.proto")
_OWN = "reconcile/value.proto"
_META = "confluent/meta.proto"
_DECIMAL_FILES = ("confluent/type/decimal.proto", "confluent/types/decimal.proto")
TEXTS = ("google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.FieldMask")
"""Messages that JSON has a text for."""
WRAPPERS = tuple(
    f"google.protobuf.{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
STRUCTS = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
ANY = "google.protobuf.Any"
DATE = "google.type.Date"
DECIMALS = ("confluent.type.Decimal", "confluent.types.Decimal")


@dataclass(frozen=True)
class MessageType:
    """One of the messages of a schema."""

    descriptor: Descriptor
    patch: bool = False
    """Whether what is not set is not told."""

    @property
    def name(self) -> str:
        """The full name."""
        return str(self.descriptor.full_name)

    def new(self) -> Message:
        """Build an empty message."""
        return _class(self.descriptor)()

    def read(self, data: bytes) -> dict[str, Any]:
        """Read a message; raise ValueError for what is none, or one that is too deep or too large."""
        found = _Reading(self.patch).told(_parsed(self.descriptor, data), 0)
        if not isinstance(found, dict):
            raise ValueError("the message stands for a value that is no object")
        return found


def message_type(text: str, references: Iterable[Reference], index: tuple[int, ...], *, patch: bool) -> MessageType:
    """Choose a schema's message by its path of places; raise ValueError where it has none, or is no schema."""
    return _message_type(text, tuple(references), index, patch)


def frame(data: bytes, start: int) -> tuple[int, tuple[int, ...]]:
    """Read which message of the schema a value is: where it begins, and its path; raise IndexError if it is cut off."""
    count, at = _number(data, start)
    if count == 0:
        return at, (0,)
    if not 0 < count <= _DEEPEST:
        raise ValueError("no path leads so deep")
    path = []
    for _ in range(count):
        place, at = _number(data, at)
        path.append(place)
    return at, tuple(path)


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


@functools.lru_cache(maxsize=256)
def _message_type(text: str, references: tuple[Reference, ...], index: tuple[int, ...], patch: bool) -> MessageType:
    file = _pool(text, references)
    first, *others = index
    messages = list(file.message_types_by_name.values())
    if not 0 <= first < len(messages):
        raise ValueError("the schema has no such message")
    found = messages[first]
    for place in others:
        nested = list(found.nested_types)
        if not 0 <= place < len(nested):
            raise ValueError("the schema has no such message")
        found = nested[place]
    return MessageType(found, patch)


@functools.lru_cache(maxsize=64)
def _pool(text: str, references: tuple[Reference, ...]) -> Any:
    """Build the schema's file with all that it imports."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool, there = DescriptorPool(), set[str]()
    for file in _files((*references, Reference(_OWN, text))):
        _add(pool, file, there)
    return pool.FindFileByName(_OWN)


def _files(schemas: tuple[Reference, ...]) -> list[FileDescriptorProto]:
    """Parse what a registry serves: descriptors, or texts, which have to be compiled."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    found = []
    for each in schemas:
        try:
            file = FileDescriptorProto.FromString(base64.b64decode(each.text, validate=True))
        except (binascii.Error, DecodeError, ValueError):
            return _compiled(schemas)
        file.name = each.name
        found.append(file)
    return found


def _compiled(schemas: tuple[Reference, ...]) -> list[FileDescriptorProto]:
    """Compile texts; raise RefusedError where that fails, MissingExtraError where there is no compiler."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    with extras_named("reading Protobuf by a registry that does not serve descriptors"):
        import grpc_tools
        from google.type import date_pb2
        from grpc_tools import protoc
    with TemporaryDirectory(prefix="reconcile-") as folder:
        for each in schemas:
            file = Path(folder, each.name)
            if ".." in file.parts or not file.is_relative_to(folder):
                raise ValueError("a reference's name leads elsewhere")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(each.text, "utf-8")
        out = Path(folder, "reconcile", "compiled")
        brought = Path(grpc_tools.__file__).parent / "_proto", Path(date_pb2.__file__).parents[2]
        places = [f"-I{each}" for each in (folder, *brought)]
        if protoc.main(["protoc", *places, "--include_imports", f"--descriptor_set_out={out}", _OWN]) != 0:
            raise RefusedError("a Protobuf schema that the registry serves as text cannot be compiled")
        return list(FileDescriptorSet.FromString(out.read_bytes()).file)


def _add(pool: DescriptorPool, file: FileDescriptorProto, there: set[str]) -> None:
    """Add a file behind what it imports; raise ValueError for one that does not hold together."""
    if file.name in there:
        return
    there.add(file.name)
    if _META in file.dependency:  # annotations alone, of which no value is made
        kept = [each for each in file.dependency if each != _META]
        del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
        file.dependency.extend(kept)
    for name in file.dependency:
        if name not in there:
            _add(pool, _of_library(name), there)
    try:
        pool.Add(file)
    except TypeError as error:
        raise ValueError(f"the schema does not hold together: {error}") from None


def _of_library(name: str) -> FileDescriptorProto:
    """Find a file that every compiler brings; raise ValueError for another, which has to be a reference."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if name in _DECIMAL_FILES:
        return _decimal_file(name)
    if _LIBRARY.fullmatch(name) is None:
        raise ValueError(f"the schema imports {name}, and refers to none of that name")
    found = FileDescriptorProto()
    try:
        importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR.CopyToProto(found)
    except ImportError:
        raise ValueError(f"the schema imports {name}, which is not known here") from None
    return found


def _decimal_file(name: str) -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name=name, package=name.rpartition("/")[0].replace("/", "."), syntax="proto3")
    message = file.message_type.add(name="Decimal")
    fields = (("value", Field.TYPE_BYTES), ("precision", Field.TYPE_UINT32), ("scale", Field.TYPE_INT32))
    for number, (field, type_) in enumerate(fields, 1):
        message.field.add(name=field, number=number, type=type_, label=Field.LABEL_OPTIONAL)
    return file


def _class(descriptor: Descriptor) -> type[Message]:
    from google.protobuf.message_factory import GetMessageClass

    found: type[Message] = GetMessageClass(descriptor)
    return found


def _parsed(descriptor: Descriptor, data: bytes) -> Message:
    from google.protobuf.message import DecodeError

    message = _class(descriptor)()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise ValueError("it is no message of the schema") from None
    return message


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of variable length, and where it ends."""
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (found >> 1) ^ -(found & 1), at
        if shift > 63:
            raise ValueError("a number without end")


class _Reading:
    """Reads one message."""

    def __init__(self, patch: bool) -> None:
        self._patch, self._left = patch, _MOST

    def told(self, message: Any, depth: int) -> Any:
        """Build what a message stands for."""
        if depth > _DEEPEST:
            raise ValueError(f"it is nested more than {_DEEPEST} deep")
        descriptor = message.DESCRIPTOR
        self._count(len(descriptor.fields))
        name = descriptor.full_name
        if name in TEXTS:
            return message.ToJsonString()
        if name in WRAPPERS:
            return self._scalar(message.value, descriptor.fields_by_name["value"])
        if name in STRUCTS:
            return self._struct(message, depth)
        if name == ANY:
            return self._any(message, depth)
        if name == DATE:
            with suppress(ValueError):
                return date(message.year, message.month, message.day).isoformat()
        if name in DECIMALS:
            return _decimal(message.value, message.scale)
        return self._fields(message, depth)

    def _fields(self, message: Any, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in message.DESCRIPTOR.fields:
            name = field.name
            value = getattr(message, name)
            if field.is_repeated:
                if self._patch and not value:
                    continue
                found[name] = self._several(value, field, depth)
            elif field.has_presence and not message.HasField(name):
                if field.has_default_value:
                    found[name] = self._scalar(value, field)
                elif not self._patch:
                    found[name] = None
            elif field.has_presence or not self._patch or value:
                found[name] = self._one(value, field, depth)
        return found

    def _several(self, value: Any, field: FieldDescriptor, depth: int) -> Any:
        self._count(len(value))
        if not is_map(field):
            return [self._one(each, field, depth) for each in value]
        inner = field.message_type.fields_by_name["value"]
        found = {}
        for key in value:
            name = str(key).lower() if isinstance(key, bool) else str(key)
            found[name] = self._one(value[key], inner, depth)
        return found

    def _one(self, value: Any, field: FieldDescriptor, depth: int) -> Any:
        return self._scalar(value, field) if field.message_type is None else self.told(value, depth + 1)

    def _scalar(self, value: Any, field: FieldDescriptor) -> Any:
        if field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            return value if known is None else known.name
        return _shortest(value) if field.type == field.TYPE_FLOAT else value

    def _struct(self, message: Any, depth: int) -> Any:
        """Build the JSON that a message holds as such."""
        name = message.DESCRIPTOR.name
        if depth > _DEEPEST:
            raise ValueError(f"it is nested more than {_DEEPEST} deep")
        if name == "Struct":
            self._count(len(message.fields))
            return {key: self._struct(message.fields[key], depth + 1) for key in message.fields}
        if name == "ListValue":
            self._count(len(message.values))
            return [self._struct(each, depth + 1) for each in message.values]
        kind = message.WhichOneof("kind")
        if kind in (None, "null_value"):
            return None
        value = getattr(message, kind)
        if kind == "number_value" and value.is_integer() and abs(value) < 1 << 53:
            return int(value)
        return self._struct(value, depth + 1) if kind in ("struct_value", "list_value") else value

    def _any(self, message: Any, depth: int) -> Any:
        said = {"@type": message.type_url}
        try:
            inner = message.DESCRIPTOR.file.pool.FindMessageTypeByName(message.type_url.rpartition("/")[2])
        except KeyError:
            return {**said, "value": message.value}
        found = self.told(_parsed(inner, message.value), depth + 1)
        return {**said, **found} if isinstance(found, Mapping) else {**said, "value": found}

    def _count(self, more: int) -> None:
        self._left -= more
        if self._left < 0:
            raise ValueError(f"it has more than {_MOST:,} values")


def _decimal(value: bytes, scale: int) -> Decimal:
    if len(value) > _LONGEST_NUMBER or abs(scale) > _LONGEST_NUMBER:
        raise ValueError("a number of too many digits")
    unscaled = int.from_bytes(value, "big", signed=True)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _shortest(value: float) -> float:
    """Choose the number with the fewest digits that is the same in 32 bits."""
    for digits in range(6, 9):
        found = float(f"{value:.{digits}g}")
        with suppress(OverflowError):
            if struct.pack("<f", found) == struct.pack("<f", value):
                return found
    return value
