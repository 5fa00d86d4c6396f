"""A run as DataHub's assertions: of each copy that it agrees with its source, and of each suite that it is met."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from reconcile.report.model import Level, LinkResult, Report

_FIGURES = ("compared", "agreeing", "drifted", "latent", "tolerated", "in_flight")


@dataclass(frozen=True)
class SuiteResult:
    """How one suite of a link went. It holds figures, and no values of rows."""

    link: str
    suite: str
    total: int
    failed: int
    raised: int
    """Those of the failed that could not be evaluated."""


def proposals(
    report: Report, suites: Sequence[SuiteResult], datasets: Mapping[str, str], web: str | None
) -> Iterator[dict[str, Any]]:
    """Build metadata change proposals: for each assertion what it is, whose it is, and how it went in this run.

    `datasets` are the URNs of the copies by their links; a link without one is left out. All results are of the instant
    at which the run compared, by which DataHub knows a result that it has.
    """
    for link in report.links:
        if (dataset := datasets.get(link.link)) is not None:
            told = f"The copy agrees with its source, but for what {link.link} tolerates"
            yield from _assertion(report, link, dataset, web, None, told, _agreement(report, link))
            for each in suites:
                if each.link == link.link:
                    told = f"The expectations of the suite {each.suite} are met"
                    yield from _assertion(report, link, dataset, web, each.suite, told, _expectations(each))


def _agreement(report: Report, link: LinkResult) -> dict[str, Any]:
    if link.level == Level.UNKNOWN:
        return _error()
    now = link.drifted if link.still_different is None else link.still_different
    figures: dict[str, Any] = {name: getattr(link, name) for name in _FIGURES}
    figures |= {f"cause.{each.name}": each.number for each in link.by_cause}
    figures |= {"settled": "yes" if link.settled else "no", "scope": report.kind}
    if link.still_different is not None:
        figures["still_different"] = link.still_different
    kind = "FAILURE" if link.level == Level.DRIFT else "SUCCESS"
    return {"type": kind, "rowCount": link.compared, "unexpectedCount": now, "nativeResults": figures}


def _expectations(suite: SuiteResult) -> dict[str, Any]:
    figures = {"expectations": suite.total, "failed": suite.failed}
    if suite.raised:
        return {**_error(), "nativeResults": {**figures, "not_evaluated": suite.raised}}
    return {"type": "FAILURE" if suite.failed else "SUCCESS", "nativeResults": figures}


def _error() -> dict[str, Any]:
    return {"type": "ERROR", "error": {"type": "UNKNOWN_ERROR"}, "nativeResults": {}}


def _assertion(
    report: Report,
    link: LinkResult,
    dataset: str,
    web: str | None,
    suite: str | None,
    told: str,
    result: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    # The dataset takes part: installations with a contract of one name may share a catalogue.
    named = json.dumps([dataset, link.link, suite])
    urn = f"urn:li:assertion:{uuid5(NAMESPACE_URL, f'reconcile:{named}')}"
    of = {"contract": report.aggregate, "consumer": link.consumer} | ({} if suite is None else {"suite": suite})
    custom = {"type": "Agreement with the source" if suite is None else "Expectations", "entity": dataset}
    info = {
        "type": "CUSTOM",
        "customAssertion": custom,
        "source": {"type": "EXTERNAL"},
        "description": told,
        "customProperties": of,
        **({} if web is None else {"externalUrl": f"{web}/history/{quote(report.aggregate)}"}),
    }
    yield _proposal(urn, "assertionInfo", info)
    yield _proposal(urn, "dataPlatformInstance", {"platform": "urn:li:dataPlatform:reconcile"})
    native = {"run": report.run_id, **result["nativeResults"]}
    event = {
        "timestampMillis": int(report.closed_at.timestamp() * 1000),
        "runId": report.run_id,
        "assertionUrn": urn,
        "asserteeUrn": dataset,
        "status": "COMPLETE",
        "result": {
            **result,
            "nativeResults": {name: str(value) for name, value in native.items()},
            **({} if web is None else {"externalUrl": f"{web}/runs/{quote(report.run_id)}"}),
        },
    }
    yield _proposal(urn, "assertionRunEvent", event)


def _proposal(urn: str, name: str, aspect: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "proposal": {
            "entityType": "assertion",
            "entityUrn": urn,
            "changeType": "UPSERT",
            "aspectName": name,
            "aspect": {"contentType": "application/json", "value": json.dumps(aspect)},
        }
    }
