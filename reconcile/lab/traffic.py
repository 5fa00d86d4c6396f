"""Live traffic: people change their accounts while the relay and all consumers run, as on a good day."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from decimal import Decimal

from reconcile.errors import ReconcileError, RefusedError
from reconcile.lab import truth
from reconcile.lab.folder import Lab
from reconcile.lab.names import DOMAINS, FIRST_NAMES, LAST_NAMES
from reconcile.lab.services.copies import SERVICES
from reconcile.lab.services.database import connect
from reconcile.lab.services.member import ServiceConsumer, stop
from reconcile.lab.services.relay import OutboxRelay, producer
from reconcile.lab.services.user import UserService
from reconcile.lab.world import require_running

_EACH_THREAD = 100  # changes a second that one command thread makes with ease
_TO_DRAIN = 60.0
_PEOPLE = 20_000


@dataclass
class Traffic:
    """What has happened so far."""

    changes: int = 0
    published: int = 0
    applied: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    drained: bool = False


def traffic(lab: Lab, rate: float, seconds: float, progress: Callable[[Traffic], None] = lambda _: None) -> Traffic:
    """Make changes at a rate for some time, then wait until every copy has them."""
    require_running(lab)
    with lab.alone("traffic"):
        state = lab.state()
        if state.seeded != "yes":
            raise RefusedError(f"the world in {lab.root} is empty: `reconcile lab seed` first")
        lab.remember(plantings=state.plantings + 1)
        return _Run(lab, rate, f"{state.seed}/{state.plantings}/traffic").run(seconds, progress)


class _Run:
    def __init__(self, lab: Lab, rate: float, seed: str) -> None:
        self._lab = lab
        self._rate = rate
        self._seed = seed
        self._seen = Traffic()
        self._lock = threading.Lock()
        self._commanding = threading.Event()
        self._publishing = threading.Event()
        self._failures: list[BaseException] = []
        self._people = _people(lab)

    def run(self, seconds: float, progress: Callable[[Traffic], None]) -> Traffic:
        members = [ServiceConsumer(self._lab.bootstrap, service, self._lab.url(service.name)) for service in SERVICES]
        commanders = max(1, round(self._rate / _EACH_THREAD))
        self._commanding.set()
        self._publishing.set()
        threads = [self._thread(member.run) for member in members]
        relay = self._thread(self._relay)
        commands = [self._thread(self._command, number, commanders) for number in range(commanders)]
        started = time.monotonic()
        try:
            while time.monotonic() < started + seconds and not self._failures:
                time.sleep(0.1)
                self._note(started, members)
                progress(self._seen)
        finally:
            self._commanding.clear()
            for thread in commands:
                thread.join()
            self._seen.seconds = time.monotonic() - started
            self._publishing.clear()  # only now: the last commands may still have been under way
            relay.join()
            self._drain(members)
            for member, thread in zip(members, threads, strict=True):
                stop(member, thread)
        self._note(started, members)
        if self._failures:
            raise ReconcileError(f"traffic stopped: {self._failures[0]}") from self._failures[0]
        return self._seen

    def _thread(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        def guarded() -> None:
            try:
                work(*arguments)
            except Exception as error:  # noqa: BLE001 - raised by the thread that waits
                self._failures.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def _note(self, started: float, members: list[ServiceConsumer]) -> None:
        self._seen.applied = {member.service.name: member.applied for member in members}
        if self._commanding.is_set():
            self._seen.seconds = time.monotonic() - started

    def _relay(self) -> None:
        with closing(connect(self._lab.url("user"))) as database:
            relay = OutboxRelay(database, producer(self._lab.bootstrap))
            while self._publishing.is_set():
                self._seen.published += relay.run()
                time.sleep(0.02)
            self._seen.published += relay.run()

    def _drain(self, members: list[ServiceConsumer]) -> None:
        deadline = time.monotonic() + _TO_DRAIN
        while not (done := all(member.caught_up() for member in members)) and time.monotonic() < deadline:
            if self._failures:
                break
            time.sleep(0.1)
        self._seen.drained = done

    def _command(self, number: int, of: int) -> None:
        dice = random.Random(f"{self._seed}/{number}")  # noqa: S311
        with ExitStack() as stack:
            user = UserService(stack.enter_context(closing(connect(self._lab.url("user")))), dice)
            mine = self._people[number::of]
            due = time.monotonic()
            while self._commanding.is_set():
                _change(user, dice, dice.choice(mine))
                with self._lock:
                    self._seen.changes += 1
                due += of / self._rate
                time.sleep(max(0.0, due - time.monotonic()))


def _people(lab: Lab) -> list[str]:
    touched = {row["aggregate_id"] for row in truth.read(lab.truth)}
    with closing(connect(lab.url("user"))) as database, database.cursor() as cursor:
        cursor.execute(
            "select a.id::text from user_account a join user_balance b on b.user_id = a.id"
            " where a.deleted_at is null order by a.id limit %s",
            (_PEOPLE + len(touched),),
        )
        found = [user_id for (user_id,) in cursor if user_id not in touched]
    if not found:
        raise RefusedError("nobody is left whom no fault has touched: seed a larger world")
    return found


def _change(user: UserService, dice: random.Random, user_id: str) -> None:
    chance = dice.random()
    if chance < 0.35:
        user.rename(user_id, dice.choice(FIRST_NAMES))
    elif chance < 0.6:
        user.change_email(user_id, f"{user.new_id()[:13]}@{dice.choice(DOMAINS)}")
    elif chance < 0.8:
        user.top_up(user_id, Decimal(dice.randrange(1, 20) * 5).quantize(Decimal("0.01")))
    elif chance < 0.85:
        user.change_tariff(user_id, dice.choice(["basic", "plus", "silver", "gold"]))
    elif chance < 0.95:
        user.sign_in(user_id)
    else:
        newcomer = user.new_id()
        user.register(newcomer, dice.choice(FIRST_NAMES), dice.choice(LAST_NAMES), f"{newcomer[:13]}@example.org")
        if chance > 0.99:
            user.close(newcomer)
