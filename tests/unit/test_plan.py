"""The plan as a file: what a person reads is what is applied; and its caps."""

from __future__ import annotations

import json

import pytest

from reconcile.domain.plan import Caps, Item, LinkPlan, Plan, with_shared
from reconcile.domain.plan_rules import Action

RESTATED = Item(
    link="user-account/login",
    aggregate_id="u-1",
    action=Action.RESTATE,
    cause="skipped",
    reason="the consumer skipped an event",
    topic="user-account",
    partitions=(4,),
    basis_version=5,
    basis="f" * 64,
    correction_id="c-1",
)
NOT_REPAIRED = Item(
    link="user-account/login",
    aggregate_id="u-2",
    action=Action.NOT_REPAIRED,
    cause="in_flight",
    reason="it is in flight",
)
LOGIN = LinkPlan(
    link="user-account/login",
    consumer="login",
    group="login-service",
    topic="user-account",
    topic_id="t-1",
    partitions=12,
    partitioner=("murmur2",),
    since={10: 7, 2: 9},
    readers=("billing-service",),
    approval=True,
    items=(RESTATED, NOT_REPAIRED),
)
CONTENT = {
    "run_id": "run-1",
    "contract": "user-account",
    "contract_digest": "d" * 64,
    "made_of": {"findings": "f" * 64},
    "links": (LOGIN,),
}
PLAN = Plan.sealed(**CONTENT)


def test_a_plan_comes_back_as_it_was_written() -> None:
    """Written as JSON and read again it is the same."""
    assert PLAN == Plan.model_validate(json.loads(json.dumps(PLAN.model_dump(mode="json"))))


def test_a_plan_that_was_edited_is_refused() -> None:
    """Whoever changes a reason, a partition or an item changes what was approved."""
    data = PLAN.model_dump(mode="json")
    data["links"][0]["items"][0]["partitions"] = [5]
    with pytest.raises(ValueError, match="not say any more what was planned"):
        Plan.model_validate(data)


def test_equal_plans_have_equal_digests() -> None:
    """The digest depends on what a plan says alone."""
    assert PLAN.digest == Plan.sealed(**{**CONTENT, "made_of": dict(PLAN.made_of)}).digest


def test_only_items_that_write_are_corrections() -> None:
    """What is left needs no record."""
    assert [RESTATED] == list(PLAN.corrections)


def test_the_counts_name_every_action() -> None:
    """Zeros too, so that a reader of the file can rely on them."""
    assert {"restate": 1, "compensate": 0, "tombstone": 0, "advice": 0, "left": 1} == LOGIN.counts


def test_reasons_name_their_link() -> None:
    """A refusal of one link refuses the plan."""
    refused = LOGIN.replaced(refused=("too many",))
    assert ["user-account/login: too many"] == Plan.sealed(**{**CONTENT, "links": (refused,)}).reasons


def test_a_plan_within_its_caps_may_be_applied() -> None:
    """The caps themselves are within them."""
    assert () == Caps(corrections=10, ratio=0.1).exceeded(10, 100)


def test_too_many_corrections_are_refused() -> None:
    """One more than max_corrections."""
    (reason,) = Caps(corrections=10, ratio=1).exceeded(11, 100)
    assert "11 corrections are more than repair.max_corrections: 10" == reason


def test_too_large_a_part_is_refused() -> None:
    """More than max_ratio of all aggregates."""
    (reason,) = Caps(corrections=1000, ratio=0.05).exceeded(6, 100)
    assert "6 corrections, 6.00% of 100 aggregates, are more than repair.max_ratio: 5.00%" == reason


def copy_of(link: str, **changes: object) -> LinkPlan:
    """Build the plan of another copy, which the same record would mend."""
    name = f"user-account/{link}"
    item = RESTATED.model_copy(update={"link": name, "correction_id": f"c-{link}", **changes})
    return LOGIN.replaced(link=name, consumer=link, group=f"{link}-service", items=(item,))


def test_one_record_mends_an_aggregate_in_all_copies() -> None:
    """The first link emits it; what is of another state, place or topic has a record of its own."""
    others = [
        copy_of("same"),
        copy_of("newer", basis_version=6),
        copy_of("elsewhere", partitions=(4, 7)),
        copy_of("apart", topic="user-account.apart.repair"),
        copy_of("deleting", action=Action.TOMBSTONE),
    ]
    plan = Plan.sealed(**{**CONTENT, "links": with_shared([LOGIN, *others])})
    assert [0, 1, 0, 0, 0, 0] == [len(each.shared) for each in plan.links]
    assert LOGIN.link == plan.links[1].shared[0].shared_with
    assert ["c-1", "c-newer", "c-elsewhere", "c-apart", "c-deleting"] == [
        each.correction_id for each in plan.corrections
    ]


def test_a_group_that_builds_on_another_gets_a_record_of_its_own() -> None:
    """It is emitted once the other group has passed its own."""
    builds = copy_of("same").replaced(depends_on=(LOGIN.group,))
    assert [0, 0] == [len(each.shared) for each in with_shared([LOGIN, builds])]


def test_a_plan_of_before_records_were_shared_is_read() -> None:
    """It lacks the field, and its digest is without it."""
    data = json.loads(json.dumps(PLAN.model_dump(mode="json")))
    for item in data["links"][0]["items"]:
        del item["shared_with"]
    assert PLAN == Plan.model_validate(data)
