"""The one place that starts Spark, so that every stage computes under the same rules wherever it runs."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconcile import files
from reconcile.config.yamlfile import quoted
from reconcile.errors import ReconcileError, RefusedError
from reconcile.settings.connections import Lake
from reconcile.settings.settings import Settings
from reconcile.spark import internals, interrupts
from reconcile.spark.failures import without_values
from reconcile.spark.jvm_output import JvmOutput

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")

# What is true of our results depends on these: no setting changes them.
RULES = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    # Else `${env:...}` in a contract's SQL is what the environment has there, which may be a password.
    "spark.sql.variable.substitute": "false",
}
_LOCAL = re.compile(r"local(\[([0-9]+|\*)(\s*,\s*[0-9]+)?\])?")
"""As Spark reads it; of another master it wants a secret from us before it says that there is none such."""
_UTC = "-Duser.timezone=UTC"
# Java's default, which a JVM that compiles less thoroughly (as on the lab's worlds) cuts to 48 MB. A few runs in one
# application fill those, and Java throws compiled code away or stops compiling; thirty runs take 60 MB.
_ROOM_FOR_CODE = "-XX:ReservedCodeCacheSize=240m"
_LOG = logging.getLogger(__name__)

_DEFAULTS = {
    # Spark keeps 64 consumers, and what they have fetched ahead, for queries that read on where they stopped. None of
    # ours does, and at some 20 MB for each it is a heap full.
    "spark.kafka.consumer.cache.capacity": "1",
    **{
        f"spark.kafka.consumer.{kept}.{limit}": "5s"
        for kept in ("cache", "fetchedData.cache")
        for limit in ("timeout", "evictorThreadRunInterval")
    },
    # Of a catalog's properties any may be a secret; event logs have those that a query ran under.
    "spark.redaction.regex": "(?i)secret|password|token|credential|access[.]?key|spark[.]sql[.]catalog[.]",
    # Hadoop gives files these rights itself, whatever the umask of the process is.
    "spark.hadoop.fs.permissions.umask-mode": "077",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "true",
    # What is this small is joined by a table in memory, which spares both sides a sort.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "4m",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "4m",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    # Else Spark's port builds the objects that any process of this machine sends it. Spark makes the secret itself.
    "spark.authenticate": "true",
}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""What Delta needs from the start of a session on. An Iceberg catalog can be set at any time."""
_NEEDED_CLASSES = ("org.apache.spark.sql.kafka010.KafkaSourceProvider", "org.postgresql.Driver")
_SECRET = re.compile(
    r"secret|passw|passphrase|token|credential|jaas|(access|api|private|shared)[._-]?key|[.]key([.]|$)|[.]sas[.]",
    re.IGNORECASE,
)
# These say where secrets are and how they are come by, and Spark needs them before a driver runs.
_NO_SECRET = re.compile(
    r"^spark[.](security|kerberos)[.]|^spark[.]kubernetes[.]\w+[.]secret(s|KeyRef)[.]|[.]provider([.]|$)|File$"
)


class SparkStartError(ReconcileError):
    """Raised when Spark does not start: the message holds what Spark said, which is about Java or the settings."""


@contextmanager
def session(settings: Settings, name: str) -> Iterator[SparkSession]:
    """Give a session under our rules, and stop it afterwards unless it was there before.

    Within a process that has one already (a notebook, another stage) that one is used; under spark-submit, what
    spark-submit was given wins over the settings. Raises SparkStartError, or RefusedError for a session that was
    started by others in a way that would make our results wrong.
    """
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of each of its connections
    # It prints each statement that does not fit with its whole stack; whoever tries one says what was wrong.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    if internals.has_context():
        with without_values():
            yield _ruled(SparkSession.builder.getOrCreate())
        return
    _LOG.info("starting Spark")
    began = time.monotonic()
    with interrupts.restored():
        spark = _started(settings, name)
        _LOG.debug(f"Spark {spark.version} started on {settings.spark.master} in {time.monotonic() - began:.1f} s")
        try:
            with without_values():
                yield spark
        finally:
            _stop(spark)


def _stop(spark: SparkSession) -> None:
    with warnings.catch_warnings():
        # After an interrupt Java may not answer any more; it ends with us.
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
        spark.stop()


def configuration(settings: Settings, name: str) -> dict[str, str]:
    """Give all that Spark is started with, secrets included: our defaults, under the settings, under our rules.

    Raises SecretError for a reference that leads to nothing.
    """
    return _configuration(settings, name, settings.spark.resolve())


def _configuration(settings: Settings, name: str, given: Mapping[str, str]) -> dict[str, str]:
    local = _is_local(settings.spark.master)
    ours = {
        **_DEFAULTS,
        **(_LOCAL_DEFAULTS if local else {}),
        **given,
        **RULES,
    }
    referred = [re.escape(each) for each in sorted(settings.spark.references())]
    ours["spark.redaction.regex"] = "|".join([ours["spark.redaction.regex"], *(f"^{each}$" for each in referred)])
    ours["spark.app.name"] = name
    ours["spark.master"] = settings.spark.master
    ours["spark.jars"] = jars(settings)
    if "delta" in _lakes(settings):
        extensions = [each for each in settings.spark.listed("spark.sql.extensions") if each not in DELTA.values()]
        ours = {**DELTA, **ours, "spark.sql.extensions": ",".join([*extensions, DELTA["spark.sql.extensions"]])}
    # The last of equal options counts: the log is theirs to change, the time zone is not.
    log = f"-Dlog4j2.configurationFile={LOG_CONFIGURATION.as_uri()}"
    theirs = given.get("spark.driver.extraJavaOptions", "")
    java = [_archive(), _ROOM_FOR_CODE] if local else []
    ours["spark.driver.extraJavaOptions"] = " ".join(filter(None, [log, *java, theirs, _UTC]))
    theirs = given.get("spark.executor.extraJavaOptions", "")
    ours["spark.executor.extraJavaOptions"] = " ".join(filter(None, [theirs, _UTC]))
    return ours


def jars(settings: Settings) -> str:
    """Build the list of all jars that Spark is started with: those of lakes where a connection of the settings is one.

    Without jars of a lake Spark starts all the same, as not every run reads each connection.
    """
    ours = [*files.jars("spark"), *(jar for each in _lakes(settings) for jar in files.jars(each))]
    return ",".join([*map(str, ours), *settings.spark.listed("spark.jars")])


def _lakes(settings: Settings) -> list[str]:
    formats = {each.format for each in settings.connections.values() if isinstance(each, Lake)}
    return sorted(each for each in formats if files.has_jars(each))


def public_configuration(settings: Settings, name: str) -> dict[str, str]:
    """Give what may stand on a command line, which everybody on the machine can read: all of it but secrets.

    Those need not be there: a driver on another machine has its own.
    """
    plain = {key: value for key, value in settings.spark.conf.items() if isinstance(value, str)}
    return {key: value for key, value in _configuration(settings, name, plain).items() if not _is_secret(key)}


def _archive() -> str:
    """Have Java start from the archive of Spark's classes, if it can; it says nothing where it cannot."""
    archive = files.class_archive()
    quoted_path = str(archive).replace("\\", "\\\\").replace('"', '\\"')
    return f'"-XX:SharedArchiveFile={quoted_path}" -Xlog:cds*=off' if archive.is_file() else ""


def _is_secret(key: str) -> bool:
    return _SECRET.search(key) is not None and _NO_SECRET.search(key) is None


def _started(settings: Settings, name: str) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    wanted = configuration(settings, name)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if _is_local(settings.spark.master) and not submitted:
        # PySpark would run its workers with whatever `python3` is on the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    output = JvmOutput()
    try:
        with interrupts.held_back():
            gateway = internals.gateway() or _launched(public_configuration(settings, name), output)
            context = SparkContext(conf=_conf(wanted, gateway, submitted=submitted), gateway=gateway)
    except (PySparkException, Py4JError, OSError) as error:
        raise SparkStartError(_why(error, output, settings.spark.master)) from error
    output.release()
    interrupts.take(context)
    try:
        spark = _ruled(SparkSession(context))
    except BaseException:
        context.stop()
        raise
    if _is_local(context.master or "") and "spark.sql.shuffle.partitions" not in wanted:
        # So many that a partition of 20M rows fits into 2 GB; adaptive execution joins small ones.
        spark.conf.set("spark.sql.shuffle.partitions", str(max(32, 8 * context.defaultParallelism)))
    return spark


def _launched(public: Mapping[str, str], output: JvmOutput) -> Any:
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    # Everybody on the machine can read a command line: secrets are set later, inside the JVM.
    conf = SparkConf().setAll(list(public.items()))
    with output.pipe() as pipe:
        return launch_gateway(conf, {"stdout": pipe, "stderr": pipe})  # type: ignore[no-untyped-call]


def _conf(wanted: Mapping[str, str], gateway: Any, *, submitted: bool) -> SparkConf:
    conf = internals.java_conf(gateway)
    for key, value in wanted.items():
        if submitted and key not in RULES:
            conf.setIfMissing(key, value)
        else:
            conf.set(key, value)
    return conf


def _why(error: Exception, output: JvmOutput, master: str) -> str:
    thrown = getattr(error, "java_exception", None)
    said = str(thrown) if thrown is not None else output.held() or str(error)
    return (
        f"Spark did not start on master {quoted(master)}: {said.strip()[-2000:]}\n"
        "look at `spark` in the settings; Spark needs Java 17 or newer, on the PATH or by JAVA_HOME"
    )


def _ruled(spark: SparkSession) -> SparkSession:
    """Set our rules in a session, and refuse one that cannot keep them."""
    for key, value in RULES.items():
        spark.conf.set(key, value)
    java = internals.java(spark)
    # JDBC reads a timestamp without zone in the time zone of the JVM, whatever the session says.
    zones = {"driver": str(java.java.time.ZoneId.systemDefault())}
    if not _is_local(spark.sparkContext.master or ""):
        # A job and not a constant: the optimizer would compute that in the driver.
        looked = spark.range(1).selectExpr("java_method('java.time.ZoneId', 'systemDefault') as zone")
        zones["executor"] = looked.collect()[0]["zone"]
    for role, zone in zones.items():
        if java.java.time.ZoneId.of(zone).normalized().getId() != "Z":
            raise RefusedError(
                f"Spark's {role} runs in the time zone {zone}, in which timestamps would be read wrongly: "
                f"start it with --conf spark.{role}.extraJavaOptions={_UTC}"
            )
    for name in _NEEDED_CLASSES:
        if not has_class(spark, name):
            listed = ",".join(map(str, files.jars("spark")))
            raise RefusedError(f"Spark runs without {name}: start it with --jars {listed}")
    return spark


def has_class(spark: SparkSession, name: str) -> bool:
    """Tell whether a session has one of Java's classes."""
    from py4j.protocol import Py4JJavaError

    try:
        internals.java(spark).org.apache.spark.util.Utils.classForName(name, False, False)
    except Py4JJavaError:
        return False
    return True


def _is_local(master: str) -> bool:
    return _LOCAL.fullmatch(master) is not None
