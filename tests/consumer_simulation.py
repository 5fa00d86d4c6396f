"""A topic, a group of members and a drain, simulated in one thread around the real processor and the real drain.

Whatever may happen at once in real life happens here within a step of somebody else: a process is held just there,
others go on, and then it goes on too, or never. The world checks what was promised after each step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from reconcile.consumer.drain import Drain
from reconcile.consumer.errors import DrainHeldError
from reconcile.consumer.message import Message, RecordPlace
from reconcile.consumer.policy import Stash, Terms
from reconcile.consumer.processor import Done, Fenced, Processor, Result, Waits
from reconcile.consumer.reading import Reading
from reconcile.consumer.store import HeldPartition
from tests.consumer_memory import Database, Handle, MemoryStash, MemoryStore

TOPIC, GROUP = "accounts", "service"
PARTITION_OF = {"ann": 0, "bob": 0, "zoe": 1}
MEMBERS = 3
READING = Reading(TOPIC, version="header:version", event_id="header:event-id")
_SETTLES = 200
"""Rounds after which what has not settled never will."""


class Violation(AssertionError):  # noqa: N818 - it is what the model looks for
    """Raised where a promise was broken."""


class CrashError(BaseException):
    """Ends a process where it stands."""


class PoisonError(Exception):
    """A failure of one message."""


@dataclass(frozen=True)
class Incident:
    """What happens when a process has passed so many named steps, since the last incident."""

    after: int
    what: str
    who: int = 0
    much: int = 0


class Member:
    """One member, as its loop in `member.py` behaves; what it believes of the group may be long out of date."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.start()

    def start(self) -> None:
        """Begin anew: nothing is remembered."""
        self.positions: dict[int, int] = {}
        self.stored: dict[int, int] = {}
        self.held: dict[int, HeldPartition] = {}
        self.store = self.world.store(self.world.database, GROUP)
        self.store.register(self.world.terms, TOPIC)
        self.processor = Processor(self.store, self.world.handle, GROUP, self.world.terms, at=self.world.at)

    def assigned(self, partition: int) -> None:
        """Hear that a partition is this member's, from where the group has committed."""
        self.forget(partition)
        self.positions[partition] = self.world.committed[partition]

    def forget(self, partition: int) -> None:
        """Hear that a partition is another's."""
        for known in (self.positions, self.stored, self.held):
            known.pop(partition, None)
        self.processor.forget(TOPIC, partition)

    def commit(self) -> None:
        """Commit what is done with, where the group lets it."""
        for partition, offset in self.stored.items():
            self.world.commit(self, partition, offset)

    def step(self, partition: int) -> None:
        """Process the next message of a partition, if it believes to have it."""
        for message in self._ready(partition, 1):
            self._process(partition, message)

    def batch(self, partition: int, most: int) -> None:
        """Process so many messages of a partition in one transaction, or one by one where that fails."""
        ready = self._ready(partition, most)
        results = self.processor.process_all(ready, [self.held[partition]] * len(ready)) if len(ready) > 1 else None
        if results is None:
            for _ in ready:
                self.step(partition)
            return
        for message, result in zip(ready, results, strict=True):
            self._settle(partition, message, result)

    def _ready(self, partition: int, most: int) -> list[Message]:
        """Find the next messages of a partition that it may process."""
        position = self.positions.get(partition)
        if position is None or position >= len(self.world.log[partition]):
            return []
        if partition not in self.held and not self._claim(partition, position):
            return []
        return self.world.log[partition][position : position + most]

    def _claim(self, partition: int, position: int) -> bool:
        if not self.world.commit(self, partition, position):
            return False
        self.world.at("acknowledged")
        epoch = self.store.claim(GROUP, TOPIC, partition)
        self.world.at("claimed")
        if not self.world.commit(self, partition, position):
            return False
        self.held[partition] = HeldPartition(GROUP, TOPIC, partition, epoch)
        return True

    def _process(self, partition: int, message: Message) -> None:
        result: Result = Waits(0)
        for _ in range(self.world.terms.retries_at_once + 2):
            result = self.processor.process(message, self.held[partition])
            if result != Waits(0):
                break
        self._settle(partition, message, result)

    def _settle(self, partition: int, message: Message, result: Result) -> None:
        if isinstance(result, Done):
            self.positions[partition] = self.stored[partition] = message.place.offset + 1
        elif isinstance(result, Fenced):
            self.held.pop(partition, None)


@dataclass
class World:
    """All that there is, and who believes what of it."""

    terms: Terms
    store: type[MemoryStore] = MemoryStore
    member: type[Member] = Member
    stash: type[MemoryStash] = MemoryStash
    database: Database = field(default_factory=Database)
    log: dict[int, list[Message]] = field(default_factory=lambda: {each: [] for each in set(PARTITION_OF.values())})
    owner: dict[int, Member | None] = field(default_factory=dict)
    committed: Counter[int] = field(default_factory=Counter)
    source: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTITION_OF, 0))
    """How often each aggregate was changed: its events are 1, 2, 3 and so on."""
    poison: set[str] = field(default_factory=set)
    """Events whose handler fails by itself."""
    outage: int = 0
    """How many more calls of the handler fail, whatever the message."""
    incidents: list[Incident] = field(default_factory=list)
    acting: Member | None = None
    """Whose process is at work, where it is a member's."""
    partition: int = 0
    """The partition that it works on."""
    members: list[Member] = field(default_factory=list)
    drains: list[MemoryStash] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.members = [self.member(self, number) for number in range(MEMBERS)]
        for partition in self.log:
            self.assign(partition, self.members[partition], clean=True)

    # The source, and what may go wrong

    def publish(self, aggregate: str, *, fails: bool = False) -> None:
        """Change an aggregate, and publish the event; it may be one that fails until it is repaired."""
        self.source[aggregate] += 1
        if fails:
            self.poison.add(f"{aggregate}-{self.source[aggregate]}")
        self._append(aggregate, self.source[aggregate])

    def duplicate(self, partition: int, back: int) -> None:
        """Publish one of the last events once more, as a producer does that was not answered."""
        log = self.log[partition]
        if log:
            again = log[max(len(log) - back, 0)]
            self._append(str(again.aggregate_id), int(again.value or b""))

    def _append(self, aggregate: str, number: int) -> None:
        partition = PARTITION_OF[aggregate]
        place = RecordPlace(TOPIC, partition, len(self.log[partition]))
        headers = (("event-id", f"{aggregate}-{number}".encode()), ("version", str(number).encode()))
        message = READING.read(place, place, aggregate.encode(), str(number).encode(), headers, None)
        self.log[partition].append(message)

    def repair(self) -> None:
        """Let all that failed by itself succeed from now on."""
        self.poison.clear()

    def handle(self, messages: Sequence[Message], handle: Handle) -> None:
        """Keep the copy."""
        for message in messages:
            handle.put(str(message.aggregate_id), (message.value or b"").decode())
            if self.outage:
                self.outage -= 1
                raise ConnectionError("an outage")
            if message.event_id in self.poison:
                raise PoisonError

    # The group

    def assign(self, partition: int, member: Member, *, clean: bool) -> None:
        """Move a partition; its owner before hears of it now, or goes on as if nothing had happened."""
        before = self.owner.get(partition)
        if before is not None and before is not member and clean:
            before.commit()
            before.forget(partition)
        self.owner[partition] = member
        member.assigned(partition)

    def commit(self, member: Member, partition: int, offset: int) -> bool:
        """Keep a group's offset; refuse a member whose partition has moved."""
        if self.owner[partition] is not member:
            return False
        self.committed[partition] = offset
        return True

    def hear(self, member: Member) -> None:
        """Let a member hear what it has lost."""
        for partition in [each for each in member.positions if self.owner[each] is not member]:
            member.forget(partition)

    def crash(self, member: Member) -> None:
        """Let a process die; a new one begins with nothing."""
        for partition, owner in self.owner.items():
            if owner is member:
                self.owner[partition] = None
        member.start()

    # What happens

    def process(
        self, partition: int, who: int, many: int = 1, incidents: Sequence[Incident] = (), *, batch: bool = False
    ) -> None:
        """Let one of those that believe to have a partition process messages, and something happen meanwhile."""
        believers = [each for each in self.members if partition in each.positions]
        if not believers:
            return
        member = believers[who % len(believers)]
        self.incidents, self.acting, self.partition = list(incidents), member, partition
        try:
            if batch:
                member.batch(partition, many)
            else:
                for _ in range(many):
                    member.step(partition)
        except CrashError:
            self.crash(member)
        self.incidents, self.acting = [], None

    def drain(self, incidents: Sequence[Incident] = ()) -> None:
        """Drain the stash, as far as that goes, and let something happen meanwhile."""
        stash = self.stash(self.store(self.database, GROUP))
        going = [True]

        def wait(_seconds: float) -> None:
            going.clear()

        drain = Drain(stash, self.handle, READING, GROUP, self.terms, wait=wait, at=self.at)
        self.incidents = list(incidents)
        self.drains.append(stash)
        with suppress(CrashError, DrainHeldError):
            drain.run(going=lambda: bool(going))
        self.drains.remove(stash)
        self.incidents = []

    def at(self, _step: str) -> None:
        """Let happen what is to happen at this step of whoever is at work."""
        if not self.incidents:
            return
        now, *later = self.incidents
        if now.after > 0:
            self.incidents = [replace(now, after=now.after - 1), *later]
            return
        self.incidents = []
        self._strike(now)
        self.incidents = later

    def _strike(self, now: Incident) -> None:
        if now.what == "crash":
            for stash in self.drains[-1:]:
                stash.lives = False
            raise CrashError
        if now.what in ("kept", "lost"):
            self.database.next_commit = "kept" if now.what == "kept" else "lost"
        elif now.what == "repaired":
            self.repair()
        elif now.what == "drained":
            self._meanwhile(self.drain)
        elif now.what == "drain expired":
            for stash in self.drains[-1:]:
                stash.expired = True
            self._meanwhile(self.drain)
        elif now.what == "moved":
            self._meanwhile(lambda: self._move(now))

    def _move(self, now: Incident) -> None:
        """Move the partition to another member, which processes some messages and commits them."""
        others = [each for each in self.members if each is not self.acting]
        other = others[now.who % len(others)]
        partition = self.partition if self.acting is not None else now.much % len(self.log)
        self.assign(partition, other, clean=False)
        for _ in range(now.much):
            other.step(partition)
        if now.much > 1:
            other.commit()

    def _meanwhile(self, happens: Callable[[], object]) -> None:
        fault, self.database.next_commit = self.database.next_commit, None
        acting = self.acting
        happens()
        self.database.next_commit, self.acting = fault, acting

    # What was promised

    def check(self) -> None:
        """Raise Violation where a promise is broken now."""
        tables = self.database.tables(GROUP)
        for aggregate in self.source:
            applied = [int(value or "") for id_, value in tables.applied if id_ == aggregate]
            stashed = [int(each.value or b"") for each in tables.stash.values() if each.aggregate_id == aggregate]
            self._check_order(aggregate, applied, stashed)
            blocked = tables.blocked.get(aggregate, (None, None))[1]
            if len(stashed) != (blocked or 0):
                raise Violation(f"{aggregate}: {len(stashed)} messages are stashed, and its block says {blocked}")
            self._check_kept(aggregate, applied[-1] if applied else 0, stashed)

    def _check_order(self, aggregate: str, applied: list[int], stashed: list[int]) -> None:
        if not self._exactly_once:
            reached = 0
            for number in applied:
                if number > reached + 1:
                    raise Violation(f"{aggregate}: {number} was applied before {reached + 1}: {applied}")
                reached = max(reached, number)
            return
        queued = list(dict.fromkeys(number for number in stashed if number not in applied))
        if applied + queued != list(range(1, len(applied + queued) + 1)):
            raise Violation(f"{aggregate}: applied {applied}, and stashed {stashed}: that is not the log's order")

    @property
    def _exactly_once(self) -> bool:
        return self.terms.ledger or self.terms.guard == "newer"

    def _check_kept(self, aggregate: str, reached: int, stashed: list[int]) -> None:
        partition = PARTITION_OF[aggregate]
        for message in self.log[partition][: self.committed[partition]]:
            number = int(message.value or b"")
            if message.aggregate_id == aggregate and number > reached and number not in stashed:
                raise Violation(f"{message.event_id} is committed, and neither in the copy nor in the stash")

    def settle(self) -> None:
        """End all faults, process and drain all; raise Violation where the copy does not end as its source is."""
        self.repair()
        self.outage, self.database.next_commit = 0, None
        for member in self.members:
            self.hear(member)
        for partition, owner in self.owner.items():
            if owner is None:
                self.assign(partition, self.members[0], clean=True)
        for _ in range(_SETTLES):
            if self._is_settled():
                break
            for partition, owner in self.owner.items():
                assert owner is not None
                owner.step(partition)
            if isinstance(self.terms.policy, Stash):
                self.drain()
            self.check()
        self.check()
        expected = {id_: str(number) for id_, number in self.source.items() if number}
        copy = self.database.tables(GROUP).copy
        if not self._is_settled() or copy != expected:
            raise Violation(f"in the end the copy is {copy}, and its source {expected}")

    def _is_settled(self) -> bool:
        read = {each: owner.positions[each] for each, owner in self.owner.items() if owner is not None}
        return read == {each: len(log) for each, log in self.log.items()} and not self.database.tables(GROUP).blocked
