"""Planning: the findings of a run, the contract and the world as it stands now become a plan that people can review."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reconcile.audit.home_partition import Router
from reconcile.audit.partitioner_inference import Inference
from reconcile.contract.model import Consumer, Contract
from reconcile.contract.terms import TOMBSTONE
from reconcile.domain import key as keys
from reconcile.domain import mapping, plan_rules
from reconcile.domain.cause import Cause
from reconcile.domain.correction import Correction, correction_id, key_digest
from reconcile.domain.finding import Finding
from reconcile.domain.plan import Caps, Item, LinkPlan
from reconcile.domain.plan_rules import Action, AggregateFacts, Terms, Treatment
from reconcile.repair import plan_warnings
from reconcile.repair.json_values import MisfitError, Path, path_of
from reconcile.repair.log_facts import Trace, of_route, unknown_home
from reconcile.repair.records import Known, Records, carried, deletion, versioned_deletion
from reconcile.repair.topic_form import TopicForm
from reconcile.repair.values import SourceRow


@dataclass(frozen=True)
class Log:
    """What is known of the topic when a plan is made."""

    inference: Inference
    router: Router
    form: TopicForm
    compacted: bool
    traces: Mapping[str, Trace] = field(default_factory=dict)


@dataclass(frozen=True)
class Route:
    """Where the corrections of a link go."""

    topic: str
    id: str
    partitions: int
    since: Mapping[int, int]
    readers: tuple[str, ...]
    main: bool


@dataclass(frozen=True)
class World:
    """All that one link is planned by, beside its findings."""

    log: Log
    route: Route
    committed: Mapping[int, int | None]
    """How far the group has come in the main topic."""
    rows: Mapping[str, Sequence[SourceRow]]
    """The source's rows now."""
    misread: Callable[[Sequence[Correction], Sequence[Correction]], Sequence[str]] = lambda *_: ()
    """Says what restatements and deletions would bring, read as events, that is not what the source says."""


def terms(contract: Contract, consumer: Consumer) -> Terms:
    """Take from the contract what decides on repairs."""
    repair, fields = consumer.repair, consumer.fields
    causes = None if repair.causes is None else frozenset(Cause(each) for each in repair.causes)
    brought = {path_of(name) for name in carried(contract)}
    told = (each for each in fields if each.apply == "set" and each.event is not None)
    return Terms(
        causes=causes,
        deletes=repair.deletes,
        guard=consumer.guard,
        records=consumer.semantics == "records",
        carried=frozenset(each.name for each in told if _brought(each.event or "", brought)),
        adds=frozenset(each.name for each in fields if each.apply == "add"),
        restates=contract.topic.value is not None,
        deletable=contract.topic.delete == TOMBSTONE or deletion(contract.topic) is not None,
        tombstones=contract.topic.delete == TOMBSTONE,
        versioned=versioned_deletion(contract.topic),
    )


def telling(contract: Contract) -> tuple[Path, ...]:
    """Give the paths of which a correction tells, where events tell of some only; none where they tell of all."""
    if contract.topic.state == "full":
        return ()
    brought = {path_of(name) for name in carried(contract)}
    events = (each.event for consumer in contract.consumers for each in consumer.fields if each.apply == "set")
    paths = {path_of(path) for event in events if event is not None for path in mapping.paths(event)}
    return tuple(sorted(path for path in paths if path in brought))


def wanted(findings: Sequence[Finding], contract: Contract, consumer: Consumer) -> list[str]:
    """Give the ids that records would be written for, as far as the findings and the contract tell."""
    said = terms(contract, consumer)
    return [
        each.aggregate_id
        for each in findings
        if each.aggregate_id is not None and plan_rules.by_finding(each, said).action.writes
    ]


def unlooked(findings: Sequence[Finding], contract: Contract, consumer: Consumer) -> tuple[Item, ...]:
    """Give the items of a plan that is refused, or that needs no look at the world."""
    said, link = terms(contract, consumer), contract.link(consumer)
    return _sorted(_item(link, each, plan_rules.by_finding(each, said)) for each in findings)


def planned(
    empty: LinkPlan, findings: Sequence[Finding], contract: Contract, consumer: Consumer, run_id: str, world: World
) -> LinkPlan:
    """Give the plan of a link; each of its corrections can be written, or it says why not."""
    drafting = _Drafting(contract, consumer, run_id, world)
    items = _sorted(drafting.item(each) for each in findings)
    plan = empty.replaced(
        topic=world.route.topic,
        topic_id=world.route.id,
        partitions=world.route.partitions,
        partitioner=tuple(each.value for each in world.log.router.candidates),
        since=dict(world.route.since),
        readers=world.route.readers,
        items=items,
    )
    if not plan.corrections:
        return plan
    return plan.replaced(
        warnings=(*empty.warnings, *drafting.warnings(plan.corrections)),
        refused=(
            *empty.refused,
            *dict.fromkeys(drafting.problems),
            *world.misread(drafting.restated, drafting.deleting),
        ),
    )


def known(id_text: str, trace: Trace, key_type: str) -> Known:
    """Give what is known of an aggregate that the plan corrects."""
    key = trace.key if trace.key is not None else keys.encode(id_text, key_type)
    return Known(key, trace.type, trace.body, trace.version_text)


def caps(consumer: Consumer, corrections: int, aggregates: int) -> tuple[str, ...]:
    """Say which of a contract's caps a number of corrections exceeds."""
    repair = consumer.repair
    return Caps(repair.max_corrections, repair.max_ratio).exceeded(corrections, aggregates) if corrections else ()


class _Drafting:
    def __init__(self, contract: Contract, consumer: Consumer, run_id: str, world: World) -> None:
        self._contract, self._consumer, self._world = contract, consumer, world
        self._terms = terms(contract, consumer)
        self._link = contract.link(consumer)
        self._router = world.log.router if world.route.main else of_route(world.log.router, world.route.partitions)
        self._records = Records(contract, world.log.form, run_id, world.route.since)
        self.problems: list[str] = []
        self.restated: list[Correction] = []
        self.deleting: list[Correction] = []
        for each in contract.consumers if world.route.main else (consumer,):
            if each.isolation == "read_uncommitted":
                self.problems.append(
                    f"{each.group} reads uncommitted records: it would apply corrections that are taken back"
                )

    def item(self, finding: Finding) -> Item:
        treatment = plan_rules.by_finding(finding, self._terms)
        if not treatment.action.writes or finding.aggregate_id is None:
            return _item(self._link, finding, treatment)
        log, key_type = self._world.log, self._contract.topic.key.type
        trace = log.traces.get(finding.aggregate_id, Trace())
        key = _key(finding.aggregate_id, trace, key_type, log.form)
        rows = self._world.rows.get(finding.aggregate_id, ())
        present = [each for each in rows if not each.gone]
        home = self._router.home(key) if key is not None else None
        facts = AggregateFacts(
            rows=len(present),
            version=present[0].version if present else None,
            log_version=trace.version,
            lagging=self._lagging(trace, home) if home is not None else (),
            key_known=key is not None,
            state_known=bool(rows) or trace.body is not None,
            last_version=rows[0].version if rows else trace.version,
        )
        treatment = plan_rules.treat(finding, self._terms, facts)
        if not treatment.action.writes or key is None:
            return _item(self._link, finding, treatment)
        if home is None:
            self.problems.append(unknown_home(self._contract.topic.name, log.inference))
            return _item(self._link, finding, treatment)
        row = next(iter(present or rows), None)
        partitions = self._partitions(treatment, trace, home)
        place = _Place(self._world.route.topic, partitions, key)
        item = _item(self._link, finding, treatment, place, row)
        self._tried(item, known(finding.aggregate_id, trace, key_type), row)
        return item

    def warnings(self, corrections: Sequence[Item]) -> list[str]:
        log = self._world.log
        return [
            *plan_warnings.of_log(corrections, log.traces, log.inference),
            *plan_warnings.of_consumer(self._contract, self._consumer, main=self._world.route.main),
            *plan_warnings.of_values(self._contract, log.form),
        ]

    def _lagging(self, trace: Trace, home: int) -> tuple[int, ...]:
        """Give the other partitions where the group has not come to the aggregate's last record."""
        if self._world.route.main:
            places = {partition: last for partition, last in trace.last.items() if partition != home}
        else:
            places = dict(trace.last)
        committed = self._world.committed
        return tuple(sorted(p for p, last in places.items() if (committed.get(p) or 0) <= last))

    def _partitions(self, treatment: Treatment, trace: Trace, home: int) -> tuple[int, ...]:
        holds = trace.newest
        both = treatment.action is Action.TOMBSTONE and self._world.log.compacted and self._world.route.main
        return (home,) if holds is None or holds == home or not both else tuple(sorted((home, holds)))

    def _tried(self, item: Item, known: Known, row: SourceRow | None) -> None:
        """Write the records, so that what cannot be written is known before anybody says yes."""
        try:
            written = self._records.of(item, known, row)
        except MisfitError as error:
            self.problems.append(str(error))
            return
        if item.action is Action.RESTATE:
            self.restated += written
        else:
            self.deleting += written


def _key(id_text: str, trace: Trace, key_type: str, form: TopicForm) -> bytes | None:
    """Give the bytes that the aggregate's own records have; else those that its id is written as."""
    if trace.key is None and not form.rebuilds_keys:
        return None
    try:
        return known(id_text, trace, key_type).key
    except ValueError:
        return None


@dataclass(frozen=True)
class _Place:
    topic: str
    partitions: tuple[int, ...]
    key: bytes


def _item(
    link: str,
    finding: Finding,
    treatment: Treatment,
    place: _Place | None = None,
    row: SourceRow | None = None,
) -> Item:
    if place is None or finding.aggregate_id is None:
        return Item(
            link=link,
            aggregate_id=finding.aggregate_id,
            action=treatment.action,
            cause=finding.cause,
            reason=treatment.reason,
        )
    version = None if row is None else row.version
    basis = None if row is None or row.gone else row.basis
    return Item(
        link=link,
        aggregate_id=finding.aggregate_id,
        action=treatment.action,
        cause=finding.cause,
        reason=treatment.reason,
        topic=place.topic,
        partitions=place.partitions,
        basis_version=version,
        basis=basis,
        correction_id=correction_id(link, finding.aggregate_id, version, basis),
        key=key_digest(place.key),
    )


def _sorted(items: Iterable[Item]) -> tuple[Item, ...]:
    order = list(Action)
    return tuple(sorted(items, key=lambda each: (order.index(each.action), each.aggregate_id or "", each.cause)))


def _brought(event: str, brought: set[Path]) -> bool:
    """Tell whether a value has all that an event's expression looks at."""
    return all(
        any(path[:length] in brought for length in range(1, len(path) + 1))
        for path in map(path_of, mapping.paths(event))
    )
