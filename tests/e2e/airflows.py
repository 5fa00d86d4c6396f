"""Airflows driven from outside, on a world of the lab whose services run."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import yaml

from reconcile.airflow.installation import wiring
from reconcile.files import committed
from reconcile.lab import faults, process, world
from reconcile.lab.airflow import world as lab_airflow
from reconcile.lab.airflow.standalone import Standalone
from reconcile.lab.folder import READER, Lab
from reconcile.pipeline.requests import TOPIC
from tests.browsers import chromium
from tests.integration.worlds import seeded_world
from tests.ports import ports_of

PORTS = ports_of("airflow")
PORT = 18080
FAULTS = ("zoey-race", "hand-edit", "swallowed-exception")
CONTRACT = "user-account"

_LONGEST_RUN = 1200.0


@dataclass(frozen=True)
class DrivenAirflow:
    """An Airflow, the world that it works on, and where it keeps its runs."""

    lab: Lab
    airflow: Standalone
    runs: Path

    def test(self, dag: str, answer: str = "Approve", **conf: Any) -> dict[str, Any]:
        """Run a DAG as `airflow dags test` does, and give what became of its tasks."""
        arguments = [sys.executable, "-m", "tests.e2e.dag_runner", dag, answer, json.dumps(conf)]
        environment = self.airflow.environment()
        done = subprocess.run(
            arguments, env=environment, capture_output=True, text=True, check=False, timeout=_LONGEST_RUN
        )
        (self.airflow.home / f"test-{dag}.log").write_text(done.stdout + done.stderr)
        assert 0 == done.returncode, done.stdout[-3000:] + done.stderr[-3000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def wire(self, master: str = "local[2]") -> None:
        """Provide the database, with Spark on a master."""
        config = self.airflow.home / "reconcile.yaml"
        contracts = self.airflow.home / "contracts"
        wanted = wiring(config, self.runs, contracts, self.lab.bootstrap, master)
        wanted["connections"]["user_db"] = {
            "conn_type": "postgres",
            "host": "127.0.0.1",
            "port": self.lab.state().ports.postgres,
            "login": READER,
            "password": self.lab.password(READER),
            "schema": "user",
        }
        self.airflow.provide(wanted)

    @cached_property
    def token(self) -> str:
        """What somebody shows who has signed in: once, as each time costs Airflow much."""
        return self.airflow.token()

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Ask Airflow's API; raise UnreachableError with what it said where it refuses."""
        return self.airflow.ask(method, path, body, self.token)

    def send(self, value: bytes) -> None:
        """Send a record to the request topic, as any program may."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.lab.bootstrap})
        producer.produce(TOPIC, value)
        assert 0 == producer.flush(30)

    def stop_airflow(self) -> None:
        """End Airflow alone; the services consume on."""
        self.airflow.stop()
        lab_airflow.start_services(self.lab, self.airflow)

    def page(self, address: str) -> str:
        """Give a page as somebody sees it who is signed in."""
        headers = {"Cookie": f"_token={self.token}", "Accept": "text/html"}
        with urlopen(Request(address, headers=headers), timeout=60) as answer:  # noqa: S310 - it is ours
            return str(answer.read().decode("utf-8"))

    def opened_report(self, dag_run: str) -> str:
        """Open the report from its task, as somebody does in Airflow's UI; give its verdict."""
        task = f"/dags/nightly/runs/{dag_run}/tasks/reconciliation.report/mapped/0/details"
        with chromium() as browser:
            context = browser.new_context()
            context.add_cookies([{"name": "_token", "value": self.token, "url": self.airflow.url}])
            page = context.new_page()
            page.goto(self.airflow.url + task)
            page.get_by_role("link", name="Reconciliation report").click(timeout=60_000)
            page.wait_for_url("**/reconcile/runs/**", timeout=60_000)
            return page.get_by_role("heading", level=1).inner_text()

    def secrets(self) -> list[str]:
        """Give every password of the world."""
        return [file.read_text("ascii") for file in (self.lab.root / "secrets").glob("*.password")]


@contextmanager
def driven_airflow(folder: Path) -> Iterator[DrivenAirflow]:
    """Give an Airflow on a small damaged world with one contract, and leave nothing of either."""
    airflow = Standalone(Path(tempfile.gettempdir()) / f"reconcile-test-airflow-{PORT}", PORT)
    airflow.stop()  # what a killed run left
    process.remove_tree(airflow.home)
    with seeded_world(600, ports=PORTS) as lab:
        faults.plant(lab, faults.named(FAULTS), 2)
        driven = DrivenAirflow(lab, airflow, folder / "runs")
        _provide(driven)
        world.provide_topics(lab, lab_airflow.REQUEST_TOPIC)
        lab_airflow.start_services(lab, driven.airflow)
        try:
            yield driven
        finally:
            driven.airflow.stop()
            process.wait_until(lambda: not driven.airflow.processes(), "Airflow left processes", 30)
            process.remove_tree(airflow.home)


def _provide(driven: DrivenAirflow) -> None:
    home = driven.airflow.home
    (home / "contracts").mkdir(parents=True)
    said = yaml.safe_load(committed("contracts", f"{CONTRACT}.yaml").read_text("utf-8"))
    said["consumers"][0]["settle"] = {"timeout": "30s", "confirm_after": "1s"}
    (home / "contracts" / f"{CONTRACT}.yaml").write_text(yaml.safe_dump(said, sort_keys=False))
    settings = yaml.safe_load(world.settings_file(driven.lab).read_text("utf-8"))
    settings["connections"]["user-db"] = {"url": "airflow:user_db"}
    # On a cluster of this machine executors call the driver back on loopback, and run its Python.
    settings["spark"] = {
        "conf": {
            **world.SPARK_OF_SMALL_WORLDS,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.pyspark.python": sys.executable,
        }
    }
    (home / "reconcile.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    driven.wire()
