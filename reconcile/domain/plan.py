"""The plan: what is done about each finding of a run, as people review it and the next stage applies it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, PlainSerializer, computed_field, model_validator

from reconcile.domain.correction import content_digest
from reconcile.domain.plan_rules import Action


def _by_partition(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


Offsets = Annotated[Mapping[int, int], PlainSerializer(_by_partition)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Item(_Frozen):
    """One line of a plan: what is to be done about one finding, and why."""

    link: str
    aggregate_id: str | None
    action: Action
    cause: str
    reason: str
    topic: str | None = None
    partitions: tuple[int, ...] = ()
    """Where the record goes; a tombstone on a compacted topic may have to go to two."""
    basis_version: int | None = None
    """The version that the source had when the plan was made; None where it has none."""
    basis: str | None = None
    """A digest of the source's row that the plan was made for; None for a row that is gone."""
    correction_id: str | None = None
    key: str | None = None
    """A digest of its key's bytes."""
    amounts: Mapping[str, str] = {}
    """What is added to each sum of the copy, by field."""
    shared_with: str | None = None
    """The link whose correction is this one's too: its record is in a topic that both groups read."""


class OutsideReader(_Frozen):
    """A group that reads the topic of the corrections and is not in the contract: its isolation is not known."""

    group: str
    state: str
    members: int
    """How many of its members read a partition of the topic."""
    commits: bool
    """Whether it has committed offsets there."""

    def __str__(self) -> str:
        members = f"{self.members} {'member' if self.members == 1 else 'members'}"
        return f"{self.group} ({self.state}, {members} here, {'with' if self.commits else 'no'} committed offsets)"


class LinkPlan(_Frozen):
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
    since: Offsets
    """Where each partition ended before the source was read."""
    readers: tuple[str, ...]
    """Other groups that read the topic."""
    outside: tuple[OutsideReader, ...] = ()
    """Those of them that the contract does not name."""
    sees_all_groups: bool = True
    """Whether the account may list every group; otherwise there may be other readers."""
    approval: bool
    """Whether a person has to approve."""
    two_people: bool = False
    """Whether that may not be who asked for the run."""
    depends_on: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Why nothing of it may be applied."""
    items: tuple[Item, ...] = ()

    def replaced(self, **fields: Any) -> LinkPlan:
        """Build the plan with other values in some fields."""
        return LinkPlan(**{**dict(self), **fields})

    @property
    def also_read_by(self) -> str:
        """Name the other groups that read the topic, as far as we may see them."""
        named = ", ".join(self.readers)
        if not self.topic_id:
            return "not looked at"  # the plan was refused before
        if self.sees_all_groups:
            return named or "nobody"
        return f"{named}, and perhaps others that we may not see" if named else "none that we may see"

    @property
    def corrections(self) -> tuple[Item, ...]:
        """The items that a record mends."""
        return tuple(each for each in self.items if each.action.writes)

    @property
    def own(self) -> tuple[Item, ...]:
        """The items that emit a record."""
        return tuple(each for each in self.corrections if each.shared_with is None)

    @property
    def shared(self) -> tuple[Item, ...]:
        """The items that another link's record mends."""
        return tuple(each for each in self.corrections if each.shared_with is not None)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def counts(self) -> dict[str, int]:
        """How many items there are of each action."""
        counted = Counter(each.action for each in self.items)
        return {action.value: counted[action] for action in Action}


class Plan(_Frozen):
    """What is done about the findings of one run, link by link in the order of repair.

    It is sealed by a digest of all that it says: one that was edited since is no plan any more.
    """

    ARTIFACT: ClassVar[str] = "plan"
    STAGE: ClassVar[Literal["plan"]] = "plan"

    schema_version: Literal[1] = 1
    digest: str
    run_id: str
    contract: str
    contract_digest: str
    made_of: Mapping[str, str]
    """The digests of the artifacts that it was made of, by name."""
    refused: tuple[str, ...] = ()
    """Why nothing of it may be applied."""
    links: tuple[LinkPlan, ...] = ()

    @classmethod
    def sealed(cls, **content: Any) -> Plan:
        """Build a plan of all the other fields, with their digest."""
        return cls(digest=cls.model_construct(**content).content_digest, **content)

    @model_validator(mode="after")
    def _is_unchanged(self) -> Self:
        if self.digest != self.content_digest:
            raise ValueError("it does not say any more what was planned")
        return self

    @property
    def content_digest(self) -> str:
        """The digest of all that it says now."""
        said = self.model_dump(mode="json", exclude={"schema_version", "digest"})
        for item in (each for link in said["links"] for each in link["items"]):
            if item.get("shared_with", "") is None:
                del item["shared_with"]  # plans of versions that did not have it keep their digests
        return content_digest(said)

    @property
    def reasons(self) -> list[str]:
        """All that keeps it from being applied."""
        of_links = (f"{link.link}: {reason}" for link in self.links for reason in link.refused)
        return [*self.refused, *of_links]

    @property
    def corrections(self) -> Iterator[Item]:
        """The items that emit a record."""
        return (item for link in self.links for item in link.own)

    @property
    def to_approve(self) -> tuple[str, ...]:
        """The links whose corrections a person has to approve."""
        return tuple(each.link for each in self.links if each.approval and each.corrections)

    @property
    def two_people(self) -> bool:
        """Whether who asked for the run may not be who approves."""
        return any(each.two_people and each.corrections for each in self.links)

    def link(self, name: str) -> LinkPlan:
        """Choose the plan of a link."""
        return next(each for each in self.links if each.link == name)


def with_shared(links: Iterable[LinkPlan]) -> tuple[LinkPlan, ...]:
    """Let one record mend an aggregate in all copies whose groups read it: the first link emits it.

    The same change has to be wanted, from the same state of the source, in the same place. A group that builds on
    another gets a record of its own, which comes after the other's.
    """
    found: list[LinkPlan] = []
    first: dict[tuple[object, ...], LinkPlan] = {}
    for link in links:
        items = []
        for each in link.items:
            record = (
                each.topic,
                each.aggregate_id,
                each.action,
                each.basis_version,
                each.basis,
                each.key,
                each.partitions,
            )
            other = first.setdefault(record, link) if each.action.writes and each.topic is not None else link
            apart = other is link or other.group in link.depends_on or link.group in other.depends_on
            items.append(each if apart else each.model_copy(update={"shared_with": other.link}))
        found.append(link.replaced(items=tuple(items)))
    return tuple(found)


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
    """Count the aggregates that a cap's ratio is about: all of a link, also where a run is of some only."""
    return max(compared, source_rows or 0) if some else compared


def repair_order(groups: Mapping[str, Iterable[str]]) -> tuple[list[str], list[str]]:
    """Order groups so that each comes after those that it depends on; and choose those that depend on one another."""
    waiting = {name: {each for each in needs if each in groups and each != name} for name, needs in groups.items()}
    ordered: list[str] = []
    while ready := [name for name, needs in waiting.items() if needs <= set(ordered)]:
        ordered += ready
        for name in ready:
            del waiting[name]
    return [*ordered, *waiting], list(waiting)
