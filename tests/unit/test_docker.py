"""The containers' world says the same as the lab's; it is checked as text, as no engine runs here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from reconcile.files import committed
from reconcile.lab.world import TOPICS
from reconcile.settings.settings import load_settings

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
    assert "ClusterConnection" == type(settings.connection("main")).__name__


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
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (DOCKER / "Dockerfile").read_text("utf-8"), flags=re.M)
    paths = [committed(name) for line in copies for name in line.split()]
    assert paths
    assert [] == [path for path in paths if not path.exists()]


SPARK_SAYS = {
    "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1",
    "SPARK_DRIVER_URL": "spark://driver",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_EXECUTOR_POD_NAME": "pod",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_CLASSPATH": "/more.jar",
    "SPARK_JAVA_OPT_0": "-Duser.timezone=UTC",
    "SPARK_JAVA_OPT_1": "-Da=b c",
}


def started(tmp_path: Path, *words: str) -> list[str]:
    """Give what a container that is given these words runs."""
    for name in ("spark-submit", "java", "reconcile"):
        stub = tmp_path / name
        stub.write_text('#!/bin/bash\nprintf "%s\\n" "${0##*/}" "$@"\n')
        stub.chmod(0o755)
    (tmp_path / "python").symlink_to(sys.executable)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path), **SPARK_SAYS}
    return subprocess.run(
        ["bash", str(DOCKER / "start.sh"), *words], env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_the_image_runs_commands(tmp_path: Path) -> None:
    """What Spark does not ask for is a command of ours."""
    assert ["reconcile", "run", "a contract.yaml"] == started(tmp_path, "run", "a contract.yaml")


def test_the_image_runs_a_driver(tmp_path: Path) -> None:
    """Beside itself, as Kubernetes has chosen the place already."""
    found = started(tmp_path, "driver", "--properties-file", "p", "local:///x.py")
    assert ["spark-submit", "--deploy-mode", "client"] == found[:3]
    assert "spark.driver.bindAddress=10.0.0.1" in found
    assert ["--properties-file", "p", "local:///x.py"] == found[-3:]


def test_the_image_runs_an_executor(tmp_path: Path) -> None:
    """With all that Spark says of it, and Spark's own classes."""
    found = started(tmp_path, "executor")
    assert ["java", "-Duser.timezone=UTC", "-Da=b c", "-Xms1g", "-Xmx1g", "-cp"] == found[:6]
    assert "/more.jar" in found[6].split(":")
    assert [
        file for part in found[6].split(":") if part.endswith("/jars/*") for file in Path(part[:-1]).glob("spark-*")
    ]
    assert "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend" == found[7]
    assert {"--driver-url": "spark://driver", "--executor-id": "7", "--cores": "2", "--podName": "pod"}.items() <= dict(
        zip(found[8::2], found[9::2], strict=True)
    ).items()
