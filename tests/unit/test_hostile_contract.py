"""Whatever stands in a file, reading it as a contract gives a contract or a list of problems."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.contract.model import Contract, load_contract
from reconcile.errors import InvalidFileError

DOCUMENTATION = (Path(__file__).parents[2] / "docs" / "contract.md").read_text()
EXAMPLE: dict[str, Any] = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", DOCUMENTATION, re.DOTALL)[0])

texts = st.sampled_from(
    ["", "x", "user-account", "$.a", "$a", "'", "main", "60s", "\0", "\x85", "header:", "<kind:topic>"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts | st.text(max_size=5)
keys = st.sampled_from(["topic", "table", "id", "group", "name", "policy", "[key]", "<kind:table>"]) | st.text(
    max_size=3
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=5
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([path] if path else []), *(place for key, below in inner for place in places(below, (*path, key)))]


@st.composite
def mutants(draw: st.DrawFn) -> dict[str, Any]:
    """The documented contract with a few places replaced, removed or renamed."""
    mutant = copy.deepcopy(EXAMPLE)
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from(places(mutant)))
        parent: Any = mutant
        for part in above:
            parent = parent[part]
        how = draw(st.sampled_from(["replace", "remove", "rename"]))
        if how == "replace":
            parent[last] = draw(values)
        else:
            value = parent.pop(last)
            if how == "rename" and isinstance(parent, dict):
                parent[draw(keys)] = value
    return mutant


def read_or_refuse(folder: Path, content: bytes) -> str:
    file = folder / "contract.yaml"
    file.write_bytes(content)
    try:
        return load_contract(file).digest
    except InvalidFileError as error:
        return "\n".join(f"{problem}" for problem in error.problems)


@given(st.binary(max_size=100))
def test_arbitrary_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any bytes are refused with a reason."""
    assert read_or_refuse(tmp_path_factory.getbasetemp(), content)


@given(st.text(max_size=100))
def test_arbitrary_text(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    """Any text is refused with a reason."""
    assert read_or_refuse(tmp_path_factory.getbasetemp(), content.encode(errors="surrogatepass"))


@given(mutants())
@settings(max_examples=200)
def test_mutants_of_a_valid_contract(tmp_path_factory: pytest.TempPathFactory, mutant: dict[str, Any]) -> None:
    """A damaged contract is read, or refused with messages that speak of the file and not of the program."""
    content = yaml.safe_dump(mutant, allow_unicode=True, sort_keys=False).encode(errors="surrogatepass")
    told = read_or_refuse(tmp_path_factory.getbasetemp(), content)
    assert told
    assert not re.search(r"pydantic|Traceback|Input should|function-|tagged-union", told)


@given(values)
def test_arbitrary_values_in_a_model(value: Any) -> None:
    """Values that never were in a file give a contract or a ValueError."""
    with pytest.raises(ValueError, match="validation error"):
        Contract.model_validate({**EXAMPLE, "consumers": value})
