"""What a run was asked for."""

from __future__ import annotations

from reconcile.pipeline.contracts import REQUEST
from reconcile.report.model import Asked
from reconcile.workspace.run import Run


def asked_of(run: Run) -> Asked | None:
    """Say what a run was asked for; None if that was all aggregates of all copies."""
    asked = run.json_if_there(REQUEST) or {}
    ids, consumers = asked.get("ids"), tuple(asked.get("consumers") or ())
    if ids is None and not consumers:
        return None
    return Asked(None if ids is None else len(set(ids)), consumers)
