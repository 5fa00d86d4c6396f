"""Runs for tests: the stages, called as the command line calls them, on a world of the lab."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconcile.contract.model import load_contract
from reconcile.domain.approval import Actor
from reconcile.domain.plan import Plan
from reconcile.files import committed
from reconcile.gather.stores.digest import ComparisonMode
from reconcile.lab import world
from reconcile.lab.folder import Lab
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline import tables
from reconcile.pipeline.approval import approve
from reconcile.pipeline.handoffs import Applied, Summary
from reconcile.pipeline.job import Job
from reconcile.pipeline.scope import scope_for
from reconcile.settings.settings import load_settings
from reconcile.workspace.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTRACTS = ("user-account", "user-balance", "user-activity")


@dataclass(frozen=True)
class Runs:
    """Makes runs in a workspace of its own."""

    spark: SparkSession
    settings_file: Path
    folder: Path

    @classmethod
    def of(cls, spark: SparkSession, lab: Lab, folder: Path) -> Runs:
        """Take the settings of a world."""
        return cls(spark, world.settings_file(lab), folder)

    def job(
        self,
        contract: str | Path,
        run_id: str,
        ids: Sequence[str] | None = None,
        since: str | None = None,
        mode: ComparisonMode = "auto",
    ) -> Job:
        """Give a job: of one of the lab's contracts by its name, or of a file."""
        file = contract if isinstance(contract, Path) else committed("contracts", f"{contract}.yaml")
        settings = load_settings(self.settings_file, str(self.folder))
        place = Workspace(settings.workspace, self.spark)
        run = place.run(run_id)
        scope = scope_for(run, ids, since)
        return Job(load_contract(file), file, settings, place, run, scope=scope, mode=mode, spark_session=self.spark)

    def audited(self, contract: str | Path, run_id: str, **asked: Any) -> tuple[Job, Summary]:
        """Gather and audit; give the job and the summary."""
        job = self.job(contract, run_id, **asked)
        pipeline.gather(job)
        return job, pipeline.audit(job)


def findings(job: Job) -> dict[tuple[str, str], dict[str, Any]]:
    """Give a run's findings by link and id."""
    return {(each["link"], each["aggregate_id"]): each for each in map(json.loads, tables.finding_lines(job.run))}


def apply(job: Job) -> Applied:
    """Approve a run's plan, and apply it."""
    approve(job, job.run.read(Plan), Actor("tester", "cli"))
    return pipeline.apply(job)


def jobs(spark: SparkSession) -> int:
    """Count the jobs that a session has run."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())
