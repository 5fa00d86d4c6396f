"""Pages out of the templates that the one-file report uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from reconcile.report.html import ICON, environment


def page_of(request: Request, template: str, title: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """Render a page; all values in it are escaped."""
    base = base_of(request)
    page = {"title": title, "web": True, "base": base, "policy": None, "icon": f"{base}/static/{ICON}"}
    return HTMLResponse(environment().get_template(template).render(page=page, **values), status)


def base_of(request: Request) -> str:
    """Compute the path under which the app is mounted, without a slash at its end."""
    return str(request.scope.get("root_path", "")).rstrip("/")
