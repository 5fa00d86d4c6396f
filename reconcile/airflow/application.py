"""What one Spark application does: stages of a run, one after the other, alone on its contract.

    spark-submit submitted/run_stages.py --run RUN_ID --contract FILE --stages gather,audit,quality,plan

Exits 0 when the stages are done, 2 when that is refused as things stand, 75 when the same call may succeed later.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from reconcile.config.extras import extras_named
from reconcile.contract.model import load_contract
from reconcile.domain.approval import Actor
from reconcile.errors import ReconcileError, RefusedError, UnreachableError
from reconcile.gather.stores.digest import ComparisonMode
from reconcile.pipeline.job import Job
from reconcile.pipeline.logs import about, logged_to_stderr
from reconcile.pipeline.scope import LAST, scope_for
from reconcile.settings.settings import Settings, load_settings
from reconcile.workspace.workspace import Workspace

REFUSED, TRY_LATER = 2, 75


@click.command()
@click.option("--run", "run_id", required=True)
@click.option("--contract", "file", required=True, type=click.Path(path_type=Path))
@click.option("--stages", required=True)
@click.option("--consumer", "consumers", multiple=True)
@click.option("--ids", "ids_file", type=click.Path(path_type=Path), help="A JSON list of the ids, if only some.")
@click.option("--incremental", is_flag=True, help="Only what changed since the last run, if the contract says so.")
@click.option("--mode", default="auto")
@click.option("--requester", help="Who asks for the run, as JSON.")
@click.option("--config", type=click.Path(path_type=Path))
@click.option("--workspace")
@click.option("--patience", type=float, default=1800.0, help="Seconds to wait for another run of the contract.")
def application(
    run_id: str,
    file: Path,
    stages: str,
    consumers: tuple[str, ...],
    ids_file: Path | None,
    incremental: bool,
    mode: ComparisonMode,
    requester: str | None,
    config: Path | None,
    workspace: str | None,
    patience: float,
) -> None:
    """Run stages of a run on Spark."""
    from reconcile.control.store import open_control
    from reconcile.pipeline.stages import perform
    from reconcile.spark.session import session

    contract, ids = load_contract(file), _ids(ids_file)
    settings = _as_submitted(load_settings(config, workspace))
    with (
        about(run_id=run_id, contract=contract.aggregate),
        open_control(settings) as control,
        control.leases.hold_contract(contract.aggregate, run_id, patience) as held,
        session(settings.reading(contract.stores), f"reconcile {run_id}") as spark,
    ):
        place = Workspace(settings.workspace, spark)
        run = place.run(run_id)
        scope = scope_for(run, ids, LAST if incremental and contract.incremental is not None else None)
        who = None if requester is None else Actor(**json.loads(requester))
        selection = (consumers, scope, mode)
        job = Job(
            contract, file, settings, place, run, *selection, spark_session=spark, contract_lease=held, requester=who
        )
        perform(job, stages.split(","))


def main() -> None:
    """Run the application and exit with its code."""
    from reconcile.control.errors import LeaseHeldError, LeaseLostError
    from reconcile.spark.session import SparkStartError

    try:
        with logged_to_stderr(), extras_named("this application"):
            application.main(standalone_mode=False)
    except (ReconcileError, click.ClickException) as error:
        click.echo(f"reconcile: {error}", err=True)
        passes = (UnreachableError, SparkStartError, LeaseHeldError, LeaseLostError)
        sys.exit(TRY_LATER if isinstance(error, passes) else REFUSED)


def _ids(file: Path | None) -> tuple[str, ...] | None:
    """Read the ids, from where spark-submit puts a file for a driver on another machine if it is not in its place."""
    if file is None:
        return None
    return tuple(json.loads((file if file.exists() else Path(file.name)).read_text("utf-8")))


def _as_submitted(settings: Settings) -> Settings:
    """Read the master that spark-submit was given, and put it into the settings: it takes precedence."""
    from pyspark import SparkConf

    from reconcile.spark import internals

    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return settings
    internals.connect_to_submitted()
    master = SparkConf().get("spark.master")
    if not master:
        raise RefusedError("spark-submit was given no master")
    return settings.model_copy(update={"spark": settings.spark.model_copy(update={"master": master})})
