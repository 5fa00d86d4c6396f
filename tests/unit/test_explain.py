"""`reconcile explain`: what a past run knew of an aggregate, as people may see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.domain.finding import FieldDifference
from tests.schemas import valid_output
from tests.unit.report_runs import CONTRACT, case, contract_file, finding, made_run


def explained(folder: Path, *words: str) -> str:
    """Give what it prints of the aggregate u1."""
    words = ("explain", "r1", "u1", "--workspace", str(folder / "runs"), *words)
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert (0, "") == (done.exit_code, done.stderr)
    return done.stdout


def test_sensitive_values_stay_hidden_when_fields_change_places(tmp_path: Path) -> None:
    """Values belong to the fields that the run was made with, and not to those that stand there now."""
    made_run(tmp_path / "runs", [finding("u1")], [case("u1")], contract=contract_file(tmp_path))
    lines = CONTRACT.splitlines()
    contract_file(tmp_path, "\n".join([*lines[:-3], lines[-2], lines[-3], lines[-1], ""]))
    for words in ((), ("--json",)):
        told = explained(tmp_path, *words)
        assert "example.org" not in told
        assert "Zoiee" in told


@pytest.mark.parametrize("change", ["a field more", "gone"])
def test_it_explains_whatever_the_contract_has_become(tmp_path: Path, change: str) -> None:
    """The run knows what it was made with."""
    file = contract_file(tmp_path)
    made_run(tmp_path / "runs", [finding("u1")], [case("u1")], contract=file)
    if change == "gone":
        file.unlink()
    else:
        more = "      - {name: city, source: city, consumer: city, event: $.city}\n    failure:"
        contract_file(tmp_path, CONTRACT.replace("    failure:", more))
    source = valid_output("explain", explained(tmp_path, "--json"))["stories"][0]["source"]
    assert ["display_name", "email", "phone"] == list(source["fields"])


def test_a_hidden_field_that_differs_is_marked(tmp_path: Path) -> None:
    """By what was found: hidden values all look alike."""
    told = case("u1") | {"copy": {"version": "2", "fields": ["Zoiee", "old@example.org", None], "count": 1}}
    apart = finding("u1", fields=(FieldDifference("email", "sha256:0123456789abcdef", "sha256:fedcba9876543210"),))
    made_run(tmp_path / "runs", [apart], [told], contract=contract_file(tmp_path))
    marked = [line.split()[0] for line in explained(tmp_path).splitlines() if "≠" in line]
    assert ["email"] == marked
