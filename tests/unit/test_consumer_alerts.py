"""Whom a consumer tells."""

from __future__ import annotations

import logging
import threading
from typing import Any
from urllib.error import HTTPError

import pytest

from reconcile.consumer import Hooks, Message, RecordPlace
from reconcile.consumer.alerts import Alerts
from reconcile.consumer.webhook import Webhook, post
from tests.web_service import service

PLACE = RecordPlace("topic", 1, 5)
MESSAGE = Message(PLACE, PLACE, b"zoe", b"what it holds")
ERROR = ValueError("what it holds")


def tell(alerts: Alerts) -> None:
    """Have each alert told."""
    alerts.put_aside(MESSAGE, "stashed", ERROR)
    alerts.backoff_limit(MESSAGE, ERROR)
    alerts.breaker(MESSAGE, ERROR)
    alerts.bound("the stash is full")


def test_each_hook_is_called() -> None:
    """With the message and the error, or with why."""
    told: list[Any] = []

    def telling(name: str) -> Any:
        return lambda *about: told.append((name, *about))

    tell(Alerts(Hooks(telling("stashed"), telling("limit"), telling("breaker"), telling("bound"))))
    messages = [(name, MESSAGE, ERROR) for name in ("stashed", "limit", "breaker")]
    assert [*messages, ("bound", "the stash is full")] == told


def test_what_a_hook_raises_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """By its class alone."""

    def fails(*_about: object) -> None:
        raise RuntimeError("what it holds")

    with caplog.at_level(logging.INFO):
        tell(Alerts(Hooks(fails, fails, fails, fails)))
    assert 4 == sum("a hook failed, which changes nothing: RuntimeError" in line for line in caplog.messages)
    assert "what it holds" not in caplog.text


def test_the_webhook_gets_each_alert_without_what_the_message_holds() -> None:
    """Where it stands, and the error's class."""
    with service() as (url, posted):
        webhook = Webhook(url)
        tell(Alerts(group="g", webhook=webhook))
        webhook.settle(30)
    place = {"topic": "topic", "partition": 1, "offset": 5, "error": "ValueError"}
    expected = [{"alert": alert, "group": "g", **place} for alert in ("stashed", "backoff_limit", "breaker")]
    expected.append({"alert": "bound", "group": "g", "why": "the stash is full"})
    assert expected == [{name: value for name, value in each.items() if name != "at"} for each in posted]


@pytest.mark.parametrize("url", [None, "http://127.0.0.1:1/topsecret"], ids=["refused", "absent"])
def test_a_service_that_fails_is_logged_without_its_url(url: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """The URL is a secret; what comes later is sent all the same."""
    with service(lambda: 500) as (there, posted):
        webhook = Webhook(url or there)
        tell(Alerts(webhook=webhook))
        webhook.settle(30)
    assert (0 if url else 4) == len(posted)
    assert 4 == sum("was not sent: " in line for line in caplog.messages)
    assert "topsecret" not in caplog.text


def test_a_service_that_has_moved_is_not_followed() -> None:
    """Whoever answers there would be sent the token of the first, by whatever protocol."""
    with (
        service() as (elsewhere, heard),
        service(lambda: 302, elsewhere) as (url, posted),
        pytest.raises(HTTPError, match="302"),
    ):
        post(url, {"alert": "stashed"}, 30, {"Authorization": "Bearer s3cret"})
    assert ([{"alert": "stashed"}], []) == (posted, heard)


def test_a_service_that_is_slow_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    """What is too much for the queue is dropped, and logged."""
    goes_on = threading.Event()

    def answer() -> int:
        goes_on.wait(30)
        return 204

    with service(answer) as (url, posted):
        webhook = Webhook(url, patience=60)
        for number in range(150):
            webhook.post({"alert": "stashed", "number": number})
        webhook.settle(0)
        dropped = sum("the webhook is behind: the alert stashed was not sent" in line for line in caplog.messages)
        goes_on.set()
        webhook.settle(60)
    assert 49 <= dropped <= 50
    assert 150 == len(posted) + dropped


def test_a_service_that_never_answers_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """So that the alerts after it are sent."""
    given_up = threading.Event()
    first = [True]

    def answer() -> int:
        if first and first.pop():
            given_up.wait(30)
        return 204

    with service(answer) as (url, posted):
        webhook = Webhook(url, patience=0.1)
        webhook.post({"alert": "first"})
        webhook.settle(30)
        given_up.set()
        webhook.post({"alert": "second"})
        webhook.settle(30)
    assert ["the alert first was not sent: TimeoutError"] == caplog.messages
    assert ["first", "second"] == [each["alert"] for each in posted]


def test_a_webhook_is_a_web_service() -> None:
    """And no file of this machine."""
    with pytest.raises(ValueError, match="a webhook is the URL of a web service"):
        Webhook("file:///etc/passwd")
