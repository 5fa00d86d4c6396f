"""Great Expectations as it is used here: what it may keep and send, what passes, and what never passes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.contract.model import load_contract
from reconcile.errors import InvalidFileError
from reconcile.files import committed
from reconcile.gather.stores import row_columns
from reconcile.gather.stores.digest import ComparisonMode
from reconcile.lab import faults
from reconcile.lab.folder import Lab
from reconcile.lab.services.database import connect
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.handoffs import Gathered
from reconcile.pipeline.job import Job
from reconcile.pipeline.quality import require_suites
from reconcile.pipeline.result import report_of
from reconcile.quality.gate import GateClosedError
from reconcile.quality.suites import Checked, check, load_suite, quality_context
from reconcile.report.html import report_html
from reconcile.settings.settings import Settings
from tests.integration.runs import Runs
from tests.integration.worlds import seeded_world
from tests.schemas import valid_output
from tests.unit.report_runs import CONTRACT, contract_file, made_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The library's own warnings, and the sockets that PySpark leaves to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore")


COLUMNS = {"columns": ["id", "version"]}


def suite_of(folder: Path, *expectations: dict[str, Any]) -> Any:
    """Write a suite, and read it."""
    file = folder / "suite.json"
    file.write_text(json.dumps({"name": "own", "expectations": list(expectations)}))
    return load_suite(file)[0]


def test_nothing_is_kept_and_nothing_is_sent() -> None:
    """The data context lives in memory, and its analytics are off."""
    with quality_context() as context:
        assert "EphemeralDataContext" == type(context).__name__
        assert context.config.analytics_enabled is False


@pytest.mark.parametrize("name", ["source", "copy"])
def test_rows_with_an_id_of_their_own_pass(spark: SparkSession, name: str) -> None:
    """The committed suites on rows as they should be, with versions and without."""
    frame = spark.createDataFrame([("a", "1"), ("b", None)], "id string, version string")
    with quality_context() as context:
        suite, about = load_suite(committed("expectations", f"{name}.json"))
        assert name == about
        without = check(context, suite, frame, {**COLUMNS, "versioned": 0.0}, "a/b")
        versioned = check(context, suite, frame, {**COLUMNS, "versioned": 1.0}, "a/b")
    assert [True, True, True, True] == [each.success for each in without]
    assert [True, True, False, True] == [each.success for each in versioned]


@pytest.mark.parametrize("name", ["source", "copy"])
def test_rows_have_the_columns_of_the_contract(spark: SparkSession, name: str) -> None:
    """One that is missing stops the gate, and so does one too many."""
    frame = spark.createDataFrame([("a", "1", "x")], "id string, version string, email string")
    with quality_context() as context:
        suite, _ = load_suite(committed("expectations", f"{name}.json"))
        told = [
            check(context, suite, frame, {"columns": ["id", "version", *fields], "versioned": 1.0}, "a/b")[-1]
            for fields in (["email"], [], ["email", "phone"])
        ]
    assert [(True, False), (False, True), (False, True)] == [(each.success, each.stops) for each in told]


def test_an_id_that_stands_twice_is_counted(spark: SparkSession) -> None:
    """How many rows were unexpected is told, and never what they hold."""
    frame = spark.createDataFrame([("secret@x", "1"), ("secret@x", "1"), (None, "1")], "id string, version string")
    with quality_context() as context:
        suite, _ = load_suite(committed("expectations", "source.json"))
        checked = check(context, suite, frame, {**COLUMNS, "versioned": 1.0}, "a/b")
    assert [(False, 1), (False, 2), (True, 0)] == [(each.success, each.unexpected) for each in checked[:3]]
    assert [3, 3, 3] == [each.rows for each in checked[:3]]
    assert "secret" not in repr(checked)


def test_the_log_is_checked_for_its_order(spark: SparkSession) -> None:
    """C4: a version below one that stands before it in the partition."""
    from reconcile.quality import frames as quality_frames

    records = spark.sql(
        "select * from values ('a', 0, 0L, '1'), ('a', 0, 1L, '3'), ('a', 0, 2L, '2'), ('b', 0, 3L, '1')"
        " as t(id, partition, offset, version)"
    ).selectExpr("*", "timestamp '2026-01-01' as timestamp", "true as readable")
    with quality_context() as context:
        suite, _ = load_suite(committed("expectations", "log.json"))
        fresh, silent = (
            check(context, suite, quality_frames.log(records, datetime(2026, month, 20, tzinfo=UTC)), {}, None)
            for month in (1, 2)
        )
    assert [True, True, False, True, True, True] == [each.success for each in fresh]
    assert [("expect_column_min_to_be_between", ("hours",), False)] == [
        (each.expectation, each.columns, each.stops)
        for each, before in zip(silent, fresh, strict=True)
        if each.success != before.success
    ]


@pytest.mark.parametrize(("frequent", "success"), [(0.05, False), (0.2, True)])
def test_a_frequent_cause_is_a_warning(spark: SparkSession, frequent: float, success: bool) -> None:
    """By its own rate, and not by that of all."""
    from reconcile.quality import frames as quality_frames

    causes = {"skipped": 2, "phantom": 1}
    with quality_context() as context:
        suite, _ = load_suite(committed("expectations", "findings.json"))
        frame = quality_frames.rates(spark, "a/b", 10, 3, causes, settled=True, complete=True)
        checked = check(context, suite, frame, {"tolerated": 0.5, "frequent": frequent}, "a/b")
    assert [(success, 2, False)] == [
        (each.success, each.rows, each.stops) for each in checked if "rate" in each.columns
    ]
    assert all(each.success for each in checked if "rate" not in each.columns)


def test_numbers_are_numbers(spark: SparkSession) -> None:
    """So that a range can be asked for; other fields are text."""
    from reconcile.quality import frames as quality_frames

    consumer = load_contract(committed("contracts", "user-account.yaml")).consumers[0]
    read = spark.createDataFrame([("a", "1", "10.5", "x", None)], row_columns.schema(3))
    frame = quality_frames.rows(read, consumer, ["numeric", "text", "integer"])
    assert ["string", "string", "double", "string", "double"] == [kind for _, kind in frame.dtypes]
    assert [("a", "1", 10.5, "x", None)] == [tuple(row) for row in frame.collect()]
    assert quality_frames.columns(consumer) == frame.columns


def test_an_exception_is_told_without_the_values_that_it_quotes(spark: SparkSession, tmp_path: Path) -> None:
    """Its class and Spark's condition say what went wrong."""
    suite = suite_of(
        tmp_path, {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": 1}}
    )
    frame = spark.createDataFrame([("secret\nSecretError: x",)], "id string").selectExpr("id", "cast(id as int) as n")
    with quality_context() as context:
        checked = check(context, suite, frame, {}, "a/b")
    assert ["NumberFormatException [CAST_INVALID_INPUT]"] == [each.exception for each in checked]


def test_great_expectations_keeps_only_the_text_of_an_exception() -> None:
    """Of version 1.24: once a newer one keeps the exception, its class need not be parsed out of a traceback."""
    with quality_context():
        import great_expectations as gx
        from great_expectations.validator.exception_info import ExceptionInfo

    assert "1.24" == gx.__version__.rpartition(".")[0]
    assert {"exception_traceback", "exception_message", "raised_exception"} == set(ExceptionInfo("", ""))


def test_an_exception_is_a_failure(spark: SparkSession, tmp_path: Path) -> None:
    """A suite that asks for a column which is not there stops the gate, whatever its severity."""
    suite = suite_of(
        tmp_path,
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "nowhere"}, "severity": "info"},
    )
    with quality_context() as context:
        checked = check(context, suite, spark.createDataFrame([("a",)], "id string"), {}, "a/b")
    assert [(False, True)] == [(each.success, each.stops) for each in checked]
    assert checked[0].exception is not None


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "x"}', '{"name": "x", "expectations": [{"type": "nonsense"}]}'])
def test_what_is_no_suite_is_refused(tmp_path: Path, text: str) -> None:
    """The file is named."""
    (tmp_path / "own.json").write_text(text)
    with pytest.raises(InvalidFileError, match=r"own\.json"):
        load_suite(tmp_path / "own.json")


AGGREGATES = 300


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Bring a world up that these tests share."""
    with seeded_world(AGGREGATES) as world:
        yield world


def changed(lab: Lab, database: str, statement: str) -> None:
    """Change what a store holds."""
    with closing(connect(lab.url(database))) as session, session, session.cursor() as cursor:
        cursor.execute(statement)


def own_contract(folder: Path, **changes: Any) -> Path:
    """Write the lab's contract with changes of its consumer; the fields are added."""
    said = yaml.safe_load(committed("contracts", "user-account.yaml").read_text("utf-8"))
    consumer = said["consumers"][0]
    consumer["fields"] += changes.pop("fields", [])
    consumer |= {"settle": {"timeout": "2s", "confirm_after": "0s"}, **changes}
    file = folder / "user-account.yaml"
    file.write_text(yaml.safe_dump(said, sort_keys=False))
    return file


def test_a_night_whose_values_have_moved_is_told_and_warned_of(
    spark: SparkSession, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though both sides agree: from a sample of the buckets, without any value of a sensitive field."""
    monkeypatch.setattr("reconcile.pipeline.gather.SAMPLE", 200)
    kind = "case when phone is null then 'without' else 'with' end"
    more: list[dict[str, Any]] = [
        {"name": "kind", "source": kind, "consumer": kind},
        {"name": "age", "source": "version", "consumer": "version"},
        {"name": "secret", "source": kind, "consumer": kind, "sensitive": True},
    ]
    file, runs = own_contract(tmp_path, fields=more, distributions={}), Runs.of(spark, lab, tmp_path / "runs")

    def night(run_id: str, mode: ComparisonMode = "auto") -> tuple[Job, list[Checked]]:
        job, _ = runs.audited(file, run_id, mode=mode)
        return job, [each for each in pipeline.quality(job).results if each.suite == "distributions"]

    first, nothing = night("n1")
    read = first.run.read(Gathered).links[0]
    sides = read.distributions or {}
    assert ([], 0, read.source_rows) == (nothing, read.fetched, sides["source"].rows)
    assert 100 < sides["source"].sampled == sides["copy"].sampled < read.source_rows
    changed(lab, "user", "delete from phone_number where user_id::text < '8'")
    changed(lab, "login", "update login_profile set phone = null where user_id::text < '8'")
    second, moved = night("n2", "full")
    assert 9 == len(moved)
    assert [("phone",), ("kind",)] == [each.columns for each in moved if not each.success]
    assert {"warning"} == {each.severity for each in moved}
    assert pipeline.quality(second).success
    said = next(each.words for each in moved if each.columns == ("kind",) and not each.success)
    assert re.fullmatch(r"kind: \d+(\.\d)?% of rows have moved, most at 'with(out)?': .*, usually .*", said)
    (of_secret,) = (each for each in moved if each.columns == ("secret",))
    assert "missing" in of_secret.words
    report = report_of(second.run, second.workspace, second.settings, second.contract)
    assert 9 == len(report.distributions)
    assert ["n1", "n2"] == [each.run_id for each in report.distributions[0].points]
    page = "".join(report_html(report))
    assert "Distributions" in page
    assert "of rows have moved" in page


def test_a_suite_of_its_own_that_fails_is_reported_and_stops_the_repair(
    spark: SparkSession, lab: Lab, tmp_path: Path
) -> None:
    """Though there is drift to repair and somebody said yes: nothing is planned, and the report names the suite."""
    own = {"type": "expect_column_values_to_be_null", "kwargs": {"column": "email"}, "meta": {"why": "none was asked"}}
    suite_of(tmp_path, {**own, "severity": "critical"})
    file = own_contract(tmp_path, quality=["suite.json"])
    faults.plant(lab, faults.named(["hand-edit"]), 1)
    with closing(connect(lab.url("login"))) as session, session.cursor() as cursor:
        cursor.execute("select count(*) from login_profile")
        ((rows,),) = cursor.fetchall()
    runs = Runs.of(spark, lab, tmp_path / "runs")
    words = ["run", str(file), "--mode", "full", "--apply", "--yes", "--json", "--run-id", "gated", "--quality"]
    words += ["--config", str(runs.settings_file), "--workspace", str(runs.folder)]
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, GateClosedError)
    told = valid_output("run", done.stdout)
    failed = [(each["suite"], each["columns"], each["rows"]) for each in told["quality"]["failed"] if each["stops"]]
    assert (False, [("own", ["email"], rows)]) == (told["quality"]["success"], failed)
    others = [(each["suite"], each["columns"]) for each in told["quality"]["failed"] if not each["stops"]]
    assert [("findings", ["drift"])] == others
    folder = runs.folder / "gated"
    assert {"quality", "summary"} == {"quality", "summary", "plan", "applied"} & {
        each.name for each in folder.iterdir()
    }
    page = (folder / "report.html").read_text("utf-8")
    assert "and 1 expectation of the data failed</h1>" in page
    assert "suite own" in page


@pytest.mark.parametrize(
    ("name", "meta", "problem"),
    [("own", {"frame": "copies"}, "meta.frame"), ("findings", {}, "name: ")],
)
def test_a_suite_that_could_mean_something_else_is_refused(
    tmp_path: Path, name: str, meta: dict[str, Any], problem: str
) -> None:
    """A frame that there is none of, or the name of a suite that stops nothing; before anything is read."""
    own = {"type": "expect_column_values_to_be_null", "kwargs": {"column": "email"}}
    (tmp_path / "own.json").write_text(json.dumps({"name": name, "meta": meta, "expectations": [own]}))
    file = contract_file(tmp_path, CONTRACT.rstrip("\n") + "\n    quality: [own.json]\n")
    place, run = made_run(tmp_path / "runs", contract=file)
    job = Job(load_contract(file), file, Settings(workspace=place.root), place, run)
    with pytest.raises(InvalidFileError, match=rf"own\.json: {problem}"):
        require_suites(job)
