"""A cache of reports: each is kept until something of its run changes."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from reconcile.pipeline.result import SHOWN, report_of
from reconcile.pipeline.runs import contract_of
from reconcile.report.model import Report
from reconcile.settings.settings import Settings
from reconcile.workspace.workspace import Workspace

_KEPT = 16
_Key = tuple[tuple[str, str], ...]


class Reports:
    """Builds reports, and keeps the last ones."""

    def __init__(self, place: Workspace, settings: Settings, shown: int) -> None:
        self._place, self._settings, self._shown = place, settings, shown
        self._kept: OrderedDict[str, tuple[_Key, Report]] = OrderedDict()
        self._lock = Lock()

    def of(self, run_id: str) -> Report:
        """Build the report of a run as a page shows it, or take it from the cache."""
        run = self._place.existing_run(run_id)
        contract = contract_of(run)
        digest = contract.digest if contract is not None else ""
        key = (("contract", digest), *((each.name, each.digest) for each in run.manifests()))
        with self._lock:
            if run_id in self._kept and self._kept[run_id][0] == key:
                self._kept.move_to_end(run_id)
                return self._kept[run_id][1]
        report = report_of(run, self._place, self._settings, contract, self._shown)
        with self._lock:
            self._kept[run_id] = (key, report)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return report

    def whole(self, run_id: str) -> Report:
        """Build the report of a run as its file shows it."""
        run = self._place.existing_run(run_id)
        return report_of(run, self._place, self._settings, contract_of(run), SHOWN)
