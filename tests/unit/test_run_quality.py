"""The gate on the command line, and before a plan: what it stops, and what people and machines are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from click.testing import CliRunner, Result

from reconcile.cli import cli, main, repair
from reconcile.contract.model import load_contract
from reconcile.domain.plan import Plan
from reconcile.errors import UnreachableError
from reconcile.pipeline import plan as stage_plan
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.apply import PlanRefusedError, require_applicable
from reconcile.pipeline.handoffs import Quality, Summary, Verified
from reconcile.pipeline.job import Job
from reconcile.quality.gate import GateClosedError
from reconcile.quality.suites import Checked
from reconcile.settings.settings import Settings
from tests.schemas import valid_output
from tests.unit.handoffs import expected, verified, verified_link
from tests.unit.report_runs import CONTRACT, LINK, checked, contract_file, finding, made_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILED = f"an expectation failed: {LINK}: phone: 3 of 1,000 rows are missing"
SUITE = "    quality: [own.json]\n"


@dataclass
class World:
    """A run that is there already; the stages that would make it do nothing."""

    file: Path
    job: Job
    results: list[Checked] = field(default_factory=list)
    did: list[str] = field(default_factory=list)

    def run(self, *words: str) -> Result:
        """Call `reconcile run`."""
        return CliRunner().invoke(cli, ["run", str(self.file), *words])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose copy agrees, and whose contract names no suite."""
    return world_of(tmp_path, monkeypatch, CONTRACT)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The same, and the contract names one."""
    return world_of(tmp_path, monkeypatch, CONTRACT.rstrip("\n") + "\n" + SUITE)


def world_of(folder: Path, monkeypatch: pytest.MonkeyPatch, contract: str) -> World:
    """Make it."""
    file = contract_file(folder, contract)
    made = World(file, job_of(folder, file))

    @contextmanager
    def new_job(*_: Any, **__: Any) -> Iterator[Job]:
        yield made.job

    def quality(job: Job) -> Quality:
        made.did.append("quality")
        return checked(job.run, *made.results)

    def plan(_: Job) -> Plan:
        made.did.append("plan")
        return Plan.sealed(run_id="r1", contract="user-account", contract_digest="0" * 64, made_of={})

    monkeypatch.setattr(import_module("reconcile.cli.run"), "new_job", new_job)
    monkeypatch.setattr("reconcile.pipeline.quality.require_suites", lambda _: made.did.append("suites"))
    monkeypatch.setattr(pipeline, "gather", lambda _: made.did.append("gather"))
    monkeypatch.setattr(pipeline, "audit", lambda job, **_: job.run.read(Summary))
    monkeypatch.setattr(pipeline, "quality", quality)
    monkeypatch.setattr(pipeline, "plan", plan)
    monkeypatch.setattr(repair, "emitted", lambda *_: made.did.append("emit"))
    return made


def job_of(folder: Path, file: Path) -> Job:
    """Give the job of a run of which nothing differs."""
    place, run = made_run(folder / "runs", contract=file)
    untouched = cast("SparkSession", object())
    return Job(load_contract(file), file, Settings(workspace=place.root), place, run, spark_session=untouched)


def test_the_gate_is_held_before_anything_is_planned(world: World) -> None:
    """Suites are read first of all, so that a wrong one costs nothing."""
    world.run("--quality", "--apply", "--yes")
    assert ["suites", "gather", "quality", "plan", "emit"] == world.did


@pytest.mark.parametrize(("words", "held"), [((), False), (("--quality",), True), (("--no-quality",), False)])
def test_without_suites_of_its_own_a_contract_has_no_gate(world: World, words: tuple[str, ...], held: bool) -> None:
    """Unless it is asked for."""
    assert 0 == world.run(*words).exit_code
    assert held == ("quality" in world.did)


@pytest.mark.parametrize(("words", "held"), [((), True), (("--no-quality",), False)])
def test_a_contract_with_suites_of_its_own_has_a_gate(own: World, words: tuple[str, ...], held: bool) -> None:
    """Unless somebody says no."""
    own.run(*words)
    assert held == ("quality" in own.did)


def test_a_contract_that_looks_at_distributions_has_a_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are expectations, too."""
    world = world_of(tmp_path, monkeypatch, CONTRACT.rstrip("\n") + "\n    distributions: {}\n")
    world.run()
    assert "quality" in world.did


@pytest.mark.parametrize(("left", "said", "code"), [(0, "repaired", 0), (1, "FAILED", 1)])
def test_the_gate_says_what_a_repair_has_met_since(
    world: World, monkeypatch: pytest.MonkeyPatch, left: int, said: str, code: int
) -> None:
    """Of the copy's rows it knows what they were before; of drift, what is left."""
    run = world.job.run
    inputs = run.inputs("0" * 64, made_of=[Summary.ARTIFACT])
    run.publish(verified(verified_link({"converged": 1}, left), exit_code=left), inputs)
    world.results = [expected("findings", columns=["drift"]), expected("source", success=True)]

    @contextmanager
    def job_of_run(*_: Any) -> Iterator[Job]:
        yield world.job

    monkeypatch.setattr("reconcile.pipeline.job.job_of", job_of_run)
    done = CliRunner().invoke(cli, ["quality", "--run", "r1"])
    assert code == done.exit_code
    lines = [line.split() for line in done.stdout.splitlines() if "user-account/login" in line]
    assert [["findings", said], ["source", "ok"]] == [line[1:3] for line in lines]


def test_what_failed_is_named_and_exits_1(world: World) -> None:
    """Beside the figures of a copy that agrees; the report knows it too."""
    world.results = [expected()]
    done = world.run("--quality")
    assert 1 == done.exit_code
    assert "3 of 1,000 rows are missing" in done.stdout
    assert "critical, stops a repair" in done.stdout
    assert "expectation of the data failed" in (Path(world.job.run.folder) / "report.html").read_text("utf-8")


def test_that_all_are_met_is_said(world: World) -> None:
    """In one line."""
    world.results = [expected(success=True)]
    done = world.run("--quality")
    assert 0 == done.exit_code
    assert "Expectations of the data: all 1 are met." in done.stdout.splitlines()


def test_nothing_is_planned_where_the_gate_is_closed(world: World) -> None:
    """The reasons are the error; the report is written all the same."""
    world.results = [expected()]
    done = world.run("--quality", "--apply", "--yes")
    assert isinstance(done.exception, GateClosedError)
    assert f"nothing is planned or emitted:\n  {FAILED}" == str(done.exception)
    assert ["suites", "gather", "quality"] == world.did
    assert (Path(world.job.run.folder) / "report.html").exists()


def test_drift_does_not_keep_from_planning(world: World) -> None:
    """It is what repair is for."""
    world.results = [expected("findings")]
    world.run("--quality", "--apply", "--yes")
    assert "plan" in world.did


@pytest.mark.parametrize(
    ("result", "success", "failed"),
    [
        (expected(), False, [("own", True)]),
        (expected(severity="warning"), True, [("own", False)]),
        (expected("findings"), True, [("findings", False)]),
        (expected(success=True), True, []),
    ],
)
def test_json_tells_what_failed(world: World, result: Checked, success: bool, failed: list[tuple[str, bool]]) -> None:
    """And whether it stops a repair."""
    world.results = [result]
    quality = valid_output("run", world.run("--quality", "--json").stdout)["quality"]
    assert (success, failed) == (quality["success"], [(each["suite"], each["stops"]) for each in quality["failed"]])


def test_json_says_that_apply_was_refused(world: World) -> None:
    """One object, with the report's path."""
    world.results = [expected()]
    data = valid_output("run", world.run("--quality", "--apply", "--yes", "--json").stdout)
    assert f"nothing is planned or emitted:\n  {FAILED}" == data["repair"]["refused"]
    assert data["artifacts"]["report"].endswith("report.html")


def test_a_verification_that_fails_does_not_swallow_the_result(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are in the topic by then: what was found is printed, and the report is written."""

    def lost(_: object) -> None:
        raise UnreachableError("login-db cannot be reached")

    monkeypatch.setattr(pipeline, "verify", lost)
    monkeypatch.setattr(repair, "emitted", lambda *_: {})
    done = world.run("--apply", "--yes", "--json")
    data = valid_output("run", done.stdout)
    assert ({"failed": "login-db cannot be reached"}, 2) == (data["repair"], data["exit_code"])
    assert isinstance(done.exception, UnreachableError)
    assert (Path(world.job.run.folder) / "report.html").exists()


def test_json_of_a_run_without_a_gate_says_nothing_of_it(world: World) -> None:
    """No word is better than a wrong one."""
    assert "quality" not in valid_output("run", world.run("--json").stdout)


@pytest.mark.parametrize(
    ("results", "seen", "words", "code"),
    [
        ([], None, (), 0),
        ([expected()], None, ("--quality",), 1),
        ([expected()], None, ("--quality", "--apply", "--yes"), 2),
        ([], verified(exit_code=1), ("--apply", "--yes"), 1),
        ([], verified(), ("--apply", "--yes"), 0),
    ],
)
def test_json_holds_the_code_that_the_process_returns(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    results: list[Checked],
    seen: Verified | None,
    words: tuple[str, ...],
    code: int,
) -> None:
    """Whatever stage it comes from."""
    world.results = results
    monkeypatch.setattr(pipeline, "verify", lambda _: seen)
    monkeypatch.setattr(repair, "emitted", lambda *_: {})
    assert (code, code) == returned(world, monkeypatch, capsys, *words)


def test_a_report_that_fails_does_not_swallow_the_result(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was found, and emitted, is printed; what went wrong is said after it."""

    def failing(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(pipeline, "report", failing)
    assert (2, 2) == returned(world, monkeypatch, capsys, "--apply", "--yes")


def returned(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, int]:
    """Give the exit code of `reconcile run --json`, and the one that it prints."""
    monkeypatch.setattr("sys.argv", ["reconcile", "run", str(world.file), "--json", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code, valid_output("run", capsys.readouterr().out)["exit_code"]


def test_a_plan_is_refused_where_expectations_failed(tmp_path: Path) -> None:
    """With the reasons, as that of an incomplete run."""
    job = job_of(tmp_path, contract_file(tmp_path))
    checked(job.run, expected(), expected("findings"))
    made = stage_plan.plan(job)
    assert [FAILED] == made.reasons
    with pytest.raises(PlanRefusedError, match="phone: 3 of 1,000 rows are missing"):
        require_applicable(job, made)


def test_a_plan_where_all_are_met_may_be_applied(tmp_path: Path) -> None:
    """The gate is open."""
    job = job_of(tmp_path, contract_file(tmp_path))
    checked(job.run, expected(success=True))
    made = stage_plan.plan(job)
    require_applicable(job, made)
    assert [] == made.reasons


def test_a_gate_that_closes_later_stops_a_plan_all_the_same(tmp_path: Path) -> None:
    """What was planned before is not applied any more."""
    job = job_of(tmp_path, contract_file(tmp_path))
    made = stage_plan.plan(job)
    require_applicable(job, made)
    checked(job.run, expected())
    with pytest.raises(PlanRefusedError, match="expectation failed"):
        require_applicable(job, made)


def test_a_gate_that_opens_later_leaves_a_plan_as_it_is(tmp_path: Path) -> None:
    """It may be applied, now or in another attempt."""
    job = job_of(tmp_path, contract_file(tmp_path))
    made = stage_plan.plan(job)
    checked(job.run, expected(success=True))
    require_applicable(job, stage_plan.plan(job))
    assert made.digest == stage_plan.plan(job).digest


def test_suites_that_were_changed_are_checked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that were not, once."""
    job = job_of(tmp_path, contract_file(tmp_path, CONTRACT.rstrip("\n") + "\n" + SUITE))
    asked: list[str] = []

    def checked_now(*_: Any) -> list[Any]:
        asked.append(suite.read_text("utf-8"))
        return []

    monkeypatch.setattr("reconcile.pipeline.quality._all", checked_now)
    monkeypatch.setattr("reconcile.pipeline.quality.quality_context", nullcontext)
    suite = tmp_path / "own.json"
    for text in ("one", "one", "another"):
        suite.write_text(text, "utf-8")
        pipeline.quality(job)
    assert ["one", "another"] == asked


def test_a_check_that_fails_opens_no_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stopped a repair stops it until another check has come to its end."""
    job = job_of(tmp_path, contract_file(tmp_path))
    checked(job.run, expected())
    made = stage_plan.plan(job)

    def broken(*_: Any) -> list[Any]:
        raise UnreachableError("Spark is gone")

    monkeypatch.setattr("reconcile.pipeline.quality._all", broken)
    monkeypatch.setattr("reconcile.pipeline.quality.quality_context", nullcontext)
    with pytest.raises(UnreachableError):
        pipeline.quality(job)
    with pytest.raises(PlanRefusedError, match="expectation failed"):
        require_applicable(job, made)


def test_quality_writes_the_report_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was checked stands in it."""
    file = contract_file(tmp_path)
    place, run = made_run(tmp_path / "runs", [finding()], contract=file)
    job = Job(load_contract(file), file, Settings(workspace=place.root), place, run)

    @contextmanager
    def job_of_run(*_: Any) -> Iterator[Job]:
        yield job

    monkeypatch.setattr("reconcile.pipeline.job.job_of", job_of_run)
    monkeypatch.setattr(pipeline, "quality", lambda job: checked(job.run, expected()))
    done = CliRunner().invoke(cli, ["quality", "--run", "r1"])
    said = f"the report is in {run.folder}/report.html\nnext: reconcile report r1\n"
    assert (1, said) == (done.exit_code, done.stderr)
    assert "and 1 expectation of the data failed" in (Path(run.folder) / "report.html").read_text("utf-8")
