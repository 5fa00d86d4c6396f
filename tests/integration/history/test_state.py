"""The state of the log says what a scan of all records says, however the log came; and costs what is new."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.audit import latent_candidates
from reconcile.audit.home_partition import Router
from reconcile.audit.partitioner_inference import infer_from_log
from reconcile.audit.topology.facts import LogFacts, inversions_part, log_facts, placement_part
from reconcile.contract.model import Topic
from reconcile.domain.partitioner import Partitioner, partition_of
from reconcile.gather.log.history import History
from reconcile.gather.log.index import Growth, Held, Index, Lost, Segment
from reconcile.gather.log.records import Derivation
from reconcile.gather.log.state import KeptState, LogState, ScannedState
from reconcile.gather.log.store import Home
from reconcile.workspace import row_hashes
from reconcile.workspace.filesystem import LocalFileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PARTITIONS = 4
TOPIC = Topic.model_validate(
    {"cluster": "main", "name": "t", "version": "$.version", "type": "$.type", "ignore_types": ["Noted"]}
)
DERIVATION = Derivation.of(TOPIC)
Record = tuple[int | None, int, str | None, str | None]
"""The number of an id, a partition or -1 for its home, a version, and a type; `gone` deletes, `torn` is unreadable."""


@dataclass
class Log:
    """A history that is written by hand, segment by segment."""

    spark: SparkSession
    folder: Path
    segments: list[Segment] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    pruned: list[Lost] = field(default_factory=list)
    generation: int = 0

    @property
    def home(self) -> Home:
        """Where it is."""
        return Home(LocalFileSystem(), str(self.folder))

    def history(self, *growth: Growth) -> History:
        """What is held now."""
        index = Index(
            generation=self.generation,
            cluster="main",
            topic="t",
            topic_id="i",
            derivation=DERIVATION.digest,
            segments=tuple(self.segments),
            pruned=tuple(self.pruned),
            partitions=growth or (Growth(count=PARTITIONS, seen_at=NOW, after={}, ends={}),),
        )
        return History(self.home, index, DERIVATION)

    def extend(self, records: Sequence[Record]) -> None:
        """Add a segment."""
        self.generation += 1
        name, begins, rows = f"{self.generation:08d}-{0:012x}", dict(self.ends), []
        for number, partition, version, kind in records:
            id_text = None if number is None else f"id-{number}"
            stands = partition if partition >= 0 or id_text is None else _home(id_text)
            rows.append(self._row(id_text, max(stands, 0), version, kind))
        self.spark.createDataFrame(rows, DERIVATION.schema).write.parquet(self.home.uri(name))
        held = {
            partition: Held(start=start, end=end, rows=end - start, first=start, last=end - 1)
            for partition, start in begins.items()
            if (end := self.ends[partition]) > start
        }
        self.segments.append(
            Segment(
                name=name, partitions=held, latest=NOW, null_keys=0, unreadable_keys=0, unreadable_values=0, digest="",
                files={},
            )
        )  # fmt: skip

    def prune(self, *, removed: bool) -> None:
        """Give up the oldest segment; its files may be gone, too."""
        self.generation += 1
        gone = self.segments.pop(0)
        self.pruned += [
            Lost(partition=partition, start=each.start, end=each.end, noticed_at=NOW)
            for partition, each in gone.partitions.items()
        ]
        if removed:
            shutil.rmtree(self.home.path(gone.name))

    def _row(self, id_text: str | None, partition: int, version: str | None, kind: str | None) -> tuple[Any, ...]:
        offset = self.ends[partition]
        self.ends[partition] += 1
        at = NOW + timedelta(seconds=sum(self.ends.values()))
        gone, torn = kind == "gone", kind == "torn"
        value = None if gone or torn else f'{{"version": 1, "{kind}": 1}}'
        key = None if id_text is not None else bytearray(b"\xff")
        place = (partition, offset, at, version, None, kind, None, gone, gone)
        return (id_text, _hash(id_text), key, *place, value, bytearray(b"torn") if torn else None)


def _hash(id_text: str | None) -> int:
    return int(row_hashes.of_texts(pa.array([id_text], pa.string()))[0])


def _home(id_text: str) -> int:
    return partition_of(id_text.encode(), PARTITIONS, Partitioner.MURMUR2)


def said(state: LogState, index: Index) -> tuple[LogFacts, list[Any]]:
    """All that a state says."""
    inference = infer_from_log(state, index.partitions)
    parts = latent_candidates.version_gaps(("Noted",)), latent_candidates.strays((), Router.of(inference, ()))
    read = state.read(*parts)
    rows = [(dict(each.sums), each.count, sorted(row["id"] for row in each.rows.collect())) for each in read]
    keys = sorted(state.read_keys(dict.fromkeys(range(PARTITIONS), (0, 1 << 62))))
    return log_facts(state, index, TOPIC), [rows, keys]


def jobs(spark: SparkSession, work: Any) -> int:
    """How many jobs of Spark some work starts."""
    spark.sparkContext.setJobGroup("counted", "counted")
    try:
        work()
        return len(spark.sparkContext.statusTracker().getJobIdsForGroup("counted"))
    finally:
        spark.sparkContext._jsc.sc().clearJobGroup()


def records(most: int, least: int = 0) -> st.SearchStrategy[list[Record]]:
    """Records of few ids, some of them out of place or out of order."""
    each = st.tuples(
        st.one_of(st.integers(0, 9), st.none()),
        st.sampled_from([-1, -1, -1, 0, 1, 3]),
        st.one_of(st.integers(1, 6).map(str), st.sampled_from([None, "x", "999999999999999999"])),
        st.sampled_from(["Changed", "Changed", "Changed", "Noted", "gone", "torn", None]),
    )
    return st.lists(each, min_size=least, max_size=most)


@settings(max_examples=4)
@given(
    first=records(60, 40),
    steps=st.lists(st.one_of(records(5), st.sampled_from(["give up", "give up and remove"])), min_size=2, max_size=3),
)
def test_it_equals_a_scan_whatever_came_and_went(
    spark: SparkSession, first: list[Record], steps: Iterable[Any]
) -> None:
    """After each step, with little or nothing new, and after segments were given up, whose files may be gone."""
    with TemporaryDirectory() as folder:
        log = Log(spark, Path(folder))
        log.extend(first)
        for step in [[], *steps]:
            if isinstance(step, list):
                log.extend(step)
            else:
                log.prune(removed=step.endswith("remove"))
            history = log.history()
            scanned = said(ScannedState(history.records(spark), history.index), history.index)
            assert scanned == said(KeptState(spark, history), history.index)


@settings(max_examples=2)
@given(records(60, 40))
def test_parts_are_the_same_here(spark: SparkSession, drawn: list[Record]) -> None:
    """What this process computes of records is what Spark computes; a version that is no plain number is left to it."""
    plain = [
        (number, partition, version if version != "x" else "7", kind) for number, partition, version, kind in drawn
    ]
    router = Router(PARTITIONS, (Partitioner.MURMUR2,))
    parts = [
        latent_candidates.version_gaps(("Noted",)),
        latent_candidates.strays(("Noted",), router),
        placement_part(router),
        inversions_part(TOPIC),
    ]
    with TemporaryDirectory() as folder:
        log = Log(spark, Path(folder))
        log.extend(plain)
        history = log.history()
        here = DERIVATION.shown_here(history.near([each.name for each in log.segments]))
        scanned = ScannedState(history.records(spark), history.index).read(*parts)
        for part, known in zip(parts, scanned, strict=True):
            assert part.here is not None
            found = part.here(here)
            assert found is not None
            rows = sorted(found.rows.to_pylist(), key=lambda row: row["id"])
            assert (dict(known.sums), sorted(row["id"] for row in known.rows.collect())) == (
                dict(found.sums),
                [row["id"] for row in rows],
            )
            kept = sorted((row.asDict() for row in known.rows.collect()), key=lambda row: row["id"])
            assert [{**row, "routed_by": sorted(row.get("routed_by", ()))} for row in kept] == [
                {**row, "routed_by": row.get("routed_by", [])} for row in rows
            ]
    odd = pa.table(
        {**{name: here[name] for name in here.column_names if name != "version"}, "version": ["x"] * len(here)}
    )
    assert inversions_part(TOPIC).here(odd) is None  # type: ignore[misc]


def test_what_is_known_starts_no_job(spark: SparkSession, tmp_path: Path) -> None:
    """A second reading of the same log looks at no record."""
    log = Log(spark, tmp_path)
    log.extend([(number, -1, "1", "Changed") for number in range(50)])
    state = KeptState(spark, log.history())
    parts = latent_candidates.version_gaps(()), latent_candidates.strays((), Router(PARTITIONS, (Partitioner.MURMUR2,)))
    state.read(*parts)
    infer_from_log(state, state.history.index.partitions)
    assert 0 == jobs(spark, lambda: (state.read(*parts), infer_from_log(state, state.history.index.partitions)))


def test_what_is_new_is_looked_at_alone(spark: SparkSession, tmp_path: Path) -> None:
    """The records of other ids are not computed again: what was kept of them stays, even if it is no longer true."""
    log = Log(spark, tmp_path)
    log.extend([(number, -1, version, "Changed") for number in range(20) for version in ("1", "3")])
    part = latent_candidates.version_gaps(())
    KeptState(spark, log.history()).read(part)
    shutil.rmtree(log.home.path(log.segments[0].name))
    log.generation, before = 0, log.segments
    log.segments, log.ends = [], dict.fromkeys(range(PARTITIONS), 0)
    log.extend([(number, -1, version, "Changed") for number in range(20) for version in ("1", "2")])
    assert [each.name for each in before] == [each.name for each in log.segments]
    log.extend([(3, -1, "3", "Changed")])
    (known,) = KeptState(spark, log.history()).read(part)
    assert {f"id-{number}" for number in range(20)} - {"id-3"} == {row["id"] for row in known.rows.collect()}


def test_damaged_rows_are_made_anew(spark: SparkSession, tmp_path: Path) -> None:
    """Who deletes files of a state, or cuts them, loses nothing but time."""
    log = Log(spark, tmp_path)
    log.extend([(number, -1, version, "Changed") for number in range(5) for version in ("1", "3")])
    part = latent_candidates.version_gaps(())
    (known,) = KeptState(spark, log.history()).read(part)
    for damage in ("rows/*/*.parquet", "*.json"):
        for file in (tmp_path / "state").glob(f"version-gaps-*/{damage}"):
            file.write_bytes(file.read_bytes()[:10])
        (again,) = KeptState(spark, log.history()).read(part)
        assert (known.count, {f"id-{number}" for number in range(5)}) == (
            again.count,
            {row["id"] for row in again.rows.collect()},
        )


def test_a_topic_that_grew_is_sampled_since(spark: SparkSession, tmp_path: Path) -> None:
    """The sample is of the records since the growth, also where the state knew those before."""
    log = Log(spark, tmp_path)
    log.extend([(number, 0, "1", "Changed") for number in range(30)])
    before = KeptState(spark, log.history())
    infer_from_log(before, before.history.index.partitions)
    ends = dict(log.ends)
    log.extend([(number, -1, "2", "Changed") for number in range(30)])
    grown = (
        Growth(count=3, seen_at=NOW, after={}, ends={}),
        Growth(count=PARTITIONS, seen_at=NOW, after=ends, ends=ends),
    )
    history = log.history(*grown)
    kept = infer_from_log(KeptState(spark, history), grown)
    assert infer_from_log(ScannedState(history.records(spark), history.index), grown) == kept
    assert (Partitioner.MURMUR2, 30) == (kept.partitioner, kept.seen)
