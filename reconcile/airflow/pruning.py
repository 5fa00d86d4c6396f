"""What the nightly DAG prunes: runs and what is kept beside them, as old as the settings say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from reconcile.airflow.installation import installation


def prune_by_settings() -> dict[str, Any] | None:
    """Prune what is older than `prune.older_than` of the settings; return what went, None where it is not set."""
    from reconcile.pipeline.job import workspace_of
    from reconcile.pipeline.retention import prune
    from reconcile.workspace import handoff

    settings = installation().settings()
    if settings.prune is None:
        return None
    with workspace_of(settings) as place:
        found = prune(place, settings, settings.prune.older_than, datetime.now(UTC), dry_run=False)
    data: dict[str, Any] = handoff.to_data(found)
    return data
