"""Emission: corrections go into their topic once, and none after an event that is newer than what it says.

A batch is written in a transaction that stays open until each partition has been read up to the corrections' own
offsets. Where a newer event stands before one, all is taken back, and the batch is written without that one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress

from reconcile.control.corrections import CorrectionState, Dropped, Emitted, Intent
from reconcile.control.leases import HeldLease
from reconcile.control.store import ControlStore
from reconcile.domain.correction import Correction
from reconcile.errors import ReconcileError, RefusedError
from reconcile.kafka.client import ClusterClient
from reconcile.repair.batches import batches, last_offsets
from reconcile.repair.outcome import Outcome, Placed, Withheld
from reconcile.repair.tail import Tail, committed
from reconcile.repair.transaction import TransactionAbortedError, Transactions
from reconcile.repair.watch import Newer, Watch

_LOG = logging.getLogger(__name__)

_ATTEMPTS = 3
_MARKED_TOGETHER = 1000
_TO_LOOK = 20.0
Place = tuple[str, int]
"""A correction's id and its partition."""
_EARLIER = "an earlier attempt left it out"


def _go_on(_step: str) -> None:
    """Do nothing between the steps."""


def emit(
    corrections: Sequence[Correction],
    *,
    topic: str,
    link: str,
    run_id: str,
    cluster: Mapping[str, str],
    control: ControlStore,
    held: HeldLease,
    newer: Newer,
    batch: int = 100,
    shard: int = 0,
    since: Mapping[int, int] | None = None,
    step: Callable[[str], None] = _go_on,
) -> Outcome:
    """Emit corrections of a link; after any failure, or a kill, the same call goes on where it stopped.

    Those with the same id, for several partitions, go together or not at all. A correction is always given with the
    same shard and `since`. One that an earlier call was given and this one is not is looked for in the log, from the
    offset that `since` gives for its partition, or from its beginning. Raises UnreachableError where the same call may
    succeed later, LeaseLostError and EmissionFencedError where another attempt has taken over.
    """
    _require_fit(corrections, topic, link)
    step("before_intents")
    control.corrections.intend(held.require(), (_intent(each, run_id) for each in corrections))
    step("after_intents")
    emission = _Emission(corrections, link, run_id, control, held, step)
    if starts := emission.starts(since or {}):
        with (
            closing(ClusterClient(cluster["bootstrap.servers"], cluster)) as client,
            # What an earlier attempt left open ends here, so that the tail then shows all that it committed.
            closing(Transactions(client, f"reconcile-{link}-{shard}")) as transactions,
        ):
            watch = Watch(emission.pending.values(), run_id, newer, (id_ for id_, _ in emission.strays))
            with closing(Tail(client, topic, starts, watch.see)) as tail:
                tail.read_to(tail.ends)
                emission.settle(watch.standing, committed(client, topic, watch.standing))
                emission.drop_expired(tail.begins)
                with emission.marking():
                    total = len(emission.pending)
                    for some in batches(emission.pending.values(), batch):
                        emission.send(some, tail, watch, transactions)
                        done = len(emission.emitted)
                        far = {"done": done, "total": total}
                        _LOG.debug(f"{link}: {done:,} of {total:,} records emitted", extra=far)
    return Outcome(tuple(emission.emitted), tuple(emission.dropped), tuple(emission.already))


class _Emission:
    """What is still to be emitted, and what became of the rest."""

    def __init__(
        self,
        corrections: Iterable[Correction],
        link: str,
        run_id: str,
        control: ControlStore,
        held: HeldLease,
        step: Callable[[str], None],
    ) -> None:
        self._run_id = run_id
        self._control = control
        self._held = held
        self._step = step
        self.emitted: list[Placed] = []
        self._marked = 0
        self.dropped: list[Withheld] = []
        self.already: list[Placed] = []
        self.pending: dict[Place, Correction] = {}
        known = {(each.correction_id, each.partition): each for each in control.corrections.of_run(link, run_id)}
        for each in corrections:
            found = known[each.id, each.partition]
            if found.state is CorrectionState.INTENDED:
                self.pending[each.id, each.partition] = each
            elif found.state is CorrectionState.DROPPED:
                self.dropped.append(Withheld(each, found.reason or _EARLIER, None))
            elif found.offset is not None:
                self.already.append(Placed(each, each.partition, found.offset))
        intended = {place for place, each in known.items() if each.state is CorrectionState.INTENDED}
        self.strays = frozenset(intended - self.pending.keys())
        """What an earlier attempt was given and this one was not: it may have been emitted."""

    def starts(self, since: Mapping[int, int]) -> dict[int, int]:
        """Give the offsets from which the log has to be read, by partition; strays have none but what is given."""
        found: dict[int, int] = {}
        for (_, partition), each in self.pending.items():
            found[partition] = min(each.since, found.get(partition, each.since))
        return {partition: since.get(partition, 0) for _, partition in self.strays} | found

    def settle(self, standing: Mapping[Place, Sequence[int]], there: Container[tuple[int, int]]) -> None:
        """Take out what an earlier attempt committed."""
        found: list[Emitted] = []
        for (id_, partition), offsets in standing.items():
            offset = next((each for each in offsets if (partition, each) in there), None)
            correction = self.pending.get((id_, partition))
            if offset is None or (correction is None and (id_, partition) not in self.strays):
                continue
            found.append(Emitted(id_, partition, offset))
            if correction is not None:
                self.already.append(Placed(correction, partition, offset))
        self._mark(found)
        for each in found:
            self.pending.pop((each.correction_id, each.partition), None)

    def drop_expired(self, begins: Mapping[int, int]) -> None:
        """Drop what may have been overtaken by an event that the log has no more."""
        reasons = {
            each.id: (
                f"partition {each.partition} has nothing before the offset {begins[each.partition]} any more",
                None,
            )
            for each in self.pending.values()
            if each.since < begins[each.partition]
        }
        self._drop([each for each in self.pending.values() if each.id in reasons], reasons)

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
            batch = self._without_overtaken(batch, watch)
            if not batch:
                return
            self._held.require()
            try:
                if self._sent(batch, tail, watch, transactions):
                    return
            except TransactionAbortedError:
                failures += 1
                if failures == _ATTEMPTS:
                    raise
            transactions.abort()

    def _sent(self, batch: Sequence[Correction], tail: Tail, watch: Watch, transactions: Transactions) -> bool:
        offsets = transactions.send(batch, lambda: self._step("mid_produce"))
        self._step("after_flush")
        tail.read_to(last_offsets(batch, offsets), within=_TO_LOOK)
        if any(each.id in watch.overtaken for each in batch):
            return False
        self._step("before_commit")
        self._held.require()
        transactions.commit()
        self._step("after_commit")
        self.emitted += (Placed(each, each.partition, offset) for each, offset in zip(batch, offsets, strict=True))
        if len(self.emitted) - self._marked >= _MARKED_TOGETHER:
            self._mark_emitted()
        return True

    def _without_overtaken(self, batch: Sequence[Correction], watch: Watch) -> list[Correction]:
        overtaken = [each for each in batch if each.id in watch.overtaken]
        places = {each.id: watch.overtaken[each.id] for each in overtaken}
        self._drop(
            overtaken,
            {
                id_: (f"a newer event stands in partition {place[0]}, offset {place[1]}", place[1])
                for id_, place in places.items()
            },
        )
        return [each for each in batch if each.id not in places]

    def _mark_emitted(self) -> None:
        if new := self.emitted[self._marked :]:
            self._step("before_mark")
            self._mark(Emitted(each.correction.id, each.partition, each.offset) for each in new)
            self._marked += len(new)

    def _mark(self, records: Iterable[Emitted]) -> None:
        self._control.corrections.mark_emitted(self._held.require(), self._run_id, records)

    def _drop(self, corrections: Sequence[Correction], reasons: Mapping[str, tuple[str, int | None]]) -> None:
        if not corrections:
            return
        left_out = (Dropped(id_, reason) for id_, (reason, _) in reasons.items())
        self._control.corrections.mark_dropped(self._held.require(), self._run_id, left_out)
        for each in corrections:
            self.dropped.append(Withheld(each, *reasons[each.id]))
            self.pending.pop((each.id, each.partition), None)


def _require_fit(corrections: Sequence[Correction], topic: str, link: str) -> None:
    places = Counter((each.id, each.partition) for each in corrections)
    if elsewhere := next((each for each in corrections if each.topic != topic), None):
        raise RefusedError(f"the correction {elsewhere.id} is for the topic {elsewhere.topic}, not for {topic}")
    if foreign := next((each for each in corrections if each.link != link), None):
        raise RefusedError(f"the correction {foreign.id} is one of {foreign.link}, not of {link}")
    if twice := next((place for place, many in places.items() if many > 1), None):
        raise RefusedError(f"the correction {twice[0]} is given twice for the partition {twice[1]}")


def _intent(each: Correction, run_id: str) -> Intent:
    return Intent(each.id, each.link, each.aggregate_id, each.basis_version, each.partition, run_id)
