"""How topics are laid out and kept: the cluster's settings as they are in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

_UNLIMITED = -1
_TRUE = "true"


@dataclass(frozen=True)
class TopicLayout:
    """A topic's copies on brokers, and how long its records are kept."""

    name: str
    partitions: int
    replicas: int
    """Of the partition that has the fewest."""
    lagging: tuple[int, ...]
    """The partitions of which a replica is behind its leader or away."""
    unwritable: tuple[int, ...]
    """The partitions with fewer replicas in step than `min.insync.replicas` asks for."""
    min_insync: int
    compacted: bool
    deleted: bool
    """Whether records are deleted by age or size."""
    retention: timedelta | None
    """How long a record is kept; None without a limit of time."""
    segment: timedelta
    """For how long records are written into one segment, of which all are deleted at once."""
    size_limited: bool
    tombstones: timedelta
    """How long a tombstone stays after compaction."""
    unclean_elections: bool
    """Whether a replica that is behind may become leader, which loses what it lacks."""

    @property
    def cleanup(self) -> str:
        """The cleanup policy as Kafka writes it."""
        return ",".join(["compact"] * self.compacted + ["delete"] * self.deleted)

    @property
    def limited(self) -> bool:
        """Whether age or size deletes records."""
        return self.deleted and (self.retention is not None or self.size_limited)


def layout(name: str, in_step: Mapping[int, tuple[int, int]], settings: Mapping[str, str]) -> TopicLayout:
    """Build a topic's layout from its replicas and replicas in step by partition, and its settings as Kafka tells."""
    least = int(settings.get("min.insync.replicas", 1))
    kept = int(settings.get("retention.ms", _UNLIMITED))
    policies = settings.get("cleanup.policy", "delete").split(",")
    return TopicLayout(
        name=name,
        partitions=len(in_step),
        replicas=min((replicas for replicas, _ in in_step.values()), default=0),
        lagging=tuple(sorted(number for number, (replicas, isr) in in_step.items() if isr < replicas)),
        unwritable=tuple(sorted(number for number, (_, isr) in in_step.items() if isr < least)),
        min_insync=least,
        compacted="compact" in policies,
        deleted="delete" in policies,
        retention=None if kept < 0 else _duration(kept),
        segment=_duration(int(settings.get("segment.ms", 604_800_000))),
        size_limited=int(settings.get("retention.bytes", _UNLIMITED)) >= 0,
        tombstones=_duration(int(settings.get("delete.retention.ms", 86_400_000))),
        unclean_elections=settings.get("unclean.leader.election.enable") == _TRUE,
    )


def _duration(milliseconds: int) -> timedelta:
    # Kafka takes any 64-bit number of milliseconds; a century is as good as what is longer.
    return timedelta(milliseconds=min(milliseconds, 36_525 * 86_400_000))
