"""The audit against the truth: every planted fault is found, named and placed rightly, and nothing else is found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from reconcile.cli import cli
from reconcile.domain.cause import Cause
from reconcile.errors import InvalidFileError, RefusedError
from reconcile.files import committed
from reconcile.gather.evidence import parked, plain_parked
from reconcile.gather.log.plain_log import KeptLog
from reconcile.gather.log.store import HistoryStore
from reconcile.lab import faults, truth, world
from reconcile.lab.airflow.spark_cluster import cluster
from reconcile.lab.folder import Lab
from reconcile.lab.traffic import traffic
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline import tables
from reconcile.pipeline.handoffs import Summary
from reconcile.pipeline.job import reading_job
from reconcile.pipeline.log_view import cluster_client, cluster_connection, history_up_to, value_schema
from reconcile.pipeline.trace import traced_by_spark, traced_plainly
from reconcile.workspace.workspace import Workspace
from tests.integration.runs import CONTRACTS, Runs, findings, jobs
from tests.integration.worlds import seeded_world
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 2
# Where the evidence is not left: the activity feed keeps no ledger, so that somebody may have deleted a row, or doubled
# it; and a source that lost a row may have been restored from a backup, as no event says that it was deleted.
UNSURE = {
    ("ignored-error", "user-activity/activity", "missing"): "probable",
    ("crash-before-commit", "user-activity/activity", "duplicated"): "probable",
    ("relay-lost-rows", "user-account/login", "orphan"): "possible",
    ("relay-lost-rows", "user-balance/billing", "orphan"): "possible",
}
Findings = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def damaged() -> Iterator[Lab]:
    """A world in which every fault has happened."""
    with seeded_world(aggregates=1500, ports=ports_of("audit")) as lab:
        traffic(lab, rate=50, seconds=1)
        faults.plant(lab, faults.FAULTS, COUNT)
        yield lab


@pytest.fixture(scope="module")
def runs(damaged: Lab, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs on it, in one workspace."""
    return Runs.of(spark, damaged, tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="module")
def summaries(runs: Runs) -> dict[str, Summary]:
    """What the first run of each contract found, in figures."""
    return {name: runs.audited(name, f"first-{name}")[1] for name in CONTRACTS}


@pytest.fixture(scope="module")
def found(runs: Runs, summaries: dict[str, Summary]) -> Findings:
    """What the first run of each contract found."""
    assert list(CONTRACTS) == list(summaries)
    return {key: each for name in CONTRACTS for key, each in findings(runs.job(name, f"first-{name}")).items()}


def told(damaged: Lab) -> dict[tuple[str, str], dict[str, Any]]:
    """Give the truth by link and id."""
    return {(row["link"], row["aggregate_id"]): row for row in truth.read(damaged.truth)}


def test_nothing_is_missed_and_nothing_is_made_up(damaged: Lab, found: Findings) -> None:
    """Every line of the truth is a finding, and every finding is a line of the truth."""
    assert told(damaged).keys() == found.keys()


def test_what_differs_is_told_as_it_is(damaged: Lab, found: Findings) -> None:
    """The kind of difference, its status and exactly the fields that differ."""
    expected = {key: (row["difference"], row["status"], sorted(row["fields"])) for key, row in told(damaged).items()}
    assert expected == {
        key: (each["difference"], each["status"], sorted(field["name"] for field in each["fields"]))
        for key, each in found.items()
    }


@pytest.mark.parametrize("fault", [fault.name for fault in faults.FAULTS])
def test_the_cause_is_named(damaged: Lab, found: Findings, fault: str) -> None:
    """Cause and hop of each fault: for certain, or less where it is written down that evidence is not left."""
    planted = {key: row for key, row in told(damaged).items() if row["fault"] == fault}
    assert planted
    expected = {
        key: (
            row["cause"],
            row["hop"],
            UNSURE.get((fault, row["link"], row["difference"]), "certain"),
        )
        for key, row in planted.items()
    }
    assert expected == {key: (found[key]["cause"], found[key]["hop"], found[key]["confidence"]) for key in planted}


def test_a_drafted_contract_finds_the_same(damaged: Lab, runs: Runs, tmp_path: Path) -> None:
    """Drafted in a world full of faults, it finds each that its field shows, and makes nothing up."""
    file = tmp_path / "drafted.yaml"
    sides = ["--source", "user-db:user_account", "--copy", "login-db:login_profile@login-service"]
    options = ["--topic", "user-account", *sides, "--output", str(file), "--config", str(world.settings_file(damaged))]
    drafted = CliRunner().invoke(cli, ["contract", "draft", *options])
    assert 0 == drafted.exit_code, drafted.exception
    job, _ = runs.audited(file, "drafted")
    found = {key: each["difference"] for key, each in findings(job).items()}
    expected = {
        key: row["difference"]
        for key, row in told(damaged).items()
        if key[0] == "user-account/login"
        and (row["difference"] in ("missing", "orphan") or "display_name" in row["fields"])
    }
    assert expected.items() <= found.items()
    assert found.keys() <= told(damaged).keys()


def test_every_finding_has_evidence(found: Findings) -> None:
    """A cause without anything to show for it is a guess."""
    unfounded = [each for each in found.values() if not each["evidence"] and each["cause"] != Cause.UNDETERMINED]
    assert [] == unfounded


def test_each_says_what_repair_would_do(found: Findings) -> None:
    """What it would be and why; where a record would be written also to which partition, if that is known."""
    repairs = [each["repair"] for each in found.values()]
    assert {"restate", "advice", "left"} <= {each["action"] for each in repairs}
    assert all(each["reason"] for each in repairs)
    written = {each["partition"] is not None for each in repairs if each["action"] in ("restate", "tombstone")}
    assert {True} == written
    assert {None} == {each["partition"] for each in repairs if each["action"] in ("advice", "left")}


def test_the_figures_add_up(summaries: dict[str, Summary], found: Findings) -> None:
    """What is compared agrees, differs, is tolerated or is in flight; drift beyond tolerance exits 1."""
    for summary in summaries.values():
        assert 1 == summary.exit_code
        for link in summary.links:
            of_link = [each for (name, _), each in found.items() if name == link.link]
            apart = sum(each["difference"] != "latent" for each in of_link)
            assert link.compared == link.agreeing + apart
            assert link.findings == sum(link.by_cause.values())


def test_the_full_mode_finds_the_same(runs: Runs, found: Findings) -> None:
    """Whether by digests or by all rows, the findings are the same."""
    job, _ = runs.audited("user-account", "full-user-account", mode="full")
    expected = {key: each["cause"] for key, each in found.items() if key[0] == "user-account/login"}
    assert expected == {key: each["cause"] for key, each in findings(job).items()}


def test_only_the_ids_that_were_asked_for(runs: Runs, damaged: Lab, found: Findings) -> None:
    """B15: a run on Zoë alone says of her what the run on all says, and nothing of anybody else."""
    zoe = next(row["aggregate_id"] for row in truth.read(damaged.truth) if row["fault"] == "zoey-race")
    job, summary = runs.audited("user-account", "zoe", ids=[zoe])
    key = ("user-account/login", zoe)
    assert {key: ("out_of_order", "certain")} == {
        each: (one["cause"], one["confidence"]) for each, one in findings(job).items()
    }
    assert found[key]["evidence"] == findings(job)[key]["evidence"]
    assert 1 == summary.links[0].compared


def test_an_id_that_nobody_has_is_no_agreement(runs: Runs) -> None:
    """It was spelled wrongly, or is of another world: a person is told so, and a request is done."""
    job = runs.job("user-account", "nobody", ids=["NOPE"])
    pipeline.gather(job)
    with pytest.raises(RefusedError, match='neither side has "NOPE"'):
        pipeline.audit(job, require_known=True)
    assert (0, 0) == (pipeline.audit(job).exit_code, pipeline.audit(job).links[0].compared)


def test_a_run_id_that_is_used_again_is_said(runs: Runs, summaries: dict[str, Summary]) -> None:
    """With its date, and with its exit code."""
    assert summaries
    contract = str(committed("contracts", "user-account.yaml"))
    words = ["run", contract, "--config", str(runs.settings_file), "--workspace", str(runs.folder)]
    done = CliRunner().invoke(cli, [*words, "--run-id", "first-user-account"])
    assert 1 == done.exit_code, done.stderr
    assert re.search(r"run first-user-account was made at 20\d\d-\d\d-\d\d \d\d:\d\d UTC and is complete", done.stderr)
    assert "next: reconcile findings first-user-account --config" in done.stderr


def test_a_run_of_one_id_takes_few_jobs(runs: Runs, found: Findings, damaged: Lab) -> None:
    """However many stages and tables it has: small tables are read, joined and published in this process."""
    one = next(row["aggregate_id"] for row in truth.read(damaged.truth) if row["fault"] == "dead-letter")
    before = jobs(runs.spark)
    job, _ = runs.audited("user-account", "few-jobs", ids=[one])
    assert jobs(runs.spark) - before <= 15
    assert found["user-account/login", one]["evidence"] == findings(job)["user-account/login", one]["evidence"]


def test_some_ids_are_found_as_all_are(runs: Runs, found: Findings) -> None:
    """Every field of each finding, of all links and causes, byte for byte."""
    for name in CONTRACTS:
        wanted = {key: each for key, each in found.items() if key[0].startswith(f"{name}/")}
        job, _ = runs.audited(name, f"some-{name}", ids=sorted({id_text for _, id_text in wanted}))
        some = {key: {**each, "run_id": ""} for key, each in findings(job).items()}
        assert {key: {**each, "run_id": ""} for key, each in wanted.items()} == some


def test_a_trace_is_the_same_without_spark(runs: Runs, found: Findings, damaged: Lab, tmp_path: Path) -> None:
    """Of records that the history has, and of those that the topic alone has, by a job without a session."""
    assert found
    contract, config = committed("contracts", "user-account.yaml"), world.settings_file(damaged)
    kept, fresh = (reading_job(contract, config, str(folder)) for folder in (runs.folder, tmp_path))
    assert kept is not None
    assert fresh is not None
    planted = {row["fault"]: row["aggregate_id"] for row in truth.read(damaged.truth)}
    for fault in ("overtaken-dead-letter", "stash", "wrong-partitioner"):
        of_id = traced_plainly(kept, planted[fault], None, 1000)
        correlation_id = of_id[-1].correlation_id
        of_correlation = traced_plainly(kept, None, correlation_id, 2)
        assert of_id
        assert of_id == traced_plainly(fresh, planted[fault], None, 1000)
        assert of_correlation == traced_plainly(fresh, None, correlation_id, 2)
        job = runs.job("user-account", "traced")
        assert traced_by_spark(job, planted[fault], None, 1000) == of_id
        assert traced_by_spark(job, None, correlation_id, 2) == of_correlation


def test_what_is_parked_is_the_same_without_spark(runs: Runs, found: Findings) -> None:
    """All of every consumer, of the faults that put something aside."""
    assert found
    for name in CONTRACTS:
        job = runs.job(name, "parked")
        contract, values = job.contract, value_schema(job)
        with cluster_client(job) as cluster:
            ends = cluster.ends(contract.topic.name, cluster.topic(contract.topic.name).partitions)
            history = history_up_to(job, ends)
            store, connection = HistoryStore.of(job.workspace), cluster_connection(job)
            for consumer in contract.consumers:
                logs = parked.read(runs.spark, contract, consumer, cluster, connection, store, values)
                by_spark = parked.parked(runs.spark, logs, consumer, contract.topic, history.records(runs.spark))
                events = KeptLog(contract.topic.name, history.derivation, history.home, history.index)
                of_logs = plain_parked.of_logs(logs)
                plain = plain_parked.parked(of_logs, consumer, contract.topic, values, events.at)
                rows = by_spark.selectExpr(
                    *(each if each != "at" else "unix_micros(at)" for each in by_spark.columns)
                ).collect()
                assert sorted(map(repr, map(tuple, rows))) == sorted(map(repr, map(tuple, plain)))


def test_a_cluster_finds_the_same(damaged: Lab, found: Findings, tmp_path: Path) -> None:
    """Each finding with all that it says, where other processes than this one read and compute."""
    settings = yaml.safe_load(world.settings_file(damaged).read_text("utf-8"))
    config = tmp_path / "settings.yaml"
    on_cluster: Findings = {}
    with cluster(18190, tmp_path / "cluster") as master:
        config.write_text(yaml.safe_dump({**settings, "spark": {"master": master}}), "utf-8")
        for name in CONTRACTS:
            contract = str(committed("contracts", f"{name}.yaml"))
            words = ["run", contract, "--config", str(config), "--workspace", str(tmp_path / "runs"), "--run-id", name]
            done = subprocess.run([sys.executable, "-m", "reconcile.cli", *words], capture_output=True, text=True)
            assert 1 == done.returncode, done.stderr
            lines = tables.finding_lines(Workspace(str(tmp_path / "runs")).run(name))
            on_cluster |= {(each["link"], each["aggregate_id"]): each for each in map(json.loads, lines)}
    ours, theirs = ({key: {**each, "run_id": ""} for key, each in said.items()} for said in (found, on_cluster))
    assert ours == theirs


def changed(folder: Path, changes: dict[str, str]) -> Path:
    """Write the contract of the accounts anew, with other texts in place of some."""
    text = committed("contracts", "user-account.yaml").read_text("utf-8")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    file = folder / "contract.yaml"
    file.write_text(text, "utf-8")
    return file


def test_what_events_are_right_about_is_believed(summaries: dict[str, Summary]) -> None:
    """No expression of the lab's contracts is doubted, whatever has been planted."""
    assert [()] * len(CONTRACTS) == [each.doubted_events for each in summaries.values()]


def test_an_event_that_never_tells_the_field_is_not_believed(runs: Runs, found: Findings, tmp_path: Path) -> None:
    """No cause rests on it, and the run says how often it was right; all other causes are what they were."""
    job, summary = runs.audited(changed(tmp_path, {"event: $.email}": "event: upper($.email)}"}), "doubted")
    (doubted,) = summary.doubted_events
    assert ("consumers[0].fields[1].event", "email", 0) == (doubted.path, doubted.field, doubted.matching)
    assert doubted.tested > 1000
    assert f"matches the source in 0 of {doubted.tested:,}: `consumers[0].fields[1].event`" in doubted.message
    by_cause = {key: each["cause"] for key, each in findings(job).items()}
    expected = {key: each for key, each in found.items() if key[0] == "user-account/login"}
    assert expected.keys() == by_cause.keys()
    of_others = {key for key, each in expected.items() if "email" not in {field["name"] for field in each["fields"]}}
    assert {key: expected[key]["cause"] for key in of_others} == {key: by_cause[key] for key in of_others}
    diverged = {key for key, cause in by_cause.items() if cause == Cause.PAYLOAD_DIVERGENCE}
    assert diverged <= {key for key, each in expected.items() if each["cause"] == Cause.PAYLOAD_DIVERGENCE}


def test_an_expression_that_spark_cannot_take_names_its_place(runs: Runs, tmp_path: Path) -> None:
    """Before anything is read, all at once, and without a line of Java's."""
    wrong = {
        "event: $.email}": "event: 'upper($.email, 1)'}",
        "event: $.phone}": "event: $.phone $.phone}",
        "delete: tombstone": "delete: [tombstone, 'length($.id)']",
    }
    file = changed(tmp_path, wrong)
    with pytest.raises(InvalidFileError) as caught:
        runs.audited(file, "not-analysed")
    said = {each.path: each.message for each in caught.value.problems}
    paths = ["topic.delete[1]", "consumers[0].fields[1].event", "consumers[0].fields[2].event"]
    assert paths == list(said)
    assert "is no test: it gives int, and neither true nor false" == said[paths[0]]
    assert "Spark does not take it: [WRONG_NUM_ARGS" in said[paths[1]]
    assert "Spark does not take it: [PARSE_SYNTAX_ERROR] Syntax error" in said[paths[2]]
    assert all("\n" not in each and "java" not in each and "_path_" not in each for each in said.values())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"group: login-service": "group: login-servce"},
            'never committed an offset of user-account; did you mean "login',
        ),
        ({"name: user-account\n  format": "name: never-written\n  format"}, "never-written never held a record"),
        (
            {"name: user-account\n  format": "name: user-activity\n  format", "login-service": "activity-service"},
            "no record of user-activity has the id of a row",
        ),
    ],
)
def test_what_can_tell_nothing_is_said_once(
    runs: Runs, damaged: Lab, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    """And not by every id that differs: the run could not tell, so that it stays out of trends too."""
    admin = AdminClient({"bootstrap.servers": damaged.bootstrap})
    if "never-written" not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic("never-written", 2, 1)])["never-written"].result(30)
    job, summary = runs.audited(changed(tmp_path, changes), f"groundless-{len(said)}")
    (unread,) = summary.unread
    assert said in unread.message
    assert (2, False, (), {}) == (summary.exit_code, summary.complete, summary.links, findings(job))


def test_a_trace_of_nobody_says_so(damaged: Lab, tmp_path: Path) -> None:
    """Nothing on stdout, a sentence on stderr, and exit code 0."""
    contract, config = committed("contracts", "user-account.yaml"), world.settings_file(damaged)
    words = ["trace", str(contract), "nobody", "--config", str(config), "--workspace", str(tmp_path)]
    done = CliRunner().invoke(cli, words)
    said = 'reconcile: no record has the id "nobody"\n'
    assert (0, "", said) == (done.exit_code, done.stdout, done.stderr)


def test_a_stage_that_is_done_does_nothing(runs: Runs, found: Findings) -> None:
    """The same run again reads nothing anew and says the same."""
    job, _ = runs.audited("user-account", "first-user-account")
    assert {key for key in found if key[0] == "user-account/login"} == findings(job).keys()


def test_live_traffic_is_no_drift(damaged: Lab, runs: Runs, found: Findings, tmp_path: Path) -> None:
    """While everything changes, nothing is confirmed that was not there before."""
    import threading

    stop = threading.Thread(target=traffic, args=(damaged,), kwargs={"rate": 60, "seconds": 25})
    stop.start()
    try:
        job, _ = runs.audited("user-account", "live-user-account")
    finally:
        stop.join()
    confirmed = {key for key, each in findings(job).items() if each["status"] == "confirmed"}
    assert confirmed - found.keys() == set()
