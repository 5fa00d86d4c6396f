"""Digests that Postgres computes where the rows are: counts and sums of row hashes by bucket of the id.

A digest is a filter: it decides only where to look. Rows of buckets that agree are equal to the last digit, which
is within any tolerance; the others are fetched and compared, floats and fields with a tolerance by how far they lie
apart. Left out of the hash, such fields would let drift pass unseen. Rows without an id are in bucket -1: fetch it
wherever it is. An id that stands twice on both sides, with equal rows, is not seen: ask for `repeated`, too, unless
one side has a unique index on its id.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from psycopg2 import sql

from reconcile.domain import canonical
from reconcile.domain.canonical import CanonicalType, Kind, Layout
from reconcile.gather.stores.contract_check import relation
from reconcile.gather.stores.contract_sql import require_whole
from reconcile.gather.stores.session import storable_texts

NO_ID = -1
MAX_BUCKETS = 1 << 20
# How values are written as text, whatever the role or the driver has set.
FORMATS = (
    "set timezone = 'UTC'; set datestyle = 'ISO, YMD'; set intervalstyle = 'postgres'; set extra_float_digits = 1; "
    "set bytea_output = 'hex'; set standard_conforming_strings = on; "
)
# Buckets are hashed and summed in memory; nothing is compiled or sorted for them.
PLANNING = "set jit = off; set work_mem = '256MB'; set hash_mem_multiplier = 4; set enable_sort = off; "


ComparisonMode = Literal["auto", "digest", "full"]
"""How rows are to be compared: `auto` takes digests where both stores can compute them."""


class Mode(StrEnum):
    """How a digest's hashes are computed; in mode `full` there is none, and every row is compared."""

    NATIVE = "native"
    PORTABLE = "portable"
    FULL = "full"


@dataclass(frozen=True)
class Server:
    """What of a Postgres server decides how it hashes."""

    version: int
    """As server_version_num."""
    encoding: str
    probe: int | None
    """The native hash of a fixed row, None before version 14."""

    def obstacles(self, *, checked: bool) -> tuple[str, ...]:
        """List why it can compute no digest; `checked` says whether values are tried before they are cast."""
        found = []
        if self.encoding != "UTF8":
            found.append(f"a server's encoding is {self.encoding}, not UTF8")
        if self.version // 10_000 < (needed := 16 if checked else 13):
            why = "cannot tell whether a value can be cast" if checked else "does not know trim_scale"
            found.append(f"a server is Postgres {self.version // 10_000}, which {why} (since {needed})")
        return tuple(found)


@dataclass(frozen=True)
class OtherServer:
    """A server that computes the portable digest alone, and perhaps not of all columns."""

    product: str
    without: tuple[str, ...] = ()
    """Why it can compute none, in words."""

    def obstacles(self, *, checked: bool) -> tuple[str, ...]:  # noqa: ARG002
        """List why it can compute no digest."""
        return self.without


@dataclass(frozen=True)
class Choice:
    """The mode, and why no better one."""

    mode: Mode
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Side:
    """The rows of one side, in the contract's words."""

    id: tuple[str, ...]
    fields: tuple[str, ...]
    """SQL over the side's row."""
    table: str | None = None
    query: str | None = None
    version: str | None = None
    deleted: str | None = None


@dataclass(frozen=True)
class DigestReading:
    """How one side's rows are read: its own types, and what both sides' are compared as."""

    side: Side
    types: Layout[str]
    form: Layout[CanonicalType]
    mode: Mode = Mode.NATIVE
    buckets: int = 1

    @property
    def checked(self) -> bool:
        """Whether values are tried before they are cast, as some might fail."""
        return any(canonical.cast(raw, own, to).checked for raw, own, to in _values(self))


def choose(consumer: Server | OtherServer, source: Server | OtherServer, *, checked: bool = False) -> Choice:
    """Choose how two servers are compared; `checked` says whether a Postgres tries values before it casts them."""
    servers = (consumer, source)
    full = [why for server in servers for why in server.obstacles(checked=checked)]
    if full:
        return Choice(Mode.FULL, tuple(dict.fromkeys(full)))
    if isinstance(consumer, OtherServer) or isinstance(source, OtherServer):
        names = sorted({each.product for each in servers if isinstance(each, OtherServer)})
        return Choice(Mode.PORTABLE, (f"{' and '.join(names)} does not hash as Postgres does",))
    if consumer.version // 10_000 != source.version // 10_000:
        majors = " and ".join(str(server.version // 10_000) for server in (consumer, source))
        return Choice(Mode.PORTABLE, (f"the servers are Postgres {majors}, which may hash differently",))
    if consumer.probe is None or consumer.probe != source.probe:
        why = "have no hash of rows" if consumer.probe is None else "hash the same row differently"
        return Choice(Mode.PORTABLE, (f"the servers {why}",))
    return Choice(Mode.NATIVE)


def bucket_count(rows: float) -> int:
    """Compute the number of buckets for a number of rows: a power of two, with 28 to 57 rows in each."""
    return min(1 << max(round(math.log2(max(rows, 1) / 40)), 0), MAX_BUCKETS)


def digest(reading: DigestReading, ids: Sequence[str] | None = None) -> sql.Composed:
    """Build the query for `bucket, rows, high, low`.

    In the mode native these are the sums of the halves of 64-bit row hashes, in the mode portable the halves of their
    sum modulo 2^64, which other databases compute, too.
    """
    if reading.mode is Mode.FULL:
        raise ValueError("there is no digest in the mode full")
    # Without `offset 0` the planner would compute the hash once for each column that it is used in.
    read = sql.SQL("({} offset 0) as read").format(_read(reading, ids, keyed=True))
    hashed, sums = (_native, _HALVES) if reading.mode is Mode.NATIVE else (_portable, _WRAPPED)
    return sql.SQL(
        f"select b as bucket, count(*) as rows, {sums}\nfrom (select {{}} as b, {{}} offset 0) as hashed group by b"
    ).format(_bucket(reading), hashed(reading, read))


def repeated(reading: DigestReading) -> sql.Composed:
    """Build the query for the buckets that hold an id twice, and perhaps some others."""
    # Two ids of the same hash are taken for one, which costs a bucket that is read in vain.
    read = sql.SQL("({} offset 0) as read").format(_read(reading, None, keyed=True))
    return sql.SQL("select {} from {} where k is not null group by k having count(*) > 1").format(
        _bucket(reading), read
    )


def rows(
    reading: DigestReading,
    buckets: Sequence[int] | None = None,
    ids: Sequence[str] | None = None,
    where: sql.Composable | None = None,
) -> sql.Composed:
    """Build the query for `reconcile_id`, `reconcile_version`, and `field_0`, `field_1` and so on.

    All of them are text: canonical text, floats as Postgres writes them, and what cannot be cast as it stands there.
    The version is NULL on a side that has none; it says how old a row is and is not compared.
    """
    texts = [f"{_id_text(reading, _numbered('i', reading.types.id))} as reconcile_id"]
    texts.append(f"{'v' if reading.side.version else 'null'}::text as reconcile_version")
    for name, (raw, own, to) in zip(_numbered("field_", reading.form.fields), _values(reading), strict=True):
        cast = canonical.cast(raw, own, to)
        text = canonical.shown(cast.value, to)
        texts.append(f"{f'coalesce({text}, {raw}::text)' if cast.checked else text} as {name}")
    read = sql.SQL("({} offset 0) as read").format(_read(reading, ids, buckets, where))
    return sql.SQL("select {} from {}").format(sql.SQL(", ".join(texts)), read)


def server(rows: Callable[[str], list[tuple[Any, ...]]]) -> Server:
    """Query what of a server decides how it hashes; `rows` runs a statement and gives its rows."""
    version, encoding = rows("select current_setting('server_version_num')::int4, current_setting('server_encoding')")[
        0
    ]
    return Server(version, encoding, rows(_PROBE)[0][0] if version >= 140_000 else None)


def _read(
    reading: DigestReading,
    ids: Sequence[str] | None,
    buckets: Sequence[int] | None = None,
    part: sql.Composable | None = None,
    *,
    keyed: bool = False,
) -> sql.Composed:
    """Build the innermost query: the rows that count, with what the contract's SQL gives for each, computed once."""
    side = reading.side
    columns = [sql.Identifier(name) for name in side.id]
    places = [f"{{{number}}}" for number in range(len(columns))]
    key = sql.SQL(_key(reading, places)).format(*columns)
    where = [] if part is None else [part]
    if side.deleted is not None:
        where.append(sql.SQL("{} is not true").format(require_whole(side.deleted)))
    if ids is not None:
        id_text = sql.SQL(_id_text(reading, places)).format(*columns)
        where.append(_among(ids, id_text, columns, reading.types.id))
    if buckets is not None:
        where.append(sql.SQL("{} = any({}::int4[])").format(_bucket(reading, key), sql.Literal(list(buckets))))
    condition = sql.SQL(" and ").join(where) if where else sql.SQL("true")
    return _select(side, condition, key if keyed else None, version=not keyed)


def _select(
    side: Side, where: sql.Composable, key: sql.Composable | None = None, *, version: bool = True
) -> sql.Composed:
    named: list[tuple[str, sql.Composable]] = [("k", key)] if key else []
    named += [(f"i{number}", sql.Identifier(name)) for number, name in enumerate(side.id)]
    if version and side.version is not None:
        named.append(("v", sql.Identifier(side.version)))
    named += [(f"f{number}", require_whole(text)) for number, text in enumerate(side.fields)]
    columns = sql.SQL(", ").join(sql.SQL("{} as {}").format(value, sql.Identifier(name)) for name, value in named)
    return sql.SQL("select {} from {} where {}").format(columns, relation(side), where)


def _among(
    ids: Sequence[str], id_text: sql.Composable, columns: Sequence[sql.Composable], types: tuple[str, ...]
) -> sql.Composed:
    # Compared as the columns' own types, whatever the other side's are: by its text no index finds an id.
    owns = [canonical.canonical_type(each) for each in types]
    indexed = all(own.kind in _IDS or own.kind is Kind.TEXT for own in owns)
    if len(owns) == 1 and owns[0].kind in _IDS:
        fitting = [text for text in ids if _fits(text, owns[0].kind)]
        return sql.SQL(f"{{}} = any({{}}::{owns[0].postgres}[])").format(columns[0], sql.Literal(fitting))
    listed = storable_texts(ids)
    by_text = sql.SQL("{} = any({}::text[])").format(id_text, sql.Literal(listed))
    if len(owns) == 1 or not indexed:
        return by_text
    parts = [found for text in listed if (found := _parts(text, owns)) is not None]
    arrays = [
        sql.SQL(f"{{}}::{own.postgres}[]").format(sql.Literal([each[number] for each in parts]))
        for number, own in enumerate(owns)
    ]
    of_columns = sql.SQL("({}) in (select * from unnest({}))").format(
        sql.SQL(", ").join(columns), sql.SQL(", ").join(arrays)
    )
    return sql.SQL("{} and {}").format(of_columns, by_text)


def _fits(text: str, kind: Kind) -> bool:
    # An id that is not written as its type writes it is no row's; cast to it, it could find one, or fail.
    return _IDS[kind].fullmatch(text) is not None and (kind is Kind.UUID or -_BIG <= int(text) < _BIG)


def _parts(text: str, owns: Sequence[CanonicalType]) -> list[str] | None:
    """Split an id of several columns into their texts; None for one that can be no row's."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, list) or len(values) != len(owns):
        return None
    texts = [each if isinstance(each, str) else str(each) for each in values]
    fits = all(own.kind not in _IDS or _fits(each, own.kind) for each, own in zip(texts, owns, strict=True))
    return texts if fits and len(storable_texts(texts)) == len(texts) else None


def _values(reading: DigestReading) -> list[tuple[str, str, CanonicalType]]:
    """List for each field the column that it is read as, its own type, and what it is compared as."""
    return list(zip(_numbered("f", reading.form.fields), reading.types.fields, reading.form.fields, strict=True))


def _id_text(reading: DigestReading, columns: Sequence[str]) -> str:
    casts = [
        canonical.cast(column, own, to).value + "::text"
        for column, own, to in zip(columns, reading.types.id, reading.form.id, strict=True)
    ]
    if len(casts) == 1:
        return casts[0]
    parts = [_id_part(text, to) for text, to in zip(casts, reading.form.id, strict=True)]
    return "('[' || " + " || ',' || ".join(parts) + " || ']')"


def _id_part(text: str, to: CanonicalType) -> str:
    if to.kind is Kind.INTEGER:
        return text
    quoted = f"to_json({text})::text"
    return f"case when {text} ~ '{_DECIMAL}' then {text} else {quoted} end" if to.bare else quoted


def _key(reading: DigestReading, columns: Sequence[str]) -> str:
    """Build SQL for the hash of the id, which decides on the bucket; NULL where a part of the id is."""
    if reading.mode is Mode.PORTABLE:
        return _MD5.format(_id_text(reading, columns))
    if len(columns) == 1 and reading.form.id[0].kind is Kind.UUID:
        return f"uuid_hash_extended({columns[0]}, 0)"
    return f'hashtextextended({_id_text(reading, columns)} collate "C", 0)'


_KEY = sql.SQL("k")


def _bucket(reading: DigestReading, key: sql.Composable = _KEY) -> sql.Composed:
    return sql.SQL(f"coalesce(({{}} & {reading.buckets - 1})::int4, {NO_ID})").format(key)


def _native(reading: DigestReading, read: sql.Composable) -> sql.Composed:
    ids = _numbered("i", reading.types.id)
    if len(ids) == 1:
        own, to = reading.types.id[0], reading.form.id[0]
        elements = [canonical.native(canonical.cast("i0", own, to).value, to)]
    else:
        elements = [f'{_id_text(reading, ids)} collate "C"']
    misfits = []
    for number, (raw, own, to) in enumerate(_values(reading)):
        cast = canonical.cast(raw, own, to)
        elements.append(canonical.native(cast.value, to))
        if cast.checked:
            misfits.append(f"case when {raw} is not null and {cast.value} is null then '{number}!' || {raw}::text end")
    # The other side has no such value and never the same text, so the row is fetched and looked at.
    elements.append(f"""nullif(concat_ws(',', {", ".join(misfits)}), '') collate "C\"""" if misfits else "null::text")
    # The key salts the hash, so that equal changes of two rows do not cancel each other out.
    return sql.SQL(f"hash_record_extended(row({', '.join(elements)}), coalesce(k, 0)) as h from {{}}").format(read)


def _portable(reading: DigestReading, read: sql.Composable) -> sql.Composed:
    texts = [f"{_id_text(reading, _numbered('i', reading.types.id))} as t"]
    cells = [f"coalesce({_cell('t', id_form(reading.form))}, '~')"]
    for raw, own, to in _values(reading):
        cast = canonical.cast(raw, own, to)
        texts.append(f"{canonical.portable(cast.value, to)} as t{raw}")
        cell = _cell(f"t{raw}", to)
        if cast.checked:
            texts.append(f"{raw}::text as r{raw}")
            cell += f", octet_length(r{raw}) || '!' || r{raw}"
        cells.append(f"coalesce({cell}, '~')")
    # The only names in it are our own.
    written = sql.SQL(f"(select k, {', '.join(texts)} from {{}} offset 0) as written").format(read)  # noqa: S608
    return sql.SQL(f"{_MD5.format(' || '.join(cells))} as h from {{}}").format(written)


def id_form(form: Layout[CanonicalType]) -> CanonicalType:
    """Choose what the text of an id is compared as: one of several columns is text."""
    return form.id[0] if len(form.id) == 1 else CanonicalType(Kind.TEXT)


def is_delimited(to: CanonicalType) -> bool:
    """Whether canonical texts hold no `;`, so that one ends a text; others have their length before them."""
    return to.kind in _WITHOUT_SEMICOLON


def _cell(text: str, to: CanonicalType) -> str:
    return f"{text} || ';'" if is_delimited(to) else f"octet_length({text}) || ':' || {text}"


def _numbered(prefix: str, columns: Sequence[object]) -> list[str]:
    return [f"{prefix}{number}" for number in range(len(columns))]


_BIG = 1 << 63
_HALVES = "sum((h >> 32)::int4) as high, sum((h << 32 >> 32)::int4) as low"
_MODULUS, _HALF = 1 << 64, 1 << 32
_WRAPPED = (
    f"div(mod(mod(sum(h), {_MODULUS}) + {_MODULUS}, {_MODULUS}), {_HALF})::bigint as high,"
    f" mod(mod(sum(h), {_HALF}) + {_HALF}, {_HALF})::bigint as low"
)
_WITHOUT_SEMICOLON = frozenset(
    (Kind.BOOLEAN, Kind.INTEGER, Kind.NUMERIC, Kind.FLOAT, Kind.UUID, Kind.TIMESTAMP, Kind.DATE, Kind.TIME, Kind.BYTEA)
)
_DECIMAL = "^(0|-?[1-9][0-9]*)$"
_IDS = {
    Kind.UUID: re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    Kind.INTEGER: re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII),
}
_MD5 = "('x' || substr(md5({}), 1, 16))::bit(64)::bigint"
_PROBE = """
    select hash_record_extended(
        row('Zoë'::text collate "C", int8send(-42), numeric_send(12.5), true, date '2026-01-01', null::text),
        uuid_hash_extended('3f2504e0-4f89-11d3-9a0c-0305e82c3301', 0))
"""
