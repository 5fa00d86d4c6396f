"""Nothing is emitted but the plan that somebody approved; who did is kept."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import click
import pytest

from reconcile.cli import repair
from reconcile.contract.model import load_contract
from reconcile.control.store import open_control
from reconcile.domain.approval import REQUEST_TOPIC, SCHEDULER, Actor, Approval
from reconcile.domain.plan import Item, LinkPlan, Plan
from reconcile.domain.plan_rules import Action
from reconcile.pipeline import apply as stage_apply
from reconcile.pipeline import record
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.approval import NotApprovedError, OwnRequestError, PlanReplacedError, approve, os_user
from reconcile.pipeline.handoffs import Applied
from reconcile.pipeline.job import Job
from reconcile.pipeline.plan import MADE_OF
from reconcile.settings.settings import Settings
from tests.unit.report_runs import LINK, contract_file, finding, made_run

ALICE, BOB = Actor("alice", "cli"), Actor("bob", "cli")


def item(id_: str) -> Item:
    """Build one line of a plan that emits a record."""
    return Item(
        link=LINK, aggregate_id=id_, action=Action.RESTATE, cause="skipped", topic="user-account", reason="why",
        partitions=(4,), basis_version=3, basis="x", correction_id=f"c-{id_}",
    )  # fmt: skip


def publish(job: Job, *ids: str, approval: bool = True, two_people: bool = False) -> Plan:
    """Publish a plan of so many corrections; one that is there is replaced."""
    link = LinkPlan(
        link=LINK, consumer="login", group="login-service", topic="user-account", topic_id="t", partitions=12,
        partitioner=("crc32",), since={0: 1}, readers=(), approval=approval,
        two_people=two_people, items=tuple(map(item, ids)),
    )  # fmt: skip
    plan = Plan.sealed(
        run_id=job.run.id,
        contract=job.contract.aggregate,
        contract_digest=job.contract.digest,
        made_of={name: job.run.manifest(name).digest for name in MADE_OF},
        links=(link,),
    )
    shutil.rmtree(Path(job.run.folder) / Plan.ARTIFACT, ignore_errors=True)
    job.run.publish(plan, job.inputs(MADE_OF))
    return plan


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A run that was audited."""
    file = contract_file(tmp_path)
    place, run = made_run(tmp_path / "runs", [finding("u1"), finding("u2")], contract=file)
    return Job(load_contract(file), file, Settings(workspace=place.root), place, run)


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The ids of what is emitted."""
    found: list[str | None] = []

    def link(_: object, planned: LinkPlan) -> dict[str, str]:
        found.extend(each.aggregate_id for each in planned.corrections)
        return {}

    monkeypatch.setattr(stage_apply._Applying, "link", link)
    return found


def test_a_plan_that_was_replaced_while_somebody_looked_at_it_is_not_emitted(
    job: Job, emitted: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They said yes to what they saw."""
    publish(job, "u1")

    def answer(*_: object, **__: object) -> bool:
        publish(job, "u1", "u2")
        return True

    monkeypatch.setattr(repair, "at_terminal", lambda: True)
    monkeypatch.setattr(click, "confirm", answer)
    with pytest.raises(PlanReplacedError, match=r"is not the one that .* approved at .*: it was made anew"):
        repair.emitted(job, yes=False)
    assert [] == emitted


def test_a_plan_that_was_made_anew_is_not_approved(job: Job, emitted: list[str | None]) -> None:
    """Whoever approved the one before has to look at it again; then it is emitted."""
    approve(job, publish(job, "u1"), ALICE)
    publish(job, "u2")
    with pytest.raises(PlanReplacedError, match=r"the one that alice \(cli\) approved"):
        pipeline.apply(job)
    approve(job, job.run.read(Plan), ALICE)
    pipeline.apply(job)
    assert ["u2"] == emitted


def test_a_plan_that_nobody_approved_is_not_emitted(job: Job, emitted: list[str | None]) -> None:
    """The error says what to do."""
    publish(job, "u1")
    with pytest.raises(NotApprovedError, match="say --yes"):
        pipeline.apply(job)
    assert [] == emitted


def test_an_approval_outlives_an_attempt_that_failed(
    job: Job, emitted: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt with the same plan needs no other one, and asks nobody."""
    publish(job, "u1")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stage_apply._Applying, "link", killed)
        with pytest.raises(KeyboardInterrupt):
            repair.emitted(job, yes=True)
    monkeypatch.setattr(repair, "at_terminal", lambda: True)
    assert repair.emitted(job, yes=False) is not None
    assert ["u1"] == emitted


def test_what_was_applied_says_who_asked_and_who_approved(job: Job, emitted: list[str | None]) -> None:
    """As `apply --json` prints it, and as the next stages read it."""
    approve(*asked_for(job, ALICE), BOB)
    applied = pipeline.apply(job)
    assert (ALICE, [BOB]) == (applied.requester, [each.approver for each in applied.approvals])
    assert applied == job.run.read(Applied)


def test_people_see_who_asked_and_who_approved(
    job: Job, emitted: list[str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Below the figures of what was emitted."""
    approve(*asked_for(job, ALICE), BOB)
    repair.show_applied(pipeline.apply(job))
    (kept,) = approvals(job)
    at = f"{kept.approved_at:%Y-%m-%d %H:%M:%S}"
    assert f"Asked for by alice (cli).\nApproved by bob (cli) at {at} UTC.\n" in capsys.readouterr().out


def test_a_yes_is_kept_with_the_user_of_the_machine(job: Job, emitted: list[str | None]) -> None:
    """And with the digest of the plan."""
    plan = publish(job, "u1")
    repair.emitted(job, yes=True)
    (kept,) = approvals(job)
    assert (plan.digest, os_user()) == (kept.plan_digest, kept.approver)


@pytest.mark.parametrize("yes", [True, False])
def test_a_plan_that_needs_no_approval_is_emitted(job: Job, emitted: list[str | None], yes: bool) -> None:
    """A yes is kept all the same where somebody says it."""
    publish(job, "u1", approval=False)
    repair.emitted(job, yes=yes)
    assert (["u1"], [os_user()] * yes) == (emitted, [each.approver for each in approvals(job)])


@pytest.fixture
def own(job: Job) -> tuple[Job, Plan]:
    """A run that we asked for, with a plan that needs two people."""
    return asked_for(job, os_user())


def asked_for(job: Job, requester: Actor | None) -> tuple[Job, Plan]:
    """Begin a run that somebody asked for, with a plan that needs two people."""
    record.reach(replace(job, requester=requester), "gather")
    return job, publish(job, "u1", two_people=True)


def test_nobody_approves_what_they_asked_for(own: tuple[Job, Plan], emitted: list[str | None]) -> None:
    """The error says who asked, and what to do."""
    job, _ = own
    told = rf"{os_user().name} \(cli\) asked for the run r1.* Somebody else has to: `reconcile apply r1 --yes`"
    with pytest.raises(OwnRequestError, match=told):
        repair.emitted(job, yes=True)
    assert ([], []) == (emitted, approvals(job))


def test_nobody_is_asked_for_what_they_may_not_approve(
    own: tuple[Job, Plan], emitted: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They learn it before the question, not after it."""
    monkeypatch.setattr(repair, "at_terminal", lambda: True)
    monkeypatch.setattr(click, "confirm", pytest.fail)
    with pytest.raises(OwnRequestError, match="asked for the run r1"):
        repair.emitted(own[0], yes=False)


def test_sudo_makes_no_second_person(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked is behind the user who approves."""
    asked_for(job, ALICE)
    monkeypatch.setenv("SUDO_USER", "alice")
    with pytest.raises(OwnRequestError, match="by sudo from alice"):
        repair.emitted(job, yes=True)


@pytest.mark.parametrize("requester", [ALICE, SCHEDULER])
def test_another_person_approves(job: Job, emitted: list[str | None], requester: Actor) -> None:
    """One is enough where the scheduler asked."""
    approve(*asked_for(job, requester), BOB)
    pipeline.apply(job)
    assert ["u1"] == emitted


@pytest.mark.parametrize("yes", [True, False])
def test_who_asked_may_go_on_with_what_another_approved(
    own: tuple[Job, Plan], emitted: list[str | None], yes: bool
) -> None:
    """Their own yes is not kept: it says nothing."""
    approve(*own, BOB)
    repair.emitted(own[0], yes=yes)
    assert (["u1"], [BOB]) == (emitted, [each.approver for each in approvals(own[0])])


def test_an_approval_of_who_asked_counts_for_nothing(own: tuple[Job, Plan], emitted: list[str | None]) -> None:
    """However it came into the control store."""
    job, plan = own
    with open_control(job.settings) as control:
        control.approvals.keep(job.run.id, plan.digest, os_user())
    with pytest.raises(NotApprovedError, match="by somebody who did not ask for the run"):
        pipeline.apply(job)
    assert [] == emitted


@pytest.mark.parametrize("requester", [None, REQUEST_TOPIC])
def test_a_run_that_nobody_is_known_to_have_asked_for_is_not_approved(job: Job, requester: Actor | None) -> None:
    """It may have been anybody: also who wrote a record on the request topic may be who approves."""
    with pytest.raises(OwnRequestError, match=r"nothing says who asked for the run r1.*start a new run"):
        approve(*asked_for(job, requester), BOB)


def approvals(job: Job) -> list[Approval]:
    """Query the approvals that are kept of a run."""
    with open_control(job.settings) as control:
        return control.approvals.of_run(job.run.id)
