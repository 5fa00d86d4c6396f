"""Tells a web service of alerts: small JSON objects, sent by a thread of its own, so that no message waits for them."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.error import URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

_LOG = logging.getLogger(__name__)
_AT_MOST = 100
"""Alerts that wait to be sent; more are dropped, and logged as such."""
_TO_ANSWER = 5.0


class _NowhereElse(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: it would lose the alert, and tell whoever is there the headers."""


def post(
    url: str, value: Mapping[str, Any], patience: float, headers: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Post a value as JSON, by HTTP or HTTPS, to this address alone; raise OSError where that fails."""
    body = json.dumps(value, ensure_ascii=False).encode()
    request = Request(url, body, {"Content-Type": "application/json", **headers})  # noqa: S310 - callers have looked
    with build_opener(_NowhereElse).open(request, timeout=patience) as answer:
        answer.read(1)


def reason_of(error: Exception) -> str:
    """Name why a post failed, without the text of the error, which may repeat the URL or a header."""
    reason = error.reason if isinstance(error, URLError) and not isinstance(error.reason, str) else error
    return type(reason).__name__


class Webhook:
    """Posts alerts to a URL, each once; what does not arrive is logged."""

    def __init__(self, url: str, *, patience: float = _TO_ANSWER) -> None:
        if not url.startswith(("https://", "http://")):
            raise ValueError("a webhook is the URL of a web service: https://...")
        self._url = url
        self._patience = patience
        self._waiting: queue.Queue[Mapping[str, Any]] = queue.Queue(_AT_MOST)
        self._beginning = threading.Lock()
        self._thread: threading.Thread | None = None

    def post(self, alert: Mapping[str, Any]) -> None:
        """Send an alert soon; return at once."""
        try:
            self._waiting.put_nowait(alert)
        except queue.Full:
            _LOG.warning("the webhook is behind: the alert %s was not sent", alert["alert"])
            return
        with self._beginning:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()

    def settle(self, seconds: float) -> None:
        """Wait until all alerts are sent, for so long at most: what ends a consumer is to be heard of."""
        deadline = time.monotonic() + seconds
        with self._waiting.all_tasks_done:
            while self._waiting.unfinished_tasks and (left := deadline - time.monotonic()) > 0:
                self._waiting.all_tasks_done.wait(left)

    def _run(self) -> None:
        while True:
            alert = self._waiting.get()
            try:
                self._send(alert)
            except Exception as error:  # noqa: BLE001 - an alert that is not heard changes nothing
                _LOG.warning("the alert %s was not sent: %s", alert["alert"], reason_of(error))
            finally:
                self._waiting.task_done()

    def _send(self, alert: Mapping[str, Any]) -> None:
        post(self._url, alert, self._patience)
