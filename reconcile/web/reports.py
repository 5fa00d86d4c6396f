"""A cache of reports: each is kept until something of its run changes."""

from __future__ import annotations

from functools import lru_cache

from reconcile.pipeline.result import SHOWN, report_of
from reconcile.pipeline.runs import contract_of
from reconcile.report.model import Report
from reconcile.settings.settings import Settings
from reconcile.workspace.workspace import Workspace

_KEPT = 16
_State = tuple[tuple[str, str], ...]


class Reports:
    """Builds reports, and keeps the last ones."""

    def __init__(self, place: Workspace, settings: Settings, shown: int) -> None:
        self._place, self._settings, self._shown = place, settings, shown
        self._kept = lru_cache(_KEPT)(self._built)

    def of(self, run_id: str) -> Report:
        """Build the report of a run as a page shows it, or take it from the cache."""
        run = self._place.existing_run(run_id)
        contract = contract_of(run)
        digest = contract.digest if contract is not None else ""
        return self._kept(run_id, (("contract", digest), *((each.name, each.digest) for each in run.manifests())))

    def whole(self, run_id: str) -> Report:
        """Build the report of a run as its file shows it."""
        return self._report(run_id, SHOWN)

    def _built(self, run_id: str, _state: _State) -> Report:
        return self._report(run_id, self._shown)

    def _report(self, run_id: str, shown: int) -> Report:
        run = self._place.existing_run(run_id)
        return report_of(run, self._place, self._settings, contract_of(run), shown)
