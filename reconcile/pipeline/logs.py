"""How our programs log: to stderr, as lines for people or as JSON, each with the run and the stage that it is about."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

Form = Literal["text", "json"]

_OURS = "reconcile"
_SQL = "sqlalchemy.engine"  # silent unless it is given a level of its own
_ABOUT: ContextVar[Mapping[str, str]] = ContextVar("about")


@contextmanager
def about(**known: str) -> Iterator[None]:
    """Add what is known to every line that is logged in the block: run_id, contract, stage, link."""
    token = _ABOUT.set({**_ABOUT.get({}), **known})
    try:
        yield
    finally:
        _ABOUT.reset(token)


@contextmanager
def timed(log: logging.Logger, step: str) -> Iterator[None]:
    """Log at DEBUG how long the block took."""
    began = time.monotonic()
    yield
    log.debug(f"{step}: {time.monotonic() - began:.1f} s")


class StderrLog:
    """What is logged, on stderr: our own lines, and with more verbosity those of the libraries."""

    def __init__(self, handler: logging.Handler) -> None:
        self.handler = handler
        self.verbosity = 0
        self.form: Form = "text"
        self._before = [(each, each.level, each.propagate) for each in (_logger(_OURS), _logger(_SQL), _logger())]

    def configure(self, verbosity: int, form: Form) -> None:
        """Choose what is logged: at 0 our steps, at 1 figures and durations too, at 2 also what libraries say."""
        self.verbosity, self.form = verbosity, form
        self.handler.setFormatter(_JsonLines() if form == "json" else logging.Formatter("%(message)s"))
        self.close()
        _logger(_OURS).setLevel(logging.DEBUG if verbosity else logging.INFO)
        if verbosity > 1:
            _logger().setLevel(logging.INFO)
            _logger(_SQL).setLevel(logging.INFO)
            _logger().addHandler(self.handler)
        else:
            _logger(_OURS).addHandler(self.handler)
            _logger(_OURS).propagate = False

    def close(self) -> None:
        """Leave the loggers as they were."""
        for logger, level, propagate in self._before:
            logger.removeHandler(self.handler)
            logger.setLevel(level)
            logger.propagate = propagate


@contextmanager
def logged_to_stderr(
    verbosity: int = 0, form: Form = "text", handler: logging.Handler | None = None
) -> Iterator[StderrLog]:
    """Have what our modules log printed on stderr during the block."""
    log = StderrLog(handler or logging.StreamHandler())
    log.handler.addFilter(_add_about)
    log.configure(verbosity, form)
    try:
        yield log
    finally:
        log.close()


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "about", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _add_about(record: logging.LogRecord) -> bool:
    record.about = _ABOUT.get({})
    return True


def _logger(name: str | None = None) -> logging.Logger:
    return logging.getLogger(name)
