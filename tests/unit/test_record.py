"""What a run finds of itself in the control store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reconcile.cli import cli
from reconcile.contract.model import load_contract
from reconcile.control.corrections import Intent
from reconcile.control.store import open_control
from reconcile.domain.approval import Actor
from reconcile.errors import RefusedError, UnreachableError
from reconcile.files import committed
from reconcile.pipeline import record
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.handoffs import Request, Summary, Verified
from reconcile.pipeline.job import Job
from reconcile.settings.settings import Settings
from reconcile.workspace.workspace import Workspace
from tests.control_behaviour import LINK, MINUTE
from tests.schemas import valid_output
from tests.unit.handoffs import verified
from tests.unit.report_runs import contract_file, finding, made_run

RUN = "again"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A run that is new, beside a control store that has corrections of one of its name."""
    file = committed("contracts", "user-account.yaml")
    settings = Settings(workspace=str(tmp_path))
    place = Workspace(settings.workspace)
    made = Job(load_contract(file), file, settings, place, place.run(RUN))
    with open_control(settings) as control, control.leases.hold(LINK, "me", MINUTE) as held:
        control.runs.begin(RUN, made.contract.aggregate, made.contract.digest)
        control.corrections.intend(held.require(), [Intent("c1", LINK, "a", 3, 0, RUN)])
    return made


def test_a_run_id_that_was_used_is_refused(job: Job) -> None:
    """Its workspace was wiped, or is another one: what stands in the control store is not its own."""
    with pytest.raises(RefusedError, match="start a run with another id"):
        pipeline.gather(job)


def test_a_run_that_goes_on_keeps_its_corrections(job: Job) -> None:
    """Its files are there."""
    job.run.publish(Request(contract=str(job.file), aggregate="user-account"), job.inputs())
    record.require_own(job)


def test_a_run_of_another_name_is_new(job: Job) -> None:
    """Nothing stands under its id."""
    record.require_own(replace(job, run=job.workspace.run("other")))


def test_a_run_begins_for_who_asks_for_it(job: Job) -> None:
    """And not for whoever goes on with it."""
    alice, bob = Actor("alice", "cli"), Actor("bob", "cli")
    asked_for = replace(job, run=job.workspace.run("other"), requester=alice)
    record.reach(asked_for, "gather")
    record.reach(replace(asked_for, requester=bob), "gather")
    with open_control(job.settings) as control:
        assert alice == control.runs.find("other").requester


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A run with findings that was audited, repaired and verified; in a later one nothing differed any more."""
    file = contract_file(tmp_path)
    place, run = made_run(tmp_path / "runs", [finding()], contract=file, run_id="first")
    _, later = made_run(tmp_path / "runs", [], contract=file, run_id="later")
    monkeypatch.setattr("reconcile.pipeline.audit.audit", lambda *_, **__: None)
    monkeypatch.setattr("reconcile.pipeline.verify.verify", lambda _: verified())
    first = Job(load_contract(file), file, Settings(workspace=place.root), place, run)
    pipeline.audit(first)
    pipeline.verify(first)
    pipeline.audit(replace(first, run=later))
    return first


def test_a_run_that_is_asked_for_again_says_what_it_said_then(recorded: Job) -> None:
    """Its line in history stays, and so does the exit code with which it ended."""
    aggregate = recorded.contract.aggregate
    with open_control(recorded.settings) as control:
        history, ended = control.runs.history(aggregate), control.runs.find("first")
    again = pipeline.audit(recorded)
    assert again.not_recorded is None
    with open_control(recorded.settings) as control:
        assert (history, ended) == (control.runs.history(aggregate), control.runs.find("first"))
    (drift,) = [point.drift for point in history if point.run_id == "first"]
    assert [drift] == [each.over_time for each in again.links]


GONE = ".*the control store did not take it: the control store .*/runs/control.db"


@pytest.fixture
def cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A run of which nothing differs, whose control store goes while it is audited and while it is verified."""
    file = contract_file(tmp_path)
    place, run = made_run(tmp_path / "runs", contract=file)

    def work(*_: object, **__: object) -> Verified:
        (tmp_path / "runs" / "control.db").write_bytes(b"no database any more, and long enough to be looked at" * 99)
        return verified()

    monkeypatch.setattr("reconcile.pipeline.audit.audit", work)
    monkeypatch.setattr("reconcile.pipeline.verify.verify", work)
    return Job(load_contract(file), file, Settings(workspace=place.root), place, run)


def test_an_audit_counts_that_the_control_store_does_not_take(cut_off: Job) -> None:
    """Its figures come back, with why they are not recorded."""
    found = pipeline.audit(cut_off)
    assert cut_off.run.read(Summary) == found.model_copy(update={"not_recorded": None})
    with pytest.raises(RefusedError, match=GONE):
        record.require_recorded(found)


def test_a_verification_counts_that_the_control_store_does_not_take(cut_off: Job) -> None:
    """What became of the corrections comes back, with why it is not recorded."""
    found = pipeline.verify(cut_off)
    assert ((), 0) == (found.links, found.exit_code)
    with pytest.raises(RefusedError, match=GONE):
        record.require_recorded(found)


def test_a_control_store_that_may_come_back_is_tried_again() -> None:
    """As Airflow does with what does not answer."""
    with pytest.raises(UnreachableError, match="did not take it: no answer"):
        record.require_recorded(record.not_recorded(verified(), UnreachableError("no answer")))


@pytest.fixture
def audited(cut_off: Job, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`reconcile audit` of that run."""

    @contextmanager
    def job_of(*_: object) -> Iterator[Job]:
        yield cut_off

    monkeypatch.setattr("reconcile.pipeline.job.job_of", job_of)
    return lambda *words: CliRunner().invoke(cli, ["audit", "--run", "r1", *words])


def test_the_command_line_shows_a_result_that_is_not_recorded(audited: Callable[..., Result]) -> None:
    """The figures on stdout, the error on stderr; and it is no success."""
    done = audited()
    assert 2 == done.exit_code
    assert done.stdout.endswith("The copies agree.\n")
    assert "the control store did not take it" in done.stderr


def test_one_object_says_that_its_result_is_not_recorded(audited: Callable[..., Result]) -> None:
    """With the exit code of the command."""
    told = valid_output("audit", audited("--json").stdout)
    assert (2, False) == (told["exit_code"], told["not_recorded"]["may_pass"])


@pytest.mark.parametrize("stage", ["audit", "verify"])
def test_airflow_s_application_ends_where_a_result_is_not_recorded(cut_off: Job, stage: str) -> None:
    """Its next attempt records what stands."""
    with pytest.raises(RefusedError, match=GONE):
        pipeline.perform(cut_off, [stage])
