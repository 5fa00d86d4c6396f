"""A proxy before one of the lab's servers, whatever it speaks: it takes links, and does to requests what rules say.

A request that was lost can be delivered later: a network may do so with one that everybody has given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from reconcile.errors import UnreachableError

_PATIENCE = 30.0

T = TypeVar("T")
Request = TypeVar("Request")


@dataclass(frozen=True)
class Effect:
    """What happens to a request or an answer: after a delay it passes, unless it is lost."""

    delay: float = 0.0
    lost: bool = False
    severs: bool = False
    answer: bytes | None = None
    held: bool = False
    """Whether the server's end stays open, as if nobody had told it, and the request can still come."""


class Disturbance(Generic[Request]):
    """What a rule does, and the requests to which it was done."""

    def __init__(self, relay: Relay[Request], effect: Effect) -> None:
        self._relay = relay
        self._met = threading.Event()
        self.effect = effect
        self.met: list[Request] = []
        """The requests to which it happened."""

    def wait(self) -> None:
        """Wait until it has happened."""
        if not self._met.wait(_PATIENCE):
            raise UnreachableError(f"no request came to which {self.effect} could happen")

    def release(self) -> bytes:
        """Let the last lost request come to the server after all; return the body of its answer."""
        self.wait()
        return self._relay.run(self._relay.deliver(self.met[-1]))

    def happens(self, request: Request) -> None:
        """Note a request to which it happens."""
        self.met.append(request)
        self._met.set()


class When(Generic[Request]):
    """The requests that a rule is for, or their answers; each method makes one rule of it."""

    def __init__(
        self, relay: Relay[Request], concerns: Callable[[Request], bool], nth: int, times: float, answered: bool
    ) -> None:
        self._relay = relay
        self._concerns, self._nth, self._times = concerns, nth, times
        self._seen = 0
        self.answered = answered
        """Whether it is about the answers."""

    def meets(self, request: Request) -> bool:
        """Count a request, and check whether it is one of those."""
        if not self._concerns(request):
            return False
        self._seen += 1
        return 0 <= self._seen - self._nth < self._times

    def delay(self, seconds: float) -> Disturbance[Request]:
        """Let it wait, and all that comes behind it on its connection."""
        return self._rule(Effect(delay=seconds))

    def drop(self) -> Disturbance[Request]:
        """Lose it, and leave the connection open: nobody hears of it."""
        return self._rule(Effect(lost=True))

    def sever(self) -> Disturbance[Request]:
        """Lose it with its connection, as a network does that breaks."""
        return self._rule(Effect(lost=True, severs=True))

    def hold(self) -> Disturbance[Request]:
        """Sever the client, and let the server wait for the request: it comes when it is released."""
        return self._rule(Effect(lost=True, severs=True, held=True))

    def answer(self, body: bytes) -> Disturbance[Request]:
        """Answer in the server's place with what follows an answer's beginning; the server never hears of it."""
        return self._rule(Effect(lost=True, answer=body))

    def _rule(self, effect: Effect) -> Disturbance[Request]:
        rule = Disturbance(self._relay, effect)
        self._relay.rules.append((self, rule))
        return rule


class Relay(Generic[Request]):
    """The proxy, with a loop in a thread of its own; it runs for a block. Subclasses know what requests look like."""

    def __init__(self, port: int, server_port: int) -> None:
        """Stand at a port of loopback, before a server's."""
        self._port, self._server_port = port, server_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._links: set[asyncio.Task[None]] = set()
        self._held: list[asyncio.StreamWriter] = []
        self._passed: list[Request] = []
        self.rules: list[tuple[When[Request], Disturbance[Request]]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._server = self.run(asyncio.start_server(self._accept, "127.0.0.1", self._port))
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._close())
        self._stop()

    def forget_rules(self) -> None:
        """Let everything pass from now on."""
        self.rules.clear()

    def sever_all(self) -> None:
        """Sever all connections that there are."""
        self.run(self._sever_all())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work in the proxy's loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    async def deliver(self, request: Request) -> bytes:
        """Bring a lost request to the server; return the body of its answer."""
        raise NotImplementedError

    async def _link(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> bool:
        """Pass on what comes from both ends until one is severed; return whether the server's end is to stay open."""
        raise NotImplementedError

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                server = await asyncio.open_connection("127.0.0.1", self._server_port)
                stays = False
                try:
                    stays = await self._link(reader, writer, *server)
                finally:
                    if stays:
                        self._held.append(server[1])
                    else:
                        server[1].transport.abort()
        finally:
            writer.transport.abort()
            self._links.discard(task)

    async def _both(self, *ways: Coroutine[Any, Any, bool]) -> bool:
        """Run both directions of a link until the first ends; return what it returned."""
        running = [asyncio.ensure_future(each) for each in ways]
        try:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            return True in [each.result() for each in done]
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _effect(self, request: Request, *, answered: bool) -> Effect:
        # All of them count it, and the first that meets it happens.
        met = [rule for when, rule in [*self.rules] if when.answered is answered and when.meets(request)]
        if not met:
            return Effect()
        met[0].happens(request)
        await asyncio.sleep(met[0].effect.delay)
        return met[0].effect

    async def _sever_all(self) -> None:
        links = [*self._links]
        for each in links:
            each.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _close(self) -> None:
        self._server.close()
        await self._sever_all()
        for each in self._held:
            each.transport.abort()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()
