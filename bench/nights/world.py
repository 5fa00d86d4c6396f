"""The bench's world, on the lab's Postgres and Kafka: estates of a source, a copy that drifted, and a topic."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.nights.watch import watch
from reconcile.lab import world as lab_world
from reconcile.lab.folder import Lab, Ports, write_atomically
from reconcile.lab.kafka import Kafka
from reconcile.lab.postgres import PostgresServer
from reconcile.lab.services import offsets
from reconcile.lab.services.database import connected

PORTS = Ports(postgres=15412, kafka=19012, controller=19013)
FOLDER = Path(tempfile.gettempdir()) / f"reconcile-bench-{PORTS.postgres}"
PARTITIONS = 12
SIDES = ("source", "copy")
FIELDS = {
    "name": "$.name",
    "mail": "$.mail",
    "phone": "$.phone",
    "amount": "cast($.amount as decimal(12, 2))",
    "changed_at": "cast($.changed_at as timestamp)",
    "active": "cast($.active as boolean)",
    "note": "$.note",
}
"""What is compared, and where an event has it."""
_MAKE = """
create unlogged table {table} as
select md5(n::text)::uuid as id, (n % 9 + {events})::bigint as version, 'name ' || n as name,
       'mail' || n || '@example.org' as mail, case when n % 3 > 0 then '+49 30 ' || n end as phone,
       (n % 100000)::numeric / 100 as amount, timestamptz '2026-01-01' + n * interval '1 second' as changed_at,
       n % 2 = 0 as active, 'note ' || n % 1000 as note
  from generate_series(1, {rows}) n;
alter table {table} add primary key (id)
"""


@dataclass(frozen=True)
class Estate:
    """A source, its copy and its topic, which all have its name."""

    name: str
    rows: int
    events: int = 1
    """Records of each aggregate. If there are several, every copy lacks the last one."""
    drift: float = 0.0
    """The share of the aggregates that differ: a third is changed, a third missing, a third an orphan."""

    @property
    def group(self) -> str:
        """The group that keeps the copy."""
        return f"{self.name}-copy"

    @property
    def period(self) -> int:
        """One of so many aggregates differs in each way."""
        return round(3 / self.drift)

    @property
    def differing(self) -> int:
        """How many aggregates differ."""
        if self.events > 1:
            return self.rows
        return sum(len(range(first, self.rows + 1, self.period)) for first in (self.period, 1, 2))


@dataclass(frozen=True)
class World:
    """The servers and files of a bench."""

    lab: Lab
    folder: Path

    def url(self, side: str) -> str:
        """Build the URL of a side's database."""
        return self.lab.url(side, "postgres")

    @property
    def settings(self) -> Path:
        """The settings file of the runs."""
        return self.folder / "reconcile.yaml"

    def fill(self, estate: Estate) -> None:
        """Make an estate's tables and topic; its group has read all of it."""
        lab_world.provide_topics(self.lab, {estate.name: PARTITIONS})
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda side: self._make(estate, side), SIDES))
        self._publish(estate, 1, 1, estate.events)

    def change(self, estate: Estate, turn: int, share: float) -> None:
        """Change a share of an estate's aggregates on both sides, others in each turn, and publish that."""
        step = round(1 / share)
        first = min(3 + turn, step)  # what differs is 0, 1 or 2 of its period
        words = (
            f"update {estate.name} set version = version + 1, changed_at = timestamptz '2026-06-01', note = 'later'"
            f" where id in ({_ids(estate, first, step)}); analyze {estate.name}"
        )
        for side in SIDES:
            with connected(self.url(side), autocommit=True) as cursor:
                cursor.execute(words)
        self._publish(estate, first, step, 0)

    def contract(self, name: str, estate: Estate, copy: str = "copy", **of_both: str) -> Path:
        """Write a contract of an estate; `of_both` replaces its tables, such as by a query."""
        relation = of_both or {"table": estate.name}
        fields = [{"name": each, "source": each, "consumer": each, "event": event} for each, event in FIELDS.items()]
        contract = {
            "version": 1,
            "aggregate": name,
            "source": {"store": "source", "id": "id", "version": "version", "updated_at": "changed_at", **relation},
            "topic": {
                "cluster": "main",
                "name": estate.name,
                "version": "$.version",
                "event_id": "$.event_id",
                "value": {each: each for each in ("id", "version", *FIELDS)},
            },
            "consumers": [
                {
                    "name": "copy",
                    "group": estate.group,
                    "store": copy,
                    "id": "id",
                    "version": "version",
                    "isolation": "read_committed",
                    "fields": fields,
                    "settle": {"confirm_after": "0s"},
                    "repair": {"max_corrections": estate.rows, "max_ratio": 1.0},
                    **relation,
                }
            ],
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(contract, indent=1), "utf-8")
        return path

    def _make(self, estate: Estate, side: str) -> None:
        table, rows = estate.name, estate.rows
        words = [_MAKE.format(table=table, rows=rows, events=estate.events)]
        if estate.events > 1 and side == "copy":
            words.append(f"update {table} set version = version - 1, note = 'was {estate.events - 2}'")
        if estate.drift and side == "copy":
            words.append(
                f"update {table} set mail = 'other' where id in ({_ids(estate, estate.period, estate.period)})"
            )
            words.append(f"delete from {table} where id in ({_ids(estate, 1, estate.period)})")
        if estate.drift and side == "source":
            words.append(f"delete from {table} where id in ({_ids(estate, 2, estate.period)})")
        with connected(self.url(side), autocommit=True) as cursor:
            for each in (*words, f"vacuum analyze {table}"):
                cursor.execute(each)

    def _publish(self, estate: Estate, first: int, step: int, events: int) -> None:
        """Write the events of each aggregate from the first on, in steps; with 0, one more event for each."""
        told = {"bootstrap": self.lab.bootstrap, "topic": estate.name, "rows": estate.rows, "had": estate.events}
        watch(program("publish", **told, first=first, step=step, events=events))
        ends = offsets.ends(offsets.admin_client(self.lab.bootstrap), estate.name)
        offsets.commit(self.lab.bootstrap, estate.group, estate.name, ends)


@contextmanager
def built(*, keep: bool) -> Iterator[World]:
    """Start the servers of a new world, and give it; with `keep` they go on afterwards, until the next one begins."""
    lab = Lab(FOLDER / "lab")
    servers = PostgresServer(lab), Kafka(lab)
    _end(servers)
    FOLDER.mkdir(parents=True)
    lab.root.mkdir()
    lab.remember(ports=PORTS)
    try:
        for server in servers:
            server.up()
        with connected(lab.url("postgres", "postgres"), autocommit=True) as cursor:
            for side in SIDES:
                cursor.execute(f"create database {side}")
        found = World(lab, FOLDER)
        _write_settings(found)
        yield found
    finally:
        if keep:
            sys.stderr.write(f"the world is kept: {FOLDER}; the next bench takes it down\n")
        else:
            _end(servers)


def program(name: str, **given: Any) -> list[str]:
    """Build the command of one of the bench's programs."""
    return [sys.executable, "-m", "bench.nights.programs", name, json.dumps(given)]


def _ids(estate: Estate, first: int, step: int) -> str:
    return f"select md5(n::text)::uuid from generate_series({first}, {estate.rows}, {step}) n"


def _write_settings(world: World) -> None:
    connections: dict[str, Any] = {"main": {"bootstrap": world.lab.bootstrap}}
    for side in SIDES:
        write_atomically(world.folder / f"{side}.url", world.url(side))
        connections[side] = {"url": f"file:{side}.url"}
    settings = {"workspace": str(world.folder / "runs"), "connections": connections}
    world.settings.write_text(json.dumps(settings), "utf-8")


def _end(servers: tuple[PostgresServer, Kafka]) -> None:
    for server in servers:
        server.down()
        server.wipe()
    shutil.rmtree(FOLDER, ignore_errors=True)
