"""Repair on a real world: what is planned is what is emitted, the services consume it, and the copies agree."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.cli import repair as repairing
from reconcile.control.errors import LeaseHeldError, LeaseLostError
from reconcile.control.leases import contract_lease
from reconcile.control.store import open_control
from reconcile.domain.approval import Actor
from reconcile.domain.correction import CORRECTION_ID, RUN_ID
from reconcile.domain.plan import Plan
from reconcile.domain.plan_rules import Action
from reconcile.errors import UnreachableError
from reconcile.files import committed
from reconcile.lab import faults, truth
from reconcile.lab.faults.stage import Stage
from reconcile.lab.folder import Lab
from reconcile.lab.services import offsets
from reconcile.lab.services.consumer import DatabaseTimeoutError, Group, Trouble
from reconcile.lab.services.copies import BILLING, LOGIN, Record
from reconcile.lab.services.relay import send
from reconcile.lab.services.user import OutboxEvent
from reconcile.pipeline import apply as stage_apply
from reconcile.pipeline import approval
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.apply import PlanRefusedError
from reconcile.pipeline.approval import NotApprovedError, OwnRequestError
from reconcile.pipeline.handoffs import Applied, Verified
from reconcile.pipeline.job import Job
from reconcile.repair.emission import emit
from reconcile.settings.settings import load_settings
from tests.integration.runs import Runs, apply, findings
from tests.integration.worlds import seeded_world
from tests.ports import ports_of
from tests.schemas import valid_output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 2
FAULTS = (
    "zoey-race", "dead-letter", "overtaken-dead-letter", "stash", "swallowed-exception", "ignored-tombstone",
    "relay-lost-rows", "wrong-payload", "source-restored", "producer-reorder", "hand-edit", "hand-delete", "phantom",
    "normalised-text", "broken-record", "wrong-partitioner", "duplicate-send",
)  # fmt: skip
ACCOUNT, BALANCE, ACTIVITY = "user-account", "user-balance", "user-activity"


@dataclass
class World:
    """A world, and the runs on it."""

    lab: Lab
    runs: Runs
    contracts: Path
    made: int = field(default=0)

    def stage(self, act: Callable[[Stage], None]) -> None:
        """Let the services do something."""
        with ExitStack() as stack:
            act(Stage(self.lab, random.Random(self.made), stack))  # noqa: S311

    def consume(self) -> None:
        """Let every service consume what is there."""
        self.stage(Stage.settle)

    def contract(self, name: str = ACCOUNT, repair: dict[str, Any] | None = None, **consumer: Any) -> Path:
        """Write one of the lab's contracts, with changes to its consumer and to what may be repaired."""
        said = yaml.safe_load(committed("contracts", f"{name}.yaml").read_text("utf-8"))
        said["consumers"][0] |= {"settle": {"timeout": "2s", "confirm_after": "0s"}, **consumer}
        said["consumers"][0]["repair"] |= repair or {}
        self.made += 1
        file = self.contracts / f"{name}-{self.made}.yaml"
        file.write_text(yaml.safe_dump(said, sort_keys=False))
        return file

    def edited(self) -> str:
        """Edit the e-mail address of somebody's copy; give the id."""
        before = len(truth.read(self.lab.truth))
        faults.plant(self.lab, faults.named(["hand-edit"]), 1)
        rows = truth.read(self.lab.truth)[before:]
        return str(next(row["aggregate_id"] for row in rows if row["fields"] == ["email"]))

    def planned(self, contract: Path, run_id: str, *ids: str) -> tuple[Job, Plan]:
        """Audit and plan."""
        job, _ = self.runs.audited(contract, run_id, ids=ids or None)
        return job, pipeline.plan(job)

    def ends(self, topic: str = ACCOUNT) -> dict[int, int]:
        """Give where a topic ends, once what stands in it is decided: markers take offsets, and come after a commit."""
        self.records(topic)
        return offsets.ends(offsets.admin_client(self.lab.bootstrap), topic)

    def records(self, topic: str = ACCOUNT) -> list[Record]:
        """Read a topic as another service would."""
        return Group(self.lab.bootstrap, "nobody", topic).poll()


@dataclass(frozen=True)
class Repaired:
    """A run that was applied and verified, and the one after it."""

    before: dict[tuple[str, str], dict[str, Any]]
    plan: Plan
    unchanged: bool
    """Whether planning left the topic as it was."""
    applied: Applied
    verified: Verified
    after: dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world with faults of every repairable kind, and some that are not."""
    with seeded_world(aggregates=1500, ports=ports_of("repair")) as lab:
        faults.plant(lab, faults.named(FAULTS), COUNT)
        folder = tmp_path_factory.mktemp("repair")
        yield World(lab, Runs.of(spark, lab, folder / "runs"), folder)


def repair(world: World, contract: Path, run_id: str, topic: str) -> Repaired:
    """Run, plan, apply, let the services consume, verify, and run again."""
    job, _ = world.runs.audited(contract, run_id)
    ends = world.ends(topic)
    plan = pipeline.plan(job)
    unchanged = ends == world.ends(topic)
    applied = apply(job)
    world.consume()
    verified = pipeline.verify(job)
    again, _ = world.runs.audited(contract, f"{run_id}-again")
    return Repaired(findings(job), plan, unchanged, applied, verified, findings(again))


@pytest.fixture(scope="module")
def account(world: World) -> Repaired:
    """The repair of login, deletions included."""
    return repair(world, world.contract(repair={"deletes": True}), "account", ACCOUNT)


@pytest.fixture(scope="module")
def balance(world: World, account: Repaired) -> Repaired:
    """The repair of billing, whose topic carries changes."""
    assert account.unchanged
    return repair(world, world.contract(BALANCE), "balance", BALANCE)


@pytest.fixture(scope="module")
def activity(world: World, balance: Repaired) -> Repaired:
    """The repair of the activity feed, whose copy holds immutable records."""
    assert balance.unchanged
    return repair(world, world.contract(ACTIVITY), "activity", ACTIVITY)


def left(plan: Plan) -> dict[tuple[str, str | None], str]:
    """Give what a plan leaves, by link and id."""
    return {
        (each.link, each.aggregate_id): each.cause
        for link in plan.links
        for each in link.items
        if each.action in (Action.ADVICE, Action.NOT_REPAIRED)
    }


def test_each_finding_has_its_line(account: Repaired) -> None:
    """The plan says of each finding what is to be done about it."""
    assert account.before.keys() == {
        (each.link, each.aggregate_id) for link in account.plan.links for each in link.items
    }


def test_planning_emits_nothing(account: Repaired) -> None:
    """The topic ends where it did."""
    assert account.unchanged


def test_what_was_planned_was_emitted(account: Repaired) -> None:
    """Each correction once, and none was dropped, as nobody moved on."""
    emitted = [each.correction_id for each in account.applied.links[0].emitted]
    assert sorted(str(each.correction_id) for each in account.plan.corrections) == sorted(emitted)


def test_the_copies_converge(account: Repaired) -> None:
    """Every correction of login converges once its services have consumed it."""
    link = account.verified.links[0]
    assert {"converged": len(list(account.plan.corrections))} == link.outcomes


@pytest.mark.parametrize("action", [Action.RESTATE, Action.TOMBSTONE])
def test_states_and_deletions_are_repaired(account: Repaired, action: Action) -> None:
    """There are some of both."""
    assert action in {each.action for each in account.plan.corrections}


def test_only_what_is_certain_to_be_gone_is_deleted(account: Repaired) -> None:
    """Of accounts whose deletion was never published the log says that they live: their owner has to publish it."""
    orphans = {key: each for key, each in account.before.items() if each["difference"] == "orphan"}
    done = {
        (orphans[key]["cause"], orphans[key]["confidence"], each.action)
        for each in account.plan.links[0].items
        if (key := (each.link, str(each.aggregate_id))) in orphans
    }
    assert {
        ("skipped", "certain", Action.TOMBSTONE),
        ("phantom", "certain", Action.TOMBSTONE),
        ("never_published", "possible", Action.ADVICE),
    } == done


def test_the_next_run_finds_what_the_plan_left(account: Repaired) -> None:
    """Nothing else, under the same cause."""
    assert left(account.plan) == {key: each["cause"] for key, each in account.after.items()}


def test_only_what_is_left_fails(account: Repaired) -> None:
    """Drift that the plan left to people is beyond tolerance."""
    drifted = sum(each["status"] == "confirmed" and each["difference"] != "latent" for each in account.after.values())
    assert (1, drifted) == (account.verified.exit_code, account.verified.links[0].still_different)


def test_a_correction_is_an_event_like_any_other(world: World, account: Repaired) -> None:
    """Each restatement has the members, their types and the headers of the events beside it, and a home among them."""
    records = world.records()
    assert account.applied.links
    ours = [each for each in records if CORRECTION_ID in each.headers and each.value is not None]
    plain = next(each for each in records if CORRECTION_ID not in each.headers and each.value is not None)
    shapes = {tuple((name, type(value).__name__) for name, value in each.body().items() if value) for each in ours}
    names = {tuple(each.body()) for each in ours}
    assert {tuple(plain.body())} == names
    assert {("version", "int"), ("emails", "list"), ("updated_at", "str")} <= set.intersection(*map(set, shapes))
    assert all(plain.headers.keys() <= each.headers.keys() for each in ours)
    homes = {each.key: each.partition for each in records if CORRECTION_ID not in each.headers}
    assert [] == [each.key for each in ours if homes.get(each.key, each.partition) != each.partition]


def test_sums_are_left_to_people(balance: Repaired) -> None:
    """A balance that differs gets an advice; no correction carries an amount."""
    of_sums = {key for key, each in balance.before.items() if [f["name"] for f in each["fields"]] == ["balance"]}
    assert of_sums
    assert of_sums <= left(balance.plan).keys()


def test_what_is_set_on_a_topic_of_changes_is_restated(world: World, balance: Repaired) -> None:
    """A tariff is told again, with id and version and nothing else."""
    ours = [each for each in world.records(BALANCE) if CORRECTION_ID in each.headers]
    assert {("id", "version", "tariff")} == {tuple(each.body()) for each in ours}
    assert {"converged": len(ours)} == balance.verified.links[0].outcomes


def test_a_level_without_its_balance_has_not_converged(world: World, balance: Repaired) -> None:
    """The tariff is brought and the balance is not: it is partial, names the field, and exits 1."""
    assert balance.unchanged
    people: list[str] = []

    def edited(stage: Stage) -> None:
        people.extend(person.user_id for person in stage.people(1))
        wrong = "update account set balance = balance + 7, tariff = 'lead' where user_id = %s"
        stage.execute("billing", wrong, people[0])

    world.stage(edited)
    job, plan = world.planned(world.contract(BALANCE), "partial", *people)
    assert [True] == [each.reason.endswith("it does not bring balance") for each in plan.corrections]
    apply(job)
    world.consume()
    verified = pipeline.verify(job)
    assert ({"partial": 1}, 1) == _outcome(verified)
    assert [("balance",)] == [each.differing for each in verified.links[0].corrections]
    assert 1 == verified.links[0].still_different
    result = said(world, "verify", "--run", "partial", "--json")
    assert (1, ["balance"]) == (
        result.exit_code,
        valid_output("verify", result.stdout)["links"][0]["corrections"][0]["differing"],
    )


def test_billing_is_left_with_what_the_plan_said(balance: Repaired) -> None:
    """The next run finds nothing else."""
    assert left(balance.plan).keys() == balance.after.keys()


def test_records_that_are_missing_are_added_and_doubled_ones_are_left(activity: Repaired) -> None:
    """A record can only add: what the feed lacks is told again, what it has twice gets an advice."""
    done = {
        (activity.before[each.link, str(each.aggregate_id)]["difference"], each.action)
        for each in activity.plan.links[0].items
    }
    assert {("missing", Action.RESTATE), ("duplicated", Action.ADVICE)} == done
    assert {"converged": len(list(activity.plan.corrections))} == activity.verified.links[0].outcomes
    assert left(activity.plan).keys() == activity.after.keys()


def test_applying_again_emits_nothing(world: World, account: Repaired) -> None:
    """The stage was done; it says the same."""
    job = world.runs.job(world.contracts / "user-account-1.yaml", "account")
    ends = world.ends()
    assert account.applied == pipeline.apply(job)
    assert ends == world.ends()


@pytest.fixture(scope="module")
def waiting(world: World) -> Job:
    """A run with three corrections that are planned and not applied."""
    people = [world.edited() for _ in range(3)]
    job, plan = world.planned(world.contract(), "waiting", *people)
    assert 3 == len(list(plan.corrections))
    return job


def test_nothing_is_emitted_without_a_yes(world: World, waiting: Job) -> None:
    """The contract asks for approval, and there is no terminal to ask on: exit 2, on the command line too."""
    ends = world.ends()
    with pytest.raises(NotApprovedError, match="say --yes"):
        pipeline.apply(waiting)
    assert isinstance(said(world, "apply", "--run", waiting.run.id).exception, NotApprovedError)
    assert ends == world.ends()


def test_a_no_exits_1_and_emits_nothing(world: World, waiting: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody sits at the terminal, and says so."""
    monkeypatch.setattr(repairing, "at_terminal", lambda: True)
    ends = world.ends()
    result = said(world, "apply", "--run", waiting.run.id, answer="n\n")
    assert (1, True) == (result.exit_code, "nothing was emitted" in result.stderr)
    assert ends == world.ends()


@pytest.mark.parametrize("lease", ["user-account/login", contract_lease(ACCOUNT)])
def test_runs_that_overlap_are_fenced(world: World, waiting: Job, lease: str) -> None:
    """Only the holder of the contract's lease and of the link's may write."""
    ends = world.ends()
    with (
        open_control(waiting.settings) as control,
        control.leases.hold(lease, "another", timedelta(seconds=30)),
        pytest.raises(LeaseHeldError, match="another holds the lease"),
    ):
        apply(waiting)
    assert ends == world.ends()


def test_whoever_holds_the_contract_already_is_not_shut_out_by_itself(world: World) -> None:
    """As Airflow's application does around all stages; a lease that it has lost emits nothing."""
    job, _ = world.planned(world.contract(), "held", world.edited())
    ends = world.ends()
    with open_control(job.settings) as control, control.leases.hold_contract(ACCOUNT, "held") as held:
        held._ended("another took it over")
        with pytest.raises(LeaseLostError):
            apply(replace(job, contract_lease=held))
        control.leases.release(held.lease)
    assert ends == world.ends()
    with open_control(job.settings) as control, control.leases.hold_contract(ACCOUNT, "held") as held:
        assert 1 == len(apply(replace(job, contract_lease=held)).links[0].emitted)


def test_findings_that_changed_refuse_the_plan(world: World, waiting: Job) -> None:
    """What was approved was approved for what was found then."""
    plan = waiting.run.read(Plan)
    with pytest.raises(PlanRefusedError, match="the findings of the run were changed"):
        stage_apply.require_applicable(
            waiting, plan.model_copy(update={"made_of": {**plan.made_of, "findings": "0" * 64}})
        )
    with pytest.raises(PlanRefusedError, match="the summary of the run were changed"):
        stage_apply.require_applicable(
            waiting, plan.model_copy(update={"made_of": {**plan.made_of, "summary": "0" * 64}})
        )


def test_a_contract_that_changed_refuses_the_plan(world: World, waiting: Job) -> None:
    """What was approved was approved under the contract as it was."""
    job = world.runs.job(world.contract(repair={"deletes": True}), waiting.run.id)
    with pytest.raises(PlanRefusedError, match="contract was changed"):
        pipeline.apply(job)


def test_an_interruption_says_where_it_stands(
    world: World, waiting: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Interrupted after the first of three batches; applied again, each correction stands once in the topic."""
    caplog.set_level(logging.INFO, "reconcile")
    steps: list[str] = []

    def interrupting(step: str) -> None:
        steps.append(step)
        if step == "mid_produce" and steps.count(step) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(stage_apply, "emit", partial(emit, batch=1, step=interrupting))
    with pytest.raises(KeyboardInterrupt):
        apply(waiting)
    assert "1 of 3 corrections are emitted" in caplog.messages[-1]
    monkeypatch.undo()
    pipeline.apply(waiting)  # what was approved is approved
    wanted = sorted(str(each.correction_id) for each in pipeline.plan(waiting).corrections)
    found = [each.headers[CORRECTION_ID].decode() for each in world.records() if CORRECTION_ID in each.headers]
    assert wanted == sorted(each for each in found if each in wanted)


def test_a_yes_can_be_said_beforehand(world: World) -> None:
    """`approval: none` in the contract is one."""
    job, _ = world.planned(world.contract(repair={"approval": "none"}), "waived", world.edited())
    assert 1 == len(pipeline.apply(job).links[0].emitted)


def test_one_record_mends_all_copies_that_read_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, also where it stopped between the two links; and each of them is verified by itself."""
    file = world.contract()
    said = yaml.safe_load(file.read_text("utf-8"))
    said["consumers"].append({**said["consumers"][0], "name": "mirror"})
    file.write_text(yaml.safe_dump(said, sort_keys=False))
    job, _ = world.planned(file, "shared", world.edited())
    share = stage_apply._Applying._share

    def stopped(*_: Any) -> dict[str, str]:
        raise UnreachableError("cut off")

    monkeypatch.setattr(stage_apply._Applying, "_share", stopped)
    with pytest.raises(UnreachableError, match="cut off"):
        apply(job)
    monkeypatch.setattr(stage_apply._Applying, "_share", share)
    first, second = (link.emitted for link in pipeline.apply(job).links)
    assert [(None, 1), ("user-account/login", 1)] == [(each[0].shared_with, len(each)) for each in (first, second)]
    assert (first[0].partition, first[0].offset) == (second[0].partition, second[0].offset)
    assert first[0].correction_id != second[0].correction_id
    assert 1 == sum(each.headers.get(RUN_ID) == b"shared" for each in world.records())
    world.consume()
    assert [{"converged": 1}] * 2 == [each.outcomes for each in pipeline.verify(job).links]


def test_what_nobody_consumed_is_unverified(world: World) -> None:
    """Exit 1; asked again once the group has come to it, it converged and exits 0, as the control store knows then."""
    job, _ = world.planned(world.contract(), "unverified", world.edited())
    apply(job)
    assert ({"unverified": 1}, 1) == _outcome(pipeline.verify(job))
    assert ("verify", 1) == _known(job)
    world.consume()
    assert ({"converged": 1}, 0) == _outcome(pipeline.verify(job))
    assert ("verify", 0) == _known(job)


def test_a_consumer_that_ignores_a_correction_has_refused_it(world: World) -> None:
    """Its group has passed it, and its copy is as it was: it exits 1 and says so."""
    job, _ = world.planned(world.contract(guard="newer-or-equal"), "ignored", world.edited())
    apply(job)
    world.stage(lambda stage: stage.consume(LOGIN, _ignoring_corrections))
    verified = pipeline.verify(job)
    assert ({"refused": 1}, 1) == _outcome(verified)
    assert "compares versions" in str(verified.links[0].corrections[0].reason)


def test_the_plan_knows_what_a_consumer_would_ignore(world: World) -> None:
    """An edit at the same version, and a consumer that takes newer ones only: an advice, and nothing to emit."""
    _, plan = world.planned(world.contract(guard="newer"), "guarded", world.edited())
    assert ["the consumer would ignore it"] == [each.reason.split(":")[0] for each in plan.links[0].items]


def test_a_source_that_moved_on_is_not_overwritten(world: World) -> None:
    """Changed between plan and application: the correction is dropped, with the reason."""
    someone = world.edited()
    job, _ = world.planned(world.contract(), "moved", someone)
    world.stage(lambda stage: _changed(stage, someone))
    (link,) = apply(job).links
    assert ((), 1) == (link.emitted, len(link.dropped))
    assert "moved on" in link.dropped[0].reason


def test_a_newer_event_in_the_log_forbids_a_correction(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published after the source was read again: what stands in the partition decides."""
    someone = world.edited()
    job, _ = world.planned(world.contract(), "overtaken", someone)

    def late(*args: Any, **kwargs: Any) -> Any:
        world.stage(lambda stage: _changed(stage, someone))
        return emit(*args, **kwargs)

    monkeypatch.setattr(stage_apply, "emit", late)
    (link,) = apply(job).links
    assert ((), ["a newer event"]) == (link.emitted, [each.reason[:13] for each in link.dropped])


def test_an_event_in_the_outbox_is_not_told_twice(world: World) -> None:
    """A feed of immutable records would have the event and its correction: the plan leaves it to the relay."""
    made: list[OutboxEvent] = []
    world.stage(lambda stage: made.append(stage.user.sign_in(stage.people(1)[0].user_id)))
    job, plan = world.planned(world.contract(ACTIVITY), "in-outbox", made[0].aggregate_id)
    apply(job)
    world.consume()
    assert [(1,)] == _activity(world, made[0].aggregate_id)
    waits = "an event of it waits in the source's outbox since 20"
    assert [True] == [each.reason.startswith(waits) for each in plan.links[0].items]


def test_an_event_that_was_put_back_into_the_outbox_is_not_told_twice(world: World) -> None:
    """Lost by the relay when it was planned for; somebody lets it be published anew: the guard sees it."""
    made: list[OutboxEvent] = []
    world.stage(lambda stage: made.append(_lost(stage, stage.user.sign_in(stage.people(1)[0].user_id))))
    job, plan = world.planned(world.contract(ACTIVITY), "put-back", made[0].aggregate_id)
    assert 1 == len(list(plan.corrections))
    world.stage(partial(_put_back, event=made[0]))
    (link,) = apply(job).links
    world.consume()
    assert [(1,)] == _activity(world, made[0].aggregate_id)
    assert [True] == [each.reason.startswith("moved on: an event of it waits") for each in link.dropped]


def test_an_amount_in_the_outbox_is_not_refused_as_old(world: World) -> None:
    """Behind a correction at its version, a consumer that compares versions would refuse it."""
    people: list[str] = []

    def changed(stage: Stage) -> None:
        people.extend(person.user_id for person in stage.people(1))
        stage.execute("billing", "update account set tariff = 'lead' where user_id = %s", people[0])
        stage.user.top_up(people[0], Decimal("5.00"))

    world.stage(changed)
    job, plan = world.planned(world.contract(BALANCE), "amount", people[0])
    assert ["balance", "tariff"] == sorted(
        each["name"] for each in findings(job)["user-balance/billing", people[0]]["fields"]
    )
    apply(job)
    world.stage(Stage.publish)
    world.stage(lambda stage: stage.consume(BILLING, _comparing_versions()))
    balances = [_balance(world, "user", "user_balance", people[0]), _balance(world, "billing", "account", people[0])]
    assert balances[0] == balances[1]
    assert [Action.NOT_REPAIRED] == [each.action for each in plan.links[0].items]


def test_the_event_itself_forbids_the_correction_of_what_was_never_published(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes between guard and commit, at the very version of the correction."""
    made: list[OutboxEvent] = []

    def renamed(stage: Stage) -> None:
        (person,) = stage.people(1)
        made.append(_lost(stage, stage.user.rename(person.user_id, stage.first_name(person.first_name))))

    world.stage(renamed)
    job, plan = world.planned(world.contract(), "published-late", made[0].aggregate_id)
    assert ["never_published"] == [each.cause for each in plan.corrections]

    def late(*args: Any, **kwargs: Any) -> Any:
        world.stage(lambda stage: send(stage.sender, made))
        return emit(*args, **kwargs)

    monkeypatch.setattr(stage_apply, "emit", late)
    (link,) = apply(job).links
    assert ((), ["a newer event"]) == (link.emitted, [each.reason[:13] for each in link.dropped])


def test_caps_refuse_a_plan_and_it_says_what_it_would_be(world: World) -> None:
    """The command exits 2 and lists the correction all the same."""
    someone = world.edited()
    contract = world.contract(repair={"max_corrections": 0})
    job, plan = world.planned(contract, "capped", someone)
    assert ["user-account/login: 1 corrections are more than repair.max_corrections: 0"] == plan.reasons
    result = said(world, "plan", "--run", "capped", "--json")
    assert (2, "restate") == (result.exit_code, valid_output("plan", result.stdout)["links"][0]["items"][0]["action"])
    with pytest.raises(PlanRefusedError, match="max_corrections"):
        apply(job)


def test_incomplete_runs_are_never_applied(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that could not be read: the plan is refused as a whole."""
    monkeypatch.setenv("RECONCILE_CONN_LOGIN_DB", "postgresql://login@127.0.0.1:1/login")
    job, _ = world.planned(world.contract(), "incomplete")
    with pytest.raises(PlanRefusedError, match="incomplete"):
        apply(job)


def test_the_command_line_repairs_from_the_comparison_on(world: World) -> None:
    """`run --apply --yes`: what nobody has consumed is unverified, and exits 1."""
    contract, someone = world.contract(), world.edited()
    result = said(world, "run", str(contract), "--id", someone, "--apply", "--yes", "--run-id", "whole", "--json")
    assert 1 == result.exit_code
    assert {"unverified": 1} == valid_output("run", result.stdout)["repair"]["links"][0]["outcomes"]
    world.consume()
    assert 0 == said(world, "verify", "--run", "whole").exit_code


def test_another_person_approves_what_one_asked_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked is refused, and told so; another user of the machine emits it, and the control store keeps both."""
    asked = ("--id", world.edited(), "--run-id", "two-people", "--apply", "--yes")
    contract, ends = world.contract(repair={"approval": "two-people"}), world.ends()
    refused = said(world, "run", str(contract), *asked)
    me = approval.os_user()
    assert isinstance(refused.exception, OwnRequestError)
    assert f"{me} asked for the run two-people" in str(refused.exception)
    assert ends == world.ends()
    monkeypatch.setattr(approval, "os_user", lambda: Actor("somebody-else", "cli"))
    assert 0 == said(world, "apply", "--run", "two-people", "--yes").exit_code
    assert ends != world.ends()
    with open_control(load_settings(world.runs.settings_file, str(world.runs.folder))) as control:
        (kept,) = control.approvals.of_run("two-people")
        assert (me, "somebody-else") == (control.runs.find("two-people").requester, kept.approver.name)


def said(world: World, *words: str, answer: str | None = None) -> Any:
    """Call the command line."""
    settings = ("--config", str(world.runs.settings_file), "--workspace", str(world.runs.folder))
    return CliRunner().invoke(cli, [*words, *settings], input=answer)


def _lost(stage: Stage, event: OutboxEvent) -> OutboxEvent:
    """Let the relay mark an event as published that it never sent."""
    stage.relay.mark_published([position for position, each in stage.unpublished() if each.event_id == event.event_id])
    return event


def _comparing_versions() -> Trouble:
    """Refuse what is not newer than what came before it."""
    newest: dict[bytes | None, int] = {}

    def refused(record: Record) -> Exception | None:
        version = int(record.body()["version"])
        old = version <= newest.get(record.key, 0)
        newest[record.key] = max(version, newest.get(record.key, 0))
        return DatabaseTimeoutError() if old else None

    return refused


def _balance(world: World, database: str, table: str, user_id: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    statement = f"select balance from {table} where user_id = %s"
    world.stage(lambda stage: found.extend(stage.execute(database, statement, user_id)))
    return found


def _put_back(stage: Stage, event: OutboxEvent) -> None:
    stage.execute("user", "update outbox set published_at = null where event_id = %s", event.event_id)


def _activity(world: World, record_id: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    count = "select count(*) from activity_record where record_id = %s"
    world.stage(lambda stage: found.extend(stage.execute("activity", count, record_id)))
    return found


def _known(job: Job) -> tuple[str | None, int | None]:
    with open_control(job.settings) as control:
        record = control.runs.begin(job.run.id, job.contract.aggregate, job.contract.digest)
        return record.stage, record.exit_code


def _outcome(verified: Verified) -> tuple[dict[str, int], int]:
    return verified.links[0].outcomes, verified.exit_code


def _ignoring_corrections(record: Record) -> Exception | None:
    return DatabaseTimeoutError() if CORRECTION_ID in record.headers else None


def _changed(stage: Stage, user_id: str) -> None:
    stage.user.rename(user_id, "Moved")
    stage.publish()
