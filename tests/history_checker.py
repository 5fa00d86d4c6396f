"""Judges a history of an emission by what its readers can see; it shares no code with the emitter.

The history holds what the source wrote, what each attempt said about its corrections, and what a reader of committed
records got. Offsets, transactions and control stores do not count here: only what was promised, and what is visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class Claim(StrEnum):
    """What an attempt says about a correction."""

    EMITTED = "emitted"
    DROPPED = "dropped"
    UNKNOWN = "unknown"
    """It failed, or died: both may be."""


@dataclass(frozen=True)
class Write:
    """The source published a version of a key."""

    key: str
    version: int


@dataclass(frozen=True)
class Attempt:
    """An attempt to emit a correction, and what it said in the end."""

    correction: str
    key: str
    basis: int
    claim: Claim


@dataclass(frozen=True)
class Visible:
    """A record that a reader of committed records got."""

    partition: int
    offset: int
    key: str
    version: int
    correction: str | None = None


@dataclass
class EmissionHistory:
    """All that happened; the order of records is that of their offsets."""

    writes: list[Write] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    visible: list[Visible] = field(default_factory=list)


class Breach(StrEnum):
    """What must never happen."""

    ABORTED_READ = "aborted read"
    LOST_WRITE = "lost write"
    DOUBLED = "doubled"
    OVERTAKEN = "overtaken"
    UNFOUNDED = "unfounded"
    """A record that nobody wrote, or a correction that says something else than its attempt."""
    UNDECIDED = "undecided"
    """The last attempt at a correction did not say what became of it."""
    DIFFERENT_END = "different end"
    """A copy that applies whatever comes ends with another version than the source."""


@dataclass(frozen=True)
class Violation:
    """A promise that was broken."""

    breach: Breach
    subject: str
    """The correction, or the key."""
    detail: str


def violations(history: EmissionHistory) -> list[Violation]:
    """Find what was promised and did not hold."""
    visible = sorted(history.visible, key=lambda each: (each.partition, each.offset))
    return [*_of_reports(history, visible), *_of_writes(history, visible), *_of_order(history, visible)]


def _of_reports(history: EmissionHistory, visible: Iterable[Visible]) -> Iterator[Violation]:
    seen = Counter(each.correction for each in visible if each.correction is not None)
    last = {each.correction: each for each in history.attempts}
    dropped = {each.correction for each in history.attempts if each.claim is Claim.DROPPED}
    emitted = {each.correction for each in history.attempts if each.claim is Claim.EMITTED}
    for id_ in sorted(dropped & seen.keys()):
        yield Violation(Breach.ABORTED_READ, id_, "reported dropped, and visible")
    for id_ in sorted(emitted - seen.keys()):
        yield Violation(Breach.LOST_WRITE, id_, "reported emitted, and not visible")
    for id_, many in sorted(seen.items()):
        if many > 1:
            yield Violation(Breach.DOUBLED, id_, f"visible {many} times")
    for id_, each in sorted(last.items()):
        if each.claim is Claim.UNKNOWN:
            yield Violation(Breach.UNDECIDED, id_, "no attempt said what became of it")


def _of_writes(history: EmissionHistory, visible: Iterable[Visible]) -> Iterator[Violation]:
    written = Counter((each.key, each.version) for each in history.writes)
    basis = {each.correction: (each.key, each.basis) for each in history.attempts}
    seen: Counter[tuple[str, int]] = Counter()
    for each in visible:
        if each.correction is None:
            seen[each.key, each.version] += 1
        elif basis.get(each.correction) != (each.key, each.version):
            yield Violation(Breach.UNFOUNDED, each.correction, f"says {each.key} is at {each.version}")
    for (key, version), many in (written - seen).items():
        yield Violation(Breach.LOST_WRITE, key, f"version {version} was written, and is missing {many} times")
    for (key, version), many in (seen - written).items():
        yield Violation(
            Breach.UNFOUNDED, key, f"version {version} was not written, and is there {many} times too often"
        )


def _of_order(history: EmissionHistory, visible: Iterable[Visible]) -> Iterator[Violation]:
    newest: dict[tuple[int, str], Visible] = {}
    copy: dict[str, int] = {}
    for each in visible:
        copy[each.key] = each.version
        before = newest.get((each.partition, each.key))
        if before is None or each.version >= before.version:
            newest[each.partition, each.key] = each
        elif each.correction is not None:
            detail = f"version {each.version} at {each.offset} comes after {before.version} at {before.offset}"
            yield Violation(Breach.OVERTAKEN, each.correction, detail)
    truth: dict[str, int] = {}
    for write in history.writes:
        truth[write.key] = max(write.version, truth.get(write.key, 0))
    for key, version in sorted(truth.items()):
        if copy.get(key) != version:
            yield Violation(Breach.DIFFERENT_END, key, f"{copy.get(key)}, and the source is at {version}")
