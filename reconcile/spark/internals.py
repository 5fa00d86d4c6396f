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


def plan_of(frame: DataFrame) -> str:
    """Name what a frame's optimized plan is, such as `LocalRelation` where its rows stand in the plan itself."""
    return str(frame._jdf.queryExecution().optimizedPlan().getClass().getSimpleName())


def plan_leaves(frame: DataFrame) -> list[str]:
    """Name what a frame's optimized plan reads from."""
    leaves = frame._jdf.queryExecution().optimizedPlan().collectLeaves()
    return [str(leaves.apply(number).getClass().getSimpleName()) for number in range(leaves.size())]
