"""The private members of PySpark and py4j that we cannot do without, each behind one function.

They were checked against PySpark 4.1.3 and py4j 0.10.9.9; tests/unit/test_internals.py names each member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import DataFrame, SparkSession


def java(spark: SparkSession) -> Any:
    """Return Java's packages and classes, which PySpark shows to nobody else."""
    return spark._jvm


def hadoop_configuration(spark: SparkSession) -> Any:
    """Return Hadoop's configuration as Spark has it; from Python, settings alone can be read."""
    return spark.sparkContext._jsc.hadoopConfiguration()


def has_context() -> bool:
    """Tell whether this process has a context; `SparkContext.getOrCreate` would make one."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def gateway() -> Any | None:
    """Return the connection with Java that an earlier context has left, for a new one would start another Java."""
    from pyspark import SparkContext

    return SparkContext._gateway


def py4j_client(context: SparkContext) -> Any:
    """Return what sends a context's commands to Java, the only place where all calls pass by."""
    found: Any = context._gateway
    return found._gateway_client


def java_conf(gateway: Any) -> SparkConf:
    """Build a configuration in a Java that is there before any context, and so with what spark-submit was given."""
    from pyspark import SparkConf

    return SparkConf(_jvm=gateway.jvm)


def connect_to_submitted() -> None:
    """Connect to the Java that spark-submit has started, which otherwise only a new context does."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized()


def is_plan_of_rows(frame: DataFrame) -> bool:
    """Tell whether a frame's optimized plan is nothing but rows that stand in it."""
    return _name(_optimized(frame)) == "LocalRelation"


def values_in_plan(frame: DataFrame) -> int | None:
    """Count the values of the rows that stand in a frame's optimized plan; None where it reads any others."""
    leaves, count = _optimized(frame).collectLeaves(), 0
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if _name(leaf) == "LocalRelation":
            count += int(leaf.data().size()) * int(leaf.output().size())
        elif _name(leaf) != "OneRowRelation":
            return None
    return count


def parsed(spark: SparkSession, text: str, *, query: bool) -> str:
    """Return what Spark's parser makes of a query or an expression, as JSON; it runs nothing."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    found = parser.parseQuery(text) if query else parser.parseExpression(text)
    return str(found.toJSON())


def _optimized(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().optimizedPlan()


def _name(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())
