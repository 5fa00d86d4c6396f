"""Emission: corrections go into their topic once, and none after an event that is newer than what it says.

A batch is written in a transaction that stays open until each partition has been read up to the corrections' own
offsets. Where a newer event stands before one, all is taken back, and the batch is written without that one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from reconcile.control.corrections import CorrectionState, Dropped, Emitted, Intent
from reconcile.control.leases import HeldLease
from reconcile.control.store import ControlStore
from reconcile.domain import key as keys
from reconcile.domain.correction import CORRECTION_ID, RUN_ID, Correction
from reconcile.errors import ReconcileError, RefusedError
from reconcile.kafka.client import ClusterClient
from reconcile.repair.tail import Tail, committed
from reconcile.repair.transaction import TransactionAbortedError, Transactions

if TYPE_CHECKING:
    from confluent_kafka import Message

_LOG = logging.getLogger(__name__)

_ATTEMPTS = 3
_MARKED_TOGETHER = 1000
_TO_LOOK = 20.0
_EARLIER = "an earlier attempt left it out"

Place = tuple[str, int]
"""A correction's id and its partition."""
Still = Callable[[Sequence[Correction]], Mapping[str, str]]
"""Says why some of a batch may not be committed any more, by their ids; asked right before the commit."""
Newer = Callable[["Message", Correction], bool]
"""Tells whether a record of a correction's key is newer than what the correction was made from."""
IdOf = Callable[[bytes | None], str | None]
of_text: IdOf = partial(keys.decode, key_type=keys.KeyType.STRING)
"""Reads the id in a key that is text."""


@dataclass(frozen=True)
class EmissionTask:
    """What is the same in all attempts to emit the corrections of a link."""

    link: str
    run_id: str
    topic: str
    cluster: Mapping[str, str]
    """The options of librdkafka that lead to the topic."""
    since: Mapping[int, int] = field(default_factory=dict)
    """Where to look for what only an earlier attempt was given, by partition; without it, in all of the log."""
    id_of: IdOf = of_text
    """Reads the id in a key."""


@dataclass(frozen=True)
class Placed:
    """A correction, and the offset of its last record in its partition."""

    correction: Correction
    offset: int


@dataclass(frozen=True)
class Withheld:
    """A correction that was not emitted, why, and the offset of the newer event where it is known."""

    correction: Correction
    reason: str
    offset: int | None


@dataclass(frozen=True)
class EmissionOutcome:
    """What became of each correction: emitted now, dropped, or emitted by an earlier attempt already."""

    emitted: tuple[Placed, ...] = ()
    dropped: tuple[Withheld, ...] = ()
    already: tuple[Placed, ...] = ()


def _all_still_hold(_batch: Sequence[Correction]) -> Mapping[str, str]:
    """Nothing but a newer event speaks against a correction."""
    return {}


def _go_on(_step: str) -> None:
    """Do nothing between the steps."""


def emit(
    corrections: Sequence[Correction],
    task: EmissionTask,
    *,
    control: ControlStore,
    held: HeldLease,
    newer: Newer,
    still: Still = _all_still_hold,
    batch: int = 250,
    step: Callable[[str], None] = _go_on,
) -> EmissionOutcome:
    """Emit corrections of a link; after any failure, or a kill, the same call goes on where it stopped.

    Those with the same id, for several partitions, go together or not at all. One that an earlier call was given and
    this one is not is looked for in the log. Raises UnreachableError where the same call may succeed later,
    LeaseLostError and EmissionFencedError where another attempt has taken over.
    """
    _require_fit(corrections, task)
    step("before_intents")
    control.corrections.intend(held.require(), (_intent(each, task.run_id) for each in corrections))
    step("after_intents")
    emission = _Emission(corrections, task, control, held, step, still)
    if starts := emission.starts():
        with (
            closing(ClusterClient(task.cluster["bootstrap.servers"], task.cluster)) as client,
            # What an earlier attempt left open ends here, so that the tail then shows all that it committed.
            closing(Transactions(client, task.link, task.topic)) as transactions,
        ):
            others = (id_ for id_, _ in emission.strays)
            watch = Watch(emission.pending.values(), task.run_id, newer, others, task.id_of)
            with closing(Tail(client, task.topic, starts, watch.see)) as tail:
                tail.read_to(tail.ends)
                emission.settle(watch.own_offsets, committed(client, task.topic, watch.own_offsets))
                emission.drop_expired(tail.begins)
                with emission.marking():
                    total = len(emission.pending)
                    for some in batches(emission.pending.values(), batch):
                        emission.send(some, tail, watch, transactions)
                        done = len(emission.emitted)
                        far = {"done": done, "total": total}
                        _LOG.debug(f"{task.link}: {done:,} of {total:,} records emitted", extra=far)
    return EmissionOutcome(tuple(emission.emitted), tuple(emission.dropped), tuple(emission.already))


def batches(corrections: Iterable[Correction], size: int) -> Iterator[list[Correction]]:
    """Build batches that touch few partitions, and keep what has the same id together."""
    groups: dict[str, list[Correction]] = {}
    for each in sorted(corrections, key=lambda each: each.partition):
        groups.setdefault(each.id, []).append(each)
    batch: list[Correction] = []
    for group in groups.values():
        if batch and len(batch) + len(group) > size:
            yield batch
            batch = []
        batch += group
    if batch:
        yield batch


class Watch:
    """What has been seen so far of a run's corrections, in records that come in the order of their partitions."""

    def __init__(
        self,
        corrections: Iterable[Correction],
        run_id: str,
        newer: Newer,
        others: Iterable[str] = (),
        id_of: IdOf = of_text,
    ) -> None:
        """Watch corrections; of the ids of others, only look where their records are."""
        self._id_of = id_of
        self._run_id = run_id.encode()
        self._newer = newer
        self._others = frozenset(others)
        self._watched: dict[tuple[int, str | bytes | None], list[Correction]] = {}
        for each in corrections:
            self._watched.setdefault((each.partition, self._named(each.key)), []).append(each)
        self.overtaken: dict[str, tuple[int, int]] = {}
        """Partition and offset of the first newer record, by the correction's id."""
        self.own_offsets: dict[Place, list[int]] = {}
        """Offsets of a correction's own records, committed or not."""

    def see(self, record: Message) -> None:
        """Take a record in."""
        partition, offset = record.partition(), record.offset()
        assert partition is not None
        assert offset is not None
        watched = self._watched.get((partition, self._named(record.key())))
        if watched is None and not self._others:
            return
        own = self._own(record)
        if own is not None:
            self.own_offsets.setdefault((own, partition), []).append(offset)
        for each in watched or ():
            if each.id != own and each.id not in self.overtaken and offset >= each.since and self._newer(record, each):
                self.overtaken[each.id] = (partition, offset)

    def _named(self, key: str | bytes | None) -> str | bytes | None:
        """Read the id that a key is of, however it is spelled; the key itself where it cannot be read."""
        id_text = None if key is None else self._id_of(_bytes(key))
        return key if id_text is None else id_text

    def _own(self, record: Message) -> str | None:
        headers = dict(record.headers() or ())
        correction_id = headers.get(CORRECTION_ID)
        if correction_id is None or _bytes(headers.get(RUN_ID)) != self._run_id:
            return None
        return _bytes(correction_id).decode(errors="replace")


class _Emission:
    """What is still to be emitted, and what became of the rest."""

    def __init__(
        self,
        corrections: Iterable[Correction],
        task: EmissionTask,
        control: ControlStore,
        held: HeldLease,
        step: Callable[[str], None],
        still: Still = _all_still_hold,
    ) -> None:
        self._task, self._control, self._held, self._still, self._step = task, control, held, still, step
        self.emitted: list[Placed] = []
        self._marked = 0
        self.dropped: list[Withheld] = []
        self.already: list[Placed] = []
        self.pending: dict[Place, Correction] = {}
        records = control.corrections.of_run(task.link, task.run_id)
        known = {(each.correction_id, each.partition): each for each in records}
        for each in corrections:
            found = known[each.id, each.partition]
            if found.state is CorrectionState.INTENDED:
                self.pending[each.id, each.partition] = each
            elif found.state is CorrectionState.DROPPED:
                self.dropped.append(Withheld(each, found.reason or _EARLIER, None))
            elif found.offset is not None:
                self.already.append(Placed(each, found.offset))
        intended = {place for place, each in known.items() if each.state is CorrectionState.INTENDED}
        self.strays = frozenset(intended - self.pending.keys())
        """What an earlier attempt was given and this one was not: it may have been emitted."""

    def starts(self) -> dict[int, int]:
        """Compute the offsets from which the log has to be read, by partition."""
        found: dict[int, int] = {}
        for (_, partition), each in self.pending.items():
            found[partition] = min(each.since, found.get(partition, each.since))
        return {partition: self._task.since.get(partition, 0) for _, partition in self.strays} | found

    def settle(self, own_offsets: Mapping[Place, Sequence[int]], there: Container[tuple[int, int]]) -> None:
        """Take out what an earlier attempt committed."""
        found: list[Emitted] = []
        for (id_, partition), offsets in own_offsets.items():
            offset = max((each for each in offsets if (partition, each) in there), default=None)
            correction = self.pending.get((id_, partition))
            if offset is None or (correction is None and (id_, partition) not in self.strays):
                continue
            found.append(Emitted(id_, partition, offset))
            if correction is not None:
                self.already.append(Placed(correction, offset))
        self._mark(found)
        for each in found:
            self.pending.pop((each.correction_id, each.partition), None)

    def drop_expired(self, begins: Mapping[int, int]) -> None:
        """Drop what may have been overtaken by an event that the log has no more."""
        reasons = {
            each.id: (f"partition {each.partition} has nothing before the offset {begin} any more", None)
            for each in self.pending.values()
            if each.since < (begin := begins[each.partition])
        }
        self._drop([*self.pending.values()], reasons)

    @contextmanager
    def marking(self) -> Iterator[None]:
        """Let all that was emitted in a block be marked after it; if it fails, what can be."""
        try:
            yield
        except BaseException:
            # What stays unmarked is found in the log by the next attempt.
            with suppress(ReconcileError):
                self._mark_emitted()
            raise
        self._mark_emitted()

    def send(self, batch: Sequence[Correction], tail: Tail, watch: Watch, transactions: Transactions) -> None:
        """Emit a batch, without those of it that are overtaken."""
        failures = 0
        while True:
            tail.see_arrived()
            batch = [each for each in batch if (each.id, each.partition) in self.pending]
            batch = self._without_overtaken(batch, watch)
            if not batch:
                return
            self._require_lease()
            try:
                if self._sent(batch, tail, watch, transactions):
                    return
            except TransactionAbortedError:
                failures += 1
                if failures == _ATTEMPTS:
                    raise
            transactions.abort()

    def _sent(self, batch: Sequence[Correction], tail: Tail, watch: Watch, transactions: Transactions) -> bool:
        placed = [*map(Placed, batch, transactions.send(batch, lambda: self._step("mid_produce")))]
        self._step("after_flush")
        # Sorted, so that the last offset of each partition counts.
        tail.read_to(dict(sorted((each.correction.partition, each.offset) for each in placed)), within=_TO_LOOK)
        if any(each.id in watch.overtaken for each in batch):
            return False
        if gone := self._still(batch):
            self._drop(batch, {id_: (why, None) for id_, why in gone.items()})
            return False
        self._step("before_commit")
        # After the producer began: whoever takes the lease over from here on shuts it out, or waits for its commit.
        self._require_lease()
        transactions.commit()
        self._step("after_commit")
        self.emitted += placed
        if len(self.emitted) - self._marked >= _MARKED_TOGETHER:
            self._mark_emitted()
        return True

    def _require_lease(self) -> None:
        """Raise LeaseLostError unless the control store says that we hold it: our own clock may have stood still."""
        self._control.leases.require(self._held.require())

    def _without_overtaken(self, batch: Sequence[Correction], watch: Watch) -> list[Correction]:
        places = {each.id: watch.overtaken[each.id] for each in batch if each.id in watch.overtaken}
        reasons = {
            id_: (f"a newer event stands in partition {partition}, offset {offset}", offset)
            for id_, (partition, offset) in places.items()
        }
        return self._drop(batch, reasons)

    def _mark_emitted(self) -> None:
        if new := self.emitted[self._marked :]:
            self._step("before_mark")
            self._mark(Emitted(each.correction.id, each.correction.partition, each.offset) for each in new)
            self._marked += len(new)

    def _mark(self, records: Iterable[Emitted]) -> None:
        self._control.corrections.mark_emitted(self._held.require(), self._task.run_id, records)

    def _drop(
        self, corrections: Sequence[Correction], reasons: Mapping[str, tuple[str, int | None]]
    ) -> list[Correction]:
        """Drop those that there are reasons for, with the offset of the newer event; return the others."""
        if reasons:
            dropped = (Dropped(id_, reason) for id_, (reason, _) in reasons.items())
            self._control.corrections.mark_dropped(self._held.require(), self._task.run_id, dropped)
        for each in corrections:
            if each.id in reasons:
                self.dropped.append(Withheld(each, *reasons[each.id]))
                self.pending.pop((each.id, each.partition), None)
        return [each for each in corrections if each.id not in reasons]


def _require_fit(corrections: Sequence[Correction], task: EmissionTask) -> None:
    places = Counter((each.id, each.partition) for each in corrections)
    if elsewhere := next((each for each in corrections if each.topic != task.topic), None):
        raise RefusedError(f"the correction {elsewhere.id} is for the topic {elsewhere.topic}, not for {task.topic}")
    if foreign := next((each for each in corrections if each.link != task.link), None):
        raise RefusedError(f"the correction {foreign.id} is one of {foreign.link}, not of {task.link}")
    if twice := next((place for place, many in places.items() if many > 1), None):
        raise RefusedError(f"the correction {twice[0]} is given twice for the partition {twice[1]}")


def _intent(each: Correction, run_id: str) -> Intent:
    return Intent(each.id, each.link, each.aggregate_id, each.basis_version, each.partition, run_id)


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
