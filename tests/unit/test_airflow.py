"""What the DAGs decide: run ids, approval, alerts, requests, what spark-submit is given."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reconcile.airflow import review as reviews
from reconcile.airflow.application import (
    REFUSED,
    TRY_LATER,
    _ids,
    application,
    main,
)
from reconcile.airflow.installation import Installation
from reconcile.airflow.review import alerts, not_applied, review
from reconcile.airflow.scheduled_run import ScheduledRun, run_id_of
from reconcile.airflow.submission import arguments, configuration, ids_file, references
from reconcile.control.errors import LeaseHeldError
from reconcile.control.store import open_control
from reconcile.domain.approval import SCHEDULER, Actor
from reconcile.domain.plan import Item, LinkPlan, Plan
from reconcile.domain.plan_rules import Action
from reconcile.errors import ReconcileError, RefusedError, UnreachableError
from reconcile.gather.fence.fence import UnreadableLink
from reconcile.pipeline.handoffs import LinkSummary, Request
from reconcile.pipeline.requests import RequestRecord, read
from reconcile.pipeline.stages import IncompleteError, require_read
from reconcile.quality.gate import unmet
from reconcile.settings.connections import ClusterConnection
from reconcile.settings.references import Reference
from reconcile.settings.settings import Settings, Spark
from reconcile.spark.session import SparkStartError
from reconcile.workspace.workspace import Workspace
from tests.unit.handoffs import expected, fence, link_summary, summary, verified, verified_link

FILE = Path("contracts/user-account.yaml")
AT = datetime(2026, 11, 18, 1, 0, tzinfo=UTC)
SCHEDULED = ScheduledRun(str(FILE), "user-account-1")
LINK = "user-account/login"
AGGREGATES = {LINK: 100}


def drifted(number: int, compared: int = 100) -> LinkSummary:
    """Build the figures of a link of which so many differ."""
    return link_summary(drifted=number, compared=compared, beyond_tolerance=number > 0)


def plan(restate: int = 0, approval: bool = True, refused: tuple[str, ...] = ()) -> Plan:
    """Build a plan of so many corrections and one advice."""
    states = [
        Item(link=LINK, aggregate_id="u", action=Action.RESTATE, cause="skipped", reason="", correction_id=f"c{number}")
        for number in range(restate)
    ]
    advice = Item(link=LINK, aggregate_id="v", action=Action.ADVICE, cause="stashed", reason="release the stash first")
    link = LinkPlan(
        link=LINK, consumer="login", group="login-service", topic="user-account", topic_id="t", partitions=12,
        partitioner=("crc32",), since={0: 1}, readers=("billing",), approval=approval, refused=refused,
        items=(*states, advice),
    )  # fmt: skip
    return Plan.sealed(
        run_id="r", contract="user-account", contract_digest="0" * 64, made_of={}, links=(link,), refused=()
    )


def test_an_attempt_continues_its_run() -> None:
    """The same run of a DAG gives the same run."""
    assert run_id_of(FILE, "nightly", "scheduled__1", AT) == run_id_of(FILE, "nightly", "scheduled__1", AT)


def test_another_night_is_another_run() -> None:
    """Runs of a DAG that begin in the same second are told apart."""
    assert run_id_of(FILE, "nightly", "manual__1", AT) != run_id_of(FILE, "nightly", "manual__2", AT)


def test_another_file_is_another_run() -> None:
    """Contracts whose names differ only in what a run's id cannot hold are told apart."""
    names = ("a b.yaml", "a-b.yaml", "a--b.yaml", "x" * 200 + "1.yaml", "x" * 200 + "2.yaml")
    assert len(names) == len({run_id_of(Path(each), "nightly", "1", AT) for each in names})


def test_any_file_name_gives_a_run_id() -> None:
    """A contract's file may bear any name."""
    assert run_id_of(Path("ä b/..x ü.yaml"), "nightly", "1", AT).startswith("x-20261118T010000Z-")


def test_what_is_asked_comes_through_a_task() -> None:
    """What is asked for is the same after it was handed on."""
    wanted = replace(SCHEDULED, ids=("a",), consumers=("login",), max_corrections=3, requester=SCHEDULER)
    handed_on = ScheduledRun.of(wanted.data())
    assert (wanted.data(), SCHEDULER) == (handed_on.data(), handed_on.requester)


def test_a_person_is_asked_where_the_contract_wants_it() -> None:
    """There are corrections, and their link needs approval."""
    assert review(SCHEDULED, plan(2), AGGREGATES)["needs_approval"]


def test_a_plan_that_needs_two_people_says_who_asked() -> None:
    """Before anybody answers in vain."""
    links = tuple(each.replaced(two_people=True) for each in plan(2).links)
    made = Plan.sealed(run_id="r", contract="user-account", contract_digest="0" * 64, made_of={}, links=links)
    reviewed = review(replace(SCHEDULED, requester=Actor("alice", "airflow")), made, AGGREGATES)
    assert (True, made.digest) == (reviewed["two_people"], reviewed["digest"])
    assert "It needs two people: alice (airflow) asked for it, and somebody else approves." in reviewed["body"]


@pytest.mark.parametrize(
    ("scheduled_run", "made"),
    [
        (SCHEDULED, plan(0)),
        (SCHEDULED, plan(2, approval=False)),
        (SCHEDULED, plan(2, refused=("more than the cap",))),
        (replace(SCHEDULED, apply=False), plan(2)),
        (replace(SCHEDULED, max_corrections=1), plan(2)),
        (replace(SCHEDULED, max_ratio=0.01), plan(2)),
    ],
)
def test_nobody_is_asked_in_vain(scheduled_run: ScheduledRun, made: Plan) -> None:
    """Nobody is asked where nothing is to be approved, or nothing would be applied."""
    assert not review(scheduled_run, made, AGGREGATES)["needs_approval"]


def test_a_ratio_is_a_share_of_the_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only some ids were asked for: two of them are few among a hundred."""
    run = Workspace(str(tmp_path)).run(SCHEDULED.run_id)
    inputs = run.inputs("digest")
    run.publish(Request(contract="c.yaml", aggregate="user-account", ids=("a", "b")), inputs)
    run.publish(plan(2), inputs)
    run.publish(summary(drifted(2, compared=2)), inputs)
    run.publish(fence(100), inputs)
    monkeypatch.setattr(reviews, "installation", lambda: Installation(None, str(tmp_path), tmp_path))
    some = replace(SCHEDULED, ids=("a", "b"), max_ratio=0.02)
    assert reviews.read_review(some)["needs_approval"]
    assert "more than 1.00%" in str(reviews.read_review(replace(some, max_ratio=0.01))["skipped"])


@pytest.mark.parametrize("decision", [None, {}, {"chosen_options": ["Reject"]}, {"chosen_options": []}])
def test_nothing_is_applied_without_a_yes(decision: dict[str, Any] | None) -> None:
    """Anything but an explicit yes is a no."""
    assert "the corrections were not approved" == not_applied(review(SCHEDULED, plan(2), AGGREGATES), decision)


def test_a_yes_is_enough() -> None:
    """What was approved is applied."""
    assert not_applied(review(SCHEDULED, plan(2), AGGREGATES), {"chosen_options": ["Approve"]}) is None


def test_a_yes_does_not_lift_a_refusal() -> None:
    """A plan that is refused is not applied, whatever somebody answered."""
    reviewed = review(SCHEDULED, plan(2, refused=("more than the cap",)), AGGREGATES)
    assert "refused" in str(not_applied(reviewed, {"chosen_options": ["Approve"]}))


def test_agreement_alerts_nobody() -> None:
    """There is nothing to tell of a run that found nothing."""
    assert [] == alerts(summary(link_summary()), (), plan(), None)


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        ("drift", alerts(summary(drifted(3)), (), plan(), None)),
        ("incomplete", alerts(summary(unread={LINK: "it does not answer"}), (), None, None)),
        ("plan", alerts(summary(link_summary()), (), plan(refused=("caps",)), None)),
        ("repair", alerts(summary(drifted(3)), (), plan(3), verified(verified_link({"converged": 2, "refused": 1})))),
        ("repair", alerts(summary(drifted(3)), (), plan(3), verified(verified_link({"converged": 2, "partial": 1})))),
        ("drift", alerts(summary(drifted(3)), (), plan(3), verified(verified_link({"converged": 2}, 1)))),
    ],
)
def test_what_people_are_told(kind: str, raised: list[Any]) -> None:
    """Drift, incomplete runs, refused plans and failed repairs are each told once."""
    assert [kind] == [each.kind for each in raised]


def test_drift_does_not_close_the_gate() -> None:
    """That copies differ is what repair is for; that data cannot be trusted stops it."""
    results = [expected(suite, said=f"{suite}: x") for suite in ("findings", "source")]
    assert [f"{LINK}: source: x"] == unmet(results)


def test_a_request_is_read_as_it_was_written() -> None:
    """A record holds all that was asked for."""
    wanted = RequestRecord("r-1", "user-account", ("a", "ü"), "full", apply=True)
    assert wanted == read(wanted.value())


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"no", b"[]", b"{}", b'{"id": "1"}', b'{"id": "1", "contract": "../../etc/passwd"}',
        b'{"id": "1", "contract": "a", "ids": "b"}', b'{"id": "1", "contract": "a", "apply": "yes"}',
        b'{"id": "1", "contract": "a", "mode": "fast"}', b'{"id": "1", "contract": "a", "yes": true}', b"\xff",
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(value: bytes | None) -> None:
    """Anybody who can write to the topic may have written anything."""
    with pytest.raises(RefusedError):
        read(value)


def test_only_a_contract_of_the_folder_is_taken(tmp_path: Path) -> None:
    """A name leads to a file of the folder or nowhere."""
    (tmp_path / "user-account.yaml").touch()
    with pytest.raises(RefusedError, match='did you mean "user-account"'):
        Installation(None, None, tmp_path).contract_file("user-acount")


def test_the_application_is_told_all() -> None:
    """Stages, consumers, the settings and who asked reach the application, and where the ids stand."""
    alice = Actor("alice", "airflow")
    scheduled_run = replace(SCHEDULED, ids=("a", "b"), consumers=("login",), requester=alice)
    ids = Path("ids.json")
    place = Installation(Path("r.yaml"), "runs", Path())
    expected = (
        "--run user-account-1 --contract contracts/user-account.yaml --stages apply,verify --mode auto"
        " --consumer login --ids ids.json --config r.yaml --workspace runs --requester"
    )
    *told, requester = arguments(scheduled_run, ("apply", "verify"), place, ids)
    assert (expected, alice) == (" ".join(told), Actor(**json.loads(requester)))


def test_the_contract_says_whether_a_night_looks_at_changes_alone() -> None:
    """The application is told that it may, and reads the contract."""
    told = arguments(replace(SCHEDULED, incremental=True), ("gather",), Installation(None, None, Path()), None)
    assert "--incremental" in told


def test_many_ids_reach_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be more than a command line holds, of any form; a driver elsewhere finds them where it is started."""
    wanted = tuple(f"id {number} \n ü '" for number in range(50_000))
    with ids_file(wanted) as file:
        assert file is not None
        assert (wanted, 0o600) == (_ids(file), file.stat().st_mode & 0o777)
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert wanted == _ids(file)
    with ids_file(()) as none:
        assert none is None


def test_what_did_not_answer_is_read_again_later(tmp_path: Path) -> None:
    """The run is made as far as it goes, and the application says that the next attempt may read more."""
    run = Workspace(str(tmp_path)).run("r")
    for lost, kept in ((UnreachableError("it is down"), False), (RefusedError("no such table"), True)):
        unread = UnreadableLink.because(LINK, "login", lost)
        found = summary(unread={LINK: unread.message}, may_pass=unread.may_pass)
        run.publish(found, run.inputs("digest"), complete=False)
        with nullcontext() if kept else pytest.raises(IncompleteError, match="it is down"):
            require_read(run)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnreachableError("down"), TRY_LATER),
        (SparkStartError("no master"), TRY_LATER),
        (LeaseHeldError("another"), TRY_LATER),
        (RefusedError("no"), REFUSED),
    ],
)
def test_what_may_pass_has_an_exit_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, error: ReconcileError, code: int
) -> None:
    """The task is tried again by it."""

    def fail(**_: Any) -> None:
        raise error

    monkeypatch.setattr(application, "main", fail)
    with pytest.raises(SystemExit) as caught:
        main()
    assert code == caught.value.code


def test_references_to_airflow_are_found() -> None:
    """The connections that settings refer to are those that an application is given."""
    kept = Reference("airflow", "kafka_main", "bootstrap")
    settings = Settings(connections={"main": ClusterConnection(bootstrap=kept)})
    assert [kept] == list(references(settings))


def test_one_run_of_a_contract_at_a_time(tmp_path: Path) -> None:
    """Another run waits as long as it has patience, and is told who holds the contract."""
    with (
        open_control(Settings(workspace=str(tmp_path))) as control,
        control.leases.hold_contract("user-account", "first", 0),
        pytest.raises(LeaseHeldError, match="first on "),
        control.leases.hold_contract("user-account", "second", 0),
    ):
        pass


def test_contracts_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """A run of another contract goes on."""
    with (
        open_control(Settings(workspace=str(tmp_path))) as control,
        control.leases.hold_contract("user-account", "first", 0),
        control.leases.hold_contract("user-balance", "second", 0) as held,
    ):
        assert not held.lost


def test_a_contract_is_free_after_its_run(tmp_path: Path) -> None:
    """Whoever comes next need not wait."""
    with open_control(Settings(workspace=str(tmp_path))) as control:
        with control.leases.hold_contract("user-account", "first", 0):
            pass
        with control.leases.hold_contract("user-account", "second", 0) as held:
            assert not held.lost


SECRETS = (
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.bucket.lake.session.token",
    "spark.hadoop.fs.s3a.encryption.key",
    "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
    "spark.hadoop.fs.azure.sas.container.lake.blob.core.windows.net",
    "spark.hadoop.fs.azure.account.oauth2.client.secret",
    "spark.hadoop.fs.gs.auth.service.account.private.key",
    "spark.hadoop.fs.oss.accessKeyId",
    "spark.ssl.keyPassword",
    "spark.ssl.key.passphrase",
    "spark.my.credential",
    "spark.kubernetes.authenticate.driver.oauthToken",
)
PUBLIC = (
    "spark.executor.cores",
    "spark.kubernetes.driver.secretKeyRef.USER_DB_URL",
    "spark.kubernetes.executor.secrets.stores",
    "spark.kubernetes.authenticate.submission.oauthTokenFile",
    "spark.hadoop.fs.s3a.aws.credentials.provider",
    "spark.hadoop.hadoop.security.credential.provider.path",
)


def test_a_command_line_tells_no_secret(submitted: Settings) -> None:
    """Whatever is secret among Spark's settings is left out of what spark-submit is given; where one is, is not."""
    conf = dict.fromkeys(SECRETS, "s3-secret") | dict.fromkeys(PUBLIC, "there")
    settings = submitted.model_copy(update={"spark": Spark(conf=conf)})
    given = configuration(settings, "local[2]", "a run", "client")
    assert set(PUBLIC) == {name for name in (*SECRETS, *PUBLIC) if name in given}
    assert "s3-secret" not in str(given)


def test_a_driver_elsewhere_has_a_python_of_its_own(submitted: Settings) -> None:
    """Beside the task it runs ours; on a node of a cluster that would lead nowhere."""
    beside, elsewhere = (configuration(submitted, "yarn", "a run", mode) for mode in ("client", "cluster"))
    assert sys.executable == beside["spark.pyspark.driver.python"]
    assert sys.executable not in elsewhere.values()


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a place that has its jars."""
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "some.jar").touch()
    monkeypatch.setenv("RECONCILE_JARS", str(tmp_path))
    return Settings()
