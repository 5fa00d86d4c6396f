"""An aggregate is forgotten: in runs, in histories, in the control store; and then all is looked at again."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from reconcile.audit.columns import ID
from reconcile.contract.model import Contract
from reconcile.domain.forgetting import blanked, mentions, named_with, without, words
from reconcile.domain.plan import LinkPlan, Plan
from reconcile.gather.log.store import HistoryStore, Home
from reconcile.gather.stores import row_columns
from reconcile.pipeline.handoffs import (
    Applied,
    Fence,
    Forgotten,
    Gathered,
    Quality,
    Request,
    Stopped,
    Summary,
    Verified,
)
from reconcile.settings.settings import Settings
from reconcile.spark import local_frames
from reconcile.workspace import handoff
from reconcile.workspace.manifest import DamagedArtifactError
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from reconcile.control.store import ControlStore

_IDS = (ID, "aggregate_id", row_columns.ID)
"""The columns in which tables have ids."""
_HANDOFFS = (Request, Fence, Gathered, Summary, Quality, Plan, Applied, Verified, Stopped)
"""In the order in which one is made of another."""


def forget(
    place: Workspace, settings: Settings, contract: Contract, ids: Collection[str], spark: SparkSession
) -> Forgotten:
    """Remove all that is kept of aggregates of a contract, and look at everything again.

    It may be called again after it was cut off. Raises LeaseHeldError where a run of the contract goes on.
    """
    from reconcile.control.store import open_control

    with ExitStack() as stack:
        control = None
        if settings.control_address() is not None:
            control = stack.enter_context(open_control(settings))
            name = f"forgetting-{uuid4().hex[:12]}"
            stack.enter_context(control.leases.hold_contract(contract.aggregate, name))
        forgetting = _Forgetting(place, settings, contract, frozenset(ids), spark, control)
        runs, histories, rows = forgetting.runs(), forgetting.histories(), forgetting.rows()
        return Forgotten(runs=runs, histories=histories, control=rows, remaining=tuple(forgetting.remaining()))


@dataclass(frozen=True)
class _Forgetting:
    place: Workspace
    settings: Settings
    contract: Contract
    ids: frozenset[str]
    spark: SparkSession
    control: ControlStore | None

    def rows(self) -> dict[str, int]:
        """Delete the rows of the control store."""
        if self.control is None:
            return {}
        return self.control.retention.forget(self._links, self.contract.aggregate, self.ids)

    def histories(self) -> dict[str, int]:
        """Rewrite the histories of the topic and of its failure topics."""
        from reconcile.gather.log import forgetting

        key_type = self.contract.topic.key.type
        found = {self._below(each): forgetting.forget(self.spark, each, self.ids, key_type) for each in self._homes()}
        return {name: number for name, number in found.items() if number}

    def runs(self) -> dict[str, int]:
        """Rewrite the runs of the contract."""
        going_on = frozenset() if self.control is None else self.control.retention.going_on()
        found = {}
        for run_id in self.place.runs():
            run = self.place.run(run_id)
            with suppress(DamagedArtifactError):  # it is looked at again, and told
                request = run.read_if_there(Request)
                if (request is None and run_id in going_on) or self._is_of_others(request):
                    continue
                run.restore()
                if number := self._run(run):
                    found[run_id] = number
        return found

    def remaining(self) -> Iterator[str]:
        """Look for the aggregates in all places, as they are read afresh."""
        from reconcile.gather.log import forgetting

        for run_id in self.place.runs():
            run = self.place.run(run_id)
            try:
                if not self._is_of_others(run.read_if_there(Request)):
                    yield from (f"{run_id}/{name}" for name in self._mentions(run))
            except DamagedArtifactError as error:
                yield f"{run_id}: {error}"
        for home in self._homes():
            if forgetting.count(self.spark, home, self.ids, self.contract.topic.key.type):
                yield self._below(home)
        if self.control is not None:
            known = self.control.retention.known(self._links, self.contract.aggregate, self.ids)
            yield from (f"the control store: {table}" for table, number in known.items() if number)

    def _run(self, run: Run) -> int:
        """Rewrite what a run has of the aggregates; count its artifacts and files that had something."""
        from reconcile.pipeline import report

        digests: dict[str, str] = {}
        tables = [each.name for each in run.manifests() if each.kind == "parquet"]
        for name in tables:
            rows = run.parquet(name, self.spark)
            if not rows.where(self._mentioned(rows)).isEmpty():
                before = run.manifest(name).digest
                digests[before] = run.rewrite_parquet(name, self._rest(rows)).digest
        number = len(digests) + forget_in_handoffs(run, self.ids, digests)
        run.follow(digests)
        told = [name for name, text in run.files().items() if mentions(text, self.ids)]
        if told:
            report.publish(run, self.place, self.settings, self.contract)
        return number + len(told)

    def _mentions(self, run: Run) -> Iterator[str]:
        for manifest in run.manifests():
            if manifest.kind == "json":
                found = mentions(json.dumps(run.json(manifest.name), ensure_ascii=False), self.ids)
            else:
                rows = run.parquet(manifest.name, self.spark)
                found = not rows.where(self._mentioned(rows)).isEmpty()
            if found:
                yield manifest.name
        yield from (name for name, text in run.files().items() if mentions(text, self.ids))

    def _about(self, rows: DataFrame) -> Column:
        """Build whether a row is about one of the aggregates."""
        from pyspark.sql import functions as f

        names = [each for each in _IDS if each in rows.columns]
        return f.coalesce(f.col(names[0]).isin(*sorted(self.ids)), f.lit(False)) if names else f.lit(False)

    def _mentioned(self, rows: DataFrame) -> Column:
        """Build whether a row is about one of the aggregates, or about another and names one."""
        from pyspark.sql import functions as f

        pattern = words(self.ids)
        if pattern is None:
            return self._about(rows)
        return self._about(rows) | f.to_json(f.struct("*")).rlike(pattern)

    def _rest(self, rows: DataFrame) -> DataFrame:
        """Build the rows about others, without what names one of the aggregates."""
        rest, pattern = rows.where(~self._about(rows)), words(self.ids)
        if rest.where(self._mentioned(rest)).isEmpty():
            return rest

        return local_frames.mapped(rest, lambda row: blanked(row, pattern))

    def _is_of_others(self, request: Request | None) -> bool:
        return request is not None and request.aggregate != self.contract.aggregate

    def _homes(self) -> Iterator[Home]:
        from reconcile.gather.evidence.parked import failure_topics

        topic, store = self.contract.topic, HistoryStore.of(self.place)
        parked = (failed.topic for each in self.contract.consumers for _, failed in failure_topics(each))
        for name in dict.fromkeys([topic.name, *parked]):
            yield from store.homes_of(topic.cluster, name)

    def _below(self, home: Home) -> str:
        return home.folder.removeprefix(f"{self.place.root}/")

    @property
    def _links(self) -> list[str]:
        return [self.contract.link(each) for each in self.contract.consumers]


def forget_in_handoffs(run: Run, ids: frozenset[str], digests: dict[str, str]) -> int:
    """Rewrite the hand-offs of a run without some aggregates and their corrections; count those that had them.

    `digests` are the new digests of what was rewritten by the old ones: hand-offs name them, and theirs are added.
    """
    there = [each for each in _HANDOFFS if run.find(each.ARTIFACT) is not None]
    values = {each: handoff.to_data(run.read(each)) for each in there}
    corrections = {each for value in values.values() for each in named_with(value, ids, "correction_id")}
    number = 0
    for each, value in values.items():
        rest = blanked(without(value, ids | corrections), words(ids))
        number += rest != value
        rest = _following(rest, digests)
        if rest == value:
            continue
        if each is Plan:
            planned = run.read(Plan)
            sealed = _resealed(planned, ids, digests)
            digests[planned.digest] = sealed.digest
            rest = handoff.to_data(sealed)
        before = run.manifest(each.ARTIFACT).digest
        digests[before] = run.rewrite_json(each.ARTIFACT, rest).digest
    return number


def _resealed(plan: Plan, ids: Collection[str], digests: dict[str, str]) -> Plan:
    """Build the plan without the lines of some aggregates: another plan, which nobody has approved."""
    links: tuple[LinkPlan, ...] = tuple(
        each.replaced(items=tuple(item for item in each.items if item.aggregate_id not in ids)) for each in plan.links
    )
    content = {name: getattr(plan, name) for name in Plan.model_fields if name not in ("schema_version", "digest")}
    made_of = {name: digests.get(digest, digest) for name, digest in plan.made_of.items()}
    return Plan.sealed(**{**content, "links": links, "made_of": made_of})


def _following(value: Any, digests: dict[str, str]) -> Any:
    """Build a JSON value with new digests in place of old ones."""
    if isinstance(value, dict):
        return {name: _following(each, digests) for name, each in value.items()}
    if isinstance(value, list):
        return [_following(each, digests) for each in value]
    return digests.get(value, value) if isinstance(value, str) else value
