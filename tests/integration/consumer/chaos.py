"""A consumer in processes that die and stand still, on servers and a network that fail; its choices are of a seed."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from reconcile.consumer.drain import Drained
from reconcile.consumer.policy import Block, Stash
from reconcile.lab.kafka import Kafka
from reconcile.lab.postgres import PostgresServer
from reconcile.lab.proxy import Api, FaultProxy
from reconcile.lab.relay import Disturbance
from reconcile.lab.statements import Statement
from tests.integration.consumer.processes import MemberProcess, members_in
from tests.integration.consumer.world import PATIENCE, PROXIED, Scenario, World, sequence_oracle, until
from tests.integration.runs import Runs, findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 6
MEMBERS = 3
IDS = 200
TOGETHER = 20
"""How many events are published at a time, ten times a second."""
_SERVERS = {"broker", "database"}
_WANTED = (
    *("killed", "stopped", "woken late", "ended", "joined", "database severed", "broker severed", "commits severed"),
    *_SERVERS,
)
"""What has to happen at least once; of a server, that it is restarted or dies."""
_TO_GO_ON = 3.0
"""Seconds for which the next disturbance waits for members to apply something; all of them may stand still."""
_GIVE_UP = 6 * PATIENCE
"""Seconds after which what has not happened by itself never will."""
_COMMIT = ";commit"
_APIS = (Api.FETCH, Api.OFFSET_COMMIT, Api.HEARTBEAT, Api.JOIN_GROUP, Api.SYNC_GROUP, Api.OFFSET_FETCH, Api.METADATA)


@dataclass
class Source:
    """Publishes events of random ids until it is stopped: each has the next version, some delete."""

    scenario: Scenario
    chance: Random
    versions: Counter[str] = field(default_factory=Counter)
    names: dict[str, str | None] = field(default_factory=dict)
    """What each id is called now; None for one that is deleted."""
    _stopped: threading.Event = field(default_factory=threading.Event)
    _failures: list[BaseException] = field(default_factory=list)

    def __enter__(self) -> Source:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(4 * PATIENCE)
        if self._failures:
            raise self._failures[0]

    def _run(self) -> None:
        try:
            while not self._stopped.wait(0.1):
                self.scenario.publish(*[self._event() for _ in range(TOGETHER)], patience=4 * PATIENCE)
        except BaseException as error:  # noqa: BLE001 - it is raised in the test's thread
            self._failures.append(error)

    def _event(self) -> tuple[str, int, str | None]:
        key = f"user-{self.chance.randrange(IDS)}"
        self.versions[key] += 1
        version = self.versions[key]
        self.names[key] = None if self.chance.random() < 0.03 else f"{key} in its version {version}"
        return key, version, self.names[key]


@dataclass(frozen=True)
class Judgement:
    """What is wrong after all, and what had happened."""

    scenario: Scenario
    source: Source
    damage: list[str]
    happened: Counter[str]


@dataclass
class Chaos:
    """Lets things happen to members of one group, heals, drains, and judges.

    It goes on for some seconds, and then until everything has happened at least once to a member that was at work.
    """

    world: World
    folder: Path
    seconds: float
    seed: int = 1
    policy: str = "stash"
    protocol: str = "classic"
    restarts_every: float = 20.0
    happened: Counter[str] = field(default_factory=Counter)

    def run(self) -> Judgement:
        """Run it all."""
        self._chance = Random(self.seed)  # noqa: S311
        self._scenario = self.world.scenario(PARTITIONS)
        self._unexpected: list[str] = []
        self._at_commits: list[Disturbance[Statement]] = []
        self._restarted = 0
        self._had: dict[MemberProcess, set[int]] = {}
        with (
            members_in(self.folder) as self._members,
            self.world.severing() as self._database,
            FaultProxy(PROXIED.proxy, PROXIED.port) as self._network,
        ):
            with Source(self._scenario, Random(self.seed)) as source:  # noqa: S311
                self._disturb()
                self._heal()
            self._finish()
        damage = [*self._unexpected, *sequence_oracle(self._scenario), *self._different(source), *self._unnoted()]
        return Judgement(self._scenario, source, damage, self.happened)

    def _disturb(self) -> None:
        started = restarted = time.monotonic()
        actions: list[Callable[[], None]] = [
            self._kill, self._stop, self._stop, self._wake, self._wake, self._wake, self._end, self._join,
            self._sever, self._sever, self._sever, self._break, self._break, self._drain, self._drain,
        ]  # fmt: skip
        while (passed := time.monotonic() - started) < self.seconds or self.lacking():
            if passed > self.seconds + _GIVE_UP:
                self._unexpected.append(f"in {passed:.0f} s there never were: {', '.join(sorted(self.lacking()))}")
                return
            self._supervise()
            is_due = time.monotonic() - restarted > self.restarts_every
            if is_due and (passed < self.seconds or self.lacking() & _SERVERS):
                self._restart()
                restarted = time.monotonic()
            applied = self._applied()
            self._chance.choice(actions)()
            self.happened["commits severed"] = sum(len(each.met) for each in self._at_commits)
            time.sleep(self._chance.uniform(0.05, 0.4))
            # On a busy machine members would be disturbed before they did anything.
            self._until_applied(applied)

    def _applied(self) -> int:
        return int(self._scenario.rows("select coalesce(max(number), 0) from applied")[0][0])

    def _until_applied(self, before: int) -> None:
        with suppress(AssertionError):
            until(lambda: self._applied() > before, seconds=_TO_GO_ON)

    def lacking(self) -> set[str]:
        """What has not happened yet."""
        wanted = {*_WANTED, *(["drains"] if self.policy == "stash" else [])}
        down = {name.split()[0] for name in self.happened if name.endswith(("died", "restarted"))}
        return wanted - {what for what, often in self.happened.items() if often} - down

    def _partitions(self, member: MemberProcess) -> set[int]:
        """Query what a member holds, as the fence says."""
        query = "select partition from reconcile.fence where split_part(owner, '/', 2) = %s"
        return {partition for (partition,) in self._scenario.rows(query, str(member.pid))}

    def _note(self, what: str, member: MemberProcess) -> None:
        """Count what happens to a member; to one that has nothing to do it proves little."""
        self.happened[what if self._partitions(member) else f"{what} idle"] += 1

    def _supervise(self) -> None:
        """Start members anew that have ended, as an orchestrator does; note those that should not have."""
        for each in [each for each in self._members.started if each.is_dead]:
            self._bury(each)
        while sum(not each.plan.drains for each in self._members.started) < MEMBERS:
            self._start()

    def _bury(self, member: MemberProcess) -> None:
        self._members.started.remove(member)
        expected = (0, -signal.SIGKILL, -signal.SIGTERM)
        if member.exit_code in expected or any(name in member.last_words for name in ("Unreachable", "DrainHeld")):
            return
        self._unexpected.append(f"{member.plan.log} ended with {member.exit_code}: {member.last_words}")

    def _start(self, *, drains: bool = False) -> MemberProcess:
        how = self._chance.choice(["", "", "SIGKILL", "SIGSTOP"])
        return self._members.start(
            self._scenario,
            self.protocol,
            url=self._scenario.severable_url,
            kafka={"bootstrap.servers": self._network.bootstrap},
            policy=self.policy,
            seed=self._chance.randrange(1 << 30),
            nth=self._chance.randrange(1, 60 if drains else 2000),
            how=how,
            batch=self._chance.choice([1, 20]),
            drains=drains,
        )

    def _any(self) -> MemberProcess:
        """Choose a member, half of the time one that is at work."""
        at_work = [each for each in self._members.started if self._partitions(each)]
        return self._chance.choice(at_work if at_work and self._chance.random() < 0.5 else self._members.started)

    def _kill(self) -> None:
        victim = self._any()
        self._note("killed", victim)
        victim.send(signal.SIGKILL)

    def _stop(self) -> None:
        if awake := [each for each in self._members.started if not each.is_stopped]:
            victim = self._chance.choice(awake)
            self._note("stopped", victim)
            victim.send(signal.SIGSTOP)
            self._had[victim] = self._partitions(victim)

    def _wake(self) -> None:
        stopped = [each for each in self._members.started if each.is_stopped]
        if stopped and self._chance.random() < 0.5:
            sleeper = self._chance.choice(stopped)
            late = bool(self._had.get(sleeper, set()) - self._partitions(sleeper))
            if late or "woken late" not in self.lacking():
                self.happened["woken late" if late else "woken"] += 1
                sleeper.send(signal.SIGCONT)

    def _end(self) -> None:
        victim = self._any()
        self._note("ended", victim)
        victim.send(signal.SIGTERM)

    def _join(self) -> None:
        if len(self._members.started) < MEMBERS + 2:
            self.happened["joined"] += 1
            self._start()

    def _drain(self) -> None:
        if self.policy == "stash" and not any(each.plan.drains for each in self._members.started):
            self.happened["drains"] += 1
            self._start(drains=True)

    def _sever(self) -> None:
        """Break connections to the database: around a commit, anywhere, or all."""
        self._database.forget_rules()
        nth = self._chance.randrange(1, 10)
        match self._chance.choice(["before", "after", "after", "held", "anywhere", "all"]):
            case "before":
                self._at_commits.append(self._database.when(_COMMIT, nth=nth).sever())
            case "after":
                self._at_commits.append(self._database.when_answered(_COMMIT, nth=nth).sever())
            case "held":
                self._at_commits.append(self._database.when(_COMMIT, nth=nth).hold())
            case "anywhere":
                self._database.when("", nth=nth).sever()
            case _:
                self._database.sever_all()
        self.happened["database severed"] += 1

    def _break(self) -> None:
        """Break connections to the broker, at any request or its answer."""
        self._network.forget_rules()
        api, nth = self._chance.choice(_APIS), self._chance.randrange(1, 6)
        when = self._chance.choice([self._network.when, self._network.when_answered])(api, nth=nth)
        if self._chance.random() < 0.3:
            when.delay(self._chance.uniform(0.05, 1.0))
        else:
            when.sever()
        self.happened["broker severed"] += 1

    def _restart(self) -> None:
        name = ("broker", "database")[self._restarted % 2]
        server: Kafka | PostgresServer = self.world.kafka if name == "broker" else self.world.postgres
        self._restarted += 1
        died = self._chance.random() < 0.5
        self.happened[f"{name} {'died' if died else 'restarted'}"] += 1
        if died:
            server.kill()
        else:
            server.down()
        server.up()

    def _heal(self) -> None:
        """Let everything pass, and end all that was disturbed."""
        self._database.forget_rules()
        self._network.forget_rules()
        for each in [*self._members.started]:
            each.end()
            self._bury(each)

    def _finish(self) -> None:
        """Consume and drain what is left, without any failure."""
        policy = Stash() if self.policy == "stash" else Block()
        with self._scenario.running(self._scenario.consumer(policy)):
            self._scenario.until_consumed(2 * PATIENCE)
            if self.policy == "stash":
                drained: Drained = self._scenario.consumer(policy).drain()
                self.happened["drained at the end"] = drained.applied
        if self._scenario.stashed():
            self._unexpected.append(f"{len(self._scenario.stashed())} messages are still stashed")

    def _different(self, source: Source) -> list[str]:
        """Compare the copy with what the source has."""
        there = {key: name for key, name in source.names.items() if name is not None}
        copy = self._scenario.copy()
        return [
            f"{key}: the source has {there.get(key)!r}, the copy {copy.get(key)!r}"
            for key in sorted(there.keys() | copy.keys())
            if there.get(key) != copy.get(key)
        ]

    def _unnoted(self) -> list[str]:
        """Compare the ledger with what was applied."""
        noted = self._scenario.rows("select event_id from reconcile.ledger where outcome = 'applied' order by 1")
        applied = self._scenario.rows("select event_id from applied order by 1")
        return [] if noted == applied else [f"the ledger has {len(noted)} messages, {len(applied)} were applied"]


_CONTRACT = """
version: 1
aggregate: user
source: {{store: service, table: source, id: id, version: version}}
topic:
  cluster: main
  name: {topic}
  format: json
  key: {{type: string}}
  partitioner: crc32
  state: full
  version: header:version
  event_id: header:event-id
  delete: tombstone
  value: {{id: id, version: version, name: name}}
consumers:
  - name: service
    group: {group}
    store: service
    table: copy
    id: id
    version: version
    semantics: state
    isolation: read_committed
    guard: none
    fields:
      - {{name: name, source: name, consumer: name, event: $.name}}
    failure: {{policy: {policy}{stash}}}
    settle: {{timeout: 10s, confirm_after: 0s}}
"""

_STASH_TABLE = ", stash: {table: reconcile.stash, id: aggregate_id, partition: partition, offset: offset}"


def audited(spark: SparkSession, judged: Judgement, policy: str, folder: Path) -> list[str]:
    """Audit the copy against its source by our own means, and list what is found."""
    scenario, source = judged.scenario, judged.source
    scenario.rows("create table source (id text primary key, version bigint not null, name text not null)")
    rows = [[key, source.versions[key], name] for key, name in source.names.items() if name is not None]
    insert = "insert into source select e->>0, (e->>1)::bigint, e->>2 from jsonb_array_elements(%s::jsonb) e"
    scenario.rows(insert, json.dumps(rows))
    contract, settings = folder / "user.yaml", folder / "reconcile.yaml"
    stash = _STASH_TABLE if policy == "stash" else ""
    agreed = _CONTRACT.format(topic=scenario.topic, group=scenario.group, policy=policy, stash=stash)
    contract.write_text(agreed, "utf-8")
    (folder / "service.url").write_text(scenario.url, "utf-8")
    connections = {
        "service": {"url": f"file:{folder / 'service.url'}"},
        "main": {"bootstrap": str(scenario.world.lab.bootstrap)},
    }
    settings.write_text(json.dumps({"workspace": str(folder / "runs"), "connections": connections}), "utf-8")
    job, summary = Runs(spark, settings, folder / "runs").audited(contract, "chaos")
    whole = summary.complete and not summary.unread
    return [*([] if whole else ["the audit could not read all"]), *map(str, findings(job).values())]
