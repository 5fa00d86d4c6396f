"""The web app: it reads a workspace and shows it, alone or mounted in another app."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from reconcile.errors import ReconcileError, UnreachableError
from reconcile.settings.settings import Settings
from reconcile.web.gate import Gate
from reconcile.web.pages import Pages
from reconcile.web.rendering import page_of
from reconcile.workspace.manifest import MissingArtifactError
from reconcile.workspace.run_id import InvalidRunIdError
from reconcile.workspace.workspace import UnknownRunError, Workspace


def web_app(
    place: Workspace,
    settings: Settings,
    *,
    token: str | None = None,
    ticket: str | None = None,
    hosts: Sequence[str] = (),
) -> FastAPI:
    """Build the app.

    Visitors need the `token`, if there is one; where another app mounts this one, that app authorizes them. A `ticket`
    in the address lets one browser in.
    With `hosts` it answers under these names alone, so that no page elsewhere reaches it by another name.
    """
    app = FastAPI(title="reconcile", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(Pages(place, settings).router())
    app.add_exception_handler(ReconcileError, _refused)
    app.add_exception_handler(HTTPException, _not_found)
    app.add_exception_handler(RequestValidationError, _misread)
    app.add_middleware(Gate, token=token, ticket=ticket, hosts=tuple(hosts))
    return app


def _refused(request: Request, error: Exception) -> Response:
    missing = isinstance(error, UnknownRunError | InvalidRunIdError | MissingArtifactError)
    status = 404 if missing else 503 if isinstance(error, UnreachableError) else 409
    return _problem(request, "Not found" if missing else "That did not work", str(error), status)


def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(request, error.detail, "", error.status_code)


def _misread(request: Request, _: Exception) -> Response:
    return _problem(request, "Nothing to show", "The address is incomplete or wrong.", 400)


def _problem(request: Request, title: str, message: str, status: int) -> Response:
    return page_of(request, "problem.html", title, {"title": title, "message": message}, status)
