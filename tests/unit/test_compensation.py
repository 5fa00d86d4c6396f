"""What the sums of a copy lack, and when nobody can say it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconcile.contract.consumer import ComparedField, RepairTerms
from reconcile.contract.model import Consumer
from reconcile.domain.canonical import Kind
from reconcile.domain.case import FieldRule, Row
from reconcile.domain.plan import Item
from reconcile.domain.plan_rules import Action
from reconcile.repair.compensation import Instant, Sums, compensable, lacking
from reconcile.repair.guard import summed_since

RULES = (FieldRule("balance", Kind.NUMERIC), FieldRule("level", Kind.TEXT))
SOURCE, COPY = Row({"balance": "10.10", "level": "gold"}, 5), Row({"balance": "7.35", "level": "tin"}, None)
SETTLED = Instant(SOURCE, COPY, last={0: 8, 2: 3}, log_version=5)


def sums(now: Instant) -> Sums:
    """Compute what the balance lacks; the group has committed 9 and 4."""
    return lacking(now, RULES, ["balance"], {0: 9, 2: 4})


def test_the_difference_is_exact() -> None:
    """In plain digits, of the sums alone."""
    assert Sums({"balance": "2.75"}, version=5) == sums(SETTLED)


def test_a_sum_that_is_too_large_gets_less() -> None:
    """The difference has a sign."""
    assert {"balance": "-0.9"} == sums(replace(SETTLED, copy=Row({"balance": "11"}, None))).amounts


@pytest.mark.parametrize(("now", "why"), [
    (replace(SETTLED, copy=None), "not both sides have its row"),
    (replace(SETTLED, last={0: 9}), "were not all consumed"),
    (replace(SETTLED, last={1: 0}), "in partition 1"),
    (replace(SETTLED, log_version=4), "the source is at version 5 and the log at 4"),
    (replace(SETTLED, log_version=6), "an event is on its way"),
    (replace(SETTLED, source=Row(SOURCE.fields, None), log_version=None), "has versions"),
    (replace(SETTLED, parked="t.dlq"), "lies in t.dlq"),
    (replace(SETTLED, twice=True), "more than once"),
    (replace(SETTLED, unread=True), "yet to read an earlier correction"),
    (replace(SETTLED, copy=Row({"balance": None}, None)), "no number on both sides"),
    (replace(SETTLED, copy=Row({"balance": "10.1"}, None)), "agree by now"),
])  # fmt: skip
def test_what_is_not_settled_gets_no_difference(now: Instant, why: str) -> None:
    """Another event may bring it, or it would be added on top of what is still to come."""
    found = sums(now)
    assert {} == found.amounts
    assert why in (found.unsettled or "")


@pytest.mark.parametrize(("event", "path"), [
    ("$.amount", ("amount",)),
    ("$.money.amount", ("money", "amount")),
    ("cast($.amount as decimal(12, 2))", ("amount",)),
    ("$.amount * 2", None),
    ("coalesce($.amount, $.old)", None),
])  # fmt: skip
def test_an_amount_is_written_only_where_events_hold_it_as_it_is(event: str, path: tuple[str, ...] | None) -> None:
    """What an expression makes of it cannot be turned round."""
    field = ComparedField(name="balance", source="balance", consumer="balance", event=event, apply="add")
    consumer = Consumer.model_construct(fields=(field,), repair=RepairTerms(compensate=True))
    assert ({} if path is None else {"balance": path}) == compensable(consumer)


def test_an_amount_that_is_sensitive_stands_in_no_plan() -> None:
    """A plan is a file that people read."""
    field = ComparedField(name="b", source="b", consumer="b", event="$.amount", apply="add", sensitive=True)
    assert {} == compensable(Consumer.model_construct(fields=(field,), repair=RepairTerms(compensate=True)))


@pytest.mark.parametrize(("now", "dropped"), [
    (Sums({"balance": "2.75"}, version=5), False),
    (Sums({"balance": "2.76"}, version=5), True),
    (Sums({"balance": "2.75"}, version=6), True),
    (Sums(unsettled="an event is on its way"), True),
])  # fmt: skip
def test_a_difference_that_changed_since_the_plan_is_dropped(now: Sums, dropped: bool) -> None:
    """What was approved is what is added, at the version that the copy has."""
    item = Item(
        link="l", aggregate_id="a", action=Action.COMPENSATE, cause="skipped", reason="", basis_version=5,
        amounts={"balance": "2.75"},
    )  # fmt: skip
    assert dropped == (summed_since(item, {"a": now}) is not None)
