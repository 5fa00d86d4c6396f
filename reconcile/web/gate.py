"""Who may come in, and what their browsers may do with what they get."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from urllib.parse import parse_qs

from fastapi import Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reconcile.web.rendering import base_of, page_of

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
_AGE = 12 * 3600
"""How long a browser that has shown the token is let in, in seconds."""
_TRIES = 10
_PAUSE = 60
"""How long nobody at an address may try again after so many wrong ones, in seconds."""
_ADDRESSES = 4096
_OPEN = ("/static/",)


class Gate:
    """Lets in who knows the token, under the names that are served, and sends strict headers with every answer.

    The `ticket` stands in an address, and opens once. What a browser keeps is worth nothing to another process.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        hosts: Sequence[str],
        ticket: str | None = None,
    ) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._ticket = None if ticket is None else ticket.encode()
        self._hosts = {each.lower() for each in hosts}
        self._key = secrets.token_bytes(32)
        # Browsers send a cookie to all ports of a host: each process has a name of its own.
        self._cookie = f"reconcile-{hashlib.sha256(self._key).hexdigest()[:12]}"
        self._wrong: OrderedDict[str, list[float]] = OrderedDict()

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
        if self._token is None or path.startswith(_OPEN) or self._remembers(request):
            return None
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        by_header, by_address = scheme.lower() == "bearer", request.query_params.get("token")
        if not by_header and by_address is None and (path, request.method) != ("/token", "POST"):
            return page_of(request, "token.html", "reconcile", {"wrong": False}, 401)
        if self._is_throttled(request):
            return _too_many()
        if by_header and hmac.compare_digest(given.strip().encode(), self._token):
            return None
        if by_address is not None and self._is_ticket(by_address.encode()):
            return self._let_in(request)
        if path == "/token" and request.method == "POST":
            return await self._asked(request, self._token)
        self._count_wrong(request)
        return page_of(request, "token.html", "reconcile", {"wrong": True}, 401)

    def _remembers(self, request: Request) -> bool:
        """Tell whether the browser has shown the token, not too long ago."""
        until, _, mark = request.cookies.get(self._cookie, "").partition(".")
        known = hmac.compare_digest(mark.encode(), self._mark(until).encode())
        return known and time.time() < int(until)

    def _is_ticket(self, given: bytes) -> bool:
        if self._ticket is None or not hmac.compare_digest(given, self._ticket):
            return False
        self._ticket = None
        return True

    async def _asked(self, request: Request, token: bytes) -> Response:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _LONGEST:
                return PlainTextResponse("too long", 413)
        if self._is_throttled(request):  # by what came while this body did
            return _too_many()
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if hmac.compare_digest(given.encode(), token):
            return self._let_in(request)
        self._count_wrong(request)
        return page_of(request, "token.html", "reconcile", {"wrong": True}, 401)

    def _let_in(self, request: Request) -> Response:
        """Build the answer that leads to the first page, at an address without a token, with a cookie."""
        answer = RedirectResponse(f"{base_of(request)}/", 303)
        until = str(int(time.time()) + _AGE)
        # Who sends such a header makes no more of it than a cookie that is sent by TLS alone.
        forwarded = request.headers.get("x-forwarded-proto", "").split(",")[0].strip().lower()
        answer.set_cookie(
            self._cookie,
            f"{until}.{self._mark(until)}",
            max_age=_AGE,
            path=base_of(request) or "/",
            httponly=True,
            samesite="strict",
            secure="https" in (request.url.scheme, forwarded),
        )
        return answer

    def _mark(self, until: str) -> str:
        return hmac.new(self._key, until.encode(), hashlib.sha256).hexdigest()

    def _is_throttled(self, request: Request) -> bool:
        since = time.time() - _PAUSE
        return sum(each > since for each in self._wrong.get(_address(request), ())) >= _TRIES

    def _count_wrong(self, request: Request) -> None:
        """Note a wrong try; of the addresses, those are forgotten that have tried longest ago."""
        tries = self._wrong.setdefault(_address(request), [])
        self._wrong.move_to_end(_address(request))
        tries[:] = [*tries[1 - _TRIES :], time.time()]
        if len(self._wrong) > _ADDRESSES:
            self._wrong.popitem(last=False)


def _too_many() -> Response:
    return PlainTextResponse("too many wrong tokens: try again later", 429, {"retry-after": str(_PAUSE)})


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _host(request: Request) -> str:
    """Choose the name in the request's address, without the port."""
    host = request.headers.get("host", "").lower()
    name, colon, port = host.rpartition(":")
    named = name if colon and port.isdigit() else host
    return named.strip("[]")
