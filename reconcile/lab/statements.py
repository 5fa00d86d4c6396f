"""A proxy before the lab's Postgres that knows the frames of its protocol: it delays, loses or holds what a rule names.

A commit whose connection breaks is ambiguous: `when("commit").sever()` breaks it before the server hears of it,
`when_answered("commit").sever()` after it was done, and `when("commit").hold()` leaves the server waiting for it.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from dataclasses import dataclass, field

from reconcile.lab.relay import Relay, When

_LENGTH = struct.Struct(">i")
_ENCRYPTED = (80877103, 80877104)
"""What a client sends first that would rather speak TLS, or GSSAPI."""
_BODY = 1 + _LENGTH.size
_READY = b"Z"
_AT_ONCE = (b"G", b"W")
"""Answers for which the server wants data before it is ready."""


@dataclass(frozen=True)
class Statement:
    """What a client asks in one go: the SQL, all its bytes, and the server's end of its connection."""

    sql: str
    frame: bytes = field(repr=False)
    answers: asyncio.StreamReader = field(repr=False)
    server: asyncio.StreamWriter = field(repr=False)


class StatementProxy(Relay[Statement]):
    """The proxy before the lab's Postgres; it speaks no TLS."""

    def when(self, contains: str, *, nth: int = 1, times: float = 1) -> When[Statement]:
        """Begin a rule for the nth statement from now on with this text in it, and so many from there."""
        return When(self, lambda each: contains in each.sql, nth, times, answered=False)

    def when_answered(self, contains: str, *, nth: int = 1, times: float = 1) -> When[Statement]:
        """Begin a rule for the answers to statements with this text in them, counted as they come."""
        return When(self, lambda each: contains in each.sql, nth, times, answered=True)

    def seen(self, contains: str) -> list[Statement]:
        """The statements with this text in them that came, also those that did not pass."""
        return [each for each in [*self._passed] if contains in each.sql]

    async def deliver(self, request: Statement) -> bytes:
        """Send a held statement on its own connection, whose other end is gone; return the body of its answer."""
        try:
            request.server.write(request.frame)
            body = b""
            while True:
                kind, frame = await _read(request.answers)
                if kind == _READY:
                    return body
                body += frame
        finally:
            request.server.transport.abort()

    async def _link(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> bool:
        started = await _startup(reader, writer)
        to_server.write(started)
        waiting = deque([Statement("", started, from_server, to_server)])  # it is answered as a statement is
        parsed: list[bytes] = []

        async def requests() -> bool:
            while True:
                kind, frame = await _read(reader)
                if kind == b"P":
                    parsed.append(frame[_BODY:].split(b"\0")[1])
                if kind not in (b"Q", b"S"):
                    to_server.write(frame)
                    continue
                sql = frame[_BODY:].rstrip(b"\0") if kind == b"Q" else b";".join(parsed)
                parsed.clear()
                statement = Statement(sql.decode(errors="replace"), frame, from_server, to_server)
                self._passed.append(statement)
                effect = await self._effect(statement, answered=False)
                if not effect.lost:
                    waiting.append(statement)
                    to_server.write(frame)
                if effect.severs:
                    return effect.held

        async def answers() -> bool:
            body = b""
            while True:
                kind, frame = await _read(from_server)
                body += frame
                if kind == _READY:
                    effect = await self._effect(waiting.popleft(), answered=True)
                    if effect.severs:
                        return False
                elif waiting and waiting[0].sql and kind not in _AT_ONCE:
                    continue
                writer.write(body)
                body = b""

        return await self._both(requests(), answers())


async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Read how a connection begins; what would be encrypted is refused, as a server without certificates does."""
    while True:
        size = await reader.readexactly(_LENGTH.size)
        body = await reader.readexactly(_LENGTH.unpack(size)[0] - _LENGTH.size)
        if _LENGTH.unpack_from(body)[0] not in _ENCRYPTED:
            return size + body
        writer.write(b"N")


async def _read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read a frame: its kind, and all its bytes."""
    head = await reader.readexactly(_BODY)
    return head[:1], head + await reader.readexactly(_LENGTH.unpack(head[1:])[0] - _LENGTH.size)
