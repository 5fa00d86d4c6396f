"""What the records of a topic say of corrections: which are overtaken, and which stand there already. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from reconcile.domain.correction import CORRECTION_ID, RUN_ID, Correction

if TYPE_CHECKING:
    from confluent_kafka import Message

Newer = Callable[["Message", Correction], bool]
"""Tells whether a record of a correction's key is newer than what the correction was made from."""


class Watch:
    """What has been seen so far of a run's corrections, in records that come in the order of their partitions."""

    def __init__(
        self, corrections: Iterable[Correction], run_id: str, newer: Newer, others: Iterable[str] = ()
    ) -> None:
        """Watch corrections; of the ids of others, only look where their records stand."""
        self._run_id = run_id.encode()
        self._newer = newer
        self._others = frozenset(others)
        self._watched: dict[tuple[int, bytes | None], list[Correction]] = {}
        for each in corrections:
            self._watched.setdefault((each.partition, each.key), []).append(each)
        self.overtaken: dict[str, tuple[int, int]] = {}
        """Partition and offset of the first newer record, by the correction's id."""
        self.standing: dict[tuple[str, int], list[int]] = {}
        """Offsets of a correction's own records, committed or not, by its id and partition."""

    def see(self, record: Message) -> None:
        """Take a record in."""
        partition, offset = record.partition(), record.offset()
        assert partition is not None
        assert offset is not None
        watched = self._watched.get((partition, record.key()))
        if watched is None and not self._others:
            return
        own = self._own(record)
        if own is not None:
            self.standing.setdefault((own, partition), []).append(offset)
        for each in watched or ():
            if each.id != own and each.id not in self.overtaken and offset >= each.since and self._newer(record, each):
                self.overtaken[each.id] = (partition, offset)

    def _own(self, record: Message) -> str | None:
        headers = dict(record.headers() or ())
        correction_id = headers.get(CORRECTION_ID)
        if correction_id is None or _bytes(headers.get(RUN_ID)) != self._run_id:
            return None
        return _bytes(correction_id).decode(errors="replace")


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
