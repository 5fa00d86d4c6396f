"""A source that is no Postgres: what events say of its rows is computed by Spark."""

from __future__ import annotations

from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from reconcile.contract.model import Contract
from reconcile.domain.canonical import CanonicalType, Kind, Layout
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.stores.digest import Side
from reconcile.gather.stores.link_rows import SparkRows
from reconcile.gather.stores.spark_store import SparkStore
from reconcile.repair.source_values import SourceRow, SourceValues
from reconcile.settings.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTRACT = {
    "version": 1,
    "aggregate": "product",
    "source": {"store": "lake", "table": "product", "id": "id", "version": "version", "deleted": "gone"},
    "topic": {
        "cluster": "main",
        "name": "product",
        "value": {"id": "id", "price": "price", "name": "upper(name)", "tags": "tags"},
    },
    "consumers": [
        {
            "name": "shop",
            "group": "shop",
            "isolation": "read_committed",
            "store": "lake",
            "table": "copy",
            "id": "id",
            "fields": [{"name": "name", "source": "name", "consumer": "name"}],
        }
    ],
}


def test_rows_of_a_folder_are_read_by_their_ids(spark: SparkSession, tmp_path: Path) -> None:
    """By the contract's SQL in Spark's dialect, with all digits, NULLs and what counts as deleted."""
    rows = [
        (1, 3, Decimal("12.50"), "a", ["x"], False),
        (2, 4, None, None, None, True),
        (3, 1, Decimal("1.00"), "c", [], False),
    ]
    columns = "id bigint, version bigint, price decimal(10,2), name string, tags array<string>, gone boolean"
    spark.createDataFrame(rows, columns).write.parquet(str(tmp_path / "product"))
    frame, form = spark.read.parquet(str(tmp_path / "product")), Layout((CanonicalType(Kind.INTEGER),), None, ())
    reader = SimpleNamespace(
        spark=spark,
        contract=Contract.model_validate(CONTRACT),
        settings=Settings.model_validate({"connections": {"lake": {"path": str(tmp_path)}}}),
        rows=[SparkRows(SparkStore("lake", str(tmp_path)), Side(("id",), (), "product"), frame, form)],
        reading=nullcontext,
    )
    expected = {
        "1": [SourceRow("1", 3, gone=False, values={"id": 1, "price": Decimal("12.50"), "name": "A", "tags": ["x"]})],
        "2": [SourceRow("2", 4, gone=True, values={"id": 2, "price": None, "name": None, "tags": None})],
    }
    assert expected == SourceValues(cast("LinkReader", reader)).of(["1", "2", "9"])
