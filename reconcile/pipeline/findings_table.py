"""The findings of runs in an Iceberg table, for those who ask with SQL: one line for each, without values of fields."""

from __future__ import annotations

from reconcile.errors import RefusedError
from reconcile.gather.stores.lake import LakeTable
from reconcile.pipeline.handoffs import FINDINGS, Summary
from reconcile.pipeline.job import Job
from reconcile.settings.connections import Lake

_COLUMNS = (
    "run_id string, contract string, compared_at timestamp, link string, aggregate_id string, difference string,"
    " status string, cause string, confidence string, hop string, fields array<string>, since timestamp"
)


def append(job: Job) -> None:
    """Write a run's findings into the table of the settings, in place of what it has of this run; make it if needed.

    Does nothing without such a setting. Raises a ReconcileError where the lake does not take them.
    """
    from pyspark.sql import functions as f

    wanted = job.settings.findings_table
    if wanted is None:
        return
    connection = job.settings.connection(wanted.store)
    if not isinstance(connection, Lake) or connection.format != "iceberg":
        raise RefusedError(f"findings_table.store: {wanted.store} is no connection to a lake of Iceberg's tables")
    table, summary = LakeTable(job.spark, wanted.store, connection.resolve(), wanted.table), job.run.read(Summary)
    known = {
        "run_id": f.lit(job.run.id),
        "contract": f.lit(summary.contract),
        "compared_at": f.lit(summary.fence.closed_at),
    }
    names = [each.split()[0] for each in _COLUMNS.split(", ")]
    found = job.run.parquet(FINDINGS, job.spark).select(*(known.get(name, f.col(name)).alias(name) for name in names))
    with table.explained():
        job.spark.sql(
            f"create table if not exists {table.identifier} ({_COLUMNS}) using iceberg partitioned by (run_id)"
        )
        found.writeTo(table.identifier).overwrite(f.col("run_id") == job.run.id)
