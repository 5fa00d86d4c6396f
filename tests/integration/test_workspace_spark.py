"""The workspace with Spark: Parquet, and every file system that Hadoop knows; and what a killed publisher leaves."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconcile.errors import RefusedError
from reconcile.spark import local_frames
from reconcile.workspace.filesystem import FileSystem
from reconcile.workspace.hadoop_filesystem import HadoopFileSystem
from reconcile.workspace.manifest import DamagedArtifactError, Inputs
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace
from tests.integration.runs import jobs
from tests.workspace_behaviour import RUN_ID, FileSystemBehaviour, WorkspaceBehaviour

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INPUTS = Inputs(contract="c" * 64)
SCHEMA = "id string, n bigint, at timestamp, price decimal(12,2), tags array<string>, `odd ``name` binary"


class TestHadoopFileSystem(FileSystemBehaviour):
    """Files by URI."""

    @pytest.fixture
    def files(self, spark: SparkSession) -> FileSystem:
        return HadoopFileSystem("file:///", spark)

    @pytest.fixture
    def folder(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}"

    def test_an_unknown_scheme_is_refused(self, spark: SparkSession) -> None:
        """The error says which."""
        with pytest.raises(RefusedError, match="cannot reach nope://x"):
            HadoopFileSystem("nope://x", spark)


class TestHadoopWorkspace(WorkspaceBehaviour):
    """A workspace by URI."""

    @pytest.fixture
    def disk(self, tmp_path: Path) -> Path:
        return tmp_path / "runs"

    @pytest.fixture
    def workspace(self, disk: Path, spark: SparkSession) -> Workspace:
        disk.mkdir()
        return Workspace(f"file://{disk}", spark)


class TestObjectStoreWorkspace(TestHadoopWorkspace):
    """A workspace where a rename is not atomic, so that nothing is renamed."""

    @pytest.fixture(autouse=True)
    def _no_renames(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("reconcile.workspace.hadoop_filesystem._RENAMES_ATOMICALLY", set())

    def test_a_folder_without_manifest_is_not_published(self, run: Run, disk: Path) -> None:
        """It is what a killed publisher leaves, and the next one replaces it."""
        (disk / RUN_ID / "fence").mkdir(parents=True)
        (disk / RUN_ID / "fence" / "data.json").write_text("ha")
        (disk / RUN_ID / "fence" / "part-1").write_text("lf")
        assert (None, False) == (run.find("fence"), run.done("fence", INPUTS))
        run.publish_json("fence", 1, INPUTS, stage="gather")
        assert 1 == run.json("fence")


@pytest.fixture(params=["path", "uri", "object store"])
def run(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Run:
    if request.param == "object store":
        monkeypatch.setattr("reconcile.workspace.hadoop_filesystem._RENAMES_ATOMICALLY", set())
    # Characters that Hadoop would take for a pattern, or for part of a URI.
    root = tmp_path / "a [b] {c,d} 50% #"
    return Workspace(root if request.param == "path" else f"file://{root}", spark).run(RUN_ID)


@pytest.fixture
def local_run(tmp_path: Path) -> Run:
    return Workspace(tmp_path).run(RUN_ID)


def rows(spark: SparkSession, count: int = 100) -> DataFrame:
    """Rows of many types, with NULLs."""
    return spark.range(count).selectExpr(
        "cast(id as string) as id",
        "if(id % 3 = 0, null, id) as n",
        "timestamp_micros(id * 1000001) as at",
        "cast(id / 7 as decimal(12,2)) as price",
        "array('a', if(id % 2 = 0, null, 'b')) as tags",
        "cast(cast(id as string) as binary) as `odd ``name`",
    )


def test_parquet_comes_back(run: Run, spark: SparkSession) -> None:
    """The rows, their columns in their order, and their count."""
    published = run.publish_parquet("source", rows(spark), INPUTS, stage="gather")
    read = run.parquet("source", spark)
    assert ("parquet", 100, 0) == (published.kind, published.rows, read.exceptAll(rows(spark)).count())
    assert rows(spark).dtypes == read.dtypes
    assert run.done("source", INPUTS)


def test_few_rows_that_are_here_are_published_and_read_without_a_job(local_run: Run, spark: SparkSession) -> None:
    """Their manifest says what Spark's would, and a query finds the same rows."""
    df = nested(spark)
    here = local_frames.localized(df, 100)
    assert here is not None
    by_spark = local_run.publish_parquet("by-spark", df, INPUTS, stage="gather")
    before = jobs(spark)
    published = local_run.publish_parquet("source", here, INPUTS, stage="gather")
    read = local_run.parquet("source", spark)
    assert read.where("n > 1").collect()
    assert before == jobs(spark)
    assert (by_spark.rows, by_spark.digest, df.dtypes) == (published.rows, published.digest, read.dtypes)
    assert 0 == read.exceptAll(df).count() == df.exceptAll(read).count()


def test_what_is_made_of_few_rows_takes_one_job(local_run: Run, spark: SparkSession) -> None:
    """Grouped and joined: the stages of its plan are not run one by one."""
    here = local_frames.of_rows(spark, [("a", 1), ("a", 2), ("b", 3)], "id string, n bigint")
    grouped = here.groupBy("id").sum("n").join(here, "id")
    before = jobs(spark)
    published = local_run.publish_parquet("source", grouped, INPUTS, stage="gather")
    assert (3, before + 1) == (published.rows, jobs(spark))


def test_more_rows_than_are_few_stay_with_spark(spark: SparkSession) -> None:
    """They are not kept in this process, however many there are."""
    assert local_frames.localized(spark.range(11).toDF("n"), 10) is None
    assert local_frames.rows(spark.range(3).toDF("n")) is None
    many = local_frames.of_rows(spark, ((each,) for each in range(500_001)), "n bigint")
    assert (None, None) == (local_frames.rows(many), local_frames.table(many))


def nested(spark: SparkSession) -> DataFrame:
    """Rows with structs, as cases have them."""
    return rows(spark, 20).selectExpr(
        "*",
        "if(n = 4, null, struct(n, tags, if(n = 5, null, `odd ``name`) as bytes)) as one",
        "array(struct(n), null) as several",
    )


def test_nothing_but_the_artifact_is_left(run: Run, spark: SparkSession) -> None:
    """No attempt, no marker of Spark's."""
    published = run.publish_parquet("source", rows(spark), INPUTS, stage="gather")
    folder = Path(run.folder.removeprefix("file://"))
    assert ["source"] == [entry.name for entry in folder.iterdir()]
    assert {"data", "manifest.json"} == {each.name for each in (folder / "source").iterdir() if each.name[0] != "."}
    assert all(path.startswith("data/part-") for path in published.files)
    assert sorted(published.files) == [path.removeprefix(f"{run.folder}/source/") for path in run.data_files("source")]


def test_no_rows_come_back_with_their_columns(run: Run, spark: SparkSession) -> None:
    """A snapshot of an empty table is an artifact like any other."""
    empty = spark.createDataFrame([], "k int, v string")
    published = run.publish_parquet("source", empty, INPUTS, stage="gather")
    read = run.parquet("source", spark)
    assert (0, 0, ["k", "v"]) == (published.rows, read.count(), read.columns)


def test_parquet_digest_is_of_the_content(local_run: Run, spark: SparkSession) -> None:
    """Neither the order of the rows nor the number of files is part of it."""
    from pyspark.sql import functions as f

    df = rows(spark)
    same = [df, df.orderBy(f.desc("n")), df.repartition(7), df.coalesce(1)]
    digests = {local_run.publish_parquet(f"a{n}", each, INPUTS, stage="gather").digest for n, each in enumerate(same)}
    assert 1 == len(digests)


def test_parquet_digest_tells_contents_apart(local_run: Run, spark: SparkSession) -> None:
    """NULLs in other columns, NULL inside an array, a row twice, another name, another type."""
    schema = "a string, b string, c array<string>"
    one = ("x", None, ["p", None])
    variants = [
        spark.createDataFrame([one], schema),
        spark.createDataFrame([(None, "x", ["p", None])], schema),
        spark.createDataFrame([("x", None, [None, "p"])], schema),
        spark.createDataFrame([("x", None, None)], schema),
        spark.createDataFrame([("x", "", ["p", None])], schema),
        spark.createDataFrame([one, one], schema),
        spark.createDataFrame([one, one, one], schema),
        spark.createDataFrame([], schema),
        spark.createDataFrame([one], schema).withColumnRenamed("a", "z"),
        spark.createDataFrame([one], schema).selectExpr("cast(a as binary) a", "b", "c"),
    ]
    digests = [local_run.publish_parquet(f"a{n}", df, INPUTS, stage="gather").digest for n, df in enumerate(variants)]
    assert len(variants) == len(set(digests))


def test_failed_job_leaves_nothing(run: Run, spark: SparkSession) -> None:
    """What Spark could not compute is not there, and can be tried again."""
    broken = spark.range(10).selectExpr("id", "if(id = 7, raise_error('seven'), 0) as n")
    with pytest.raises(Exception, match="seven"):
        run.publish_parquet("source", broken, INPUTS, stage="gather")
    assert (None, []) == (run.find("source"), list(Path(run.folder.removeprefix("file://")).iterdir()))
    run.publish_parquet("source", rows(spark), INPUTS, stage="gather")


def test_missing_part_is_told(run: Run, spark: SparkSession) -> None:
    """Spark itself would read the rest without a word."""
    run.publish_parquet("source", rows(spark).repartition(2), INPUTS, stage="gather")
    Path(run.data_files("source")[0].removeprefix("file://")).unlink()
    with pytest.raises(DamagedArtifactError, match=r"data/part-.* is missing"):
        run.parquet("source", spark)


def test_parquet_is_not_json(run: Run, spark: SparkSession) -> None:
    """Asked for as what it is not, an artifact is refused."""
    run.publish_parquet("source", rows(spark), INPUTS, stage="gather")
    with pytest.raises(RefusedError, match="is parquet, not json"):
        run.json("source")


WRITER = """
import itertools, sys
from reconcile.workspace.manifest import Inputs
from reconcile.workspace.workspace import Workspace
run = Workspace(sys.argv[1]).run(sys.argv[2])
print("ready", flush=True)
for n in itertools.count():
    value = [n] * (1 + n % 20000)
    run.publish_json("fence", value, Inputs(contract=str(n)), stage="gather", complete=False)
    run.publish_json(f"whole-{n}", value, Inputs(contract=str(n)), stage="gather")
"""


def test_killed_publisher_leaves_no_half_artifact(tmp_path: Path) -> None:
    """Killed at any moment, while others read: they see the artifact before or the one after, or none."""
    run = Workspace(tmp_path).run(RUN_ID)
    rounds, seen = 15, 0
    moments = random.Random(11)  # noqa: S311
    for writer in _writers(tmp_path, rounds):
        until = time.monotonic() + moments.uniform(0.005, 0.3)
        while time.monotonic() < until:
            seen += _whole(run)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        seen += _whole(run)
        for manifest in run.manifests():
            value = run.json(manifest.name)
            assert [int(manifest.inputs.contract)] * len(value) == value
        for entry in (tmp_path / RUN_ID).iterdir():  # so that the next round publishes the same names again
            if entry.name.startswith("whole-"):
                entry.rename(tmp_path / f"{moments.random()}")
    assert seen > rounds
    run.publish_json("fence", 1, INPUTS, stage="gather")
    assert not [entry for entry in (tmp_path / RUN_ID).iterdir() if entry.name.startswith(".fence.")]


def _writers(root: Path, count: int) -> Iterator[subprocess.Popen[str]]:
    for _ in range(count):
        command = [sys.executable, "-c", WRITER, str(root), RUN_ID]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            yield writer


def _whole(run: Run) -> bool:
    """Read the artifact, which must be whole; tell whether there is one."""
    if run.find("fence") is None:
        return False
    try:
        value = run.json("fence")
    except RefusedError as error:
        assert "has no fence" in str(error)  # noqa: PT017 - it was just being replaced
        return False
    assert value == [value[0]] * (1 + value[0] % 20000)
    return True
