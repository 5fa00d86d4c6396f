"""The pages for developers say what the code does, and lead to files that exist."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from reconcile.files import committed
from reconcile.pipeline import handoffs
from reconcile.workspace.handoff import Handoff

TOP = committed("README.md").parent
DOCS = committed("docs")
PAGES = [
    TOP / "CONTRIBUTING.md",
    *(
        DOCS / name
        for name in ("architecture.md", "consumer.md", "consumer-design.md", "development.md", "glossary.md")
    ),
    *sorted((DOCS / "architecture").glob("*.md")),
]


def rooms() -> list[str]:
    """Read the rooms in the order that import-linter checks, those that stand side by side on one line."""
    settings = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers: list[str] = next(each["layers"] for each in contracts if each["containers"] == ["reconcile"])
    return layers


def architecture() -> str:
    return (DOCS / "architecture.md").read_text("utf-8")


def glossary() -> list[tuple[str, str]]:
    """Read the words of the glossary, each with what is said of it."""
    lines = (DOCS / "glossary.md").read_text("utf-8").splitlines()
    rows = [line.strip("|").split("|", 1) for line in lines if line.startswith("| **")]
    return [(word.strip(" *"), said) for word, said in rows]


def paths(text: str) -> list[str]:
    """Find the paths of the repository that a text names."""
    return re.findall(r"`((?:reconcile|tests|sql|contracts|bench|docs|expectations|dags|docker)/[\w./-]*)`", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_exists(page: Path) -> None:
    """A reader finds what a page names."""
    assert [] == [path for path in paths(page.read_text("utf-8")) if not (TOP / path).exists()]


@pytest.mark.parametrize("page", PAGES[-3:], ids=lambda page: page.name)
def test_every_name_is_in_the_code(page: Path) -> None:
    """A class or function that a page names in backticks has that name in the code."""
    code = "\n".join(file.read_text("utf-8") for file in (TOP / "reconcile").rglob("*.py"))
    names = {name for each in re.findall(r"`([A-Za-z_][\w.]+)`", page.read_text("utf-8")) for name in each.split(".")}
    assert set() == names - set(re.findall(r"\w+", code))


def test_the_list_of_rooms_is_what_import_linter_checks() -> None:
    """The rooms as text have the order of pyproject.toml."""
    found = re.search(r"<!-- rooms -->\n```\n(.*?)```", architecture(), flags=re.S)
    assert found is not None
    assert rooms() == found[1].splitlines()


def test_every_room_is_described() -> None:
    """Each room has a section, in the same order, that says what never happens in it."""
    sections = re.findall(r"^### (\w+)\n(.*?)(?=^##)", architecture(), flags=re.S | re.M)
    assert [room for line in rooms() for room in line.split(" | ")] == [name for name, _ in sections]
    assert [] == [name for name, text in sections if "\n- Never " not in text]


def test_the_picture_has_the_same_arrows() -> None:
    """Each room of the picture points to the next one below it."""
    found = re.search(r"```mermaid\nflowchart TD\n(.*?)```", architecture(), flags=re.S)
    assert found is not None
    drawn = {pair for line in found[1].splitlines() for pair in pairwise(line.strip().split(" --> "))}
    lines = [line.split(" | ") for line in rooms()]
    wanted = {(one, other) for above, below in pairwise(lines) for one in above for other in below}
    assert wanted == drawn


def test_the_handoffs_are_listed() -> None:
    """Each hand-off stands in the table with its artifact and the stage that writes it."""
    listed = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\w+) \| ", architecture(), flags=re.M)
    models: list[type[Handoff]] = [getattr(handoffs, name) for name in handoffs.__all__]
    assert {(each.__name__, each.ARTIFACT, each.STAGE) for each in models} == set(listed)


def test_the_stages_read_what_the_table_says() -> None:
    """A stage is listed as a reader of just those hand-offs that its module reads."""
    stages = {stage: (TOP / f"reconcile/pipeline/{stage}.py").read_text("utf-8") for stage in _STAGES}
    for model, _, writer, readers in re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\w+) \| (.*) \|$", architecture(), re.M):
        reads = re.compile(rf"\bread(?:_if_there)?\({model}\)" + (r"|\bresults_of\(" if model == "Quality" else ""))
        found = [stage for stage, code in stages.items() if stage != writer and reads.search(code)]
        assert [*found, "report"] == readers.split(", "), model


_STAGES = ("gather", "audit", "quality", "plan", "apply", "verify")


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    """Words are looked up by the alphabet."""
    words = [word for word, _ in glossary()]
    assert sorted(set(words), key=str.casefold) == words


def test_every_word_leads_to_a_file() -> None:
    """From a word to the code is one hop."""
    assert [] == [word for word, said in glossary() if not paths(said)]


def test_what_the_glossary_names_is_in_the_file() -> None:
    """Where a word names a class or a function beside a file, the file has it."""
    named = re.compile(r"`(\w+)` in `([\w./-]+\.py)`")
    missing = [
        (word, name)
        for word, said in glossary()
        for name, path in named.findall(said)
        if not re.search(rf"\b(?:class|def) {name}\b|^{name}\b", (TOP / path).read_text("utf-8"), flags=re.M)
    ]
    assert [] == missing


def test_the_hooks_are_what_check_runs() -> None:
    """Before a commit the same tools run as in `make check`, out of the project's own environment."""
    repos = yaml.safe_load((TOP / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    checks = re.search(r"^check:.*\n((?:\t.*\n)+)", (TOP / "Makefile").read_text("utf-8"), flags=re.M)
    assert checks is not None
    run = [line.strip() for line in checks[1].replace("$(BIN)", ".venv/bin").splitlines() if "$(PYTEST)" not in line]
    assert ["local"] == [each["repo"] for each in repos]
    entries = [hook["entry"].removesuffix(" --force-exclude") for hook in repos[0]["hooks"]]
    assert [line.removesuffix(" .") for line in run] == entries
