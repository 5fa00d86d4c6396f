"""The plan: what is done about each finding of a run, as people review it and the next stage applies it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from reconcile.domain.correction import Action, Item, content_digest
from reconcile.domain.plan_rules import WRITES

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Caps:
    """How much of a link one plan may correct."""

    corrections: int
    ratio: float

    def exceeded(self, corrections: int, aggregates: int) -> tuple[str, ...]:
        """Say which cap a number of corrections exceeds."""
        found = []
        if corrections > self.corrections:
            found.append(f"{corrections:,} corrections are more than repair.max_corrections: {self.corrections:,}")
        if corrections > self.ratio * aggregates:
            share = f"{corrections / aggregates:.2%} of {aggregates:,} aggregates" if aggregates else "all aggregates"
            found.append(f"{corrections:,} corrections, {share}, are more than repair.max_ratio: {self.ratio:.2%}")
        return tuple(found)


def aggregates(compared: int, source_rows: int | None, *, some: bool) -> int:
    """Count the aggregates that a cap's ratio is about: all of a link, also where only some were asked for."""
    return max(compared, source_rows or 0) if some else compared


@dataclass(frozen=True)
class LinkPlan:
    """What is done on one link."""

    link: str
    consumer: str
    group: str
    topic: str
    """Where its corrections go."""
    topic_id: str
    partitions: int
    partitioner: tuple[str, ...]
    """What puts keys into partitions: usually one."""
    since: Mapping[int, int]
    """Where each partition ended before the source was read."""
    readers: tuple[str, ...]
    """Other groups that read the topic."""
    approval: bool
    """Whether a person has to approve."""
    depends_on: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Why nothing of it may be applied."""
    items: tuple[Item, ...] = ()

    @property
    def corrections(self) -> tuple[Item, ...]:
        """The items that emit a record."""
        return tuple(each for each in self.items if each.action in WRITES)

    @property
    def counts(self) -> dict[str, int]:
        """How many items there are of each action."""
        counted = Counter(each.action for each in self.items)
        return {action.value: counted[action] for action in Action}


@dataclass(frozen=True)
class Plan:
    """What is done about the findings of one run, link by link in the order of repair."""

    run_id: str
    contract: str
    contract_digest: str
    made_of: Mapping[str, str]
    """The digests of the artifacts that it was made of, by name."""
    links: tuple[LinkPlan, ...] = ()
    refused: tuple[str, ...] = field(default=())
    """Why nothing of it may be applied."""

    @property
    def reasons(self) -> list[str]:
        """All that keeps it from being applied."""
        of_links = (f"{link.link}: {reason}" for link in self.links for reason in link.refused)
        return [*self.refused, *of_links]

    @property
    def corrections(self) -> Iterator[Item]:
        """The items that emit a record."""
        return (item for link in self.links for item in link.corrections)

    def link(self, name: str) -> LinkPlan:
        """Give the plan of a link."""
        return next(each for each in self.links if each.link == name)

    @property
    def digest(self) -> str:
        """The digest of all that it says."""
        return content_digest(_data(self))


def to_data(plan: Plan) -> dict[str, Any]:
    """Give a plan as its file holds it."""
    return {"schema_version": SCHEMA_VERSION, "digest": plan.digest, **_data(plan)}


def from_data(data: Mapping[str, Any]) -> Plan:
    """Read what `to_data` gave; raise ValueError if it was changed since."""
    links = tuple(_link(each) for each in data["links"])
    plan = Plan(
        data["run_id"], data["contract"], data["contract_digest"], data["made_of"], links, tuple(data["refused"])
    )
    if plan.digest != data["digest"]:
        raise ValueError("it does not say any more what was planned")
    return plan


def _data(plan: Plan) -> dict[str, Any]:
    links = []
    for link in plan.links:
        items = [_item(each) for each in link.items]
        since = {str(partition): offset for partition, offset in sorted(link.since.items())}
        links.append({**asdict(link), "since": since, "counts": link.counts, "items": items})
    return {
        "run_id": plan.run_id,
        "contract": plan.contract,
        "contract_digest": plan.contract_digest,
        "made_of": dict(plan.made_of),
        "refused": list(plan.refused),
        "links": [
            {name: list(value) if isinstance(value, tuple) else value for name, value in each.items()} for each in links
        ],
    }


def _item(item: Item) -> dict[str, Any]:
    return {**asdict(item), "action": item.action.value, "partitions": list(item.partitions)}


def _link(data: Mapping[str, Any]) -> LinkPlan:
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    del given["counts"]
    given["since"] = {int(partition): offset for partition, offset in data["since"].items()}
    given["items"] = tuple(
        Item(**{**each, "action": Action(each["action"]), "partitions": tuple(each["partitions"])})
        for each in data["items"]
    )
    return LinkPlan(**given)
