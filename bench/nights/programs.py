"""What the bench runs in processes of their own; each prints its figures as one line of JSON.

python -m bench.nights.programs NAME '{"name": "value"}'
"""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

from bench.nights.world import FIELDS, PARTITIONS
from reconcile.contract.model import Topic
from reconcile.domain.canonical import Layout, agreed_layout
from reconcile.files import jars
from reconcile.gather.stores import buckets, digest
from reconcile.gather.stores.digest import DigestReading, Mode, Side
from reconcile.gather.stores.link_rows import PostgresRows
from reconcile.gather.stores.postgres_store import PostgresStore
from reconcile.gather.stores.session import open_session
from reconcile.lab.services.database import connect
from reconcile.settings.settings import Settings
from reconcile.settings.urls import parse
from reconcile.spark.session import session

TYPES = Layout(("uuid",), "bigint", ("text", "text", "text", "numeric", "timestamp with time zone", "boolean", "text"))
_EVENT = """
select id, to_json(named_struct(
  'event_id', regexp_replace(md5(concat(n, '/', e)), '^(.{8})(.{4})(.{4})(.{4})(.{12})$', '$1-$2-$3-$4-$5'),
  'id', id, 'version', n % 9 + 1 + e, 'name', concat('name ', n), 'mail', concat('mail', n, '@example.org'),
  'phone', if(n % 3 > 0, concat('+49 30 ', n), null), 'amount', cast(n % 100000 / 100 as decimal(12, 2)),
  'changed_at', if(e < had, timestamp_seconds(1767225600 + n), timestamp '2026-06-01 00:00:00'), 'active', n % 2 = 0,
  'note', case when e < had - 1 then concat('was ', e) when e < had then concat('note ', n % 1000) else 'later' end
)) as value from numbered
"""


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Give the seconds that something takes, and what it gives."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def start() -> dict[str, float]:
    """Start Spark as a run does, and no more."""
    with session(Settings(), "bench") as spark:
        spark.range(1).count()
    return {}


def publish(bootstrap: str, topic: str, rows: int, had: int, first: int, step: int, events: int) -> dict[str, float]:
    """Write the events of aggregates, the earlier ones of an aggregate first."""
    with session(Settings(), "bench") as spark:
        for event in range(events) if events else [had]:
            numbered = spark.range(first, rows + 1, step).selectExpr(
                "id as n", f"{event} as e", f"{had} as had",
                "regexp_replace(md5(cast(id as string)), '^(.{8})(.{4})(.{4})(.{4})(.{12})$', '$1-$2-$3-$4-$5') as id",
            )  # fmt: skip
            numbered.createOrReplaceTempView("numbered")
            writing = spark.sql(_EVENT).withColumnRenamed("id", "key").write.format("kafka")
            options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.linger.ms": "50"}
            writing.options(**options, **{"kafka.batch.size": "500000"}).save()
    return {}


def history(bootstrap: str, topic: str, folder: str) -> dict[str, float]:
    """Read all of a topic into a history."""
    from reconcile.gather.log.history import extend
    from reconcile.gather.log.store import HistoryStore
    from reconcile.kafka.client import ClusterClient
    from reconcile.settings.connections import ClusterConnection
    from reconcile.workspace.filesystem import LocalFileSystem

    connection = ClusterConnection.model_validate({"bootstrap": bootstrap})
    of_topic = Topic.model_validate(
        {"cluster": "main", "name": topic, "version": "$.version", "event_id": "$.event_id"}
    )
    with session(Settings(), "bench") as spark:
        spark.range(1).count()
        with closing(ClusterClient("main", connection.resolve())) as cluster:
            ends = cluster.ends(topic, range(PARTITIONS))
        store = HistoryStore(LocalFileSystem(), folder)
        seconds, read = timed(lambda: extend(spark, of_topic, connection, ends, store))
    held = sum(sum(segment.files.values()) for segment in read.index.segments)
    return {"seconds": seconds, "records": sum(ends.values()), "bytes": held}


def copies(urls: Sequence[str], table: str) -> dict[str, float]:
    """Read both tables as Postgres gives them fastest, and throw them away."""

    class Nowhere(io.RawIOBase):
        def write(self, data: Any) -> int:
            return len(data)

    def copy(url: str) -> None:
        with closing(connect(url)) as database, database.cursor() as cursor:
            cursor.copy_expert(f"copy {table} to stdout (format binary)", Nowhere())

    with ThreadPoolExecutor(2) as pool:
        seconds, _ = timed(lambda: list(pool.map(copy, urls)))
    return {"seconds": seconds}


def digests(urls: Sequence[str], table: str, rows: int) -> dict[str, float]:
    """Compute the digests of both tables."""
    with _sides(urls, table, rows) as (ours, theirs):
        seconds, found = timed(lambda: buckets.compare(ours, theirs))
    return {"seconds": seconds, "buckets": len(found.buckets)}


def stores(urls: Sequence[str], table: str, rows: int) -> dict[str, float]:
    """Fetch the rows of differing buckets, then all rows, to Parquet."""
    with session(Settings(), "bench") as spark, _sides(urls, table, rows) as sides:
        spark.range(1).count()
        found = buckets.compare(*sides)
        full = [replace(each, reading=replace(each.reading, mode=Mode.FULL)) for each in sides]

        def written(readers: Sequence[PostgresRows], chosen: Sequence[int] | None) -> None:
            def one(number: int) -> None:
                readers[number].all(spark, chosen).write.mode("overwrite").parquet(f"{folder}/{number}")

            with ThreadPoolExecutor(2) as pool:
                list(pool.map(one, range(2)))

        with tempfile.TemporaryDirectory() as folder:
            fetch, _ = timed(lambda: written(sides, found.buckets))
            snapshot, _ = timed(lambda: written(full, None))
    return {"fetch": fetch, "buckets": len(found.buckets), "snapshot": snapshot}


def join(urls: Sequence[str], table: str) -> dict[str, float]:
    """Extract both tables with Spark and join them: what one writes without a tool."""
    ours, theirs = _extracted(urls, table)
    same = " and ".join(f"s.{name} <=> c.{name}" for name in ("id", "version", *FIELDS))
    ours.createOrReplaceTempView("s")
    theirs.createOrReplaceTempView("c")
    words = f"select coalesce(s.id, c.id) as id from s full outer join c on s.id = c.id where not ({same})"
    return {"found": ours.sparkSession.sql(words).count()}


def datacompy(urls: Sequence[str], table: str) -> dict[str, float]:
    """Extract both tables with Spark, and have datacompy report on them."""
    from datacompy.spark import SparkSQLCompare

    ours, theirs = _extracted(urls, table)
    report = SparkSQLCompare(ours.sparkSession, ours, theirs, join_columns=["id"]).report()
    counted = r"(?:in df[12] but not in df[12]|some compared columns unequal): ([\d,]+)"
    return {
        "found": sum(int(each.replace(",", "")) for each in re.findall(f"Number of rows (?:with )?{counted}", report))
    }


def _extracted(urls: Sequence[str], table: str) -> tuple[Any, Any]:
    """Give both tables by Spark's JDBC, each in four stretches of its pages."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]").config("spark.driver.memory", "2g")
    builder = builder.config("spark.jars", ",".join(map(str, jars("spark"))))
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()

    def one(url: str) -> Any:
        with closing(connect(url)) as database, database.cursor() as cursor:
            cursor.execute("select pg_relation_size(%s) / 8192", (table,))
            (pages,) = cursor.fetchone() or (0,)
        cuts = [pages * part // 4 for part in range(1, 4)]
        stretches = [
            " and ".join(filter(None, [low and f"ctid >= '({low},0)'", high and f"ctid < '({high},0)'"]))
            for low, high in zip([0, *cuts], [*cuts, 0], strict=True)
        ]
        jdbc, properties = parse(url).jdbc()
        rows = f"(select ctid, id::text, {', '.join(('version', *FIELDS))} from {table}) t"
        properties |= {"driver": "org.postgresql.Driver", "fetchsize": "10000"}
        return spark.read.jdbc(jdbc, rows, predicates=stretches, properties=properties).drop("ctid")

    return one(urls[0]), one(urls[1])


@contextmanager
def _sides(urls: Sequence[str], table: str, rows: int) -> Iterator[tuple[PostgresRows, PostgresRows]]:
    """Give both tables at one instant each."""
    with ExitStack() as stack:
        found = []
        for name, url in zip(("source", "copy"), map(parse, urls), strict=True):
            opened = stack.enter_context(open_session(name, url))
            side = Side(("id",), tuple(FIELDS), table=table, version="version")
            reading = DigestReading(side, TYPES, agreed_layout(TYPES, TYPES), Mode.NATIVE, digest.bucket_count(rows))
            found.append(PostgresRows(PostgresStore(name, url, opened.take_snapshot().id), opened, reading))
        yield found[0], found[1]


PROGRAMS: Mapping[str, Callable[..., dict[str, float]]] = {
    each.__name__: each for each in (start, publish, history, copies, digests, stores, join, datacompy)
}


def main() -> None:
    """Run one, and print its figures."""
    name, given = sys.argv[1], json.loads(sys.argv[2])
    print(json.dumps(PROGRAMS[name](**given)))


if __name__ == "__main__":
    main()
