"""Stores that Spark reads by itself: databases by JDBC, folders of Parquet, lakes, and what plug-ins read for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException  # noqa: TID253
from pyspark.sql import DataFrame, SparkSession  # noqa: TID253

from reconcile.domain.canonical import Layout
from reconcile.errors import RefusedError
from reconcile.gather.stores import contract_sql, plugin, row_columns
from reconcile.gather.stores.digest import Side
from reconcile.gather.stores.errors import StoreReadError, StoreRefusedError
from reconcile.gather.stores.lake import LakeTable
from reconcile.settings.connections import Folder, JdbcUrl, Lake, LakePlace, PluginUrl
from reconcile.spark import internals, parsed_sql
from reconcile.spark.java_causes import root_cause

_QUOTES = re.compile(r"""["'`\\\[\]]""")
_DRIVERS = {
    "db2": "com.ibm.db2.jcc.DB2Driver",
    "h2": "org.h2.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "oracle": "oracle.jdbc.OracleDriver",
    "postgresql": "org.postgresql.Driver",
    "sqlite": "org.sqlite.JDBC",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
}


class FrameStore(Protocol):
    """A store whose rows come as they are, as columns of Spark's types."""

    def frame(self, spark: SparkSession, side: Side) -> DataFrame:
        """Read a side's columns under the names in `columns`; raise StoreReadError or StoreRefusedError."""


@dataclass(frozen=True)
class SparkStore:
    """A store that is read as it is now, unless it is a lake, or a plug-in can read it as it was."""

    name: str
    place: JdbcUrl | PluginUrl | LakePlace | str
    """A database, what a plug-in reads, a lake, or the path of a folder."""
    cut: str | None = None
    """The instant that a plug-in reads it of; the snapshot of a lake's table."""
    cut_of: str | None = None
    """The table whose snapshot it is: others of a lake are read as they are now."""

    @classmethod
    def of(cls, name: str, connection: object, cut: str | None = None, cut_of: str | None = None) -> SparkStore:
        """Take it from a connection of the settings."""
        if isinstance(connection, Folder):
            return cls(name, connection.path.resolve().get_secret_value())
        if isinstance(connection, Lake):
            return cls(name, connection.resolve(), cut, cut_of)
        if isinstance(connection, (JdbcUrl, PluginUrl)):
            return cls(name, connection, cut)
        raise RefusedError(f"the connection {name} is no database and no folder")

    def frame(self, spark: SparkSession, side: Side) -> DataFrame:
        """Read a side's columns under the names in `columns`; raise StoreReadError or StoreRefusedError."""
        if isinstance(self.place, PluginUrl):
            return self._read(lambda: self._by_plugin(spark, side, None))
        if isinstance(self.place, LakePlace):
            return self._read(lambda: self._of_lake(spark, side))
        return self._read(
            lambda: self._of_folder(spark, side) if isinstance(self.place, str) else self._by_jdbc(spark, side)
        )

    def among(self, frame: DataFrame, side: Side, ids: DataFrame) -> DataFrame:
        """Choose of a side's `frame` no less than the rows whose ids are in the column `reconcile_id`.

        A plug-in is asked for them alone, where one column holds the id.
        """
        if not isinstance(self.place, PluginUrl) or len(side.id) > 1:
            return frame
        return self._read(lambda: self._by_plugin(frame.sparkSession, side, ids))

    def _read(self, read: Callable[[], DataFrame]) -> DataFrame:
        try:
            return read()
        except AnalysisException as error:
            raise StoreRefusedError(f"the store {self.name} does not fit the contract: {_first(error)}") from None
        except (PySparkException, Py4JError) as error:
            raise StoreReadError(f"the store {self.name} cannot be read: {self._safe(_first(error))}") from None

    def _of_folder(self, spark: SparkSession, side: Side) -> DataFrame:
        if side.table:
            return _of_side(spark.read.parquet(f"{self.place}/{side.table}"), side)
        parsed_sql.require_calls(spark, str(side.query), folder=str(self.place))
        return _of_side(spark.sql(str(side.query)), side)

    def _of_lake(self, spark: SparkSession, side: Side) -> DataFrame:
        assert isinstance(self.place, LakePlace)
        assert side.table is not None
        snapshot = self.cut if side.table == self.cut_of else None
        return _of_side(LakeTable(spark, self.name, self.place, side.table).rows(snapshot), side)

    def _by_plugin(self, spark: SparkSession, side: Side, ids: DataFrame | None) -> DataFrame:
        assert isinstance(self.place, PluginUrl)
        name, place, cut = self.name, self.place, self.cut
        relation, id_column = str(side.table or side.query), side.id[0]
        chosen = ids is not None  # what workers run holds no frame
        described = plugin.schema_of(name, place, relation)

        def rows_of(wanted: list[str] | None) -> Iterator[pa.RecordBatch]:
            return plugin.read(name, place, relation, described, id_column, wanted, cut)

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                listed = batch.column(0).to_pylist()
                yield from rows_of([each for each in listed if each is not None] if chosen else None)
                if chosen and None in listed:
                    yield from (each.filter(pc.is_null(each.column(id_column))) for each in rows_of(None))

        asked = spark.range(1, numPartitions=1) if ids is None else ids.select(row_columns.ID).distinct()
        rows = asked.mapInArrow(read, spark.createDataFrame(described.empty_table()).schema)
        return _of_side(rows, side)

    def _by_jdbc(self, spark: SparkSession, side: Side) -> DataFrame:
        assert isinstance(self.place, JdbcUrl)
        for text in (*side.fields, side.deleted, side.query):
            contract_sql.require_for_jdbc(text or "")
        url = self.place.url.get_secret_value()
        dialect = internals.java(spark).org.apache.spark.sql.jdbc.JdbcDialects.get(url)

        def quoted(name: str) -> str:
            if _QUOTES.search(name):
                raise RefusedError(
                    f"databases differ in how they quote the column {name}, in the contract's SQL: make a view"
                )
            return str(dialect.quoteIdentifier(name))

        named = [f"{quoted(name)} as i{number}" for number, name in enumerate(side.id)]
        if side.version:
            named.append(f"{quoted(side.version)} as v")
        named += [f"(\n{text}\n) as f{number}" for number, text in enumerate(side.fields)]
        table = ".".join(map(quoted, side.table.split("."))) if side.table else f"(\n{side.query}\n) reconcile_rows"
        where = f" where case when (\n{side.deleted}\n) then 1 else 0 end = 0" if side.deleted else ""
        # Names are quoted by the database's own dialect; the rest is the contract's, run by an account that only reads.
        query = f"select {', '.join(named)} from {table}{where}"  # noqa: S608
        if url.startswith("jdbc:postgresql:"):
            query = contract_sql.for_jdbc(query)
        options = {"url": url, "query": query, "fetchsize": "10000"}
        if url.startswith("jdbc:postgresql:"):
            options["sessionInitStatement"] = "set row_security = off"  # a row that is hidden would count as deleted
        # Of drivers that came with Spark's jars Java tells nothing: they have to be named.
        driver = _DRIVERS.get(url.split(":", 2)[1])
        frame = spark.read.format("jdbc").options(**options, **({"driver": driver} if driver else {})).load()
        return frame.toDF(*columns(side).columns())  # some databases write the names that we gave in capitals

    def _safe(self, text: str) -> str:
        return (
            text
            if isinstance(self.place, (str, LakePlace))
            else text.replace(self.place.url.get_secret_value(), "[url]")
        )


def columns(side: Side) -> Layout[str]:
    """List the names under which `SparkStore.frame` has a side's columns."""
    ids = tuple(f"i{number}" for number in range(len(side.id)))
    return Layout(ids, "v" if side.version else None, tuple(f"f{number}" for number in range(len(side.fields))))


def _of_side(rows: DataFrame, side: Side) -> DataFrame:
    """Choose a side's columns, by Spark's own SQL."""
    for text in (*side.fields, *([side.deleted] if side.deleted else [])):
        parsed_sql.require_calls(rows.sparkSession, text)
    if side.deleted:
        rows = rows.where(f"not coalesce((\n{side.deleted}\n), false)")
    named = [f"`{name.replace('`', '``')}` as i{number}" for number, name in enumerate(side.id)]
    if side.version:
        named.append(f"`{side.version.replace('`', '``')}` as v")
    return rows.selectExpr(*named, *(f"(\n{text}\n) as f{number}" for number, text in enumerate(side.fields)))


def _first(error: Exception) -> str:
    thrown = root_cause(error)
    said = str(thrown.getMessage() if thrown is not None else error)
    return next(iter(said.strip().splitlines()), type(error).__name__)[:500]
