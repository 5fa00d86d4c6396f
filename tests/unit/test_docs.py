"""The docs say what the code does."""

from __future__ import annotations

import re

from reconcile.files import committed
from reconcile.lab.faults import FAULTS


def test_every_fault_is_described() -> None:
    """docs/lab.md lists the faults as the code has them, in their order."""
    listed = "".join(f"| `{fault.name}` | {', '.join(fault.systems)} | {fault.summary} |\n" for fault in FAULTS)
    assert listed in committed("docs", "lab.md").read_text("utf-8")


def test_every_row_that_a_fault_names_is_explained() -> None:
    """docs/field.md explains each id that faults name."""
    explained = set(re.findall(r"^\| ([A-E]\d+) \|", committed("docs", "field.md").read_text("utf-8"), flags=re.M))
    assert set() == {row for fault in FAULTS for row in fault.systems} - explained


def test_links_lead_somewhere() -> None:
    """Every relative link in the README, CONTRIBUTING and the docs leads to a file."""
    top = committed("README.md").parent
    pages = [top / "README.md", top / "CONTRIBUTING.md", *(top / "docs").rglob("*.md")]
    links = [(page, target) for page in pages for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8"))]
    assert [] == [(page.name, target) for page, target in links if not (page.parent / target).exists()]


def test_each_promise_of_security_names_tests_that_there_are() -> None:
    """docs/security.md says of each promise which test shows it."""
    top = committed("README.md").parent
    named = set(re.findall(r"`(test_\w+)`", (top / "docs" / "security.md").read_text("utf-8")))
    there = {
        name
        for file in (top / "tests").rglob("*.py")
        for name in re.findall(r"def (test_\w+)", file.read_text("utf-8"))
    }
    assert named
    assert set() == named - there
