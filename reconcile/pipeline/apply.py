"""The stage `apply`: emits what was planned, link by link, and only what was approved."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial

from reconcile.contract.model import Consumer
from reconcile.control.corrections import CorrectionRecord, CorrectionState, Dropped, Emitted, Intent
from reconcile.control.leases import HeldLease, holder
from reconcile.control.store import ControlStore, open_control
from reconcile.domain.approval import Approval
from reconcile.domain.correction import Correction
from reconcile.domain.plan import LinkPlan, Plan
from reconcile.domain.plan_rules import Action
from reconcile.errors import ReconcileError, RefusedError, UnreachableError
from reconcile.gather.fence.opening import open_fence
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.log.value_reader import key_reader
from reconcile.pipeline import record
from reconcile.pipeline.approval import require_approved
from reconcile.pipeline.handoffs import Applied, AppliedLink, DroppedCorrection, EmittedRecord, Fence, results_of
from reconcile.pipeline.job import Job
from reconcile.pipeline.log_view import LogView, cluster_client, cluster_connection, value_schema
from reconcile.pipeline.logs import about
from reconcile.pipeline.plan import MADE_OF
from reconcile.pipeline.redaction import sensitive_key
from reconcile.pipeline.sums import read_sums
from reconcile.quality import gate
from reconcile.repair import planning
from reconcile.repair.correction_writer import CorrectionWriter
from reconcile.repair.emission import EmissionTask, emit
from reconcile.repair.guard import Guarded, NewerThanBasis, SourceNow, guarded, summed_since
from reconcile.repair.source_values import SourceValues
from reconcile.repair.verification import last_places, passed

_LOG = logging.getLogger(__name__)

_TTL = timedelta(seconds=30)
_LOOK_AGAIN = 0.2


class PlanRefusedError(RefusedError):
    """Raised when a plan may not be applied: the reasons say what would allow it."""


class StaleGroupError(UnreachableError):
    """Raised when a group that another builds on does not come to its corrections: apply again once it has."""


def require_applicable(job: Job, plan: Plan) -> None:
    """Raise PlanRefusedError if the plan was refused, or what it was made of has changed since."""
    if plan.contract_digest != job.contract.digest:
        raise PlanRefusedError("the contract was changed since the plan was made: start a new run")
    for name in MADE_OF:
        if plan.made_of.get(name) != job.run.manifest(name).digest:
            raise PlanRefusedError(f"the {name} of the run were changed since the plan was made: start a new run")
    failed = gate.against_repair(results_of(job.run))
    if reasons := dict.fromkeys([*plan.reasons, *failed]):
        raise PlanRefusedError("the plan is refused:\n  " + "\n  ".join(reasons))


def apply(job: Job) -> Applied:
    """Emit the corrections of the run's plan; after any failure the same call goes on where it stopped.

    Raises PlanRefusedError, and NotApprovedError or PlanReplacedError where the contract asks for approval and this
    plan was not approved.
    """
    plan = job.run.read(Plan)
    require_applicable(job, plan)
    inputs = job.inputs([Plan.ARTIFACT])
    if job.run.done(Applied.ARTIFACT, inputs):
        _LOG.info("applied already")
        return job.run.read(Applied)
    with open_control(job.settings) as control, ExitStack() as stack:
        approvals = require_approved(control, plan)
        held = job.contract_lease or stack.enter_context(control.leases.hold_contract(plan.contract, plan.run_id))
        record.write_stage(control, job, "apply")
        applying = _Applying(job, plan, control, held)
        try:
            dropped = {}
            correcting = [each for each in plan.links if each.corrections]
            for number, link in enumerate(correcting, 1):
                with about(link=link.link, part=f"{number} of {len(correcting)}"):
                    dropped[link.link] = applying.link(link)
        except BaseException:
            with suppress(ReconcileError):  # the first error is shown, even if it took the control store along
                _LOG.info(applying.progress())
            raise
        applied = applying.applied(dropped, approvals)
    job.run.publish(applied, inputs)
    return applied


class _Applying:
    def __init__(self, job: Job, plan: Plan, control: ControlStore, contract_lease: HeldLease) -> None:
        self.job, self.plan, self.control, self.contract_lease = job, plan, control, contract_lease
        self._dropped: dict[str, Mapping[str, str]] = {}

    def link(self, link: LinkPlan) -> Mapping[str, str]:
        """Emit the corrections of a link; return why the guard dropped some, by their ids."""
        job = self.job
        self._await_others(link)
        _LOG.info(f"{link.link}: emitting {len(link.own):,} corrections")
        with self.control.leases.hold(link.link, holder(job.run.id), _TTL, within=self.contract_lease) as held:
            shared = self._share(link, held) if link.shared else {}
            dropped = {**shared, **(self._emit(link, held) if link.own else {})}
        self._dropped[link.link] = dropped
        return dropped

    def _share(self, link: LinkPlan, held: HeldLease) -> dict[str, str]:
        """Write down where the records of other links are that mend this one too; return why some are not there.

        Those links come first, so that what became of their records is known; each of them may be verified by itself.
        """
        intents, emitted, dropped = [], [], []
        reasons: dict[str, str] = {}
        for name in dict.fromkeys(each.shared_with for each in link.shared if each.shared_with is not None):
            theirs = {each.aggregate_id: each.correction_id or "" for each in self.plan.link(name).own}
            records: dict[str, list[CorrectionRecord]] = {}
            for each in self.control.corrections.of_run(name, self.plan.run_id):
                records.setdefault(each.correction_id, []).append(each)
            for item in (each for each in link.shared if each.shared_with == name):
                ours, other = item.correction_id or "", theirs[item.aggregate_id]
                if (why := self._dropped.get(name, {}).get(other)) and other not in records:
                    reasons[ours] = why
                for each in records.get(other, ()):
                    of_item = item.aggregate_id or "", item.basis_version, each.partition
                    intents.append(Intent(ours, link.link, *of_item, self.plan.run_id))
                    if each.offset is not None:
                        emitted.append(Emitted(ours, each.partition, each.offset))
                    elif each.state is CorrectionState.DROPPED:
                        dropped.append(Dropped(ours, each.reason or ""))
        corrections = self.control.corrections
        corrections.intend(held.require(), intents)
        corrections.mark_emitted(held.require(), self.plan.run_id, emitted)
        corrections.mark_dropped(held.require(), self.plan.run_id, dropped)
        return reasons

    def progress(self) -> str:
        """Say how far it has come."""
        emitted = planned_for = 0
        for link in self.plan.links:
            planned_for += len(link.corrections)
            records = self.control.corrections.of_run(link.link, self.plan.run_id)
            emitted += len({each.correction_id for each in records if each.offset is not None})
        return (
            f"stopped: {emitted:,} of {planned_for:,} corrections are emitted, and nothing is half done;"
            f" `reconcile apply {self.plan.run_id}` goes on"
        )

    def applied(self, dropped: Mapping[str, Mapping[str, str]], approvals: tuple[Approval, ...]) -> Applied:
        """Read what became of each correction, beside what the guard has dropped, and who asked for the run."""
        links = (
            became(link, self.control.corrections.of_run(link.link, self.plan.run_id), dropped.get(link.link, {}))
            for link in self.plan.links
        )
        return Applied(
            run_id=self.plan.run_id,
            plan=self.plan.digest,
            links=tuple(links),
            requester=self.control.runs.find(self.plan.run_id).requester,
            approvals=approvals,
        )

    def _emit(self, link: LinkPlan, held: HeldLease) -> Mapping[str, str]:
        job = self.job
        may, writer = self._guarded(link)
        newer = NewerThanBasis(job.contract.topic, writer.form.codec, job.run.id)
        cluster = cluster_connection(job).resolve()
        id_of = key_reader(job.contract.topic, value_schema(job))
        task = EmissionTask(link.link, job.run.id, link.topic, cluster, link.since, id_of)
        still = partial(self._still, link)
        outcome = emit(may.corrections, task, control=self.control, held=held, newer=newer, still=still)
        _LOG.debug(f"{link.link}: {len(outcome.emitted):,} records emitted, {len(outcome.already):,} were there")
        _LOG.debug(f"{link.link}: {len(may.dropped) + len(outcome.dropped):,} corrections dropped")
        intended = {
            each.correction_id
            for each in self.control.corrections.of_run(link.link, job.run.id)
            if each.state is CorrectionState.INTENDED and each.correction_id in may.dropped
        }
        if intended:  # and not in the log
            gone = [Dropped(id_, may.dropped[id_]) for id_ in sorted(intended)]
            self.control.corrections.mark_dropped(held.require(), job.run.id, gone)
        return may.dropped

    def _still(self, link: LinkPlan, batch: Sequence[Correction]) -> Mapping[str, str]:
        """Read the sums that get a difference once more, right before that is committed; say which lack another."""
        ids = {each.id for each in batch}
        items = [each for each in link.corrections if each.correction_id in ids and each.action is Action.COMPENSATE]
        if not items:
            return {}
        consumer = self.job.contract.consumer(link.consumer)
        with open_link(self.job, consumer) as reader:
            sums = read_sums(self.job, consumer, reader, [each.aggregate_id or "" for each in items])
        found = {each.correction_id or "": summed_since(each, sums) for each in items}
        return {id_: why for id_, why in found.items() if why is not None}

    def _guarded(self, link: LinkPlan) -> tuple[Guarded, CorrectionWriter]:
        """Read source and log again, and write the records of what has not moved on."""
        job, contract = self.job, self.job.contract
        ids = [each.aggregate_id for each in link.own if each.aggregate_id is not None]
        with cluster_client(job) as cluster:
            route = cluster.topic(link.topic)
            if (route.id, len(route.partitions)) != (link.topic_id, link.partitions):
                raise PlanRefusedError(f"{link.topic} grew, or was made anew, since the plan was made: start a new run")
        consumer = contract.consumer(link.consumer)
        compensated = [each.aggregate_id or "" for each in link.own if each.action is Action.COMPENSATE]
        with open_link(job, consumer) as reader:
            source = SourceNow(
                SourceValues(reader, sensitive_key(job)).of(ids),
                reader.waiting(ids),
                reader.opened.fence.source.limits,
                read_sums(job, consumer, reader, compensated),
                {each.partition: each.log_end for each in job.run.read(Fence).topic.partitions},
            )
        # After the outbox: an event that waits there no more is in the log.
        with cluster_client(job) as cluster:
            log = LogView.read(job, cluster)
            form = log.form(cluster)
        aggregates = log.aggregates(ids)
        writer = CorrectionWriter(contract, form, job.run.id, link.since)
        logged = {id_: planning.with_key(id_, aggregates.get(id_), form.keys) for id_ in ids}
        return guarded(link.own, source, logged, writer), writer

    def _await_others(self, link: LinkPlan) -> None:
        """Wait until the groups that this one builds on have passed their corrections."""
        for other in self.plan.links:
            if other.group in link.depends_on and other.corrections:
                _LOG.info(f"{link.link}: waiting for {other.group}")
                self._await(other, link, self.job.contract.consumer(other.consumer).settle.timeout)

    def _await(self, other: LinkPlan, link: LinkPlan, timeout: timedelta) -> None:
        records = self.control.corrections.of_run(other.link, self.plan.run_id)
        places = last_places((each.partition, each.offset) for each in records if each.offset is not None)
        with cluster_client(self.job) as cluster:
            if not awaited(partial(cluster.committed, other.group, other.topic, places), places, timeout):
                raise StaleGroupError(
                    f"{link.link} builds on {other.group}, which has not come to its corrections within"
                    f" {timeout.total_seconds():.0f} s: see that it consumes, and apply again"
                )


@contextmanager
def open_link(job: Job, consumer: Consumer) -> Iterator[LinkReader]:
    """Open both stores of a link as they are now; raise UnreachableError if one cannot be read."""
    with open_fence(job.contract, job.file, job.settings, [consumer.name], timeout=timedelta(0)) as opened:
        for unreadable in opened.fence.unread:
            raise UnreachableError(f"{unreadable.link}: {unreadable.message}")
        yield LinkReader(job.spark, job.contract, consumer, job.settings, opened)


def became(link: LinkPlan, records: Sequence[CorrectionRecord], dropped: Mapping[str, str]) -> AppliedLink:
    """Sum up what became of a link's corrections; `dropped` by the guard, unless an earlier attempt emitted them."""
    shared = {each.correction_id: each.shared_with for each in link.shared}
    emitted = tuple(
        EmittedRecord(
            correction_id=each.correction_id,
            aggregate_id=each.aggregate_id,
            partition=each.partition,
            offset=each.offset,
            shared_with=shared.get(each.correction_id),
        )
        for each in records
        if each.offset is not None
    )
    there = {each.correction_id for each in emitted}
    reasons = dict(dropped)
    reasons |= {each.correction_id: each.reason or "" for each in records if each.state is CorrectionState.DROPPED}
    return AppliedLink(
        link=link.link,
        topic=link.topic,
        emitted=emitted,
        dropped=tuple(
            DroppedCorrection(correction_id=id_, reason=why) for id_, why in sorted(reasons.items()) if id_ not in there
        ),
    )


def awaited(committed: Callable[[], Mapping[int, int | None]], places: Mapping[int, int], timeout: timedelta) -> bool:
    """Wait until a group has committed past these places; return whether it has in time."""
    began = time.monotonic()
    while places and not passed(places, committed()):
        if time.monotonic() > began + timeout.total_seconds():
            return False
        time.sleep(_LOOK_AGAIN)
    _LOG.debug(f"waited {time.monotonic() - began:.1f} s for a group")
    return True
