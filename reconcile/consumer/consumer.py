"""The consumer that a service runs: its group, its policy, its store and its handler, put together."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconcile.consumer.alerts import Alerts, Hooks
from reconcile.consumer.backlog import BacklogWatch
from reconcile.consumer.damaged import DamagedMessages
from reconcile.consumer.dead_letters import DeadLetters
from reconcile.consumer.dependency import Dependency, Precedence
from reconcile.consumer.drain import Drain, Drained
from reconcile.consumer.errors import PolicyRefusedError
from reconcile.consumer.handling import AnyHandler, handled
from reconcile.consumer.member import CLUSTER, Member, of_the_cluster
from reconcile.consumer.observer import Observer
from reconcile.consumer.outbox import OutboxSender
from reconcile.consumer.policy import Policy, RetryTopics, Terms
from reconcile.consumer.postgres import LibraryStore, migrate
from reconcile.consumer.postgres_stash import PostgresStash
from reconcile.consumer.processor import At, Handler, Processor, nowhere
from reconcile.consumer.pruning import Pruned, ReplayWindow, prune
from reconcile.consumer.reading import Decode, Reading
from reconcile.consumer.recovery import Recovery
from reconcile.consumer.webhook import Webhook
from reconcile.errors import RefusedError
from reconcile.kafka.client import ClusterClient
from reconcile.settings import urls

if TYPE_CHECKING:
    from reconcile.settings.settings import Settings

_CLASSIC: Mapping[str, Any] = {"partition.assignment.strategy": "cooperative-sticky"}
_FIXED: Mapping[str, Any] = {
    "enable.auto.commit": True,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.commit.interval.ms": 1000,
    "auto.offset.reset": "error",
    "log_level": 0,
}
_TO_ALERT = 10.0
"""Seconds that a consumer which ends waits for its last alerts to be sent."""


@dataclass(frozen=True)
class Postgres:
    """A consumer's store: a Postgres that has the library's tables."""

    url: str | urls.PostgresUrl = field(repr=False)
    """`postgresql://user:password@host:port/database`."""

    def __post_init__(self) -> None:
        self.address()

    def address(self) -> urls.PostgresUrl:
        """Parse the URL; raise ValueError that says what is wrong with it, and repeats nothing of it."""
        return self.url if isinstance(self.url, urls.PostgresUrl) else urls.parse(self.url)

    def connect(self, group: str, owner: str, patience: float) -> LibraryStore:
        """Build the store as one group uses it, in one thread."""
        return LibraryStore(self.address(), group, owner=owner, patience=patience)


class Consumer:
    """A consumer of one topic; `run` consumes until it is stopped, in as many processes as the group has members."""

    def __init__(
        self,
        *,
        topic: str | Reading,
        group: str,
        policy: Policy,
        store: Postgres,
        handler: AnyHandler,
        kafka: Mapping[str, Any],
        semantics: str = "state",
        guard: str = "none",
        ledger: bool = True,
        recovery: Recovery | None = None,
        hooks: Hooks | None = None,
        start: str = "earliest",
        batch: int = 1,
        terms: Terms | None = None,
        metrics: Observer | None = None,
        depends_on: Sequence[str | Dependency] = (),
        at: At = nowhere,
    ) -> None:
        """Check what is asked for; nothing is connected yet. `kafka` are librdkafka's options."""
        self.reading = topic if isinstance(topic, Reading) else Reading(topic)
        self.group = group
        self.terms = terms or Terms(policy, semantics=semantics, guard=guard, ledger=ledger)
        self._store = store
        self._handler = handler
        self._kafka = dict(kafka)
        self._recovery = recovery or Recovery()
        hooks = hooks or Hooks()
        self._webhook = None if hooks.webhook is None else Webhook(hooks.webhook)
        self._alerts = Alerts(hooks, group, metrics, self._webhook)
        self._observer = metrics
        self._depends_on = [each if isinstance(each, Dependency) else Dependency(each) for each in depends_on]
        if group in [each.group for each in self._depends_on if each.where is None]:
            raise RefusedError(f"the group {group} cannot wait for itself: take it out of depends_on")
        if start not in ("earliest", "latest"):
            raise RefusedError(f"start: {start!r} is not valid: write earliest, latest")
        if self.terms.guard != "none" and self.reading.version is None:
            raise RefusedError(
                f"guard: {self.terms.guard} compares the events' versions: say where an event carries its own, as in"
                ' `topic=Reading("accounts", version="$.version")`'
            )
        self._start = start
        self._batch = batch
        self._at = at
        self._going = threading.Event()
        self._stopped = threading.Event()
        self._failures: list[BaseException] = []
        if self._kafka.get("group.protocol") == "share":
            raise PolicyRefusedError(_against_share_groups(self.terms.semantics))

    @classmethod
    def from_contract(
        cls,
        contract: str | Path,
        consumer: str,
        handler: AnyHandler,
        *,
        settings: str | Path | Settings | None = None,
        decode: Decode | None = None,
        **changes: Any,
    ) -> Consumer:
        """Build a consumer as the contract's file declares it, with the connections of the settings.

        `changes` are arguments of `Consumer`, or fields of `Terms`, and win over the contract; the options in `kafka`
        are added to the cluster's. `decode` reads values that are no JSON.
        """
        from reconcile.consumer.declared import declare  # its models take a moment to load

        said = declare(Path(contract), consumer, settings, decode)
        terms = said.terms({each.name: changes.pop(each.name) for each in fields(Terms) if each.name in changes})
        hooks = changes.pop("hooks", None) or Hooks()
        arguments = {
            "topic": said.reading,
            "group": said.group,
            "store": Postgres(said.store),
            "depends_on": said.depends_on,
            "hooks": replace(hooks, webhook=hooks.webhook or said.webhook),
            **changes,
        }
        kafka = {**said.kafka, **changes.get("kafka", {})}
        return cls(**{**arguments, "policy": terms.policy, "terms": terms, "handler": handler, "kafka": kafka})

    def migrate(self) -> list[str]:
        """Create or change the library's tables in the consumer's store; return the names of what was applied.

        Raises UnreachableError where the store does not answer, RefusedError where the account may not do it.
        """
        return migrate(self._store.address())

    def run(self) -> None:
        """Consume until SIGTERM, SIGINT or `stop`; raise what a person has to look at."""
        self._going.set()
        self._failures.clear()
        with self._stopping_on_signals(), self._handling() as handler:
            sender = self._sender()
            members = [self._member(group, topics, handler, sender) for group, topics in self._groups().items()]
            sending = threading.Event()
            sending.set()
            beside = [self._thread(sender.run, sending)]
            wakes = [sender.wake]
            if self._observer is not None:
                watch = BacklogWatch(self._observer, self._connect, of_the_cluster(self._kafka), self._groups())
                beside.append(self._thread(watch.run, sending))
                wakes.append(watch.wake)
            others = [self._thread(member, self._going) for member in members[1:]]
            try:
                members[0](self._going)
            except BaseException as error:  # noqa: BLE001 - it is raised once all threads have ended
                self._failures.insert(0, error)
            self._going.clear()
            for each in others:
                each.join()
            sending.clear()
            for wake in wakes:
                wake.set()
            for each in beside:
                each.join()
        if self._failures:
            raise self._failures[0]

    def drain(self, ids: Sequence[str] | None = None) -> Drained:
        """Apply what is stashed, of all aggregates or of some; also while members of the group run.

        Raises DrainHeldError while another drain lives, and AnotherPolicyError where the group's members compare
        versions in another way. `stop` ends it after the message that is being processed.
        """
        self._going.set()
        self._stopped.clear()
        with self._stopping_on_signals(), self._handling() as handler, self.stash() as stash:
            stash.require_guard(self.terms.guard)
            drain = Drain(
                stash,
                handler,
                self.reading,
                self.group,
                self.terms,
                self._recovery,
                self._alerts,
                wait=self._stopped.wait,
                at=self._at,
            )
            return drain.run(ids, self._going.is_set)

    def stop(self) -> None:
        """End `run` or `drain` after the message that is being processed, from any thread."""
        self._going.clear()
        self._stopped.set()

    @contextmanager
    def stash(self) -> Iterator[PostgresStash]:
        """Open what the consumer has stashed."""
        with closing(self._connect()) as store:
            yield PostgresStash(store)

    @contextmanager
    def damaged(self) -> Iterator[DamagedMessages]:
        """Open the register of damaged messages."""
        with closing(self._connect()) as store:
            yield DamagedMessages(store, of_the_cluster(self._kafka), self.reading.topic)

    def prune(self, keep: timedelta | None = None, *, dry: bool = False) -> tuple[Pruned, ReplayWindow]:
        """Delete rows of the ledger that nothing can ask for any more; left out, `keep` is as long as it has to be.

        Raises ReplayWindowError where that would forget what may be read again.
        """
        with closing(self._connect()) as store:
            with closing(ClusterClient(CLUSTER, of_the_cluster(self._kafka))) as cluster:
                window = ReplayWindow.of(cluster, self.reading.topic, self._groups(), self.group)
            given_up = [] if self.terms.dead_letter is None else self.dead_letters().read()
            ids = sorted({each.message.aggregate_id for each in given_up if each.message.aggregate_id is not None})
            keep = window.longest if keep is None else keep
            return prune(store, window, ids, keep, dry=dry), window

    def dead_letters(self) -> DeadLetters:
        """Build what reads the consumer's dead letters; raise RefusedError where its policy has none."""
        if self.terms.dead_letter is None:
            raise RefusedError(
                f"the group {self.group} has no dead-letter topic: its policy is {self.terms.policy.name}"
            )
        return DeadLetters(of_the_cluster(self._kafka), self.terms.dead_letter, self.group, self.reading)

    @contextmanager
    def _handling(self) -> Iterator[Handler]:
        """Make the handler as it is called, and end what it took once all is done."""
        with ExitStack() as ends:
            if self._webhook is not None:
                ends.callback(self._webhook.settle, _TO_ALERT)
            check = None
            if self._depends_on:
                precedence = Precedence(self._depends_on, of_the_cluster(self._kafka), self._alerts)
                check = ends.enter_context(closing(precedence)).check
            yield ends.enter_context(handled(self._handler, check))

    def _groups(self) -> dict[str, list[str]]:
        """The groups that read for this consumer, each with its topics: the main one, and those of retry topics."""
        groups = {self.group: [self.reading.topic]}
        if isinstance(self.terms.policy, RetryTopics):
            for each in self.terms.policy.topics:
                groups.setdefault(each.group or self.group, []).append(each.topic)
        return groups

    def _member(
        self, group: str, topics: list[str], handler: Handler, sender: OutboxSender
    ) -> Callable[[threading.Event], None]:
        def run(going: threading.Event) -> None:
            store = self._connect()
            try:
                store.register(self.terms, self.reading.topic)
                processor = Processor(
                    store,
                    handler,
                    self.group,
                    self.terms,
                    self._recovery,
                    self._alerts,
                    at=self._at,
                    on_outgoing=sender.wake.set,
                )
                options = self._options(group)
                member = Member(
                    options,
                    topics,
                    processor,
                    self.reading,
                    start=self._start,
                    batch=self._batch,
                    observer=self._observer,
                )
                member.run(going)
            finally:
                store.close()

        return run

    def _sender(self) -> OutboxSender:
        return OutboxSender({**of_the_cluster(self._kafka), "log_level": 0}, self._connect(), self._recovery)

    def _connect(self) -> LibraryStore:
        owner = f"{socket.gethostname()}/{os.getpid()}"
        return self._store.connect(self.group, owner, float(self._options(self.group)["max.poll.interval.ms"]) / 1000)

    def _options(self, group: str) -> dict[str, Any]:
        classic = self._kafka.get("group.protocol", "classic") == "classic"
        usual = {"max.poll.interval.ms": 300_000, **(_CLASSIC if classic else {})}
        return {**usual, **self._kafka, **_FIXED, "group.id": group}

    def _thread(self, run: Callable[[threading.Event], None], going: threading.Event) -> threading.Thread:
        def guarded() -> None:
            try:
                run(going)
            except BaseException as error:  # noqa: BLE001 - it is raised by `run`, in the caller's thread
                self._failures.append(error)
                self._going.clear()

        started = threading.Thread(target=guarded, daemon=True)
        started.start()
        return started

    @contextmanager
    def _stopping_on_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(_number: int, _frame: Any) -> None:
            self.stop()

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _against_share_groups(semantics: str) -> str:
    if semantics == "records":
        return "a share group commits no offsets, by which this library works: use group.protocol classic or consumer"
    return (
        "a share group hands an aggregate's events to several members at once, in no order, so a copy of state would"
        " end up wrong, silently: use group.protocol classic or consumer"
    )
