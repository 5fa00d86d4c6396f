"""The stage `plan`: what is to be done about each finding of a run, and what of it can be done."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from reconcile.audit.home_partition import Router
from reconcile.audit.partitioner_inference import infer_from_log
from reconcile.contract.model import Consumer, RepairTopic
from reconcile.domain.finding import Finding
from reconcile.domain.plan import LinkPlan, Plan, aggregates, repair_order, with_shared
from reconcile.errors import RefusedError, UnreachableError
from reconcile.gather import topology_facts
from reconcile.gather.fence.opening import open_fence
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.log.state import KeptState
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.transactions import hanging, how_to_end, query_open_transactions
from reconcile.pipeline import record, tables
from reconcile.pipeline.handoffs import FINDINGS, Fence, Summary, results_of
from reconcile.pipeline.job import Job
from reconcile.pipeline.log_view import LogView, cluster_client, value_schema
from reconcile.pipeline.redaction import sensitive_key
from reconcile.pipeline.sums import read_sums
from reconcile.quality import gate
from reconcile.repair import planning
from reconcile.repair.planning import LinkFacts, Route, TopicFacts
from reconcile.repair.rereading import Rereading
from reconcile.repair.source_values import SourceRow, SourceValues

_LOG = logging.getLogger(__name__)

MADE_OF = (FINDINGS, Summary.ARTIFACT)


def plan(job: Job) -> Plan:
    """Plan what is to be done about the run's findings, unless that was done; return the plan."""
    inputs = job.inputs(MADE_OF)
    if job.run.manifest(Summary.ARTIFACT).inputs.contract != job.contract.digest:
        raise RefusedError(f"the contract was changed since the run {job.run.id} was audited: start a new run")
    record.reach(job, "plan")
    if job.run.done(Plan.ARTIFACT, inputs):
        _LOG.info("planned already")
        return job.run.read(Plan)
    made = _Planning(job).plan()
    for link in made.links:
        _LOG.debug(f"{link.link}: {len(link.corrections):,} corrections planned for {len(link.items):,} findings")
    job.run.publish(made, inputs, notes=made.reasons)
    return made


@dataclass(frozen=True)
class _Draft:
    """A link as its findings alone would have it planned."""

    consumer: Consumer
    empty: LinkPlan
    findings: Sequence[Finding]
    ids: Sequence[str]

    @property
    def open(self) -> bool:
        return bool(self.ids) and not self.empty.refused


class _Planning:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.summary = job.run.read(Summary)
        self.ordered, self.circular = repair_order(
            {each.group: job.contract.groups_before(each) for each in job.consumers}
        )

    def plan(self) -> Plan:
        job, contract = self.job, self.job.contract
        drafts = [self._draft(each) for group in self.ordered for each in job.consumers if each.group == group]
        planned = self._planned([each for each in drafts if each.open])
        return Plan.sealed(
            run_id=job.run.id,
            contract=contract.aggregate,
            contract_digest=contract.digest,
            made_of={name: job.run.manifest(name).digest for name in MADE_OF},
            refused=self._refused(),
            links=with_shared(planned.get(each.empty.link) or self._by_findings(each) for each in drafts),
        )

    def _refused(self) -> tuple[str, ...]:
        failed = gate.against_repair(results_of(self.job.run))
        if self.summary.complete:
            return tuple(failed)
        unread = (f"{each.link}: {each.message}" for each in self.summary.unread)
        return ("the run is incomplete, and nothing is ever repaired from such a run", *unread, *failed)

    def _draft(self, consumer: Consumer) -> _Draft:
        contract, link = self.job.contract, self.job.contract.link(consumer)
        findings = list(tables.findings(self.job.run, links=[link], spark=self.job.spark))
        ids = planning.to_write(findings, contract, consumer)
        empty = LinkPlan(
            link=link,
            consumer=consumer.name,
            group=consumer.group,
            topic=_route_topic(consumer, contract.topic.name),
            topic_id="",
            partitions=0,
            partitioner=(),
            since={},
            readers=(),
            approval=consumer.repair.approval != "none",
            two_people=consumer.repair.approval == "two-people",
            depends_on=contract.groups_before(consumer),
            warnings=self._dependencies(consumer),
            refused=(*self._of_the_past(consumer), *planning.caps(consumer, len(ids), self._aggregates(link))),
        )
        return _Draft(consumer, empty, findings, ids)

    def _of_the_past(self, consumer: Consumer) -> tuple[str, ...]:
        return tuple(
            f"the contract names the past snapshot {snapshot} of {table}, and what differed then need not differ now:"
            " take out `snapshot`, and start a new run"
            for snapshot, table in self.job.contract.past_snapshots(consumer)
        )

    def _aggregates(self, link: str) -> int:
        compared = {each.link: each.compared for each in self.summary.links}.get(link, 0)
        rows = max(self.job.run.read(Fence).source.rows or 0, self.job.scope.aggregates)
        return aggregates(compared, rows, some=not self.job.scope.whole)

    def _dependencies(self, consumer: Consumer) -> tuple[str, ...]:
        groups = {each.group for each in self.job.consumers}
        found = [
            f"it builds on {each}, which this run does not repair: see that it is right first"
            for each in self.job.contract.groups_before(consumer)
            if each not in groups
        ]
        if consumer.group in self.circular:
            found.append("it and the groups that it builds on depend on one another: the contract's order counts")
        return tuple(found)

    def _by_findings(self, draft: _Draft, *refused: str) -> LinkPlan:
        items = planning.by_findings(draft.findings, self.job.contract, draft.consumer)
        return draft.empty.replaced(items=items, refused=(*draft.empty.refused, *refused))

    def _planned(self, drafts: Sequence[_Draft]) -> dict[str, LinkPlan]:
        """Look at the log first, then at the source: nothing in the log so far is newer than what is read then."""
        if not drafts:
            return {}
        job, contract = self.job, self.job.contract
        _LOG.info("planning")
        found: dict[str, LinkPlan] = {}
        with cluster_client(job) as cluster:
            routes = {}
            for draft in drafts:
                try:
                    routes[draft.empty.link] = self._route(cluster, draft.consumer)
                except RefusedError as error:
                    found[draft.empty.link] = self._by_findings(draft, str(error))
            going = [each for each in drafts if each.empty.link in routes]
            topic = self._topic(cluster, going)
            partitions = cluster.topic(contract.topic.name).partitions
            names = [each.consumer.name for each in going]
            log_ends = {each.partition: each.log_end for each in job.run.read(Fence).topic.partitions}
            with open_fence(contract, job.file, job.settings, names, timeout=timedelta(0)) as opened:
                for draft in going:
                    link, consumer = draft.empty.link, draft.consumer
                    try:
                        if consumer.name not in opened.consumers:
                            raise RefusedError(next(e.message for e in opened.fence.unread if e.link == link))
                        reader = LinkReader(job.spark, contract, consumer, job.settings, opened)
                        rows: Mapping[str, Sequence[SourceRow]] = SourceValues(reader, sensitive_key(job)).of(draft.ids)
                        committed = cluster.committed(consumer.group, contract.topic.name, partitions)
                        misread = Rereading(reader, value_schema(job)).problems
                        facts = LinkFacts(
                            topic,
                            routes[link],
                            committed,
                            rows,
                            waiting=reader.waiting(draft.ids),
                            unproven=opened.fence.source.limits,
                            log_ends=log_ends,
                            sums=read_sums(
                                job, consumer, reader, planning.to_compensate(draft.findings, contract, consumer)
                            ),
                            misread=misread,
                        )
                        found[link] = planning.planned(
                            draft.empty, draft.findings, contract, consumer, job.run.id, facts
                        )
                    except (RefusedError, UnreachableError) as error:
                        opened.require_source_alive()
                        found[link] = self._by_findings(draft, str(error))
        return found

    def _route(self, cluster: ClusterClient, consumer: Consumer) -> Route:
        main = self.job.contract.topic.name
        name = _route_topic(consumer, main)
        topic = cluster.topic(name)
        undecided = query_open_transactions(cluster, name, topic.partitions)
        if stuck := hanging(undecided):
            raise RefusedError(
                f"a transaction hangs in {name} {stuck[0]}: no reader of committed records gets past it, and no"
                f" correction would; {how_to_end(name, stuck[0])}"
            )
        seen, all_groups = topology_facts.readers(cluster, name)
        readers = [each for each in seen if each.group != consumer.group]
        return Route(
            topic=name,
            id=topic.id,
            partitions=len(topic.partitions),
            since=cluster.ends(name, topic.partitions),
            readers=tuple(each.group for each in readers),
            main=name == main,
            outside=topology_facts.outside(readers, self.job.contract),
            sees_all_groups=all_groups,
            undecided=undecided,
        )

    def _topic(self, cluster: ClusterClient, drafts: Sequence[_Draft]) -> TopicFacts:
        topic, view = self.job.contract.topic, LogView.read(self.job, cluster)
        growth = view.history.index.partitions
        inference = infer_from_log(KeptState(self.job.spark, view.history), growth, topic.partitioner)
        layout = cluster.layouts([topic.name])[topic.name]
        return TopicFacts(
            inference=inference,
            router=Router.of(inference, growth),
            form=view.form(cluster),
            compacted=layout is not None and layout.compacted,
            aggregates=view.aggregates(each for draft in drafts for each in draft.ids),
        )


def _route_topic(consumer: Consumer, main: str) -> str:
    route = consumer.repair.route
    return route.topic if isinstance(route, RepairTopic) else main
