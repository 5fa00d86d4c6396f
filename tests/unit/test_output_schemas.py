"""The JSON Schemas of what commands print with --json."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from reconcile import cli
from reconcile.cli.outputs import OUTPUTS, FaultOutput, RunOutput, output_schema, write_schemas
from reconcile.files import committed
from tests.unit.test_cli import commands


def test_every_command_with_json_has_a_schema() -> None:
    """And no schema is of a command that is gone."""
    with_json = {
        " ".join(path)
        for path, command in commands(cli.cli, ())
        if any("--json" in each.opts for each in command.params)
    }
    assert with_json == OUTPUTS.keys()


def test_the_committed_schemas_are_current(tmp_path: Path) -> None:
    """`make schema` renews them."""
    write_schemas(tmp_path)
    current = {file.name: file.read_text("utf-8") for file in tmp_path.iterdir()}
    assert current == {file.name: file.read_text("utf-8") for file in committed("docs", "schemas").iterdir()}


def test_the_docs_list_every_schema() -> None:
    """docs/json.md has a line for each command, in the order of the code."""
    page = committed("docs", "json.md").read_text("utf-8")
    assert list(OUTPUTS) == re.findall(r"^\| `reconcile ([a-z -]+) --json` \| \[schema\]\(schemas/[a-z-]+", page, re.M)


@pytest.mark.parametrize("command", OUTPUTS)
def test_each_schema_is_one(command: str) -> None:
    """A valid JSON Schema, whose objects carry their version."""
    schema = output_schema(command)
    Draft202012Validator.check_schema(schema)
    assert "schema_version" in schema["required"]
    assert 1 == schema["properties"]["schema_version"]["const"]


def test_what_was_not_set_is_left_out() -> None:
    """A listing of faults says nothing of differences; the version is always there."""
    assert {"schema_version": 1, "differences": 3} == FaultOutput(differences=3).data()


def test_a_schema_rejects_what_is_wrong() -> None:
    """An exit code is a number."""
    validator = Draft202012Validator(output_schema("run"))
    problems = {error.json_path for error in validator.iter_errors({"schema_version": 1, "exit_code": "one"})}
    assert "$.exit_code" in problems


def test_outputs_are_frozen() -> None:
    """Nobody changes a result on its way to stdout."""
    assert RunOutput.model_config["frozen"]
    assert json.loads(json.dumps(output_schema("run"))) == output_schema("run")
