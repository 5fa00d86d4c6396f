"""A side of a link that lies in a MariaDB: its digest, by all its sessions, and its rows, which one reads for Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, islice
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import StorageLevel  # noqa: TID253
from pyspark.sql import DataFrame, SparkSession  # noqa: TID253
from pyspark.sql import functions as f  # noqa: TID253

from reconcile.domain.canonical import CanonicalType, Kind, Layout, canonical_type
from reconcile.gather.stores import canonical_columns, row_columns
from reconcile.gather.stores.digest import NO_ID, DigestReading, Mode, OtherServer, Side
from reconcile.gather.stores.errors import StoreRefusedError
from reconcile.gather.stores.mariadb import statements
from reconcile.gather.stores.mariadb.session import Column, MariaSession

_TEXT = CanonicalType(Kind.TEXT)
_AT_ONCE = 2000
_HALF = (1 << 32) - 1
_HELD = 64 << 20
"""About how many bytes of rows this process holds at most; Spark has those before them."""


@dataclass(frozen=True)
class MariaStore:
    """A MariaDB at one instant, which our session keeps."""

    session: MariaSession

    @property
    def name(self) -> str:
        """The name of its connection."""
        return self.session.name

    def frame(self, spark: SparkSession, side: Side) -> DataFrame:
        """Read a side's columns under the names in `spark_store.columns`, NULL where Spark has no such value."""
        columns, where = statements.plain(side)
        types = [each.type for each in self.session.columns(f"{columns} limit 0")]
        names = [f"i{number}" for number in range(len(side.id))] + (["v"] if side.version else [])
        names += [f"f{number}" for number in range(len(side.fields))]
        texts = ", ".join(f"{statements.raw_text(name, own)} as {name}" for name, own in zip(names, types, strict=True))
        frame = self.read(spark, [f"select {texts} from ({columns}{where}) as side"], names)
        return frame.select(*(_typed(name, own).alias(name) for name, own in zip(names, types, strict=True)))

    def read(self, spark: SparkSession, queries: Iterable[str], names: Sequence[str]) -> DataFrame:
        """Read the rows of statements now, by our session; Spark keeps them on its disks."""
        schema = pa.schema([(name, pa.string()) for name in names])
        batches = (batch for query in queries for batch in self.session.batches(query))
        frames = []
        arrow = (self._arrow(batch, schema) for batch in batches)
        while some := list(_up_to(arrow, _HELD)):
            frame = spark.createDataFrame(pa.Table.from_batches(some, schema))
            kept = frame.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY) if _many(some) else frame
            frames.append(kept)
        nothing = spark.createDataFrame([], ", ".join(f"`{name}` string" for name in names))
        return reduce(lambda left, right: left.unionAll(right), frames) if frames else nothing

    def _arrow(self, rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        if any(statements.TOO_LARGE in column for column in columns):
            raise _too_large(self.name)
        return pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], schema=schema)


@dataclass(frozen=True)
class MariaRows:
    """A side that lies in a MariaDB."""

    store: MariaStore
    reading: DigestReading

    @property
    def form(self) -> Layout[CanonicalType]:
        """What the columns are compared as."""
        return self.reading.form

    @property
    def server(self) -> OtherServer:
        """What decides how it hashes."""
        return OtherServer("MariaDB", tuple(statements.without_digest(self.reading)))

    def digested(self, mode: Mode, buckets: int) -> MariaRows:
        """Choose how its digest is computed."""
        return replace(self, reading=replace(self.reading, mode=mode, buckets=buckets))

    def digest(self) -> tuple[list[tuple[int, int, int, int]], bool]:
        """Query bucket, rows, high and low; and whether no id can stand twice."""
        if self.reading.mode is not Mode.PORTABLE:
            raise ValueError("a MariaDB has the portable digest only")
        session, ranges = self.store.session, self._ranges()
        with ThreadPoolExecutor(len(ranges)) as pool:
            return _added(pool.map(self._lines, (session, *session.beside), ranges)), self._ids_are_unique()

    def _ranges(self) -> list[str]:
        """Cut the table into ranges of its primary key, no more than there are sessions.

        A table of another engine than InnoDB is of another instant in each session. It stays whole, as does one whose
        key is no id.
        """
        session, side = self.store.session, self.reading.side
        count = 1 + len(session.beside)
        if count == 1 or side.table is None or session.engine(side.table) != "InnoDB":
            return ["true"]
        names, key = [name.lower() for name in side.id], session.primary_key(side.table)
        if key is None or key.lower() not in names:
            return ["true"]
        number, rows = names.index(key.lower()), session.estimate(statements.relation(side))
        asked = [statements.bound(self.reading, number, rows * each // count) for each in range(1, count)]
        # As batches, for it takes as long as half the table is long.
        bounds = [line[0] for each in asked for batch in session.batches(each) for line in batch]
        return statements.ranges(self.reading, number, bounds, self._id_columns()[number], session.quoted)

    def _lines(self, session: MariaSession, where: str) -> list[tuple[int, int, int]]:
        """Query bucket, rows, and the sum of their hashes."""
        found = [line for batch in session.batches(statements.digest(self.reading, where)) for line in batch]
        if any(too_large == "1" for *_, too_large in found):
            raise _too_large(self.store.name)
        return [(int(bucket), int(counted), int(total)) for bucket, counted, total, _ in found]

    def repeated(self) -> Iterator[int]:
        """Query the buckets that hold an id twice, and perhaps some others."""
        for batch in self.store.session.batches(statements.repeated(self.reading)):
            yield from (int(bucket) for (bucket,) in batch)

    def all(self, spark: SparkSession, buckets: Sequence[int] | None = None) -> DataFrame:
        """Read all rows, or those in some buckets."""
        where = "true" if buckets is None else statements.in_buckets(self.reading, buckets)
        return self._shown(self._read(spark, [statements.rows(self.reading, where)]))

    def among(self, ids: DataFrame) -> DataFrame:
        """Read the rows whose ids are in the column `reconcile_id`, by its index if it has one."""
        wanted = (row[0] for row in ids.select(row_columns.ID).distinct().toLocalIterator())
        return self._shown(self._read(ids.sparkSession, self._statements_among(wanted)))

    def values(self, expressions: Sequence[str], ids: Sequence[str]) -> list[tuple[Any, ...]]:
        """Query id, version and a JSON array of each expression for the rows of these ids."""
        found = self.store.session.rows(statements.values(self.reading, expressions, self._among(ids)))
        if any(None in arrays for _, _, *arrays in found):
            raise _too_large(self.store.name)
        return found

    def _statements_among(self, wanted: Iterator[str | None]) -> Iterator[str]:
        while some := list(islice(wanted, _AT_ONCE)):
            listed = [each for each in some if each is not None]
            if listed:
                yield statements.rows(self.reading, self._among(listed))
            if len(listed) < len(some):
                yield statements.rows(self.reading, statements.in_buckets(self.reading, [NO_ID]))

    def _among(self, ids: Sequence[str]) -> str:
        return statements.among(self.reading, ids, self._id_columns(), self.store.session.quoted)

    def _id_columns(self) -> list[Column]:
        side = self.reading.side
        columns = ", ".join(map(statements.identifier, side.id))
        return self.store.session.columns(f"select {columns} from {statements.relation(side)} limit 0")

    def _read(self, spark: SparkSession, queries: Iterable[str]) -> DataFrame:
        fields = [row_columns.field(number) for number in range(len(self.form.fields))]
        return self.store.read(spark, queries, [row_columns.ID, row_columns.VERSION, *fields])

    def _shown(self, frame: DataFrame) -> DataFrame:
        """Build the canonical text of what is raw text still."""
        raw = statements.raw_fields(self.reading)
        if not any(raw):
            return frame
        names = Layout((row_columns.ID,), row_columns.VERSION, tuple(map(row_columns.field, range(len(raw)))))
        fields = tuple(to if each else _TEXT for each, to in zip(raw, self.form.fields, strict=True))
        return canonical_columns.rows(frame, names, Layout((_TEXT,), None, fields))

    def _ids_are_unique(self) -> bool:
        """Query whether an index sees to it that no id of a table stands twice."""
        side, session = self.reading.side, self.store.session
        if side.table is None:
            return False
        schema, name = session.schema_and_name(side.table)
        indexes: dict[str, set[str]] = {}
        for index, column in session.rows(
            f"select index_name, column_name from information_schema.statistics where table_schema = {schema}"
            f" and table_name = {name} and non_unique = 0"
        ):
            indexes.setdefault(index, set()).add(column.lower())
        return any(columns <= {each.lower() for each in side.id} for columns in indexes.values())


def _added(parts: Iterable[Iterable[tuple[int, int, int]]]) -> list[tuple[int, int, int, int]]:
    """Add the digests of parts of a table, modulo 2^64."""
    rows: Counter[int] = Counter()
    totals: Counter[int] = Counter()
    for bucket, counted, total in chain.from_iterable(parts):
        rows[bucket] += counted
        totals[bucket] += total
    return [(bucket, rows[bucket], total >> 32 & _HALF, total & _HALF) for bucket, total in totals.items()]


def _up_to(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    held = 0
    for batch in batches:
        yield batch
        held += batch.nbytes
        if held >= size:
            return


def _many(batches: Sequence[pa.RecordBatch]) -> bool:
    return sum(int(each.nbytes) for each in batches) >= _HELD


def _too_large(store: str) -> StoreRefusedError:
    return StoreRefusedError(
        f"the store {store}: a row is too large to be read as text; see that max_allowed_packet of the server is four"
        " times as large as its largest row"
    )


def _typed(name: str, own: str) -> Any:
    """Build a column of Spark's type for it out of its text."""
    column = f.col(name)
    match canonical_type(own).kind:
        case Kind.INTEGER:
            return column.cast("bigint")
        case Kind.NUMERIC:
            digits, scale = map(int, own.removeprefix("numeric(").removesuffix(")").split(","))
            return column.cast(f"decimal({digits},{scale})") if digits <= 38 else column
        case Kind.FLOAT:
            return column.cast("double")
        case Kind.TIMESTAMP | Kind.DATE as kind:
            return column.try_cast(kind.value)
        case Kind.BYTEA:
            return f.unhex(f.substring(column, 3, 1 << 31 - 1))
    return column
