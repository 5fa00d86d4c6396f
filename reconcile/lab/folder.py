"""The lab's folder: its servers' files, its state, and its secrets."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

from reconcile.errors import RefusedError
from reconcile.lab.services.broker import BrokerAddress
from reconcile.workspace.filesystem import make_private_file

DATABASES = ("user", "login", "billing", "activity", "control")
READER = "reconcile_reader"
CONTROL = "reconcile_control"
AUDITOR = "reconcile"
"""Who the settings of a secure lab log in to Kafka as."""
SUPER_USER = "lab"
"""Who the broker and the lab's own services are in a secure lab: they need no rights."""
_FILES = ("truth.jsonl", "reconcile.yaml", "state.json", "lock")
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
    secure: bool = False
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

    @property
    def made(self) -> bool:
        """Whether the folder holds a lab."""
        return (self.root / "state.json").exists()

    def refuse_foreign(self) -> None:
        """Raise when the folder holds somebody's files and no lab: ours would mix with them, and a wipe take them."""
        if not self.made and self.root.is_dir():
            for entry in self.root.iterdir():
                if entry.name != "lock" and not entry.name.startswith(".state.json."):
                    raise RefusedError(
                        f"{self.root} holds {entry.name} and no lab: choose a folder for the lab alone with --dir"
                    )

    def state(self) -> State:
        """Read what the lab remembers."""
        file = self.root / "state.json"
        try:
            raw = json.loads(file.read_text("utf-8"))
            return State(**{**raw, "ports": Ports(**raw["ports"])})
        except FileNotFoundError:
            return State()
        except (ValueError, TypeError, KeyError):
            raise RefusedError(f"{file} is not what a lab remembers: put it back, or remove the folder") from None

    def remember(self, **changes: object) -> State:
        """Change what the lab remembers; readers see the old state or the new one."""
        state = replace(self.state(), **changes)  # type: ignore[arg-type]
        write_atomically(self.root / "state.json", json.dumps(asdict(state), indent=2) + "\n")
        return state

    def forget(self) -> None:
        """Forget what the world holds, and keep its ports."""
        self.remember(**asdict(State()) | {"ports": self.state().ports})

    def password(self, role: str) -> str:
        """Read the password of a database role; made on the first call."""
        file = self.root / "secrets" / f"{role}.password"
        try:
            if not file.exists():
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                made = file.with_name(f".{file.name}.made.{os.getpid()}")
                write_atomically(made, secrets.token_urlsafe(18))
                with suppress(FileExistsError):  # two commands may ask at once, and one password counts
                    os.link(made, file)
                made.unlink()
            return file.read_text("ascii")
        except PermissionError:
            raise RefusedError(f"{file} is another account's: use the lab as the account that made it") from None

    def url(self, database: str, role: str | None = None) -> str:
        """Build a database's URL for one of its roles, by default its own service's."""
        role = role or _OWNERS.get(database, f"{database}_service")
        state = self.state()
        tls = f"?sslmode=verify-full&sslrootcert={quote(str(self.authority))}" if state.secure else ""
        return f"postgresql://{role}:{self.password(role)}@127.0.0.1:{state.ports.postgres}/{database}{tls}"

    @property
    def authority(self) -> Path:
        """What clients of a secure lab trust."""
        return self.root.resolve() / "secrets" / "ca.pem"

    @property
    def bootstrap(self) -> BrokerAddress:
        """The Kafka broker's address, for the lab's own services."""
        return BrokerAddress(f"127.0.0.1:{self.state().ports.kafka}", self.security(SUPER_USER))

    def security(self, user: str) -> dict[str, str]:
        """Build what logs a user in to the broker, in librdkafka's words; nothing where the lab is not secure."""
        if not self.state().secure:
            return {}
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": self.password(f"kafka-{user}"),
            "ssl.ca.location": str(self.authority),
        }

    @contextmanager
    def alone(self, doing: str) -> Iterator[None]:
        """Hold the lab for one command: services that consume twice in one group would disturb each other."""
        with self._locked() as file:
            file.truncate(0)
            file.write(f"`reconcile lab {doing}`, process {os.getpid()}\n")
            file.flush()
            yield

    def _locked(self) -> TextIO:
        path = self.root.resolve() / "lock"
        while True:
            try:
                make_private_file(path)
                file = path.open("a+", encoding="utf-8")
            except OSError as error:
                raise RefusedError(
                    f"the folder {self.root} cannot hold the lab: {error}; choose another with --dir"
                ) from None
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
                    return file
                file.close()  # a wipe removed the lock that we opened
            except BlockingIOError:
                with file:
                    file.seek(0)
                    holder = file.read().strip()
                raise RefusedError(
                    f"another command holds the lab in {self.root} ({holder}): wait until it ends"
                ) from None

    def remove(self) -> None:
        """Remove what the lab keeps, then its folder unless something else is in it."""
        root = self.root.resolve()
        if (root / "secrets").exists():
            shutil.rmtree(root / "secrets")
        # The state goes late: until then the folder is a lab's, and another wipe can finish this one.
        for name in _FILES:
            for file in (root / name, *root.glob(f".{name}.*")):
                file.unlink(missing_ok=True)
        if not self.root.is_symlink():
            with suppress(OSError):
                root.rmdir()


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, sees the old text or the new one; nobody else may read it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)
