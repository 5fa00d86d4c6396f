"""What a MariaDB is asked: canonical texts, digests and rows, equal to the last bit to what `digest` has Postgres give.

A derived table is merged into what reads it, so each name of the contract is seen in the innermost one alone: a column
that is named as one of ours cannot take its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from reconcile.contract.terms import Rows
from reconcile.domain.canonical import CanonicalType, Kind, canonical_type
from reconcile.errors import RefusedError
from reconcile.gather.stores.digest import NO_ID, DigestReading, Side, id_form, is_delimited
from reconcile.gather.stores.mariadb.session import Column

Quote = Callable[[str], str]
TOO_LARGE = "reconcile: this text does not fit into max_allowed_packet"


def require_whole(text: str) -> str:
    """Build a contract's SQL in parentheses that it can neither close nor comment out; raise RefusedError otherwise."""
    depth = position = 0
    while match := _TOKEN.search(text, position):
        found, position = match.group(), match.end()
        if match["unclosed"] or found == ";" or match["executed"]:
            problem = "a `;` would end the statement" if found == ";" else f"a {found} is not closed"
            problem = f"a comment {found} would be executed" if match["executed"] else problem
            raise RefusedError(f"{problem}, in the contract's SQL: {text}")
        depth += {"(": 1, ")": -1}.get(found, 0)
        if depth < 0:
            raise RefusedError(f"a `)` closes nothing, in the contract's SQL: {text}")
    if depth:
        raise RefusedError(f"a `)` is missing, in the contract's SQL: {text}")
    return f"(\n{text}\n)"


def identifier(name: str) -> str:
    """Build a quoted name."""
    return f"`{name.replace('`', '``')}`"


def relation(rows: Rows | Side) -> str:
    """Build what stands after `from` for a side of a contract; raise RefusedError for a query that breaks out of it."""
    if rows.table is not None:
        return ".".join(map(identifier, rows.table.split(".")))
    return f"{require_whole(rows.query or '')} as reconcile_rows"


def shown(value: str, own: str, to: CanonicalType) -> str | None:
    """Build SQL for a value's canonical text, NULL where it cannot be cast; None where there is none in this SQL.

    A float is shown as the server writes it.
    """
    kind, of = to.kind, canonical_type(own).kind
    if kind is Kind.FLOAT and of in (Kind.INTEGER, Kind.NUMERIC, Kind.FLOAT):
        return f"cast({_rounded(value, own, to)} + 0e0 as char)"
    if kind in (Kind.TEXT, Kind.OTHER):
        return _plain(value, own, of)
    if kind is Kind.NUMERIC and of is Kind.NUMERIC and not own.endswith(",0)"):
        return _trimmed(f"cast({value} + 0 as char)")
    if kind is Kind.BOOLEAN and of is Kind.INTEGER:
        return f"case {value} when 0 then 'false' when 1 then 'true' end"
    if kind is Kind.UUID and of is Kind.BYTEA:
        return f"if(octet_length({value}) = 16, {_dashed(f'lower(hex({value}))')}, null)"
    if (of, kind) not in _SAME:
        return None
    return _SAME[of, kind].format(value)


def portable(value: str, own: str, to: CanonicalType) -> str | None:
    """Build SQL for a value's canonical text as it is hashed: floats as their 64 bits, in hexadecimal."""
    text = shown(value, own, to)
    if text is None or to.kind is not Kind.FLOAT:
        return text
    # Nothing else shows the bits of a float. They come with the lowest byte first, after five bytes of a header.
    number = _rounded(value, own, to)
    return f"lower(hex(reverse(substr(st_aswkb(point(if({value} = 0, 0e0, {number} + 0e0), 0e0)), 6, 8))))"


def _rounded(value: str, own: str, to: CanonicalType) -> str:
    """Build SQL for a float as it is compared; what a `real` cannot hold stays as it is, as in Postgres."""
    if not to.single or own == "real":
        return value
    return f"if(abs({value}) between 1.5e-45 and 3.4028235e38, cast({value} as float), {value})"


def without_digest(reading: DigestReading) -> list[str]:
    """List why a side has no portable digest."""
    columns = zip(reading.types.fields, reading.form.fields, strict=True)
    return [
        f"a MariaDB has no canonical text of {own} as {to}" for own, to in columns if portable("x", own, to) is None
    ]


def digest(reading: DigestReading, where: str = "true") -> str:
    """Build the query for bucket, rows and sum of the portable digest, and whether a row is too large for it."""
    cells = [_cell(_no_id(reading), id_text(reading), id_form(reading.form))]
    for name, own, to in zip(_fields(reading), reading.types.fields, reading.form.fields, strict=True):
        text = portable(name, own, to)
        if text is None:
            raise RefusedError(f"there is no digest of {own} as {to}")
        tried = (canonical_type(own).kind, to.kind) in _TRIED
        cells.append(_cell(f"{name} is null", text, to, raw_text(name, own) if tried else None))
    row = f"cast(conv(substr(md5(concat({', '.join(cells)})), 1, 16), 16, 10) as unsigned)"
    # What does not fit into a packet is NULL: a sum that no rows can have tells.
    total = f"sum(coalesce({row}, {_UNHASHED}))"
    return (
        f"select bucket, counted, mod(total, {1 << 64}), total >= {_UNHASHED}"
        f" from (select {_bucket(reading)} as bucket, count(*) as counted, {total} as total from {_read(reading)}"
        f" where {where} group by bucket order by null) as digested"
    )


def repeated(reading: DigestReading) -> str:
    """Build the query for the buckets that hold an id twice, and perhaps some others."""
    return (
        f"select max({_bucket(reading)}) from {_read(reading)} where not ({_no_id(reading)})"
        f" group by md5({id_text(reading)})"
        " having count(*) > 1 order by null"
    )


def rows(reading: DigestReading, where: str = "true") -> str:
    """Build the query for `reconcile_id`, `reconcile_version`, and `field_0` and so on; all of them are text.

    What has no canonical text in this SQL is raw text: `raw_fields` tells of which fields. A value whose text does not
    fit into a packet, which would be NULL, is TOO_LARGE.
    """
    version = raw_text("v", reading.types.version or "text") if reading.side.version else "null"
    texts = [f"{id_text(reading)} as reconcile_id", f"{version} as reconcile_version"]
    for number, (name, own, to) in enumerate(
        zip(_fields(reading), reading.types.fields, reading.form.fields, strict=True)
    ):
        text, raw = shown(name, own, to), raw_text(name, own)
        if text is None:
            require_text(own, to)
        written = ", ".join(dict.fromkeys(each for each in (text, raw) if each is not None))
        texts.append(f"if({name} is null, null, coalesce({written}, '{TOO_LARGE}')) as field_{number}")
    return f"select {', '.join(texts)} from {_read(reading)} where {where}"


def plain(side: Side) -> tuple[str, str]:
    """Build the query for a side's columns as they are, without its `where`, and that."""
    selected = _select(replace(side, deleted=None), ", ".join(_contract_fields(side)))
    return selected.removeprefix("(").removesuffix(") as side"), _where(side)


def values(reading: DigestReading, expressions: Sequence[str], where: str) -> str:
    """Build the query for ids, versions, and a JSON array of each expression over the side's row."""
    side = reading.side
    arrays = tuple(f"json_array{require_whole(each)}" for each in expressions)
    bare = Side(side.id, (), side.table, side.query, side.version)
    named = ", ".join(f"{text} as j{number}" for number, text in enumerate(arrays))
    version = "cast(v as char)" if side.version else "null"
    chosen = ", ".join(f"j{number}" for number in range(len(arrays)))
    return f"select {id_text(reading)}, {version}, {chosen} from {_select(bare, named)} where {where}"


def raw_fields(reading: DigestReading) -> list[bool]:
    """Tell for each field whether `rows` reads it as raw text."""
    return [shown("x", own, to) is None for own, to in zip(reading.types.fields, reading.form.fields, strict=True)]


def require_text(own: str, to: CanonicalType) -> None:
    """Raise RefusedError for a type whose values have no canonical text, here or in Spark."""
    if canonical_type(own).kind not in (Kind.TEXT, Kind.JSON):
        raise RefusedError(f"a value of the type {own} in a MariaDB has no canonical form as {to}: cast it in the SQL")


def among(reading: DigestReading, ids: Sequence[str], columns: Sequence[Column], quote: Quote) -> str:
    """Build the condition that an id is among those: exactly, and by an index of its first column if there is one."""
    parts = [[each] for each in ids] if len(columns) == 1 else [_parts(each, len(columns)) for each in ids]
    ways = []
    for number, (column, own) in enumerate(zip(columns, reading.types.id, strict=True)):
        asked = sorted({part[number] for part in parts if part})
        literals = _literals(asked, own, column, quote)
        if literals is not None:
            ways.append(f"i{number} in ({', '.join(literals) or 'null'})")
    exactly = ", ".join(map(quote, ids)) or "null"
    # As bytes: to most collations, also those that end in _bin, text with spaces after it is the same.
    return " and ".join([*ways, f"cast(convert({id_text(reading)} using utf8mb4) as binary) in ({exactly})"])


def in_buckets(reading: DigestReading, buckets: Sequence[int]) -> str:
    """Build the condition that a row is in some buckets."""
    return f"{_bucket(reading)} in ({', '.join(map(str, buckets)) or 'null'})"


def bound(reading: DigestReading, number: int, offset: int) -> str:
    """Build the query for the value of an id's column that stands behind so many others, in the column's own order."""
    name = identifier(reading.side.id[number])
    text = raw_text(name, reading.types.id[number])
    return f"select {text} from {relation(reading.side)} order by {name} limit 1 offset {offset}"


def ranges(reading: DigestReading, number: int, bounds: Sequence[str], column: Column, quote: Quote) -> list[str]:
    """Build conditions that put each row into one range of an id's column, which has no NULL.

    There is one condition for all rows where there are no bounds, or no literals of their type.
    """
    literals = _literals(bounds, reading.types.id[number], column, quote)
    if not literals:
        return ["true"]
    lows = [f"i{number} >= {each}" for each in literals]
    highs = [f"i{number} < {each}" for each in literals]
    between = [f"{low} and {high}" for low, high in zip(lows, highs[1:], strict=False)]
    return [highs[0], *between, lows[-1]]


def id_text(reading: DigestReading) -> str:
    """Build SQL for the id's canonical text; NULL where a part of it is."""
    texts = []
    for number, (own, to) in enumerate(zip(reading.types.id, reading.form.id, strict=True)):
        text = shown(f"i{number}", own, to)
        if text is None:
            raise RefusedError(f"an id of the type {own} in a MariaDB has no canonical form: cast it in a query")
        texts.append(text)
    if len(texts) == 1:
        return texts[0]
    parts = [_id_part(text, to) for text, to in zip(texts, reading.form.id, strict=True)]
    return "concat('[', " + ", ',', ".join(parts) + ", ']')"


def raw_text(value: str, own: str) -> str:
    """Build SQL for the text that a value has anyway."""
    return _plain(value, own, canonical_type(own).kind) or f"cast({value} as char)"


def _plain(value: str, own: str, of: Kind) -> str | None:
    """Build a value's text as Postgres casts its like to text; None where the server writes it in another way."""
    if of in (Kind.TEXT, Kind.JSON):
        return f"convert({value} using utf8mb4) collate utf8mb4_bin"
    if of is Kind.BYTEA:
        return f"concat('\\\\x', lower(hex({value})))"
    if of is Kind.TIMESTAMP and own == "timestamp with time zone":
        return f"concat({_SAME[of, of].format(value)}, '+00')"
    return _SAME[of, of].format(value) if (of, of) in _SAME else None


def _trimmed(text: str) -> str:
    return f"trim(trailing '.' from trim(trailing '0' from {text}))"


def _dashed(digits: str) -> str:
    places = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    return f"concat_ws('-', {', '.join(f'substr({digits}, {start}, {length})' for start, length in places)})"


def _cell(none: str, text: str, to: CanonicalType, raw: str | None = None) -> str:
    """Build what is hashed of a value, `raw` where it has no canonical text; NULL if it is too large for a packet."""
    written = f"concat({text}, ';')" if is_delimited(to) else f"concat(octet_length({text}), ':', {text})"
    if raw is not None:
        written = f"if({text} is null, concat(octet_length({raw}), '!', {raw}), {written})"
    return f"if({none}, '~', {written})"


def _id_part(text: str, to: CanonicalType) -> str:
    if to.kind is Kind.INTEGER:
        return text
    quoted = _quoted(text)
    return f"if({text} regexp '{_DECIMAL}', {text}, {quoted})" if to.bare else quoted


def _quoted(text: str) -> str:
    """Build a JSON string as Postgres writes it, in whose escapes the digits are lower-case."""
    plain = f"replace(replace({text}, '\\\\', '\\\\\\\\'), '\"', '\\\\\"')"
    every = plain
    for code in range(1, 32):
        escape = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r"}.get(code, f"u{code:04x}")
        every = f"replace({every}, _utf8mb4 x'{code:02x}', '\\\\{escape}')"
    return f"""concat('"', if({text} regexp '[[:cntrl:]]', {every}, {plain}), '"')"""


def _bucket(reading: DigestReading) -> str:
    # The last of the 16 digits that Postgres takes the bucket from; there are 2^20 buckets at most.
    digits = f"substr(md5({id_text(reading)}), 12, 5)"
    return f"coalesce(cast(cast(conv({digits}, 16, 10) as unsigned) & {reading.buckets - 1} as signed), {NO_ID})"


def _no_id(reading: DigestReading) -> str:
    """Build the condition that a row has no id, by its columns: to write its text takes longer."""
    return " or ".join(f"i{number} is null" for number in range(len(reading.types.id)))


def _fields(reading: DigestReading) -> list[str]:
    return [f"f{number}" for number in range(len(reading.form.fields))]


def _read(reading: DigestReading) -> str:
    return _select(reading.side, ", ".join(_contract_fields(reading.side)))


def _contract_fields(side: Side) -> list[str]:
    return [f"{require_whole(text)} as f{number}" for number, text in enumerate(side.fields)]


def _select(side: Side, fields: str) -> str:
    named = [f"{identifier(name)} as i{number}" for number, name in enumerate(side.id)]
    if side.version is not None:
        named.append(f"{identifier(side.version)} as v")
    columns = ", ".join([*named, *([fields] if fields else [])])
    return f"(select {columns} from {relation(side)}{_where(side)}) as side"


def _where(side: Side) -> str:
    return f" where {require_whole(side.deleted)} is not true" if side.deleted is not None else ""


def _parts(text: str, count: int) -> list[str]:
    """Parse an id of several columns to the texts of its parts; none where it is no such id."""
    try:
        found = json.loads(text, parse_int=str)
    except ValueError:
        return []
    fits = isinstance(found, list) and len(found) == count and all(isinstance(each, str) for each in found)
    return found if fits else []


def _literals(texts: Sequence[str], own: str, column: Column, quote: Quote) -> list[str] | None:
    """Build the literals that a column's own values are compared with, no fewer than fit; None where none can be."""
    kind = canonical_type(own).kind
    if kind is Kind.INTEGER or own.endswith(",0)"):
        return [text for text in texts if _NUMBER.fullmatch(text)]
    if kind is Kind.UUID:
        return [quote(text) for text in texts if _UUID.fullmatch(text)]
    if kind is Kind.TEXT and column.charset and column.collation:
        return [f"convert({quote(text)} using {column.charset}) collate {column.collation}" for text in texts]
    return None


_UNHASHED = 10**30
_TRIED = ((Kind.INTEGER, Kind.BOOLEAN), (Kind.BYTEA, Kind.UUID))
"""Casts for which some values are not fit."""
_DECIMAL = r"^(0|-?[1-9][0-9]*)\\z"
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,64}", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_AT = "trim(trailing '.' from trim(trailing '0' from cast(cast({} as datetime(6)) as char)))"
_CLOCK = "trim(trailing '.' from trim(trailing '0' from cast(cast({} as time(6)) as char)))"
_WHOLE = "cast({} + 0 as char)"
"""Without zeros before it, and bits as a number."""
_SAME = {
    (Kind.INTEGER, Kind.INTEGER): _WHOLE,
    (Kind.INTEGER, Kind.NUMERIC): _WHOLE,
    (Kind.NUMERIC, Kind.NUMERIC): _WHOLE,
    (Kind.UUID, Kind.UUID): "cast({} as char)",
    (Kind.TIMESTAMP, Kind.TIMESTAMP): _AT,
    (Kind.DATE, Kind.TIMESTAMP): _AT,
    (Kind.DATE, Kind.DATE): "cast({} as char)",
    (Kind.TIMESTAMP, Kind.DATE): "cast(date({}) as char)",
    (Kind.TIME, Kind.TIME): _CLOCK,
    (Kind.TIMESTAMP, Kind.TIME): _CLOCK,
    (Kind.BYTEA, Kind.BYTEA): "lower(hex({}))",
}
# MariaDB's lexical grammar, as far as a parenthesis or a semicolon could hide in it.
_TOKEN = re.compile(
    r"""
    '(?:[^'\\]|\\.|\'\')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*`
    | --(?=[\x00-\x20\x7f]|$)[^\n]* | \#[^\n]*
    | (?P<executed>/\*M?!) | /\*.*?\*/
    | [()] | ;
    | (?P<unclosed>['"`]|/\*)
    """,
    re.VERBOSE | re.DOTALL,
)
