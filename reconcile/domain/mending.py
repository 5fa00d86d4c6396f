"""The shortest way to mend what a cause did, as the commands to type."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from reconcile.domain.cause import Cause


@dataclass(frozen=True)
class Mending:
    """What mends what a cause did."""

    words: str
    commands: tuple[str, ...]


def mending(cause: Cause, run_id: str, contract: str | None, *, applied: bool = False) -> Mending:
    """Choose the shortest way for the findings of a cause in a run of a contract's file.

    Of a run whose corrections were applied, what is left is for the next run to say.
    """
    words, commands = _WAYS[cause]
    if applied and commands == _CORRECT:
        words, commands = "The corrections of this run are applied. What still differs, the next run says:", _AGAIN
    names = {"run": shlex.quote(run_id), "contract": "CONTRACT" if contract is None else shlex.quote(contract)}
    return Mending(words, tuple(each.format(**names) for each in commands))


_CORRECT = ("reconcile plan {run}", "reconcile apply {run}")
_AGAIN = ("reconcile run {contract}",)
_TOPICS = ("reconcile fence {contract}",)
_PUBLISHER = "Mend the publisher, or it happens again; corrections restate what it left behind:"
_RESTATED = "Corrections restate what the source says now:"

_WAYS: Mapping[Cause, tuple[str, tuple[str, ...]]] = {
    Cause.IN_FLIGHT: ("Nothing is to be mended: it passes when the consumer has caught up. Look again:", _AGAIN),
    Cause.STASHED: (
        "Let the consumer apply its stash: a correction would be overwritten by it. The consumer library's is here:",
        ("reconcile stash list {contract}",),
    ),
    Cause.RETRYING: ("Let the group of the retry topic go on, and see where the groups are:", _TOPICS),
    Cause.DEAD_LETTERED: (
        "Corrections restate what the source says now. Discard the dead letters then, or a replay undoes that:",
        _CORRECT,
    ),
    Cause.SKIPPED: (_RESTATED, _CORRECT),
    Cause.OUT_OF_ORDER: (_RESTATED, _CORRECT),
    Cause.DUPLICATE_APPLIED: (_RESTATED, _CORRECT),
    Cause.NEVER_PUBLISHED: (_PUBLISHER, _CORRECT),
    Cause.EXPIRED: (_RESTATED, _CORRECT),
    Cause.MISROUTED: (_PUBLISHER, _CORRECT),
    Cause.SOURCE_REGRESSED: (
        "Decide who is right: the source has lost what it published. These are the aggregates:",
        ("reconcile findings {run} --cause source_regressed",),
    ),
    Cause.PAYLOAD_DIVERGENCE: (_PUBLISHER, _CORRECT),
    Cause.SCHEMA_VIOLATION: (_PUBLISHER, _CORRECT),
    Cause.PHANTOM: ("Find who wrote it. Corrections delete it, where the contract permits deletions:", _CORRECT),
    Cause.FOREIGN_WRITE: ("Find who wrote it. Corrections restate what the source says now:", _CORRECT),
    Cause.UNDETERMINED: (
        "Look at what was seen of each, as `reconcile explain` shows it. These are the aggregates:",
        ("reconcile findings {run} --cause undetermined",),
    ),
}
