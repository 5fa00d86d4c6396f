"""A proxy before the lab's broker that knows Kafka's frames: it delays, loses or answers what a rule names.

Clients reach it at its own port, and the broker names that port in its answers to them (`Proxied` in the lab's Kafka).
A request that was lost can be delivered later: a network may do so with one that everybody has given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Self, TypeVar

from reconcile.errors import UnreachableError

_PATIENCE = 30.0
_HEADER = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")

T = TypeVar("T")


class Api(IntEnum):
    """Kinds of requests that rules are made for; others have their number alone."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26


@dataclass(frozen=True)
class KafkaRequest:
    """A request as it came: what its header says, and all its bytes."""

    api: int
    version: int
    correlation: int
    client_id: str | None
    frame: bytes = field(repr=False)


def parse_request(frame: bytes) -> KafkaRequest:
    """Parse a request's header."""
    api, version, correlation, length = _HEADER.unpack_from(frame)
    client_id = None if length < 0 else frame[_HEADER.size : _HEADER.size + length].decode()
    return KafkaRequest(api, version, correlation, client_id, frame)


@dataclass(frozen=True)
class _Effect:
    """What happens to a request or an answer: after a delay it passes, unless it is lost."""

    delay: float = 0.0
    lost: bool = False
    severs: bool = False
    answer: bytes | None = None


class Disturbance:
    """What a rule does, and the requests to which it was done."""

    def __init__(self, proxy: FaultProxy, effect: _Effect) -> None:
        self._proxy = proxy
        self._met = threading.Event()
        self.effect = effect
        self.met: list[KafkaRequest] = []
        """The requests to which it happened."""

    def wait(self) -> None:
        """Wait until it has happened."""
        if not self._met.wait(_PATIENCE):
            raise UnreachableError(f"no request came to which {self.effect} could happen")

    def release(self) -> bytes:
        """Send the last lost request to the broker on a connection of its own; return the body of its answer."""
        self.wait()
        return self._proxy.run(self._proxy.deliver(self.met[-1]))

    def happens(self, request: KafkaRequest) -> None:
        """Note a request to which it happens."""
        self.met.append(request)
        self._met.set()


class When:
    """The requests that a rule is for, or their answers; each method makes one rule of it."""

    def __init__(
        self, proxy: FaultProxy, api: Api, client_id: str | None, nth: int, times: float, answered: bool
    ) -> None:
        self._proxy = proxy
        self._api, self._client_id, self._nth, self._times = api, client_id, nth, times
        self._seen = 0
        self.answered = answered
        """Whether it is about the answers."""

    def meets(self, request: KafkaRequest) -> bool:
        """Count a request, and check whether it is one of those."""
        if request.api != self._api or self._client_id not in (None, request.client_id):
            return False
        self._seen += 1
        return 0 <= self._seen - self._nth < self._times

    def delay(self, seconds: float) -> Disturbance:
        """Let it wait, and all that comes behind it on its connection."""
        return self._rule(_Effect(delay=seconds))

    def drop(self) -> Disturbance:
        """Lose it, and leave the connection open: nobody hears of it."""
        return self._rule(_Effect(lost=True))

    def sever(self) -> Disturbance:
        """Lose it with its connection, as a network does that breaks."""
        return self._rule(_Effect(lost=True, severs=True))

    def answer(self, body: bytes) -> Disturbance:
        """Answer in the broker's place with what follows an answer's correlation id; the broker never hears of it."""
        return self._rule(_Effect(lost=True, answer=body))

    def _rule(self, effect: _Effect) -> Disturbance:
        rule = Disturbance(self._proxy, effect)
        self._proxy.rules.append((self, rule))
        return rule


class FaultProxy:
    """The proxy, with a loop in a thread of its own; it runs for a block."""

    def __init__(self, port: int, broker_port: int) -> None:
        """Stand at a port of loopback, before a broker's listener."""
        self._port, self._broker_port = port, broker_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._links: set[asyncio.Task[None]] = set()
        self._passed: list[KafkaRequest] = []
        self.rules: list[tuple[When, Disturbance]] = []

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

    @property
    def bootstrap(self) -> str:
        """The address at which clients find it."""
        return f"127.0.0.1:{self._port}"

    def when(self, api: Api, *, client_id: str | None = None, nth: int = 1, times: float = 1) -> When:
        """Begin a rule for the nth request of a kind from now on, and so many from there."""
        return When(self, api, client_id, nth, times, answered=False)

    def when_answered(self, api: Api, *, client_id: str | None = None, nth: int = 1, times: float = 1) -> When:
        """Begin a rule for the answers to requests of a kind, counted as they come."""
        return When(self, api, client_id, nth, times, answered=True)

    def forget_rules(self) -> None:
        """Let everything pass from now on."""
        self.rules.clear()

    def seen(self, api: Api, client_id: str | None = None) -> list[KafkaRequest]:
        """The requests of a kind that came, also those that did not pass."""
        return [each for each in [*self._passed] if each.api == api and client_id in (None, each.client_id)]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work in the proxy's loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    async def deliver(self, request: KafkaRequest) -> bytes:
        """Send a request to the broker on a connection of its own; return the body of its answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._broker_port)
        try:
            _write(writer, request.frame)
            return (await _read(reader))[_SIZE.size :]
        finally:
            writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                broker = await asyncio.open_connection("127.0.0.1", self._broker_port)
                try:
                    await self._link(reader, writer, *broker)
                finally:
                    broker[1].transport.abort()
        finally:
            writer.transport.abort()
            self._links.discard(task)

    async def _link(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        from_broker: asyncio.StreamReader,
        to_broker: asyncio.StreamWriter,
    ) -> None:
        waiting: dict[int, KafkaRequest] = {}

        async def requests() -> None:
            while True:
                request = parse_request(await _read(reader))
                self._passed.append(request)
                effect = await self._effect(request, answered=False)
                if not effect.lost:
                    waiting[request.correlation] = request
                    _write(to_broker, request.frame)
                elif effect.answer is not None:
                    _write(writer, _SIZE.pack(request.correlation) + effect.answer)
                if effect.severs:
                    return

        async def answers() -> None:
            while True:
                frame = await _read(from_broker)
                request = waiting.pop(*_SIZE.unpack_from(frame))
                effect = await self._effect(request, answered=True)
                if not effect.lost:
                    _write(writer, frame)
                if effect.severs:
                    return

        ways = [asyncio.ensure_future(requests()), asyncio.ensure_future(answers())]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in ways:
                each.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _effect(self, request: KafkaRequest, *, answered: bool) -> _Effect:
        # All of them count it, and the first that meets it happens.
        met = [rule for when, rule in [*self.rules] if when.answered is answered and when.meets(request)]
        if not met:
            return _Effect()
        met[0].happens(request)
        await asyncio.sleep(met[0].effect.delay)
        return met[0].effect

    async def _close(self) -> None:
        self._server.close()
        links = [*self._links]
        for each in links:
            each.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    size, *_ = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    return await reader.readexactly(size)


def _write(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(_SIZE.pack(len(frame)) + frame)
