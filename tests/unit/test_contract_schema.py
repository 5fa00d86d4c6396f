"""The JSON Schema that editors use."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from reconcile.contract.model import json_schema

DOCS = Path(__file__).parents[2] / "docs"
VALIDATOR = Draft202012Validator(json_schema())


def example() -> Any:
    found = re.search(r"```yaml\n(.*?)```", (DOCS / "contract.md").read_text(), re.DOTALL)
    assert found is not None
    return yaml.safe_load(found.group(1))


def objects(schema: Any) -> list[Any]:
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else []
    here = [schema] if isinstance(schema, dict) and "properties" in schema else []
    return here + [each for below in inner for each in objects(below)]


def test_the_committed_schema_is_current() -> None:
    """What editors are given is what the program reads; `make schema` renews it."""
    assert json.loads((DOCS / "contract.schema.json").read_text()) == json_schema()


def test_the_schema_is_one() -> None:
    """It is a valid JSON Schema of its draft."""
    Draft202012Validator.check_schema(json_schema())


def test_the_documented_example_is_accepted() -> None:
    """Editors show no error where the program finds none."""
    VALIDATOR.validate(example())


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("stash", "a-topic"),
        ("stash", {"topic": "a-topic", "group": "g"}),
        ("stash", {"table": "t", "id": ["a", "b"], "partition": "p", "offset": "o"}),
        ("dead_letter", {"topic": "a-topic"}),
    ],
)
def test_each_form_of_a_union_is_accepted(part: str, value: object) -> None:
    """A topic's name, a mapping or a table: the schema knows all forms."""
    contract = example()
    contract["consumers"][0]["failure"][part] = value
    VALIDATOR.validate(contract)


@pytest.mark.parametrize(
    "place",
    [(), ("source",), ("topic", "key"), ("consumers", 0), ("consumers", 0, "failure"), ("consumers", 0, "settle")],
)
def test_unknown_keys_are_rejected(place: tuple[str | int, ...]) -> None:
    """A misspelt key is underlined while it is typed."""
    contract = copy.deepcopy(example())
    part = contract
    for key in place:
        part = part[key]
    part["unknown"] = 1
    assert not VALIDATOR.is_valid(contract)


def test_everything_is_described() -> None:
    """Each object and each of its keys has words for who hovers over it."""
    for each in objects(json_schema()):
        assert each["description"]
        for name, property_ in each["properties"].items():
            assert property_.get("description") or "$ref" in property_, (each["title"], name)


def test_defaults_are_written_as_in_a_contract() -> None:
    """A default that an editor fills in is valid."""
    settle = json_schema()["$defs"]["Settle"]["properties"]
    assert (settle["timeout"]["default"], settle["confirm_after"]["default"]) == ("1m", "5s")
