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
_PLANNED: ContextVar[tuple[str, ...]] = ContextVar("planned")


@contextmanager
def about(**known: str) -> Iterator[None]:
    """Add what is known to every line that is logged in the block: run_id, contract, stage, link."""
    token = _ABOUT.set({**_ABOUT.get({}), **known})
    try:
        yield
    finally:
        _ABOUT.reset(token)


@contextmanager
def planned(*stages: str) -> Iterator[None]:
    """Say which stages follow one another in the block, so that each is one of so many."""
    token = _PLANNED.set(stages)
    try:
        yield
    finally:
        _PLANNED.reset(token)


@contextmanager
def at_stage(name: str, **known: str) -> Iterator[None]:
    """Add to every line that is logged in the block which stage it is about, and which of how many."""
    stages = _PLANNED.get(())
    step = {"step": f"{stages.index(name) + 1} of {len(stages)}"} if name in stages else {}
    with about(stage=name, **step, **known):
        yield


@contextmanager
def timed(log: logging.Logger, step: str) -> Iterator[None]:
    """Log at DEBUG how long the block took."""
    began = time.monotonic()
    yield
    log.debug(f"{step}: {time.monotonic() - began:.1f} s")


class StderrLog:
    """What is logged, on stderr: our own lines, and with more verbosity those of the libraries."""

    def __init__(self, handler: logging.Handler, live: logging.Handler | None) -> None:
        self.handler = handler
        self._live = live
        self.verbosity = 0
        self.form: Form = "text"
        self._before = [(each, each.level, each.propagate) for each in (_logger(_OURS), _logger(_SQL), _logger())]

    def configure(self, verbosity: int, form: Form) -> None:
        """Choose what is logged: at 0 our steps, at 1 figures and durations too, at 2 also what libraries say."""
        self.verbosity, self.form = verbosity, form
        self.handler.setFormatter(_JsonLines() if form == "json" else _TextLines("%(message)s"))
        self.close()
        live = self._live if form == "text" else None
        self.handler.setLevel(logging.DEBUG if verbosity else logging.INFO)
        _logger(_OURS).setLevel(logging.DEBUG if verbosity or live else logging.INFO)
        if verbosity > 1:
            _logger().setLevel(logging.INFO)
            _logger(_SQL).setLevel(logging.INFO)
        else:
            _logger(_OURS).propagate = False
        for each in filter(None, (self.handler, live)):  # in this order: a line that is printed erases the live one
            each.addFilter(_add_about)
            _logger(None if verbosity > 1 else _OURS).addHandler(each)

    def close(self) -> None:
        """Leave the loggers as they were."""
        for logger, level, propagate in self._before:
            for each in filter(None, (self.handler, self._live)):
                logger.removeHandler(each)
            logger.setLevel(level)
            logger.propagate = propagate


@contextmanager
def logged_to_stderr(
    verbosity: int = 0,
    form: Form = "text",
    handler: logging.Handler | None = None,
    live: logging.Handler | None = None,
) -> Iterator[StderrLog]:
    """Have what our modules log printed on stderr during the block; `live` shows steps too, but beside JSON."""
    log = StderrLog(handler or logging.StreamHandler(), live)
    log.configure(verbosity, form)
    try:
        yield log
    finally:
        log.close()


class _TextLines(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        # An id with a line break in it would make a line of its own, which says what it likes.
        text = super().formatMessage(record)
        return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


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
