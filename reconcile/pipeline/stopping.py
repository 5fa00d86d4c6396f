"""What kept a run from going on: noted in the run, so that lists of runs can say it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from reconcile.errors import ReconcileError, UnreachableError
from reconcile.pipeline.handoffs import Request, Stopped
from reconcile.pipeline.job import Job
from reconcile.workspace.manifest import Stage

_LOG = logging.getLogger(__name__)


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


def _note(job: Job, stage: Stage, error: BaseException) -> None:
    # A run without a request has not begun, and is taken for a new one.
    if job.run.find(Request.ARTIFACT) is not None:
        how, reason = _told(error)
        job.run.publish(Stopped(stage=stage, how=how, reason=reason), job.inputs(), complete=False)


def _told(error: BaseException) -> tuple[Literal["refused", "interrupted", "unreachable", "failed"], str]:
    if isinstance(error, ReconcileError):
        return ("unreachable" if isinstance(error, UnreachableError) else "refused"), str(error)
    if isinstance(error, Exception):
        return "failed", type(error).__name__  # its text may quote values
    return "interrupted", "it was interrupted"
