"""A real Apache Kafka broker in the lab's folder: one KRaft node on loopback."""

from __future__ import annotations

import base64
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from reconcile.errors import UnreachableError
from reconcile.files import jars
from reconcile.lab import process
from reconcile.lab.folder import AUDITOR, SUPER_USER, Lab, write_atomically
from reconcile.lab.services.offsets import admin_client
from reconcile.workspace.filesystem import make_private, make_private_file

_LOGGING = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = STDOUT
appender.stdout.type = Console
appender.stdout.name = STDOUT
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
"""

_TO_START = 180
_BROKER = "broker"
"""The name in the broker's certificate."""


@dataclass(frozen=True)
class Proxied:
    """A second listener, for clients that come through a proxy: the broker names the proxy's port to them."""

    port: int
    proxy: int


class Kafka:
    """The lab's broker."""

    name = "Kafka"

    def __init__(
        self, lab: Lab, proxied: Proxied | None = None, settings: Mapping[str, object] = MappingProxyType({})
    ) -> None:
        """Stand in a lab's folder; `settings` are the broker's own, for tests that cannot wait as long as people do."""
        self._lab = lab
        self._proxied = proxied
        self._more = settings
        self._folder = lab.root.resolve() / "kafka"
        self._properties = self._folder / "server.properties"
        self._log = self._folder / "server.log"
        self._formatted = self._folder / "formatted"
        self._format_arguments = self._folder / "kafka.tools.StorageTool"

    @property
    def pid(self) -> int | None:
        """The running broker's process, None when it is down."""
        return next(iter(self._running("kafka.Kafka")), None)

    @property
    def holds_data(self) -> bool:
        """Whether it has files of an earlier start."""
        return self._formatted.exists()

    def up(self) -> None:
        """Start the broker unless it runs; afterwards it answers."""
        ports, pid = self._lab.state().ports, self.pid or self._started()
        process.wait_until(
            lambda: self._answers(pid), f"Kafka did not answer on port {ports.kafka}", _TO_START, self._log
        )

    def down(self) -> None:
        """Stop the broker if it runs, and the processes of a killed command."""
        for pid in (*self._running("kafka.Kafka"), *self._formatting()):
            process.end(pid, signal.SIGTERM, self.name)
        admin_client.cache_clear()  # the next broker at this address is another one

    def kill(self) -> None:
        """Make the broker die as in a power cut."""
        if pid := self.pid:
            process.end(pid, signal.SIGKILL, self.name)

    def wipe(self) -> None:
        """Remove the broker's files."""
        self._formatted.unlink(missing_ok=True)  # so that data of which a part is gone are never taken for whole ones
        process.remove_tree(self._folder)

    def _started(self) -> int:
        self._format()
        return process.started(self._java("kafka.Kafka"), self._folder, self._log)

    def _running(self, main: str) -> list[int]:
        return process.find(lambda found: main in (line := found.cmdline()) and line[-1] == str(self._properties))

    def _formatting(self) -> list[int]:
        return process.find(lambda found: found.cmdline()[-1:] == [f"@{self._format_arguments}"])

    def _answers(self, pid: int) -> bool:
        from confluent_kafka import KafkaException

        if not process.listening(self._lab.state().ports.kafka):
            if not process.running(pid):
                raise UnreachableError(f"Kafka ended while it started{process.tail(self._log)}")
            return False
        try:
            return bool(admin_client(self._lab.bootstrap).list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def _format(self) -> None:
        make_private(self._folder)
        write_atomically(self._properties, self._settings())
        write_atomically(self._folder / "log4j2.properties", _LOGGING)
        if self.holds_data:
            return
        for pid in self._formatting():
            process.end(pid, signal.SIGKILL, self.name)
        process.remove_tree(self._folder / "data")
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        java, *command = self._java(
            "kafka.tools.StorageTool", "format", f"--cluster-id={identity}", *self._users(), "-c"
        )
        # From a file: a process's arguments are there for everybody to read, and passwords are among them.
        write_atomically(self._format_arguments, "".join(f"{_quoted(each)}\n" for each in command))
        try:
            done = subprocess.run(
                [java, f"@{self._format_arguments}"],
                cwd=self._folder,
                env=process.environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                umask=0o077,
            )
        finally:
            self._format_arguments.unlink(missing_ok=True)
        if done.returncode != 0:
            raise UnreachableError(f"Kafka's StorageTool could not format {self._folder}: {done.stdout}{done.stderr}")
        make_private_file(self._formatted)

    def _java(self, main: str, *arguments: str) -> list[str]:
        return [
            *(
                process.java(),
                "-Xms128m",
                "-Xmx512m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=4",
                "-Djava.awt.headless=true",
            ),
            "-Dlog4j2.configurationFile=log4j2.properties",
            *("-cp", ":".join(str(jar) for jar in jars("broker")), main, *arguments, str(self._properties)),
        ]

    def _users(self) -> Iterator[str]:
        if self._lab.state().secure:
            for user in (SUPER_USER, AUDITOR):
                yield f"--add-scram=SCRAM-SHA-512=[name={user},password={self._lab.password(f'kafka-{user}')}]"

    def _security(self) -> dict[str, object]:
        """Build what lets nobody in without a log-in, and nobody do what nobody allowed."""
        if not self._lab.state().secure:
            return {}
        from reconcile.lab.certificates import Authority

        authority = Authority(self._lab.authority.parent)
        login = f'username="{SUPER_USER}" password="{self._lab.password(f"kafka-{SUPER_USER}")}"'
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            "listener.security.protocol.map": "MAIN:SASL_SSL,PROXIED:SASL_SSL,CONTROLLER:SSL",
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": authority.issue(_BROKER),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority.certificate,
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.main.scram-sha-512.sasl.jaas.config": f"{module} required {login};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{SUPER_USER};User:CN={_BROKER}",
            "allow.everyone.if.no.acl.found": "false",
        }

    def _settings(self) -> str:
        ports = self._lab.state().ports
        listeners = advertised = f"MAIN://127.0.0.1:{ports.kafka}"
        if self._proxied:
            listeners += f",PROXIED://127.0.0.1:{self._proxied.port}"
            advertised += f",PROXIED://127.0.0.1:{self._proxied.proxy}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{ports.controller}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": "MAIN:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "MAIN",
            "log.dirs": "data",  # where the broker works: Kafka would split a path at its commas
            "auto.create.topics.enable": "false",
            # The seed writes records of past days: the world must not forget them.
            "log.retention.ms": -1,
            "group.initial.rebalance.delay.ms": 0,
            "offsets.topic.num.partitions": 4,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "num.network.threads": 2,
            "num.io.threads": 4,
            "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
            **self._security(),
            **self._more,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())


def _quoted(argument: str) -> str:
    """Quote an argument as Java reads it from a file."""
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
