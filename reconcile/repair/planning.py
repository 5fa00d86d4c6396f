"""Planning: the findings of a run, the contract and the world as it stands now become a plan that people can review."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconcile.audit.home_partition import Router
from reconcile.audit.link_facts import ledger_by_position
from reconcile.audit.partitioner_inference import Inference
from reconcile.contract.model import Consumer, Contract
from reconcile.contract.terms import TOMBSTONE
from reconcile.domain import plan_rules
from reconcile.domain.cause import Cause
from reconcile.domain.correction import Correction, correction_id, key_digest
from reconcile.domain.finding import Confidence, Finding
from reconcile.domain.key_form import KeyForms
from reconcile.domain.outbox import WaitingEvents
from reconcile.domain.plan import Caps, Item, LinkPlan, OutsideReader
from reconcile.domain.plan_rules import Action, AggregateFacts, PlanTerms, Treatment
from reconcile.kafka.transactions import OpenTransaction
from reconcile.repair import connect_schema
from reconcile.repair.compensation import Sums, compensable
from reconcile.repair.correction_writer import CorrectionWriter, added, carried, deletable, versioned_deletion
from reconcile.repair.json_values import MisfitError, Path, RowMisfitError, path_of, written
from reconcile.repair.logged_aggregates import LoggedAggregate
from reconcile.repair.source_values import SourceRow, current_row
from reconcile.repair.topic_form import TopicForm, header_name, is_mark


@dataclass(frozen=True)
class TopicFacts:
    """What is known of the topic when a plan is made."""

    inference: Inference
    router: Router
    form: TopicForm
    compacted: bool
    aggregates: Mapping[str, LoggedAggregate] = field(default_factory=dict)
    """What the log has of the aggregates, by their ids."""


@dataclass(frozen=True)
class Route:
    """Where the corrections of a link go."""

    topic: str
    id: str
    partitions: int
    since: Mapping[int, int]
    readers: tuple[str, ...]
    main: bool
    outside: tuple[OutsideReader, ...] = ()
    sees_all_groups: bool = True
    undecided: tuple[OpenTransaction, ...] = ()
    """Where a transaction is open."""


@dataclass(frozen=True)
class LinkFacts:
    """All that one link is planned by, beside its findings."""

    topic: TopicFacts
    route: Route
    committed: Mapping[int, int | None]
    """How far the group has come in the main topic."""
    rows: Mapping[str, Sequence[SourceRow]]
    """The source's rows now."""
    waiting: Mapping[str, WaitingEvents] = field(default_factory=dict)
    """What waits in the source's outbox now, by the aggregate's id."""
    unproven: tuple[str, ...] = ()
    """Why it is not proven that an id is gone which the source does not show."""
    log_ends: Mapping[int, int] = field(default_factory=dict)
    """Where each partition ended when the run read the log."""
    sums: Mapping[str, Sums] = field(default_factory=dict)
    """What the copy's sums lack, by the aggregate's id."""
    misread: Callable[[Sequence[Correction], Sequence[Correction]], Sequence[str]] = lambda *_: ()
    """Says what restatements and deletions would bring, read as events, that is not what the source says."""


def terms(contract: Contract, consumer: Consumer) -> PlanTerms:
    """Take from the contract what decides on repairs."""
    repair, fields = consumer.repair, consumer.fields
    causes = None if repair.causes is None else frozenset(Cause(each) for each in repair.causes)
    brought = {path_of(name) for name in carried(contract)}
    replaced = (each for each in fields if each.apply == "set" and each.event is not None)
    return PlanTerms(
        causes=causes,
        deletes=repair.deletes,
        min_confidence=Confidence(repair.min_confidence),
        guard=consumer.guard,
        records=consumer.semantics == "records",
        carried=frozenset(each.name for each in replaced if _brought(each.event_paths, brought)),
        adds=frozenset(each.name for each in fields if each.apply == "add"),
        restates=contract.topic.value is not None,
        deletable=deletable(contract.topic),
        tombstones=contract.topic.deletions == (TOMBSTONE,),
        versioned=versioned_deletion(contract.topic),
        isolation_known=consumer.isolation is not None,
        compensates=frozenset(compensable(consumer)),
    )


def carried_paths(contract: Contract) -> tuple[Path, ...]:
    """List the paths that a correction carries, where events carry only some; none where they carry all."""
    if contract.topic.state == "full":
        return ()
    brought = {path_of(name) for name in carried(contract)}
    fields = (each for consumer in contract.consumers for each in consumer.fields if each.apply == "set")
    paths = {path_of(path) for each in fields for path in each.event_paths}
    return tuple(sorted(path for path in paths if path in brought))


def to_write(findings: Sequence[Finding], contract: Contract, consumer: Consumer) -> list[str]:
    """Choose the ids that records would be written for, by the findings and the contract alone."""
    return [
        each.aggregate_id
        for each in by_findings(findings, contract, consumer)
        if each.aggregate_id is not None and each.action.writes
    ]


def to_compensate(findings: Sequence[Finding], contract: Contract, consumer: Consumer) -> list[str]:
    """Choose the ids whose sums would get a difference, by the findings and the contract alone."""
    items = by_findings(findings, contract, consumer)
    return [each.aggregate_id for each in items if each.aggregate_id and each.action is Action.COMPENSATE]


def by_findings(findings: Sequence[Finding], contract: Contract, consumer: Consumer) -> tuple[Item, ...]:
    """Build the items of a plan that is refused, or that needs no look at the world."""
    decided_by, link = terms(contract, consumer), contract.link(consumer)
    return _sorted(_item(link, each, plan_rules.by_finding(each, decided_by)) for each in findings)


def planned(
    empty: LinkPlan, findings: Sequence[Finding], contract: Contract, consumer: Consumer, run_id: str, facts: LinkFacts
) -> LinkPlan:
    """Build the plan of a link; each of its corrections can be written, or it says why not."""
    drafting = _Drafting(contract, consumer, run_id, facts)
    drafts = [drafting.draft(each) for each in findings]
    plan = empty.replaced(
        topic=facts.route.topic,
        topic_id=facts.route.id,
        partitions=facts.route.partitions,
        partitioner=tuple(each.value for each in facts.topic.router.candidates),
        since=dict(facts.route.since),
        readers=facts.route.readers,
        outside=facts.route.outside,
        sees_all_groups=facts.route.sees_all_groups,
        items=_sorted(each.item for each in drafts),
    )
    if not plan.corrections:
        return plan
    restating = any(each.action is Action.RESTATE for each in plan.corrections)
    problems = (
        *(_lacking(contract, facts.topic.form) if restating else ()),
        *_uncommitted_readers(contract, consumer, facts.route),
        *_others_that_add(plan.corrections, facts.route),
        *(each.problem for each in drafts),
    )
    restated, deleting = (
        [record for each in drafts if each.item.action is action for record in each.corrections]
        for action in (Action.RESTATE, Action.TOMBSTONE)
    )
    warnings = (
        *_route_warnings(facts.route),
        *_log_warnings(plan.corrections, facts.topic),
        *_consumer_warnings(contract, consumer, main=facts.route.main),
    )
    return plan.replaced(
        warnings=(*empty.warnings, *warnings),
        refused=(
            *empty.refused,
            *dict.fromkeys(each for each in problems if each is not None),
            *facts.misread(restated, deleting),
        ),
    )


def with_key(id_text: str, logged: LoggedAggregate | None, form: KeyForms | None) -> LoggedAggregate:
    """Fill in the key of an aggregate whose records do not show it, if its id has one in the form of all keys."""
    found = logged or LoggedAggregate()
    if found.key is not None or form is None:
        return found
    try:
        return replace(found, key=form.key(id_text))
    except ValueError:
        return found


def unknown_home(topic: str, inference: Inference) -> str:
    """Say why it is not known where a key's future events will be."""
    shares = ", ".join(f"{name} {share:.0%}" for name, share in sorted(inference.shares.items(), key=lambda e: -e[1]))
    seen = f"of {inference.seen:,} records {shares} explain" if inference.seen else "no record tells"
    todo = "set topic.partitioner" if inference.trusted else "mend the publishers that differ"
    return f"it is not known where the keys of {topic} belong: {seen} their place; {todo}"


def caps(consumer: Consumer, corrections: int, aggregates: int) -> tuple[str, ...]:
    """Say which of a contract's caps a number of corrections exceeds."""
    repair = consumer.repair
    return Caps(repair.max_corrections, repair.max_ratio).exceeded(corrections, aggregates) if corrections else ()


_NOT_READ = Sums(unsettled="its sums were not read")
_TOO_DEEP = Treatment(Action.ADVICE, "its values are nested deeper than can be read: correct the copy by hand")


@dataclass(frozen=True)
class _ItemDraft:
    """An item with its records, or why they cannot be written."""

    item: Item
    corrections: Sequence[Correction] = ()
    problem: str | None = None


class _Drafting:
    def __init__(self, contract: Contract, consumer: Consumer, run_id: str, facts: LinkFacts) -> None:
        self._contract, self._facts = contract, facts
        self._terms = terms(contract, consumer)
        self._link = contract.link(consumer)
        router, route = facts.topic.router, facts.route
        # The same producers write to a topic of the repair's own, and that has never grown.
        self._router = router if route.main else replace(router, partitions=route.partitions, former=())
        self._writer = CorrectionWriter(contract, facts.topic.form, run_id, route.since)
        self._stamped = header_name(contract.topic.version) is not None and facts.topic.form.versioned_tombstones

    def draft(self, finding: Finding) -> _ItemDraft:
        """Build the item of a finding, and its records, so that what cannot be written is known before a yes."""
        item = _item(self._link, finding, plan_rules.by_finding(finding, self._terms))
        if not item.action.writes or item.aggregate_id is None:
            return _ItemDraft(item)
        logged = self._logged(item.aggregate_id)
        home = None if logged.key is None else self._router.home(logged.key)
        rows = self._facts.rows.get(item.aggregate_id, ())
        treatment = plan_rules.treat(finding, self._terms, self._aggregate(item.aggregate_id, logged, home, rows))
        item = _item(self._link, finding, treatment)
        if not item.action.writes or logged.key is None:
            return _ItemDraft(item)
        if home is None:
            return _ItemDraft(item, problem=unknown_home(self._contract.topic.name, self._facts.topic.inference))
        row = current_row(rows)
        if row is not None and row.too_deep:
            return _ItemDraft(_item(self._link, finding, _TOO_DEEP))
        item = _corrected(item, row, logged.key, self._facts.route.topic, self._partitions(item, logged, home))
        if item.action is Action.COMPENSATE:
            item = item.model_copy(update={"amounts": dict(self._facts.sums[item.aggregate_id or ""].amounts)})
        try:
            return _ItemDraft(item, self._writer.of(item, logged, row))
        except RecursionError:
            return _ItemDraft(_item(self._link, finding, _TOO_DEEP))
        except RowMisfitError as error:
            return _ItemDraft(_item(self._link, finding, Treatment(Action.ADVICE, f"it cannot be written: {error}")))
        except MisfitError as error:
            return _ItemDraft(item, problem=str(error))

    def _logged(self, id_text: str) -> LoggedAggregate:
        """Look up what the log has of an aggregate, with the key that its id is written as if the log shows none."""
        return with_key(id_text, self._facts.topic.aggregates.get(id_text), self._facts.topic.form.keys)

    def _aggregate(
        self, id_text: str, logged: LoggedAggregate, home: int | None, rows: Sequence[SourceRow]
    ) -> AggregateFacts:
        present = [each for each in rows if not each.gone]
        return AggregateFacts(
            rows=len(present),
            version=present[0].version if present else None,
            log_version=logged.version,
            lagging=() if home is None else self._lagging(logged, home),
            keyless=self._keyless(logged),
            state_known=bool(rows) or logged.body is not None,
            last_version=rows[0].version if rows else logged.version,
            stamped=self._stamped,
            waiting=self._facts.waiting.get(id_text),
            unsettled=self._facts.sums.get(id_text, _NOT_READ).unsettled,
            unproven=self._facts.unproven,
            alive=logged.alive,
            arrived=logged.arrived_since(self._facts.log_ends),
        )

    def _keyless(self, logged: LoggedAggregate) -> str | None:
        """Say why the key of an aggregate is not known, if it is not."""
        if logged.key is not None:
            return None
        if self._facts.topic.form.keys is None:
            return "no record of it shows its key, and the topic's keys have several forms"
        return "no record of it shows its key, and its id cannot be written as the topic's keys are"

    def _lagging(self, logged: LoggedAggregate, home: int) -> tuple[int, ...]:
        """Choose the other partitions where the group has not come to the aggregate's last record."""
        own = home if self._facts.route.main else None
        committed = self._facts.committed
        return tuple(sorted(p for p, last in logged.last.items() if p != own and (committed.get(p) or 0) <= last))

    def _partitions(self, item: Item, logged: LoggedAggregate, home: int) -> tuple[int, ...]:
        if item.action is not Action.TOMBSTONE or not (self._facts.topic.compacted and self._facts.route.main):
            return (home,)
        return tuple(sorted({home} if logged.newest is None else {home, logged.newest}))


def _uncommitted_readers(contract: Contract, consumer: Consumer, route: Route) -> list[str]:
    """Name the contract's groups that would apply corrections that are taken back, or may."""
    readers = [each for each in contract.consumers if route.main or each is consumer or each.group in route.readers]
    return [
        f"by the contract {each.group} reads uncommitted records: it would apply corrections that are taken back"
        if each.isolation
        else f"the contract does not say whether {each.group} reads uncommitted records, and it reads {route.topic}"
        " too: declare its `isolation`"
        for each in readers
        if each.isolation != "read_committed"
    ]


def _others_that_add(corrections: Sequence[Item], route: Route) -> list[str]:
    """Name the other groups that would add the differences of sums to what they keep."""
    if not route.readers or all(each.action is not Action.COMPENSATE for each in corrections):
        return []
    return [
        f"{route.topic} is also read by {', '.join(route.readers)}, and each group adds the difference of a sum: give"
        " the consumer a route of its own, or delete what the others have committed there"
    ]


def _route_warnings(route: Route) -> list[str]:
    """Name the readers of the corrections of whom the contract says nothing, and the transactions that are open."""
    found = []
    if route.outside:
        named = ", ".join(map(str, route.outside))
        found.append(
            f"{route.topic} is also read by groups that the contract does not name: {named}. Whether they read"
            " uncommitted records is not known; those that do would apply corrections that are taken back"
        )
    if route.undecided:
        where = "; ".join(map(str, route.undecided))
        found.append(f"a transaction is open in {route.topic}, and corrections behind it wait until it ends: {where}")
    return found


def _log_warnings(corrections: Sequence[Item], topic: TopicFacts) -> list[str]:
    """Say what is odd about where the aggregates' records are."""
    found = []
    inference = topic.inference
    logged = (topic.aggregates.get(each.aggregate_id or "") for each in corrections)
    split = sum(each is not None and len(each.last) > 1 for each in logged)
    if split:
        found.append(f"{split:,} of the aggregates have records in more than one partition")
    if inference.contradicted:
        said = "none" if inference.declared is None else inference.declared.value
        found.append(f"the contract says partitioner: {said}, and the log shows otherwise: the log counts")
    return found


def _consumer_warnings(contract: Contract, consumer: Consumer, *, main: bool) -> list[str]:
    """Say what the consumer may do with a correction."""
    found = []
    if ledger_by_position(contract, consumer):
        found.append(
            "the ledger knows events by their position in the source, and corrections have none: see that the consumer"
            " does not take them all for one event"
        )
    if not main and consumer.guard == "none":
        found.append(
            "nothing orders the corrections with the events of the main topic, and the consumer compares no versions:"
            " see that the source is quiet"
        )
    if consumer.guard != "none" and consumer.version is None:
        found.append(
            "the consumer compares versions, and the contract names no column with its own: it may ignore some"
        )
    return found


def _lacking(contract: Contract, form: TopicForm) -> list[str]:
    """Name what all of the topic's records carry and corrections would not: readers would take that for gone."""
    topic = contract.topic
    if topic.state != "full" or topic.format in ("avro", "protobuf"):
        return []  # a patch carries what changed; what a schema fills in is looked at as each value is written
    beside = (topic.version, topic.event_id, topic.type, topic.correlation_id)
    names = (*carried(contract), *(place for place in beside if place is not None and header_name(place) is None))
    above = form.codec.row_path
    given = {path_of(name) for name in names} | added(contract)
    there = {path[len(above)] for path in given if path[: len(above)] == above and len(path) > len(above)}
    # A column of the newest schema alone is filled in as null, though older records do not have it yet.
    columns = {name for name in connect_schema.fields(form.codec.row_schema or {}) if not is_mark(name)}
    said = [
        f"topic.value leaves out {', '.join(written((*above, name)) for name in lacking)}, which {whose}: readers would"
        " take that for gone"
        for names, whose in (
            (form.always, "all records carry"),
            (columns - form.always, "the schema of the newest record has"),
        )
        if (lacking := sorted(names - there - form.marks.keys()))
    ]
    return [] if above in given else said


def _item(link: str, finding: Finding, treatment: Treatment) -> Item:
    return Item(
        link=link,
        aggregate_id=finding.aggregate_id,
        action=treatment.action,
        cause=finding.cause,
        reason=treatment.reason,
    )


def _corrected(item: Item, row: SourceRow | None, key: bytes, topic: str, partitions: tuple[int, ...]) -> Item:
    """Fill in what an item needs to be written."""
    assert item.aggregate_id is not None
    version = None if row is None else row.version
    basis = None if row is None or row.gone else row.basis
    return item.model_copy(
        update={
            "topic": topic,
            "partitions": partitions,
            "basis_version": version,
            "basis": basis,
            "correction_id": correction_id(item.link, item.aggregate_id, version, basis),
            "key": key_digest(key),
        }
    )


def _sorted(items: Iterable[Item]) -> tuple[Item, ...]:
    order = list(Action)
    return tuple(sorted(items, key=lambda each: (order.index(each.action), each.aggregate_id or "", each.cause)))


def _brought(paths: Iterable[str], brought: set[Path]) -> bool:
    """Decide whether a value has all that an event looks at."""
    return all(any(path[:length] in brought for length in range(1, len(path) + 1)) for path in map(path_of, paths))
