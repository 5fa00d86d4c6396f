"""What a check of a topology says, and what it looks at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from reconcile.audit.topology_log import LogFacts
from reconcile.contract.model import Consumer, Contract
from reconcile.gather.fence.fence import ConsumerFence, Fence
from reconcile.gather.topology_facts import ClusterFacts
from reconcile.kafka.layout import TopicLayout


class Severity(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """It will hurt one day, or hides what happens."""
    FAULT = "fault"
    """It breaks the order of events, or loses them."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    id: str
    systems: tuple[str, ...]
    """The rows of the field's knowledge that it covers."""
    severity: Severity
    about: str
    """The topic or the link."""
    title: str
    found: str
    why: str
    """Why it matters."""
    todo: str = ""
    """What to do; may be advice where all is well."""


@dataclass(frozen=True)
class Rule:
    """What is looked at, and why it matters; its methods say what was found."""

    id: str
    systems: tuple[str, ...]
    title: str
    why: str

    def ok(self, about: str, found: str, todo: str = "") -> Check:
        """Say that all is well."""
        return self._check(Severity.OK, about, found, todo)

    def warning(self, about: str, found: str, todo: str) -> Check:
        """Say what will hurt one day."""
        return self._check(Severity.WARNING, about, found, todo)

    def fault(self, about: str, found: str, todo: str) -> Check:
        """Say what breaks order or loses events."""
        return self._check(Severity.FAULT, about, found, todo)

    def _check(self, severity: Severity, about: str, found: str, todo: str) -> Check:
        return Check(self.id, self.systems, severity, about, self.title, found, self.why, todo)


@dataclass(frozen=True)
class Facts:
    """All that checks look at."""

    contract: Contract
    fence: Fence
    cluster: ClusterFacts
    log: LogFacts

    @property
    def topic(self) -> str:
        """The main topic's name."""
        return self.contract.topic.name

    @property
    def layout(self) -> TopicLayout | None:
        """How the main topic is laid out; None if that could not be read."""
        return self.cluster.topics.get(self.topic)

    def links(self) -> Iterator[tuple[str, Consumer]]:
        """Give each link's name and consumer."""
        for consumer in self.contract.consumers:
            yield self.contract.link(consumer), consumer

    def fences(self) -> Iterator[tuple[str, Consumer, ConsumerFence]]:
        """Give each link whose group could be read."""
        for link, consumer in self.links():
            for each in self.fence.consumers:
                if each.name == consumer.name:
                    yield link, consumer, each


def counted(number: int, one: str, many: str = "") -> str:
    """Write a number of things: 1 id, 2,000 ids."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(names: list[str], most: int = 5) -> str:
    """Write the first names, and how many there are beside them."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
