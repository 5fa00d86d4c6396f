"""A secure lab keeps its secrets."""

from __future__ import annotations

import psutil

from reconcile.lab.kafka import Kafka
from reconcile.lab.postgres import PostgresServer
from tests.integration.secure.world import SecureWorld


def test_a_secure_lab_keeps_its_secrets(world: SecureWorld) -> None:
    """One account reads them, and no process shows them in its arguments."""
    secrets = world.lab.authority.parent
    open_files = [each.name for each in secrets.iterdir() if each.stat().st_mode & 0o077]
    assert (0o700, []) == (secrets.stat().st_mode & 0o777, open_files)
    properties = world.lab.root / "kafka" / "server.properties"
    assert 0 == properties.stat().st_mode & 0o077
    assert not (properties.parent / "kafka.tools.StorageTool").exists()
    passwords = [each.read_text("ascii") for each in secrets.glob("*.password")]
    for pid in (Kafka(world.lab).pid, PostgresServer(world.lab).pid):
        assert pid is not None
        arguments = " ".join(psutil.Process(pid).cmdline())
        assert [] == [each for each in passwords if each in arguments]


def test_a_secure_lab_stays_so(world: SecureWorld) -> None:
    """Nor insecure: it is what it was made as, and its URLs say so."""
    assert world.lab.state().secure
    assert "sslmode=verify-full" in world.lab.url("user")
