"""docs/consumer.md says what works: `make wheel-test` runs its ten lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reconcile.consumer import errors
from reconcile.contract.model import load_contract
from reconcile.files import committed


def block(language: str) -> str:
    """Find the first block of the section on ten lines."""
    page = committed("docs", "consumer.md").read_text("utf-8").split("## Ten lines")[1]
    found = re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_ten_lines_are_ten_at_most() -> None:
    """Without blank lines, and they are Python."""
    code = block("python")
    compile(code, "service.py", "exec")
    assert 10 >= len([line for line in code.splitlines() if line.strip()])


def test_the_contract_of_the_ten_lines_is_valid(tmp_path: Path) -> None:
    """It has the consumer that they name."""
    file = tmp_path / "user-account.yaml"
    file.write_text(block("yaml"))
    (consumer,) = load_contract(file).consumers
    assert f'from_contract("{file.name}", "{consumer.name}", apply' in block("python")


@pytest.mark.parametrize("page", ["consumer-design.md", "field.md"])
def test_the_tests_that_a_page_names_exist(page: str) -> None:
    """Whoever doubts a promise finds the test that shows it."""
    top = committed("README.md").parent
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", committed("docs", page).read_text("utf-8"))
    assert named
    wrong = [each for each in named if not re.search(rf"def {each[1]}\b", (top / each[0]).read_text("utf-8"))]
    assert [] == wrong


def test_the_errors_that_end_a_consumer_are_explained() -> None:
    """Each error of the library that a person meets is on the page, and no other."""
    page = committed("docs", "consumer.md").read_text("utf-8")
    mine = {each.__name__ for each in vars(errors).values() if getattr(each, "__module__", "") == errors.__name__}
    assert {*mine, "UnreachableError"} == set(re.findall(r"`(\w+Error)`", page))
