"""How fast a consumer of the library is beside a bare loop that makes the same writes; and how much memory it holds.

All read the same topic, each as a group and in a process of its own, in turns. The bare loop keeps the copy and a row
with the message's place in one transaction for each message, with the same options and as durable, and checks nothing.
Rates are of messages between the first and the last of a turn, so that starting and joining a group cost nothing.
A goal that is missed exits 1.

The lab's database writes without waiting for its disk (`fsync=off`), as a test may. With --durable it waits at each
commit, as a service's has to.

python -m bench.consumer_throughput --messages 4000
python -m bench.consumer_throughput --messages 1000 --durable
python -m bench.consumer_throughput --only bare "one by one" --profile
python -m bench.consumer_throughput --memory 500000
"""

from __future__ import annotations

import argparse
import cProfile
import json
import multiprocessing
import os
import pstats
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import median
from typing import Any

import psutil
import psycopg2
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Message as Record
from psycopg2.extras import execute_values

from reconcile.consumer.consumer import Consumer, Postgres
from reconcile.consumer.handling import BatchHandler
from reconcile.consumer.message import Message
from reconcile.consumer.policy import Stash, Terms
from reconcile.consumer.postgres import Transaction
from tests.integration.consumer.world import Scenario, World, consumer_world, reading_of

TURNS = 3
AGGREGATES = 2000
BATCH = 500
BLOCKED = 1_000_000
IN_BATCHES = 5
"""So many times as many messages are read where they are read in batches."""
DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
GOALS = {"one by one": 0.5, "guard newer": 0.5, "batch": 5.0, "blocked": 0.9}
GROWTH = 8.0
"""MB by which a consumer may grow from a tenth of its messages to the last."""

COPY = (
    "insert into copy values (%s, %s, %s)"
    " on conflict (id) do update set version = excluded.version, name = excluded.name"
)
COPIES = COPY.replace("(%s, %s, %s)", "%s")
PROCESSED = "insert into processed values (%s, %s, %s, %s)"
TABLE = """
create table processed (consumer_group text, topic text, partition int, "offset" bigint, at timestamptz default now(),
                        primary key (consumer_group, topic, partition, "offset"))
"""
BLOCK = """
insert into reconcile.blocked (consumer_group, aggregate_id, messages)
select %s, 'blocked-' || i, 1 from generate_series(1, %s) i
"""
STASH = """
insert into reconcile.stash (consumer_group, aggregate_id, topic, partition, "offset", header_names, header_values)
select %s, 'blocked-' || i, %s, 0, -i, '{}', '{}' from generate_series(1, %s) i
"""


@dataclass
class Progress:
    """Counts messages as a handler gets them, and ends the consumer after the last."""

    many: int
    passed: int = 0
    began: float = 0.0
    ended: float = 0.0
    client: float = 0.0
    """Seconds of CPU that its process took."""
    memory: dict[int, float] = field(default_factory=dict)

    def note(self, messages: int = 1) -> bool:
        """Count messages; return whether there are more to come."""
        if not self.began:
            self.began, self.client, self.many = time.monotonic(), time.process_time(), self.many + messages
        self.passed += messages
        tenth = self.passed * 10 // self.many
        if tenth and tenth not in self.memory:
            self.memory[tenth] = psutil.Process().memory_info().rss / 2**20
        if self.passed >= self.many and not self.ended:
            self.ended, self.client = time.monotonic(), time.process_time() - self.client
        return not self.ended


@dataclass(frozen=True)
class Job:
    """What one process consumes."""

    way: str
    topic: str
    url: str
    cluster: Mapping[str, str]
    messages: int
    guard: str = "none"
    batch: int = 1
    at_once: bool = True
    """Whether a batch is written by one statement."""
    profile: bool = False

    @property
    def group(self) -> str:
        """A group for each way, so that each turn goes on where it was."""
        return f"{self.topic}-{self.way.replace(' ', '-')}"


def consume(job: Job) -> Progress:
    """Consume in this process."""
    progress = Progress(job.messages)
    profile = cProfile.Profile()
    if job.profile:
        profile.enable()
    bare(job, progress) if job.way.startswith("bare") else library(job, progress)
    if job.profile:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
    return progress


def library(job: Job, progress: Progress) -> None:
    """Consume with the library."""

    def apply(message: Message, tx: Transaction) -> None:
        tx.execute(COPY, (message.aggregate_id, message.version, message.json()["name"]))
        if not progress.note():
            consumer.stop()

    @BatchHandler
    def apply_all(messages: Sequence[Message], tx: Transaction) -> None:
        last = {each.aggregate_id: (each.aggregate_id, each.version, each.json()["name"]) for each in messages}
        execute_values(tx.connection.cursor(), COPIES, list(last.values()), page_size=len(messages))
        if not progress.note(len(messages)):
            consumer.stop()

    policy = Stash()
    consumer = Consumer(
        topic=reading_of(job.topic),
        group=job.group,
        policy=policy,
        store=Postgres(job.url),
        handler=apply_all if job.batch > 1 and job.at_once else apply,
        kafka=dict(job.cluster),
        terms=Terms(policy, guard=job.guard),
        batch=job.batch,
    )
    consumer.run()


def bare(job: Job, progress: Progress) -> None:
    """Consume as services do that have nothing but the two clients."""
    options = {
        **job.cluster,
        "group.id": job.group,
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": True,
        "enable.auto.offset.store": False,
        "auto.commit.interval.ms": 1000,
        "auto.offset.reset": "earliest",
    }
    consumer = KafkaConsumer(options)
    consumer.subscribe([job.topic])
    with closing(psycopg2.connect(job.url)) as connection, connection.cursor() as cursor:
        cursor.execute("set synchronous_commit = local")
        connection.commit()
        while not progress.ended:
            records = consumer.consume(job.batch, 0.5) if job.batch > 1 else filter(None, [consumer.poll(0.5)])
            rows = [(each, *_row(each)) for each in records]
            if not rows:
                continue
            places = [(job.group, each.topic(), each.partition(), each.offset()) for each, *_ in rows]
            if job.batch > 1:
                execute_values(cursor, COPIES, list({row[1]: row[1:] for row in rows}.values()), page_size=BATCH)
                execute_values(cursor, PROCESSED.replace("(%s, %s, %s, %s)", "%s"), places, page_size=BATCH)
            else:
                cursor.execute(COPY, rows[0][1:])
                cursor.execute(PROCESSED, places[0])
            connection.commit()
            for record, *_ in rows:
                consumer.store_offsets(message=record)
            progress.note(len(rows))
    consumer.close()


def _row(record: Record) -> tuple[str, int, str]:
    headers: dict[str, Any] = dict(record.headers() or [])
    return (record.key() or b"").decode(), int(headers["version"]), json.loads(record.value() or b"null")["name"]


def in_its_own_process(job: Job) -> Progress:
    """Consume in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(consume, job).result()


def scenario_with(world: World, messages: int) -> Scenario:
    """Publish messages of some aggregates."""
    scenario = world.scenario()
    scenario.rows(TABLE)
    events = ((f"id-{i % AGGREGATES}", i // AGGREGATES, f"name of {i} " + "x" * 100) for i in range(messages))
    while some := list(islice(events, 20_000)):
        scenario.publish(*some)
    return scenario


def throughput(world: World, messages: int, only: list[str], profile: bool) -> bool:
    """Measure all ways in turns, and print; return whether the goals are met."""
    scenario = scenario_with(world, messages * IN_BATCHES * (TURNS + 1))
    one = Job("one by one", scenario.topic, scenario.url, world.cluster, messages, profile=profile)
    in_batches = replace(one, batch=BATCH, messages=messages * IN_BATCHES)
    jobs = [
        replace(one, way="bare"),
        one,
        replace(one, way="guard newer", guard="newer"),
        replace(one, way="blocked"),
        replace(in_batches, way="batch"),
        replace(in_batches, way="batch, a statement each", at_once=False),
        replace(in_batches, way="batch, guard newer", guard="newer"),
        replace(in_batches, way="bare, in batches by execute_values"),
    ]
    jobs = [job for job in jobs if not only or job.way in only]
    if "blocked" in [job.way for job in jobs]:
        full = world.scenario()
        jobs = [replace(job, url=full.url) if job.way == "blocked" else job for job in jobs]
        block(full, replace(one, way="blocked").group)
    rates: dict[str, list[float]] = {job.way: [] for job in jobs}
    for turn in range(TURNS):
        for job in jobs if turn % 2 else reversed(jobs):
            measured = in_its_own_process(job)
            rates[job.way].append(job.messages / (measured.ended - measured.began))
        print(f"load {os.getloadavg()[0]:.1f}", {way: round(each[-1]) for way, each in rates.items()}, flush=True)
    met = [judged(rates, way, GOALS.get(way)) for way in rates]
    return all(met)


def block(scenario: Scenario, group: str) -> None:
    """Block aggregates that no message is of, each with a stashed message."""
    scenario.rows(BLOCK, group, BLOCKED)
    scenario.rows(STASH, group, scenario.topic, BLOCKED)
    with closing(psycopg2.connect(scenario.url)) as connection:
        connection.autocommit = True
        connection.cursor().execute("vacuum analyze reconcile.blocked, reconcile.stash")
        connection.cursor().execute("checkpoint")


def judged(rates: Mapping[str, list[float]], way: str, goal: float | None) -> bool:
    """Print a way's rate, and by how much it is faster than what it is held against, turn by turn."""
    than = "bare" if way in ("one by one", "guard newer") else "one by one"
    ratio = median(mine / its for mine, its in zip(rates[way], rates[than], strict=True)) if than in rates else 0.0
    held = "" if goal is None else f"; the goal is {goal}"
    print(f"{way:<36} {median(rates[way]):>8,.0f} messages/s, {ratio:5.2f} of {than}{held}")
    return goal is None or ratio >= goal


def memory(world: World, messages: int) -> bool:
    """Measure the memory of a consumer that reads in batches, and print; return whether it stays flat."""
    scenario = scenario_with(world, messages + 2 * BATCH)
    measured = in_its_own_process(Job("batch", scenario.topic, scenario.url, world.cluster, messages, "newer", BATCH))
    print({f"{tenth * 10} %": f"{each:.1f} MB" for tenth, each in measured.memory.items()})
    grown = measured.memory[10] - measured.memory[1]
    seconds = measured.ended - measured.began
    print(f"{messages:,} messages in {seconds:.0f} s, grown by {grown:.1f} MB from 10 % on; at most {GROWTH} MB may be")
    return grown <= GROWTH


def main() -> int:
    """Measure, and print; return the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--messages", type=int, default=4000)
    arguments.add_argument("--memory", type=int, default=0)
    arguments.add_argument("--only", nargs="*", default=[])
    arguments.add_argument("--profile", action="store_true")
    arguments.add_argument("--durable", action="store_true")
    asked = arguments.parse_args()
    with consumer_world(DURABLE if asked.durable else {}) as world:
        if asked.memory:
            return 0 if memory(world, asked.memory) else 1
        return 0 if throughput(world, asked.messages, asked.only, asked.profile) else 1


if __name__ == "__main__":
    sys.exit(main())
