"""The web app inside Airflow's UI, for those whom Airflow lets in."""

from __future__ import annotations

from contextlib import ExitStack
from threading import Lock
from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin

from reconcile.airflow.installation import installation
from reconcile.airflow.link import PREFIX, ReportLink, address

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class MountedWeb:
    """The web app; it is made when somebody first asks for a page, so that a plugin costs nothing elsewhere."""

    def __init__(self) -> None:
        self._made: ASGIApp | None = None
        self._lock = Lock()
        self._stack = ExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of somebody who is signed in and may see plugins."""
        if scope["type"] != "http":
            return
        refused = await _refused(scope, receive)
        if refused is not None:
            await refused(scope, receive, send)
            return
        from starlette.concurrency import run_in_threadpool

        await (await run_in_threadpool(self._app))(scope, receive, send)

    def _app(self) -> ASGIApp:
        with self._lock:
            if self._made is None:
                from reconcile.pipeline.job import workspace_of
                from reconcile.web.app import web_app

                settings = installation().settings()
                self._made = web_app(self._stack.enter_context(workspace_of(settings)), settings)
            return self._made


async def _refused(scope: Scope, receive: Receive) -> ASGIApp | None:
    """Build the answer to somebody who has to sign in first, or whose role does not allow plugins; else None."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
    from airflow.api_fastapi.core_api.security import bearer_scheme, get_user
    from fastapi import HTTPException, Request
    from fastapi.responses import PlainTextResponse, RedirectResponse

    request = Request(scope, receive)
    try:
        user = await get_user(request, None, await bearer_scheme(request))
    except HTTPException:
        manager = get_auth_manager()
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(manager.get_url_login(next=str(request.url)))
        return PlainTextResponse("sign in to Airflow first", 401)
    if not get_auth_manager().is_authorized_view(access_view=AccessView.PLUGINS, user=user):
        return PlainTextResponse("your role in Airflow may not see plugins", 403)
    return None


class ReconcilePlugin(AirflowPlugin):
    """Mounts the web app, adds it to the menu, and links tasks to their reports."""

    name = "reconcile"
    fastapi_apps = [{"app": MountedWeb(), "url_prefix": PREFIX, "name": "reconcile"}]  # noqa: RUF012 - Airflow's
    external_views = [  # noqa: RUF012
        {
            "name": "Reconciliation",
            "href": address("/"),
            "destination": "nav",
            "category": "browse",
            "url_route": "reconciliation",
        }
    ]
    operator_extra_links = [ReportLink()]  # noqa: RUF012
