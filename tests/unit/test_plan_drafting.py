"""From findings, the contract, the log and the source to a link's plan, and from its items to records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from reconcile.audit.home_partition import Router
from reconcile.audit.partitioner_inference import Inference, infer
from reconcile.contract.model import Contract
from reconcile.domain.cause import Cause
from reconcile.domain.correction import CORRECTION_ID, RUN_ID, Correction, correction_id, event_id, key_digest
from reconcile.domain.finding import Confidence, Difference, FieldDifference, Finding, Hop
from reconcile.domain.outbox import WaitingEvents
from reconcile.domain.partitioner import Partitioner, partition_of
from reconcile.domain.plan import LinkPlan, OutsideReader
from reconcile.domain.plan_rules import Action
from reconcile.files import committed
from reconcile.kafka.transactions import OpenTransaction
from reconcile.repair import planning
from reconcile.repair.compensation import Sums
from reconcile.repair.correction_writer import CorrectionWriter
from reconcile.repair.logged_aggregates import LoggedAggregate
from reconcile.repair.planning import LinkFacts, Route, TopicFacts
from reconcile.repair.source_values import SourceRow
from reconcile.repair.topic_form import Sample, learned

ID = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
HOME = 11
BODY: dict[str, Any] = {
    "id": ID,
    "version": 4,
    "first_name": "Zoey",
    "last_name": "Z",
    "email": "a@x",
    "phone": None,
    "emails": [{"address": "a@x", "verified": True}],
    "phones": [],
    "updated_at": "2026-01-01T00:00:00.000000Z",
}
VALUES = {**BODY, "version": 5, "first_name": "Zoiee"}
PARTITIONS = 12
SINCE = dict.fromkeys(range(PARTITIONS), 100)
SAMPLES = [
    Sample(str(n).encode(), json.dumps(BODY).encode(), (("event-id", b"e"), ("event-type", b"UserRenamed")))
    for n in range(6)
] + [Sample(b"9", None, (("event-id", b"e"), ("event-type", b"UserClosed")))]


SEEN = LoggedAggregate({HOME: 40}, ID.encode(), HOME, 5, "UserRenamed", BODY)


def contract(name: str = "user-account", **changes: Any) -> Contract:
    """Give one of the lab's contracts, with changes such as `topic={"delete": ...}` or `repair={"deletes": True}`."""
    said = yaml.safe_load(committed("contracts", f"{name}.yaml").read_text("utf-8"))
    for part, change in changes.items():
        place = (
            said["consumers"][0]["repair"]
            if part == "repair"
            else said["consumers"][0]
            if part == "consumer"
            else said[part]
        )
        place.update(change)
    return Contract.model_validate(said)


def finding(difference: Difference = Difference.CHANGED, cause: Cause = Cause.SKIPPED) -> Finding:
    """Give a finding on login."""
    fields = (FieldDifference("display_name", "Zoiee Z", "Zoey Z"),) if difference is Difference.CHANGED else ()
    version = None if difference is Difference.ORPHAN else 5
    return Finding(
        "user-account/login", ID, difference, cause, Confidence.CERTAIN, Hop.LOG_TO_CONSUMER, fields=fields,
        source_version=version, consumer_version=4,
    )  # fmt: skip


def inferred(
    by: Partitioner = Partitioner.MURMUR2, stray: Partitioner | None = None, declared: str = "infer"
) -> Inference:
    """Infer from keys of which every third one may have been placed by another producer."""
    keys = [f"user-{n}".encode() for n in range(3000)]
    placed = [(key, partition_of(key, PARTITIONS, (stray or by) if n % 3 == 0 else by)) for n, key in enumerate(keys)]
    return infer(placed, PARTITIONS, declared)


def world(
    of: Contract,
    *,
    logged: LoggedAggregate | None = None,
    rows: tuple[SourceRow, ...] = (SourceRow(ID, 5, gone=False, values=VALUES),),
    committed: Mapping[int, int | None] | None = None,
    inference: Inference | None = None,
    main: bool = True,
    compacted: bool = False,
) -> LinkFacts:
    """Give a world in which nothing speaks against a correction."""
    placed = inference or inferred()
    form = learned(of.topic, SAMPLES, None)
    topic = TopicFacts(placed, Router.of(placed, ()), form, compacted, {ID: logged or SEEN})
    route = Route("user-account" if main else "fix", "t-1", PARTITIONS if main else 3, SINCE, ("audit",), main)
    return LinkFacts(topic, route, SINCE if committed is None else committed, {ID: rows})


def planned(of: Contract, now: LinkFacts, *findings: Finding) -> LinkPlan:
    """Plan for login."""
    consumer = of.consumers[0]
    empty = LinkPlan(
        link="user-account/login", consumer="login", group="login-service", topic="", topic_id="", partitions=0,
        partitioner=(), since={}, readers=(), approval=True,
    )  # fmt: skip
    return planning.planned(empty, findings or (finding(),), of, consumer, "run-1", now)


def records(of: Contract, now: LinkFacts, plan: LinkPlan) -> list[Correction]:
    """Write the records of a plan's first item."""
    writer = CorrectionWriter(of, now.topic.form, "run-1", SINCE)
    logged = planning.with_key(ID, now.topic.aggregates[ID], now.topic.form.keys)
    return writer.of(plan.items[0], logged, next(iter(now.rows[ID]), None))


def test_a_correction_is_planned_for_its_home_partition() -> None:
    """Topic, partition, readers, and the version and the content that it is made from."""
    plan = planned(contract(), world(contract()))
    (item,) = plan.items
    assert (Action.RESTATE, "user-account", (HOME,), 5) == (
        item.action,
        item.topic,
        item.partitions,
        item.basis_version,
    )
    assert SourceRow(ID, 5, gone=False, values=VALUES).basis == item.basis
    assert correction_id("user-account/login", ID, 5, None) == item.correction_id
    assert key_digest(ID.encode()) == item.key
    assert (("murmur2",), ("audit",), ()) == (plan.partitioner, plan.readers, plan.refused)


def test_a_basis_says_nothing_without_the_key() -> None:
    """Of a row with sensitive values nobody can try what it says; the same key gives the same basis."""
    bare, one, other, again = (
        SourceRow(ID, 5, gone=False, values=VALUES, key=key).basis for key in (b"", b"one", b"other", b"one")
    )
    assert one == again
    assert 3 == len({bare, one, other})


@pytest.mark.parametrize("by", Partitioner)
def test_the_home_follows_the_partitioner_of_the_log(by: Partitioner) -> None:
    """Java's, librdkafka's and Sarama's: 11, 6 and 4 for this key."""
    of = contract()
    homes = {Partitioner.MURMUR2: 11, Partitioner.CRC32: 6, Partitioner.FNV1A: 4}
    now = world(of, logged=LoggedAggregate({homes[by]: 40}, ID.encode(), homes[by], 5), inference=inferred(by))
    assert (homes[by],) == planned(of, now).items[0].partitions


@pytest.mark.parametrize("declared", ["infer", "murmur2"])
def test_mixed_producers_refuse_the_plan(declared: str) -> None:
    """Where no partitioner explains the log, the shares that were seen are told; the contract settles nothing."""
    of = contract()
    (reason,) = planned(of, world(of, inference=inferred(stray=Partitioner.CRC32, declared=declared))).refused
    assert "murmur2" in reason
    assert "crc32" in reason
    assert "%" in reason


def test_records_elsewhere_have_to_be_consumed_first() -> None:
    """After growth a correction waits until the group has passed the last record in the old partition."""
    of = contract()
    logged = LoggedAggregate({HOME: 40, 3: 90}, ID.encode(), HOME, 5)
    before, after = (world(of, logged=logged, committed={**SINCE, 3: offset}) for offset in (90, 91))
    assert (Action.NOT_REPAIRED, Action.RESTATE) == tuple(planned(of, each).items[0].action for each in (before, after))


@pytest.mark.parametrize(("end", "done"), [(40, Action.NOT_REPAIRED), (41, Action.RESTATE)])
def test_an_event_that_came_after_the_run_read_the_log_is_known(end: int, done: Action) -> None:
    """The outbox has caught up between audit and plan; versions do not tell."""
    of = contract()
    now = replace(world(of, logged=replace(SEEN, version=None)), log_ends={HOME: end})
    assert done == planned(of, now, finding(cause=Cause.NEVER_PUBLISHED)).items[0].action


def test_what_waits_in_the_outbox_when_the_plan_is_made_is_left() -> None:
    """Whatever the audit saw."""
    of = contract()
    now = replace(world(of), waiting={ID: WaitingEvents(2)})
    assert "waits in the source's outbox" in planned(of, now).items[0].reason


def test_a_group_that_reads_uncommitted_records_is_refused() -> None:
    """It would apply corrections that are taken back."""
    of = contract(consumer={"isolation": "read_uncommitted"})
    (reason,) = planned(of, world(of)).refused
    assert "login-service reads uncommitted records" in reason


def test_a_group_that_is_not_known_to_read_committed_records_gets_advice() -> None:
    """It may apply what is taken back: whoever knows how its clients are set has to say so first."""
    of = contract(consumer={"isolation": None})
    plan = planned(of, world(of))
    assert ([Action.ADVICE], ()) == ([each.action for each in plan.items], plan.refused)
    assert "consumers[].isolation" in plan.items[0].reason


def test_another_group_of_the_main_topic_has_to_say_how_it_reads() -> None:
    """A correction of one copy reaches the others, too."""
    of = contract()
    login = of.consumers[0]
    other = login.model_copy(update={"name": "search", "group": "search-service", "isolation": None})
    (reason,) = planned(of.model_copy(update={"consumers": (login, other)}), world(of)).refused
    assert "does not say whether search-service reads uncommitted records" in reason


def test_readers_that_the_contract_does_not_name_are_a_warning() -> None:
    """What is known of them is said: how they read is not."""
    of = contract()
    now = world(of)
    audit = OutsideReader(group="audit", state="stable", members=2, commits=True)
    plan = planned(of, replace(now, route=replace(now.route, outside=(audit,))))
    assert any("audit (stable, 2 members here, with committed offsets)" in each for each in plan.warnings)


def test_an_open_transaction_is_a_warning() -> None:
    """Corrections behind it wait, as all readers of committed records do."""
    of = contract()
    now = world(of)
    young = OpenTransaction(HOME, 40, 44, None, hanging=False)
    plan = planned(of, replace(now, route=replace(now.route, undecided=(young,))))
    assert ([Action.RESTATE], ()) == ([each.action for each in plan.items], plan.refused)
    assert any(f"in partition {HOME} at offset 40" in each for each in plan.warnings)


@pytest.mark.parametrize(
    ("readers", "all_seen", "said"),
    [
        (("audit",), True, "audit"),
        ((), True, "nobody"),
        (("audit",), False, "audit, and perhaps others that we may not see"),
        ((), False, "none that we may see"),
    ],
)
def test_nobody_is_said_only_where_all_groups_are_seen(readers: tuple[str, ...], all_seen: bool, said: str) -> None:
    """A cluster does not list the groups that an account may not describe."""
    of = contract()
    now = world(of)
    route = replace(now.route, readers=readers, sees_all_groups=all_seen)
    found = planned(of, replace(now, route=route))
    assert said == found.also_read_by
    assert "not looked at" == found.replaced(topic_id="").also_read_by  # the plan was refused before


@pytest.mark.parametrize(("main", "refused"), [(True, True), (False, False)])
def test_another_group_that_reads_uncommitted_records_is_refused_on_the_main_topic(main: bool, refused: bool) -> None:
    """It reads the main topic too; a repair topic is read by one group alone."""
    of = contract() if main else contract(repair={"route": {"topic": "fix"}})
    login = of.consumers[0]
    other = login.model_copy(update={"name": "search", "group": "search-service", "isolation": "read_uncommitted"})
    of = of.model_copy(update={"consumers": (login, other)})
    reasons = planned(of, world(of, main=main)).refused
    assert refused == any("search-service reads uncommitted records" in each for each in reasons)


@pytest.mark.parametrize(("readers", "refused"), [((), False), (("audit",), True)])
def test_a_difference_is_not_written_where_another_group_would_add_it_too(
    readers: tuple[str, ...], refused: bool
) -> None:
    """The contract says that one group reads the route, and the cluster that another one does as well."""
    guard = {"guard": "newer", "version": "version"}
    of = contract("user-balance", consumer=guard, repair={"route": {"topic": "fix"}, "compensate": True})
    row = SourceRow(ID, 5, gone=False, values={"id": ID, "version": 5, "tariff": "basic"})
    now = world(of, rows=(row,), main=False, logged=replace(SEEN, adding_type="Booked"))
    now = replace(now, route=replace(now.route, readers=readers), sums={ID: Sums({"balance": "1"}, version=5)})
    wrong = replace(finding(), link="user-balance/billing", fields=(FieldDifference("balance", "2", "1"),))
    plan = planned(of, now, wrong)
    assert ([Action.COMPENSATE], refused) == ([each.action for each in plan.items], bool(plan.refused))
    assert all("audit, and each group adds the difference" in each for each in plan.refused)


def test_a_row_that_does_not_fit_is_left_out_and_no_other_one() -> None:
    """The path is named, and the value is not."""
    of, other = contract(), "0b5b7a4e-0000-11d3-9a0c-0305e82c3301"
    bad = SourceRow(ID, 5, gone=False, values={**VALUES, "phones": "none of your business"})
    good = SourceRow(other, 5, gone=False, values={**VALUES, "id": other})
    now = world(of, rows=(bad,))
    now = replace(now, rows={ID: (bad,), other: (good,)})
    plan = planned(of, now, finding(), replace(finding(), aggregate_id=other))
    assert ([(Action.RESTATE, other), (Action.ADVICE, ID)], ()) == (
        [(each.action, each.aggregate_id) for each in plan.items],
        plan.refused,
    )
    reason = "topic.value gives a string at $.phones, where the topic's records have an array"
    assert f"it cannot be written: {reason}" == plan.items[1].reason


def test_fields_that_a_correction_would_leave_out_refuse_the_plan() -> None:
    """Other readers would take them for gone."""
    of = contract()
    less = {name: text for name, text in (of.topic.value or {}).items() if name not in ("emails", "phones")}
    of = contract(topic={"value": less})
    row = SourceRow(ID, 5, gone=False, values={name: VALUES[name] for name in less})
    (reason,) = planned(of, world(of, rows=(row,))).refused
    assert "topic.value leaves out $.emails, $.phones, which all records carry" in reason


def test_a_topic_of_its_own_has_partitions_of_its_own() -> None:
    """The same partitioner over its partitions; nothing orders it with the main topic, and the plan says so."""
    of = contract(repair={"route": {"topic": "fix"}})
    plan = planned(of, world(of, main=False))
    assert ("fix", (partition_of(ID.encode(), 3, Partitioner.MURMUR2),)) == (plan.topic, plan.items[0].partitions)
    assert any("nothing orders" in warning for warning in plan.warnings)


def test_a_correction_looks_like_the_topics_own_events() -> None:
    """Key, value and headers are those of an event, with the headers of a correction beside them."""
    of = contract()
    now = world(of)
    (record,) = records(of, now, planned(of, now))
    headers = dict(record.headers)
    assert (ID.encode(), HOME, 100) == (record.key, record.partition, record.since)
    assert VALUES == json.loads(record.value or b"")
    own = {name: text.decode() for name, text in headers.items() if not name.startswith("reconcile-")}
    assert {"event-id": event_id(record.id, "run-1"), "event-type": "UserRenamed", "correlation-id": "run-1"} == own
    assert (record.id.encode(), b"run-1") == (headers[CORRECTION_ID], headers[RUN_ID])


def test_a_deletion_is_a_tombstone() -> None:
    """With the type that the topic's tombstones have."""
    of = contract(repair={"deletes": True})
    now = world(of, rows=())
    (record,) = records(of, now, planned(of, now, finding(Difference.ORPHAN)))
    assert (None, b"UserClosed") == (record.value, dict(record.headers)["event-type"])


def test_a_deletion_goes_where_a_compacted_topic_holds_the_old_record() -> None:
    """Else compaction would keep that one for ever."""
    of = contract(repair={"deletes": True})
    now = world(of, rows=(), compacted=True, logged=LoggedAggregate({3: 4}, ID.encode(), 3, 5, "UserRenamed", BODY))
    assert [3, HOME] == [each.partition for each in records(of, now, planned(of, now, finding(Difference.ORPHAN)))]


def test_a_deletion_by_a_test_makes_it_true() -> None:
    """The aggregate's last state, with the path set."""
    of = contract(topic={"delete": "$.deleted == true"}, repair={"deletes": True})
    now = world(of, rows=())
    (record,) = records(of, now, planned(of, now, finding(Difference.ORPHAN)))
    assert {**BODY, "deleted": True} == json.loads(record.value or b"")


def test_a_deletion_carries_the_last_version() -> None:
    """In its header, as the log writes it: where the row is gone, its newest event tells."""
    of = contract(topic={"delete": "$.deleted == true", "version": "header:version"}, repair={"deletes": True})
    now = world(of, rows=(), logged=replace(SEEN, version_text="5"))
    (record,) = records(of, now, planned(of, now, finding(Difference.ORPHAN)))
    assert b"5" == dict(record.headers)["version"]


@pytest.mark.parametrize(("guard", "done"), [("newer", Action.ADVICE), ("newer-or-equal", Action.TOMBSTONE)])
def test_a_deletion_that_the_consumer_would_ignore_is_an_advice(guard: str, done: Action) -> None:
    """It carries the last version, and the copy is there already."""
    of = contract(topic={"delete": "$.deleted == true"}, repair={"deletes": True}, consumer={"guard": guard})
    orphan = replace(finding(Difference.ORPHAN), consumer_version=5)
    assert done is planned(of, world(of, rows=()), orphan).items[0].action


def in_headers(*, tombstones: bool, **changes: Any) -> tuple[Contract, LinkFacts]:
    """Give a topic with versions in headers, of its tombstones too or not, and an aggregate that it has deleted."""
    of = contract(topic={"version": "header:version"}, repair={"deletes": True}, **changes)
    events = [replace(each, headers=(*each.headers, ("version", b"5"))) for each in SAMPLES if each.value is not None]
    own = (("event-id", b"e"), ("event-type", b"UserClosed"), *([("version", b"6")] if tombstones else []))
    form = learned(of.topic, [*events, Sample(b"9", None, own)], None)
    now = world(of, rows=(), logged=replace(SEEN, version=5, version_text="5"))
    return of, replace(now, topic=replace(now.topic, form=form))


@pytest.mark.parametrize(("tombstones", "carried"), [(True, b"5"), (False, None)])
def test_a_tombstone_carries_a_version_where_the_topics_own_do(tombstones: bool, carried: bytes | None) -> None:
    """A late event must not raise what it deleted, and a handler may read the header of each record."""
    of, now = in_headers(tombstones=tombstones)
    (record,) = records(of, now, planned(of, now, finding(Difference.ORPHAN)))
    assert (None, carried) == (record.value, dict(record.headers).get("version"))


def test_a_tombstone_of_what_the_log_never_had_carries_no_version() -> None:
    """An invented one could keep the aggregate's first events out later."""
    of, now = in_headers(tombstones=True)
    now = replace(now, topic=replace(now.topic, aggregates={ID: LoggedAggregate(key=ID.encode())}))
    (record,) = records(of, now, planned(of, now, finding(Difference.ORPHAN, Cause.PHANTOM)))
    assert (None, None) == (record.value, dict(record.headers).get("version"))


@pytest.mark.parametrize(("tombstones", "done"), [(True, Action.ADVICE), (False, Action.TOMBSTONE)])
def test_a_tombstone_whose_version_the_consumer_would_ignore_is_an_advice(tombstones: bool, done: Action) -> None:
    """The copy is at the version that its header would carry."""
    of, now = in_headers(tombstones=tombstones, consumer={"guard": "newer"})
    orphan = replace(finding(Difference.ORPHAN), consumer_version=5)
    assert done is planned(of, now, orphan).items[0].action


def test_a_deletion_without_a_version_that_could_be_carried_is_an_advice() -> None:
    """Neither row nor log has one."""
    of = contract(topic={"delete": "$.deleted == true"}, repair={"deletes": True})
    now = world(of, rows=(), logged=replace(SEEN, version=None))
    assert "a version that a deletion could carry" in planned(of, now, finding(Difference.ORPHAN)).items[0].reason


def test_a_deletion_repeats_no_sum() -> None:
    """What the newest event has added would be added once more; what the log has kept is not changed by it."""
    of = contract("user-balance", topic={"delete": "$.state.gone == true"}, repair={"deletes": True})
    body = {"id": ID, "version": 5, "amount": 7, "state": {"gone": False}}
    now = world(of, rows=(), logged=replace(SEEN, body=body))
    orphan = replace(finding(Difference.ORPHAN), link="user-balance/billing")
    (record,) = records(of, now, planned(of, now, orphan))
    assert {"id": ID, "version": 5, "state": {"gone": True}} == json.loads(record.value or b"")
    assert {"gone": False} == body["state"]


def test_debezium_deletes_by_its_operation() -> None:
    """A row with `op: u` would bring the aggregate back."""
    of = contract(topic={"format": "debezium-json", "delete": "$.__op == 'd'"}, repair={"deletes": True})
    now = world(of, rows=(), logged=replace(SEEN, body={**BODY, "__op": "u", "__source": {}}))
    (record,) = records(of, now, planned(of, now, finding(Difference.ORPHAN)))
    envelope = json.loads(record.value or b"")
    assert ("d", BODY, None) == tuple(envelope[name] for name in ("op", "before", "after"))


@pytest.mark.parametrize("place", ["$.version", "header:version"])
@pytest.mark.parametrize(
    ("numbered", "logged"), [(False, 4), (True, "2026-01-01T00:00:00Z"), (False, "2026-01-01T00Z")]
)
def test_an_instant_is_not_written_as_a_number(place: str, numbered: bool, logged: object) -> None:
    """How a version looks that is no plain number is for topic.value to say."""
    less = {name: text for name, text in (contract().topic.value or {}).items() if name != "version"}
    of = contract(topic={"version": place, "value": less})
    headers = (("event-id", b"e"), ("event-type", b"UserRenamed"), ("version", str(logged).encode()))
    samples = [Sample(b"1", json.dumps({**BODY, "version": logged}).encode(), headers)]
    row = SourceRow(ID, 5, gone=False, values={name: VALUES[name] for name in less}, numbered=numbered)
    now = world(of, rows=(row,))
    now = replace(now, topic=replace(now.topic, form=learned(of.topic, samples, None)))
    *_, reason = planned(of, now).refused
    assert f"the versions at {place} are no plain numbers" in reason


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_what_json_cannot_hold_is_told(value: object) -> None:
    """A row with a number or a text that has no way into the topic is left out, and ends nothing."""
    of = contract()
    row = SourceRow(ID, 5, gone=False, values={**VALUES, "first_name": value})
    plan = planned(of, world(of, rows=(row,)))
    assert ([Action.ADVICE], ()) == ([each.action for each in plan.items], plan.refused)
    assert "it cannot be written: topic.value gives a" in plan.items[0].reason


def test_a_place_below_what_is_no_object_is_told() -> None:
    """topic.value gives text where the version should stand in an object."""
    less = {name: text for name, text in (contract().topic.value or {}).items() if name != "version"}
    of = contract(topic={"version": "$.first_name.version", "value": less})
    row = SourceRow(ID, 5, gone=False, values={name: VALUES[name] for name in less})
    *_, reason = planned(of, world(of, rows=(row,))).refused
    assert "$.first_name.version has no place" in reason


def test_a_deletion_that_only_a_person_understands_is_an_advice() -> None:
    """A test that no value can be read from."""
    of = contract(topic={"delete": "coalesce($.state, 'x') in ('gone', 'lost')"}, repair={"deletes": True})
    assert Action.ADVICE == planned(of, world(of, rows=()), finding(Difference.ORPHAN)).items[0].action


@pytest.mark.parametrize(("seen", "said"), [
    ([b'{"id": 1}', b"2"], "the topic's keys have several forms"),
    ([b'{"id": 1}'], "its id cannot be written as the topic's keys are"),
])  # fmt: skip
def test_an_id_without_a_key_that_is_known_is_an_advice(seen: list[bytes], said: str) -> None:
    """No record of the aggregate shows its own key, and the others do not tell it."""
    of = contract(topic={"key": {"type": "json"}})
    now = world(of)
    form = learned(of.topic, [Sample(each, json.dumps(BODY).encode()) for each in seen], None)
    now = replace(now, topic=replace(now.topic, form=form, aggregates={}))
    (item,) = planned(of, now).items
    assert (Action.ADVICE, True) == (item.action, said in item.reason)


def test_an_id_that_the_log_never_had_gets_a_key_like_all_others() -> None:
    """Connect's struct keys name their columns."""
    of = contract(topic={"key": {"type": "json"}})
    now = world(of)
    form = learned(of.topic, [Sample(b'{"id":"x"}', json.dumps(BODY).encode())], None)
    now = replace(now, topic=replace(now.topic, form=form, aggregates={}))
    (item,) = planned(of, now).items
    assert (Action.RESTATE, key_digest(f'{{"id":"{ID}"}}'.encode())) == (item.action, item.key)


def test_a_patch_carries_no_sum() -> None:
    """On a topic of changes: id, version and what is set."""
    of = contract(
        "user-balance",
        topic={"value": {"id": "user_id", "version": "version", "tariff": "tariff", "amount": "balance"}},
    )
    assert frozenset({"tariff"}) == planning.terms(of, of.consumers[0]).carried
    assert (("tariff",),) == planning.carried_paths(of)


def test_caps_count_what_would_be_written() -> None:
    """No correction is within every cap, also on an empty link."""
    consumer = contract(repair={"max_corrections": 0, "max_ratio": 0}).consumers[0]
    assert () == planning.caps(consumer, 0, 0)
    assert 2 == len(planning.caps(consumer, 1, 100))


def test_a_plan_without_a_look_says_what_it_would_be() -> None:
    """A plan that a cap refuses still names each finding."""
    of = contract()
    assert [Action.RESTATE] == [each.action for each in planning.by_findings([finding()], of, of.consumers[0])]
