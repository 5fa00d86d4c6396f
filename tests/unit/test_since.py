"""Which earlier run changes are told from, and when everything is compared instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from reconcile.contract.model import load_contract
from reconcile.errors import RefusedError
from reconcile.gather.fence.fence import ConsumerFence, Fence, TopicFence
from reconcile.gather.fence.group_position import GroupPosition, PartitionExtent, PositionState
from reconcile.gather.log.index import Index, Lost
from reconcile.kafka.client import GroupDescription, GroupState
from reconcile.pipeline.changes import past_runs
from reconcile.pipeline.handoffs import RunScope
from reconcile.pipeline.job import new_job
from reconcile.pipeline.since import FullInstead, PastRun, begins, changed_only, choose_run, too_many, unusable
from tests.unit.handoffs import fence
from tests.unit.report_runs import CONTRACT, contract_file, made_run

AT = datetime(2026, 3, 1, tzinfo=UTC)
TERMS = "as now"
LOGIN = ("login",)


def past(run_id: str, kind: Literal["full", "ids", "changed"] = "full", day: int = 1, **changes: Any) -> PastRun:
    """Build a complete run of all copies, unless it is changed."""
    scope = RunScope(kind=kind, terms=changes.pop("terms", TERMS))
    return PastRun(**{**{"complete": True, "consumers": ()}, **changes}, run_id=run_id, scope=scope,
                   opened_at=AT + timedelta(days=day))  # fmt: skip


def chosen(since: str, *runs: PastRun, consumers: Sequence[str] = LOGIN, full_every: int | None = None) -> str:
    """Give the run that is chosen, or why everything is compared."""
    found = choose_run(since, runs, TERMS, consumers, full_every)
    return found.reason if isinstance(found, FullInstead) else found.run_id


def test_the_last_is_the_newest_that_will_do() -> None:
    """A complete run of all aggregates of all these copies, or a changed-only one."""
    fit = [past("old", day=1), past("newest", "changed", day=2)]
    unfit = [
        past("some", "ids", day=3),
        past("incomplete", day=4, complete=False),
        past("billing", day=5, consumers=("billing",)),
    ]
    assert "newest" == chosen("last", *unfit, *fit)


def test_a_run_of_more_copies_will_do() -> None:
    """It looked at all that are looked at now."""
    assert "both" == chosen("last", past("both", consumers=("billing", "login")))


def test_without_such_a_run_everything_is_compared() -> None:
    """There is no fence since which changes could be told."""
    nothing = "no complete run that looked at all copies is in the workspace"
    assert nothing == chosen("last") == chosen("last", past("some", "ids"))


def test_another_contract_compares_everything() -> None:
    """A field or a copy that is new was never compared."""
    assert "the contract compares something else than when r1 ran" == chosen("last", past("r1", terms="as then"))


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        (past("r2"), "it is no run of this contract that was audited"),
        (past("r1", "ids"), "it looked at some aggregates only"),
        (past("r1", complete=False), "it is incomplete"),
        (past("r1", consumers=("billing",)), "it did not look at all copies that this run looks at"),
    ],
)
def test_a_named_run_that_will_not_do_is_refused(run: PastRun, problem: str) -> None:
    """Comparing everything would not be what was meant."""
    with pytest.raises(RefusedError, match=f"changes since r1 cannot be told: {problem}"):
        chosen("r1", run)


@pytest.mark.parametrize(("changed", "expected"), [(1, "c1"), (2, "one run in 3 is a full one")])
def test_each_nth_run_is_a_full_one(changed: int, expected: str) -> None:
    """Two look for changes, and the third compares everything; what was before the last full one does not count."""
    runs = [past(f"c{number}", "changed", day=2 + number) for number in range(1, changed + 1)]
    before = [past("c", "changed", day=0), past("full", day=1), past("some", "ids", day=2)]
    assert expected == chosen("last", *before, *runs, full_every=3)


def test_the_changed_only_runs_since_the_full_one() -> None:
    """Oldest first: what they looked at is what cannot have escaped."""
    runs = [past("c2", "changed", 3), past("full", "full", 1), past("c1", "changed", 2), past("c0", "changed", 0)]
    assert ["c1", "c2"] == [each.run_id for each in changed_only(runs, LOGIN)]


def test_so_many_that_all_are_compared() -> None:
    """More than a tenth of them, as far as their number is known; and more than a join is handed."""
    assert None is too_many(100, 1000)
    assert "101 of 1,000 aggregates may have changed, and comparing all is cheaper then" == too_many(101, 1000)
    assert None is too_many(500_000, None)
    assert None is not too_many(500_001, None)


def fenced(*ends: int, committed: Sequence[int | None] = (), topic: str = "t", begin: int = 0) -> Fence:
    """Build a fence at the ends of partitions, where the group had committed so much."""
    extents = tuple(PartitionExtent(number, begin, end, end, end) for number, end in enumerate(ends))
    places = tuple(
        GroupPosition(number, offset, offset, None, 0, PositionState.CAUGHT_UP)
        for number, offset in enumerate(committed)
    )
    group = GroupDescription("g", GroupState.STABLE, "classic", "", ())
    login = ConsumerFence("user/login", "login", "login-db", None, None, None, group, places, True, 0)
    return replace(fence(), topic=TopicFence("main", "user", topic, extents), consumers=(login,))


def test_changes_begin_at_the_fence_of_the_run_before() -> None:
    """And of a partition that is new, at its first record."""
    assert {0: 10, 1: 20, 2: 0} == begins(fenced(10, 20), fenced(15, 25, 5), LOGIN)


def test_what_was_not_due_then_is_looked_at_now() -> None:
    """A group that lagged may have skipped it since."""
    assert {0: 7, 1: 20} == begins(fenced(10, 20, committed=(7, 20)), fenced(15, 25, committed=(15, 25)), LOGIN)


def test_what_is_applied_again_is_looked_at() -> None:
    """A group that was set back."""
    assert {0: 4} == begins(fenced(10, committed=(10,)), fenced(15, committed=(4,)), LOGIN)


def test_a_group_that_has_committed_nothing_begins_with_the_log() -> None:
    """Nothing of it was judged."""
    assert {0: 3} == begins(fenced(10, committed=(None,), begin=3), fenced(15, committed=(15,)), LOGIN)


def test_other_copies_groups_do_not_count() -> None:
    """Of one that is not looked at."""
    assert {0: 10} == begins(fenced(10, committed=(2,)), fenced(15, committed=(2,)), ("billing",))


def index(**lost: tuple[Lost, ...]) -> Index:
    """Build the index of a history that has lost some offsets."""
    return Index(generation=1, cluster="main", topic="user", topic_id="t", derivation="d", **lost)  # type: ignore[arg-type]


def lost(start: int, end: int) -> tuple[Lost, ...]:
    """Build what a history has lost of the first partition."""
    return (Lost(partition=0, start=start, end=end, noticed_at=AT),)


@pytest.mark.parametrize(
    ("now", "held", "problem"),
    [
        (fenced(15, 25), index(), None),
        (fenced(15, 25), index(expired=lost(0, 10)), None),
        (fenced(15, 25), index(expired=lost(0, 11)), "records of partition 0 of user that are newer than r1 expired"),
        (fenced(15, 25), index(pruned=lost(0, 12)), "or are pruned from its history"),
        (fenced(15, 25, topic="u"), index(), "user was deleted and made anew since r1"),
        (fenced(15), index(), "user has fewer partitions than when r1 ran"),
    ],
)
def test_when_the_log_cannot_tell(now: Fence, held: Index, problem: str | None) -> None:
    """The topic is another one, or what is newer than the fence is not all there."""
    then = fenced(10, 20)
    told = unusable("r1", then, now, held, begins(then, now, LOGIN))
    assert (problem is None) == (told is None)
    assert (problem or "") in (told or "")


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"  - name: login": "  - tolerance: {rows: 3}\n    name: login"}, True),
        ({"consumers:": "incremental: {full_every: 3}\nconsumers:"}, True),
        ({"  - name: login": "  - distributions: {}\n    name: login"}, True),
        ({"consumer: phone": "consumer: mobile"}, False),
        ({"group: login-service": "group: other-service"}, False),
    ],
)
def test_what_matters_of_a_contract(tmp_path: Path, changes: dict[str, str], same: bool) -> None:
    """What decides which rows and events are compared; not what is done about differences."""
    before = load_contract(contract_file(tmp_path))
    text = CONTRACT
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    after = load_contract(contract_file(tmp_path, text))
    assert before.digest != after.digest
    assert same == (before.comparison_digest == after.comparison_digest)


def test_runs_of_other_contracts_and_versions_are_left_out(tmp_path: Path) -> None:
    """As is the run that asks; each says what it looked at."""
    scope = RunScope(kind="full", terms=TERMS)
    for run_id in ("r1", "r2"):
        place, _ = made_run(tmp_path, run_id=run_id, scope=scope)
    made_run(tmp_path, run_id="before-scopes")
    assert ["r1"] == [each.run_id for each in past_runs(place, "user-account", "r2")]
    assert [] == past_runs(place, "user-balance", "r2")


@pytest.mark.parametrize(
    ("given", "said"),
    [({"since": "r9"}, 'no run "r9"'), ({"since": "last", "ids": ["a"]}, "leave one of them out")],
)
def test_what_cannot_be_meant_is_refused_at_once(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    """Before Spark starts."""
    settings = tmp_path / "reconcile.yaml"
    settings.write_text(f"workspace: {tmp_path / 'runs'}\n", "utf-8")
    with pytest.raises(RefusedError, match=said), new_job(contract_file(tmp_path), settings, None, **given):
        pass
