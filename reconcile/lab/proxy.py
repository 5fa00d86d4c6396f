"""A proxy before the lab's broker that knows Kafka's frames: it delays, loses or answers what a rule names.

Clients reach it at its own port, and the broker names that port in its answers to them (`Proxied` in the lab's Kafka).
A request that was lost can be delivered later: a network may do so with one that everybody has given up.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field
from enum import IntEnum

from reconcile.lab.relay import Relay, When

_HEADER = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")


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


class FaultProxy(Relay[KafkaRequest]):
    """The proxy before the lab's broker."""

    @property
    def bootstrap(self) -> str:
        """The address at which clients find it."""
        return f"127.0.0.1:{self._port}"

    def when(self, api: Api, *, client_id: str | None = None, nth: int = 1, times: float = 1) -> When[KafkaRequest]:
        """Begin a rule for the nth request of a kind from now on, and so many from there."""
        return self._when(api, client_id, nth, times, answered=False)

    def when_answered(
        self, api: Api, *, client_id: str | None = None, nth: int = 1, times: float = 1
    ) -> When[KafkaRequest]:
        """Begin a rule for the answers to requests of a kind, counted as they come."""
        return self._when(api, client_id, nth, times, answered=True)

    def seen(self, api: Api, client_id: str | None = None) -> list[KafkaRequest]:
        """The requests of a kind that came, also those that did not pass."""
        return [each for each in [*self._passed] if each.api == api and client_id in (None, each.client_id)]

    async def deliver(self, request: KafkaRequest) -> bytes:
        """Send a request to the broker on a connection of its own; return the body of its answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        try:
            _write(writer, request.frame)
            return (await _read(reader))[_SIZE.size :]
        finally:
            writer.close()

    def _when(self, api: Api, client_id: str | None, nth: int, times: float, *, answered: bool) -> When[KafkaRequest]:
        def concerns(request: KafkaRequest) -> bool:
            return request.api == api and client_id in (None, request.client_id)

        return When(self, concerns, nth, times, answered)

    async def _link(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> bool:
        waiting: dict[int, KafkaRequest] = {}

        async def requests() -> bool:
            while True:
                request = parse_request(await _read(reader))
                self._passed.append(request)
                effect = await self._effect(request, answered=False)
                if not effect.lost:
                    waiting[request.correlation] = request
                    _write(to_server, request.frame)
                elif effect.answer is not None:
                    _write(writer, _SIZE.pack(request.correlation) + effect.answer)
                if effect.severs:
                    return False

        async def answers() -> bool:
            while True:
                frame = await _read(from_server)
                request = waiting.pop(*_SIZE.unpack_from(frame))
                effect = await self._effect(request, answered=True)
                if not effect.lost:
                    _write(writer, frame)
                if effect.severs:
                    return False

        return await self._both(requests(), answers())


async def _read(reader: asyncio.StreamReader) -> bytes:
    size, *_ = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    return await reader.readexactly(size)


def _write(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(_SIZE.pack(len(frame)) + frame)
