"""The audit of a consumer that runs on the library: its tables are read although the contract declares none."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.consumer import parking
from reconcile.consumer.consumer import Consumer, Postgres
from reconcile.consumer.decision import Outcome
from reconcile.consumer.message import Message, RecordPlace
from reconcile.consumer.policy import Block, Stash, Terms
from reconcile.consumer.postgres import LibraryStore, Transaction, migrate
from reconcile.consumer.postgres_stash import PostgresStash
from reconcile.consumer.store import HeldPartition, Noted, Outgoing, Stashed, Writes
from reconcile.contract.model import FailureTopic, load_contract
from reconcile.domain.case import ParkedIn
from reconcile.domain.event import spelled
from reconcile.files import committed
from reconcile.gather.evidence import parked
from reconcile.gather.fence.fence import Fence
from reconcile.gather.log.history_columns import STORED_HEADERS
from reconcile.gather.stores.library_tables import LibraryTables
from reconcile.lab.faults.stage import Person, Stage, only
from reconcile.lab.folder import Lab
from reconcile.lab.services.consumer import UnreadableError, apply_all
from reconcile.lab.services.copies import LOGIN, Record
from reconcile.lab.services.database import connected
from reconcile.lab.world import settings_file as world_settings
from reconcile.settings import urls
from tests.integration.runs import Runs, findings
from tests.integration.worlds import seeded_world, until
from tests.ports import ports_of
from tests.schemas import valid_output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUP, TOPIC, STASH, DEAD_LETTERS = LOGIN.group, LOGIN.topic, "user-account.login.stash", "user-account.login.dlq"
LINK = "user-account/login"
NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
STORIES = ("ignored", "damaged", "discarded", "dead-lettered", "stashed", "drained", "of another group")
Notes = set[tuple[str, str, str | None]]


@dataclass(frozen=True)
class World:
    """A world whose login service runs on the library, and what became of one event of each of some people."""

    lab: Lab
    stage: Stage
    people: dict[str, Person]

    def execute(self, statement: str) -> None:
        """Do something in login's database as its owner."""
        self.stage.execute("login", statement)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Each story is an event of a person of its own, that the copy lacks; all else was applied and noted."""
    with seeded_world(aggregates=60, ports=ports_of("library tables")) as lab, ExitStack() as stack:
        stage = Stage(lab, random.Random(3), stack)  # noqa: S311
        people = dict(zip(STORIES, stage.people(len(STORIES)), strict=True))
        changes = {name: stage.user.change_email(each.user_id, stage.mail()) for name, each in people.items()}
        stage.publish()
        group, records = stage.polled(LOGIN)
        lost = [event for name, event in changes.items() if name != "drained"]
        apply_all(LOGIN, stage.database("login"), records, only(lost, partial(UnreadableError, "no json")))
        group.commit()
        migrate(urls.parse(lab.url("login")))
        world = World(lab, stage, people)
        world.execute(
            "insert into reconcile.ledger"
            f" select '{GROUP}', '{TOPIC}', partition, \"offset\", event_id::text, null, 'applied', processed_at"
            " from processed_message"
        )
        grant(world)
        by_event = {spelled(each.event_id): message(each) for each in records}
        noted(world, {name: by_event[spelled(event.event_id)] for name, event in changes.items()})
        yield world


def grant(world: World) -> None:
    """Give the audit's account its rights, as its owner does."""
    with connected(world.lab.url("login", "postgres")) as cursor:
        cursor.execute(committed("sql", "lab", "reader.sql").read_text("utf-8"))


def message(record: Record) -> Message:
    """Build the library's message of a record."""
    place = RecordPlace(record.topic, record.partition, record.offset)
    headers = tuple(record.headers.items())
    return Message(place, place, record.key, record.value, headers, None, record.aggregate_id, spelled(record.event_id))


def noted(world: World, messages: dict[str, Message]) -> None:
    """Let the library note what became of each event, as a member does."""
    store = LibraryStore(urls.parse(world.lab.url("login")), GROUP)
    store.register(Terms(Stash(STASH)), TOPIC)
    keep(store, messages["ignored"], Writes([Noted(messages["ignored"], Outcome.IGNORED)]))
    keep(store, messages["damaged"], Writes([Noted(messages["damaged"], Outcome.DAMAGED)]))
    keep(store, messages["dead-lettered"], Writes([Noted(messages["dead-lettered"], Outcome.DEAD_LETTERED)]))
    for name in ("discarded", "stashed"):
        keep(store, messages[name], Writes(stashed=[Stashed(messages[name], "UnreadableError", "no json")]))
    stash = PostgresStash(store)
    stash.hold(60)
    stash.discard(world.people["discarded"].user_id, "he left us", "tester")
    store.close()
    for group in ("shadow-service", GROUP):
        other = LibraryStore(urls.parse(world.lab.url("login")), group)
        if group != GROUP:
            other.register(Terms(Block()), TOPIC)
        lost = messages["of another group"]
        there = (
            lost if group != GROUP else replace(lost, origin=RecordPlace("elsewhere", *lost.origin[1:]), event_id=None)
        )
        keep(other, there, Writes([Noted(there, Outcome.APPLIED)], stashed=[Stashed(there)]))
        other.close()
    place = messages["damaged"].origin
    world.execute(
        f"insert into reconcile.damaged values ('{GROUP}', '{TOPIC}', {place.partition}, {place.offset}, 'torn')"
    )
    shown = [messages[name] for name in ("discarded", "stashed", "drained")]
    send(world, *(parking.shown(Stashed(each, "UnreadableError"), GROUP, STASH, None) for each in shown))
    gone = messages["dead-lettered"]
    send(world, parking.dead_letter(gone, GROUP, "UnreadableError", "no json", DEAD_LETTERS, day=NOON))


def keep(store: LibraryStore, of: Message, writes: Writes) -> None:
    """Write what follows from a message, in a transaction of its own."""
    with store.transaction() as transaction:
        transaction.facts([of], [HeldPartition(GROUP, *of.place[:2], 1)])
        transaction.commit(writes)


def send(world: World, *outgoing: Outgoing) -> None:
    """Send what would wait in the outbox."""
    for each in outgoing:
        world.stage.sender.produce(each.topic, key=each.key, value=each.value, headers=list(each.headers))
    assert 0 == world.stage.sender.flush(60)


def contract(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write login's contract without its ledger, with these changes."""
    text = committed("contracts", "user-account.yaml").read_text("utf-8")
    ledger = next(line for line in text.splitlines(keepends=True) if "ledger:" in line)
    text = text.replace(ledger, "").replace("confirm_after: 5s", "confirm_after: 0s")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file = folder / "contract.yaml"
    file.write_text(text, "utf-8")
    return file


def causes(world: World, found: dict[tuple[str, str], dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Give cause and confidence by the name of the story."""
    names = {each.user_id: name for name, each in world.people.items()}
    return {names[id_text]: (each["cause"], each["confidence"]) for (_, id_text), each in found.items()}


def notes(of: dict[str, Any]) -> Notes:
    """Give what a finding shows: the kind, the note, the topic."""
    return {(each["kind"], each["note"], each["topic"]) for each in of["evidence"]}


@pytest.fixture
def runs(world: World, spark: SparkSession, tmp_path: Path) -> Runs:
    """Runs in a workspace of the test's own."""
    return Runs.of(spark, world.lab, tmp_path / "runs")


NAMED = {
    "ignored": ("skipped", "certain"),
    "damaged": ("skipped", "certain"),
    "discarded": ("skipped", "certain"),
    "dead-lettered": ("dead_lettered", "certain"),
    "stashed": ("stashed", "certain"),
    "of another group": ("skipped", "certain"),
}


def test_what_became_of_each_event_is_found(world: World, runs: Runs, tmp_path: Path) -> None:
    """B14, C7: by the ledger and the stash of the library, of this group and this topic alone."""
    job, _ = runs.audited(contract(tmp_path), "library")
    found = findings(job)
    assert NAMED == causes(world, found)
    of = {name: found[LINK, world.people[name].user_id] for name in NAMED}
    shown = {name: {note for kind, note, _ in notes(each) if kind == "ledger"} for name, each in of.items()}
    assert {
        "ignored": {"noted as ignored, by the consumer's policy"},
        "damaged": {"noted as damaged: skipped on purpose, because: torn"},
        "discarded": {"noted as discarded from the stash by a person, because: he left us"},
        "dead-lettered": set(),
        "stashed": set(),
        "of another group": {"not in the ledger"},
    } == shown
    assert ("dead_letter", "lies here, for UnreadableError", DEAD_LETTERS) in notes(of["dead-lettered"])
    assert ("stash", "is stashed here, for UnreadableError", "reconcile.stash") in notes(of["stashed"])
    assert STASH not in {topic for each in of.values() for _, _, topic in notes(each)}
    assert "reconcile stash drain CONTRACT --consumer login --handler" in of["stashed"]["repair"]["reason"]


def test_a_stash_and_a_ledger_that_are_declared_to_be_the_librarys(world: World, runs: Runs, tmp_path: Path) -> None:
    """A contract may name the tables: other groups' rows, and what was not applied, count as little."""
    table = "stash: {table: reconcile.stash, id: aggregate_id, partition: partition, offset: offset}"
    ledger = "ledger: {table: reconcile.ledger, event_id: event_id}"
    file = contract(tmp_path, (f"stash: {STASH}", table), ("dialect: auto", f"dialect: auto\n      {ledger}"))
    job, _ = runs.audited(file, "declared-library")
    assert NAMED == causes(world, findings(job))
    world.execute(f"update reconcile.consumer set topic = 'elsewhere' where consumer_group = '{GROUP}'")
    try:
        job, _ = runs.audited(file, "unregistered")
    finally:
        world.execute(f"update reconcile.consumer set topic = '{TOPIC}' where consumer_group = '{GROUP}'")
    assert NAMED == causes(world, findings(job))


def test_what_the_contract_declares_counts(world: World, runs: Runs, tmp_path: Path) -> None:
    """Its own ledger is read in place of the library's."""
    declared = "dialect: auto\n      ledger: {table: processed_message, event_id: event_id, at: processed_at}"
    job, _ = runs.audited(contract(tmp_path, ("dialect: auto", declared)), "declared")
    of = findings(job)[LINK, world.people["ignored"].user_id]
    assert ("ledger", "not in the ledger", TOPIC) in notes(of)


def test_tables_that_may_not_be_read_are_as_if_they_were_not_there(world: World, runs: Runs, tmp_path: Path) -> None:
    """The link is audited without them, and the fence, which doctor looks at, says so."""
    world.execute("revoke usage on schema reconcile from reconcile_reader")
    try:
        job, summary = runs.audited(contract(tmp_path), "no-rights")
    finally:
        grant(world)
    assert () == summary.unread
    assert LibraryTables(readable=False) == job.run.read(Fence).consumer("login").library
    found = findings(job)
    assert "ledger" not in {kind for each in found.values() for kind, _, _ in notes(each)}
    assert ("stashed", "certain") == causes(world, found)["discarded"]  # as the stash's topic still shows


def login(world: World, file: Path, poisoned: str | None = None) -> Consumer:
    """Build login's service on the library, which cannot read what is said of one person."""

    def apply(message: Message, tx: Transaction) -> None:
        if message.aggregate_id == poisoned:
            raise UnreadableError("no json")
        headers = {name: value for name, value in message.headers if value is not None}
        record = Record(*message.place, message.key, message.value, headers, message.origin)
        LOGIN.apply(tx.connection.cursor(), record)

    settings = world_settings(world.lab)
    return Consumer.from_contract(file, "login", apply, settings=settings, store=Postgres(world.lab.url("login")))


def test_what_a_service_stashes_and_drains(world: World, runs: Runs, tmp_path: Path) -> None:
    """B10, B12: the audit sees what the library wrote itself, and nothing any more once that is drained."""
    (person,) = world.stage.people(1)
    for _ in range(2):
        world.stage.user.change_email(person.user_id, world.stage.mail())
    world.stage.publish()
    file = contract(tmp_path)
    service = login(world, file, poisoned=person.user_id)
    running = threading.Thread(target=service.run)
    running.start()
    stashed = "select messages from reconcile.blocked where aggregate_id = %s"
    try:
        until(lambda: world.stage.execute("login", stashed, person.user_id) == [(2,)])
    finally:
        service.stop()
        running.join()
    job, _ = runs.audited(file, "stashed", ids=[person.user_id])
    assert [("stashed", "certain")] == [(each["cause"], each["confidence"]) for each in findings(job).values()]
    assert 2 == login(world, file).drain([person.user_id]).applied
    job, _ = runs.audited(file, "drained", ids=[person.user_id])
    assert {} == findings(job)


def test_doctor_compares_how_the_groups_were_started(world: World, spark: SparkSession, tmp_path: Path) -> None:
    """B14: with the guard that the contract says, and with the policy of another group on the same store."""
    file = contract(tmp_path, ("guard: none", "guard: newer"))
    options = ["--config", str(world_settings(world.lab)), "--workspace", str(tmp_path / "runs"), "--json"]
    result = CliRunner().invoke(cli, ["doctor", str(file), *options])
    found = {each["id"]: each for each in valid_output("doctor", result.stdout)["checks"]}
    assert "fault" == found["T-B14"]["severity"]
    assert "login-service runs with the guard none, and newer in the contract" == found["T-B14"]["found"]
    assert "login-db is also written by shadow-service (block)" == found["T-B14-groups"]["found"]


class Kept:
    """A topic's history of some records."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self.index = SimpleNamespace(segments=[SimpleNamespace(rows=1)])
        self.derivation = SimpleNamespace(key_type="string", values=None)

    def records(self, _spark: SparkSession) -> DataFrame:
        """Read them."""
        return self._frame


@pytest.mark.parametrize(
    ("headers", "expected"),
    [((("reconcile-origin-key", b"u-1"),), "u-1"), ((("reconcile-origin-key", None),), None), ((), "2026-11-19/t/0/3")],
)
def test_a_dead_letter_is_of_the_aggregate_that_its_header_names(
    spark: SparkSession, tmp_path: Path, headers: tuple[tuple[str, bytes | None], ...], expected: str | None
) -> None:
    """D7: its own key is a day and a place; where the log has lost its event, the header alone tells."""
    letter = (0, 7, NOON, "2026-11-19/t/0/3", b"2026-11-19/t/0/3", "e-1", None, None, False, list(headers))
    agreed = load_contract(contract(tmp_path))
    found = parked.parked(spark, [failed(spark, "dead_letter", letter)], agreed.consumers[0], agreed.topic, log(spark))
    assert [expected] == [each["id"] for each in found.collect()]


def test_what_the_stashs_topic_shows_is_none_of_it(spark: SparkSession, tmp_path: Path) -> None:
    """The library's table has the stash, whose topic shows what was drained, too; records of others count."""
    theirs = [("reconcile-origin-offset", b"3")]
    ours = [*theirs, ("reconcile-shows", b"stash")]
    lying = [(0, n, NOON, f"u-{n}", b"u", f"e-{n}", None, None, False, each) for n, each in enumerate((ours, theirs))]
    agreed, stashed = load_contract(contract(tmp_path)), failed(spark, "stash", *lying)
    for mirrored, expected in ((True, ["u-1"]), (False, ["u-0", "u-1"])):
        found = parked.parked(
            spark, [stashed], agreed.consumers[0], agreed.topic, log(spark), mirrored=mirrored
        ).collect()
        assert expected == sorted(each["id"] for each in found)


def log(spark: SparkSession, *records: tuple[Any, ...]) -> DataFrame:
    """Give the history of a topic."""
    columns = "partition int, offset bigint, timestamp timestamp, id string, key binary, event_id string"
    more = f"version string, correlation_id string, tombstone boolean, {STORED_HEADERS}"
    return spark.createDataFrame(list(records), f"{columns}, {more}")


def failed(spark: SparkSession, kind: ParkedIn, *records: tuple[Any, ...]) -> parked.FailureLog:
    """Give what lies in a failure topic."""
    history: Any = Kept(log(spark, *records))
    return parked.FailureLog(kind, FailureTopic(topic="t"), GROUP, history, {}, {0: 8})
