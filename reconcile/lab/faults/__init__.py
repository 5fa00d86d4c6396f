"""Faults, made the way they are made in life; each adds to the truth what it did."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from reconcile.errors import RefusedError
from reconcile.lab import truth
from reconcile.lab.faults import by_hand, consuming, parking, publishing
from reconcile.lab.faults.stage import Stage
from reconcile.lab.folder import Lab
from reconcile.lab.world import require_running

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fault:
    """A way in which copies come to differ; `systems` are the rows of the field's knowledge that it reproduces."""

    name: str
    plant: Callable[[Stage, int], None]
    systems: tuple[str, ...]

    @property
    def summary(self) -> str:
        """What happens, in a sentence."""
        return (self.plant.__doc__ or "").strip()


# In the order in which `all` plants them; what strikes a whole partition comes last.
FAULTS = (
    Fault("zoey-race", parking.zoey_race, ("B15", "B4")),
    Fault("retry-pending", parking.retry_pending, ("B4",)),
    Fault("dead-letter", parking.dead_letter, ("B3",)),
    Fault("overtaken-dead-letter", parking.overtaken_dead_letter, ("B3", "D7")),
    Fault("stash", parking.stash, ("B10",)),
    Fault("record-dead-letter", parking.record_dead_letter, ("B4", "B5")),
    Fault("swallowed-exception", consuming.swallowed_exception, ("A4",)),
    Fault("overtaken-skip", consuming.overtaken_skip, ("A4", "C7")),
    Fault("ignored-tombstone", consuming.ignored_tombstone, ("D9",)),
    Fault("ignored-error", consuming.ignored_error, ("B1",)),
    Fault("commit-before-process", consuming.commit_before_process, ("C6", "D1")),
    Fault("crash-before-commit", consuming.crash_before_commit, ("C3",)),
    Fault("relay-lost-rows", publishing.relay_lost_rows, ("C2",)),
    Fault("version-gap", publishing.version_gap, ("C2",)),
    Fault("outbox-stuck", publishing.outbox_stuck, ("C2",)),
    Fault("source-restored", publishing.source_restored, ("A6",)),
    Fault("duplicate-send", publishing.duplicate_send, ("C1",)),
    Fault("producer-reorder", publishing.producer_reorder, ("C4",)),
    Fault("wrong-payload", publishing.wrong_payload, ("A5",)),
    Fault("broken-record", publishing.broken_record, ("A1",)),
    Fault("hand-edit", by_hand.hand_edit, ()),
    Fault("hand-delete", by_hand.hand_delete, ()),
    Fault("phantom", by_hand.phantom, ()),
    Fault("normalised-text", by_hand.normalised_text, ()),
    Fault("wrong-partitioner", publishing.wrong_partitioner, ("A2",)),
    Fault("topic-growth", publishing.topic_growth, ("D3",)),
    Fault("retention-cut", consuming.retention_cut, ("D5",)),
    Fault("blocked-partition", consuming.blocked_partition, ("B2",)),
)


def named(names: Sequence[str]) -> list[Fault]:
    """Choose the faults of these names; `all` names every one."""
    by_name = {fault.name: fault for fault in FAULTS}
    chosen: list[Fault] = []
    for name in names:
        if name == "all":
            chosen += FAULTS
        elif name in by_name:
            chosen.append(by_name[name])
        else:
            import difflib

            near = difflib.get_close_matches(name, by_name, 1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise RefusedError(f'no fault "{name}"{hint} `reconcile lab fault --list` shows them all')
    return chosen


def plant(lab: Lab, faults: Sequence[Fault], count: int) -> int:
    """Plant faults, `count` aggregates for each of their forms; return how many rows the truth grew by."""
    require_running(lab)
    with lab.alone("fault"):
        state = lab.state()
        if state.seeded != "yes":
            raise RefusedError(f"the world in {lab.root} is empty: `reconcile lab seed` first")
        grown = 0
        for fault in faults:
            number = lab.state().plantings
            lab.remember(plantings=number + 1)
            with ExitStack() as stack:
                stage = Stage(lab, random.Random(f"{state.seed}/{number}/{fault.name}"), stack)  # noqa: S311
                stage.settle()
                fault.plant(stage, count)
                rows = [replace(row, fault=fault.name, systems=fault.systems) for row in stage.rows]
            truth.append(lab.truth, rows)
            grown += len(rows)
            _LOG.info(f"{fault.name}: {len(rows)} differences")
        return grown
