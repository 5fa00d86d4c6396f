"""What the commands print with --json: one model for each command, and the JSON Schemas of them all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter, computed_field
from pydantic.dataclasses import dataclass
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from reconcile.audit.topology import Check
from reconcile.cli.output import Output
from reconcile.config.durations import Duration
from reconcile.domain.finding import Finding
from reconcile.errors import Problem
from reconcile.gather.fence.fence import ConsumerFence, SourceFence, TopicFence, UnreadableLink
from reconcile.lab.truth import Truth
from reconcile.pipeline.grants import Purpose
from reconcile.pipeline.handoffs import Applied, Forgotten, Gathered, Plan, Pruned, Quality, Summary, Verified
from reconcile.pipeline.runs import RunLine
from reconcile.report.model import Expectation, Report, Story, TracedRecord, Trend
from reconcile.workspace.handoff import Part

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _SchemaOf:
    """Annotates what is JSON already with the model of its schema."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(TypeAdapter(self.model).core_schema)


@plain_dataclass(frozen=True, kw_only=True)
class FindingLine(Finding):
    """A finding as one line of JSON."""

    run_id: str
    schema_version: Literal[1] = 1


class ContractCheck(Output):
    """Whether a contract is valid, and what is wrong with it."""

    file: str
    valid: bool
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    """What is so, as the contract says, and does harm."""


class ContractGrants(Output):
    """The rights that a contract needs, by what they are for."""

    sql: dict[Purpose, dict[str, str]]
    """The statements for each store."""
    kafka: dict[Purpose, list[str]]
    """Calls of kafka-acls."""


class RunArtifacts(Part):
    """Where a run's results are."""

    report: str | None
    """The HTML report; null where none was written."""
    findings: str


class AuditOutput(Output, Summary):
    """What an audit found, in figures."""

    run_id: str
    artifacts: RunArtifacts


class FailedExpectations(Part):
    """How the expectations of a run went."""

    success: bool
    """Whether none failed that stops a repair."""
    failed: tuple[Expectation, ...]


class RefusedRepair(Part):
    """A repair that was refused."""

    refused: str


class FailedRepair(Part):
    """A repair that failed: it may succeed later."""

    failed: str


class RunOutput(AuditOutput):
    """What a run found and repaired."""

    quality: FailedExpectations | None = None
    """Left out where no expectations were checked."""
    repair: Verified | RefusedRepair | FailedRepair | None = None
    """Left out without --apply; null where the answer was no."""


class TableRows(Part):
    """A table that was published."""

    rows: int | None
    complete: bool


class GatherOutput(Output, Gathered):
    """What was read into a run."""

    run_id: str
    artifacts: dict[str, TableRows]  # type: ignore[assignment] # the hand-off has their digests


class QualityOutput(Output, Quality):
    """How each expectation went."""

    run_id: str


class FindingsOutput(Output):
    """The findings of a run."""

    run_id: str
    findings: Annotated[list[dict[str, Any]], _SchemaOf(list[FindingLine])]


@plain_dataclass(frozen=True, kw_only=True)
class ExplainedStory(Story):
    """The story of an aggregate in one link, and what was found of it."""

    finding: FindingLine | None
    """Null where the copy agrees."""


class ExplainOutput(Output):
    """The stories of one aggregate, one for each of its copies."""

    run_id: str
    stories: Annotated[list[dict[str, Any]], _SchemaOf(list[ExplainedStory])]


class TraceOutput(Output):
    """All records of an aggregate or a correlation id, by time."""

    records: tuple[TracedRecord, ...]


class RunsOutput(Output):
    """Past runs, the newest first."""

    runs: tuple[RunLine, ...]


class HistoryOutput(Output):
    """Drift over the runs of a contract."""

    contract: str
    links: tuple[Trend, ...]


@plain_dataclass(frozen=True)
class ReportOutput(Report):
    """The report of a run, and its files."""

    artifacts: Mapping[str, str]
    """The path of each rendering, by its format."""
    schema_version: Literal[1] = 1


@dataclass(frozen=True, config=ConfigDict(use_attribute_docstrings=True))
class FenceConsumer(ConsumerFence):
    """A copy's instant, how far its group had come, and what that means."""

    lag = computed_field(ConsumerFence.lag)
    states = computed_field(ConsumerFence.states)  # type: ignore[arg-type] # a property is what it takes


class FenceOutput(Output):
    """The positions of the source, the log and the groups of a contract."""

    contract: str
    """The contract's file."""
    digest: str
    complete: bool
    aggregate: str
    opened_at: datetime
    closed_at: datetime
    source: SourceFence
    topic: TopicFence
    consumers: tuple[FenceConsumer, ...]
    unread: tuple[UnreadableLink, ...]


class ProbablePartitioner(Part):
    """Which partitioner puts keys into the topic's partitions."""

    name: str | None
    seen: int
    """How many keys were looked at."""
    shares: dict[str, float]
    """The share of the keys that each partitioner explains."""


class DoctorOutput(Output):
    """The checks of a contract and its topology."""

    contract: str
    digest: str
    aggregate: str
    topic: str
    partitions: int
    partitioner: ProbablePartitioner
    checks: tuple[Check, ...]
    counts: dict[str, int]
    """How many checks there are of each severity."""
    untold: tuple[str, ...]
    """What could not be read."""
    exit_code: int


class RequestOutput(Output):
    """A request for a run by Airflow."""

    request_id: str
    contract: str
    topic: str
    sent: bool
    """Whether the wake-up was sent; if not, Airflow finds the request when it next looks."""


class SetupOutput(Output):
    """What Spark and the lab need beside Python, and where it is."""

    folder: str
    jars: int
    archive: str | None
    anew: bool
    """Whether there was anything to do."""
    seconds: float


class BlockedLine(Part):
    """An aggregate that waits behind a message that could not be processed."""

    aggregate_id: str
    messages: int
    since: datetime
    origin: str | None
    """Where its first message stands in the log: topic[partition]@offset."""
    event_id: str | None
    error: str | None
    """The class of the error."""
    drains: int
    """How often a drain tried it in vain."""


class StashListOutput(Output):
    """What a consumer has stashed."""

    group: str
    aggregates: int
    messages: int
    oldest: datetime | None
    blocked: tuple[BlockedLine, ...]
    """The aggregates that are blocked for longest; as many as --limit allows."""


class StashedLine(Part):
    """A stashed message."""

    origin: str
    event_id: str | None
    at: datetime | None
    stashed_at: datetime
    replayed: bool
    drains: int
    error: str | None
    """The class of its error; null for one that waits behind others."""
    message: str | None
    """What the error says."""
    payload: str | None
    """Its value as text, with --payload."""


class StashShowOutput(Output):
    """What is stashed of one aggregate, in the order in which it will be applied."""

    group: str
    aggregate_id: str
    letters: tuple[StashedLine, ...]


class StashDrainOutput(Output):
    """What a drain did."""

    group: str
    applied: int
    older: int
    """Messages that were dropped, because a newer state had been applied."""
    damaged: int
    """Messages that were skipped, because they are registered as damaged."""
    seen: int
    """Messages that had been applied before."""
    unblocked: tuple[str, ...]
    blocked: tuple[str, ...]
    """Aggregates whose first message failed again."""
    interrupted: bool


class StashTakenOutput(Output):
    """How many messages were taken out of the stash unapplied."""

    group: str
    aggregate_id: str
    messages: int


class ConsumerMigrateOutput(Output):
    """What was done to the library's tables in a consumer's database."""

    group: str
    applied: tuple[str, ...]
    """The migrations that were applied; none where the tables are up to date."""


class ConsumerPruneOutput(Output):
    """How many rows of a ledger were deleted, or would be, and what had to stay."""

    group: str
    rows: int
    dry_run: bool
    before: datetime
    """Rows that are younger were kept."""
    replay_window: Duration
    """For how long a record of the topics may be read again: the least that --keep may say."""
    begins: dict[int, int]
    """By partition, where the records begin that may be read again; rows from there on were kept."""


class DamagedLine(Part):
    """A message that is registered as damaged."""

    origin: str
    because: str
    noted_at: datetime
    outcome: str | None
    """What the ledger says became of it."""
    stashed: bool


class DamagedOutput(Output):
    """What is registered as damaged for a consumer."""

    group: str
    damaged: tuple[DamagedLine, ...]


class DamagedChangeOutput(Output):
    """A message that was registered as damaged, or is not any more."""

    origin: str
    changed: bool
    """Whether it was not so before."""


class DeadLetterLine(Part):
    """A dead letter."""

    key: str
    aggregate_id: str | None
    origin: str
    event_id: str | None
    day: str | None
    error: str | None
    message: str | None
    nameless: bool
    """Whether it belongs to no aggregate, so that it cannot be replayed."""
    outcome: str | None
    """What the ledger says became of it."""
    resolved: bool
    payload: str | None = None
    """Its value as text, with --payload."""


class DeadLettersOutput(Output):
    """The dead letters of a consumer."""

    topic: str
    letters: tuple[DeadLetterLine, ...]


class DeadLettersDoneOutput(Output):
    """How many dead letters were replayed or cleaned."""

    topic: str
    letters: int


class LabOutput(Output):
    """What of the lab runs, and how to reach it. Only the first two fields are there before its first `up`."""

    running: bool
    folder: str
    postgres: str = ""
    kafka: str = ""
    databases: dict[str, str] = Field(default_factory=dict)
    """The URL of each database."""
    config: str = ""
    """The settings file."""
    truth: str = ""
    processes: dict[str, int | None] = Field(default_factory=dict)
    """The process of each server; null for one that is down."""
    seed: int | None = None
    aggregates: int = 0
    seeded: Literal["no", "begun", "yes"] = "no"


class SeedOutput(Output):
    """What a world was filled with."""

    aggregates: int
    events: int
    seconds: float


class TrafficOutput(Output):
    """What changed in a world, and what came of it."""

    changes: int
    published: int
    applied: dict[str, int]
    """How many events each consumer applied."""
    seconds: float
    drained: bool
    """Whether every copy had all of it in the end."""


class PruneOutput(Output, Pruned):
    """What was pruned, or would be."""

    dry_run: bool
    """Whether nothing was removed."""


class ForgetOutput(Output, Forgotten):
    """What is not known of aggregates any more, and what still is."""

    contract: str


class FaultLine(Part):
    """A fault that can be planted."""

    name: str
    systems: tuple[str, ...]
    what: str


class FaultOutput(Output):
    """The faults that there are, with --list; else how many differences were planted."""

    faults: tuple[FaultLine, ...] = ()
    differences: int = 0


class TruthOutput(Output):
    """What the faults changed."""

    truth: Annotated[list[dict[str, Any]], _SchemaOf(list[Truth])]


OUTPUTS: Mapping[str, Any] = {
    "contract check": ContractCheck, "contract grants": ContractGrants,
    "run": RunOutput, "gather": GatherOutput, "audit": AuditOutput,
    "quality": QualityOutput, "plan": Plan, "apply": Applied, "verify": Verified, "findings": FindingsOutput,
    "explain": ExplainOutput, "trace": TraceOutput, "runs": RunsOutput, "report": ReportOutput,
    "history": HistoryOutput, "fence": FenceOutput, "doctor": DoctorOutput, "request": RequestOutput,
    "prune": PruneOutput, "forget": ForgetOutput, "setup": SetupOutput, "consumer migrate": ConsumerMigrateOutput,
    "consumer prune": ConsumerPruneOutput, "damaged list": DamagedOutput, "damaged add": DamagedChangeOutput,
    "damaged remove": DamagedChangeOutput, "stash list": StashListOutput,
    "stash show": StashShowOutput, "stash drain": StashDrainOutput, "stash release": StashTakenOutput,
    "stash discard": StashTakenOutput, "dead-letters list": DeadLettersOutput, "dead-letters show": DeadLettersOutput,
    "dead-letters replay": DeadLettersDoneOutput, "dead-letters clean": DeadLettersDoneOutput,
    "lab up": LabOutput, "lab status": LabOutput, "lab seed": SeedOutput,
    "lab traffic": TrafficOutput, "lab fault": FaultOutput, "lab truth": TruthOutput,
}  # fmt: skip
"""The model that each command prints."""


def schema_file(command: str) -> str:
    """Name the file of a command's schema."""
    return f"{command.replace(' ', '-')}.schema.json"


def output_schema(command: str) -> dict[str, Any]:
    """Build the JSON Schema of what a command prints with --json."""
    schema = TypeAdapter(OUTPUTS[command]).json_schema(mode="serialization")
    schema["required"] = ["schema_version", *schema.get("required", ())]
    return {"$schema": _DIALECT, **schema, "title": f"reconcile {command} --json"}


def write_schemas(folder: Path) -> None:
    """Write the schema of each command into a folder."""
    folder.mkdir(exist_ok=True)
    for command in OUTPUTS:
        text = json.dumps(output_schema(command), indent=2, ensure_ascii=False)
        (folder / schema_file(command)).write_text(f"{text}\n", "utf-8")
