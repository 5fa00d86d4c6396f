"""A message as a handler gets it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class RecordPlace(NamedTuple):
    """Where a record stands."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True)
class Message:
    """One message. What it holds is the team's data: nothing of it is ever logged."""

    place: RecordPlace
    """Where it was read."""
    origin: RecordPlace
    """Where it first stood: its place, or for a message from a retry topic the place in the main topic."""
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    at: datetime | None = None
    """The record's time."""
    aggregate_id: str | None = None
    """The id of its aggregate; None where the key is null or cannot be read."""
    event_id: str | None = None
    """The event's id; None where it has none but its place."""
    version: int | None = None
    """The aggregate's version, if the event carries one."""
    type: str | None = None
    """The event's type, if it carries one."""
    deletes: bool = False
    """Whether it deletes the aggregate."""
    attempt: int = 0
    """How often it was tried before, in the topics that it came through."""

    def json(self) -> Any:
        """Parse the value as JSON; raise ValueError for one that is not."""
        return json.loads(self.value) if self.value is not None else None

    def header(self, name: str) -> bytes | None:
        """Find the last value of a header."""
        return next((value for each, value in reversed(self.headers) if each == name), None)

    def __repr__(self) -> str:
        return f"Message({self.place})"
