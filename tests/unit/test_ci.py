"""What CI systems are told: JUnit files, annotations, a hook of pre-commit, and an action of GitHub."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.cli.ci import Outcome, annotation, junit
from tests.unit.report_runs import CONTRACT

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def not_on_github(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests may run on GitHub themselves."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


def written(folder: Path, **changes: str) -> list[str]:
    """Write a contract that is right, and one in which some words are others."""
    wrong = CONTRACT
    for old, new in changes.items():
        wrong = wrong.replace(old, new)
    files = [folder / "right.yaml", folder / "wrong.yaml"]
    for file, text in zip(files, (CONTRACT, wrong), strict=True):
        file.write_text(text, "utf-8")
    return [str(each) for each in files]


def cases(file: Path) -> list[Any]:
    """Read the test cases of a JUnit file."""
    return list(ElementTree.parse(file).iter("testcase"))  # noqa: S314 - our own


def test_several_contracts_are_checked_in_one_call(tmp_path: Path) -> None:
    """As a hook calls it; each is told, and one that is wrong makes it 2."""
    files = written(tmp_path, semantics="semantic")
    done = CliRunner().invoke(cli, ["contract", "check", *files])
    assert 2 == done.exit_code
    assert f"{files[0]}: ok: user-account" in done.stdout
    assert f"{files[1]}: consumers[0].semantic" in done.stderr
    assert 0 == CliRunner().invoke(cli, ["contract", "check", files[0], files[0]]).exit_code


def test_json_is_about_one(tmp_path: Path) -> None:
    """One object is what a script reads."""
    done = CliRunner().invoke(cli, ["contract", "check", "--json", *written(tmp_path)])
    assert (2, True) == (done.exit_code, "--json is about one FILE" in done.stderr)


def test_junit_has_a_case_for_each_outcome(tmp_path: Path) -> None:
    """With the file and the line that it is about."""
    files = written(tmp_path, semantics="semantic")
    CliRunner().invoke(cli, ["contract", "check", *files, "--junit", str(tmp_path / "out.xml")])
    right, wrong = cases(tmp_path / "out.xml")
    assert (files[0], None) == (right.get("classname"), right.find("failure"))
    assert (files[1], "consumers[0].semantic") == (wrong.get("classname"), wrong.get("name"))
    assert 'unknown key "semantic"' in wrong.find("failure").get("message").replace("'", '"')
    assert int(wrong.get("line")) > 1
    suite = ElementTree.parse(tmp_path / "out.xml").getroot()  # noqa: S314 - our own
    assert ("2", "1", "0") == (suite.get("tests"), suite.get("failures"), suite.get("errors"))


@pytest.mark.parametrize(
    ("words", "environment", "there"),
    [
        ([], {}, False),
        (["--annotations"], {}, True),
        ([], {"GITHUB_ACTIONS": "true"}, True),
        (["--no-annotations"], {"GITHUB_ACTIONS": "true"}, False),
    ],
)
def test_annotations_are_there_on_github_and_where_they_are_wanted(
    tmp_path: Path, words: list[str], environment: dict[str, str], there: bool
) -> None:
    """Beside the line of the file."""
    _, wrong = written(tmp_path, semantics="semantic")
    done = CliRunner(env=environment).invoke(cli, ["contract", "check", wrong, *words])
    assert there == (f"::error file={wrong},line=" in done.stderr)
    assert "::" not in done.stdout


def test_a_doctor_that_cannot_begin_tells_ci_too(tmp_path: Path) -> None:
    """A contract that is wrong, and settings that are not there."""
    right, wrong = written(tmp_path, semantics="semantic")
    for file, kind in ((wrong, "failure"), (right, "error")):
        words = ["doctor", file, "--junit", str(tmp_path / "out.xml"), "--workspace", str(tmp_path)]
        CliRunner().invoke(cli, words)
        (case,) = cases(tmp_path / "out.xml")
        assert case.find(kind) is not None


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """It is what a CI system waits for."""
    right, _ = written(tmp_path)
    done = CliRunner().invoke(cli, ["contract", "check", right, "--junit", str(tmp_path / "none" / "out.xml")])
    assert "cannot be written" in str(done.exception)


def test_hostile_text_stays_text() -> None:
    """A message can neither begin another command of GitHub's, nor end an element."""
    hostile = Outcome("a,b:c", "x", "failure", "one\n::error::two \x00 100% </failure>")
    told = annotation(hostile)
    assert ["::error file=a%2Cb%3Ac,title=x::one%0A::error::two \x00 100%25 </failure>"] == told.splitlines()
    case = ElementTree.fromstring(junit("c", [hostile])).find(".//failure")  # noqa: S314 - our own
    assert case is not None
    assert "one\n::error::two \N{REPLACEMENT CHARACTER} 100% </failure>" == case.text


def test_the_hook_calls_what_there_is() -> None:
    """By the console script that the package installs."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    name, *words = hook["entry"].split()
    assert "reconcile" == name
    assert 0 == CliRunner().invoke(cli, [*words, str(ROOT / "contracts" / "user-account.yaml")]).exit_code


@pytest.mark.skipif(not shutil.which("bash"), reason="the action runs bash")
def test_the_action_checks_what_its_inputs_name(tmp_path: Path) -> None:
    """Its last step as a runner runs it, with a pattern; an input is never a command."""
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    step = action["runs"]["steps"][-1]
    written(tmp_path, semantics="semantic")
    reconcile = tmp_path / "reconcile"
    reconcile.write_text(f'#!/bin/sh\nexec {sys.executable} -m reconcile.cli "$@"\n')
    reconcile.chmod(0o700)
    given = {"CONTRACTS": f"{tmp_path}/*.yaml $(touch x)", "CONFIG": "", "JUNIT": str(tmp_path / "out.xml")}
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    assert step["env"].keys() == given.keys()
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]],
        env={**os.environ, **given, **path}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 2 == done.returncode
    assert "::error file=" in done.stderr
    assert not (tmp_path / "x").exists()
    assert 2 < len(cases(tmp_path / "out.xml"))
