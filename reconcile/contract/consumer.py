"""The part of a contract that says who keeps a copy, what is compared, and how the copy may be repaired."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from reconcile.config.durations import Duration
from reconcile.config.text import Text
from reconcile.config.validation import Contradiction, Model, not_among
from reconcile.config.yamlfile import KeyPath, quoted
from reconcile.contract.terms import (
    Amount,
    Columns,
    Count,
    EncodingName,
    EventExpression,
    EventPath,
    Name,
    NotEmpty,
    Ratio,
    Rows,
    Sql,
    TableName,
    TopicName,
    rows_contradictions,
)
from reconcile.domain import mapping
from reconcile.domain.cause import Cause
from reconcile.domain.encoding import Encoding, parse

Policy = Literal["ignore", "block", "retry-then-dead-letter", "retry-topics", "stash"]
Dialect = Literal[
    "auto",
    "reconcile",
    "spring-dlt",
    "spring-retry",
    "kafka-connect",
    "kafka-streams",
    "share-group",
    "smallrye-dlq",
    "smallrye-retry",
    "greyhound",
    "karafka",
    "arroyo",
]
NEVER_REPAIRED = (Cause.IN_FLIGHT, Cause.STASHED)
REPAIRABLE = tuple(cause.value for cause in Cause if cause not in NEVER_REPAIRED)

_POLICY_NEEDS = {"stash": "stash", "retry-topics": "retry", "retry-then-dead-letter": "dead_letter"}


class FailureTopic(Model):
    """A topic that holds events which could not be applied, and the group that reads it."""

    topic: TopicName
    """The topic's name."""
    group: Text | None = None
    """The group that reads the topic; left out, it is the consumer's own."""


class DelayedTopic(FailureTopic):
    """A retry topic: a topic for failed events, in which each waits before it is tried again."""

    delay: Duration | None = None
    """How long an event waits there; left out, 10 s in the first topic, then 1 min, 10 min, 1 h, 6 h and 1 d."""


class StashTable(Model):
    """A table in the consumer's store that holds events which could not be applied."""

    table: TableName
    """The table's name."""
    id: Columns
    """The column with the aggregate's id, or the list of columns that make it up."""
    partition: Text
    """The column with the partition that the event came from."""
    offset: Text
    """The column with the offset that the event came from."""
    event_id: Text | None = None
    """The column with the event's id."""
    resolved: Sql | None = None
    """SQL that is true where the event has been applied since; left out, each row there is unresolved."""
    at: Text | None = None
    """The column with the time at which the event was put aside."""


def _failure_topic(value: Any) -> Any:
    if isinstance(value, str):
        return {"topic": value}
    if isinstance(value, (dict, FailureTopic)):
        return value
    raise ValueError("expected a topic's name, or {topic: ..., group: ...}")


def _delayed_topic(value: Any) -> Any:
    if isinstance(value, str):
        return {"topic": value}
    if isinstance(value, (dict, DelayedTopic)):
        return value
    raise ValueError("expected a topic's name, or {topic: ..., group: ..., delay: ...}")


def _stash(value: Any) -> Any:
    if isinstance(value, str):
        return {"topic": value}
    if isinstance(value, (dict, FailureTopic, StashTable)):
        return value
    raise ValueError("expected a topic's name, {topic: ..., group: ...}, or {table: ..., id: ..., ...}")


def _stash_kind(value: Any) -> str:
    is_table = isinstance(value, StashTable) or (isinstance(value, dict) and "table" in value)
    return "<kind:table>" if is_table else "<kind:topic>"


TopicAndGroup = Annotated[
    FailureTopic, BeforeValidator(_failure_topic, json_schema_input_type=TopicName | FailureTopic)
]
RetryTopicAndDelay = Annotated[
    DelayedTopic, BeforeValidator(_delayed_topic, json_schema_input_type=TopicName | DelayedTopic)
]
AnyStash = Annotated[
    Annotated[FailureTopic, Tag("<kind:topic>")] | Annotated[StashTable, Tag("<kind:table>")],
    Discriminator(_stash_kind),
    BeforeValidator(_stash, json_schema_input_type=TopicName | FailureTopic | StashTable),
]


class Ledger(Model):
    """The consumer's own record of the events that it applied."""

    table: TableName
    """The table, in the consumer's store."""
    event_id: Text | None = None
    """The column with the event's id; needed unless there are `partition` and `offset`."""
    partition: Text | None = None
    """The column with the event's partition."""
    offset: Text | None = None
    """The column with the event's offset."""
    at: Text | None = None
    """The column with the time at which the event was applied."""

    def contradictions(self) -> Iterator[Contradiction]:
        """List what does not fit together."""
        if self.event_id is None and (self.partition is None or self.offset is None):
            yield (), "needs `event_id`, or both `partition` and `offset`"


class Failure(Model):
    """What the consumer does with an event that it cannot apply, and where such events lie."""

    policy: Policy
    """What happens to the event: dropped, tried until it works, retried and then dead-lettered, or put aside."""
    retry: Annotated[tuple[RetryTopicAndDelay, ...], Field(strict=False)] = ()
    """The retry topics, in the order in which an event goes through them."""
    dead_letter: TopicAndGroup | None = None
    """The topic of events that were given up."""
    stash: AnyStash | None = None
    """The topic or the table of events that wait until what they need is there."""
    dialect: Dialect = "auto"
    """How the headers of these topics tell where an event came from; `auto` looks at each record."""
    ledger: Ledger | None = None
    """The table in which the consumer notes what it applied: the strongest evidence of what it did."""

    def contradictions(self) -> Iterator[Contradiction]:
        """List what does not fit together."""
        needed = _POLICY_NEEDS.get(self.policy)
        if needed and not getattr(self, needed):
            yield ("policy",), f"the policy {self.policy} needs `{needed}`"
        first: dict[str, KeyPath] = {}
        for path, topic in self.topics():
            if topic in first:
                yield path, f"the topic {topic} is already named in this failure block"
            first.setdefault(topic, path)

    def topics(self) -> Iterator[tuple[KeyPath, str]]:
        """List each topic for failed events, with its path."""
        for index, retry in enumerate(self.retry):
            yield ("retry", index), retry.topic
        if self.dead_letter is not None:
            yield ("dead_letter",), self.dead_letter.topic
        if isinstance(self.stash, FailureTopic):
            yield ("stash",), self.stash.topic


class EncodedValue(Model):
    """A value that stands in events as connectors write it."""

    path: EventPath
    """Where it stands in the event: one path."""
    as_: EncodingName = Field(alias="as")
    """How it is written: decimal(12,2) in base64, epoch_days, epoch_millis, epoch_micros, epoch_nanos, and the like."""

    @property
    def encoding(self) -> Encoding:
        """How it is read and written."""
        return parse(self.as_)


def _event_kind(value: Any) -> str:
    return "<kind:encoded>" if isinstance(value, (dict, EncodedValue)) else "<kind:expression>"


EventValue = Annotated[
    Annotated[EventExpression, Tag("<kind:expression>")] | Annotated[EncodedValue, Tag("<kind:encoded>")],
    Discriminator(_event_kind),
]


class ComparedField(Model):
    """One thing that the source and the copy must agree on."""

    name: Text
    """What findings call it."""
    source: Sql
    """SQL over the source's row."""
    consumer: Sql
    """SQL over the copy's row; its type is the one that values are compared in."""
    event: EventValue | None = None
    """Spark SQL in which `$.a.b` stands for that path of the event, as text; or a path, and as what it is written."""
    apply: Literal["set", "add"] = "set"
    """`set`: the event holds the new value. `add`: the event holds what is added to the old one."""
    tolerance: Amount = Decimal(0)
    """How far two numbers may lie apart and still count as equal."""
    sensitive: bool = False
    """Whether values are kept out of reports and logs."""

    @property
    def event_paths(self) -> tuple[str, ...]:
        """The paths that its event looks at."""
        if isinstance(self.event, EncodedValue):
            return (self.event.path,)
        return () if self.event is None else mapping.paths(self.event)


class Settle(Model):
    """How long to wait for the consumer."""

    timeout: Duration = timedelta(seconds=60)
    """How long the group may take to reach the end of the topic."""
    confirm_after: Duration = timedelta(seconds=5)
    """How long to wait before rows that differ are read again."""


class Tolerance(Model):
    """Drift that is reported but does not fail the run."""

    rows: Count = 0
    """How many aggregates may differ."""
    ratio: Ratio = 0.0
    """Which part of all aggregates may differ, from 0 to 1."""


class RepairTopic(Model):
    """A topic for corrections that this group alone reads."""

    topic: TopicName
    """The topic's name."""


def _route(value: Any) -> Any:
    if value == "main" or isinstance(value, (dict, RepairTopic)):
        return value
    if isinstance(value, str):
        raise ValueError(f"{quoted(value)} is not valid: write main, or {{topic: {value[:60]}}}")
    raise ValueError("expected main, or {topic: ...}")


def _route_kind(value: Any) -> str:
    return "<kind:main>" if isinstance(value, str) else "<kind:topic>"


def _repairable(value: Any) -> Any:
    if value in NEVER_REPAIRED:
        does = "arrive by themselves" if value == Cause.IN_FLIGHT else "are released from the stash"
        raise ValueError(f"{value} is never repaired: such events {does}")
    if not isinstance(value, str) or value not in REPAIRABLE:
        raise ValueError(not_among(value, REPAIRABLE))
    return Cause(value)


Route = Annotated[
    Annotated[Literal["main"], Tag("<kind:main>")] | Annotated[RepairTopic, Tag("<kind:topic>")],
    Discriminator(_route_kind),
    BeforeValidator(_route, json_schema_input_type=Literal["main"] | RepairTopic),
]
RepairableCause = Annotated[
    Cause, BeforeValidator(_repairable), WithJsonSchema({"type": "string", "enum": list(REPAIRABLE)})
]


class RepairTerms(Model):
    """What may be repaired, and within which bounds."""

    route: Route = "main"
    """Where corrections go: the main topic, or one of the group's own."""
    causes: Annotated[tuple[RepairableCause, ...], Field(strict=False)] | None = None
    """The causes that are repaired; left out, every cause with a safe repair."""
    deletes: bool = False
    """Whether corrections may delete rows that the source no longer has."""
    max_corrections: Count = 1000
    """A plan with more corrections than this is refused."""
    max_ratio: Ratio = 0.01
    """A plan that would correct a larger part of all aggregates than this is refused."""
    min_confidence: Literal["certain", "probable", "possible"] = "probable"
    """How sure the cause of a finding has to be; below it there is advice. A deletion always wants `certain`."""
    approval: Literal["required", "none", "two-people"] = "required"
    """Whether a person approves each plan before it is applied; with `two-people` another one than who asked for it."""
    compensate: bool = False
    """Whether a wrong sum (`apply: add`) gets the difference, as an event on a route of the consumer's own."""


class Distributions(Model):
    """How far the distributions of values may move between nights."""

    severity: Literal["warning", "critical"] = "warning"
    """What it means if they moved farther: `critical` stops a repair."""
    rows: Ratio = 0.2
    """By which part the number of rows may change."""
    missing: Ratio = 0.01
    """By how much the share of rows without a value may change, field by field."""
    values: Ratio = 0.1
    """Which share of rows may have moved to other values, field by field."""


class Consumer(Rows):
    """A service that consumes the topic and keeps a copy."""

    name: Name
    """What the consumer is called; the link is named after the aggregate and it."""
    group: Text
    """The consumer group that commits the offsets."""
    semantics: Literal["state", "records"] = "state"
    """`state`: one row per aggregate, updated in place. `records`: one row per event, never changed."""
    expires: bool = False
    """Whether rows of the copy may be gone, as those of a cache expire: one that is missing is tolerated."""
    guard: Literal["none", "newer", "newer-or-equal"] = "none"
    """Which versions the consumer accepts over the one that it has; `none`: all of them."""
    isolation: Literal["read_committed", "read_uncommitted"] | None = None
    """The isolation level that the group's clients are set to; left out, it is not known: the copy is not corrected."""
    fields: Annotated[tuple[ComparedField, ...], *NotEmpty]
    """What is compared."""
    failure: Failure = Failure(policy="ignore")
    """What happens to events that could not be applied."""
    depends_on: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    """Other groups whose state this copy builds on; a consumer of this contract also by its name."""
    settle: Settle = Settle()
    """How long to wait for the group and for rows in motion."""
    tolerance: Tolerance = Tolerance()
    """Drift that is reported but does not fail the run."""
    repair: RepairTerms = RepairTerms()
    """What may be repaired, and within which bounds."""
    quality: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    """The expectation suites that the copy is checked with."""
    distributions: Distributions | None = None
    """How far the distributions of values may move between nights; left out, they are not looked at."""

    def contradictions(self) -> Iterator[Contradiction]:
        """List what does not fit together."""
        yield from rows_contradictions(self)
        seen: set[str] = set()
        for index, field in enumerate(self.fields):
            if field.name in seen:
                yield ("fields", index, "name"), f"the field {quoted(field.name)} is already there"
            seen.add(field.name)
            if field.apply == "add" and field.event is None:
                yield ("fields", index, "apply"), "`apply: add` needs `event`, which tells how much each event adds"
        if self.expires and self.semantics == "records":
            yield ("expires",), "is for copies of state: a record that is gone is lost"
        if self.repair.compensate:
            for message in self._against_compensation():
                yield ("repair", "compensate"), message

    def _against_compensation(self) -> Iterator[str]:
        """Say what it takes for an event with a difference to be added once, and by this consumer alone."""
        if self.repair.route == "main":
            yield "needs `route: {topic: ...}`: on the main topic every group would add the difference"
        ledger = self.failure.ledger
        if (ledger is None or ledger.event_id is None) and not (self.guard == "newer" and self.version):
            yield "needs failure.ledger.event_id, or `guard: newer` with `version`: an event may come twice"
        if self.semantics == "records":
            yield "needs `semantics: state`: the copy never changes what it has"
        if not any(field.apply == "add" for field in self.fields):
            yield "needs a field with `apply: add`"
