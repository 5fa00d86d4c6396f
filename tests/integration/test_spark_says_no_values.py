"""What Spark logs and raises of rows that it fails on: no value of theirs."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg2
import pytest

from reconcile.lab.folder import Lab
from reconcile.settings.settings import Settings
from reconcile.spark.failures import SparkJobError
from reconcile.spark.session import session
from tests.integration.worlds import postgres_alone
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUE = "Zoe-4711"
PROGRAM = """
import sys
from reconcile.gather.stores.postgres_store import PostgresStore
from reconcile.gather.stores.session import open_session
from reconcile.settings.settings import Settings
from reconcile.settings.urls import parse
from reconcile.spark.session import session

with open_session("user-db", parse(sys.argv[1])) as opened, session(Settings(), "failing") as spark:
    store = PostgresStore("user-db", parse(sys.argv[1]), opened.take_snapshot().id)
    for fail in (
        lambda: store.frame(spark, ["select note::int as x from notes"]).collect(),
        lambda: spark.sql("select cast(concat('Zoe-', id + 4711) as int) from range(1)").collect(),
        lambda: spark.range(4711, 4712).mapInArrow(lambda all: (int(f"Zoe-{b[0][0]}") for b in all), "x int").count(),
    ):
        try:
            fail()
        except Exception as error:
            assert "Zoe-4711" in str(error), error
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A server of this module's own."""
    with postgres_alone(ports_of("sql fence")) as lab:
        with closing(psycopg2.connect(lab.url("postgres", "postgres"))) as database, database.cursor() as cursor:
            cursor.execute(f"create table notes as select '{VALUE}' as note")
            database.commit()
        yield lab


def test_what_spark_logs_has_no_values(lab: Lab) -> None:
    """Of an exception it names the class and the frames; the driver's message quotes the row, and so do its causes."""
    url = lab.url("postgres", "postgres")
    arguments = [sys.executable, "-W", "ignore::ResourceWarning", "-c", PROGRAM, url]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False)
    assert 0 == done.returncode, done.stderr
    for kind in ("org.postgresql.util.PSQLException", "SparkNumberFormatException", "PythonException"):
        assert kind in done.stderr
    assert "\tat org.postgresql" in done.stderr
    assert VALUE not in done.stderr


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("select cast(concat('Zoe-', id + 4711) as int) from range(1)", "CAST_INVALID_INPUT"),
        ("select fails(id + 4711) from range(1)", "ValueError"),
    ],
)
def test_what_is_raised_of_a_job_has_no_values(spark: SparkSession, sql: str, told: str) -> None:
    """Where it was and what was raised, and not what the row was; the traceback leads to us."""

    def fails(number: int) -> int:
        return int(f"Zoe-{number}")

    spark.udf.register("fails", fails, "int")
    with pytest.raises(SparkJobError, match=told) as raised, session(Settings(), "there"):
        spark.sql(sql).collect()
    shown = "".join(traceback.format_exception(raised.value))
    assert VALUE not in shown
    assert __file__ in shown


def test_a_worker_s_frames_are_told(spark: SparkSession) -> None:
    """So that a fault of ours can be found."""

    def read(batches: object) -> object:
        raise ValueError(f"{VALUE}\n  File of a kind\nKeyError: {VALUE}")

    with pytest.raises(SparkJobError) as raised, session(Settings(), "there"):
        spark.range(1).mapInArrow(read, "x int").collect()  # type: ignore[arg-type]
    lines = str(raised.value).splitlines()
    assert "ValueError" == lines[-1]
    assert f'File "{__file__}"' in lines[-2]
    assert VALUE not in str(raised.value)
