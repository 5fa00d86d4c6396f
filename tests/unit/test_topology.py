"""Every check of a topology: silent where all is well, and as severe as what it found deserves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconcile.audit.event_tests import EventTest
from reconcile.audit.partitioner_inference import Inference
from reconcile.audit.topology import (
    CHECKS,
    Check,
    Severity,
    TopologyFacts,
    checked,
    exit_code,
    library_checks,
    log_checks,
    setup_checks,
)
from reconcile.audit.topology.facts import DeletionFacts, Inversions, LogFacts, Placement, TypeFacts
from reconcile.audit.topology.rule import counted, listed
from reconcile.contract.model import Contract
from reconcile.domain.partitioner import Partitioner
from reconcile.gather.fence.fence import ConsumerFence, Fence, SourceFence, TopicFence
from reconcile.gather.fence.group_position import GroupPosition, PartitionExtent, PositionState
from reconcile.gather.log.index import Growth
from reconcile.gather.stores.library_tables import LibraryTables, Registration
from reconcile.gather.topology_facts import ClusterFacts, ReadingGroup, topics_of
from reconcile.kafka.client import GroupDescription, GroupMember, GroupState
from reconcile.kafka.layout import TopicLayout, layout
from reconcile.kafka.transactions import OpenTransaction

NOW = datetime(2026, 6, 1, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=30)
OK, WARNING, FAULT = Severity.OK, Severity.WARNING, Severity.FAULT
M, C = Partitioner.MURMUR2, Partitioner.CRC32
RETRY, DLQ, STASH = "user.login.retry", "user.login.dlq", "user.login.stash"

Checks = Callable[[TopologyFacts], Iterator[Check]]


def consumer(name: str = "login", **more: Any) -> dict[str, Any]:
    """Give a consumer as a contract has it, with a policy that fits it."""
    given = {
        "name": name,
        "group": f"{name}-service",
        "store": f"{name}-db",
        "table": "profile",
        "id": "id",
        "fields": [{"name": "email", "source": "email", "consumer": "mail", "event": "$.email"}],
        "isolation": "read_committed",
        "failure": {"policy": "block"},
        **more,
    }
    return {key: value for key, value in given.items() if value is not None}


def contract(*consumers: dict[str, Any], **topic: Any) -> Contract:
    """Give a contract; what is named is the topic's."""
    said = {
        "version": 1,
        "aggregate": "user",
        "source": {"store": "user-db", "table": "user", "id": "id", "version": "version"},
        "topic": {"cluster": "main", "name": "user", "version": "$.version", **topic},
        "consumers": list(consumers) or [consumer()],
    }
    return Contract.model_validate(said)


def kept(name: str = "user", replicas: int = 3, isr: int | None = None, **settings: str) -> TopicLayout:
    """Give a topic's layout: one that survives a broker, unless told otherwise."""
    in_step = replicas if isr is None else isr
    given = {"min.insync.replicas": "2", "retention.ms": "-1", **{k.replace("_", "."): v for k, v in settings.items()}}
    return layout(name, dict.fromkeys(range(2), (replicas, in_step)), given)


def member(number: int, instance: str | None = None, partitions: tuple[int, ...] = ()) -> GroupMember:
    """Give a member of a group."""
    return GroupMember(f"m{number}", "client", "host", instance, partitions)


def place(partition: int, state: PositionState = PositionState.CAUGHT_UP, committed: int | None = 10) -> GroupPosition:
    """Give where a group stands in one partition."""
    return GroupPosition(partition, committed, committed, None, 0, state)


def fence(name: str = "login", *places: GroupPosition, **group: Any) -> ConsumerFence:
    """Give the fence of a consumer whose group has one member, and has read all."""
    standing = GroupDescription(
        f"{name}-service",
        group.get("state", GroupState.STABLE),
        group.get("protocol", "classic"),
        "range",
        group.get("members", (member(0),)),
    )
    return ConsumerFence(
        f"user/{name}", name, "db", None, None, None, standing, places or (place(0), place(1)), True, 0
    )


def log(**more: Any) -> LogFacts:
    """Give what a healthy log tells."""
    given: dict[str, Any] = {
        "inference": Inference(2, 100, {M: 1.0, C: 0.5}, (M,)),
        "records": 1000,
        "growth": (grown(2, {}, {}),),
        "types": (TypeFacts("Changed", 1000, always=frozenset({"id", "email"}), ever=frozenset({"id", "email"})),),
        "placement": Placement(ids=100),
        "inversions": Inversions(),
        **more,
    }
    return LogFacts(**given)


def grown(count: int, after: dict[int, int], ends: dict[int, int]) -> Growth:
    """Give what the history notes of a partition count."""
    return Growth(count=count, seen_at=NOW, after=after, ends=ends)


def facts(
    *fences: ConsumerFence,
    of: Contract | None = None,
    layouts: Mapping[str, TopicLayout | None] | None = None,
    seen: LogFacts | None = None,
    **cluster: Any,
) -> TopologyFacts:
    """Give the facts of a world in which all is well, but for what is named."""
    agreed = of or contract()
    of_topics = {name: kept(name) for name in topics_of(agreed)} | dict(layouts or {})
    places = tuple(PartitionExtent(number, 0, 10, 10, 10) for number in range(2))
    return TopologyFacts(
        agreed,
        Fence(
            agreed.digest,
            "user",
            NOW,
            NOW,
            SourceFence("user-db", None, None, None, None),
            TopicFence("main", "user", "id", places),
            fences or tuple(fence(each.name) for each in agreed.consumers),
        ),
        ClusterFacts(brokers=3, topics=of_topics, known_groups=frozenset({"login-service"}), **cluster),
        seen or log(),
    )


def severities(check: Checks, seen: TopologyFacts) -> list[Severity]:
    """Give how bad a check finds things."""
    return [each.severity for each in check(seen)]


def only(check: Checks, seen: TopologyFacts) -> Check:
    """Give the one thing that a check says."""
    (found,) = check(seen)
    return found


def test_a_healthy_world_has_no_warning() -> None:
    """Where all is well, every check says so."""
    login = consumer(failure={"policy": "stash", "dead_letter": DLQ, "stash": STASH})
    seen = facts(of=contract(login))
    assert [] == [each for each in checked(seen) if each.severity is not OK]
    assert 0 == exit_code(checked(seen), ())


def test_each_thing_that_is_wrong_says_what_to_do() -> None:
    """A warning or a fault without advice helps nobody."""
    activity = consumer("activity", failure=None)
    login = consumer(failure={"policy": "retry-topics", "retry": [RETRY], "dead_letter": DLQ})
    seen = facts(
        of=contract(login, activity, state="patch"), layouts={"user": kept(cleanup_policy="compact"), DLQ: None}
    )
    wrong = [each for each in checked(seen) if each.severity is not OK]
    assert 4 == len(wrong)
    assert [] == [each.id for each in wrong if not (each.todo and each.why and each.found)]


def test_every_row_that_doctor_is_to_check_is_covered() -> None:
    """Each row of the field's knowledge that topology can show is named by a check."""
    login = consumer(
        failure={"policy": "ignore", "retry": [RETRY], "dead_letter": DLQ, "stash": STASH}, depends_on=["login-service"]
    )
    covered = {system for each in checked(facts(of=contract(login))) for system in each.systems}
    expected = {"A1", "A2", "A7", "B1", "B5", "B17", "C4", "C5", "C6", "D1", "D2", "D3", "D5", "D6", "D7", "D9"}
    assert set() == expected - covered


@pytest.mark.parametrize(
    ("severities_", "untold", "code"),
    [([OK], [], 0), ([WARNING], [], 0), ([WARNING], ["x"], 2), ([FAULT], [], 1), ([FAULT], ["x"], 1)],
)
def test_exit_codes(severities_: list[Severity], untold: list[str], code: int) -> None:
    """A fault is 1, what could not be told 2, warnings are 0."""
    checks = [Check("T", (), each, "user", "t", "f", "w") for each in severities_]
    assert code == exit_code(checks, untold)


def test_checks_are_made_once_each() -> None:
    """No check is listed twice."""
    assert len(CHECKS) == len(set(CHECKS))


@pytest.mark.parametrize(("bad", "expected"), [(9, WARNING), (10, FAULT)])
def test_records_that_cannot_be_read(bad: int, expected: Severity) -> None:
    """A few are a warning, one in a hundred a fault."""
    seen = log(types=(TypeFacts("Changed", 1000, unreadable=bad - 1, unversioned=1),))
    assert expected is only(log_checks.schemas, facts(seen=seen)).severity


def test_types_whose_schemas_differ() -> None:
    """A field that one type always carries and another never does tells of two schemas."""
    types = (
        TypeFacts("Changed", 10, always=frozenset({"id", "email"}), ever=frozenset({"id", "email"})),
        TypeFacts("Paid", 10, always=frozenset({"id", "amount"}), ever=frozenset({"id", "amount"})),
    )
    found = only(log_checks.schemas, facts(seen=log(types=types)))
    assert (WARNING, "every Changed has email, and no Paid has") == (found.severity, found.found)


@pytest.mark.parametrize("topic", [{"state": "patch"}, {"ignore_types": ["Paid"]}])
def test_types_that_may_differ(topic: dict[str, Any]) -> None:
    """Patches carry what changed, and ignored types say nothing of the state: neither is a second schema."""
    types = (
        TypeFacts("Changed", 10, always=frozenset({"email"}), ever=frozenset({"email"})),
        TypeFacts("Paid", 10, always=frozenset({"amount"}), ever=frozenset({"amount"})),
    )
    assert [OK] == severities(log_checks.schemas, facts(of=contract(**topic), seen=log(types=types)))


def test_optional_fields_are_no_second_schema() -> None:
    """A field that is now and then left out does not tell types apart."""
    types = (
        TypeFacts("Changed", 10, always=frozenset({"id"}), ever=frozenset({"id", "phone"})),
        TypeFacts("Renamed", 10, always=frozenset({"id"}), ever=frozenset({"id"})),
    )
    assert [OK] == severities(log_checks.schemas, facts(seen=log(types=types)))


@pytest.mark.parametrize(("topic", "seen", "expected", "todo"), [
    ({}, DeletionFacts(3), OK, ""),
    ({}, DeletionFacts(), OK, ""),
    (
        {}, DeletionFacts(0, {"$.__deleted == 'true'": 3}, {"$.__deleted == 'true'": 3}), FAULT,
        "add to topic.delete: $.__deleted == 'true'",
    ),
    (
        {}, DeletionFacts(3, {"$.__op == 'd'": 3}), WARNING,
        "set topic.delete_as: [$.__op == 'd', tombstone]",
    ),
    ({}, DeletionFacts(0, {"$.__op == 'd'": 3}), WARNING, "set topic.delete_as: $.__op == 'd'"),
    (
        {"delete": "$.__op == 'd'"}, DeletionFacts(3, {"$.__op == 'd'": 3}), WARNING,
        "set topic.delete_as: [$.__op == 'd', tombstone]",
    ),
    (
        {"delete": ["$.__op == 'd'", "tombstone"], "delete_as": ["$.__op == 'd'", "tombstone"]},
        DeletionFacts(3, {"$.__op == 'd'": 3}), OK, "",
    ),
])  # fmt: skip
def test_deletions_that_read_or_are_written_otherwise(
    topic: dict[str, Any], seen: DeletionFacts, expected: Severity, todo: str
) -> None:
    """The log shows how the topic's deletions look, and doctor says what the contract lacks."""
    of = contract(consumer(repair={"deletes": True}), **topic)
    found = only(log_checks.deletions, facts(of=of, seen=log(deletions=seen)))
    assert (expected, todo) == (found.severity, found.todo)


def test_how_deletions_are_written_matters_where_they_are() -> None:
    """A contract that corrects no orphans writes none."""
    seen = log(deletions=DeletionFacts(3, {"$.__op == 'd'": 3}))
    assert [OK] == severities(log_checks.deletions, facts(seen=seen))


def test_times_that_no_clock_shows() -> None:
    """One producer that sends microseconds is a warning: its records keep their segments for ever."""
    assert [[OK], [WARNING]] == [severities(log_checks.times, facts(seen=log(odd_times=odd))) for odd in (0, 1)]


@pytest.mark.parametrize(("null", "unreadable", "expected"), [(0, 0, OK), (3, 1, WARNING), (0, 10, FAULT)])
def test_keys_that_name_nobody(null: int, unreadable: int, expected: Severity) -> None:
    """They are counted; one in a hundred is a fault."""
    seen = log(null_keys=null, unreadable_keys=unreadable)
    assert [expected] == severities(log_checks.keys, facts(seen=seen))


@pytest.mark.parametrize(
    ("inference", "expected"),
    [
        (Inference(2, 100, {M: 1.0}, (M,)), OK),
        (Inference(2, 0, {}), OK),
        (Inference(2, 3, {M: 1.0, C: 1.0}, (M, C)), OK),
        (Inference(1, 100, {M: 1.0, C: 1.0}, (M, C)), OK),
        (Inference(2, 100, {M: 0.94, C: 0.1}), WARNING),
        (Inference(2, 100, {M: 0.94, C: 0.1}, prevailing=M), WARNING),
        (Inference(2, 100, {M: 0.94, C: 0.1}, prevailing=M, declared=M), WARNING),
        (Inference(2, 100, {M: 1.0}, (M,), declared=C), FAULT),
        (Inference(2, 100, {M: 0.2, C: 0.1}, declared=C), FAULT),
    ],
)
def test_partitioners(inference: Inference, expected: Severity) -> None:
    """One that explains the log is well; none is a warning; another than the contract's is a fault."""
    assert [expected] == severities(log_checks.partitioner, facts(seen=log(inference=inference)))


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (Placement(100), OK),
        (Placement(100, spread=5, grown=5), OK),
        (Placement(100, spread=5, grown=3), FAULT),
        (Placement(100, spread=5, stray=5, stray_at=NOW, routed_by={"crc32": 5}), FAULT),
        (Placement(100, spread=5, stray=5, stray_at=LONG_AGO, routed_by={"crc32": 5}), WARNING),
        (Placement(100, spread=5, stray=5, stray_last=1, stray_at=LONG_AGO, routed_by={"": 5}), FAULT),
    ],
)
def test_ids_in_several_partitions(placement: Placement, expected: Severity) -> None:
    """Growth excuses them; a wrong partition is a fault unless it is long past and every id came home since."""
    assert [expected] == severities(log_checks.partitions_of_ids, facts(seen=log(placement=placement)))


@pytest.mark.parametrize(
    ("inversions", "expected"),
    [(None, OK), (Inversions(), OK), (Inversions(2, 3, NOW), FAULT), (Inversions(2, 3, LONG_AGO), WARNING)],
)
def test_versions_that_go_down(inversions: Inversions | None, expected: Severity) -> None:
    """A version below an earlier one is a fault, unless it is long past."""
    assert [expected] == severities(log_checks.versions, facts(seen=log(inversions=inversions)))


@pytest.mark.parametrize(("dense", "meaning"), [(True, "versions are dense"), (False, "that means nothing")])
def test_versions_that_are_missing_are_counted(dense: bool, meaning: str) -> None:
    """Their number stands in the check, with what it means."""
    (check,) = log_checks.versions(facts(seen=log(version_gaps=3, dense_versions=dense)))
    assert "of 3 ids some are missing" in check.found
    assert meaning in check.found


@pytest.mark.parametrize(("at", "expected"), [(NOW - timedelta(days=1), FAULT), (LONG_AGO, WARNING), (None, FAULT)])
def test_recent_is_judged_by_the_clock(at: datetime | None, expected: Severity) -> None:
    """What the log's other records say of their time changes nothing."""
    stray = Placement(100, spread=5, stray=5, stray_at=at, routed_by={"crc32": 5})
    seen = facts(seen=log(placement=stray, inversions=Inversions(2, 3, at)))
    assert [expected] == severities(log_checks.partitions_of_ids, seen)
    assert [expected] == severities(log_checks.versions, seen)


def test_growth_whose_old_records_are_unread() -> None:
    """A group that has not read what was written before the growth may apply it over what came after."""
    growth = (grown(2, {}, {}), grown(4, {0: 8, 1: 8}, {0: 9, 1: 9}))
    behind = fence("login", place(0, PositionState.LAGGING, 5), place(1))
    seen = log(growth=growth, placement=Placement(100, spread=9, grown=9))
    assert [FAULT] == severities(log_checks.growth, facts(behind, seen=seen))
    assert [WARNING] == severities(log_checks.growth, facts(seen=seen))


def test_a_marker_before_the_growth_is_nothing_to_read() -> None:
    """A group that commits after each record stands before the marker that ends a transaction, and has read all."""
    growth = (grown(2, {}, {}), grown(4, {0: 8, 1: 8}, {0: 9, 1: 9}))
    seen = log(growth=growth, placement=Placement(100, spread=9, grown=9))
    settled = fence("login", place(0, PositionState.CAUGHT_UP, 7), place(1))
    assert [WARNING] == severities(log_checks.growth, facts(settled, seen=seen))
    later = replace(place(0, PositionState.LAGGING, 7), next_record=8)
    assert [WARNING] == severities(log_checks.growth, facts(fence("login", later, place(1)), seen=seen))


def test_growth_of_which_nothing_is_left() -> None:
    """Where no id stands in two partitions any more, growth is past."""
    growth = (grown(2, {}, {}), grown(4, {0: 8, 1: 8}, {0: 9, 1: 9}))
    assert [OK] == severities(log_checks.growth, facts(seen=log(growth=growth)))


def test_growth_that_the_log_alone_shows() -> None:
    """A growth from before the first look is told all the same."""
    inference = Inference(18, 100, {M: 0.6}, (M,), former=12)
    found = only(log_checks.growth, facts(seen=log(inference=inference, growth=(grown(18, {}, {}),))))
    assert "grew from 12 to 18 partitions; 0 ids stand in an old and a new one" == found.found


def test_a_policy_that_is_left_to_the_default() -> None:
    """No word on failures is a warning, and not yet an ignored failure."""
    seen = facts(of=contract(consumer(failure=None)))
    assert [WARNING] == severities(setup_checks.failure_policy, seen)
    assert [] == severities(setup_checks.ignored_failures, seen)


@pytest.mark.parametrize(("tolerance", "expected"), [({}, WARNING), ({"rows": 5}, OK), ({"ratio": 0.01}, OK)])
def test_ignored_failures(tolerance: dict[str, Any], expected: Severity) -> None:
    """Ignoring failures is a decision, and no louder than silence: a warning, unless some drift is tolerated."""
    login = consumer(failure={"policy": "ignore"}, tolerance=tolerance)
    assert [expected] == severities(setup_checks.ignored_failures, facts(of=contract(login)))


@pytest.mark.parametrize(
    ("policy", "more", "used", "expected"),
    [
        ("retry-topics", {"semantics": "records"}, True, OK),
        ("retry-topics", {}, False, FAULT),
        ("retry-topics", {"guard": "newer"}, True, WARNING),
        ("stash", {}, False, WARNING),
        ("stash", {}, True, FAULT),
    ],
)
def test_retry_topics(policy: str, more: dict[str, Any], used: bool, expected: Severity) -> None:
    """They suit records; a state loses its order by the policy, or once an event has gone through."""
    login = consumer(failure={"policy": policy, "retry": [RETRY], "stash": STASH}, **more)
    seen = facts(of=contract(login), ends={RETRY: {0: 3 if used else 0}})
    assert [expected] == severities(setup_checks.retry_topics, seen)


@pytest.mark.parametrize(("semantics", "expected"), [("state", [FAULT]), ("records", [])])
def test_a_share_group_has_no_order(semantics: str, expected: list[Severity]) -> None:
    """A copy of records needs none."""
    login = consumer(failure={"policy": "block", "dialect": "share-group"}, semantics=semantics)
    assert expected == severities(setup_checks.retry_topics, facts(of=contract(login)))


def test_a_guard_does_not_save_patches() -> None:
    """A patch that comes late and is ignored is lost."""
    login = consumer(failure={"policy": "retry-topics", "retry": [RETRY]}, guard="newer")
    assert [FAULT] == severities(setup_checks.retry_topics, facts(of=contract(login, state="patch")))


def test_a_failure_topic_of_two_groups() -> None:
    """A failure topic that two consumers name is a fault of both."""
    failure = {"policy": "retry-then-dead-letter", "dead_letter": DLQ}
    seen = facts(of=contract(consumer(failure=failure), consumer("billing", failure=failure)))
    assert [FAULT, FAULT] == severities(setup_checks.failure_topics, seen)


@pytest.mark.parametrize(
    ("topic", "group", "expected"),
    [
        (RETRY, "login-service", OK),
        (RETRY, "login-retry", OK),
        (RETRY, "watcher", WARNING),
        (RETRY, "billing-service", FAULT),
        (DLQ, "watcher", OK),
        (DLQ, "billing-service", FAULT),
    ],
)
def test_groups_that_read_a_failure_topic(topic: str, group: str, expected: Severity) -> None:
    """Its own may; a watcher of dead letters may; another consumer of the contract must not."""
    failure = {
        "policy": "stash",
        "retry": [{"topic": RETRY, "group": "login-retry"}],
        "dead_letter": DLQ,
        "stash": STASH,
    }
    agreed = contract(consumer(failure=failure), consumer("billing"))
    seen = facts(of=agreed, readers={topic: (ReadingGroup(group, {0: 1}),)})
    assert [expected] == severities(setup_checks.failure_topics, seen)


def test_a_failure_topic_that_is_not_there() -> None:
    """An event that cannot be parked is lost, or stops its consumer."""
    login = consumer(failure={"policy": "stash", "stash": STASH})
    assert [FAULT] == severities(setup_checks.failure_topics, facts(of=contract(login), layouts={STASH: None}))


def run_by_library(*others: Registration, readable: bool = True, **more: Any) -> ConsumerFence:
    """Give the fence of a consumer that was started with the library as the contract says, but for what is named."""
    said: dict[str, Any] = {"topic": "user", "policy": "block", "guard": "none", "ledger": True, **more}
    return replace(
        fence(), library=LibraryTables(readable, (Registration("login-service", **said), *others) if readable else ())
    )


@pytest.mark.parametrize(
    ("seen", "declared", "expected"),
    [
        (fence(), {}, []),
        (run_by_library(), {}, [(OK, "")]),
        (run_by_library(policy="ignore"), {}, [(FAULT, "policy ignore, and block in the contract")]),
        (run_by_library(policy="ignore"), {"failure": None}, [(OK, "")]),
        (run_by_library(), {"guard": "newer"}, [(FAULT, "guard none, and newer in the contract")]),
        (run_by_library(topic="users"), {}, [(FAULT, "was started on users, not on user")]),
        (run_by_library(ledger=False), {}, [(OK, "without the library's ledger")]),
        (
            run_by_library(),
            {"failure": {"policy": "block", "ledger": {"table": "done", "event_id": "id"}}},
            [(WARNING, "the contract declares done")],
        ),
        (run_by_library(readable=False), {}, [(WARNING, "our account may not read them")]),
    ],
)
def test_the_library_runs_as_agreed(
    seen: ConsumerFence, declared: dict[str, Any], expected: list[tuple[Severity, str]]
) -> None:
    """B14: what a service said when it was started is compared with the contract."""
    found = list(library_checks.registrations(facts(seen, of=contract(consumer(**declared)))))
    assert [severity for severity, _ in expected] == [each.severity for each in found]
    assert [] == [each.found for each, (_, text) in zip(found, expected, strict=True) if text not in each.found]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (fence(), []),
        (run_by_library(), [OK]),
        (run_by_library(Registration("shadow", "user", "block", "none", True)), [OK]),
        (run_by_library(Registration("shadow", "user", "ignore", "none", True)), [WARNING]),
        (run_by_library(Registration("shadow", "balance", "ignore", "none", True)), [OK]),
        (run_by_library(Registration("billing-service", "user", "ignore", "none", True)), [OK]),
        (run_by_library(readable=False), []),
    ],
)
def test_groups_that_the_contract_does_not_name(seen: ConsumerFence, expected: list[Severity]) -> None:
    """B14: one that consumes the topic into the same store with another policy is told; another consumer's is not."""
    agreed = contract(consumer(), consumer("billing"))
    assert expected == severities(library_checks.other_groups, facts(seen, fence("billing"), of=agreed))


@pytest.mark.parametrize(("group", "expected"), [("login-service", OK), ("logn-service", WARNING)])
def test_groups_that_are_built_on(group: str, expected: Severity) -> None:
    """One that nobody knows is a warning."""
    assert [expected] == severities(setup_checks.depended_groups, facts(of=contract(consumer(depends_on=[group]))))


@pytest.mark.parametrize(
    ("state", "group", "expected"),
    [
        (PositionState.CAUGHT_UP, GroupState.STABLE, OK),
        (PositionState.LAGGING, GroupState.STABLE, OK),
        (PositionState.NO_COMMIT, GroupState.STABLE, WARNING),
        (PositionState.NO_COMMIT, GroupState.MISSING, FAULT),
        (PositionState.BELOW_LOG_START, GroupState.STABLE, FAULT),
        (PositionState.PAST_END, GroupState.STABLE, FAULT),
        (PositionState.REWOUND, GroupState.STABLE, WARNING),
    ],
)
def test_committed_offsets(state: PositionState, group: GroupState, expected: Severity) -> None:
    """Offsets that are not in the log lose events; lag does not."""
    assert [expected] == severities(setup_checks.committed_offsets, facts(fence("login", place(0, state), state=group)))


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ({"members": (member(0), member(1))}, OK),
        ({"members": tuple(member(each) for each in range(3))}, WARNING),
        ({"state": GroupState.REBALANCING}, WARNING),
        ({"state": GroupState.EMPTY, "members": ()}, WARNING),
    ],
)
def test_members(group: dict[str, Any], expected: Severity) -> None:
    """More members than partitions, a rebalance and nobody at all are warnings."""
    assert [expected] == severities(setup_checks.group_members, facts(fence(**group)))


@pytest.mark.parametrize(("instance", "protocol", "advised"), [(None, "classic", True), ("a", "classic", False)])
def test_static_membership_is_advised(instance: str | None, protocol: str, advised: bool) -> None:
    """Members without names of their own are told to have them, and nothing is wrong."""
    members = (member(0, instance), member(1, instance and "b"))
    found = only(setup_checks.group_members, facts(fence(members=members, protocol=protocol)))
    assert (OK, advised) == (found.severity, bool(found.todo))


@pytest.mark.parametrize(("read", "expected"), [({"user", STASH}, OK), ({"user", "orders"}, WARNING)])
def test_groups_of_several_topics(read: set[str], expected: Severity) -> None:
    """A group's own failure topics are its business; another topic is not."""
    login = consumer(failure={"policy": "stash", "stash": STASH})
    seen = facts(of=contract(login), group_topics={"login-service": frozenset(read)})
    assert [expected] == severities(setup_checks.group_topics, seen)


@pytest.mark.parametrize(
    ("isolation", "gaps", "policy", "expected"),
    [
        ("read_committed", 9, "delete", OK),
        ("read_uncommitted", 0, "delete", OK),
        ("read_uncommitted", 9, "delete", WARNING),
        ("read_uncommitted", 9, "compact", OK),
        (None, 0, "delete", WARNING),
    ],
)
def test_uncommitted_records(isolation: str | None, gaps: int, policy: str, expected: Severity) -> None:
    """Reading what may be aborted is a warning where the log shows transactions, and so is not to say how one reads."""
    seen = facts(
        of=contract(consumer(isolation=isolation)),
        layouts={"user": kept(cleanup_policy=policy)},
        seen=log(gaps=gaps),
    )
    assert [expected] == severities(setup_checks.isolation, seen)


def test_the_isolation_of_a_sink_connector() -> None:
    """Its worker reads uncommitted records by default; the advice says where that is set, and how to declare it."""
    found = only(setup_checks.isolation, facts(of=contract(consumer(isolation=None, group="connect-users-sink"))))
    assert Severity.WARNING is found.severity
    for said in ("by default Kafka Connect's workers read uncommitted", "consumer.isolation.level=read_committed",
                 "consumer.override.isolation.level", "isolation: read_uncommitted"):  # fmt: skip
        assert said in (found.todo or "")


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted", None])
def test_isolation_is_what_the_contract_says(isolation: str | None) -> None:
    """Nobody can look it up: what is found never asserts it."""
    found = only(setup_checks.isolation, facts(of=contract(consumer(isolation=isolation)), seen=log(gaps=9)))
    assert found.found.startswith("the contract ")


@pytest.mark.parametrize(
    ("open_now", "expected", "said"),
    [
        ((), OK, "no transaction was open"),
        ((OpenTransaction(1, 5, 9, NOW, hanging=False),), OK, "in partition 1 at offset 5"),
        ((OpenTransaction(1, 5, 9, LONG_AGO, hanging=True),), FAULT, "in partition 1 at offset 5"),
    ],
)
def test_open_transactions(open_now: tuple[OpenTransaction, ...], expected: Severity, said: str) -> None:
    """One that hangs is a fault; one that is young is told, and no fault."""
    seen = facts()
    topic = replace(seen.fence.topic, open=open_now)
    found = only(setup_checks.open_transactions, replace(seen, fence=replace(seen.fence, topic=topic)))
    assert expected == found.severity
    assert said in found.found


@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        (ReadingGroup("login-service", {0: 1}), OK),
        (ReadingGroup("audit", {}, GroupState.STABLE, 2), WARNING),
        (ReadingGroup("gone", {0: 1}, GroupState.EMPTY), WARNING),
    ],
)
def test_readers_outside_the_contract(reader: ReadingGroup, expected: Severity) -> None:
    """A group that the contract does not name may read what is taken back."""
    assert [expected] == severities(setup_checks.outside_readers, facts(readers={"user": (reader,)}))


def test_a_reader_outside_the_contract_is_named_with_what_is_known_of_it() -> None:
    """Its state, its members here, and whether it has committed offsets; how it reads nobody knows."""
    seen = facts(readers={"user": (ReadingGroup("audit", {}, GroupState.STABLE, 2),)})
    assert "audit (stable, 2 members here, no committed offsets)" in only(setup_checks.outside_readers, seen).found


@pytest.mark.parametrize(("all_seen", "said"), [(True, "nobody else"), (False, "none that we may see")])
def test_nobody_else_reads_only_where_all_groups_are_seen(all_seen: bool, said: str) -> None:
    """A cluster does not list the groups that an account may not describe."""
    assert said in only(setup_checks.outside_readers, facts(sees_all_groups=all_seen)).found


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (kept(), OK),
        (kept(replicas=1, min_insync_replicas="1"), WARNING),
        (kept(replicas=2, min_insync_replicas="1"), WARNING),
        (kept(min_insync_replicas="1"), WARNING),
        (kept(min_insync_replicas="3"), FAULT),
        (kept(isr=2), WARNING),
        (kept(isr=1), FAULT),
        (kept(unclean_leader_election_enable="true"), WARNING),
    ],
)
def test_replicas(topic: TopicLayout, expected: Severity) -> None:
    """One replica is a warning; one that every write waits for is a fault."""
    assert [expected] == severities(setup_checks.replication, facts(layouts={"user": topic}))


DAY = 86_400_000


@pytest.mark.parametrize(
    ("retention", "policy", "expected"),
    [(-1, "delete", OK), (7 * DAY, "delete", OK), (6 * DAY, "delete", WARNING), (DAY, "compact", OK)],
)
def test_retention(retention: int, policy: str, expected: Severity) -> None:
    """A log that is kept less than 7 days is a warning."""
    layouts = {"user": kept(retention_ms=str(retention), cleanup_policy=policy)}
    assert [expected] == severities(setup_checks.topic_retention, facts(layouts=layouts))


ADDED = [{"name": "b", "source": "b", "consumer": "b", "event": "$.b", "apply": "add"}]


@pytest.mark.parametrize(
    ("of", "settings", "expected"),
    [
        (contract(state="patch"), {"cleanup_policy": "delete"}, OK),
        (contract(), {"cleanup_policy": "compact"}, OK),
        (contract(state="patch"), {"cleanup_policy": "compact,delete"}, FAULT),
        (contract(consumer(fields=ADDED)), {"cleanup_policy": "compact"}, FAULT),
        (contract(delete="$.deleted == true"), {"cleanup_policy": "compact"}, WARNING),
        (contract(), {"cleanup_policy": "compact", "delete_retention_ms": "1000"}, WARNING),
    ],
)
def test_compaction(of: Contract, settings: dict[str, Any], expected: Severity) -> None:
    """It loses changes that are not the whole state, and deletes that are no tombstones."""
    assert [expected] == severities(setup_checks.compaction, facts(of=of, layouts={"user": kept(**settings)}))


@pytest.mark.parametrize(
    ("settings", "more", "expected"),
    [
        ({}, {}, OK),
        ({"retention_ms": "3600000"}, {}, WARNING),
        ({"cleanup_policy": "compact"}, {}, FAULT),
        ({}, {"ends": {RETRY: {0: 3}}}, WARNING),
        ({}, {"ends": {RETRY: {0: 3}}, "readers": {RETRY: (ReadingGroup("login-service", {0: 1}),)}}, OK),
        ({}, {"begins": {RETRY: {0: 3}}, "readers": {RETRY: (ReadingGroup("login-service", {0: 1}),)}}, FAULT),
    ],
)
def test_what_waits_in_retry_topics(settings: dict[str, Any], more: dict[str, Any], expected: Severity) -> None:
    """It is kept until it is read, and somebody reads it."""
    login = consumer(failure={"policy": "retry-topics", "retry": [RETRY]})
    seen = facts(of=contract(login), layouts={RETRY: kept(RETRY, **settings)}, **more)
    assert [expected] == severities(setup_checks.retry_retention, seen)


@pytest.mark.parametrize(
    ("settings", "more", "expected"),
    [
        ({}, {}, OK),
        ({"retention_ms": str(30 * DAY)}, {}, WARNING),
        ({"retention_bytes": "1000"}, {}, WARNING),
        ({"cleanup_policy": "compact"}, {"keys": {STASH: (9, 9)}}, WARNING),
        ({"cleanup_policy": "compact"}, {"keys": {STASH: (9, 1)}}, FAULT),
        ({}, {"begins": {STASH: {0: 3}}, "readers": {STASH: (ReadingGroup("login-service", {0: 1}),)}}, FAULT),
    ],
)
def test_what_is_parked(settings: dict[str, Any], more: dict[str, Any], expected: Severity) -> None:
    """It is kept without a limit, and no record replaces another."""
    login = consumer(failure={"policy": "stash", "stash": STASH})
    seen = facts(of=contract(login), layouts={STASH: kept(STASH, **settings)}, **more)
    assert [expected] == severities(setup_checks.parked_retention, seen)


def test_a_topic_whose_settings_are_unknown_is_not_judged() -> None:
    """Where the cluster did not tell, topics are neither well nor wrong."""
    seen = facts()
    unknown = replace(seen, cluster=ClusterFacts(unreadable=("no",)))
    judging = (setup_checks.replication, setup_checks.topic_retention, setup_checks.compaction)
    assert [] == [each for check in judging for each in check(unknown)]


@pytest.mark.parametrize(("number", "expected"), [(1, "1 id"), (2000, "2,000 ids")])
def test_numbers_of_things(number: int, expected: str) -> None:
    """One is singular, thousands are set apart."""
    assert expected == counted(number, "id")


def test_long_lists_are_cut() -> None:
    """A list shows its first names and counts the rest."""
    assert "a, b and 2 more" == listed(["a", "b", "c", "d"], 2)


def of_event(matching: int, of: int = 2920) -> EventTest:
    """Give how often an expression of the link was right."""
    return EventTest("user/login", "consumers[0].fields[2].event", "price", of, matching)


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ([of_event(0)], [FAULT]),
        ([of_event(1459)], [FAULT]),
        ([of_event(2900), of_event(1460)], [OK]),
        ([of_event(0, 9)], [OK]),
        ([of_event(0, 0)], []),
    ],
)
def test_expressions_that_do_not_say_what_rows_hold(tests: list[EventTest], expected: list[Severity]) -> None:
    """One that is right in less than half, of records enough to tell, is a fault."""
    assert expected == severities(log_checks.event_expressions, replace(facts(), event_tests=tests))


def test_a_wrong_expression_is_shown_with_its_place() -> None:
    """And how often it was right."""
    found = only(log_checks.event_expressions, replace(facts(), event_tests=[of_event(0)])).found
    assert "matches the source in 0 of 2,920: `consumers[0].fields[2].event`" == found


def test_ids_of_the_log_that_no_row_has() -> None:
    """The topic is another one, or its keys are read wrongly."""
    assert [FAULT] == severities(log_checks.never_written, replace(facts(), strange_ids={"user/login": 3000}))
    assert [] == severities(log_checks.never_written, facts())


def test_a_group_that_never_committed_may_be_spelled_wrongly() -> None:
    """Of the groups that have, the nearest is named."""
    readers = {"user": (ReadingGroup("search-indexer", {0: 4}), ReadingGroup("login-services", {}))}
    agreed = contract(consumer(group="search-indexr"))
    at = fence("login", place(0, PositionState.NO_COMMIT), state=GroupState.MISSING)
    found = only(setup_checks.committed_offsets, facts(at, of=agreed, readers=readers)).found
    assert found.endswith('; did you mean "search-indexer"?')
