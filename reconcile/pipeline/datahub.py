"""Tells DataHub what came of a run; a run is what it is if DataHub does not take it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from http.client import HTTPException
from urllib.error import HTTPError

from reconcile.consumer.webhook import post, reason_of
from reconcile.contract.model import Contract
from reconcile.errors import ReconcileError
from reconcile.quality.gate import ABOUT_FINDINGS
from reconcile.quality.suites import Checked
from reconcile.report.datahub import SuiteResult, proposals
from reconcile.report.model import Report
from reconcile.settings.connections import DataHub
from reconcile.settings.settings import Settings

_LOG = logging.getLogger(__name__)
_TO_ANSWER = 10.0
_FOR_ALL = 60.0
_HEADERS = {"X-RestLi-Protocol-Version": "2.0.0"}
_OF_NO_COPY = (ABOUT_FINDINGS, "source")


def tell(report: Report, results: Iterable[Checked], settings: Settings, contract: Contract | None) -> None:
    """Post the run's assertions to the DataHub of the settings, if there is one, and log what fails.

    A run of ids that were named says nothing of the copy as a whole, and is not told.
    """
    if (datahub := settings.datahub) is None or report.kind == "ids":
        return
    left = f"DataHub was not told of {report.run_id}"
    if contract is None:
        _LOG.warning(f"{left}: its contract cannot be read")
        return
    try:
        url, headers = datahub.resolve()
        datasets = dict(_datasets(datahub, settings, contract, [each.link for each in report.links]))
        deadline = time.monotonic() + _FOR_ALL
        for each in proposals(report, tuple(_suites(results)), datasets, datahub.web):
            if (seconds := deadline - time.monotonic()) <= 0:
                raise TimeoutError
            post(f"{url}/aspects?action=ingestProposal", each, min(seconds, _TO_ANSWER), {**headers, **_HEADERS})
    except ReconcileError as error:
        _LOG.warning(f"{left}: {error}")
    except HTTPError as error:
        error.close()
        _LOG.warning(f"{left}: it answered {error.code}")
    except (OSError, ValueError, HTTPException) as error:
        _LOG.warning(f"{left}: {reason_of(error)}")


def _datasets(
    datahub: DataHub, settings: Settings, contract: Contract, links: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Choose the dataset of each copy; log those whose dataset nothing says."""
    consumers = {contract.link(each): each for each in contract.consumers}
    for link in links:
        if link in datahub.datasets:
            yield link, datahub.datasets[link]
        elif (consumer := consumers.get(link)) is None or consumer.table is None:
            why = "a query has no table" if consumer is not None else "the contract no longer has it"
            _LOG.warning(f"DataHub is not told of {link}: {why}; set `datahub.datasets`")
        else:
            try:
                yield link, datahub.dataset(consumer.store, settings.connection(consumer.store), consumer.table)
            except ReconcileError as error:
                _LOG.warning(f"DataHub is not told of {link}: {error}")


def _suites(results: Iterable[Checked]) -> Iterator[SuiteResult]:
    """Count how the suites of copies went; those of the source and of the findings are about no copy."""
    of: dict[tuple[str, str], list[Checked]] = {}
    for each in results:
        if each.link is not None and each.suite not in _OF_NO_COPY:
            of.setdefault((each.link, each.suite), []).append(each)
    for (link, suite), checked in of.items():
        failed = [each for each in checked if not each.success]
        yield SuiteResult(link, suite, len(checked), len(failed), sum(each.exception is not None for each in failed))
