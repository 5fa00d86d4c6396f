"""How handlers are called."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from reconcile.cli import handlers
from reconcile.consumer import BatchHandler, Message, RecordPlace
from reconcile.consumer.handling import handled

PLACE = RecordPlace("topic", 0, 0)
MESSAGE = Message(PLACE, PLACE, b"key", b"value")


class _Seen(list[Any]):
    """What a handler did; it stands for a transaction, which is flushed after each message."""

    flushed = 0

    def flush(self) -> None:
        self.flushed += 1


class _Applies:
    """A handler that is an object."""

    async def __call__(self, _message: Message, seen: list[Any]) -> None:
        await asyncio.sleep(0)
        seen.append(threading.get_ident())


async def _apply(message: Message, seen: list[Any]) -> None:
    await _Applies()(message, seen)


@pytest.mark.parametrize(
    "handler",
    [_apply, partial(_apply), _Applies(), lambda message, seen: _apply(message, seen)],
    ids=["function", "partial", "object", "lambda"],
)
def test_a_coroutine_has_ended_when_the_call_returns(handler: Callable[[Message, Any], Any]) -> None:
    """However it is made, it runs in the loop's thread, and the same one each time."""
    seen = _Seen()
    with handled(handler) as call:
        call([MESSAGE], seen)
        call([MESSAGE], seen)
    assert (2, 2) == (len(seen), seen.flushed)
    assert 1 == len(set(seen) - {threading.get_ident()})


def test_a_plain_handler_runs_in_the_callers_thread() -> None:
    """And no loop is begun for it."""
    seen: list[int] = []
    before = threading.active_count()
    with handled(lambda _message, _tx: seen.append(threading.get_ident())) as call:
        call([MESSAGE], _Seen())
        assert before == threading.active_count()
    assert [threading.get_ident()] == seen


@pytest.mark.parametrize("error", [ValueError("bad"), TimeoutError(), SystemExit(3), asyncio.CancelledError()])
def test_what_a_coroutine_raises_is_raised_in_the_call(error: BaseException) -> None:
    """As a plain handler's, also what ends a program; the loop goes on."""

    async def apply(message: Message, seen: list[str]) -> None:
        if message.value == b"bad":
            raise error
        seen.append("applied")

    seen = _Seen()
    with handled(apply) as call:
        with pytest.raises(type(error)) as raised:
            call([Message(PLACE, PLACE, b"key", b"bad")], seen)
        call([MESSAGE], seen)
    assert (error, ["applied"], 1) == (raised.value, seen, seen.flushed)


def test_what_a_coroutine_leaves_running_is_cancelled_at_the_end() -> None:
    """So that a consumer ends."""
    left: list[str] = []
    kept: list[asyncio.Task[None]] = []

    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            left.append("cancelled")

    async def apply(_message: Message, _tx: Any) -> None:
        kept.append(asyncio.create_task(linger()))
        await asyncio.sleep(0)

    with handled(apply) as call:
        call([MESSAGE], _Seen())
        assert [] == left
    assert ["cancelled"] == left


OTHER = Message(PLACE, RecordPlace("topic", 0, 1), b"key", b"value")


@BatchHandler
def apply_all(messages: Sequence[Message], seen: list[Any]) -> None:
    """Note what comes at once."""
    seen.append(list(messages))


def test_a_batch_handler_gets_all_at_once() -> None:
    """And what its sessions hold is sent once, at the end."""
    seen = _Seen()
    with handled(apply_all) as call:
        call([MESSAGE, OTHER], seen)
    assert ([[MESSAGE, OTHER]], 1) == (seen, seen.flushed)


def test_a_plain_handler_gets_one_after_the_other() -> None:
    """And what its sessions hold is sent before the next one."""
    seen = _Seen()
    with handled(lambda message, seen: seen.append((message, seen.flushed))) as call:
        call([MESSAGE, OTHER], seen)
    assert ([(MESSAGE, 0), (OTHER, 1)], 2) == (seen, seen.flushed)


def test_a_batch_handler_may_be_a_coroutine() -> None:
    """It has ended when the call returns."""

    async def apply(messages: Sequence[Message], seen: list[Any]) -> None:
        await asyncio.sleep(0)
        apply_all(messages, seen)

    seen = _Seen()
    with handled(BatchHandler(apply)) as call:
        call([MESSAGE, OTHER], seen)
    assert [[MESSAGE, OTHER]] == seen


def test_each_message_of_a_batch_is_waited_for_before_any_is_applied() -> None:
    """A batch handler could not stop between two of them."""

    def wait(message: Message) -> None:
        if message is OTHER:
            raise TimeoutError

    seen = _Seen()
    with handled(apply_all, wait) as call, pytest.raises(TimeoutError):
        call([MESSAGE, OTHER], seen)
    assert [] == seen


def test_a_command_takes_a_batch_handler() -> None:
    """By the name of what was decorated."""
    assert apply_all is handlers.load(f"{__name__}:apply_all")
