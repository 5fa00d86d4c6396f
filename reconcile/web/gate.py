"""Who may come in, and what their browsers may do with what they get."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from urllib.parse import parse_qs

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reconcile.web.rendering import base_of, page_of

COOKIE = "reconcile"
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self';"
        " base-uri 'none'; frame-ancestors 'self'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_LONGEST = 4096
_OPEN = ("/static/",)


class Gate:
    """Lets in who knows the token, under the names that are served, and sends strict headers with every answer."""

    def __init__(self, app: ASGIApp, token: str | None, hosts: Sequence[str]) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._hosts = {each.lower() for each in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                strict = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *strict]}
            await send(message)

        request = Request(scope, receive)
        answer = await self._stopped(request)
        await (self._app if answer is None else answer)(scope, receive, send_with_headers)

    async def _stopped(self, request: Request) -> Response | None:
        """Build the answer to a visitor without the token."""
        if self._hosts and _host(request) not in self._hosts:
            return PlainTextResponse("not served under this name", 421)
        path = request.scope["path"].removeprefix(base_of(request))
        if self._token is None or path.startswith(_OPEN) or self._knows(request, self._token):
            return None
        if path == "/token" and request.method == "POST":
            return await self._asked(request, self._token)
        return page_of(request, "token.html", "reconcile", {"wrong": False}, 401)

    def _knows(self, request: Request, token: bytes) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token):
            return True
        return hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), _mark(token).encode())

    async def _asked(self, request: Request, token: bytes) -> Response:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _LONGEST:
                return PlainTextResponse("too long", 413)
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if not hmac.compare_digest(given.encode(), token):
            return page_of(request, "token.html", "reconcile", {"wrong": True}, 401)
        answer = RedirectResponse(f"{base_of(request)}/", 303)
        secure = request.url.scheme == "https"
        path = base_of(request) or "/"
        answer.set_cookie(COOKIE, _mark(token), path=path, httponly=True, samesite="strict", secure=secure)
        return answer


def _host(request: Request) -> str:
    """Choose the name in the request's address, without the port."""
    host = request.headers.get("host", "").lower()
    name, colon, port = host.rpartition(":")
    named = name if colon and port.isdigit() else host
    return named.strip("[]")


def _mark(token: bytes) -> str:
    """Compute what a browser keeps instead of the token itself."""
    return hashlib.sha256(b"reconcile web\0" + token).hexdigest()
