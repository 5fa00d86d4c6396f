"""The pages: runs, one run, its findings, an aggregate's story, the plan, drift over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import StreamingResponse

from reconcile.domain.cause import Cause
from reconcile.domain.finding import Difference, Hop, Status
from reconcile.pipeline import tables
from reconcile.pipeline.handoffs import FINDINGS, Fence, Summary
from reconcile.pipeline.listing import FILTERS, page
from reconcile.pipeline.repairs import Repairs
from reconcile.pipeline.result import Showing, redaction_of
from reconcile.pipeline.runs import contract_of, newest
from reconcile.pipeline.trend import trends
from reconcile.report import html
from reconcile.report.csv import COLUMNS, csv_of_rows
from reconcile.settings.settings import Settings
from reconcile.web.rendering import page_of
from reconcile.web.reports import Reports
from reconcile.workspace.manifest import MissingArtifactError
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace

PER_PAGE = 50

Number = Annotated[int, Query(ge=1, le=10_000_000, alias="page")]
Text = Annotated[str, Query(max_length=1000)]

_ASSETS = {html.STYLE: "text/css", html.SCRIPT: "text/javascript", html.ICON: "image/svg+xml"}


class Pages:
    """Answers requests out of one workspace. It writes nothing."""

    def __init__(self, place: Workspace, settings: Settings) -> None:
        self._place, self._settings = place, settings
        self._reports = Reports(place, settings, PER_PAGE)

    def router(self) -> APIRouter:
        """Give the routes."""
        answers: dict[str, Callable[..., Response]] = {
            "/": self.runs,
            "/runs/{run_id}": self.run,
            "/runs/{run_id}/findings": self.findings,
            "/runs/{run_id}/aggregate": self.aggregate,
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

    def findings(
        self,
        request: Request,
        run_id: str,
        q: Text = "",
        link: Text = "",
        cause: Text = "",
        difference: Text = "",
        status: Text = "",
        hop: Text = "",
        number: Number = 1,
    ) -> Response:
        """List findings, filtered and searched."""
        run = self._place.existing_run(run_id)
        asked = dict(zip(("q", *FILTERS), (q, link, cause, difference, status, hop), strict=True))
        found = page(run, asked, q, (number - 1) * PER_PAGE, PER_PAGE, self._place.spark)
        links = [each.link for each in run.read(Summary).links]
        values = {
            "run_id": run_id,
            "asked": asked,
            "choices": dict(zip(FILTERS, (links, list(Cause), list(Difference), list(Status), list(Hop)), strict=True)),
            "shown": self._showing(run).of(found.findings, stories=False),
            "total": found.total,
            **_paging(number, found.total, asked),
        }
        return page_of(request, "findings.html", f"Findings of {run_id}", values)

    def aggregate(self, request: Request, run_id: str, aggregate_id: Annotated[str, Query(alias="id")]) -> Response:
        """Tell the story of an aggregate, in each link in which the run looked closely at it."""
        run = self._place.existing_run(run_id)
        showing = self._showing(run)
        found = list(tables.findings(run, ids=[aggregate_id], spark=self._place.spark))
        told = {each["link"] for each in found}
        others = {each.link: {aggregate_id} for each in run.read(Summary).links if each.link not in told}
        agreeing = list(showing.stories(others).values())
        if not found and not agreeing:
            raise HTTPException(404, "This run did not look closely at that aggregate: it agreed, or nobody has it")
        values = {
            "run_id": run_id,
            "id": aggregate_id,
            "shown": showing.of(found),
            "agreeing": agreeing,
            "note": showing.redaction.note,
        }
        return page_of(request, "aggregate.html", f"{aggregate_id} in {run_id}", values)

    def plan(self, request: Request, run_id: str, number: Number = 1) -> Response:
        """List the plan of a run, and what became of it."""
        repairs = Repairs.of(self._place.existing_run(run_id))
        if repairs is None:
            raise MissingArtifactError(f"the run {run_id} has no plan: `reconcile plan --run {run_id}` makes one")
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
        told, notes = trends(self._place, self._settings, contract)
        if not told:
            raise HTTPException(404, f"No run of {contract} is known")
        values = {"aggregate": contract, "trends": told, "notes": notes}
        return page_of(request, "history.html", f"{contract}: drift over time", values)

    def report_file(self, run_id: str) -> Response:
        """Give the report as one file."""
        return _file(html.report_html(self._reports.whole(run_id)), "text/html", f"{run_id}.html")

    def findings_file(self, run_id: str) -> Response:
        """Give all findings as CSV."""
        run = self._place.existing_run(run_id)
        run.manifest(FINDINGS)
        pieces = csv_of_rows(tables.tuples(run, FINDINGS, COLUMNS, self._place.spark))
        return _file(pieces, "text/csv", f"{run_id}.csv")

    def static(self, name: str) -> Response:
        """Give the style sheet, the script or the icon."""
        if name not in _ASSETS:
            raise HTTPException(404, "Not Found")
        return Response(html.asset(name), media_type=_ASSETS[name])

    def _showing(self, run: Run) -> Showing:
        at = run.read(Fence).closed_at
        redaction = redaction_of(run, contract_of(run))
        return Showing(run, self._settings, redaction, at, Repairs.of(run), self._place.spark)


def _paging(number: int, total: int, asked: Mapping[str, str]) -> dict[str, Any]:
    return {"number": number, "last": max(-(-total // PER_PAGE), 1), "asked": asked}


def _file(pieces: Iterator[str], kind: str, name: str) -> Response:
    told = (each.encode("utf-8", "replace") for each in pieces)
    return StreamingResponse(told, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})
