"""Whether a topology keeps events in order and loses none: every check of `reconcile doctor`, over plain facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from reconcile.audit import topology_groups, topology_policies, topology_records, topology_topics
from reconcile.audit.topology_check import Check, Facts, Severity

__all__ = ["CHECKS", "Check", "Facts", "Severity", "checked", "exit_code"]

CHECKS: tuple[Callable[[Facts], Iterator[Check]], ...] = (
    topology_records.schemas,
    topology_records.spread,
    topology_records.partitioner,
    topology_records.keys,
    topology_policies.declared,
    topology_policies.ignored,
    topology_policies.retried,
    topology_policies.shared,
    topology_policies.depended,
    topology_records.versions,
    topology_topics.survival,
    topology_groups.committed_only,
    topology_groups.offsets,
    topology_groups.members,
    topology_groups.topics,
    topology_records.growth,
    topology_topics.retention,
    topology_topics.cleanup,
    topology_topics.retries,
    topology_topics.parked,
)
"""In the order in which they are shown."""


def checked(facts: Facts) -> list[Check]:
    """Make every check."""
    return [found for check in CHECKS for found in check(facts)]


def exit_code(checks: Sequence[Check], untold: Sequence[str]) -> int:
    """Give 1 where order breaks or events are lost, else 2 where something could not be told, else 0."""
    if any(each.severity is Severity.FAULT for each in checks):
        return 1
    return 2 if untold else 0
