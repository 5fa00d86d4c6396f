"""One aggregate's source, log and consumer, simulated with faults: the case that an audit would see, and the truth.

The truth is the simulation's own. A fault is a true cause of a difference if the difference is another one, or none,
where all happens again without that fault. So a loss whose effect was overwritten is no cause, although it happened.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import combinations
from random import Random
from typing import Literal

from reconcile.domain.canonical import Kind
from reconcile.domain.case import Case, Event, FieldRule, LedgerEntry, Link, Parked, ParkedIn, Place, Routing, Row
from reconcile.domain.cause import Cause

FaultKind = Literal[
    "skip", "late", "double", "edit", "stash", "retry", "dead_letter", "lost", "diverge", "misroute", "swap", "twice",
    "unreadable", "regress", "behind", "early", "moved",
]  # fmt: skip
FAULTS: tuple[FaultKind, ...] = (
    "skip", "late", "double", "edit", "stash", "retry", "dead_letter", "lost", "diverge", "misroute", "swap", "twice",
    "unreadable", "regress",
)  # fmt: skip
Values = Mapping[str, str | None]

FULL = tuple(FieldRule(name) for name in ("name", "email", "phone"))
CHANGES = (*FULL, FieldRule("tariff"), FieldRule("balance", Kind.NUMERIC, add=True))
_TARIFFS = "basic", "plus", "gold"
_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
_OTHER_OFFSETS = 1000
_BACK = "its group has committed past it"


def _minute(number: float) -> datetime:
    return _BEGINNING + timedelta(minutes=number)


@dataclass(frozen=True)
class World:
    """How source, topic and consumer of one history work."""

    changes: bool = False
    """Whether events carry what changed, and amounts; otherwise whole states."""
    patch: bool = False
    """Whether they may leave fields out."""
    versions: bool = True
    copy_versions: bool = True
    guard: Literal["none", "newer", "newer-or-equal"] = "none"
    ledger: Literal["none", "each", "once"] = "none"
    """`once`: the consumer ignores what it has noted; an event is applied twice if the first time ended before that."""
    ledger_from: int = 0
    """The ledger has lost its entries from before this change was published."""
    log_from: int = 0
    """The log has lost the records from before this change."""

    @property
    def fields(self) -> tuple[FieldRule, ...]:
        """The compared fields."""
        return CHANGES if self.changes else FULL

    @property
    def evidence(self) -> str:
        """How strong the evidence is, in the words of the table."""
        kinds = [word for word, there in (("ledger", self.ledger != "none"), ("versions", self.copy_versions)) if there]
        return " + ".join(kinds) or "none"


@dataclass(frozen=True, eq=False)
class Fault:
    """Something that went wrong, at the change with this number."""

    kind: FaultKind
    at: int
    by: int = 0
    """Over how many later changes it comes late, or again; below 0 over earlier ones."""
    fields: Values | None = None
    """What is written by hand, or said wrongly; None for a row that is deleted."""
    traced: bool = False
    """Whether what comes late leaves a record in a retry topic."""


@dataclass(frozen=True)
class Change:
    """One change of the source: what its event says, None where it deletes, and the row after it."""

    fields: Values | None
    after: Values | None


@dataclass
class _Record:
    number: int
    key: float
    """Where it stands in the log, by the numbers of the changes."""
    event: Event


@dataclass(frozen=True)
class Outcome:
    """What came of a history."""

    source: Values | None
    settled: Values | None
    source_number: int
    copy: Values | None
    copy_version: int | None
    records: Sequence[_Record]
    entries: Sequence[tuple[_Record, float]]
    """What the ledger noted, with the minute."""
    applied: Collection[int]
    """The changes whose events were applied."""

    @cached_property
    def difference(self) -> object:
        """What differs, in a form that can be compared."""
        if self.source is None or self.copy is None:
            return None if self.source is self.copy else (self.source is None, self.copy and tuple(self.copy.items()))
        pairs = {name: (text, self.copy[name]) for name, text in self.source.items() if text != self.copy[name]}
        return tuple(pairs.items()) or None


class History:
    """A life of one aggregate, and what went wrong with it."""

    def __init__(self, world: World, changes: Sequence[Change], faults: Sequence[Fault]) -> None:
        self.world = world
        self.changes = changes
        self.faults = tuple(faults)

    @cached_property
    def outcome(self) -> Outcome:
        """What came of it."""
        return self.simulate(self.faults)

    @cached_property
    def culprits(self) -> tuple[Fault, ...]:
        """The faults that make the difference: without one of them it would be another, or none.

        Where each of several would do alone, all those count without which together it would be another. That is so
        also beside a fault without which alone it would be another: what it hides has still more than one cause.
        """
        seen, found = self.outcome.difference, list[tuple[Fault, ...]]()
        for size in range(1, len(self.faults) + 1):
            smaller = [set(some) for some in found]
            for some in combinations(self.faults, size):
                if not any(each <= set(some) for each in smaller) and self._without(*some).difference != seen:
                    found.append(some)
        return tuple(dict.fromkeys(fault for some in found for fault in some))

    @cached_property
    def causes(self) -> frozenset[Cause]:
        """The right answers."""
        found = {cause for fault in self.culprits for cause in self.named(fault)}
        gone = not any(record.number >= self.world.log_from for record in self.outcome.records)
        if self.world.log_from and (gone or any(fault.at < self.world.log_from for fault in self.culprits)):
            found.add(Cause.EXPIRED)
        return frozenset(found)

    def named(self, fault: Fault) -> tuple[Cause, ...]:
        """Choose the causes whose definitions hold for a fault."""
        if fault.kind == "edit":
            return (Cause.FOREIGN_WRITE,) if self.changes else (Cause.PHANTOM,)
        causes = _CAUSES[fault.kind]
        if fault.kind in ("double", "twice") and fault.by:
            causes = *causes, Cause.OUT_OF_ORDER  # it came after a newer one, too
        if self.world.guard != "none" and (self._recovered | set(self._without(fault).applied)) - set(
            self.outcome.applied
        ):
            causes = *causes, Cause.SKIPPED  # an event came when a newer one was there, and the consumer went past it
        return causes

    @cached_property
    def _recovered(self) -> set[int]:
        """The changes whose events would be applied without the culprits."""
        return set(self._without(*self.culprits).applied)

    def _without(self, *some: Fault) -> Outcome:
        return self.simulate([each for each in self.faults if each not in some])

    # What happens.

    def simulate(self, faults: Sequence[Fault]) -> Outcome:
        """Compute what comes of the changes with these faults."""
        by_kind: dict[str, list[Fault]] = {}
        for fault in faults:
            by_kind.setdefault(fault.kind, []).append(fault)
        number = len(self.changes)
        settled = number - 1 if "moved" in by_kind else number
        for fault in (*by_kind.get("early", ()), *by_kind.get("regress", ())):
            number = settled = fault.at
        records = self._log(by_kind)
        delivered = self._delivered(records, by_kind)
        return self._consumed(records, delivered, self._after(number), self._after(settled), number)

    def _after(self, number: int) -> Values | None:
        return self.changes[number - 1].after if number else None

    def _log(self, faults: Mapping[str, Sequence[Fault]]) -> list[_Record]:
        """Publish the changes, in the order of the log."""
        absent = {fault.at for fault in faults.get("lost", ())}
        if "moved" in faults:
            absent.add(len(self.changes) - 1)
        wrong = {fault.at: fault.fields for fault in faults.get("diverge", ())}
        astray = {fault.at for fault in faults.get("misroute", ())}
        broken = {fault.at for fault in faults.get("unreadable", ())}
        swapped = {fault.at for fault in faults.get("swap", ())}
        records = []
        for number, change in enumerate(self.changes):
            if number in absent:
                continue
            says = change.fields
            if says is not None and wrong.get(number):
                says = {**says, **{name: text for name, text in (wrong[number] or {}).items() if name in says}}
            unreadable = number in broken
            event = Event(
                partition=int(number in astray),
                offset=0,
                at=_BEGINNING,
                event_id=f"e{number}",
                fields={} if says is None or unreadable else says,
                version=number + 1 if self.world.versions and says is not None and not unreadable else None,
                deletes=says is None,
                problem="its value cannot be read" if unreadable else None,
                routing=Routing.WRONG if number in astray else Routing.HOME,
            )
            records.append(_Record(number, number + (1.25 if number in swapped else 0), event))
        for fault in faults.get("twice", ()):
            again = next((each for each in records if each.number == fault.at), None)
            if again is not None:
                records.append(_Record(again.number, again.number + fault.by + 0.5, again.event))
        records.sort(key=lambda each: each.key)
        offsets = [0, _OTHER_OFFSETS]
        for record in records:
            event = record.event
            record.event = replace(event, offset=offsets[event.partition], at=_minute(10 * record.key))
            offsets[event.partition] += 1
        return records

    def _delivered(
        self, records: Sequence[_Record], faults: Mapping[str, Sequence[Fault]]
    ) -> list[tuple[float, _Record | Fault]]:
        """Bring the records to the consumer: when, and what."""
        kept = {fault.at for kind in ("skip", "stash", "retry", "dead_letter") for fault in faults.get(kind, ())}
        shifted = {fault.at: fault for kind in ("misroute", "late") for fault in faults.get(kind, ())}
        tail, over = next(((fault.at, fault.by) for fault in faults.get("behind", ())), (len(self.changes), 0))
        found: list[tuple[float, _Record | Fault]] = []
        for record in records:
            number = record.number
            if number in kept or record.key >= tail + over or record.event.problem is not None:
                continue
            fault = shifted.get(number)
            key = record.key + (0 if fault is None else fault.by + (0.6 if fault.by > 0 else -0.6))
            found.append((key, record))
        for fault in faults.get("double", ()):
            # The offset goes back, and what came since then comes again.
            again = [each for each in found if fault.at <= each[0] <= fault.at + fault.by]
            if fault.traced:
                del again[1:]  # it alone, as by a retry topic
            end = fault.at + fault.by + 0.7
            found += [(end + step / 100, record) for step, (_, record) in enumerate(again)]
        found += [(fault.at + 0.9, fault) for fault in faults.get("edit", ())]
        return sorted(found, key=lambda each: each[0])

    def _consumed(
        self,
        records: Sequence[_Record],
        delivered: Sequence[tuple[float, _Record | Fault]],
        source: Values | None,
        settled: Values | None,
        number: int,
    ) -> Outcome:
        """Apply what is delivered, one after the other."""
        row: dict[str, str | None] | None = None
        version: int | None = None
        entries: list[tuple[_Record, float]] = []
        taken: set[int] = set()
        unnoted = {(fault.at, fault.at) for fault in self.faults if fault.kind == "double"}
        clock = 0.0
        for key, each in delivered:
            if isinstance(each, Fault):
                row = _edited(row, each.fields, self.world.fields)
                continue
            event = each.event
            clock = max(clock + 0.01, 10 * max(key, each.key) + 1)  # nothing is applied before it is published
            if row is not None and self._is_refused(event.version, version):
                continue
            noted = any(record.number == each.number for record, _ in entries)
            if noted and self.world.ledger == "once" and (each.number, each.key) not in unnoted:
                continue
            if not noted or self.world.ledger == "each":
                entries.append((each, clock))
            taken.add(each.number)
            row = self._applied(row, event)
            version = event.version
        return Outcome(source, settled, number, row, version if row is not None else None, records, entries, taken)

    def _is_refused(self, theirs: int | None, ours: int | None) -> bool:
        if self.world.guard == "none" or theirs is None or ours is None:
            return False
        return theirs < ours or (theirs == ours and self.world.guard == "newer")

    def _applied(self, row: Mapping[str, str | None] | None, event: Event) -> dict[str, str | None] | None:
        if event.deletes:
            return None
        return applied(row, event.fields, self.world.fields)

    # What an audit sees of it.

    @cached_property
    def case(self) -> Case:
        """The case, as far as log and ledger reach back."""
        world, outcome = self.world, self.outcome
        kept = [record for record in outcome.records if record.key >= world.log_from]
        events = tuple(record.event for record in kept)
        there = {event.place for event in events}
        since = _minute(10 * world.ledger_from + 1)
        entries = [
            (record, _minute(at)) for record, at in outcome.entries if not world.ledger_from or _minute(at) >= since
        ]
        known = [(record, at) for record, at in entries if record.event.place in there]
        ledger = tuple(LedgerEntry(record.event.event_id, record.event.place, at) for record, at in known)
        settled_number = outcome.source_number - any(fault.kind == "moved" for fault in self.faults)
        return Case(
            link=self._link(kept, entries, since),
            id="a",
            source=self._row(outcome.source, outcome.source_number),
            copy=None if outcome.copy is None else Row(outcome.copy, outcome.copy_version if self._with_copy else None),
            settled_source=self._row(outcome.settled, settled_number),
            settled_absent=outcome.settled is None,
            events=events,
            parked=tuple(self._parked()),
            ledger=ledger if world.ledger != "none" else (),
            homes=(0,),
        )

    @property
    def _with_copy(self) -> bool:
        return self.world.copy_versions

    def _row(self, values: Values | None, number: int) -> Row | None:
        return None if values is None else Row(values, number if self.world.versions else None)

    def _link(self, kept: Sequence[_Record], entries: Sequence[tuple[_Record, datetime]], since: datetime) -> Link:
        world = self.world
        keeps = world.ledger != "none"
        later = [record for record in self.outcome.records if record.number >= world.ledger_from]
        begins: dict[int, int] = {}
        for record in (*later, *(record for record, _ in entries)):
            place = record.event
            begins[place.partition] = min(place.offset, begins.get(place.partition, place.offset))
        return Link(
            "user/copy",
            "user",
            world.fields,
            {partition: self._place(partition, kept) for partition in (0, 1)},
            patch=world.patch,
            event_versions=world.versions,
            source_versions=world.versions,
            copy_versions=world.copy_versions,
            dense_versions=world.versions,
            guarded=world.guard != "none",
            ledger=keeps,
            ledger_begins=(begins if world.ledger_from else {0: 0, 1: 0}) if keeps else None,
            ledger_since=(since if world.ledger_from else _BEGINNING - timedelta(days=1)) if keeps else None,
        )

    def _place(self, partition: int, kept: Sequence[_Record]) -> Place:
        end = _OTHER_OFFSETS * partition + 500
        mine = [record for record in kept if record.event.partition == partition]
        gone = [r.event.offset for r in self.outcome.records if r.event.partition == partition and r not in kept]
        tail = next((fault.at for fault in self.faults if fault.kind == "behind"), len(self.changes))
        early = next((fault.at for fault in self.faults if fault.kind == "early"), len(self.changes))
        begin = max(gone, default=_OTHER_OFFSETS * partition - 1) + 1 if self.world.log_from else 0
        return Place(
            begin=begin,
            settled_end=next((r.event.offset for r in mine if r.key >= early), end),
            log_end=end,
            committed=next((r.event.offset for r in mine if r.key >= tail), end),
        )

    def _parked(self) -> list[Parked]:
        by_number = {record.number: record.event for record in self.outcome.records}
        found = []
        for fault in self.faults:
            event = by_number.get(fault.at)
            back = fault.kind in ("late", "double") and fault.traced and fault.by > 0
            if event is not None and (back or fault.kind in ("stash", "retry", "dead_letter")):
                kind: ParkedIn = "retry" if back else fault.kind  # type: ignore[assignment]
                resolved = _BACK if back else None
                place, put_aside = event.place, event.at + timedelta(minutes=1)
                found.append(
                    Parked(kind, f"user.{kind}", 0, 0, put_aside, place, event.event_id, event.version, resolved)
                )
        return found


_CAUSES: Mapping[str, tuple[Cause, ...]] = {
    "skip": (Cause.SKIPPED,),
    "late": (Cause.OUT_OF_ORDER,),
    "double": (Cause.DUPLICATE_APPLIED,),
    "stash": (Cause.STASHED,),
    "retry": (Cause.RETRYING,),
    "dead_letter": (Cause.DEAD_LETTERED,),
    "lost": (Cause.NEVER_PUBLISHED,),
    "diverge": (Cause.PAYLOAD_DIVERGENCE,),
    "misroute": (Cause.MISROUTED,),
    "swap": (Cause.OUT_OF_ORDER,),
    "twice": (Cause.DUPLICATE_APPLIED,),
    "unreadable": (Cause.SCHEMA_VIOLATION,),
    "regress": (Cause.SOURCE_REGRESSED,),
    "behind": (Cause.IN_FLIGHT,),
    "early": (Cause.IN_FLIGHT,),
    "moved": (Cause.IN_FLIGHT,),
}


def applied(row: Values | None, says: Values, rules: Sequence[FieldRule]) -> dict[str, str | None]:
    """Compute a row after an event."""
    values = dict(_new(rules) if row is None else row)
    adds = {rule.name for rule in rules if rule.add}
    for name, text in says.items():
        values[name] = str(int(values[name] or 0) + int(text or 0)) if name in adds else text
    return values


def _new(rules: Sequence[FieldRule]) -> Values:
    return {rule.name: "0" if rule.add else "basic" if rule.name == "tariff" else None for rule in rules}


def _edited(row: Values | None, fields: Values | None, rules: Sequence[FieldRule]) -> dict[str, str | None] | None:
    if fields is None:
        return None
    inserts = len(fields) == len(rules)
    if inserts is (row is not None):
        return None if row is None else dict(row)  # there is no row to edit, or there is one already
    return {**(row or {}), **fields}


def _collide(one: Fault, other: Fault) -> bool:
    """Whether two faults cannot both be: of one event."""
    apart = "edit", "regress", "behind", "early", "moved"
    if one.kind in apart or other.kind in apart:
        return one.kind == other.kind
    return one.at == other.at


class Draw:
    """Draws histories; the same number gives the same one."""

    def __init__(self, seed: int, number: int) -> None:
        self._random = Random(f"{seed}/{number}")  # noqa: S311
        self._fresh = 0

    def history(self) -> History:
        """Draw a history with none to three faults, most often with some."""
        random = self._random
        world = self._world()
        size = random.choice((0, 1, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10)) if random.random() < 0.97 else 25
        changes = self._changes(world, size)
        size = len(changes)
        faults: list[Fault] = []
        last = size
        if size > 1 and random.random() < 0.1:
            world = replace(world, log_from=random.randint(1, size))
        if world.ledger != "none" and size > 1 and random.random() < 0.2:
            world = replace(world, ledger_from=random.randint(1, size - 1))
        if size > 1 and random.random() < 0.25:
            kind: FaultKind = random.choice(("behind", "behind", "early", "moved"))
            last = size - 1 if kind == "moved" else random.randint(max(size - 3, 0), size - 1)
            by = random.randint(0, size - last) if kind == "behind" else 0
            faults.append(Fault(kind, last, by))
        wanted = random.choice((0, 1, 1, 1, 2, 2, 2, 3, 3, 3))
        for _ in range(wanted):
            fault = self._fault(random.choice(FAULTS), last, changes, world)
            if fault is not None and not any(_collide(fault, each) for each in faults):
                faults.append(fault)
        return History(world, changes, faults)

    def _world(self) -> World:
        random = self._random
        changes = random.random() < 0.5
        versions = random.random() < 0.85
        copy_versions = versions and random.random() < 0.5
        guard = random.choice(("none", "none", "none", "newer", "newer-or-equal")) if versions else "none"
        ledger = random.choice(("none", "none", "each", "each", "once"))
        patch = changes and random.random() < 0.8
        return World(changes, patch, versions, copy_versions, guard, ledger)  # type: ignore[arg-type]

    def _changes(self, world: World, size: int) -> list[Change]:
        random, rules = self._random, world.fields
        deletes = random.random() < 0.2
        round_amounts = random.random() < 0.3
        found: list[Change] = []
        row: Values | None = None
        for number in range(size):
            if row is not None and deletes and random.random() < (0.7 if number + 1 == size else 0.2):
                row = None
                found.append(Change(None, None))
                continue
            whole = not world.patch or (row is None and random.random() < 0.7)
            names = {r.name for r in rules if whole or random.random() < 0.35} or {random.choice(rules).name}
            said: dict[str, str | None] = {}
            for rule in rules:
                if rule.name not in names:
                    continue
                if rule.add:
                    said[rule.name] = self._amount(round_amounts)
                elif row is not None and not world.patch and random.random() < 0.5:
                    said[rule.name] = row[rule.name]
                else:
                    said[rule.name] = self._value(rule.name, [c.after for c in found])
            if not world.patch and row is not None and all(row.get(r.name) == said[r.name] for r in rules if not r.add):
                said["name"] = self._value("name", ())
            row = applied(row, said, rules)
            found.append(Change(said, row))
        return found

    def _amount(self, is_round: bool) -> str:
        random = self._random
        return random.choice(("500", "1000", "1000", "2000", "-500")) if is_round else str(random.randint(-9999, 30000))

    def _value(self, name: str, former: Sequence[Values | None]) -> str | None:
        random = self._random
        if name == "tariff":
            return random.choice(_TARIFFS)
        if name == "phone" and random.random() < 0.4:
            return None
        rows = [row for row in former if row is not None]
        if rows and random.random() < 0.15:
            return random.choice(rows)[name]  # it changes back
        self._fresh += 1
        return f"{name}-{self._fresh}"

    def _fault(self, kind: FaultKind, size: int, changes: Sequence[Change], world: World) -> Fault | None:
        random = self._random
        if size == 0:
            whole = {**_new(world.fields), "name": "by hand"}
            return Fault("edit", 0, fields=whole) if kind == "edit" and not changes else None
        at = random.randrange(size)
        if kind == "edit":
            return Fault(kind, random.randrange(max(size - 2, 0), size), fields=self._edit(world))
        if kind == "diverge":
            rule = random.choice(world.fields)
            return Fault(kind, at, fields={rule.name: "7777" if rule.add else f"wrong-{at}"})
        if kind == "regress":
            back = max(size - random.randint(1, 3), int(random.random() < 0.9))
            return Fault(kind, back) if back < size == len(changes) else None
        if kind == "swap":
            return Fault(kind, at) if at + 1 < size else None
        by = random.choice((1, 1, 1, 2, 2, 3))
        if at < world.log_from:
            size = min(size, world.log_from)  # nothing is delayed for as long as the topic keeps its records
        if kind in ("late", "twice", "double"):
            if kind != "late" and random.random() < 0.4:
                by = 0
            by = min(by, size - 1 - at)
            if kind == "late" and not by:
                return None
            if kind == "double" and world.ledger == "once":
                by = 0
        if kind == "misroute":
            by = max(min(random.choice((by, -by)), size - 1 - at), -at)
        return Fault(kind, at, by, traced=random.random() < 0.4)

    def _edit(self, world: World) -> Values | None:
        random, rules = self._random, world.fields
        draw = random.random()
        if draw < 0.15:
            return None
        if draw < 0.25:
            return {**_new(rules), "name": "by hand", "email": "by hand"}
        some = random.sample(rules, 1 if draw < 0.7 else 2)
        values: dict[str, str | None] = {}
        for rule in some:
            if rule.add:
                values[rule.name] = str(random.randint(-9999, 99999))
            elif rule.name == "tariff":
                values[rule.name] = random.choice(_TARIFFS)
            else:
                values[rule.name] = random.choice(("by hand", "by hand", "by hand", "", None))
        return values
