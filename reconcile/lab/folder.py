"""The lab's folder: where its servers keep their files, what it was told, and its secrets."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from reconcile.errors import RefusedError

DATABASES = ("user", "login", "billing", "activity", "control")
READER = "reconcile_reader"
CONTROL = "reconcile_control"
_OWNERS = {"postgres": "postgres", "control": CONTROL}


@dataclass(frozen=True)
class Ports:
    """Where the servers listen, on loopback alone."""

    postgres: int = 15432
    kafka: int = 19092
    controller: int = 19093


@dataclass(frozen=True)
class State:
    """What a lab remembers between commands."""

    ports: Ports = Ports()
    seed: int | None = None
    aggregates: int = 0
    seeded: str = "no"  # no, begun, yes
    registered: int = 0  # users registered since the seed; keeps their ids apart
    plantings: int = 0  # faults planted so far; keeps their random choices apart


@dataclass(frozen=True)
class Lab:
    """One world in one folder."""

    root: Path

    @property
    def truth(self) -> Path:
        """The file to which each fault appends what it did."""
        return self.root / "truth.jsonl"

    def state(self) -> State:
        """Read what the lab remembers."""
        try:
            raw = json.loads((self.root / "state.json").read_text("utf-8"))
        except FileNotFoundError:
            return State()
        return State(**{**raw, "ports": Ports(**raw["ports"])})

    def remember(self, **changes: object) -> State:
        """Change what the lab remembers; readers see the old state or the new one."""
        state = replace(self.state(), **changes)  # type: ignore[arg-type]
        write_atomically(self.root / "state.json", json.dumps(asdict(state), indent=2) + "\n")
        return state

    def password(self, role: str) -> str:
        """Give the password of a database role, made when it is first asked for."""
        file = self.root / "secrets" / f"{role}.password"
        if not file.exists():
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(file, secrets.token_urlsafe(18), mode=0o600)
        return file.read_text("ascii")

    def url(self, database: str, role: str | None = None) -> str:
        """Give a database's URL for one of its roles; its own service's unless told."""
        role = role or _OWNERS.get(database, f"{database}_service")
        return f"postgresql://{role}:{self.password(role)}@127.0.0.1:{self.state().ports.postgres}/{database}"

    @property
    def bootstrap(self) -> str:
        """The Kafka broker's address."""
        return f"127.0.0.1:{self.state().ports.kafka}"

    @contextmanager
    def alone(self, doing: str) -> Iterator[None]:
        """Hold the lab for one command: services that consume twice in one group would disturb each other."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise RefusedError(
                    f"another command holds the lab in {self.root} ({file.read().strip()}): wait until it ends"
                ) from None
            file.truncate(0)
            file.write(f"`reconcile lab {doing}`, process {os.getpid()}\n")
            file.flush()
            yield


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file so that a reader, or a crash, sees the old text or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)
