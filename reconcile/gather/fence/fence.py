"""The fence: the instants and offsets at which comparing a source with its copies is fair."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from reconcile.domain.canonical import Layout
from reconcile.errors import ReconcileError, UnreachableError
from reconcile.gather.fence.group_position import GroupPosition, PartitionExtent, PositionState
from reconcile.gather.fence.nature import SourceNature
from reconcile.gather.stores.library_tables import LibraryTables, Registration
from reconcile.gather.stores.session import Snapshot
from reconcile.kafka.client import GroupDescription, GroupState
from reconcile.kafka.transactions import OpenTransaction, hanging
from reconcile.workspace.manifest import Stage


@dataclass(frozen=True)
class SourceFence:
    """The instant of the source; a store that is not Postgres has no snapshot and is read as it stands."""

    store: str
    snapshot: Snapshot | None
    types: Layout[str] | None
    rows: int | None
    """How many rows the planner expects."""
    outbox_pending: int | None
    """Events that the snapshot shows and that were not published yet; None where there is no outbox."""
    nature: SourceNature | None = None
    """What it is, and how far that limits what is certain; None in runs of versions that did not look."""
    cut: str | None = None
    """The instant that a plug-in reads it of; None where there is none."""

    @property
    def limits(self) -> tuple[str, ...]:
        """Why it is not proven that an id is gone which it does not show; nothing where that is proven."""
        return ("nobody has looked at what the source is",) if self.nature is None else self.nature.limits


@dataclass(frozen=True)
class TopicFence:
    """The topic, and what the log is evidence of."""

    cluster: str
    name: str
    id: str
    partitions: tuple[PartitionExtent, ...]
    compacted: bool = False
    """Whether older records of a key may be gone from anywhere; so too where we may not ask."""
    open: tuple[OpenTransaction, ...] = ()
    """Where a transaction was still open when the fence closed."""

    @property
    def hanging(self) -> tuple[OpenTransaction, ...]:
        """The open transactions that nobody will end but a person."""
        return hanging(self.open)


@dataclass(frozen=True)
class ConsumerFence:
    """A copy's instant, and how far its group had come."""

    link: str
    name: str
    store: str
    snapshot: Snapshot | None
    types: Layout[str] | None
    rows: int | None
    group: GroupDescription
    places: tuple[GroupPosition, ...]
    settled: bool
    """Whether the copy holds all that the topic held at the source's instant."""
    waited: float
    """Seconds that we waited for it."""
    library: LibraryTables | None = None
    """The tables of the consumer library in its store; None where there are none."""
    cut: str | None = None
    """The instant that a plug-in reads it of; None where there is none."""

    def registration(self, topic: str) -> Registration | None:
        """Look up how the group consumes a topic by the library; None if it does not."""
        return None if self.library is None else self.library.of(self.group.name, topic)

    @property
    def lag(self) -> int:
        """Offsets that the group has yet to pass."""
        return sum(place.lag for place in self.places)

    @property
    def states(self) -> tuple[str, ...]:
        """All that is special: `settled` or what keeps it from that, and how the group is unless it is stable."""
        found = {place.state for place in self.places} - {PositionState.CAUGHT_UP}
        partitions = [state.value for state in PositionState if state in found]
        group = [] if self.group.state is GroupState.STABLE else [self.group.state.value]
        return (*(partitions or ["settled"]), *group)


@dataclass(frozen=True)
class UnreadableLink:
    """A consumer of which something could not be read: the run is incomplete, and the others go on."""

    link: str
    name: str
    kind: str
    message: str
    may_pass: bool = False
    """Whether it may be read later as it stands: what did not answer, not what refused."""

    @classmethod
    def because(cls, link: str, name: str, error: ReconcileError) -> UnreadableLink:
        """Build it from the error that kept the consumer from being read."""
        return cls(link, name, type(error).__name__, str(error), isinstance(error, UnreachableError))


@dataclass(frozen=True)
class Fence:
    """All instants and offsets of one comparison."""

    ARTIFACT: ClassVar[str] = "fence"
    STAGE: ClassVar[Stage] = "gather"

    contract: str
    """The digest of the contract that was compared by."""
    aggregate: str
    opened_at: datetime
    closed_at: datetime
    source: SourceFence
    topic: TopicFence
    consumers: tuple[ConsumerFence, ...]
    unread: tuple[UnreadableLink, ...] = ()
    schema_version: Literal[1] = 1

    @property
    def complete(self) -> bool:
        """Whether all could be read."""
        return not self.unread

    def consumer(self, name: str) -> ConsumerFence:
        """Look up the fence of one consumer; raise KeyError if it is not in it."""
        return {each.name: each for each in self.consumers}[name]


def is_settled(places: Iterable[GroupPosition]) -> bool:
    """Tell whether a group has reached the end of every partition."""
    return all(place.state is PositionState.CAUGHT_UP for place in places)
