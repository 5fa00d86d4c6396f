"""Stores that Spark reads by itself: databases by JDBC, and folders of Parquet."""

from __future__ import annotations

from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException  # noqa: TID253
from pyspark.sql import DataFrame, SparkSession  # noqa: TID253

from reconcile.domain.canonical import Layout
from reconcile.errors import RefusedError
from reconcile.gather.stores import contract_sql
from reconcile.gather.stores.digest import Side
from reconcile.gather.stores.errors import StoreReadError, StoreRefusedError
from reconcile.settings.connections import Folder, JdbcUrl
from reconcile.spark import internals
from reconcile.spark.java_causes import root_cause

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


@dataclass(frozen=True)
class SparkStore:
    """A store without snapshots."""

    name: str
    place: JdbcUrl | str
    """A database, or the path of a folder."""

    @classmethod
    def of(cls, name: str, connection: object) -> SparkStore:
        """Take it from a connection of the settings."""
        if isinstance(connection, Folder):
            return cls(name, connection.path.resolve().get_secret_value())
        if isinstance(connection, JdbcUrl):
            return cls(name, connection)
        raise RefusedError(f"the connection {name} is no database and no folder")

    def frame(self, spark: SparkSession, side: Side) -> DataFrame:
        """Read a side's columns under the names in `columns`; raise StoreReadError or StoreRefusedError."""
        read = self._of_folder if isinstance(self.place, str) else self._by_jdbc
        try:
            return read(spark, side)
        except AnalysisException as error:
            raise StoreRefusedError(f"the store {self.name} does not fit the contract: {_first(error)}") from None
        except (PySparkException, Py4JError) as error:
            raise StoreReadError(f"the store {self.name} cannot be read: {self._safe(_first(error))}") from None

    def _of_folder(self, spark: SparkSession, side: Side) -> DataFrame:
        rows = spark.read.parquet(f"{self.place}/{side.table}") if side.table else spark.sql(str(side.query))
        if side.deleted:
            rows = rows.where(f"not coalesce((\n{side.deleted}\n), false)")
        named = [f"`{name.replace('`', '``')}` as i{number}" for number, name in enumerate(side.id)]
        if side.version:
            named.append(f"`{side.version.replace('`', '``')}` as v")
        return rows.selectExpr(*named, *(f"(\n{text}\n) as f{number}" for number, text in enumerate(side.fields)))

    def _by_jdbc(self, spark: SparkSession, side: Side) -> DataFrame:
        assert isinstance(self.place, JdbcUrl)
        url = self.place.url.get_secret_value()
        dialect = internals.java(spark).org.apache.spark.sql.jdbc.JdbcDialects.get(url)

        def quoted(name: str) -> str:
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
        return text if isinstance(self.place, str) else text.replace(self.place.url.get_secret_value(), "[url]")


def columns(side: Side) -> Layout[str]:
    """List the names under which `SparkStore.frame` has a side's columns."""
    ids = tuple(f"i{number}" for number in range(len(side.id)))
    return Layout(ids, "v" if side.version else None, tuple(f"f{number}" for number in range(len(side.fields))))


def _first(error: Exception) -> str:
    thrown = root_cause(error)
    said = str(thrown.getMessage() if thrown is not None else error)
    return next(iter(said.strip().splitlines()), type(error).__name__)[:500]
