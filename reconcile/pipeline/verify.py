"""The stage `verify`: whether each copy that was corrected agrees now, as its group has passed the correction."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from reconcile.contract.model import Consumer
from reconcile.control.corrections import PENDING, CorrectionOutcome, CorrectionRecord, CorrectionState
from reconcile.control.leases import holder
from reconcile.control.store import ControlStore, open_control
from reconcile.domain.plan import Item, LinkPlan, Plan
from reconcile.pipeline.apply import awaited, open_link
from reconcile.pipeline.handoffs import Applied, Summary, Verified, VerifiedCorrection, VerifiedLink
from reconcile.pipeline.job import Job
from reconcile.pipeline.log_view import cluster_client
from reconcile.pipeline.logs import about
from reconcile.pipeline.sums import both_rows
from reconcile.repair import planning
from reconcile.repair.verification import Compared, last_places, outcome_of, passed

if TYPE_CHECKING:
    pass

_LOG = logging.getLogger(__name__)

_TTL = timedelta(seconds=30)
_REPAIRED = frozenset({CorrectionState.CONVERGED, CorrectionState.SUPERSEDED})
_DOUBTFUL = frozenset({CorrectionState.REFUSED, CorrectionState.PARTIAL})
_MAY_BE_THERE = "an attempt that was cut off may have emitted it: apply again"
_NOT_PASSED = "its group has not come to it within settle.timeout"


def verify(job: Job) -> Verified:
    """Say what became of each correction; a later call looks again at those that nobody has consumed yet."""
    inputs = job.inputs([Applied.ARTIFACT])
    if job.run.done(Verified.ARTIFACT, inputs):
        _LOG.info("verified already")
        return job.run.read(Verified)
    plan = job.run.read(Plan)
    with open_control(job.settings) as control:
        verifying = _Verifying(job, plan, control)
        corrections = []
        for number, each in enumerate(plan.links, 1):
            with about(link=each.link, part=f"{number} of {len(plan.links)}"):
                corrections.append(verifying.link(each))
    verified = _verified(job, plan, job.run.read(Summary), corrections)
    notes = [f"{verified.unverified} corrections are unverified"] if verified.unverified else []
    job.run.publish(verified, inputs, complete=not verified.unverified, notes=notes)
    return verified


class _Verifying:
    def __init__(self, job: Job, plan: Plan, control: ControlStore) -> None:
        self.job, self.plan, self.control = job, plan, control

    def link(self, link: LinkPlan) -> tuple[VerifiedCorrection, ...]:
        """Look at what has not come to an end, and return what became of each correction."""
        job = self.job
        pending = self._pending(link)
        if pending:
            consumer = job.contract.consumer(link.consumer)
            _LOG.info(f"{link.link}: verifying {len(pending):,} corrections")
            found = self._decided(link, consumer, pending)
            with self.control.leases.hold(link.link, holder(job.run.id), _TTL) as held:
                self.control.corrections.mark_verified(held.require(), job.run.id, found.values())
        return self._outcomes(link)

    def _pending(self, link: LinkPlan) -> dict[str, dict[int, int]]:
        """Query where the records are of each correction that is not yet known to have come to an end."""
        found: dict[str, dict[int, int]] = {}
        for each in self.control.corrections.of_run(link.link, self.job.run.id):
            if each.state in PENDING and each.offset is not None:
                found.setdefault(each.correction_id, {})[each.partition] = each.offset
        return found

    def _decided(
        self, link: LinkPlan, consumer: Consumer, pending: Mapping[str, dict[int, int]]
    ) -> dict[str, CorrectionOutcome]:
        committed = self._committed(link, consumer, pending)
        items = {each.correction_id: each for each in link.corrections}
        reached = {id_: items[id_] for id_, places in pending.items() if passed(places, committed)}
        found = {
            id_: CorrectionOutcome(id_, CorrectionState.UNVERIFIED, _NOT_PASSED)
            for id_ in pending
            if id_ not in reached
        }
        found |= self._read(consumer, reached)
        doubtful = {id_: reached[id_] for id_, each in found.items() if each.outcome in _DOUBTFUL}
        if doubtful:
            # A consumer may commit a little before what it applies can be seen.
            time.sleep(consumer.settle.confirm_after.total_seconds())
            found |= self._read(consumer, doubtful)
        return found

    def _committed(
        self, link: LinkPlan, consumer: Consumer, pending: Mapping[str, Mapping[int, int]]
    ) -> Mapping[int, int | None]:
        """Wait until the group has passed all, or its time is over; query how far it has come."""
        places = last_places(place for each in pending.values() for place in each.items())
        with cluster_client(self.job) as cluster:
            awaited(partial(cluster.committed, link.group, link.topic, places), places, consumer.settle.timeout)
            return cluster.committed(link.group, link.topic, places)

    def _read(self, consumer: Consumer, items: Mapping[str, Item]) -> dict[str, CorrectionOutcome]:
        """Read the rows of source and copy, the source's first, and decide."""
        job = self.job
        if not items:
            return {}
        ids = [each.aggregate_id or "" for each in items.values()]
        with open_link(job, consumer) as reader:
            rows = both_rows(job, consumer, reader, ids)
        compared = Compared(rows.rules, planning.terms(job.contract, consumer).carried, consumer.guard)
        found = {}
        for id_, each in items.items():
            of = each.aggregate_id or ""
            found[id_] = outcome_of(each, rows.sources.get(of), rows.copies.get(of), compared, twice=of in rows.twice)
        return found

    def _outcomes(self, link: LinkPlan) -> tuple[VerifiedCorrection, ...]:
        records: dict[str, CorrectionRecord] = {}
        for each in self.control.corrections.of_run(link.link, self.job.run.id):
            if each.state is not CorrectionState.DROPPED:
                records.setdefault(each.correction_id, each)
        return tuple(
            VerifiedCorrection(
                correction_id=id_,
                aggregate_id=each.aggregate_id,
                outcome=str(CorrectionState.UNVERIFIED if each.state is CorrectionState.INTENDED else each.state),
                reason=_MAY_BE_THERE if each.state is CorrectionState.INTENDED else each.reason,
                differing=each.differing,
            )
            for id_, each in sorted(records.items(), key=lambda one: one[1].aggregate_id)
        )


def _verified(
    job: Job, plan: Plan, summary: Summary, corrections: Sequence[tuple[VerifiedCorrection, ...]]
) -> Verified:
    """Count what was repaired and what still differs, and what that means for the exit code."""
    summaries = {each.link: each for each in summary.links}
    links = []
    for link, of_link in zip(plan.links, corrections, strict=True):
        audited = summaries.get(link.link)
        drifted, compared = (0, 0) if audited is None else (audited.drifted, audited.compared)
        outcomes = Counter(each.outcome for each in of_link)
        still = max(drifted - sum(outcomes[each] for each in _REPAIRED), 0)
        tolerance = job.contract.consumer(link.consumer).tolerance
        links.append(
            VerifiedLink(
                link=link.link,
                outcomes=dict(outcomes),
                still_different=still,
                beyond_tolerance=not (still <= tolerance.rows or still <= compared * tolerance.ratio),
                corrections=of_link,
            )
        )
    failing = any(each.outcomes.get(CorrectionState.UNVERIFIED) or each.beyond_tolerance for each in links)
    code = 2 if not summary.complete else int(failing)
    return Verified(run_id=job.run.id, links=tuple(links), exit_code=code)
