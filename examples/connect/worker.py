"""A real worker of Kafka Connect beside the lab's broker, and its REST interface."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from reconcile.errors import UnreachableError
from reconcile.lab import process
from reconcile.lab.folder import Lab, write_atomically

_MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_TO_START = 240
_PATIENCE = 120
_IN_BETWEEN = (404, 409, 500, 503)
"""What the worker answers while it starts, or while a connector moves."""


class Connect:
    """The worker, which runs every connector of the example."""

    name = "Kafka Connect"

    def __init__(self, lab: Lab, port: int, jars: Path) -> None:
        self._lab = lab
        self._port = port
        self._jars = jars
        self._folder = lab.root.resolve() / "connect"
        self._properties = self._folder / "worker.properties"
        self._log = self._folder / "worker.log"

    @property
    def pid(self) -> int | None:
        """The running worker's process, None when it is down."""
        ours = process.find(lambda found: _MAIN in (line := found.cmdline()) and line[-1] == str(self._properties))
        return next(iter(ours), None)

    def up(self) -> None:
        """Start the worker; afterwards it answers."""
        plugins = self._folder / "plugins"
        plugins.mkdir(parents=True, exist_ok=True)
        for each in ("source", "sink"):
            (plugins / each).unlink(missing_ok=True)
            (plugins / each).symlink_to(self._jars / each)
        write_atomically(self._properties, self._settings())
        configuration = Path(__file__).with_name("log4j2.properties")
        pid = process.started(
            [
                *(process.java(), "-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                f"-Dlog4j2.configurationFile={configuration.as_uri()}",
                *("-cp", f"{self._jars}/connect/*", _MAIN, str(self._properties)),
            ],
            self._folder,
            self._log,
        )

        def answers() -> bool:
            if not process.running(pid):
                raise UnreachableError(f"{self.name} ended while it started{process.tail(self._log)}")
            try:
                return self._asked("GET", "/connectors") is not None
            except URLError:
                return False

        process.wait_until(answers, f"{self.name} did not answer on port {self._port}", _TO_START, self._log, 0.2)

    def down(self) -> None:
        """Stop the worker if it runs."""
        while pid := self.pid:
            process.end(pid, signal.SIGTERM, self.name)

    def configure(self, connector: str, config: Mapping[str, str]) -> None:
        """Create a connector, or give it another configuration; afterwards its task runs with it."""
        self._ask("PUT", f"/connectors/{connector}/config", config)
        self._ask("PUT", f"/connectors/{connector}/resume")
        self.await_state(connector, "RUNNING")

    def stop(self, connector: str) -> None:
        """Stop a connector: its tasks end, and its offsets may be changed."""
        self._ask("PUT", f"/connectors/{connector}/stop")
        self.await_state(connector, "STOPPED", tasks=False)

    def pause(self, connector: str) -> None:
        """Pause a connector: its tasks stay, and read nothing."""
        self._ask("PUT", f"/connectors/{connector}/pause")
        self.await_state(connector, "PAUSED")

    def resume(self, connector: str) -> None:
        """Let a stopped or paused connector go on."""
        self._ask("PUT", f"/connectors/{connector}/resume")
        self.await_state(connector, "RUNNING")

    def await_state(self, connector: str, state: str, tasks: bool = True) -> None:
        """Wait until a connector and its one task, if it is to have one, are in a state."""
        wanted = [state] if tasks else []
        said: Any = None

        def reached() -> bool:
            nonlocal said
            said = self._asked("GET", f"/connectors/{connector}/status")
            if said is None:
                return False
            found = [each["state"] for each in said["tasks"]]
            if state == "RUNNING" and "FAILED" in (said["connector"]["state"], *found):
                raise UnreachableError(f"the connector {connector} failed: {json.dumps(said)[:2000]}")
            return found == wanted and (state == "FAILED" or said["connector"]["state"] == state)

        process.wait_until(reached, f"the connector {connector} was not {state}", _PATIENCE, self._log, 0.1)

    def move(self, connector: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set where a stopped sink goes on."""
        moved = [
            {"partition": {"kafka_topic": topic, "kafka_partition": partition}, "offset": {"kafka_offset": offset}}
            for partition, offset in offsets.items()
        ]
        self._ask("PATCH", f"/connectors/{connector}/offsets", {"offsets": moved})

    def forget(self, connector: str) -> None:
        """Remove the offsets of a stopped connector."""
        self._ask("DELETE", f"/connectors/{connector}/offsets")

    def _ask(self, method: str, path: str, body: object = None) -> None:
        process.wait_until(
            lambda: self._asked(method, path, body) is not None,
            f"{self.name} did not take {method} {path}",
            _PATIENCE,
            self._log,
            0.2,
        )

    def _asked(self, method: str, path: str, body: object = None) -> Any:
        """Ask once; None while the worker or a connector is between two states."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self._port}{path}"
        request = Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=60) as response:  # noqa: S310
                return json.loads(response.read() or b"{}")
        except HTTPError as error:
            said = error.read().decode(errors="replace")
            if error.code in _IN_BETWEEN:
                return None
            raise UnreachableError(f"{self.name} refuses {method} {path}: {error.code} {said}") from None

    def _settings(self) -> str:
        settings = {
            "bootstrap.servers": self._lab.bootstrap,
            "group.id": "connect",
            "listeners": f"http://127.0.0.1:{self._port}",
            "plugin.path": str(self._folder / "plugins"),
            "plugin.discovery": "service_load",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "offset.storage.topic": "connect.offsets",
            "offset.storage.partitions": 1,
            "config.storage.topic": "connect.configs",
            "status.storage.topic": "connect.status",
            "status.storage.partitions": 1,
            **{f"{each}.storage.replication.factor": 1 for each in ("offset", "config", "status")},
            "offset.flush.interval.ms": 500,
            "scheduled.rebalance.max.delay.ms": 0,
            "config.providers": "secrets",
            "config.providers.secrets.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())
