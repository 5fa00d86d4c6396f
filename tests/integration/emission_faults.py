"""Emission while its aggregates change, through a network that is broken at random; and the history of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING
from uuid import uuid4

from reconcile.control.leases import HeldLease
from reconcile.control.store import ControlStore
from reconcile.domain import correction as corrections
from reconcile.domain.correction import Correction
from reconcile.errors import UnreachableError
from reconcile.lab.proxy import Api, FaultProxy, KafkaRequest
from reconcile.lab.relay import Disturbance
from reconcile.repair.emission import EmissionOutcome
from reconcile.repair.transaction import EmissionFencedError
from tests.history_checker import Attempt, Claim, EmissionHistory, Visible, Write
from tests.integration.emission_world import Source, Topic, header, leased, version

if TYPE_CHECKING:
    from confluent_kafka import Message

MOVED = {
    Api.END_TXN: bytes.fromhex("00000000 0010"),
    Api.INIT_PRODUCER_ID: bytes.fromhex("00 00000000 0010 ffffffffffffffff ffff 00"),
}
"""What a broker answers that is not the coordinator of a transactional id: NOT_COORDINATOR."""

_WRITING = (Api.PRODUCE, Api.ADD_PARTITIONS_TO_TXN, Api.END_TXN, Api.INIT_PRODUCER_ID)
_READING = (Api.FETCH, Api.FIND_COORDINATOR, Api.METADATA)
_ATTEMPTS = 12
_SOCKET_TIMEOUT = "1000"
_LATE = 0.4
_DIES = 0.003
_FENCES = 0.02
"""How likely a late InitProducerId is let through, which fences the attempt that runs."""


class DiedError(Exception):
    """Raised in the middle of an attempt, as Ctrl-C is."""


class BrokenNetwork:
    """Breaks what goes through a proxy, and delivers late what it lost; the same seed makes the same choices."""

    def __init__(self, proxy: FaultProxy, seed: int) -> None:
        self._proxy = proxy
        self._chance = Random(seed)  # noqa: S311
        self._made: list[tuple[str, Disturbance[KafkaRequest]]] = []
        self.delivered = 0
        """How often a lost request came late."""

    @property
    def happened(self) -> Counter[str]:
        """How often each kind of disturbance happened."""
        return Counter({name: sum(len(d.met) for each, d in self._made if each == name) for name, _ in self._made})

    def disturb(self) -> None:
        """Forget what did not happen, and choose what is broken next."""
        self._proxy.forget_rules()
        for _ in range(self._chance.choice([1, 1, 2, 3])):
            api = self._chance.choice([*_WRITING, *_WRITING, Api.END_TXN, Api.END_TXN, *_READING])
            nth = self._chance.choice([1, 1, 2, 3, 4])
            asked, answered = self._proxy.when(api, nth=nth), self._proxy.when_answered(api, nth=nth)
            does = self._chance.choice(
                ["lost", "lost", "lost", "answer lost", "answer lost", "slow", "moved", "silent"]
            )
            match does:
                case "slow":
                    made = (asked if nth % 2 else answered).delay(self._chance.uniform(0.005, 0.3))
                case "moved" if api in MOVED:
                    made = asked.answer(MOVED[api])
                case "silent" if api in _WRITING and self._chance.random() < 0.1:  # each costs the client's time-out
                    made = asked.drop()
                case "answer lost":
                    made = answered.sever()
                case _:
                    does, made = "lost", asked.sever()
            self._made.append((f"{api.name} {does}", made))

    def step(self, _step: str) -> None:
        """Deliver late what was lost, now and then; die, seldom."""
        lost = [each for _, each in self._made[-12:] if each.effect.lost and each.met and each.met[0].api in _WRITING]
        if lost and self._chance.random() < _LATE:
            late = self._chance.choice(lost)
            if late.met[-1].api != Api.INIT_PRODUCER_ID or self._chance.random() < _FENCES:
                self.delivered += 1
                with suppress(OSError, EOFError):  # the broker ends the connection of what it cannot take
                    late.release()
        if self._chance.random() < _DIES:
            raise DiedError


def broken_race(
    proxy: FaultProxy, control: ControlStore, source: Source, network: BrokenNetwork, rounds: int, each_round: int = 20
) -> EmissionHistory:
    """Emit corrections of what the source says, round by round, while it changes and the network breaks."""
    topic, history = source.topic, EmissionHistory()
    with leased(control, "broken race") as held, source.changing():
        for number in range(rounds):
            run_id = f"broken-{uuid4().hex[:8]}"
            control.runs.begin(run_id, "user-account", "c" * 64)
            fence = topic.ends()
            state = dict(source.truth)
            keys = sorted(state)[number % 5 :: 5][:each_round]
            wanted = [topic.correction(key, state[key], run_id, fence[topic.partition(key)]) for key in keys]
            history.attempts += _attempts(wanted, run_id, control, held, source, proxy, network)
    history.writes = [Write(key, number) for key, last in source.truth.items() for number in range(1, last + 1)]
    history.visible = visible(topic)
    return history


def visible(topic: Topic) -> list[Visible]:
    """Read what a reader of committed records gets; a correction is named with its run."""
    return [_visible(record) for record in topic.read()]


def decided(outcome: EmissionOutcome, run_id: str) -> list[Attempt]:
    """Build what an attempt says that came to its end."""
    emitted = [each.correction for each in (*outcome.emitted, *outcome.already)]
    dropped = [each.correction for each in outcome.dropped]
    return attempts_at(emitted, run_id, Claim.EMITTED) + attempts_at(dropped, run_id, Claim.DROPPED)


def attempts_at(wanted: Iterable[Correction], run_id: str, claim: Claim) -> list[Attempt]:
    """Build what an attempt says of each of some corrections."""
    return [Attempt(f"{run_id}/{each.id}", each.aggregate_id, each.basis_version or 0, claim) for each in wanted]


def _visible(record: Message) -> Visible:
    partition, offset = record.partition(), record.offset()
    assert partition is not None
    assert offset is not None
    id_, run_id = header(record, corrections.CORRECTION_ID), header(record, corrections.RUN_ID)
    name = None if id_ is None else f"{run_id}/{id_}"
    return Visible(partition, offset, (record.key() or b"").decode(), version(record), name)


def _attempts(
    wanted: Sequence[Correction],
    run_id: str,
    control: ControlStore,
    held: HeldLease,
    source: Source,
    proxy: FaultProxy,
    network: BrokenNetwork,
) -> list[Attempt]:
    cluster = {"bootstrap.servers": proxy.bootstrap, "socket.timeout.ms": _SOCKET_TIMEOUT, "log_level": "0"}
    attempts: list[Attempt] = []
    for _ in range(_ATTEMPTS):
        network.disturb()
        try:
            outcome = source.topic.emit(wanted, run_id, control, held, batch=10, cluster=cluster, step=network.step)
        except (UnreachableError, EmissionFencedError, DiedError):
            attempts += attempts_at(wanted, run_id, Claim.UNKNOWN)
        else:
            return attempts + decided(outcome, run_id)
    return attempts
