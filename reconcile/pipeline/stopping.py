"""What kept a run from going on: noted in the run, so that lists of runs can say it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias, TypeVar

from reconcile.errors import ReconcileError, UnreachableError
from reconcile.pipeline.handoffs import Request, Stopped, Summary, Verified
from reconcile.pipeline.job import Job
from reconcile.workspace.manifest import Stage

_LOG = logging.getLogger(__name__)

How: TypeAlias = Literal["refused", "interrupted", "unreachable", "failed"]
AnyResult = TypeVar("AnyResult", Summary, Verified)


@contextmanager
def stop_noted(job: Job, stage: Stage) -> Iterator[None]:
    """Note in a run that has begun what ended the block before its end; what stopped it before counts no more."""
    job.run.remove(Stopped.ARTIFACT)
    try:
        yield
    except BaseException as error:
        try:
            _note(job, stage, error)
        except Exception as failure:  # noqa: BLE001 - what stopped the run is raised, not what kept it from being noted
            _LOG.debug(f"{job.run.id}: nothing notes that it stopped: {failure}")
        raise


def recorded(job: Job, stage: Stage, result: AnyResult) -> AnyResult:
    """Note in a run that the control store did not take a result, if it did not; return the result."""
    if (problem := result.not_recorded) is not None:
        how: How = "unreachable" if problem.may_pass else "refused"
        job.run.publish(Stopped(stage=stage, how=how, reason=problem.message), job.inputs(), complete=False)
    return result


def _note(job: Job, stage: Stage, error: BaseException) -> None:
    # A run without a request has not begun, and is taken for a new one.
    if job.run.find(Request.ARTIFACT) is not None:
        how, reason = _told(error)
        job.run.publish(Stopped(stage=stage, how=how, reason=reason), job.inputs(), complete=False)


def _told(error: BaseException) -> tuple[How, str]:
    if isinstance(error, ReconcileError):
        return ("unreachable" if isinstance(error, UnreachableError) else "refused"), str(error)
    if isinstance(error, Exception):
        return "failed", type(error).__name__  # its text may quote values
    return "interrupted", "it was interrupted"
