"""Whether a topology keeps events in order and loses none: every check of `reconcile doctor`, over plain facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from reconcile.audit.topology import library_checks, log_checks, setup_checks
from reconcile.audit.topology.facts import TopologyFacts
from reconcile.audit.topology.rule import Check, Severity

__all__ = ["CHECKS", "Check", "Severity", "TopologyFacts", "checked", "exit_code"]

CHECKS: tuple[Callable[[TopologyFacts], Iterator[Check]], ...] = (
    log_checks.never_written,
    log_checks.schemas,
    log_checks.event_expressions,
    log_checks.deletions,
    log_checks.partitions_of_ids,
    log_checks.partitioner,
    log_checks.keys,
    log_checks.times,
    setup_checks.failure_policy,
    setup_checks.ignored_failures,
    setup_checks.retry_topics,
    library_checks.registrations,
    library_checks.other_groups,
    setup_checks.failure_topics,
    setup_checks.depended_groups,
    log_checks.versions,
    setup_checks.replication,
    setup_checks.isolation,
    setup_checks.outside_readers,
    setup_checks.open_transactions,
    setup_checks.committed_offsets,
    setup_checks.group_members,
    setup_checks.group_topics,
    log_checks.growth,
    setup_checks.topic_retention,
    setup_checks.compaction,
    setup_checks.retry_retention,
    setup_checks.parked_retention,
)
"""In the order in which they are shown."""


def checked(facts: TopologyFacts) -> list[Check]:
    """Make every check."""
    return [found for check in CHECKS for found in check(facts)]


def exit_code(checks: Sequence[Check], unreadable: Sequence[str]) -> int:
    """Choose 1 where order breaks or events are lost, else 2 where something could not be read, else 0."""
    if any(each.severity is Severity.FAULT for each in checks):
        return 1
    return 2 if unreadable else 0
