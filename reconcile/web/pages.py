"""The pages: runs, one run, its findings, an aggregate's story, the plan, drift over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from reconcile.domain.cause import Cause
from reconcile.domain.finding import Difference, Hop, Status
from reconcile.errors import RefusedError
from reconcile.pipeline import tables
from reconcile.pipeline.handoffs import FINDINGS, Summary
from reconcile.pipeline.repairs import Repairs
from reconcile.pipeline.runs import contract_of, newest
from reconcile.pipeline.shown_findings import Showing
from reconcile.pipeline.tables import FILTERS, page
from reconcile.pipeline.trend import trends
from reconcile.report import html
from reconcile.report.csv import csv_of
from reconcile.settings.settings import Settings
from reconcile.web.rendering import page_of
from reconcile.web.reports import Reports
from reconcile.workspace.manifest import MissingArtifactError
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace

PER_PAGE = 50

_LAST_PAGE = 10_000_000
Number = Annotated[int, Query(ge=1, le=_LAST_PAGE, alias="page")]
Text = Annotated[str, Field(max_length=1000)]

_ASSETS = {html.STYLE: "text/css", html.SCRIPT: "text/javascript", html.ICON: "image/svg+xml"}


class FindingsQuery(BaseModel):
    """The filters of a list of findings, as its address names them."""

    q: Text = ""
    link: Text = ""
    cause: Text = ""
    difference: Text = ""
    status: Text = ""
    hop: Text = ""
    page: Annotated[int, Field(ge=1, le=_LAST_PAGE)] = 1


class Pages:
    """Answers requests out of one workspace. It writes nothing."""

    def __init__(self, place: Workspace, settings: Settings) -> None:
        self._place, self._settings = place, settings
        self._reports = Reports(place, settings, PER_PAGE)

    def router(self) -> APIRouter:
        """Build the routes."""
        answers: dict[str, Callable[..., Response]] = {
            "/": self.runs,
            "/runs/{run_id}": self.run,
            "/runs/{run_id}/findings": self.findings,
            "/runs/{run_id}/aggregate": self.aggregate,
            "/runs/{run_id}/trace": self.trace,
            "/runs/{run_id}/plan": self.plan,
            "/runs/{run_id}/report.html": self.report_file,
            "/runs/{run_id}/findings.csv": self.findings_file,
            "/history/{contract}": self.history,
            "/static/{name}": self.static,
        }
        router = APIRouter()
        for path, answer in answers.items():
            router.add_api_route(path, answer, methods=["GET"], response_model=None)
        return router

    def runs(self, request: Request, number: Number = 1) -> Response:
        """List runs, the newest first."""
        lines, total = newest(self._place, PER_PAGE, (number - 1) * PER_PAGE)
        return page_of(request, "runs.html", "Runs", {"runs": lines, **_paging(number, total, {})})

    def run(self, request: Request, run_id: str) -> Response:
        """Show the report of a run."""
        report = self._reports.of(run_id)
        return page_of(request, "report.html", f"{report.aggregate}: {report.verdict}", {"report": report, "csv": None})

    def findings(self, request: Request, run_id: str, query: Annotated[FindingsQuery, Query()]) -> Response:
        """List findings, filtered and searched."""
        run = self._place.existing_run(run_id)
        filters = query.model_dump(exclude={"page"})
        wanted = {name: [value] for name, value in filters.items() if value}
        found = page(run, wanted, query.q, (query.page - 1) * PER_PAGE, PER_PAGE, self._place.spark)
        links = [each.link for each in run.read(Summary).links]
        values = {
            "run_id": run_id,
            "choices": dict(zip(FILTERS, (links, list(Cause), list(Difference), list(Status), list(Hop)), strict=True)),
            "shown": self._showing(run).shown(found.findings, stories=False),
            "total": found.total,
            **_paging(query.page, found.total, filters),
        }
        return page_of(request, "findings.html", f"Findings of {run_id}", values)

    def aggregate(self, request: Request, run_id: str, aggregate_id: Annotated[str, Query(alias="id")]) -> Response:
        """Show the story of an aggregate, in each link in which the run looked closely at it."""
        run = self._place.existing_run(run_id)
        showing = self._showing(run)
        found = list(tables.findings(run, ids=[aggregate_id], spark=self._place.spark))
        differing = {each.link for each in found}
        others = {each.link: {aggregate_id} for each in run.read(Summary).links if each.link not in differing}
        agreeing = list(showing.stories(others))
        if not found and not agreeing:
            raise HTTPException(
                404, "This run did not look closely at that aggregate: it agreed, or neither side has it"
            )
        values = {
            "run_id": run_id,
            "id": aggregate_id,
            "shown": showing.shown(found),
            "agreeing": agreeing,
            "note": showing.redaction.note,
        }
        return page_of(request, "aggregate.html", f"{aggregate_id} in {run_id}", values)

    def trace(
        self,
        request: Request,
        run_id: str,
        aggregate_id: Annotated[Text, Query(alias="id")] = "",
        correlation_id: Annotated[Text, Query(alias="correlation")] = "",
    ) -> Response:
        """Show the way of an aggregate's records, or of a correlation id's, through all topics, as it is kept."""
        from reconcile.pipeline.trace import traced_of_run  # what reads histories loads slowly

        run = self._place.existing_run(run_id)
        contract = contract_of(run)
        if contract is None:
            raise RefusedError(
                f"the contract of {run_id} cannot be read any more, so nobody knows what it keeps hidden"
            )
        wanted = (aggregate_id, None) if aggregate_id else (None, correlation_id)
        found = traced_of_run(self._showing(run), self._place, contract, *wanted) if any(wanted) else None
        values = {"run_id": run_id, "id": aggregate_id, "correlation": correlation_id, "trace": found}
        return page_of(request, "trace.html", f"Trace in {run_id}", values)

    def plan(self, request: Request, run_id: str, number: Number = 1) -> Response:
        """List the plan of a run, and the outcome of each line."""
        repairs = Repairs.of(self._place.existing_run(run_id))
        if repairs is None:
            raise MissingArtifactError(f"the run {run_id} has no plan: `reconcile plan {run_id}` makes one")
        items = list(repairs.items())
        some = items[(number - 1) * PER_PAGE : number * PER_PAGE]
        values = {
            "run_id": run_id,
            "items": [(each, repairs.repair(each)) for each in some],
            "total": len(items),
            **_paging(number, len(items), {}),
        }
        return page_of(request, "plan.html", f"The plan of {run_id}", values)

    def history(self, request: Request, contract: str) -> Response:
        """Show drift over time."""
        found, notes = trends(self._place, self._settings, contract)
        if not found:
            raise HTTPException(404, f"No run of {contract} is known")
        values = {"aggregate": contract, "trends": found, "notes": notes}
        return page_of(request, "history.html", f"{contract}: drift over time", values)

    def report_file(self, run_id: str) -> Response:
        """Send the report as one file."""
        return _file(html.report_html(self._reports.whole(run_id)), "text/html", f"{run_id}.html")

    def findings_file(self, run_id: str) -> Response:
        """Send all findings as CSV."""
        run = self._place.existing_run(run_id)
        run.manifest(FINDINGS)
        pieces = csv_of(tables.findings(run, spark=self._place.spark))
        return _file(pieces, "text/csv", f"{run_id}.csv")

    def static(self, name: str) -> Response:
        """Send the style sheet, the script or the icon."""
        if name not in _ASSETS:
            raise HTTPException(404, "Not Found")
        return Response(html.asset(name), media_type=_ASSETS[name])

    def _showing(self, run: Run) -> Showing:
        return Showing.of(run, self._settings, contract_of(run), self._place.spark)


def _paging(number: int, total: int, filters: Mapping[str, str]) -> dict[str, Any]:
    return {"number": number, "last": max(-(-total // PER_PAGE), 1), "filters": filters}


def _file(pieces: Iterator[str], kind: str, name: str) -> Response:
    content = (each.encode("utf-8", "replace") for each in pieces)
    return StreamingResponse(
        content, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'}
    )
