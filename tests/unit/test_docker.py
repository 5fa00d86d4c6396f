"""The containers' world says the same as the lab's; it is checked as text, as no engine runs here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from reconcile.files import committed
from reconcile.lab.world import TOPICS
from reconcile.settings import load_settings

DOCKER = committed("docker")
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))


def test_what_is_mounted_is_there() -> None:
    """Every file or folder that a container mounts stands in the repository."""
    volumes = [volume for service in COMPOSE["services"].values() for volume in service.get("volumes", [])]
    mounted = [DOCKER / volume.split(":")[0] for volume in volumes if volume.startswith(".")]
    assert [] == [path for path in mounted if not path.exists()]


def test_ports_are_published_on_loopback_only() -> None:
    """No server of the compose file is reachable from outside."""
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_dependency_is_a_service() -> None:
    """Services wait for services that there are."""
    services = COMPOSE["services"]
    waited = {name for service in services.values() for name in service.get("depends_on", {})}
    assert set() == waited - services.keys()


def test_every_variable_has_its_place() -> None:
    """Each variable of the compose file stands in the example of its environment."""
    used = set(re.findall(r"\$\{(\w+)", (DOCKER / "compose.yaml").read_text("utf-8")))
    given = {line.split("=")[0] for line in (DOCKER / "env.example").read_text("utf-8").splitlines() if "=" in line}
    assert used == given


def test_the_settings_are_valid(tmp_path: Path) -> None:
    """The settings that the containers use load, and their references are set by the compose file."""
    settings = load_settings(DOCKER / "reconcile.yaml")
    references = re.findall(r"env:(\w+)", (DOCKER / "reconcile.yaml").read_text("utf-8"))
    assert set(references) <= COMPOSE["services"]["reconcile"]["environment"].keys()
    assert "Cluster" == type(settings.connection("main")).__name__


def test_the_topics_are_the_labs() -> None:
    """The script for the topics makes those of the lab, with the same numbers of partitions."""
    script = (DOCKER / "provide-topics.sh").read_text("utf-8")
    shadow = re.sub(r"^topic\(\).*?^}", 'topic() { echo "$2 $1"; }', script, flags=re.M | re.S)
    made = subprocess.run(["bash", "-c", shadow], capture_output=True, text=True, check=True).stdout
    assert TOPICS == {name: int(count) for name, count in (line.split() for line in made.splitlines())}


@pytest.mark.parametrize("script", sorted(DOCKER.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_parse(script: Path) -> None:
    """Bash reads the scripts."""
    assert 0 == subprocess.run(["bash", "-n", str(script)], check=False).returncode


def test_what_the_image_copies_is_there() -> None:
    """Every path that the image copies stands in the repository."""
    copies = re.findall(r"^COPY (.+) \S+$", (DOCKER / "Dockerfile").read_text("utf-8"), flags=re.M)
    paths = [committed(name) for line in copies for name in line.split()]
    assert paths
    assert [] == [path for path in paths if not path.exists()]
