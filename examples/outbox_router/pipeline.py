"""The pipeline: a shop with an outbox, Debezium's event router, a topic, and the desk's service with its copy."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from examples.connect.source import Source
from examples.connect.trial import reconcile
from examples.connect.world import World
from examples.outbox_router.service import MODULE
from reconcile.errors import UnreachableError
from reconcile.files import committed
from reconcile.lab import process
from reconcile.lab.services import offsets
from reconcile.lab.services.database import connected
from reconcile.lab.world import provide_topics

HERE = Path(__file__).parent
CONTRACT = HERE / "contract.yaml"
SETTINGS = HERE / "reconcile.yaml"
GROUP = "desk-service"
TOPIC = "shop.order"
_SERVICE = "service"
_PARTITIONS = 3
_PATIENCE = 120


@dataclass(frozen=True)
class ServiceWorld(World):
    """The servers of the example, and the service."""

    @property
    def service_pid(self) -> int | None:
        """The service's process, None when it is down."""
        command = self._command
        return next(iter(process.find(lambda found: found.cmdline()[-len(command) :] == command)), None)

    def start_service(self) -> None:
        """Start the service."""
        folder, log = committed("README.md").parent, self.lab.root.resolve() / "service.log"
        process.started([sys.executable, *self._command], folder, log, self.service_environment())

    def stop_service(self) -> None:
        """Stop the service if it runs; afterwards its group has no member."""
        while pid := self.service_pid:
            process.end(pid, signal.SIGTERM, "the service")

    def service_environment(self) -> dict[str, str]:
        """Build what `reconcile.yaml` refers to, with the service's own account."""
        return {**self.environment(), "COPY_URL": self.lab.url("copy", _SERVICE)}

    def down(self) -> None:
        """Stop the service and every server, and leave nothing of them."""
        self.stop_service()
        super().down()

    @property
    def _command(self) -> list[str]:
        return ["-m", MODULE, str(self.folder.resolve())]  # by its folder, it is known to be ours


@dataclass(frozen=True)
class Pipeline:
    """What the service's people and the shop's do with it."""

    world: ServiceWorld

    @property
    def source(self) -> Source:
        """The shop, as Debezium publishes its outbox."""
        return Source(self.world, "shop-outbox", "shop", "shop", TOPIC)

    @property
    def copy_url(self) -> str:
        """The URL of the copy's database, for who owns it."""
        return self.world.lab.url("copy", "postgres")

    def provide(self) -> None:
        """Create databases, tables and topics, the consumer library's tables among them."""
        self.world.provide_database("shop", HERE / "shop.sql")
        self.world.provide_database("copy", HERE / "copy.sql")
        self.ask("consumer", "migrate", str(CONTRACT))
        with connected(self.copy_url) as cursor:  # once more, for the library's tables
            cursor.execute(committed("sql", "lab", "reader.sql").read_text("utf-8"))
        heartbeats = f"__debezium-heartbeat.{self.source.slot}"
        provide_topics(self.world.lab, {TOPIC: _PARTITIONS, self.source.messages: 1, heartbeats: 1})

    def config(self) -> dict[str, str]:
        """Read the committed configuration of the connector."""
        return self.world.config(HERE / "source.json")

    def await_copied(self) -> None:
        """Wait until the service is done with what the shop has committed."""
        self.source.await_published()
        bootstrap = self.world.lab.bootstrap

        def done() -> bool:
            if self.world.service_pid is None:
                raise UnreachableError(f"the service ended{process.tail(self.world.lab.root / 'service.log')}")
            return not offsets.lag(bootstrap, GROUP, TOPIC)

        process.wait_until(done, f"{GROUP} did not come to the end of {TOPIC}", _PATIENCE, every=0.1)

    def await_confirmed(self) -> None:
        """Wait until the shop's database knows that all its outbox is published."""
        query = (
            "select count(*) from outbox"
            " where lsn >= (select confirmed_flush_lsn from pg_replication_slots where slot_name = %s)"
        )

        def confirmed() -> bool:
            with connected(self.source.url) as cursor:
                cursor.execute(query, (self.source.slot,))
                return cursor.fetchone() == (0,)

        process.wait_until(confirmed, f"{self.source.connector} did not confirm what it published", _PATIENCE)

    def skip_to_end(self) -> None:
        """Move the group of the stopped service to the end of the topic."""
        offsets.commit(self.world.lab.bootstrap, GROUP, TOPIC, self.source.await_published())

    def ask(self, *arguments: str) -> None:
        """Run a command as the service's people do."""
        done = reconcile(SETTINGS, *arguments, environment=self.world.service_environment())
        if done.returncode:
            raise UnreachableError(f"reconcile {' '.join(arguments)} failed with {done.returncode}")

    def stashed(self) -> int:
        """Query how many orders are blocked by a stashed event."""
        with connected(self.copy_url) as cursor:
            cursor.execute("select count(*) from reconcile.blocked where consumer_group = %s", (GROUP,))
            (count,) = cursor.fetchone() or (0,)
            return int(count)
