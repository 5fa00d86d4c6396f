"""How fast corrections are emitted beside a bare transactional producer; and how many are overtaken in a long race.

Both write the same corrections in the same batches to topics of their own, in turns. Emission's seconds hold all that
it does: the control store, the look at the log, connecting. A race that overtook a correction, or left a copy that
differs, exits 1.

With faults, the race goes through a proxy that breaks the network at random, and a checker that knows nothing of the
emitter judges what was said and what is visible.

python -m bench.emission --corrections 10000
python -m bench.emission --rounds 1000
python -m bench.emission --rounds 1000 --faults --seed 1
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from statistics import median

from reconcile.control.store import ControlStore
from reconcile.domain.correction import Correction
from tests.history_checker import Claim, violations
from tests.integration.emission_faults import BrokenNetwork, broken_race
from tests.integration.emission_world import (
    Source,
    Topic,
    World,
    emission_world,
    leased,
    overtaken,
    race,
    replayed,
)

PARTITIONS = 12
BATCH = 250
TURNS = 3
GOAL = 0.5


def bare(world: World, batches: list[list[Correction]], name: str) -> None:
    """Write batches in transactions, and look at nothing."""
    with world.producer({"transactional.id": name}) as producer:
        producer.init_transactions()
        for batch in batches:
            producer.begin_transaction()
            for each in batch:
                producer.produce(each.topic, each.value, each.key, partition=each.partition, headers=list(each.headers))
            producer.commit_transaction()


def seconds(work: Callable[[], object]) -> float:
    """Give how long it takes."""
    started = time.monotonic()
    work()
    return time.monotonic() - started


class Clock:
    """Hears the steps of an emission, and adds up what the control store takes of it."""

    def __init__(self) -> None:
        self.control = 0.0
        self._at = time.monotonic()
        self._after = ""

    def __call__(self, step: str) -> None:
        now = time.monotonic()
        if self._after in ("before_intents", "before_mark"):
            self.control += now - self._at
        self._at, self._after = now, step


def main() -> int:
    """Measure, and print; give the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--corrections", type=int, default=10_000)
    arguments.add_argument("--rounds", type=int, default=0)
    arguments.add_argument("--faults", action="store_true")
    arguments.add_argument("--seed", type=int, default=1)
    asked = arguments.parse_args()
    with emission_world() as world, world.control() as control:
        if asked.faults:
            return 0 if race_with_faults(world, control, asked.rounds, asked.seed) else 1
        if asked.rounds:
            return 0 if long_race(world, control, asked.rounds) else 1
        throughput(world, control, asked.corrections)
    return 0


def wanted(topic: Topic, run_id: str, many: int) -> list[Correction]:
    """Give corrections of as many aggregates, by partition, as they are emitted."""
    fence = topic.ends()
    keys = sorted(map(str, range(many)), key=topic.partition)
    return [topic.correction(key, 2, run_id, fence[topic.partition(key)]) for key in keys]


def throughput(world: World, control: ControlStore, many: int) -> None:
    """Compare both ways, turn by turn."""
    taken: dict[str, list[float]] = {"bare": [], "emission": [], "of it the control store": []}
    with leased(control, "bench") as held:
        for turn in range(TURNS):
            run_id, clock = f"bench-{turn}", Clock()
            control.runs.begin(run_id, "user-account", "c" * 64)
            plain = wanted(world.topic(PARTITIONS), run_id, many)
            batches = [plain[start : start + BATCH] for start in range(0, many, BATCH)]
            taken["bare"].append(seconds(partial(bare, world, batches, f"bare-{turn}")))
            topic = world.topic(PARTITIONS)
            checked = wanted(topic, run_id, many)
            emitting = partial(topic.emit, checked, run_id, control, held, batch=BATCH, step=clock)
            taken["emission"].append(seconds(emitting))
            clock("end")
            taken["of it the control store"].append(clock.control)
            print({name: f"{each[-1]:.2f} s" for name, each in taken.items()}, flush=True)
    middle = {name: median(each) for name, each in taken.items()}
    ratio = middle["bare"] / middle["emission"]
    alone = middle["bare"] / (middle["emission"] - middle["of it the control store"])
    print({name: f"{many / each:,.0f} corrections/s" for name, each in middle.items() if name in ("bare", "emission")})
    print(
        f"emission is at {ratio:.2f} of the bare producer, without the control store at {alone:.2f}; the goal is {GOAL}"
    )


def long_race(world: World, control: ControlStore, rounds: int) -> bool:
    """Let aggregates change while corrections of them are emitted; tell whether all of it held."""
    source = Source(world.topic(), aggregates=400, rate=500)
    started = time.monotonic()
    outcomes = race(control, source, rounds)
    records = source.topic.read()
    late, equal = overtaken(records), replayed(records) == source.truth
    print(
        f"{rounds} rounds, {time.monotonic() - started:.0f} s:"
        f" {sum(source.truth.values()):,} events, {sum(len(each.emitted) for each in outcomes):,} corrections emitted,"
        f" {sum(len(each.dropped) for each in outcomes):,} dropped, {len(late)} overtaken;"
        f" the replayed copy {'equals' if equal else 'differs from'} the source"
    )
    return not late and equal


def race_with_faults(world: World, control: ControlStore, rounds: int, seed: int) -> bool:
    """Run the race through a network that breaks; tell whether all of it held."""
    source = Source(world.topic(), aggregates=400, rate=200)
    started = time.monotonic()
    with world.proxied() as proxy:
        network = BrokenNetwork(proxy, seed)
        history = broken_race(proxy, control, source, network, rounds)
    found = violations(history)
    claims = Counter(each.claim for each in history.attempts)
    print(
        f"{rounds} rounds with seed {seed}, {time.monotonic() - started:.0f} s: {len(history.writes):,} events,"
        f" {claims[Claim.EMITTED]:,} corrections emitted, {claims[Claim.DROPPED]:,} dropped,"
        f" {claims[Claim.UNKNOWN]:,} times unknown at first; {network.happened.total():,} disturbances,"
        f" {network.delivered:,} requests delivered late"
    )
    print(dict(sorted(network.happened.items())))
    print({breach.value: many for breach, many in Counter(each.breach for each in found).items()} or "no violations")
    for each in found[:20]:
        print(each)
    return not found and claims[Claim.EMITTED] > 0


if __name__ == "__main__":
    sys.exit(main())
