"""What a bench measured, as the JSON in bench/results has it, and its tables in Markdown, made of that alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from reconcile.files import committed

RESULTS = committed("bench", "results")

OURS = {
    "start": "Spark's start alone",
    "first": "the first night: all of the log is read",
    "second": "the second night: 1 % of the aggregates have changed, and new records are read",
    "agreeing": "a night whose sides agree",
    "id": "one aggregate (`run --id`)",
    "trace": "`trace`",
    "fence": "`fence`",
    "doctor": "the first `doctor`: the log's state lacks what it asks",
    "doctor_again": "`doctor` from the log's state",
    "unchanged": "a night of the same drift, with nothing new",
    "since": "changed only (`run --since last`)",
    "full": "a night in which all rows are read (`--mode full`)",
    "stores": "differing buckets, then both sides whole, to Parquet",
    "history": "the topic's history, read anew",
    "few": "a night of 2,000 aggregates with a short log",
    "tenth": "`audit`: a tenth of those suspects",
    "audit": "`audit`: suspects with 5 events each",
    "apply": "`apply`: a correction for what differs",
    "emission": "`bench.emission`",
    "consumer": "`bench.consumer_throughput`",
}
PEERS = {
    "reladiff": "reladiff",
    "datacompy": "datacompy's report on Spark, with extraction by JDBC",
    "join": "Spark: extraction by JDBC, full outer join",
    "copies": "`COPY` (binary) of both sides to nowhere",
    "digests": "the bare digests of both sides",
    "consumer_performance": "Kafka's ConsumerPerformance on the topic",
}
_AT_5M, _AT_20M = 5_000_000, 20_000_000


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Work(_Kept):
    """One measured process; without seconds it was not run, and `why_not` says why."""

    key: str
    seconds: float | None = None
    megabytes: float | None = None
    busy_before: float | None = None
    """Cores that were busy in the second before."""
    load_after: float | None = None
    figures: dict[str, float] = {}
    """What it said of itself."""
    why_not: str | None = None


class Machine(_Kept):
    """What all of it ran on."""

    cpu: str
    cores: int
    memory_gb: float
    load_before: float


class Result(_Kept):
    """One bench."""

    schema_version: Literal[1] = 1
    date: str
    rows: int
    differing: int
    """Aggregates that differ, as the world was made."""
    new: float
    """The share of the aggregates that changed before the second night, and once more before `--since`."""
    machine: Machine
    versions: dict[str, str]
    works: tuple[Work, ...]

    def work(self, key: str) -> Work:
        """Give a work by its key, also one that nobody tried."""
        return next((each for each in self.works if each.key == key), Work(key=key, why_not="not tried"))

    def seconds(self, key: str) -> float:
        """Give the seconds of a process; raise NotMeasuredError without."""
        found = self.work(key)
        if found.seconds is None:
            raise NotMeasuredError(f"{key}: {found.why_not}")
        return found.seconds

    def figure(self, key: str, name: str) -> float:
        """Give what a work said of itself; raise NotMeasuredError without."""
        found = self.work(key)
        if name not in found.figures:
            raise NotMeasuredError(f"{key}: {found.why_not or f'it did not say {name}'}")
        return found.figures[name]


class NotMeasuredError(Exception):
    """Raised when a figure is asked for that this result does not have."""


@dataclass(frozen=True)
class Goal:
    """What a figure should be, and how it follows from a result."""

    what: str
    compute: Callable[[Result], float]
    limit: float
    unit: Literal["x", "s"] = "x"
    at_least: bool = False
    rows: tuple[int, ...] = ()
    """The sizes for which it was set; none: any."""


def _ratio(ours: str, theirs: str) -> Callable[[Result], float]:
    return lambda result: result.seconds(ours) / result.seconds(theirs)


def _seconds(key: str) -> Callable[[Result], float]:
    return lambda result: result.seconds(key)


def _memory_growth(result: Result) -> float:
    result.seconds("audit"), result.seconds("tenth")
    return (result.work("audit").megabytes or 0) / (result.work("tenth").megabytes or 1)


GOALS = (
    Goal("second night / reladiff", _ratio("second", "reladiff"), 0.25),
    Goal("second night / datacompy with its extraction", _ratio("second", "datacompy"), 0.1),
    Goal(
        "a night whose sides agree / the bare digests and Spark's start",
        lambda result: result.seconds("agreeing") / (result.seconds("digests") + result.seconds("start")),
        1.5,
    ),
    Goal("first night", _seconds("first"), 32, "s", rows=(_AT_5M,)),
    Goal("second night", _seconds("second"), 45, "s", rows=(_AT_20M,)),
    Goal("changed only", _seconds("since"), 10, "s", rows=(_AT_5M, _AT_20M)),
    Goal("one aggregate", _seconds("id"), 7, "s"),
    Goal("`trace`", _seconds("trace"), 3, "s"),
    Goal("`fence`", _seconds("fence"), 3, "s"),
    Goal("`doctor` from the log's state", _seconds("doctor_again"), 8, "s"),
    Goal(
        "both sides whole to Parquet / `COPY` of both, without starts",
        lambda result: result.figure("stores", "snapshot") / result.figure("copies", "seconds"),
        2.5,
    ),
    Goal(
        "the topic's history / ConsumerPerformance, without starts",
        lambda result: result.figure("history", "seconds") / result.figure("consumer_performance", "seconds"),
        2.5,
    ),
    Goal("`audit` of 250,000 suspects", _seconds("audit"), 60, "s", rows=(_AT_5M,)),
    Goal("memory of `audit` / memory with a tenth of the suspects", _memory_growth, 1.25),
    Goal("emission / a bare transactional producer", lambda r: r.figure("emission", "of_bare"), 0.5, at_least=True),
    Goal("consumer library, one by one / a bare loop", lambda r: r.figure("consumer", "of_bare"), 0.5, at_least=True),
    Goal("consumer library, in batches / one by one", lambda r: r.figure("consumer", "of_one"), 5, at_least=True),
)


def committed_results() -> list[Result]:
    """Read the committed results, that of the largest world last."""
    found = [Result.model_validate_json(path.read_text("utf-8")) for path in RESULTS.glob("nights-*.json")]
    return sorted(found, key=lambda result: result.rows)


def path_of(result: Result, ending: str) -> Path:
    """Name a file of a result: one for each size."""
    return RESULTS / f"nights-{result.rows}.{ending}"


def write(result: Result) -> None:
    """Write a result as JSON; `bench.pages` writes what is made of it."""
    RESULTS.mkdir(exist_ok=True)
    path_of(result, "json").write_text(result.model_dump_json(indent=1) + "\n", "utf-8")


def page(result: Result) -> str:
    """Render all of a result."""
    return "\n".join(
        [
            f"# {result.rows:,} rows a side",
            "",
            f"{told(result)} The load before was {result.machine.load_before:.1f}. Seconds are of whole processes,"
            " starts included; memory is the most that the tree of processes held at once (PSS).",
            "",
            *_works("ours", OURS, result),
            "",
            *_works("others, on the same data", PEERS, result),
            "",
            *_goals(result),
            "",
            f"Versions: {', '.join(f'{name} {version}' for name, version in result.versions.items())}.",
            "",
        ]
    )


def told(result: Result) -> str:
    """Render in a sentence or two what was measured, and where."""
    machine = result.machine
    return (
        f"Measured on {result.date} on {machine.cores} cores of {machine.cpu} with {machine.memory_gb:.0f} GB, which"
        f" also ran Postgres and Kafka: {result.rows:,} rows a side with 8 columns beside the id, of which"
        f" {result.differing:,} differ (changed, missing, orphans), and a topic in 12 partitions with a record of"
        " each."
    )


def summary(result: Result) -> str:
    """Render the table of the README."""
    keys = ("first", "second", "agreeing", "id", "reladiff", "datacompy", "join")
    names = OURS | PEERS
    lines = ["| what | seconds | memory |", "|---|---|---|"]
    for key in keys:
        name = f"`reconcile`, {names[key]}" if key in OURS else names[key]
        lines.append(f"| {name} | {_measure(result.work(key))} |")
    return "\n".join(lines)


def _works(title: str, names: dict[str, str], result: Result) -> list[str]:
    lines = [
        f"| {title} | seconds | memory | busy cores before | load after | its own figures |",
        "|---|---|---|---|---|---|",
    ]
    for key, name in names.items():
        work = result.work(key)
        figures = ", ".join(f"{name} {_number(value)}" for name, value in work.figures.items())
        around = f"{_shown(work.busy_before)} | {_shown(work.load_after)}"
        lines.append(f"| {name} | {_measure(work)} | {around} | {figures} |")
    return lines


def _measure(work: Work) -> str:
    if work.seconds is None:
        return f"not run: {work.why_not} | "
    return f"{work.seconds:.1f} | {work.megabytes or 0:,.0f} MB"


def _goals(result: Result) -> list[str]:
    lines = ["| goal | wanted | measured | met |", "|---|---|---|---|"]
    for goal in GOALS:
        unit = " s" if goal.unit == "s" else ""
        sign, decimals = ("≥" if goal.at_least else "≤"), 1 if goal.unit == "s" else 2
        try:
            value = goal.compute(result)
        except NotMeasuredError as error:
            lines.append(f"| {goal.what} | {sign} {goal.limit:g}{unit} | not measured: {error} | |")
            continue
        met = "yes" if (value >= goal.limit if goal.at_least else value <= goal.limit) else "**no**"
        if goal.rows and result.rows not in goal.rows:
            met = f"set for {' and '.join(f'{rows:,}' for rows in goal.rows)} rows"
        lines.append(f"| {goal.what} | {sign} {goal.limit:g}{unit} | {value:.{decimals}f}{unit} | {met} |")
    return lines


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.2f}"


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
