"""`reconcile explain`: what a past run knew of an aggregate, as people may see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.domain.finding import FieldDifference
from reconcile.pipeline.story import story
from tests.schemas import valid_output
from tests.unit.report_runs import CONTRACT, LINK, TOPIC, case, contract_file, finding, made_run


def explained(folder: Path, *words: str) -> str:
    """Give what it prints of the aggregate u1."""
    words = ("explain", "r1", "u1", "--workspace", str(folder / "runs"), *words)
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    following = f"next: reconcile plan r1 --workspace {folder}/runs\n"
    assert (0, "" if "--json" in words else following) == (done.exit_code, done.stderr)
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


@pytest.mark.parametrize("most", [1, 2, 3, 5, 6, 7])
def test_a_shorter_story_is_the_end_of_the_whole_one(most: int) -> None:
    """What an older event said still decides what a newer one changed."""
    fields = ("display_name", "email", "phone")
    whole, shorter = (story(LINK, TOPIC, case("u1"), fields, most=each) for each in (None, most))
    assert whole.moments[-most:] == shorter.moments
    assert (0, max(len(whole.moments) - most, 0)) == (whole.left_out, shorter.left_out)


def test_long_values_are_shown_where_they_differ(tmp_path: Path) -> None:
    """Two texts of 8,192 characters that differ in one place show that place, with a little context, wherever it is."""
    ours = f"{'a' * 5000}new{'b' * 3189}"
    theirs = f"{'a' * 5000}old{'b' * 3189}"
    told = case("u1") | {
        "source": {"version": "3", "fields": [ours, "e", None], "count": 1},
        "copy": {"version": "2", "fields": [theirs, "e", None], "count": 1},
    }
    for each, name in zip(told["events"], (theirs, ours, "x" * 200), strict=True):
        each["values"] = [name, "e", None]
    made_run(tmp_path / "runs", [finding("u1")], [told], contract=contract_file(tmp_path))
    story = valid_output("explain", explained(tmp_path, "--json"))["stories"][0]
    around = "a" * 30, "b" * 30, "(4,971 to 5,033 of 8,192 characters)"
    new, old = (f"…{around[0]}{word}{around[1]}… {around[2]}" for word in ("new", "old"))
    assert (new, old) == (story["source"]["fields"]["display_name"], story["copy"]["fields"]["display_name"])
    said = [each["what"] for each in story["moments"] if each["lane"] == "log"]
    assert f'UserRenamed: display_name = "{old}", email = •••, phone = NULL' == said[0]
    assert f'UserRenamed: display_name = "{new}"' == said[1]
    assert f'UserRenamed: display_name = "{"x" * 160}… (1 to 160 of 200 characters)"' == said[2]


def test_a_long_value_that_agrees_is_shown_from_its_start(tmp_path: Path) -> None:
    """Nothing in it is worth looking for."""
    long = "z" * 8192
    told = case("u1") | {side: {"version": "2", "fields": [long, "e", None], "count": 1} for side in ("source", "copy")}
    made_run(tmp_path / "runs", [finding("u1")], [told], contract=contract_file(tmp_path))
    story = valid_output("explain", explained(tmp_path, "--json"))["stories"][0]
    assert f"{'z' * 160}… (1 to 160 of 8,192 characters)" == story["source"]["fields"]["display_name"]


def test_the_command_that_looks_at_an_id_can_be_copied_to_a_shell(tmp_path: Path) -> None:
    """An id of several columns has quotes and may have spaces."""
    made_run(tmp_path / "runs", [finding("u1")], [case("u1")], contract=contract_file(tmp_path))
    done = CliRunner().invoke(cli, ["explain", "r1", '["eu", 5]', "--workspace", str(tmp_path / "runs")])
    assert """--id '["eu", 5]'`""" in str(done.exception)
