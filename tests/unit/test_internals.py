"""Private members of others that we use are there, so that an upgrade which takes one away is noticed in one place."""

from __future__ import annotations

import re
from importlib import import_module, metadata
from inspect import getsource

import pytest

PYSPARK, PY4J = "pyspark", "py4j"
PROVIDER = "apache-airflow-providers-apache-spark"
# The versions with which the members were looked at, and the modules that use them.
CHECKED = {
    PYSPARK: ("4.1.3", "reconcile/spark/internals.py"),
    PY4J: ("0.10.9.9", "reconcile/spark/internals.py"),
    PROVIDER: ("6.3.4", "reconcile/airflow/spark_provider.py"),
}
SPARK_SUBMIT = "airflow.providers.apache.spark.{0}s.spark_submit.SparkSubmit"


@pytest.mark.parametrize(
    ("package", "owner", "member"),
    [
        (PYSPARK, "pyspark.sql.SparkSession", "_jvm"),
        (PYSPARK, "pyspark.sql.SparkSession", "_jsparkSession"),
        (PYSPARK, "pyspark.SparkContext", "_jsc"),
        (PYSPARK, "pyspark.sql.classic.dataframe.DataFrame", "_jdf"),
        (PYSPARK, "pyspark.SparkContext", "_active_spark_context"),
        (PYSPARK, "pyspark.SparkContext", "_gateway"),
        (PYSPARK, "pyspark.SparkContext", "_ensure_initialized"),
        (PY4J, "py4j.clientserver.ClientServer", "_gateway_client"),
        (PY4J, "py4j.clientserver.JavaClient", "send_command"),
        (PROVIDER, f"{SPARK_SUBMIT.format('operator')}Operator", "_get_hook"),
        (PROVIDER, f"{SPARK_SUBMIT.format('operator')}Operator", "_hook"),
        (PROVIDER, f"{SPARK_SUBMIT.format('hook')}Hook", "_connection"),
        (PROVIDER, f"{SPARK_SUBMIT.format('hook')}Hook", "_submit_sp"),
    ],
)
def test_a_private_member_is_there(package: str, owner: str, member: str) -> None:
    """In the version that is installed, of the class or of its objects."""
    module, _, name = owner.rpartition(".")
    of_class = getattr(import_module(module), name)
    assert hasattr(of_class, member) or is_assigned(of_class, member), lacking(package, f"{name}.{member}")


def test_a_configuration_takes_a_java() -> None:
    """PySpark's argument is as private as a member."""
    from pyspark import SparkConf

    assert "_jvm" in SparkConf.__init__.__annotations__, lacking(PYSPARK, "SparkConf(_jvm=...)")


def is_assigned(owner: type, member: str) -> bool:
    """Tell whether a class, or one that it is made of, assigns a member to its objects."""
    return any(re.search(rf"\bself\.{member}\b[^=\n]* = ", getsource(each)) for each in owner.__mro__[:-1])


def lacking(package: str, name: str) -> str:
    """Say what an upgrade has taken away, and where it was used."""
    version, module = CHECKED[package]
    return f"{package} {metadata.version(package)} has no {name}: {module} was checked against {version}; adapt it"
