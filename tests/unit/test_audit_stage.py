"""What the stage `audit` asks of what was gathered."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconcile.contract.model import load_contract
from reconcile.pipeline.audit import audit
from reconcile.pipeline.job import Job
from reconcile.settings.settings import Settings
from reconcile.workspace.manifest import ChangedInputsError
from reconcile.workspace.workspace import Workspace
from tests.unit.handoffs import gathered
from tests.unit.report_runs import CONTRACT, contract_file


def test_what_another_contract_gathered_is_not_audited(tmp_path: Path) -> None:
    """Its fields may stand in other places, and one would be taken for another."""
    file = contract_file(tmp_path)
    place = Workspace(tmp_path / "runs")
    run = place.run("r1")
    gathering = Job(load_contract(file), file, Settings(workspace=place.root), place, run)
    run.publish(gathered(), gathering.inputs())
    contract_file(tmp_path, CONTRACT.replace("policy: ignore", "policy: block"))
    changed = Job(load_contract(file), file, gathering.settings, place, run)
    with pytest.raises(ChangedInputsError, match="the contract was changed since r1 was gathered"):
        audit(changed, {})
