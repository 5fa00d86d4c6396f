"""The words that contracts are written in: names, topics, columns, SQL, paths, durations."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field, PlainSerializer, Tag

from reconcile.config.text import CONTROL, Text, text_type
from reconcile.config.validation import Model
from reconcile.config.yamlfile import KeyPath, quoted
from reconcile.domain import encoding, mapping
from reconcile.domain.sql_calls import SPARK, require_calls

NAME = r"[a-z0-9][a-z0-9._-]*"
TOPIC_NAME = r"[a-zA-Z0-9._-]{1,249}"
TABLE_NAME = r"[\w$-]+(\.[\w$-]+)?"
LOCATOR = r"(\$.+|header:.+)"
TOMBSTONE = "tombstone"
_ENCODING_PATTERN = rf"^(decimal\(\s*\d+\s*,\s*\d+\s*\)|{'|'.join(encoding.PLAIN)})$"


def _name(text: str) -> str:
    if re.fullmatch(NAME, text) is None:
        raise ValueError(f"{quoted(text)} is not a name: use a-z, 0-9, '.', '_' and '-', a letter or digit first")
    return text


def _topic_name(text: str) -> str:
    if re.fullmatch(TOPIC_NAME, text) is None or text in (".", ".."):
        raise ValueError(
            f"{quoted(text)} is not a topic's name: use a-z, A-Z, 0-9, '.', '_' and '-', at most 249 of them"
        )
    return text


def _table_name(text: str) -> str:
    if re.fullmatch(TABLE_NAME, text) is None:
        raise ValueError(f"{quoted(text)} is not a table's name: write table or schema.table, or use `query`")
    return text


def _sql(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty: SQL is needed")
    if "\0" in text:
        raise ValueError("SQL must not contain a NUL character")
    return text


def _event(text: str) -> str:
    if not mapping.paths(_sql(text)):
        raise ValueError(f"{quoted(text)} has no path into the event: {mapping.HOW_TO_WRITE}")
    require_calls(text, SPARK)
    return text


def _path(text: str) -> str:
    if not mapping.is_path(text):
        raise ValueError(f"{quoted(text)} is no path into the event: {mapping.HOW_TO_WRITE}")
    return text


def _encoding(text: str) -> str:
    try:
        return str(encoding.parse(text))
    except ValueError as error:
        raise ValueError(f"{quoted(text)} is no form of a value: {error}") from None


def _locator(text: str) -> str:
    if mapping.is_path(text):
        return text
    if text.startswith("header:") and text == f"header:{CONTROL.sub('', text[7:]).strip()}" and text != "header:":
        return text
    raise ValueError(f"{quoted(text)} is no place in a record: {mapping.HOW_TO_WRITE}, or header:name")


def _delete(text: str) -> str:
    if text != TOMBSTONE and not mapping.paths(_sql(text)):
        raise ValueError(f"{quoted(text)} is not valid: write tombstone, or a test such as $.deleted == true")
    if text != TOMBSTONE:
        require_calls(text, SPARK)
    return text


def _delete_kind(value: Any) -> str:
    return "<kind:several>" if isinstance(value, (list, tuple)) else "<kind:one>"


def _columns(value: Any) -> Any:
    if value is None or isinstance(value, dict):
        raise ValueError("expected a column's name, or a list of them")
    return value if isinstance(value, (list, tuple)) else (value,)


def _number(value: Any) -> Any:
    # By its digits: the float 0.1 means 0.1, not the binary fraction nearest to it.
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Decimal(str(value))
    if isinstance(value, Decimal):
        return value
    raise ValueError("expected a number" + (f", found {quoted(value)}" if isinstance(value, str) else ""))


def _not_negative(value: Decimal) -> Decimal:
    if not value.is_finite() or value < 0:
        raise ValueError(f"must be 0 or more, found {value}")
    return abs(value.normalize())


def _format_version(value: Any) -> Any:
    if type(value) is not int or value != 1:
        raise ValueError("this program reads version 1: write `version: 1`")
    return value


def _not_empty(value: Any) -> Any:
    if not value:
        raise ValueError("must not be empty")
    return value


Version = Annotated[Literal[1], BeforeValidator(_format_version)]
Name = Annotated[str, *text_type(_name, {"pattern": f"^{NAME}$"})]
TopicName = Annotated[str, *text_type(_topic_name, {"pattern": f"^{TOPIC_NAME}$"})]
TableName = Annotated[str, *text_type(_table_name, {"pattern": r"^[^\s.]+(\.[^\s.]+)?$"})]
Sql = Annotated[str, *text_type(_sql)]
EventExpression = Annotated[str, *text_type(_event, {"pattern": r"\$"})]
EventPath = Annotated[str, *text_type(_path, {"pattern": r"^\$"})]
EncodingName = Annotated[str, *text_type(_encoding, {"pattern": _ENCODING_PATTERN})]
Locator = Annotated[str, *text_type(_locator, {"pattern": f"^{LOCATOR}$"})]
_Delete = Annotated[str, *text_type(_delete, {"pattern": rf"^{TOMBSTONE}$|\$"})]
# Not by min_length: that counts the entries left over when others are wrong, and reports an empty list on top.
NotEmpty = (AfterValidator(_not_empty), Field(strict=False, json_schema_extra={"minItems": 1}))
Deletes = Annotated[
    Annotated[_Delete, Tag("<kind:one>")] | Annotated[tuple[_Delete, ...], *NotEmpty, Tag("<kind:several>")],
    Discriminator(_delete_kind),
]
Columns = Annotated[
    tuple[Text, ...],
    *NotEmpty,
    BeforeValidator(_columns, json_schema_input_type=Text | list[Text]),
]
Amount = Annotated[
    Decimal,
    BeforeValidator(_number, json_schema_input_type=Annotated[float, Field(ge=0)]),
    AfterValidator(_not_negative),
    PlainSerializer(float, return_type=float, when_used="json"),
]
Ratio = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Rows(Model):
    """Rows of a store: a table, or what a query gives."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["table"]}, {"required": ["query"]}]})

    store: Text
    """The name of the connection to the database or the folder."""
    table: TableName | None = None
    """The table that holds one row per aggregate; or use `query`."""
    query: Sql | None = None
    """A query that gives one row per aggregate, in the store's own SQL; or use `table`."""
    snapshot: Count | None = None
    """The past snapshot of a lake's table to compare, by its id or version; left out, the one that is current."""
    id: Columns
    """The column that holds the aggregate's id, or the list of columns that make it up."""
    version: Text | None = None
    """The column with the version, which grows with every change of the aggregate."""

    @property
    def version_column(self) -> str | None:
        """The column with the version, if there is one."""
        return self.version


def rows_contradictions(rows: Rows) -> list[tuple[KeyPath, str]]:
    """List what is wrong with where the rows come from."""
    found: list[tuple[KeyPath, str]] = []
    if (rows.table is None) == (rows.query is None):
        which = "neither is there" if rows.table is None else "both are there"
        found.append(((), f"needs either `table` or `query`; {which}"))
    if rows.snapshot is not None and rows.table is None:
        found.append((("snapshot",), "is one of a table's: it needs `table`"))
    if len(set(rows.id)) < len(rows.id):
        found.append((("id",), "names a column twice"))
    return found
