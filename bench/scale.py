"""What a night of a very large world would take, by the units that a bench measured: a straight line through them.

python -m bench.scale
python -m bench.scale --aggregates 1000000000 --log-terabytes 10
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from bench.nights.result import NotMeasuredError, Result, committed_results
from reconcile.gather.stores.digest import MAX_BUCKETS, bucket_count

AGGREGATES = 10_000_000_000
TERABYTES = 100
RECORD = 200
"""Bytes of a record in the topic."""
CHANGED = 0.01
"""The share of the aggregates with a new record each night."""
DRIFTS = (0.001, 0.000_001)
CORES = 256
SHARDS = 64
"""Databases or read replicas, each with a range of the ids, that answer side by side."""
_MEASURED_CORES = 2


@dataclass(frozen=True)
class Unit:
    """What one thing costs, and how that follows from what was measured."""

    name: str
    seconds: float
    of: str


@dataclass(frozen=True)
class Stage:
    """A part of a night: how many things it handles, and the seconds for all of them where they were measured."""

    name: str
    things: str
    seconds: float
    divided_by: int
    """By so much it is shorter on the large installation."""


class Units:
    """The costs of single things."""

    def __init__(self, result: Result) -> None:
        fetched, records = result.figure("stores", "buckets"), result.figure("history", "records")
        suspects = result.figure("audit", "findings") - result.figure("tenth", "findings")
        nightly = result.seconds("agreeing") - result.seconds("few") - result.figure("digests", "seconds")
        self.start = Unit("start of a run, whatever its size", result.seconds("few"), "a night of 2,000 aggregates")
        self.row = Unit(
            "row digested, on both sides at once", result.figure("digests", "seconds") / result.rows, "digests"
        )
        self.bucket = Unit(
            "differing bucket fetched", result.figure("stores", "fetch") / max(fetched, 1), "their fetch"
        )
        self.whole = Unit(
            "row read whole, on both sides", result.figure("stores", "snapshot") / result.rows, "`--mode full`"
        )
        self.record = Unit(
            "record read into the history", result.figure("history", "seconds") / records, "the history read anew"
        )
        self.known = Unit(
            "record in the history, each night",
            max(nightly, 0) / records,
            "a night whose sides agree, less its digests and the night of 2,000",
        )
        self.suspect = Unit(
            "suspect attributed",
            max(result.seconds("audit") - result.seconds("tenth"), 0) / max(suspects, 1),
            "`audit` of all suspects, less that of a tenth",
        )
        self.correction = Unit("correction emitted", 1 / result.figure("emission", "a_second"), "`bench.emission`")
        self.bytes_kept = result.figure("history", "bytes") / records

    def all(self) -> list[Unit]:
        """Give all of them, in the order of a night."""
        first = [self.start, self.row, self.bucket, self.whole, self.record, self.known]
        return [*first, self.suspect, self.correction]


def stages(units: Units, aggregates: int, terabytes: float, drift: float) -> list[Stage]:
    """Compute the parts of a night."""
    records = terabytes * 1e12 / RECORD
    new, suspects = aggregates * CHANGED, aggregates * drift
    buckets = bucket_count(aggregates)
    held = aggregates / buckets
    differing = buckets * (1 - (1 - drift) ** held)
    fetched = min(differing * max(units.bucket.seconds, held * units.whole.seconds), aggregates * units.whole.seconds)
    spread = CORES // _MEASURED_CORES
    return [
        Stage("start", "", units.start.seconds, 1),
        Stage("digests", f"{aggregates:,.0f} rows a side", aggregates * units.row.seconds, SHARDS),
        Stage("differing buckets", f"{differing:,.0f} of {buckets:,} buckets", fetched, SHARDS),
        Stage("the log for the first time", f"{records:,.0f} records", records * units.record.seconds, spread),
        Stage("the log's new records", f"{new:,.0f} records", new * units.record.seconds, spread),
        Stage("the history, each night", f"{records:,.0f} records", records * units.known.seconds, spread),
        Stage("attribution", f"{suspects:,.0f} suspects", suspects * units.suspect.seconds, spread),
        Stage("emission", f"{suspects:,.0f} corrections", suspects * units.correction.seconds, 1),
    ]


def page(result: Result, aggregates: int = AGGREGATES, terabytes: float = TERABYTES) -> str:
    """Render the tables of docs/scale.md; without all units, what is missing."""
    try:
        units = Units(result)
    except NotMeasuredError as error:
        return f"The bench of {result.rows:,} rows did not measure all that this needs: {error}"
    lines = [f"From the bench of {result.rows:,} rows of {result.date}, on {result.machine.cores} cores:", ""]
    lines += ["| one | costs | measured by |", "|---|---|---|"]
    lines += [f"| {each.name} | {_small(each.seconds)} | {each.of} |" for each in units.all()]
    for drift in DRIFTS:
        found = stages(units, aggregates, terabytes, drift)
        lines += ["", f"{aggregates:,} aggregates, {terabytes:g} TB of log, of which {_percent(drift)} differ:", ""]
        lines += ["| stage | how much | as measured | on the large installation |", "|---|---|---|---|"]
        lines += [
            f"| {each.name} | {each.things} | {duration(each.seconds)} | {duration(each.seconds / each.divided_by)} |"
            for each in found
        ]
        longest = [max(some, key=lambda each: each.seconds / each.divided_by).name for some in (found, _nightly(found))]
        lines += ["", f"The longest is {longest[0]}; of later nights, {longest[1]}."]
    kept = terabytes * 1e12 / RECORD * units.bytes_kept / 1e12
    held = aggregates / bucket_count(aggregates)
    lines += [
        "",
        f"The large installation has {CORES} cores for Spark, and stores in {SHARDS} parts that answer side by side."
        f" The history takes {units.bytes_kept:,.0f} bytes of Parquet for a record, {kept:,.0f} TB for this log."
        f" There are at most {MAX_BUCKETS:,} buckets, each with {held:,.0f} rows here.",
    ]
    return "\n".join(lines)


def _nightly(found: list[Stage]) -> list[Stage]:
    return [each for each in found if "first time" not in each.name]


def duration(seconds: float) -> str:
    """Render a time in the unit that fits."""
    for size, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {name}" if seconds < 20 * size else f"{seconds / size:,.0f} {name}"
    return f"{seconds:.0f} s"


def _small(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.2f} µs"


def _percent(share: float) -> str:
    return f"{share * 100:g} %"


def main() -> None:
    """Compute and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aggregates", type=int, default=AGGREGATES)
    parser.add_argument("--log-terabytes", type=float, default=TERABYTES)
    asked = parser.parse_args()
    print(page(committed_results()[-1], asked.aggregates, asked.log_terabytes))


if __name__ == "__main__":
    main()
