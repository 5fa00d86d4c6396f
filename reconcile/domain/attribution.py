"""Why a copy differs from its source: pure, decided by evidence, in a fixed order.

The order is that of the way which a change takes. What is on its way is no drift. Then it is asked whether the log
brings the source's state at all; then whether events can have given the copy; then what the consumer did with them.
"""

from __future__ import annotations

from collections.abc import Callable

from reconcile.domain.attribution_copy import (
    behind_a_gap,
    held_twice,
    inverted_log,
    lost,
    misrouted,
    order_and_count,
    parked,
    written_by_another,
)
from reconcile.domain.attribution_flight import in_flight
from reconcile.domain.attribution_log import fault_of_log
from reconcile.domain.case import Case
from reconcile.domain.cause import Cause
from reconcile.domain.comparison import differing
from reconcile.domain.confidence import Ground
from reconcile.domain.copy_inquiry import CopyInquiry
from reconcile.domain.evidence_notes import Verdict, cut_notes, event_notes, told
from reconcile.domain.finding import Difference, FieldDifference, Finding, Status
from reconcile.domain.inquiry import Inquiry
from reconcile.domain.latent import latent

_OF_THE_COPY: tuple[Callable[[CopyInquiry], Verdict | None], ...] = (
    behind_a_gap,
    written_by_another,
    parked,
    order_and_count,
    misrouted,
    inverted_log,
    lost,
)


def attribute(case: Case) -> Finding | None:
    """Name why the copy differs from its source, or will; None if both agree and nothing lies ready to break that."""
    copy = _inquiry(case)
    verdict = _decide(copy)
    return None if verdict is None else _finding(copy, verdict)


def ground_of(case: Case) -> Ground | None:
    """Give the ground on which `attribute` names its cause."""
    verdict = _decide(_inquiry(case))
    return None if verdict is None else verdict.ground


def _inquiry(case: Case) -> CopyInquiry:
    difference, fields = _difference(case)
    return CopyInquiry(Inquiry(case, difference, fields))


def _difference(case: Case) -> tuple[Difference, tuple[FieldDifference, ...]]:
    source, copy = case.source, case.copy
    if source is None or copy is None:
        if source is copy:
            return Difference.LATENT, ()
        return (Difference.ORPHAN if source is None else Difference.MISSING), ()
    fields = differing(case.link, source, copy)
    if source.count > 1 or copy.count > 1:
        return Difference.DUPLICATED, fields
    return (Difference.CHANGED if fields else Difference.LATENT), fields


def _decide(copy: CopyInquiry) -> Verdict | None:
    inquiry = copy.inquiry
    if inquiry.difference is Difference.LATENT:
        return None if inquiry.case.id is None else latent(copy)
    if inquiry.case.id is None:
        return Verdict(Ground.COPY_WITHOUT_ID if inquiry.difference is Difference.ORPHAN else Ground.WITHOUT_ID)
    if inquiry.difference is Difference.DUPLICATED:
        return held_twice(copy)
    fault = fault_of_log(inquiry)
    if fault is not None:
        return copy.left_over(fault)
    if (verdict := in_flight(inquiry)) is not None:
        return verdict
    for decide in _OF_THE_COPY:
        if (verdict := decide(copy)) is not None:
            return verdict
    told = any(rule.name in inquiry.told for rule in inquiry.concerned)
    ground = Ground.NOTHING_SHOWN if told or not inquiry.fields else Ground.UNTOLD
    return Verdict(ground, notes=tuple(event_notes(inquiry.case, inquiry.log[-3:], "looked at; it shows nothing")))


def _finding(copy: CopyInquiry, verdict: Verdict) -> Finding:
    inquiry, case, ground = copy.inquiry, copy.case, verdict.ground
    lying = copy.lying_notes(verdict.notes) if case.parked and case.id is not None else ()
    status = Status.CONFIRMED
    if ground.cause is Cause.IN_FLIGHT:
        status = Status.IN_FLIGHT
    elif inquiry.equivalent:
        status = Status.TOLERATED
    return Finding(
        link=case.link.name,
        aggregate_id=case.id,
        difference=inquiry.difference,
        cause=ground.cause,
        confidence=ground.confidence,
        hop=ground.hop,
        status=status,
        fields=inquiry.fields,
        source_version=None if case.source is None else case.source.version,
        consumer_version=None if case.copy is None else case.copy.version,
        alternatives=ground.alternatives,
        since=verdict.since,
        equivalent=inquiry.equivalent,
        evidence=told((*verdict.notes, *lying, *cut_notes(case))),
    )
