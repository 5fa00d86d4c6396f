"""The DAGs are imported quickly, quietly and lightly, and say the order that they are said to keep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reconcile.files import committed

pytest.importorskip("airflow.sdk", reason="Airflow is not installed")

HEAVY = ("pyspark", "great_expectations", "pandas", "psycopg2", "reconcile.pipeline.stages")
IN_ORDER = ["audit", "quality", "plan", "approve", "apply", "verify", "report"]
PROGRAM = """
import json, sys, time
from airflow.dag_processing.dagbag import DagBag
before = set(sys.modules)
began = time.process_time()
bag = DagBag(sys.argv[1])
seconds = time.process_time() - began
tasks = {
    dag.dag_id: {
        task.task_id: {
            "after": sorted(task.upstream_task_ids), "retries": task.retries, "teardown": task.is_teardown,
            "priority": [str(task.weight_rule), task.priority_weight],
        }
        for task in dag.tasks
    }
    for dag in bag.dags.values()
}
print(json.dumps({
    "errors": bag.import_errors,
    "warnings": {file: list(map(str, said)) for file, said in bag.captured_warnings.items()},
    "seconds": seconds,
    "modules": sorted(set(sys.modules) - before),
    "tasks": tasks,
    "at_once": {dag.dag_id: dag.max_active_runs for dag in bag.dags.values()},
}))
"""


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an Airflow of its own makes of the folder."""
    environ = {**os.environ, "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow"))}
    arguments = [sys.executable, "-c", PROGRAM, str(committed("dags"))]
    done = subprocess.run(arguments, env=environ, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def test_nothing_goes_wrong_on_import(bag: dict[str, Any]) -> None:
    """There is no error and no warning."""
    assert ({}, {}) == (bag["errors"], bag["warnings"])


def test_import_is_quick(bag: dict[str, Any]) -> None:
    """All DAGs together take less than two seconds of a processor, however busy it is."""
    assert bag["seconds"] < 2


def test_import_is_light(bag: dict[str, Any]) -> None:
    """Nothing that computes, connects or renders is imported when a DAG is parsed."""
    assert [] == [name for name in bag["modules"] if name.startswith(HEAVY)]


def test_all_dags_are_there(bag: dict[str, Any]) -> None:
    """There are the three that the docs describe."""
    assert {"nightly", "on_demand", "on_request"} == set(bag["tasks"])


@pytest.mark.parametrize("dag", ["nightly", "on_demand", "on_request"])
def test_the_order_is_kept(bag: dict[str, Any], dag: str) -> None:
    """Nothing is applied before it was approved, and nothing approved before it was planned."""
    tasks = {name.rpartition(".")[2]: each["after"] for name, each in bag["tasks"][dag].items()}
    after = {name: {each.rpartition(".")[2] for each in tasks[name]} for name in IN_ORDER}
    assert [] == [(one, two) for one, two in pairwise(IN_ORDER) if one not in after[two]]


def test_every_task_may_be_tried_again(bag: dict[str, Any]) -> None:
    """Each has retries, for a stage that is done does nothing."""
    tasks = [(name, each["retries"]) for dag in bag["tasks"].values() for name, each in dag.items()]
    assert [] == [name for name, retries in tasks if retries < 1]


def test_a_report_does_not_turn_a_failure_into_a_success(bag: dict[str, Any]) -> None:
    """The report is a teardown: it always runs, and does not count."""
    reports = [each["teardown"] for dag in bag["tasks"].values() for name, each in dag.items() if "report" in name]
    assert [True] * 3 == reports


def test_one_night_at_a_time(bag: dict[str, Any]) -> None:
    """A night that waits for an approval is not overtaken by the next one."""
    assert 1 == bag["at_once"]["nightly"]


def test_pending_approvals_hold_up_no_request(bag: dict[str, Any]) -> None:
    """In the 20 hours that an approval may take, a run is begun every five minutes, and more by records."""
    assert bag["at_once"]["on_request"] > 2 * (timedelta(hours=20) / timedelta(minutes=5))


def test_the_night_comes_first(bag: dict[str, Any]) -> None:
    """It gets the pool's next slot, however many tasks of requests wait for one."""
    absolute = ["absolute", 100]
    assert all(each["priority"] == absolute for each in bag["tasks"]["nightly"].values())
    others = [each["priority"][1] for dag in ("on_demand", "on_request") for each in bag["tasks"][dag].values()]
    assert max(others) + len(others) < 100


def test_dags_are_thin() -> None:
    """Each of them is read in one sitting."""
    long = [file.name for file in Path(committed("dags")).glob("*.py") if len(file.read_text().splitlines()) > 100]
    assert [] == long
