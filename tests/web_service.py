"""A web service that keeps what is posted to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


@contextmanager
def service(
    answer: Callable[[], int] = lambda: 204, moved_to: str = "", asked: list[tuple[str, dict[str, str]]] | None = None
) -> Iterator[tuple[str, list[Any]]]:
    """Run a web service that keeps what is posted to it, and in `asked` paths and headers; of a GET who asks."""
    posted: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if asked is not None:
                asked.append((self.path, dict(self.headers)))
            self._answer()

        def do_GET(self) -> None:
            posted.append(self.headers["Authorization"])
            self._answer()

        def _answer(self) -> None:
            self.send_response(answer())
            self.send_header("Content-Length", "0")
            if moved_to:
                self.send_header("Location", moved_to)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/topsecret", posted
        finally:
            server.shutdown()
            thread.join()
