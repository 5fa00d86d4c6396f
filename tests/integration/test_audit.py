"""The audit against the truth: every planted fault is found, named and placed rightly, and nothing else is found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.domain.cause import Cause
from reconcile.files import committed
from reconcile.gather.evidence import parked, plain_parked
from reconcile.gather.log.plain_log import KeptLog
from reconcile.gather.log.store import HistoryStore
from reconcile.lab import faults, truth, world
from reconcile.lab.airflow.spark_cluster import cluster
from reconcile.lab.folder import Lab
from reconcile.lab.traffic import traffic
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
