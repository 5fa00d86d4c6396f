"""Which runs are old enough to go, and which of those have to stay."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

GOES_ON = "it goes on"
NEWEST = "it is the newest complete run of its contract"
SINCE_FULL = "the next full run counts what escaped it"


@dataclass(frozen=True)
class PastRun:
    """A run, as far as it decides on how long it stays."""

    run_id: str
    published_at: datetime | None
    """When it last published something; None where it has not."""
    contract: str | None = None
    consumers: tuple[str, ...] = ()
    """Those that it looked at; empty for all."""
    opened_at: datetime | None = None
    """The instant of its fence; None for a run that was not audited."""
    complete: bool = False
    kind: Literal["full", "ids", "changed"] = "full"


@dataclass(frozen=True)
class Chosen:
    """Which runs are pruned, and which stay though they are old, with the reason."""

    pruned: tuple[str, ...]
    spared: Mapping[str, str] = field(default_factory=dict)


def choose(runs: Collection[PastRun], before: datetime, going_on: Collection[str]) -> Chosen:
    """Choose the runs to prune: those that have published nothing since an instant, and that nobody needs.

    A run that goes on is needed, and what the next run of its contract looks back to: the newest complete full run of
    the same copies, and the changed-only runs after it.
    """
    needed = {**_looked_back_to(runs), **dict.fromkeys(going_on, GOES_ON)}
    old = [each.run_id for each in runs if each.published_at is None or each.published_at < before]
    spared = {each: needed[each] for each in old if each in needed}
    return Chosen(tuple(each for each in old if each not in needed), spared)


def _looked_back_to(runs: Iterable[PastRun]) -> dict[str, str]:
    groups: dict[tuple[str, tuple[str, ...]], list[tuple[datetime, str, str]]] = {}
    for each in runs:
        if each.contract is not None and each.opened_at is not None and each.complete and each.kind != "ids":
            key = each.contract, tuple(sorted(each.consumers))
            groups.setdefault(key, []).append((each.opened_at, each.run_id, each.kind))
    found = {}
    for group in groups.values():
        ordered = sorted(group)
        full = [number for number, (_, _, kind) in enumerate(ordered) if kind == "full"]
        after = ordered[full[-1] :] if full else ordered
        found.update({run_id: SINCE_FULL if kind == "changed" else NEWEST for _, run_id, kind in after})
        found[ordered[-1][1]] = NEWEST
    return found
