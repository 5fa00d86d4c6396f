"""How fast a Postgres is compared with a MariaDB by digests, beside Postgres with Postgres in the same run."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from bench.nights.programs import timed
from reconcile.domain.canonical import Layout, agreed_layout
from reconcile.gather.stores import buckets, digest
from reconcile.gather.stores.digest import DigestReading, Mode, Side
from reconcile.gather.stores.link_rows import DigestedRows, PostgresRows
from reconcile.gather.stores.mariadb.rows import MariaRows, MariaStore
from reconcile.gather.stores.mariadb.session import open_maria_session
from reconcile.gather.stores.postgres_store import PostgresStore
from reconcile.gather.stores.session import open_session
from reconcile.lab.folder import Lab, Ports
from reconcile.lab.postgres import PostgresServer
from reconcile.lab.services.database import connect
from reconcile.settings.urls import parse
from tests.integration.mariadb_server import MariaServer, mariadb_server

PORT = 15604
COLUMNS = ("name", "mail", "phone", "amount", "changed_at", "active", "note")
OF_POSTGRES = Layout(
    ("uuid",), "bigint", ("text", "text", "text", "numeric", "timestamp with time zone", "boolean", "text")
)
OF_MARIADB = Layout(
    ("uuid",),
    "bigint",
    *(("text", "text", "text", "numeric(12,2)", "timestamp without time zone", "smallint", "text"),),
)
ID = "concat(substr(m, 1, 8), '-', substr(m, 9, 4), '-4', substr(m, 14, 3), '-8', substr(m, 18, 3), '-', substr(m, 21))"
MAKE = f"""
create unlogged table {{table}} as
select ({ID})::uuid as id, (n % 9 + 1)::bigint as version, 'name ' || n as name,
       'mail' || n || '@example.org' as mail, case when n % 3 > 0 then '+49 30 ' || n end as phone,
       (n % 100000)::numeric / 100 as amount, timestamptz '2026-01-01' + n * interval '1 second' as changed_at,
       n % 2 = 0 as active, 'note ' || n % 1000 as note
  from (select n, md5(n::text) as m from generate_series(1, {{rows}}) n) as numbered
 order by id;
alter table {{table}} add primary key (id)
"""
TABLE = """
create table theirs (
    id uuid primary key, version bigint, name varchar(100), mail varchar(100), phone varchar(40), amount decimal(12,2),
    changed_at datetime(6), active tinyint(1), note varchar(100))
"""
FILL = f"""
insert into theirs
select {ID}, seq % 9 + 1, concat('name ', seq), concat('mail', seq, '@example.org'),
       if(seq % 3 > 0, concat('+49 30 ', seq), null), (seq % 100000) / 100, '2026-01-01' + interval seq second,
       seq % 2 = 0, concat('note ', seq % 1000)
  from (select seq, md5(seq) as m from seq_1_to_{{rows}}) as numbered
 order by 1
"""


@contextmanager
def sides(lab: Lab, maria: MariaServer, rows: int) -> Iterator[tuple[PostgresRows, PostgresRows, MariaRows]]:
    """Give both tables of the Postgres and the one of the MariaDB, at one instant each."""
    url, side = parse(lab.url("postgres", "postgres")), Side(("id",), COLUMNS, table="theirs", version="version")
    count = digest.bucket_count(rows)
    with ExitStack() as stack:
        found = []
        for table in ("ours", "theirs"):
            opened = stack.enter_context(open_session(table, url))
            of_table = Side(("id",), COLUMNS, table=table, version="version")
            reading = DigestReading(of_table, OF_POSTGRES, agreed_layout(OF_POSTGRES, OF_POSTGRES), buckets=count)
            found.append(PostgresRows(PostgresStore(table, url, opened.take_snapshot().id), opened, reading))
        session = stack.enter_context(open_maria_session("theirs", maria.address()))
        session.take_snapshot()
        reading = DigestReading(side, OF_MARIADB, agreed_layout(OF_POSTGRES, OF_MARIADB), Mode.PORTABLE, count)
        yield found[0], found[1], MariaRows(MariaStore(session), reading)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    asked = parser.parse_args()
    folder = Path(tempfile.gettempdir()) / "reconcile-bench-mariadb"
    folder.mkdir(exist_ok=True)
    lab = Lab(folder)
    lab.remember(ports=Ports(postgres=PORT, kafka=19454, controller=19455))
    postgres = PostgresServer(lab)
    postgres.up()
    try:
        with mariadb_server(PORT + 1, "--innodb-buffer-pool-size=2G") as maria:
            maria.run("grant process on *.* to audit@localhost")
            fill(lab, maria, asked.rows)
            with sides(lab, maria, asked.rows) as (ours, theirs, of_maria):
                measure(ours, theirs, of_maria, asked.rows)
    finally:
        postgres.down()
        postgres.wipe()


def fill(lab: Lab, maria: MariaServer, rows: int) -> None:
    """Make equal tables in both."""
    with closing(connect(lab.url("postgres", "postgres"))) as database:
        database.autocommit = True
        with database.cursor() as cursor:
            for table in ("ours", "theirs"):
                cursor.execute(f"drop table if exists {table}")
                cursor.execute(MAKE.format(table=table, rows=rows))
                cursor.execute(f"vacuum analyze {table}")
    maria.run(TABLE)
    maria.run(FILL.format(rows=rows))
    maria.run("analyze table theirs")


def measure(ours: PostgresRows, theirs: PostgresRows, of_maria: MariaRows, rows: int) -> None:
    """Compare each pair once, after one look at all of them."""
    count = ours.reading.buckets

    def agreeing(source: DigestedRows, copy: DigestedRows, mode: Mode) -> float:
        seconds, found = timed(lambda: buckets.compare(source.digested(mode, count), copy.digested(mode, count)))
        assert (rows, rows, ()) == (found.source_rows, found.copy_rows, found.buckets), found
        return seconds

    for each in (ours.digested(Mode.NATIVE, count), theirs.digested(Mode.NATIVE, count), of_maria):
        each.digest()
    native = agreeing(ours, theirs, Mode.NATIVE)
    portable = agreeing(ours, theirs, Mode.PORTABLE)
    across = agreeing(ours, of_maria, Mode.PORTABLE)
    alone, _ = timed(of_maria.digest)
    for name, value in {
        "rows a side": f"{rows:,}",
        "Postgres with Postgres, native": f"{native:.1f} s",
        "Postgres with Postgres, portable": f"{portable:.1f} s",
        "Postgres with MariaDB, portable": f"{across:.1f} s = {across / portable:.2f} x portable,"
        f" {across / native:.2f} x native (goal 3)",
        "the digest of the MariaDB alone": f"{alone:.1f} s by {1 + len(of_maria.store.session.beside)} sessions",
    }.items():
        sys.stdout.write(f"{name:<40} {value}\n")


if __name__ == "__main__":
    main()
