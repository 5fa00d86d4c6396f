"""What is dropped right before emission, what counts as newer, and what became of a correction."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest
import yaml

from reconcile.contract.model import Contract, Topic
from reconcile.control.corrections import CorrectionOutcome, CorrectionRecord, CorrectionState
from reconcile.domain.canonical import Kind
from reconcile.domain.case import FieldRule, Row
from reconcile.domain.correction import Correction, key_digest
from reconcile.domain.outbox import WaitingEvents
from reconcile.domain.plan import Item, LinkPlan
from reconcile.domain.plan_rules import Action
from reconcile.files import committed
from reconcile.pipeline import apply
from reconcile.pipeline.apply import awaited, became
from reconcile.repair.correction_writer import CorrectionWriter
from reconcile.repair.guard import NewerThanBasis, SourceNow, guarded, moved_on
from reconcile.repair.logged_aggregates import LoggedAggregate
from reconcile.repair.source_values import SourceRow
from reconcile.repair.topic_form import TopicForm
from reconcile.repair.value_codec import Codec
from reconcile.repair.verification import Compared, outcome_of, passed

if TYPE_CHECKING:
    from confluent_kafka import Message

ROW = SourceRow("u-1", 5, gone=False, values={"email": "a@x"})
ITEM = Item(
    link="user-account/login", aggregate_id="u-1", action=Action.RESTATE, cause="skipped", reason="", topic="t",
    partitions=(0,), basis_version=5, basis=ROW.basis, correction_id="c-1",
)  # fmt: skip
GONE = ITEM.model_copy(update={"action": Action.TOMBSTONE, "basis": None})
TOPIC = Topic.model_validate(
    {"cluster": "main", "name": "t", "version": "$.version", "type": "header:type", "ignore_types": ["Viewed"]}
)
RULES = (FieldRule("email"),)
NEW, OLD = {"email": "new"}, {"email": "old"}


class Record:
    """A record as a consumer's client gives it."""

    def __init__(self, value: object, **headers: str) -> None:
        self._value = None if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
        self._headers = [(name, text.encode()) for name, text in headers.items()]

    def key(self) -> bytes:
        return b"u-1"

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers


def correction(basis_version: int | None = 5, cause: str = "skipped") -> Correction:
    """Give a correction at a version."""
    return Correction("c-1", "e-1", "l", "u-1", cause, "t", 0, b"u-1", b"{}", (), basis_version, 0)


def is_newer(value: object, basis_version: int | None = 5, cause: str = "skipped", **headers: str) -> bool:
    """Tell whether a record is newer than a correction."""
    record = cast("Message", Record(value, **{name.replace("_", "-"): text for name, text in headers.items()}))
    return NewerThanBasis(TOPIC, Codec("json"), "run-1")(record, correction(basis_version, cause))


@pytest.mark.parametrize(("rows", "why"), [
    ([ROW], None),
    ([], "no longer has it"),
    ([replace(ROW, gone=True)], "no longer has it"),
    ([ROW, ROW], "more than once"),
    ([replace(ROW, version=6)], "at version 6, and was at 5"),
    ([replace(ROW, values={"email": "b@x"})], "something else at the same version"),
])  # fmt: skip
def test_a_source_that_moved_on_is_told(rows: list[SourceRow], why: str | None) -> None:
    """Only the row that the plan was made for is restated."""
    found = moved_on(ITEM, rows)
    assert (why is None) == (found is None)
    assert why is None or why in (found or "")


def writer() -> CorrectionWriter:
    """Build what writes corrections of e-mail addresses."""
    contract = Contract.model_validate(yaml.safe_load(committed("contracts", "user-account.yaml").read_text("utf-8")))
    contract = contract.model_copy(update={"topic": TOPIC.model_copy(update={"value": {"email": "mail"}})})
    return CorrectionWriter(contract, TopicForm(Codec("json"), usual_type="Renamed"), "run-1", {0: 0})


def test_the_row_that_exists_is_written_and_not_one_that_was_deleted() -> None:
    """A business key may have both: the one that counts as deleted may even come first."""
    deleted = replace(ROW, gone=True, values={"email": "old@x"})
    logged = LoggedAggregate(key=b"u-1")
    item = ITEM.model_copy(update={"correction_id": str(UUID(int=1)), "key": key_digest(b"u-1")})
    (found,) = guarded([item], SourceNow({"u-1": [deleted, ROW]}), {"u-1": logged}, writer()).corrections
    assert found.value is not None
    assert "a@x" == json.loads(found.value)["email"]


@pytest.mark.parametrize(("key", "dropped"), [(b"u-1", False), (b'"u-1"', True), (None, True)])
def test_a_key_that_is_not_the_planned_one_is_not_written(key: bytes | None, dropped: bool) -> None:
    """The log may have lost the records that showed it since the plan was made."""
    logged = {} if key is None else {"u-1": LoggedAggregate(key=key)}
    item = ITEM.model_copy(update={"correction_id": str(UUID(int=1)), "key": key_digest(b"u-1")})
    found = guarded([item], SourceNow({"u-1": [ROW]}), logged, writer())
    assert (dropped, not dropped) == ("the log no longer shows the key" in str(found.dropped), bool(found.corrections))


@pytest.mark.parametrize(("rows", "dropped"), [([], False), ([replace(ROW, gone=True)], False), ([ROW], True)])
def test_a_row_that_came_back_is_not_deleted(rows: list[SourceRow], dropped: bool) -> None:
    """A deletion stands only as long as the source has no such row."""
    assert dropped == (moved_on(GONE, rows) is not None)


@pytest.mark.parametrize(("unproven", "alive", "why"), [
    ((), False, None),
    (("user-db is a replica",), False, "user-db is a replica"),
    ((), True, "newest event of it does not delete it"),
])  # fmt: skip
def test_what_may_live_is_not_deleted(unproven: tuple[str, ...], alive: bool, why: str | None) -> None:
    """The source may have failed over since the plan, and the log may have a newer event."""
    item = GONE.model_copy(update={"correction_id": str(UUID(int=1)), "key": key_digest(b"u-1")})
    logged = {"u-1": LoggedAggregate(key=b"u-1", alive=alive)}
    found = guarded([item], SourceNow({}, unproven=unproven), logged, writer())
    assert (why is None) == bool(found.corrections)
    assert why is None or why in str(found.dropped)


@pytest.mark.parametrize(("value", "newer"), [
    ({"version": 4}, False),
    ({"version": 5}, False),
    ({"version": 6}, True),
    ({"other": 1}, True),
    (None, True),
    (b"not JSON", True),
])  # fmt: skip
def test_newer_is_told_by_the_version(value: object, newer: bool) -> None:
    """What deletes, or cannot be told, counts as newer."""
    assert newer == is_newer(value)


@pytest.mark.parametrize(("version", "newer"), [(4, False), (5, True), (6, True)])
def test_the_event_that_was_never_published_is_newer_than_its_correction(version: int, newer: bool) -> None:
    """It says the same: a copy that holds one row for each event would have two."""
    assert newer == is_newer({"version": version}, cause="never_published")


def test_what_waits_in_the_outbox_is_left_to_its_own_event() -> None:
    """The row was put back since the plan, or was written after it."""
    found = moved_on(ITEM, [ROW], WaitingEvents(1, since=datetime(2026, 1, 1, tzinfo=UTC)))
    assert "moved on: an event of it waits in the source's outbox since 2026-01-01T00:00:00Z" == found


@pytest.mark.parametrize(
    ("topic", "cause", "version", "dropped"),
    [
        ("fix", "skipped", 5, False),
        ("fix", "skipped", 6, True),
        ("fix", "never_published", 5, True),
        ("t", "never_published", 5, False),
    ],
)
def test_the_main_topic_is_looked_at_for_a_correction_that_goes_elsewhere(
    topic: str, cause: str, version: int, dropped: bool
) -> None:
    """The emission reads the topic that it writes to, and no other."""
    item = ITEM.model_copy(
        update={"correction_id": str(UUID(int=1)), "key": key_digest(b"u-1"), "topic": topic, "cause": cause}
    )
    found = guarded([item], SourceNow({"u-1": [ROW]}), {"u-1": LoggedAggregate(key=b"u-1", version=version)}, writer())
    assert dropped == ("the log is at version" in str(found.dropped))


@pytest.mark.parametrize(("version", "cause", "last", "dropped"), [
    (None, "skipped", 39, False),
    (None, "skipped", 40, True),
    (5, "skipped", 40, False),
    (5, "never_published", 40, True),
])  # fmt: skip
def test_without_versions_any_event_since_the_run_drops_a_correction_that_goes_elsewhere(
    version: int | None, cause: str, last: int, dropped: bool
) -> None:
    """A copy that keeps one row for each event would have two."""
    row = replace(ROW, version=version)
    item = ITEM.model_copy(
        update={"correction_id": str(UUID(int=1)), "key": key_digest(b"u-1"), "topic": "fix", "cause": cause}
        | {"basis_version": version, "basis": row.basis}
    )
    logged = {"u-1": LoggedAggregate({0: last}, b"u-1")}
    form = TopicForm(Codec("json"), usual_type="Renamed")
    topic = TOPIC.model_copy(update={"value": {"email": "mail"}, "version": None})
    writing = replace(writer(), contract=writer().contract.model_copy(update={"topic": topic}), form=form)
    found = guarded([item], SourceNow({"u-1": [row]}, log_ends={0: 40}), logged, writing)
    assert dropped == ("was published since the run read the log" in str(found.dropped))


def test_an_event_that_is_published_while_the_source_is_read_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits in the outbox no more, so the log has to be read after that."""
    published: list[str] = []

    def log(*_: object) -> SimpleNamespace:
        seen = {"u-1": LoggedAggregate(key=b"u-1", version=5 if published else 4)}
        form = TopicForm(Codec("json"), usual_type="Renamed")
        return SimpleNamespace(form=lambda _cluster: form, aggregates=lambda _ids: seen)

    def waiting(_ids: object) -> dict[str, WaitingEvents]:
        published.append("u-1")
        return {}

    id_ = str(UUID(int=1))
    item = ITEM.model_copy(update={"correction_id": id_, "key": key_digest(b"u-1"), "cause": "never_published"})
    link = LinkPlan(
        link=ITEM.link, consumer="login", group="g", topic="fix", topic_id="id", partitions=1, partitioner=(),
        since={0: 0}, readers=(), approval=False, items=(item.model_copy(update={"topic": "fix"}),),
    )  # fmt: skip
    fence = SimpleNamespace(source=SimpleNamespace(limits=()), topic=SimpleNamespace(partitions=()))
    reader = SimpleNamespace(waiting=waiting, opened=SimpleNamespace(fence=fence))
    cluster = SimpleNamespace(topic=lambda _name: SimpleNamespace(id="id", partitions=(0,)))
    monkeypatch.setattr(apply, "cluster_client", lambda _job: nullcontext(cluster))
    monkeypatch.setattr(apply, "open_link", lambda *_: nullcontext(reader))
    monkeypatch.setattr(apply, "read_sums", lambda *_: {})
    monkeypatch.setattr(apply, "SourceValues", lambda *_: SimpleNamespace(of=lambda _ids: {"u-1": [ROW]}))
    monkeypatch.setattr("reconcile.pipeline.apply.LogView.read", log)
    job = SimpleNamespace(contract=writer().contract, run=SimpleNamespace(id="run-1", read=lambda _: fence))
    found, _ = apply._Applying(cast("Any", job), *cast("Any", (None, None, None)))._guarded(link)
    assert "moved on: the log is at version 5" == found.dropped.get(id_)


def test_a_type_that_says_nothing_of_the_state_is_not_newer() -> None:
    """Ignored types do not overtake a correction."""
    assert not is_newer({"version": 9}, type="Viewed")


def test_without_versions_every_record_is_newer() -> None:
    """Nothing tells them apart."""
    assert is_newer({"version": 1}, basis_version=None)


@pytest.mark.parametrize(("run_id", "newer"), [("run-1", False), ("run-0", True)])
def test_a_correction_for_another_link_is_not_newer(run_id: str, newer: bool) -> None:
    """The same plan says the same to all; another run may know better."""
    assert newer == is_newer({}, basis_version=None, reconcile_run_id=run_id)


def test_each_record_has_to_be_passed() -> None:
    """A tombstone for two partitions is passed when both are; a committed offset is the next one to read."""
    places = {0: 7, 1: 3}
    assert [False, False, True] == [passed(places, c) for c in ({0: 7, 1: 4}, {0: 8, 1: None}, {0: 8, 1: 4})]


def outcome(item: Item, source: Row | None, copy: Row | None, guard: str = "none") -> tuple[Any, str]:
    """Give outcome and reason."""
    found = outcome_of(item, source, copy, Compared(RULES, frozenset({"email"}), guard))
    return found.outcome, found.reason or ""


def test_a_copy_that_agrees_has_converged() -> None:
    """The fields that a correction brings are equal."""
    assert (CorrectionState.CONVERGED, "") == outcome(ITEM, Row(NEW, 5), Row(NEW, 5))


def test_a_copy_in_which_a_reader_sees_no_difference_has_converged() -> None:
    """The audit tolerates a space behind a text, too."""
    compared = Compared((FieldRule("email", Kind.TEXT),), frozenset({"email"}), "none")
    assert CorrectionState.CONVERGED is outcome_of(ITEM, Row(NEW, 5), Row({"email": "new "}, 5), compared).outcome


def test_a_copy_that_has_the_row_twice_has_not_converged() -> None:
    """Both the correction and its own event were added, and either row agrees."""
    compared = Compared(RULES, frozenset({"email"}), "none")
    found = outcome_of(ITEM, Row(NEW, 5), Row(NEW, 5), compared, twice=True)
    assert (CorrectionState.REFUSED, True) == (found.outcome, "more than once" in str(found.reason))


def levelled(source: int, balance: str, level: str = "gold") -> CorrectionOutcome:
    """Give what became of a correction that brings the level of an account and not its balance."""
    compared = Compared((FieldRule("balance", add=True), FieldRule("level")), frozenset({"level"}), "none")
    ours, theirs = {"balance": "10", "level": "gold"}, {"balance": balance, "level": level}
    return outcome_of(ITEM, Row(ours, source), Row(theirs, 5), compared)


@pytest.mark.parametrize(("source", "balance", "level", "state", "differing"), [
    (5, "10", "gold", CorrectionState.CONVERGED, ()),
    (5, "11", "gold", CorrectionState.PARTIAL, ("balance",)),
    (5, "11", "lead", CorrectionState.REFUSED, ("balance", "level")),
    (6, "10", "gold", CorrectionState.SUPERSEDED, ()),
    (6, "11", "gold", CorrectionState.PARTIAL, ("balance",)),
    (6, "11", "lead", CorrectionState.UNVERIFIED, ()),
])  # fmt: skip
def test_a_copy_that_differs_in_what_no_correction_brings_has_not_converged(
    source: int, balance: str, level: str, state: CorrectionState, differing: tuple[str, ...]
) -> None:
    """It is partial, and the fields are named."""
    found = levelled(source, balance, level)
    assert (state, differing) == (found.outcome, found.differing)
    assert all(name in str(found.reason) for name in differing)


def test_a_source_that_moved_on_supersedes_a_correction() -> None:
    """If the copy follows; one that does not agree is not repaired, and is looked at again."""
    follows, has_yet_to = (outcome(ITEM, Row(NEW, 6), Row(copy, 5)) for copy in (NEW, OLD))
    assert (CorrectionState.SUPERSEDED, CorrectionState.UNVERIFIED) == (follows[0], has_yet_to[0])
    assert (follows[1].endswith("the copy follows"), has_yet_to[1].endswith("has yet to follow")) == (True, True)


def test_a_copy_that_compares_versions_has_refused() -> None:
    """A foreign write at the same version: the consumer ignored the correction, and the reason says so."""
    found, why = outcome(ITEM, Row(NEW, 5), Row(OLD, 5), "newer")
    assert (CorrectionState.REFUSED, True) == (found, "its copy is at version 5, the correction at 5" in why)


def test_a_copy_that_differs_all_the_same_has_refused() -> None:
    """The fields are named, and no value is."""
    found, why = outcome(ITEM, Row(NEW, 5), Row(OLD, 5))
    assert (CorrectionState.REFUSED, True, False) == (found, "differs in email" in why, "old" in why)


def test_a_deletion_converges_where_the_row_is_gone() -> None:
    """And is refused where it is still there."""
    assert (CorrectionState.CONVERGED, CorrectionState.REFUSED) == (
        outcome(GONE, None, None)[0],
        outcome(GONE, None, Row(OLD))[0],
    )


def test_a_deletion_is_superseded_by_a_row_that_came_back() -> None:
    """The source has it again, and the copy agrees with it; until then nobody knows."""
    found = [outcome(GONE, Row(NEW, 9), copy)[0] for copy in (Row(NEW, 9), Row(OLD, 5), None)]
    assert [CorrectionState.SUPERSEDED, CorrectionState.UNVERIFIED, CorrectionState.UNVERIFIED] == found


def test_a_row_that_the_source_lost_since_is_superseded() -> None:
    """Once the copy has lost it too."""
    assert [CorrectionState.SUPERSEDED, CorrectionState.UNVERIFIED] == [
        outcome(ITEM, None, copy)[0] for copy in (None, Row(OLD, 5))
    ]


def emitted(id_: str, state: CorrectionState, offset: int | None) -> CorrectionRecord:
    """Give a record as the control store knows it."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return CorrectionRecord(
        id_, "l", "u-1", 5, 0, "run-1", state, offset, "a newer event" if offset is None else None, at, at
    )


def test_what_an_earlier_attempt_emitted_was_not_dropped() -> None:
    """Its source has moved on since, so that the guard of the resumed attempt left it out."""
    link = LinkPlan(
        link="l", consumer="c", group="g", topic="t", topic_id="id", partitions=1,
        partitioner=(), since={}, readers=(), approval=True,
    )  # fmt: skip
    records = [emitted("c-1", CorrectionState.EMITTED, 7), emitted("c-2", CorrectionState.DROPPED, None)]
    told = became(link, records, {"c-1": "moved on", "c-3": "moved on"})
    assert [("c-1", 7)] == [(each.correction_id, each.offset) for each in told.emitted]
    dropped = [(each.correction_id, each.reason) for each in told.dropped]
    assert [("c-2", "a newer event"), ("c-3", "moved on")] == dropped


@pytest.mark.parametrize(("committed", "reached"), [({0: 8}, True), ({0: 7}, False), ({0: None}, False)])
def test_a_group_that_others_build_on_is_waited_for(committed: dict[int, int | None], reached: bool) -> None:
    """Until it has passed its corrections, and no longer than its time."""
    assert reached is awaited(lambda: committed, {0: 7}, timeout=timedelta(0))
