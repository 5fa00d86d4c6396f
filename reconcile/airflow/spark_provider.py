"""The private members of Airflow's Spark provider that we cannot do without, each behind one function.

They were checked against apache-airflow-providers-apache-spark 6.3.4; tests/unit/test_internals.py names each member.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator


def resolved_connection(operator: SparkSubmitOperator) -> Mapping[str, Any]:
    """Read the operator's connection as spark-submit is given it: its master and deploy mode, with the defaults."""
    return operator._get_hook()._connection


def exit_code(operator: SparkSubmitOperator) -> int | None:
    """Return what spark-submit exited with, which the provider tells in words alone; None if it was not started."""
    hook = operator._hook
    submitted = None if hook is None else hook._submit_sp
    return None if submitted is None else submitted.returncode
