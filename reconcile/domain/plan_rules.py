"""What is done about a finding: decided by its cause, its difference, the contract's terms and how things are now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from reconcile.domain.cause import Cause
from reconcile.domain.finding import Confidence, Difference, Finding, Status
from reconcile.domain.key import is_keepable
from reconcile.domain.outbox import WaitingEvents
from reconcile.domain.parking import LIBRARY_STASH

ARRIVED = "moved on: an event of it was published since the run read the log"


class Action(StrEnum):
    """What is done about a finding."""

    RESTATE = "restate"
    """An event that carries the source's current state and version."""
    COMPENSATE = "compensate"
    """An event with what the copy's sums lack."""
    TOMBSTONE = "tombstone"
    """An event that deletes the aggregate."""
    ADVICE = "advice"
    """Nothing that a record could mend: a person has to act, and the reason says how."""
    NOT_REPAIRED = "left"
    """Nothing now: the reason says why."""

    @property
    def writes(self) -> bool:
        """Whether it emits a record."""
        return self in (Action.RESTATE, Action.COMPENSATE, Action.TOMBSTONE)


@dataclass(frozen=True)
class Treatment:
    """What is done, and why."""

    action: Action
    reason: str


@dataclass(frozen=True)
class PlanTerms:
    """What a contract says of a link, as far as it decides what is repaired."""

    causes: frozenset[Cause] | None = None
    """The causes that are repaired; None for every one with a safe repair."""
    deletes: bool = False
    min_confidence: Confidence = Confidence.PROBABLE
    """How sure the cause has to be for a restatement; a deletion wants it certain."""
    guard: Literal["none", "newer", "newer-or-equal"] = "none"
    records: bool = False
    """Whether the copy holds one immutable row for each event."""
    carried: frozenset[str] = frozenset()
    """The compared fields that a correction carries."""
    adds: frozenset[str] = frozenset()
    """The compared fields that events add to; a restatement carries no such change."""
    compensates: frozenset[str] = frozenset()
    """Those of them whose difference an event may bring."""
    restates: bool = True
    """Whether the contract says how a value is built."""
    deletable: bool = True
    """Whether a record that deletes can be written."""
    tombstones: bool = True
    """Whether it carries no state."""
    versioned: bool = False
    """Whether it carries a version."""
    isolation_known: bool = True
    """Whether it says how the group reads: a reader of uncommitted records applies what is taken back."""


@dataclass(frozen=True)
class AggregateFacts:
    """What is known of an aggregate when the plan is made."""

    rows: int = 1
    """How often the source has it."""
    version: int | None = None
    """The source's version."""
    log_version: int | None = None
    """The newest version in the log."""
    lagging: tuple[int, ...] = ()
    """Partitions beside its home where the group has not come to the last of its records."""
    keyless: str | None = None
    """Why the bytes of its key are not known."""
    state_known: bool = True
    """Whether the source or the log has a state of it."""
    last_version: int | None = None
    """The version of that state: the one that a deletion would carry."""
    stamped: bool = False
    """Whether a tombstone would carry it, in a header."""
    waiting: WaitingEvents | None = None
    """What waits in the source's outbox now."""
    unproven: tuple[str, ...] = ()
    """Why it is not proven that the aggregate is gone where the source does not show it."""
    alive: bool = False
    """Whether the log's newest event of it says that it exists."""
    arrived: bool = False
    """Whether the log has records of it that it did not have when the run read it."""
    unsettled: str | None = None
    """Why nobody can say what its sums lack."""


def treat(finding: Finding, terms: PlanTerms, facts: AggregateFacts) -> Treatment:
    """Choose what is done about a finding."""
    base = by_finding(finding, terms)
    if not base.action.writes:
        return base
    decide = _against_deletion if base.action is Action.TOMBSTONE else _against_restatement
    against = _against_overtaking(finding, facts) or decide(finding, terms, facts)
    if against is None and facts.keyless is not None:
        against = _advice(f"{facts.keyless}: let its owner publish it once")
    if against is None and facts.lagging:
        where = ", ".join(map(str, facts.lagging))
        against = _not_repaired(
            f"the group has not consumed its records in partition {where}: they could overtake a correction"
        )
    if against is None and base.action is Action.COMPENSATE and facts.unsettled is not None:
        against = _not_repaired(facts.unsettled)
    return against or Treatment(base.action, base.reason + _not_brought(finding, terms, base.action))


def published_since(cause: str, basis: int | None, logged: int | None) -> bool:
    """Decide whether the log has what a correction would say: for a change that no event had told, its own event too.

    A version that nobody knows decides nothing.
    """
    if basis is None or logged is None:
        return False
    return logged > basis or (logged == basis and cause == Cause.NEVER_PUBLISHED)


def decided_by_arrival(cause: str, version: int | None) -> bool:
    """Decide whether any event since the run read the log may say what a correction would say."""
    return cause == Cause.NEVER_PUBLISHED or version is None


def by_finding(finding: Finding, terms: PlanTerms) -> Treatment:
    """Choose what would be done about a finding as far as it and the contract alone show."""
    base = _by_status(finding) or _by_cause(finding, terms)
    if base.action.writes:
        base = _against_contract(finding, terms, base) or _compensated(finding, terms, base)
    if base is _RELEASE and any(each.topic == LIBRARY_STASH and each.unresolved for each in finding.evidence):
        consumer = finding.link.rpartition("/")[2]
        options = f"CONTRACT --consumer {consumer} --handler MODULE:FUNCTION --id ID"
        return _advice(f"{base.reason}: reconcile stash drain {options}")
    return _ISOLATION_UNKNOWN if base.action.writes and not terms.isolation_known else base


def _by_status(finding: Finding) -> Treatment | None:
    if finding.aggregate_id is None:
        return _advice("rows without an id cannot be addressed: delete them, or give them one")
    if not is_keepable(finding.aggregate_id):
        return _advice("no correction of it could be written down first: its id is no text of up to 1,000 bytes")
    if finding.status is Status.IN_FLIGHT:
        return TABLE[Cause.IN_FLIGHT][finding.difference]
    if finding.status is Status.INCOMPLETE:
        return _not_repaired("it is not confirmed: something that would tell could not be read")
    if finding.status is Status.TOLERATED or finding.equivalent:
        gone = finding.difference is Difference.MISSING
        return _not_repaired(f"tolerated: {'its row may have expired' if gone else 'a reader sees no difference'}")
    return None


def _by_cause(finding: Finding, terms: PlanTerms) -> Treatment:
    if finding.cause is Cause.UNDETERMINED and terms.causes is not None and finding.cause in terms.causes:
        return _MENDED[finding.difference]
    return TABLE[finding.cause][finding.difference]


def _against_contract(finding: Finding, terms: PlanTerms, base: Treatment) -> Treatment | None:
    """Say why no record is written, by what waits in the failure topics and what the contract permits."""
    if terms.causes is not None and finding.cause not in terms.causes:
        return _not_repaired(f"the contract does not repair {finding.cause}: see repair.causes")
    deletes = base.action is Action.TOMBSTONE
    if (outbox := next((each for each in finding.evidence if each.kind == "outbox"), None)) is not None:
        return _waits(WaitingEvents(1, since=outbox.at))
    waiting = {each.kind for each in finding.evidence if each.unresolved}
    # What is older than a correction is ignored by a copy that compares versions, as long as it has the row.
    harmed = terms.guard == "none" or deletes
    for cause, kind in ((Cause.STASHED, "stash"), (Cause.RETRYING, "retry")):
        if harmed and kind in waiting:
            return TABLE[cause][finding.difference]
    if (unsure := _unsure(finding, terms, deletes=deletes)) is not None:
        return unsure
    if terms.records and finding.difference is not Difference.MISSING:
        return _advice("the copy never changes what it has: correct or delete its row by hand")
    if deletes:
        return None if terms.deletes else _not_repaired("the contract permits no deletions: see repair.deletes")
    return _not_carried(finding, terms)


def _unsure(finding: Finding, terms: PlanTerms, *, deletes: bool) -> Treatment | None:
    """Say that the cause is not sure enough, if it is not."""
    if not (finding.confidence.reaches(terms.min_confidence) or _is_mended_alike(finding, terms)):
        return _advice(f"its cause is {finding.confidence} only: look at it, or lower repair.min_confidence")
    if deletes and terms.deletes and finding.confidence is not Confidence.CERTAIN:
        return _advice(f"its cause is {finding.confidence}, and only a certain one is deleted for: look at it")
    return None


def _is_mended_alike(finding: Finding, terms: PlanTerms) -> bool:
    """Whether the same record mends the copy, whichever of the causes that a finding names it was."""
    if terms.min_confidence is Confidence.CERTAIN or not finding.alternatives:
        return False
    allowed = set(Cause) if terms.causes is None else terms.causes
    causes = {finding.cause, *finding.alternatives}
    return causes <= allowed and all(TABLE[each][finding.difference].action is Action.RESTATE for each in causes)


def _not_carried(finding: Finding, terms: PlanTerms) -> Treatment | None:
    """Say why no event could carry what differs, if none could."""
    if not terms.restates:
        return _advice("the contract does not say how a value is built: add topic.value")
    if _sums(finding, terms):
        return _lies_unresolved(finding)
    differ = {each.name for each in finding.fields}
    if terms.adds and (finding.difference is Difference.MISSING or (differ and differ <= terms.adds)):
        names = ", ".join(sorted(terms.adds & differ or terms.adds))
        return _advice(f"{names} is a sum of changes, which no state can restate: book the difference in the copy")
    if differ and not differ & terms.carried:
        return _advice(f"no correction brings {', '.join(sorted(differ))}: correct the copy by hand")
    return None


def _sums(finding: Finding, terms: PlanTerms) -> frozenset[str]:
    """Choose the sums that differ, if an event with the difference may bring them all."""
    wrong = terms.adds & {each.name for each in finding.fields}
    fits = finding.difference is Difference.CHANGED and wrong <= terms.compensates
    return frozenset(wrong) if fits else frozenset()


def _lies_unresolved(finding: Finding) -> Treatment | None:
    """Say that an event of it lies somewhere, and would be added to what a difference brings."""
    kind = next((each.kind for each in finding.evidence if each.unresolved), None)
    if kind is None:
        return None
    return _advice(f"an unresolved event of it lies in the {kind.replace('_', ' ')} topic: resolve it first")


def _compensated(finding: Finding, terms: PlanTerms, base: Treatment) -> Treatment:
    """Choose the event with the difference where sums differ."""
    wrong = _sums(finding, terms)
    if base.action is not Action.RESTATE or not wrong:
        return base
    return Treatment(Action.COMPENSATE, f"{base.reason}; {', '.join(sorted(wrong))} gets the difference")


def _against_overtaking(finding: Finding, facts: AggregateFacts) -> Treatment | None:
    """Say that the source's own event is on its way or was published since, if it is: both would be applied then."""
    if facts.waiting is not None:
        return _waits(facts.waiting)
    if facts.arrived and decided_by_arrival(finding.cause, facts.version):
        return _not_repaired(ARRIVED)
    return None


def _waits(events: WaitingEvents) -> Treatment:
    return _not_repaired(f"an event of it waits in the source's outbox{events.age}: see why it is not published")


def _against_restatement(finding: Finding, terms: PlanTerms, facts: AggregateFacts) -> Treatment | None:
    """Say why an aggregate is not restated, if it is not."""
    if facts.rows > 1:
        return _SOURCE_TWICE
    if not facts.rows:
        return _not_repaired("moved on: the source no longer has it")
    if finding.source_version != facts.version:
        return _not_repaired(f"moved on: the source is at version {facts.version}, and was at {finding.source_version}")
    if published_since(finding.cause, facts.version, facts.log_version):
        return _not_repaired(f"moved on: the log is at version {facts.log_version} already")
    return _ignored(finding, terms, facts.version)


def _ignored(finding: Finding, terms: PlanTerms, ours: int | None) -> Treatment | None:
    """Say that the consumer's own check would refuse a record's version, if it would."""
    theirs = finding.consumer_version
    if terms.guard == "none" or theirs is None or ours is None:
        return None
    if ours > theirs or (ours == theirs and terms.guard == "newer-or-equal"):
        return None
    return _advice(
        f"the consumer would ignore it: its copy is at version {theirs} and it takes only what is"
        f" {'newer' if terms.guard == 'newer' else 'as new or newer'}; a correction is at {ours}: correct it by hand"
    )


def _against_deletion(finding: Finding, terms: PlanTerms, facts: AggregateFacts) -> Treatment | None:
    """Say why an aggregate is not deleted, if it is not."""
    if facts.rows:
        return _not_repaired("moved on: the source has it again")
    if facts.unproven:
        why = "; ".join(facts.unproven)
        return _advice(f"nothing proves that the source has it no more ({why}): look at its primary")
    if facts.alive:
        return _advice("the log's newest event of it does not delete it: let its owner publish the deletion")
    if not terms.deletable:
        return _advice("topic.delete_as does not say how a deletion is written: delete its row by hand")
    if not (terms.tombstones or facts.state_known):
        return _advice("neither source nor log has a state that a deletion could be made of: delete its row by hand")
    if terms.versioned and facts.last_version is None:
        return _advice("neither source nor log has a version that a deletion could carry: delete its row by hand")
    return _ignored(finding, terms, facts.last_version) if terms.versioned or facts.stamped else None


def _not_brought(finding: Finding, terms: PlanTerms, action: Action) -> str:
    """Name the fields that differ and that the correction does not bring."""
    brought = terms.compensates if action is Action.COMPENSATE else terms.carried
    rest = sorted({each.name for each in finding.fields} - brought)
    return f"; it does not bring {', '.join(rest)}" if rest else ""


def _advice(reason: str) -> Treatment:
    return Treatment(Action.ADVICE, reason)


def _not_repaired(reason: str) -> Treatment:
    return Treatment(Action.NOT_REPAIRED, reason)


_ISOLATION_UNKNOWN = _advice(
    "the contract does not say whether the group reads uncommitted records, and would apply corrections that are taken"
    " back: declare consumers[].isolation as the group's clients are set (Java, Spring and Connect read uncommitted"
    " records unless told otherwise)"
)
_SOURCE_TWICE = _advice("the source holds the id more than once: nobody can tell which row is right")
_RELEASE = _advice("release the stash first: what lies there would overwrite a correction")
_SURPLUS = _advice("delete the surplus row: a record could only add another one")
_AGREES = _not_repaired("the state agrees: there is nothing to restate")
_EACH = tuple(Difference)


def _all(treatment: Treatment) -> Mapping[Difference, Treatment]:
    return dict.fromkeys(_EACH, treatment)


def _mended(why: str, latent: Treatment = _AGREES) -> Mapping[Difference, Treatment]:
    return {
        Difference.MISSING: Treatment(Action.RESTATE, why),
        Difference.ORPHAN: Treatment(Action.TOMBSTONE, why),
        Difference.CHANGED: Treatment(Action.RESTATE, why),
        Difference.DUPLICATED: _SURPLUS,
        Difference.LATENT: latent,
    }


def _but(rules: Mapping[Difference, Treatment], latent: Treatment) -> Mapping[Difference, Treatment]:
    return {**rules, Difference.LATENT: latent}


_MENDED = _mended("nothing shows why it differs, and the contract asks for its repair")
TABLE: Mapping[Cause, Mapping[Difference, Treatment]] = {
    Cause.IN_FLIGHT: _all(_not_repaired("it is in flight: the event will arrive by itself")),
    Cause.STASHED: _but(
        _all(_RELEASE),
        _advice("an overtaken record lies in the stash: discard it, or see that it is not applied over newer state"),
    ),
    Cause.RETRYING: _but(
        _all(_advice("it is on its way: what waits in the retry topic would overwrite a correction")),
        _advice("an overtaken record waits in a retry topic: stop it there, or it overwrites newer state"),
    ),
    Cause.DEAD_LETTERED: _mended(
        "its event was dead-lettered; redriven later, that overwrites this unless the consumer compares versions",
        _advice("an overtaken record lies among the dead letters: discard it, or redrive it with care"),
    ),
    Cause.SKIPPED: _mended("the consumer skipped an event"),
    Cause.OUT_OF_ORDER: _mended("an older event was applied after a newer one"),
    Cause.DUPLICATE_APPLIED: _mended("an event was applied twice"),
    Cause.NEVER_PUBLISHED: _mended("the change was never published: mend the publisher as well"),
    Cause.EXPIRED: _mended("the events that would tell have expired"),
    Cause.MISROUTED: _mended(
        "its events stand in several partitions: mend the publisher that writes by another partitioner as well",
        _not_repaired("the state agrees: mend the publisher that writes by another partitioner"),
    ),
    Cause.SOURCE_REGRESSED: _all(_advice("the source has lost what it published: decide who is right")),
    Cause.PAYLOAD_DIVERGENCE: _mended("the event says something else than the source: mend the publisher as well"),
    Cause.SCHEMA_VIOLATION: _mended("the record that carries the state cannot be read: mend the publisher as well"),
    Cause.PHANTOM: _mended("nobody but the copy ever knew it: find who wrote it"),
    Cause.FOREIGN_WRITE: _mended("something else wrote the copy: find who did"),
    Cause.UNDETERMINED: {
        **_all(_advice("nothing shows why it differs: look at it, or name `undetermined` in repair.causes")),
        Difference.DUPLICATED: _SOURCE_TWICE,
        Difference.LATENT: _AGREES,
    },
}
