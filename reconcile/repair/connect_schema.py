"""Kafka Connect's schema as it stands beside a JSON value: what a correction has to hold, and in which form."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from reconcile.domain.encoding import Encoding, Form
from reconcile.repair.json_values import ELEMENT, MisfitError, Path, RowMisfitError, Type, dumps, type_of, written

Schema = Mapping[str, Any]

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_BIT_STRING = "io.debezium.data.Bits"
_FORMS: Mapping[str, Form] = {
    **dict.fromkeys(("org.apache.kafka.connect.data.Date", "io.debezium.time.Date"), "epoch_days"),
    **dict.fromkeys(("org.apache.kafka.connect.data.Timestamp", "io.debezium.time.Timestamp"), "epoch_millis"),
    "io.debezium.time.MicroTimestamp": "epoch_micros",
    "io.debezium.time.NanoTimestamp": "epoch_nanos",
    **dict.fromkeys(("org.apache.kafka.connect.data.Time", "io.debezium.time.Time"), "millis_of_day"),
    "io.debezium.time.MicroTime": "micros_of_day",
    "io.debezium.time.NanoTime": "nanos_of_day",
    "io.debezium.time.MicroDuration": "micro_duration",
    "io.debezium.time.Interval": "iso_interval",
}
_WHOLE = re.compile(r"-?\d{1,3}", re.ASCII)
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def schema_at(schema: Schema | None, path: Path) -> Schema | None:
    """Look up the schema of what stands at a path; None where there is none."""
    for step in path:
        schema = None if schema is None else fields(schema).get(step)
    return schema


def fields(schema: Schema) -> dict[str, Schema]:
    """List the fields of a struct; none of what is no schema of Connect's."""
    listed = schema.get("fields")
    if not isinstance(listed, list) or not all(isinstance(each, Mapping) and "field" in each for each in listed):
        return {}
    return {str(each["field"]): each for each in listed}


def requires(schema: Schema) -> bool:
    """Whether a value has to be there."""
    return not schema.get("optional") and "default" not in schema


def encoding(schema: Schema | None) -> Encoding | None:
    """Choose the form of a value that the schema names; None where it is plain JSON, or the schema names none."""
    name = None if schema is None else schema.get("name")
    if schema is None or not isinstance(name, str):
        return None
    if name == _DECIMAL:
        parameters = schema.get("parameters")
        scale = parameters.get("scale", 0) if isinstance(parameters, Mapping) else 0
        return Encoding("decimal", scale=int(scale)) if _WHOLE.fullmatch(str(scale)) else None
    return Encoding(_FORMS[name]) if name in _FORMS else None


def names_form(schema: Schema | None) -> bool:
    """Whether the schema names the form of a value, so that no other one counts."""
    return encoding(schema) is not None or (schema is not None and schema.get("name") == _VARIABLE)


def fitted(value: Any, schema: Schema, path: Path) -> Any:
    """Build what stands in a record of a value from a database; raise RowMisfitError if the schema cannot hold it."""
    if value is None:
        if requires(schema):
            raise RowMisfitError(f"topic.value gives null at {written(path)}, which the schema does not allow")
        return None
    if (form := encoding(schema)) is not None:
        return encoded(value, form, path)
    if schema.get("name") == _VARIABLE:
        return variable(value, path)
    if schema.get("name") == _BIT_STRING and isinstance(value, str) and not value.strip("01"):
        raise RowMisfitError(f"topic.value gives bits at {written(path)}, and records have them as bytes in base64")
    kind = schema.get("type")
    if kind == "struct":
        return _struct(value, schema, path)
    if kind == "array" and isinstance(value, list):
        return [fitted(each, schema.get("items") or {}, (*path, ELEMENT)) for each in value]
    if kind == "map" and isinstance(value, Mapping):
        return {name: fitted(each, schema.get("values") or {}, (*path, name)) for name, each in value.items()}
    try:
        return _plain(value, str(kind))
    except (ValueError, ArithmeticError):
        raise RowMisfitError(f"topic.value gives nothing at {written(path)} that the schema takes for {kind}") from None


def encoded(value: Any, form: Encoding, path: Path) -> Any:
    """Build a value in the form that connectors write; raise RowMisfitError if it has none there."""
    try:
        return form.encode(value)
    except ValueError:
        raise RowMisfitError(f"topic.value gives nothing at {written(path)} that {form} can hold as it is") from None


def variable(value: Any, path: Path) -> Any:
    """Build a decimal with its own scale, as Debezium's VariableScaleDecimal; raise RowMisfitError for no number."""
    if value is None or isinstance(value, Mapping):
        return value
    if isinstance(value, (bool, float)) or type_of(value) not in (Type.INTEGER, Type.NUMBER, Type.STRING):
        raise RowMisfitError(f"topic.value gives no number at {written(path)}")
    try:
        exponent = Decimal(value).as_tuple().exponent
    except ArithmeticError:
        raise RowMisfitError(f"topic.value gives no number at {written(path)}") from None
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    return {"scale": scale, "value": encoded(value, Encoding("decimal", scale=scale), path)}


@dataclass(frozen=True)
class LeftOut:
    """The paths that a correction leaves out on purpose."""

    added: Collection[Path] = ()
    """What events add to: it adds nothing there."""
    unset: Collection[Path] = ()
    """What it must not set."""


def completed(body: Mapping[str, Any], schema: Schema, path: Path, left_out: LeftOut) -> dict[str, Any]:
    """Build a struct with all its fields; raise MisfitError for one that is missing, or that it does not have.

    A sink takes a field that is missing for null or its default: so what is left out on purpose has to add nothing.
    """
    known = fields(schema)
    unknown = sorted(set(body) - known.keys())
    if unknown:
        raise MisfitError(f"topic.value gives {written((*path, unknown[0]))}, which the topic's schema does not have")
    found: dict[str, Any] = {}
    for name, own in known.items():
        value, where = body.get(name), (*path, name)
        if name not in body and where in left_out.added:
            value = fitted(0, own, where)
        elif name not in body:
            if where in left_out.unset:
                raise RowMisfitError(f"the topic's schema has {written(where)}, which an amount alone must not set")
            if requires(own):
                raise MisfitError(f"topic.value has no entry for {written(where)}, which the topic's schema requires")
            value = own.get("default")
        elif value is not None and own.get("type") == "struct" and isinstance(value, Mapping):
            value = completed(value, own, where, left_out)
        found[name] = value
    return found


def _struct(value: Any, schema: Schema, path: Path) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise RowMisfitError(f"topic.value gives nothing at {written(path)} that the schema takes for struct")
    known = fields(schema)
    return {name: fitted(each, known[name], (*path, name)) if name in known else each for name, each in value.items()}


def _plain(value: Any, kind: str) -> Any:
    """Build a value of one of Connect's own types."""
    if kind in _BITS:
        found = Decimal(str(value))
        if isinstance(value, bool) or found != int(found) or not -1 << _BITS[kind] - 1 <= found < 1 << _BITS[kind] - 1:
            raise ValueError("no such number")
        return int(found)
    if kind in ("float32", "float64", "float", "double"):
        if isinstance(value, bool) or not (found := Decimal(str(value))).is_finite():
            raise ValueError("no number")
        return found if isinstance(value, str) else value
    if kind == "boolean":
        word = str(value).lower()
        if word not in ("true", "false"):
            raise ValueError("neither true nor false")
        return word == "true"
    if kind == "string":
        return value if isinstance(value, str) else dumps(value)
    if kind == "bytes":
        return Encoding("base64").encode(value)
    raise ValueError("another type")
