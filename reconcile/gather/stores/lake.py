"""The tables of a lake, Iceberg's and Delta's, as Spark reads them: which snapshot is current, and the rows of one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException  # noqa: TID253
from pyspark.sql import DataFrame, SparkSession  # noqa: TID253

from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import KeyPath, quoted
from reconcile.errors import ReconcileError, RefusedError
from reconcile.gather.stores.contract_check import Mismatches, Part
from reconcile.gather.stores.errors import (
    NoSnapshotError,
    NoTableError,
    StoreReadError,
    StoreRefusedError,
    StoreUnreachableError,
)
from reconcile.settings.connections import LakePlace
from reconcile.spark import internals, parsed_sql
from reconcile.spark.java_causes import root_cause
from reconcile.spark.session import DELTA, has_class

_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_CLASSES = {"iceberg": _CATALOG, "delta": DELTA["spark.sql.extensions"]}
_NO_TABLE = frozenset(
    {"TABLE_OR_VIEW_NOT_FOUND", "PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_TABLE_ONLY_OPERATION"}
)
_NO_SNAPSHOT = re.compile(r"Cannot find snapshot|DELTA_VERSION_NOT_FOUND|DELTA_NO_RECREATABLE_HISTORY|logFileNotFound")
_AWAY = re.compile(r"Connect\w*Exception|UnknownHost|NoRouteToHost|Timeout|TTransport|ServiceUnavailable")
_NO_ACCESS = re.compile(r"NotAuthorized|Forbidden|AccessControl|AccessDenied|Authentication")
_SHORTEST_SECRET = 4
_LISTED = 5


@dataclass(frozen=True)
class LakeTable:
    """One table of a lake, and the Spark that reads it."""

    spark: SparkSession
    store: str
    place: LakePlace
    name: str

    def rows(self, snapshot: str | None = None) -> DataFrame:
        """Read the table as it is, or as one of its snapshots has it."""
        with self.explained():
            reader = self.spark.read if snapshot is None else self.spark.read.option("versionAsOf", snapshot)
            try:
                if self.place.format == "delta":
                    return reader.format("delta").load(self._path)
                return reader.table(self.identifier)
            except PySparkException as error:
                if snapshot is not None and _NO_SNAPSHOT.search(str(error)):
                    raise self._no_snapshot(snapshot) from None
                raise

    def current_snapshot(self) -> str:
        """Query the id of the snapshot that is current; raise NoSnapshotError where nothing was ever written."""
        with self.explained():
            if self.place.format == "delta":
                found = self.spark.sql(f"describe history {self.identifier} limit 1").select("version").collect()
            else:
                refs = self.spark.table(f"{self.identifier}.refs")
                found = refs.where("name = 'main'").select("snapshot_id").collect()
        if not found:
            raise NoSnapshotError(
                f"the table {self.name} of {self.store} has no snapshot yet: nothing was ever written to it; wait until"
                " its consumer has written, or see that it is the right table"
            )
        return str(found[0][0])

    @property
    def _path(self) -> str:
        return f"{self.place.warehouse.rstrip('/')}/{self.name.replace('.', '/')}"

    @property
    def identifier(self) -> str:
        """Build the table's name as Spark's SQL has it."""
        if self.place.format == "delta":
            require_ready(self.spark, self.store, "delta")
            return f"delta.{_backticked(self._path)}"
        return ".".join(map(_backticked, (_catalog(self.spark, self.store, self.place), *self.name.split("."))))

    def _no_snapshot(self, snapshot: str) -> NoSnapshotError:
        if self.place.format == "delta":
            versions = self.spark.sql(f"describe history {self.identifier} limit {_LISTED}").select("version")
        else:
            every = self.spark.table(f"{self.identifier}.snapshots").orderBy("committed_at", ascending=False)
            versions = every.select("snapshot_id").limit(_LISTED)
        newest = ", ".join(str(version) for (version,) in versions.collect())
        return NoSnapshotError(
            f"the table {self.name} of {self.store} has no snapshot {snapshot}: it has expired, or never was;"
            f" the newest are {newest}"
        )

    def _no_table(self) -> ReconcileError:
        """Build the error for a table that is not there, which may be all of its warehouse."""
        place = self.place
        names: list[str] = []
        *above, _ = self.name.split(".")
        if place.format == "delta" or not _is_named(place):
            java = internals.java(self.spark)
            files = java.org.apache.hadoop.fs.Path(place.warehouse).getFileSystem(
                internals.hadoop_configuration(self.spark)
            )
            if not files.exists(java.org.apache.hadoop.fs.Path(place.warehouse)):
                return StoreUnreachableError(
                    f"the warehouse of the store {self.store} is not there: {_shown(place.warehouse)}; see that its"
                    " address is right, and that this machine sees it"
                )
            folder = java.org.apache.hadoop.fs.Path("/".join([place.warehouse, *above]))
            if files.exists(folder):
                names = [str(each.getPath().getName()) for each in files.listStatus(folder) if each.isDirectory()]
        else:
            namespace = ".".join(map(_backticked, (_catalog(self.spark, self.store, place), *above)))
            try:
                names = [each["tableName"] for each in self.spark.sql(f"show tables in {namespace}").collect()]
            except (PySparkException, Py4JError):
                names = []  # there is no such namespace
        hint = suggestion(self.name, [".".join([*above, each]) for each in names])
        return NoTableError(f"no table {quoted(self.name)} in {self.store}{hint}")

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise errors of stores for what Spark and its catalogs say."""
        try:
            require_ready(self.spark, self.store, self.place.format)
            yield
        except AnalysisException as error:
            if error.getCondition() in _NO_TABLE:
                with self.explained():
                    missing = self._no_table()
                raise missing from None
            raise StoreRefusedError(f"the table {self.name} of {self.store}: {self._said(error)}") from None
        except (PySparkException, Py4JError) as error:
            raise self._named(error) from None

    def _named(self, error: Exception) -> ReconcileError:
        thrown = root_cause(error)
        kind = "" if thrown is None else str(thrown.getClass().getSimpleName())
        said = self._said(error)
        if _AWAY.search(kind):
            return StoreUnreachableError(f"the store {self.store} cannot be reached: {said}; see that it is up")
        if _NO_ACCESS.search(kind):
            return StoreRefusedError(f"the store {self.store} refuses us: {said}; check its credentials and rights")
        if kind == "ClassNotFoundException":
            return StoreRefusedError(
                f"the store {self.store} needs a jar that Spark does not have: {said}; add it to spark.jars in"
                " `spark.conf` of the settings"
            )
        if not isinstance(error, Py4JJavaError):
            return StoreRefusedError(f"the store {self.store} cannot be used: {said}")
        return StoreReadError(f"the store {self.store} cannot be read: {kind}: {said}")

    def _said(self, error: Exception) -> str:
        """Choose the first line of what was said, without the catalog's secrets."""
        thrown = root_cause(error)
        said = str(thrown.getMessage() if thrown is not None else error).strip()
        for value in self.place.catalog.values():
            if len(value) >= _SHORTEST_SECRET:
                said = said.replace(value, "[hidden]")
        return _shown(next(iter(said.splitlines()), type(error).__name__))[:500]


def require_ready(spark: SparkSession, store: str, form: str) -> None:
    """Raise RefusedError, with what to do about it, for a Spark that lacks what a format needs."""
    if not has_class(spark, _CLASSES[form]):
        raise RefusedError(
            f"the store {store} needs the jars of {form}, and Spark runs without them: run"
            f" `reconcile setup --with {form}`, and start again"
        )
    if form == "delta" and _CLASSES[form] not in (spark.conf.get("spark.sql.extensions", "") or ""):
        listed = " ".join(f"--conf {key}={value}" for key, value in DELTA.items())
        raise RefusedError(
            f"the store {store} needs Delta's extension, and Spark runs without it: start it with {listed}"
        )


def check(table: LakeTable, snapshot: int | None, here: KeyPath, parts: Iterable[Part], found: Mismatches) -> None:
    """Check that a table is there, at a named snapshot or the current one, and all that a contract says over it."""
    try:
        at = table.current_snapshot() if snapshot is None else str(snapshot)
        rows = table.rows(at)
    except NoTableError as error:
        found.add((*here, "table"), str(error))
        return
    except NoSnapshotError as error:
        raise found.at((*here, "table" if snapshot is None else "snapshot"), error) from None
    for part in parts:
        text = f"(\n{part.sql}\n)" if part.column is None else _backticked(part.column)
        try:
            if part.column is None:
                parsed_sql.require_calls(table.spark, part.sql)
            rows.selectExpr(text)
        except RefusedError as error:
            found.add(part.path, str(error))
        except PySparkException as error:
            found.add(part.path, _problem(error, part, table.name, rows.columns))


def _problem(error: PySparkException, part: Part, table: str, columns: list[str]) -> str:
    condition, parameters = error.getCondition() or "", error.getMessageParameters() or {}
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = part.column or parameters.get("objectName", "").replace("`", "")
        hint = suggestion(name, columns) or f"; there are {', '.join(columns)}"
        return f"no column {quoted(name)} in {table}{hint}"
    said = next((line for line in str(error).splitlines() if line.strip()), condition)
    return re.sub(r" SQLSTATE: \w+.*", "", said)


def _is_named(place: LakePlace) -> bool:
    """Whether a service has the names of the tables, and not the folders of the warehouse."""
    kind = place.catalog.get("type", "hadoop")
    return "catalog-impl" in place.catalog or kind != "hadoop"


def _catalog(spark: SparkSession, store: str, place: LakePlace) -> str:
    """Set a catalog's properties in the session; name it by them, so that others of the session are kept apart."""
    require_ready(spark, store, "iceberg")
    # Without Iceberg's cache, in which a table stays as it was for half a minute.
    given = {"warehouse": place.warehouse, "cache-enabled": "false", **place.catalog}
    if not _is_named(place):
        given["type"] = "hadoop"
    digest = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:12]
    name = place.name or f"{re.sub(r'[^A-Za-z0-9]', '_', store)}_{digest}"
    prefix = f"spark.sql.catalog.{name}"
    wanted = {prefix: _CATALOG, **{f"{prefix}.{key}": value for key, value in given.items()}}
    there = {key: value for key, value in spark.conf.getAll.items() if key == prefix or key.startswith(f"{prefix}.")}
    differing = sorted(key for key in {*there, *wanted} if there.get(key) != wanted.get(key))
    if there and differing:
        raise RefusedError(
            f"the store {store}: this Spark has a catalog {name} with other properties already (they differ in"
            f" {', '.join(differing)}): give one of both another `name`"
        )
    if differing:
        for key in reversed(wanted):  # the class last: with it, the catalog is there
            spark.conf.set(key, wanted[key])
    return name


def _shown(text: str) -> str:
    """Leave out what may be a password in an address."""
    return re.sub(r"(?<=//)[^/@\s]*@", "", text)


def _backticked(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
