"""The stage `plan`: what is to be done about each finding of a run, and what of it can be done."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from reconcile.audit.partitioning import Router
from reconcile.audit.routing import infer_from_log
from reconcile.contract.model import Consumer, RepairTopic
from reconcile.domain import plan as plans
from reconcile.domain import plan_rules
from reconcile.domain.finding import Finding, from_data
from reconcile.domain.plan import LinkPlan, Plan
from reconcile.errors import RefusedError, UnreachableError
from reconcile.gather.fence.opening import open_fence
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.log.history import extend
from reconcile.gather.log.history_columns import ID
from reconcile.gather.log.history_store import HistoryStore
from reconcile.kafka.cluster import Cluster
from reconcile.pipeline import audit as auditing
from reconcile.pipeline import gather as gathering
from reconcile.pipeline import stored
from reconcile.pipeline.job import Job
from reconcile.repair import log_facts, planning, topic_form
from reconcile.repair.planning import Log, Route, World
from reconcile.repair.rereading import Rereading
from reconcile.repair.values import SourceRow, SourceValues
from reconcile.report import expectations
from reconcile.workspace.run import Run

_LOG = logging.getLogger(__name__)

PLAN = "plan"
MADE_OF = (auditing.FINDINGS, auditing.SUMMARY)


def plan(job: Job) -> Plan:
    """Plan what is to be done about the run's findings, unless that was done; give the plan."""
    inputs = job.inputs(MADE_OF)
    if job.run.manifest(auditing.SUMMARY).inputs.contract != job.contract.digest:
        raise RefusedError(f"the contract was changed since the run {job.run.id} was audited: start a new run")
    if job.run.done(PLAN, inputs):
        _LOG.info("planned already")
        return planned(job.run)
    made = _Planning(job).made()
    job.run.publish_json(PLAN, plans.to_data(made), inputs, stage="plan", notes=made.reasons)
    return made


def planned(run: Run) -> Plan:
    """Give the plan of a run; raise RefusedError if it was changed, MissingArtifactError if there is none."""
    try:
        return plans.from_data(run.json(PLAN))
    except (ValueError, KeyError, TypeError) as error:
        raise RefusedError(f"the plan of the run {run.id} was changed: {error}; start a new run") from None


@dataclass(frozen=True)
class _Draft:
    """A link before the world is looked at."""

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
        self.summary: dict[str, Any] = job.run.json(auditing.SUMMARY)
        self.ordered, self.circular = plan_rules.in_order({each.group: each.depends_on for each in job.links})

    def made(self) -> Plan:
        job, contract = self.job, self.job.contract
        drafts = [self._draft(each) for group in self.ordered for each in job.links if each.group == group]
        looked = self._looked([each for each in drafts if each.open])
        links = [looked.get(each.empty.link) or self._unlooked(each) for each in drafts]
        run = {name: job.run.manifest(name).digest for name in MADE_OF}
        return Plan(job.run.id, contract.aggregate, contract.digest, run, tuple(links), self._refused())

    def _refused(self) -> tuple[str, ...]:
        failed = expectations.against_repair(self.job.run.json_if_there(expectations.QUALITY))
        if self.summary["complete"]:
            return tuple(failed)
        unread = (f"{each['link']}: {each['message']}" for each in self.summary["unread"])
        return ("the run is incomplete, and nothing is ever repaired from such a run", *unread, *failed)

    def _draft(self, consumer: Consumer) -> _Draft:
        contract, link = self.job.contract, self.job.contract.link(consumer)
        findings = [from_data(each) for each in stored.findings(self.job.run, links=[link], spark=self.job.spark)]
        ids = planning.wanted(findings, contract, consumer)
        empty = LinkPlan(
            link=link,
            consumer=consumer.name,
            group=consumer.group,
            topic=_topic(consumer, contract.topic.name),
            topic_id="",
            partitions=0,
            partitioner=(),
            since={},
            readers=(),
            approval=consumer.repair.approval == "required",
            depends_on=consumer.depends_on,
            warnings=self._dependencies(consumer),
            refused=planning.caps(consumer, len(ids), self._aggregates(link)),
        )
        return _Draft(consumer, empty, findings, ids)

    def _aggregates(self, link: str) -> int:
        compared = {each["link"]: each["compared"] for each in self.summary["links"]}.get(link, 0)
        rows = self.job.run.json(gathering.FENCE)["source"]["rows"]
        return plans.aggregates(compared, rows, some=self.job.ids is not None)

    def _dependencies(self, consumer: Consumer) -> tuple[str, ...]:
        groups = {each.group for each in self.job.links}
        found = [
            f"it builds on {each}, which this run does not repair: see that it is right first"
            for each in consumer.depends_on
            if each not in groups
        ]
        if consumer.group in self.circular:
            found.append("it and the groups that it builds on depend on one another: the contract's order counts")
        return tuple(found)

    def _unlooked(self, draft: _Draft) -> LinkPlan:
        items = planning.unlooked(draft.findings, self.job.contract, draft.consumer)
        return replace(draft.empty, items=items)

    def _looked(self, drafts: Sequence[_Draft]) -> dict[str, LinkPlan]:
        """Look at the log first, then at the source: nothing in the log so far is newer than what is read then."""
        if not drafts:
            return {}
        job, contract = self.job, self.job.contract
        _LOG.info("planning")
        connection = gathering.cluster_connection(job)
        found: dict[str, LinkPlan] = {}
        with closing(Cluster(contract.topic.cluster, connection.resolve())) as cluster:
            routes = {}
            for draft in drafts:
                try:
                    routes[draft.empty.link] = self._route(cluster, draft.consumer)
                except RefusedError as error:
                    found[draft.empty.link] = self._unlooked(_refusing(draft, str(error)))
            going = [each for each in drafts if each.empty.link in routes]
            log = self._log(cluster, going)
            partitions = cluster.topic(contract.topic.name).partitions
            names = [each.consumer.name for each in going]
            with open_fence(contract, job.file, job.settings, names, timeout=timedelta(0)) as opened:
                for draft in going:
                    link, consumer = draft.empty.link, draft.consumer
                    try:
                        if consumer.name not in opened.consumers:
                            raise RefusedError(next(e.message for e in opened.fence.unread if e.link == link))
                        reader = LinkReader(job.spark, contract, consumer, job.settings, opened)
                        rows: Mapping[str, Sequence[SourceRow]] = SourceValues(reader).of(draft.ids)
                        committed = cluster.committed(consumer.group, contract.topic.name, partitions)
                        misread = Rereading(reader, gathering.avro(job)).problems
                        world = World(log, routes[link], committed, rows, misread)
                        found[link] = planning.planned(
                            draft.empty, draft.findings, contract, consumer, job.run.id, world
                        )
                    except (RefusedError, UnreachableError) as error:
                        opened.require_source_alive()
                        found[link] = self._unlooked(_refusing(draft, str(error)))
        return found

    def _route(self, cluster: Cluster, consumer: Consumer) -> Route:
        main = self.job.contract.topic.name
        name = _topic(consumer, main)
        topic = cluster.topic(name)
        readers = [group for group, topics in cluster.commits().items() if name in topics and group != consumer.group]
        since = cluster.ends(name, topic.partitions)
        return Route(name, topic.id, len(topic.partitions), since, tuple(sorted(readers)), name == main)

    def _log(self, cluster: Cluster, drafts: Sequence[_Draft]) -> Log:
        job, topic = self.job, self.job.contract.topic
        connection, avro = gathering.cluster_connection(job), gathering.avro(job)
        partitions = cluster.topic(topic.name).partitions
        begins, ends = cluster.begins(topic.name, partitions), cluster.ends(topic.name, partitions)
        history = extend(job.spark, topic, connection, ends, HistoryStore.of(job.workspace), avro=avro)
        inference = infer_from_log(history.records(job.spark), history.index, topic)
        telling = planning.telling(job.contract)
        samples = topic_form.newest(topic.cluster, connection.resolve(), topic.name, begins, ends)
        ids = job.spark.createDataFrame([(each,) for draft in drafts for each in draft.ids], f"{ID} string")
        layout = cluster.layouts([topic.name])[topic.name]
        return Log(
            inference=inference,
            router=Router.of(inference, history.index.partitions),
            form=topic_form.learned(topic, samples, avro, telling),
            compacted=layout is not None and layout.compacted,
            traces=log_facts.traces(history.records(job.spark), ids, topic.ignore_types, telling),
        )


def _topic(consumer: Consumer, main: str) -> str:
    route = consumer.repair.route
    return route.topic if isinstance(route, RepairTopic) else main


def _refusing(draft: _Draft, reason: str) -> _Draft:
    return replace(draft, empty=replace(draft.empty, refused=(*draft.empty.refused, reason)))
