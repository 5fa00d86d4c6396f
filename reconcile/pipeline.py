"""The stages, as the command line, the DAGs and the tests call them; each reads and leaves files in a run."""

from __future__ import annotations

from typing import Any

from reconcile.job import Job
from reconcile.run import Run

STAGES = ("gather", "audit", "quality", "plan", "apply", "verify", "report")
REQUEST = "request"
SUMMARY = "summary"


def gather(job: Job) -> None:
    """Read the world of a contract into the run."""
    from reconcile.gather import stage

    _remember(job)
    stage.gather(job)


def audit(job: Job) -> dict[str, Any]:
    """Turn what was gathered into findings; give the run's summary."""
    from reconcile.audit import stage

    stage.audit(job)
    return summary(job.run)


def summary(run: Run) -> dict[str, Any]:
    """Give what the audit of a run found, in figures; raise MissingArtifactError if it was not audited."""
    found: dict[str, Any] = run.json(SUMMARY)
    return found


def requested(run: Run) -> dict[str, Any]:
    """Give what a run was asked for: contract, consumers, ids, mode."""
    found: dict[str, Any] = run.json(REQUEST)
    return found


def _remember(job: Job) -> None:
    inputs = job.inputs()
    if job.run.done(REQUEST, inputs):
        return
    asked = {
        "contract": str(job.file.absolute()),
        "aggregate": job.contract.aggregate,
        "consumers": list(job.consumers),
        "ids": None if job.ids is None else list(job.ids),
        "mode": job.mode,
    }
    job.run.publish_json(REQUEST, asked, inputs, stage="request")
