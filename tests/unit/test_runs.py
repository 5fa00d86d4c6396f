"""Lists of runs say what each came to, and why one did not come to its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.contract.model import load_contract
from reconcile.domain.plan import Plan
from reconcile.errors import RefusedError, UnreachableError
from reconcile.pipeline.handoffs import NotRecorded, Request, Summary
from reconcile.pipeline.job import Job
from reconcile.pipeline.runs import RunLine, run_line
from reconcile.pipeline.stopping import recorded, stop_noted
from reconcile.settings.settings import Settings
from reconcile.workspace.manifest import Stage
from reconcile.workspace.workspace import Workspace
from tests.unit.report_runs import contract_file, finding, made_run


def begun(folder: Path) -> Job:
    """Begin a run, and no more."""
    file, place = contract_file(folder), Workspace(folder / "runs")
    contract, run = load_contract(file), place.run("r1")
    run.publish(Request(contract=str(file), aggregate=contract.aggregate), run.inputs(contract.digest))
    return Job(contract, file, Settings(workspace=place.root), place, run)


def stopped(job: Job, error: BaseException, stage: Stage = "gather") -> RunLine:
    """Have a stage end by an error, and read the run's line."""
    with pytest.raises(type(error)), stop_noted(job, stage):
        raise error
    return run_line(job.workspace, job.run.id)


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (RefusedError("the group's isolation is not declared"), "refused", "the group's isolation is not declared"),
        (UnreachableError("no broker at 127.0.0.1:1"), "unreachable", "no broker at 127.0.0.1:1"),
        (KeyboardInterrupt(), "interrupted", "it was interrupted"),
        (ValueError("the value was zoe@example.org"), "failed", "ValueError"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_run_that_stopped_says_why(tmp_path: Path, error: BaseException, outcome: str, reason: str) -> None:
    """By the kind of the error; what an unforeseen one says may quote values."""
    line = stopped(begun(tmp_path), error)
    assert (outcome, f"gather: {reason}", "user-account", None) == (
        line.outcome, line.reason, line.contract, line.exit_code,
    )  # fmt: skip


def test_what_stopped_a_run_counts_no_more_when_a_stage_begins_again(tmp_path: Path) -> None:
    """Whoever goes on has another chance."""
    job = begun(tmp_path)
    stopped(job, KeyboardInterrupt())
    with stop_noted(job, "gather"):
        during = run_line(job.workspace, job.run.id)
    assert ("unfinished", "request") == (during.outcome, during.stage)


def test_an_audited_run_that_stopped_later_keeps_its_outcome(tmp_path: Path) -> None:
    """It has drifted, and says why it was not repaired."""
    place, run = made_run(tmp_path / "runs", [finding()], contract=contract_file(tmp_path))
    file = tmp_path / "user-account.yaml"
    line = stopped(
        Job(load_contract(file), file, Settings(workspace=place.root), place, run), RefusedError("no"), "plan"
    )
    assert ("drift", "plan: no", 1) == (line.outcome, line.reason, line.exit_code)


def test_a_result_that_was_not_recorded_says_so(tmp_path: Path) -> None:
    """The audit holds, and the control store has not taken it."""
    place, run = made_run(tmp_path / "runs", [finding()], contract=contract_file(tmp_path))
    file = tmp_path / "user-account.yaml"
    job = Job(load_contract(file), file, Settings(workspace=place.root), place, run)
    summary, problem = run.read(Summary), NotRecorded(message="no server at db:5432", may_pass=True)
    assert recorded(job, "audit", summary) is summary
    assert run_line(place, run.id).reason is None
    recorded(job, "audit", summary.model_copy(update={"not_recorded": problem}))
    assert ("drift", "audit: no server at db:5432") == ((line := run_line(place, run.id)).outcome, line.reason)


def test_a_run_that_has_not_begun_stays_new(tmp_path: Path) -> None:
    """Nothing is noted in a folder that no stage has made, so that a run is not taken for another's."""
    job = begun(tmp_path)
    job.run.remove(Request.ARTIFACT)
    with pytest.raises(RefusedError), stop_noted(job, "gather"):
        raise RefusedError("no")
    assert [] == job.run.manifests()


def test_what_could_not_be_read_is_the_reason(tmp_path: Path) -> None:
    """Link by link."""
    place, run = made_run(tmp_path / "runs", unread={"user-account/login": "no server at db:5432"})
    assert ("unknown", "user-account/login: no server at db:5432") == (
        (line := run_line(place, run.id)).outcome,
        line.reason,
    )


def test_a_plan_that_is_refused_is_the_reason(tmp_path: Path) -> None:
    """Nothing of it can be applied."""
    place, run = made_run(tmp_path / "runs", [finding()])
    plan = Plan.sealed(
        run_id="r1", contract="user-account", contract_digest="0" * 64, made_of={}, links=(), refused=("too many",)
    )
    run.publish(plan, run.inputs("0" * 64, made_of=[Summary.ARTIFACT]))
    assert "plan: refused; too many" == run_line(place, "r1").reason


def test_the_command_shows_contract_outcome_and_reason(tmp_path: Path) -> None:
    """Also as JSON."""
    stopped(begun(tmp_path), UnreachableError("no broker at 127.0.0.1:1"))
    place = ["--workspace", str(tmp_path / "runs")]
    shown = CliRunner().invoke(cli, ["runs", *place], catch_exceptions=False).stdout
    said = json.loads(CliRunner().invoke(cli, ["runs", "--json", *place], catch_exceptions=False).stdout)["runs"][0]
    assert "user-account   did not get an answer" in shown
    assert "r1: gather: no broker at 127.0.0.1:1\n" in shown
    assert ("user-account", "unreachable") == (said["contract"], said["outcome"])
