"""What a run finds of itself in the control store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconcile.contract.model import load_contract
from reconcile.control.correction_state import Intent
from reconcile.control.store import open_control
from reconcile.errors import RefusedError
from reconcile.files import committed
from reconcile.pipeline import record
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.handoffs import Request
from reconcile.pipeline.job import Job
from reconcile.settings.settings import Settings
from reconcile.workspace.workspace import Workspace
from tests.control_behaviour import LINK, MINUTE

RUN = "again"


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A run that is new, beside a control store that has corrections of one of its name."""
    file = committed("contracts", "user-account.yaml")
    settings = Settings(workspace=str(tmp_path))
    place = Workspace(settings.workspace)
    made = Job(load_contract(file), file, settings, place, place.run(RUN))
    with open_control(settings) as control, control.lease(LINK, "me", MINUTE) as held:
        control.begin_run(RUN, made.contract.aggregate, made.contract.digest)
        control.intend(held.require(), [Intent("c1", LINK, "a", 3, 0, RUN)])
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
