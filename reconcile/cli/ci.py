"""What a command tells a CI system beside its own words: a JUnit file, and annotations of GitHub's kind."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import click

from reconcile.errors import InvalidFileError, ReconcileError, RefusedError

_NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


Level = Literal["ok", "warning", "failure", "error"]


@dataclass(frozen=True)
class Outcome:
    """What came of one thing that was checked in a file."""

    file: str
    name: str
    level: Level
    """`error` is what could not be checked."""
    message: str = ""
    line: int | None = None


@dataclass(frozen=True)
class Ci:
    """Who is told beside the terminal."""

    command: str
    junit: Path | None
    annotations: bool

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Write the JUnit file, and the annotations to stderr; raise RefusedError where the file cannot be written."""
        if self.annotations:
            for each in outcomes:
                if each.level != "ok":
                    click.echo(annotation(each), err=True)
        if self.junit is not None:
            try:
                self.junit.write_text(junit(self.command, outcomes), "utf-8")
            except OSError as error:
                raise RefusedError(f"--junit {self.junit} cannot be written: {error.strerror}") from None


def told(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --junit and --annotations; the command gets `ci`, and an error that it raises is told, too."""

    @click.option("--junit", metavar="FILE", type=click.Path(path_type=Path), help="Also write a JUnit file, for CI.")
    @click.option(
        "--annotations/--no-annotations",
        default=None,
        show_default="on GitHub's runners",
        help="Also write annotations as GitHub reads them, to stderr.",
    )
    @click.pass_context
    @wraps(command)
    def with_ci(
        context: click.Context, /, *given: Any, junit: Path | None, annotations: bool | None, **more: Any
    ) -> Any:
        on_github = os.environ.get("GITHUB_ACTIONS") == "true"
        ci = Ci(context.command_path, junit, on_github if annotations is None else annotations)
        try:
            return command(*given, ci=ci, **more)
        except ReconcileError as error:
            ci.tell(list(of_error(error, str(more.get("contract", "")))))
            raise

    return with_ci


def of_error(error: ReconcileError, file: str) -> Iterator[Outcome]:
    """Build what an error says of a file."""
    if isinstance(error, InvalidFileError):
        for problem in error.problems:
            yield Outcome(error.file, problem.path or "the file", "failure", str(problem), problem.line)
    else:
        yield Outcome(file, type(error).__name__, "error", str(error))


def annotation(outcome: Outcome) -> str:
    """Build the line that GitHub shows beside the line of a file."""
    level = "warning" if outcome.level == "warning" else "error"
    line = "" if outcome.line is None else f",line={outcome.line}"
    title = _escaped(outcome.name, ":,")
    return f"::{level} file={_escaped(outcome.file, ':,')}{line},title={title}::{_escaped(outcome.message)}"


def junit(command: str, outcomes: Sequence[Outcome]) -> str:
    """Render a JUnit file: a test case for each outcome, in the file that it is about."""
    counts = {level: str(sum(each.level == level for each in outcomes)) for level in ("failure", "error")}
    totals = {"tests": str(len(outcomes)), "failures": counts["failure"], "errors": counts["error"]}
    root = ElementTree.Element("testsuites", totals)
    suite = ElementTree.SubElement(root, "testsuite", {"name": command, **totals})
    for each in outcomes:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": _printable(each.file), "name": _printable(each.name)}
        )
        if each.line is not None:
            case.set("line", str(each.line))
        if each.level in ("failure", "error"):
            first = _printable(each.message.partition("\n")[0])
            ElementTree.SubElement(case, each.level, {"message": first}).text = _printable(each.message)
        elif each.message:
            ElementTree.SubElement(case, "system-out").text = _printable(each.message)
    ElementTree.indent(root)
    return f"{ElementTree.tostring(root, encoding='unicode', xml_declaration=True)}\n"


def _printable(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _escaped(text: str, more: Iterable[str] = "") -> str:
    for each in ("%", "\r", "\n", *more):
        text = text.replace(each, f"%{ord(each):02X}")
    return text
