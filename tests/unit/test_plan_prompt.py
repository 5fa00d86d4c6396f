"""The question before anything is emitted: it shows the numbers, and takes a no for one."""

from __future__ import annotations

from typing import Any, cast

import click
import pytest
from click.testing import CliRunner, Result

from reconcile.cli import repair
from reconcile.domain.approval import Actor
from reconcile.domain.plan import Plan
from reconcile.pipeline import approval
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.job import Job
from tests.unit.test_plan import PLAN


class Planned:
    """A run that has a plan, and the job of it."""

    def read(self, _: type[Plan]) -> Plan:
        """Read the plan."""
        return PLAN

    @property
    def run(self) -> Planned:
        """The job's run."""
        return self


def asked(
    monkeypatch: pytest.MonkeyPatch, answer: str, *, terminal: bool = True, yes: bool = False, awaited: bool = True
) -> Any:
    """Ask whether the plan may be applied; give the answer's output, what came of it, and what was approved by whom."""
    approvals: list[tuple[str, Actor]] = []

    monkeypatch.setattr("reconcile.pipeline.apply.require_applicable", lambda _job, _plan: None)
    monkeypatch.setattr(pipeline, "apply", lambda _job: {"links": []})
    monkeypatch.setattr(approval, "is_awaited", lambda _job, _plan, _approver: awaited)
    monkeypatch.setattr(approval, "approve", lambda _job, plan, approver: approvals.append((plan.digest, approver)))
    monkeypatch.setattr(repair, "at_terminal", lambda: terminal)

    @click.command()
    def command() -> None:
        applied = repair.emitted(cast("Job", Planned()), yes)
        click.echo("applied" if applied is not None else "not applied")

    result: Result = CliRunner().invoke(command, input=answer)
    return result, approvals


def test_a_yes_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever says y approves what they saw."""
    result, approvals = asked(monkeypatch, "y\n")
    assert ("applied\n", [(PLAN.digest, approval.os_user())]) == (result.stdout, approvals)


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_anything_else_is_a_no(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Nothing is emitted, and that is said."""
    result, approvals = asked(monkeypatch, answer)
    assert ("not applied\n", [], True) == (result.stdout, approvals, "nothing was emitted" in result.stderr)


def test_the_question_shows_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """By action and topic, and who else reads it."""
    result, _ = asked(monkeypatch, "n\n")
    assert "user-account/login: 1 restate to user-account; also read by billing-service" in result.stderr


def test_nobody_is_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage decides by the contract: nobody has approved."""
    result, approvals = asked(monkeypatch, "", terminal=False)
    assert ("applied\n", [], "") == (result.stdout, approvals, result.stderr)


def test_a_yes_beforehand_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """--yes is an approval."""
    result, approvals = asked(monkeypatch, "", yes=True)
    assert ([(PLAN.digest, approval.os_user())], "") == (approvals, result.stderr)


def test_nobody_is_asked_for_what_is_approved(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an interruption."""
    result, approvals = asked(monkeypatch, "", awaited=False)
    assert ("applied\n", [], "") == (result.stdout, approvals, result.stderr)
