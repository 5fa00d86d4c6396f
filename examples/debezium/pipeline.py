"""One variant of the pipeline: a shop, its topic, the connectors on both sides of it, and the copy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from examples.connect.source import Source
from examples.connect.world import World
from reconcile.lab import process
from reconcile.lab.services import offsets
from reconcile.lab.world import provide_topics

HERE = Path(__file__).parent
VARIANTS = ("full", "flat")
_PARTITIONS = 3
_PATIENCE = 120


@dataclass(frozen=True)
class Pipeline:
    """A shop, Debezium's source, a topic, the JDBC sink, and a copy."""

    world: World
    variant: str

    @property
    def source(self) -> Source:
        """The shop, as Debezium publishes it."""
        name = self.variant
        return Source(self.world, f"{name}-source", f"shop_{name}", name, f"{name}.public.orders")

    @property
    def dead_letters(self) -> str:
        """The topic to which the sink copies what it cannot read."""
        return f"{self.variant}.orders.dead-letters"

    @property
    def sink(self) -> str:
        """The name of the sink's connector."""
        return f"{self.variant}-sink"

    @property
    def copy_url(self) -> str:
        """The URL of the copy's database, for who owns it."""
        return self.world.lab.url(f"copy_{self.variant}", "postgres")

    def provide(self) -> None:
        """Create databases, tables and topics."""
        self.world.provide_database(f"shop_{self.variant}", HERE / "shop.sql")
        self.world.provide_database(f"copy_{self.variant}", HERE / f"copy-{self.variant}.sql")
        wanted = {self.source.topic: _PARTITIONS, self.dead_letters: 1, self.source.messages: 1}
        provide_topics(self.world.lab, wanted)

    def config(self, connector: str) -> dict[str, str]:
        """Read the committed configuration of `source` or `sink`."""
        return self.world.config(HERE / "connectors" / f"{connector}-{self.variant}.json")

    def await_copied(self) -> None:
        """Wait until the sink has passed what the shop has committed."""
        self.source.await_published()
        bootstrap, topic = self.world.lab.bootstrap, self.source.topic
        process.wait_until(
            lambda: not offsets.lag(bootstrap, f"connect-{self.sink}", topic),
            f"{self.sink} did not come to the end of {topic}",
            _PATIENCE,
            every=0.1,
        )

    def letters(self) -> int:
        """Query how many dead letters there are."""
        return sum(offsets.ends(offsets.admin_client(self.world.lab.bootstrap), self.dead_letters).values())
