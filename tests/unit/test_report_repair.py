"""What reports say of plans, and of what became of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from reconcile.domain.approval import Actor, Approval
from reconcile.domain.cause import Cause
from reconcile.domain.plan import Item, LinkPlan, Plan
from reconcile.domain.plan_rules import Action
from reconcile.pipeline.handoffs import Applied, AppliedLink, DroppedCorrection, EmittedRecord, VerifiedCorrection
from reconcile.pipeline.result import links_of, report_of
from reconcile.pipeline.runs import run_line
from reconcile.pipeline.verdict import verdict
from reconcile.report.html import report_html
from reconcile.report.json import report_data
from reconcile.report.model import Count, Level, Repair, Report
from reconcile.report.prometheus import prometheus
from reconcile.settings.settings import Settings
from reconcile.web.app import web_app
from reconcile.workspace.manifest import Inputs
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace
from tests.unit.handoffs import link_summary, summary, verified, verified_link
from tests.unit.report_runs import LINK, finding, made_run

INPUTS = Inputs(contract="0" * 64)


def planned(folder: Path) -> tuple[Workspace, Run]:
    """Give a run with a plan of two lines."""
    place, run = made_run(folder, [finding("u1"), finding("u2")])
    items = (
        Item(
            link=LINK, aggregate_id="u1", action=Action.RESTATE, cause="skipped", topic="user-account",
            reason="says the source's state again", partitions=(4,), basis_version=3, basis="x", correction_id="c1",
        ),
        Item(link=LINK, aggregate_id="u2", action=Action.ADVICE, cause="stashed", reason="release the stash first"),
    )  # fmt: skip
    link = LinkPlan(
        link=LINK, consumer="login", group="login-service", topic="user-account", topic_id="t", partitions=12,
        partitioner=("crc32",), since={0: 1}, readers=("billing-service",), approval=True, items=items,
    )  # fmt: skip
    plan = Plan.sealed(run_id="r1", contract="user-account", contract_digest="0" * 64, made_of={}, links=(link,))
    run.publish_json("plan", plan.model_dump(mode="json"), INPUTS, stage="plan")
    return place, run


ALICE = Actor("alice", "airflow")
APPROVAL = Approval("r1", "0" * 64, Actor("bob", "cli", "carol"), datetime(2026, 3, 1, 12, tzinfo=UTC))


def emitted(run: Run, *, dropped: str | None = None) -> None:
    """Publish that the one correction was emitted, or why it was not."""
    record = EmittedRecord(correction_id="c1", aggregate_id="u1", partition=4, offset=9)
    link = AppliedLink(
        link=LINK,
        topic="user-account",
        emitted=() if dropped else (record,),
        dropped=(DroppedCorrection(correction_id="c1", reason=dropped),) if dropped else (),
    )
    applied = Applied(run_id=run.id, plan="0" * 64, links=(link,), requester=ALICE, approvals=(APPROVAL,))
    run.publish(applied, INPUTS)


def seen(run: Run, outcome: str, left: int, code: int) -> None:
    """Publish what was seen of the one correction."""
    correction = VerifiedCorrection(correction_id="c1", aggregate_id="u1", outcome=outcome, reason=None)
    link = verified_link({outcome: 1}, left, corrections=(correction,))
    run.publish(verified(link.model_copy(update={"beyond_tolerance": code == 1}), exit_code=code), INPUTS)


def told(place: Workspace, run: Run) -> Report:
    """Give the report."""
    return report_of(run, place, Settings(workspace=place.root))


def test_without_a_plan_nothing_is_said_of_repair(tmp_path: Path) -> None:
    """None, and not a plan of nothing."""
    place, run = made_run(tmp_path, [finding()])
    assert told(place, run).repair is None


def test_the_plan_page_shows_each_line(tmp_path: Path) -> None:
    """What is done about each, why, where to, and what its cause means."""
    place, run = planned(tmp_path)
    emitted(run)
    text = TestClient(web_app(place, Settings(workspace=place.root))).get("/runs/r1/plan").text
    assert "user-account, partition 4" in text
    assert "release the stash first" in text
    assert Cause.STASHED.meaning.replace("'", "&#39;") in text
    assert 'class="badge emitted"' in text


def test_a_plan_is_told_as_what_repair_would_do(tmp_path: Path) -> None:
    """By action, with who else reads the topic and why the rest is left."""
    repair = told(*planned(tmp_path)).repair
    assert repair is not None
    link = repair.links[0]
    assert (False, False) == (repair.applied, repair.verified)
    assert (Count("restate", 1), Count("advice", 1)) == link.actions
    assert (("billing-service",), (Count("release the stash first", 1),), ()) == (
        link.readers,
        link.not_repaired,
        link.states,
    )


def test_a_finding_says_what_is_done_about_it(tmp_path: Path) -> None:
    """With the place that the record goes to."""
    shown = {each.finding.aggregate_id: each.repair for each in told(*planned(tmp_path)).shown}
    assert Repair("restate", "says the source's state again", "user-account", (4,)) == shown["u1"]
    assert Repair("advice", "release the stash first", None, ()) == shown["u2"]


def test_what_was_emitted_is_told(tmp_path: Path) -> None:
    """As long as nobody has looked at what became of it."""
    place, run = planned(tmp_path)
    emitted(run)
    repair = told(place, run).repair
    assert repair is not None
    assert (True, (Count("emitted", 1),)) == (repair.applied, repair.links[0].states)


def test_a_report_says_who_asked_and_who_approved(tmp_path: Path) -> None:
    """In its model, in JSON with the instant, and for people."""
    place, run = planned(tmp_path)
    emitted(run)
    report = told(place, run)
    assert report.repair is not None
    assert (ALICE, (APPROVAL,)) == (report.repair.requester, report.repair.approvals)
    shown = report_data(report)["repair"]["approvals"][0]
    assert ({"name": "bob", "way": "cli", "sudo_user": "carol"}, "2026-03-01T12:00:00Z") == (
        shown["approver"],
        shown["approved_at"],
    )
    html = "".join(report_html(report))
    assert "Asked for by alice (airflow). Approved by bob (cli, by sudo from carol), " in html


def test_nobody_is_named_before_anything_was_applied(tmp_path: Path) -> None:
    """A plan alone is of nobody."""
    place, run = planned(tmp_path)
    assert "Asked for by" not in "".join(report_html(told(place, run)))


def test_who_approved_is_in_the_list_of_runs(tmp_path: Path) -> None:
    """Beside what it came to."""
    place, run = planned(tmp_path)
    assert () == run_line(place, run.id).approvers
    emitted(run)
    assert ("bob (cli, by sudo from carol)",) == run_line(place, run.id).approvers


def test_what_was_dropped_says_why(tmp_path: Path) -> None:
    """The source had moved on, for one."""
    place, run = planned(tmp_path)
    emitted(run, dropped="moved on")
    shown = {each.finding.aggregate_id: each.repair for each in told(place, run).shown}
    assert shown["u1"] is not None
    assert ("dropped", "moved on") == (shown["u1"].state, shown["u1"].why)


def test_the_verification_has_the_last_word(tmp_path: Path) -> None:
    """What was emitted is converged now."""
    place, run = planned(tmp_path)
    emitted(run)
    seen(run, "converged", 1, 1)
    repair = told(place, run).repair
    assert repair is not None
    assert (True, (Count("converged", 1),)) == (repair.verified, repair.links[0].states)


@pytest.mark.parametrize(
    ("outcome", "left", "code", "level", "verdict"),
    [
        ("converged", 0, 0, Level.REPAIRED, "2 of 1,000 aggregates differed; 2 repaired, none still different"),
        ("converged", 1, 0, Level.TOLERATED, "2 of 1,000 aggregates differed; 1 repaired, 1 still different"),
        ("converged", 1, 1, Level.DRIFT, "2 of 1,000 aggregates differed; 1 repaired, 1 still different"),
        ("refused", 2, 1, Level.DRIFT, "2 of 1,000 aggregates differed; none repaired, 2 still different"),
    ],
)
def test_the_headline_tells_what_repair_did(
    tmp_path: Path, outcome: str, left: int, code: int, level: Level, verdict: str
) -> None:
    """With the exit code that the verification had, also in the list of runs and in the metrics."""
    place, run = planned(tmp_path)
    emitted(run)
    seen(run, outcome, left, code)
    report = told(place, run)
    assert (level, code) == (report.level, report.exit_code)
    assert f"The copy has drifted: {verdict}" == report.verdict
    assert code == run_line(place, run.id).exit_code
    lines = prometheus(report).splitlines()
    assert f'reconcile_run_exit_code{{contract="user-account"}} {code}' in lines
    assert f'reconcile_corrections{{link="{LINK}",outcome="{outcome}"}} 1' in lines
    assert f'reconcile_left{{link="{LINK}"}} {left}' in lines


def test_a_headline_counts_one_set_of_copies() -> None:
    """Those that drifted beyond what is tolerated, before and after."""
    drifted = {"a": 2, "b": 3}
    links = [link_summary(name, drifted=n, agreeing=100 - n, beyond_tolerance=n > 2) for name, n in drifted.items()]
    ended = verified(*(verified_link({}, link=f"user-account/{each}") for each in drifted))
    expected = "1 of 2 copies have drifted: 3 of 100 aggregates differed; 3 repaired, none still different"
    assert expected == verdict(Level.REPAIRED, links_of(summary(*links), {}, ended), None, 0)


def test_a_repaired_run_is_called_repaired_in_a_list(tmp_path: Path) -> None:
    """And not that it has drifted."""
    place, run = planned(tmp_path)
    seen(run, "converged", 0, 0)
    assert Level.REPAIRED == run_line(place, run.id).level
