"""How a service's handler is called: when it returns, its coroutine has ended, and its sessions hold nothing back."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from reconcile.consumer.message import Message
from reconcile.consumer.processor import Handler


@dataclass(frozen=True)
class BatchHandler:
    """A handler that gets all messages of a transaction at once, in their order; it may be used as a decorator.

    Without batches, and where one has failed, it gets one at a time.
    """

    handle: Callable[[Sequence[Message], Any], Awaitable[None] | None]

    def __call__(self, messages: Sequence[Message], transaction: Any) -> Awaitable[None] | None:
        """Apply messages."""
        return self.handle(messages, transaction)


AnyHandler = Callable[[Message, Any], Awaitable[None] | None] | BatchHandler


@contextmanager
def handled(handler: AnyHandler, before: Callable[[Message], None] | None = None) -> Iterator[Handler]:
    """Make a handler of either kind that returns when all is done; `before` raises for a message that has to wait."""
    loop = _Loop()

    def call(messages: Sequence[Message], transaction: Any) -> None:
        if before is not None:
            for each in messages:
                before(each)
        if isinstance(handler, BatchHandler):
            complete(handler(messages, transaction), transaction)
        else:
            for each in messages:
                complete(handler(each, transaction), transaction)

    def complete(result: Awaitable[None] | None, transaction: Any) -> None:
        # By what it returns, not by what it is: a coroutine that nobody awaits would have changed nothing.
        if inspect.isawaitable(result):
            loop.wait_for(result)
        transaction.flush()

    try:
        yield call
    finally:
        loop.end()


class _Loop:
    """An event loop in a thread of its own, which begins with the first coroutine."""

    def __init__(self) -> None:
        self._beginning = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Event

    def wait_for(self, coroutine: Awaitable[Any]) -> None:
        """Run a coroutine to its end, and raise what it raises."""
        with self._beginning:
            if self._thread is None:
                self._begin()
        ended_by = asyncio.run_coroutine_threadsafe(_awaited(coroutine), self._loop).result()
        if ended_by is not None:
            raise ended_by

    def end(self) -> None:
        """End the loop, and cancel what coroutines left running in it."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()

    def _begin(self) -> None:
        began = threading.Event()

        async def run() -> None:
            self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
            began.set()
            await self._ended.wait()

        self._thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
        self._thread.start()
        began.wait()


async def _awaited(coroutine: Awaitable[Any]) -> BaseException | None:
    """Wait for a coroutine, and return what it raised: in the loop, what ends a program would end the loop alone."""
    try:
        await coroutine
    except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
        return error
    return None
