"""Whom a consumer tells of what it cannot settle alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from reconcile.consumer.decision import FailureKind
from reconcile.consumer.message import Message
from reconcile.consumer.observer import Observer
from reconcile.consumer.webhook import Webhook

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hooks:
    """What is called when a person should know; what a hook raises is logged, and changes nothing."""

    on_stashed: Callable[[Message, BaseException], None] | None = None
    """A message failed, and its aggregate is blocked."""
    on_backoff_limit: Callable[[Message, BaseException], None] | None = None
    """A message has been failing for so long that its delay no longer grows."""
    on_breaker: Callable[[Message, BaseException], None] | None = None
    """So many aggregates fail that it cannot be their messages: nothing more is put aside."""
    on_bound: Callable[[str], None] | None = None
    """The stash is full, or more is lost than may be: the consumer stops."""
    on_dependency_late: Callable[[Message, BaseException], None] | None = None
    """A message has waited for a group that it builds on until the deadline; it waits on."""
    webhook: str | None = field(default=None, repr=False)
    """The URL of a web service that gets each of these as a small JSON object."""


@dataclass(frozen=True)
class Alerts:
    """Tells the log, the hooks, the webhook and the metrics of one group."""

    hooks: Hooks = Hooks()
    group: str = ""
    observer: Observer | None = None
    webhook: Webhook | None = None

    def failed(self, kind: FailureKind, error: BaseException) -> None:
        """Note a failure, of a message or of the store."""
        if self.observer is not None:
            self.observer.failed(self.group, kind, error)

    def put_aside(self, message: Message, how: str, error: BaseException) -> None:
        """Note a message that was stashed, sent on, dead-lettered or ignored."""
        _LOG.warning("%s was %s: %s", message.place, how.replace("_", " "), type(error).__name__)
        if how == "stashed":
            self._tell("stashed", self.hooks.on_stashed, message, error)

    def backoff_limit(self, message: Message, error: BaseException) -> None:
        """Tell that a message has been failing for so long that its delay no longer grows."""
        _LOG.error("%s still fails, and is tried at the longest delay now: %s", message.place, type(error).__name__)
        self._tell("backoff_limit", self.hooks.on_backoff_limit, message, error)

    def breaker(self, message: Message, error: BaseException) -> None:
        """Tell that so many aggregates fail that it cannot be their messages."""
        _LOG.error("many aggregates fail, last %s: nothing more is put aside: %s", message.place, type(error).__name__)
        self._tell("breaker", self.hooks.on_breaker, message, error)

    def late(self, message: Message, error: BaseException) -> None:
        """Tell that a message has waited for another group until the deadline."""
        _LOG.error("%s still waits: %s", message.place, error)
        self._tell("dependency_late", self.hooks.on_dependency_late, message, error)

    def bound(self, why: str) -> None:
        """Tell that a bound is reached, and the consumer stops."""
        _LOG.error("%s stops: %s", self.group, why)
        self._post("bound", why=why)
        if self.hooks.on_bound is not None:
            self._call(self.hooks.on_bound, why)

    def _tell(
        self, alert: str, hook: Callable[[Message, BaseException], None] | None, message: Message, error: BaseException
    ) -> None:
        topic, partition, offset = message.place
        self._post(alert, topic=topic, partition=partition, offset=offset, error=type(error).__name__)
        if hook is not None:
            self._call(hook, message, error)

    def _post(self, alert: str, **facts: str | int) -> None:
        if self.webhook is not None:
            self.webhook.post({"alert": alert, "group": self.group, "at": datetime.now(UTC).isoformat(), **facts})

    def _call(self, hook: Callable[..., None], *about: object) -> None:
        try:
            hook(*about)
        except Exception as error:  # noqa: BLE001 - whatever a hook raises, the consumer goes on
            # Its class alone: its words may repeat what the message holds.
            _LOG.error("a hook failed, which changes nothing: %s", type(error).__name__)
