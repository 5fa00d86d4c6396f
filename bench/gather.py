"""How fast two tables are compared: digests in both databases, the rows of differing buckets, and all rows to Parquet.

Beside each stands what it is held against in the same run: the bare digests, and COPY to nowhere.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from reconcile.audit import compare
from reconcile.domain.canonical import Layout
from reconcile.domain.case import FieldRule
from reconcile.gather.stores import buckets, digest
from reconcile.gather.stores.digest import DigestReading, Mode, Side
from reconcile.gather.stores.link_rows import PostgresRows
from reconcile.gather.stores.postgres_store import PostgresStore
from reconcile.gather.stores.session import open_session
from reconcile.lab.folder import Lab, Ports
from reconcile.lab.postgres import PostgresServer
from reconcile.lab.services.database import connect
from reconcile.settings.settings import Settings, Spark
from reconcile.settings.urls import parse
from reconcile.spark.session import session
from reconcile.workspace import arrow_tables

COLUMNS = ("name", "mail", "phone", "amount", "changed_at", "active", "note")
TYPES = Layout(("uuid",), "bigint", ("text", "text", "text", "numeric", "timestamp with time zone", "boolean", "text"))
MAKE = """
create unlogged table {table} as
select md5(n::text)::uuid as id, (n % 9 + 1)::bigint as version, 'name ' || n as name,
       'mail' || n || '@example.org' as mail, case when n % 3 > 0 then '+49 30 ' || n end as phone,
       (n % 100000)::numeric / 100 as amount, timestamptz '2026-01-01' + n * interval '1 second' as changed_at,
       n % 2 = 0 as active, 'note ' || n % 1000 as note
  from generate_series(1, {rows}) n
"""


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Give the seconds that something takes, and what it gives."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def copied(lab: Lab) -> None:
    """Read both tables as Postgres gives them fastest, and throw them away."""

    class Nowhere(io.RawIOBase):
        def write(self, data: Any) -> int:
            return len(data)

    def copy(table: str) -> None:
        with closing(connect(lab.url("postgres", "postgres"))) as database, database.cursor() as cursor:
            cursor.copy_expert(f"copy {table} to stdout (format binary)", Nowhere())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(copy, ("ours", "theirs")))


@contextmanager
def sides(lab: Lab, rows: int) -> Iterator[tuple[PostgresRows, PostgresRows]]:
    """Give both tables at one instant each."""
    url = parse(lab.url("postgres", "postgres"))
    with ExitStack() as stack:
        found = []
        for table in ("ours", "theirs"):
            opened = stack.enter_context(open_session(table, url))
            snapshot = opened.take_snapshot()
            side = Side(("id",), COLUMNS, table=table, version="version")
            reading = DigestReading(side, TYPES, digest_form(), Mode.NATIVE, digest.bucket_count(rows))
            found.append(PostgresRows(PostgresStore(table, url, snapshot.id), opened, reading))
        yield found[0], found[1]


def digest_form() -> Any:
    """Give what the columns are compared as."""
    from reconcile.domain.canonical import agreed_layout

    return agreed_layout(TYPES, TYPES)


def peak(pid: int | str) -> int:
    """Give the most memory that a process has had, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--drift", type=float, default=0.001)
    asked = parser.parse_args()
    folder = Path(tempfile.gettempdir()) / "reconcile-bench-gather"
    folder.mkdir(exist_ok=True)
    lab = Lab(folder)
    lab.remember(ports=Ports(postgres=15602, kafka=19452, controller=19453))
    postgres = PostgresServer(lab)
    postgres.up()
    try:
        with closing(connect(lab.url("postgres", "postgres"))) as database, database, database.cursor() as cursor:
            cursor.execute("drop table if exists ours; drop table if exists theirs")
            for table in ("ours", "theirs"):
                cursor.execute(MAKE.format(table=table, rows=asked.rows))
            cursor.execute(f"update theirs set mail = 'other' where version = 3 and random() < {asked.drift * 9}")
        with closing(connect(lab.url("postgres", "postgres"))) as database:
            database.autocommit = True
            with database.cursor() as cursor:
                cursor.execute("vacuum analyze ours; ")
                cursor.execute("vacuum analyze theirs")
        settings = Settings(spark=Spark(conf={"spark.driver.memory": "2g"}))
        with session(settings, "bench") as spark, sides(lab, asked.rows) as (ours, theirs):
            spark.range(1).count()
            measure(spark, lab, ours, theirs)
    finally:
        postgres.down()
        postgres.wipe()


def measure(spark: Any, lab: Lab, ours: PostgresRows, theirs: PostgresRows) -> None:
    """Run each piece of work once, one after the other."""
    rules = [FieldRule(name) for name in COLUMNS]
    full = [replace(each, reading=replace(each.reading, mode=Mode.FULL)) for each in (ours, theirs)]

    def digested() -> Any:
        return buckets.compare(ours, theirs)

    def written(readers: list[PostgresRows], folder: str, chosen: Sequence[int] | None = None) -> None:
        def one(number: int) -> None:
            parts, place = readers[number].parts(chosen), Path(folder) / str(number)
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            arrow_tables.write(place, parts.columns, parts.readers(spark.sparkContext.defaultParallelism))

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, range(2)))

    def fetched(found: Any, folder: str) -> int:
        written([ours, theirs], folder, found.buckets)
        frames = [spark.read.parquet(f"{folder}/{number}") for number in range(2)]
        return int(compare.differences(frames[0], frames[1], rules).count())

    copying, _ = timed(lambda: copied(lab))
    bare, found = timed(digested)
    with tempfile.TemporaryDirectory() as folder:
        fetching, ids = timed(lambda: fetched(found, folder))
        writing, _ = timed(lambda: written(full, folder))
    driver = spark._jvm.java.lang.ProcessHandle.current().pid()
    report = {
        "rows a side": f"{found.source_rows:,}",
        "differing ids": f"{ids:,} in {len(found.buckets):,} of {found.count:,} buckets",
        "COPY binary of both sides to nowhere": f"{copying:.1f} s",
        "digests of both sides": f"{bare:.1f} s",
        "digests, rows of differing buckets, comparison": f"{bare + fetching:.1f} s"
        f" = {(bare + fetching) / bare:.2f} x the digests (goal 2.5)",
        "full snapshot of both sides to Parquet": f"{writing:.1f} s = {writing / copying:.2f} x COPY (goal 2.5)",
        "peak memory": f"Spark {peak(driver):,} MB, Python {peak('self'):,} MB",
    }
    for name, value in report.items():
        sys.stdout.write(f"{name:<48} {value}\n")


if __name__ == "__main__":
    main()
