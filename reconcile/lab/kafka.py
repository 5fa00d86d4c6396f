"""A real Apache Kafka broker in the lab's folder: one KRaft node on loopback."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import uuid
from pathlib import Path

from reconcile.errors import RefusedError, UnreachableError
from reconcile.files import jars
from reconcile.lab import process
from reconcile.lab.folder import Lab, write_atomically

_LOGGING = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = STDOUT
appender.stdout.type = Console
appender.stdout.name = STDOUT
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
"""


class Kafka:
    """The lab's broker."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._folder = lab.root.resolve() / "kafka"
        self._properties = self._folder / "server.properties"
        self._log = self._folder / "server.log"

    @property
    def pid(self) -> int | None:
        """The running broker's process, None when it is down."""
        ours = ["kafka.Kafka", str(self._properties)]
        return process.find(lambda line: line[-2:] == ours)

    def up(self) -> None:
        """Start the broker unless it runs; afterwards it answers."""
        ports = self._lab.state().ports
        if self.pid is None:
            process.refuse_taken(ports.kafka, "Kafka", "--kafka-port")
            process.refuse_taken(ports.controller, "Kafka's controller", "--controller-port")
            self._format()
            command = self._java("kafka.Kafka", str(self._properties))
            with self._log.open("ab") as log:
                os.posix_spawn(
                    command[0],
                    command,
                    os.environ,
                    setsid=True,  # so that Ctrl-C at the terminal does not reach the broker
                    file_actions=[(os.POSIX_SPAWN_DUP2, log.fileno(), fd) for fd in (1, 2)],
                )
        process.wait_until(self._answers, f"Kafka did not answer on port {ports.kafka}", 60, self._log)

    def down(self) -> None:
        """Stop the broker if it runs."""
        if pid := self.pid:
            process.end(pid, signal.SIGTERM, "Kafka")

    def kill(self) -> None:
        """Make the broker die as in a power cut."""
        if pid := self.pid:
            process.end(pid, signal.SIGKILL, "Kafka")

    def wipe(self) -> None:
        """Remove the broker's files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        if not process.listening(self._lab.state().ports.kafka):
            if self.pid is None:
                raise UnreachableError(f"Kafka ended while it started{process.tail(self._log)}")
            return False
        try:
            admin = AdminClient({"bootstrap.servers": self._lab.bootstrap, "log_level": 0})
            return bool(admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def _format(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._properties, self._settings())
        write_atomically(self._folder / "log4j2.properties", _LOGGING)
        if (self._folder / "formatted").exists():
            return
        shutil.rmtree(self._folder / "data", ignore_errors=True)
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = subprocess.run(
            self._java("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(self._properties)),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise UnreachableError(f"Kafka's StorageTool could not format {self._folder}: {done.stdout}{done.stderr}")
        (self._folder / "formatted").touch()

    def _java(self, main: str, *arguments: str) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
        if java is None:
            raise RefusedError("the lab needs Java 17 or newer on the PATH, or JAVA_HOME")
        return [
            *(java, "-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=4", "-Djava.awt.headless=true"),
            f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}",
            *("-cp", ":".join(str(jar) for jar in jars("broker")), main, *arguments),
        ]

    def _settings(self) -> str:
        ports = self._lab.state().ports
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{ports.kafka},CONTROLLER://127.0.0.1:{ports.controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self._folder / "data",
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
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())
