"""The session that every stage computes in."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import socket
import struct
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from reconcile import files
from reconcile.errors import RefusedError
from reconcile.lab.process import wait_until
from reconcile.settings.settings import Settings, Spark, load_settings
from reconcile.spark import local_frames, parsed_sql
from reconcile.spark.session import RULES, configuration, public_configuration, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRELUDE = """
from reconcile.settings.settings import Settings, Spark
from reconcile.spark.session import session
"""


def python(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program of its own, as a user does, in another time zone than ours. PySpark leaves sockets open."""
    env = {**os.environ, "TZ": "America/New_York", **environ}
    return subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-c", PRELUDE + code],
        capture_output=True,
        text=True,
        timeout=300,
        env=env,
        check=False,
    )


def settings(**conf: str) -> Settings:
    return Settings(spark=Spark(master="local[2]", conf=conf))


def test_session_keeps_the_rules(spark: SparkSession) -> None:
    """They hold at run time, not only where they are written."""
    assert {key: spark.conf.get(key) for key in RULES} == RULES


@pytest.mark.parametrize("named", ["env:HOME", "system:user.name", "spark.app.name"])
def test_sql_takes_in_nothing_of_our_surroundings(spark: SparkSession, named: str) -> None:
    """Spark would put variables into each text before it reads it: secrets of the environment and of its settings."""
    text = f"${{{named}}}"
    found = spark.range(1).select(parsed_sql.expression(spark, f"'{text}'").alias("said")).collect()
    assert [text] == [each["said"] for each in found]


def test_another_process_of_the_machine_has_no_objects_built(spark: SparkSession) -> None:
    """Whoever does not know the secret is not heard by Spark's port: it would build any object of Java that is sent."""

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode()

    port = int(spark.sparkContext.getConf().get("spark.driver.port") or 0)
    sent = b"\xac\xed\0\5sr" + text("not.There") + struct.pack(">q", 1) + b"\2\0\0xp"
    body = b"\0\1" + text("127.0.0.1") + struct.pack(">i", port) + text("endpoint-verifier") + sent
    request = b"\3" + struct.pack(">qi", 1, len(body)) + body
    with socket.create_connection(("127.0.0.1", port), 60) as opened, opened.makefile("rb") as answer:
        opened.sendall(struct.pack(">q", len(request) + 8) + request)
        (size,) = struct.unpack(">q", answer.read(8))
        said = answer.read(size - 8)
    assert (True, False) == (b"Expected SaslMessage" in said, b"not.There" in said), said


def test_quiet_in_utc_on_loopback_and_interruptible() -> None:
    """A program that counts says nothing but its own words, is reached by nobody else, and ends on SIGINT as before."""
    done = python("""
import os, signal, subprocess, sys
before = signal.getsignal(signal.SIGINT)
with session(Settings(spark=Spark(conf={"spark.hadoop.fs.s3a.secret.key": "hush"})), "quiet") as spark:
    assert 1000 == spark.range(1000).repartition(3).count()
    assert [(2, sys.executable)] == spark.createDataFrame([(1,)], "n int").mapInPandas(
        lambda frames: (frame.assign(n=frame.n + 1, python=sys.executable) for frame in frames), "n int, python string"
    ).collect()
    assert "Z" == spark._jvm.java.time.ZoneId.systemDefault().normalized().getId()
    assert "hush" == spark.sparkContext._jsc.hadoopConfiguration().get("fs.s3a.secret.key")
    java = spark._jvm.java.lang.ProcessHandle.current().pid()
    assert b"hush" not in open(f"/proc/{java}/cmdline", "rb").read()
    import psutil
    assert {"127.0.0.1", "::ffff:127.0.0.1"} >= {
        each.laddr.ip for each in psutil.Process(java).net_connections() if each.status == "LISTEN"
    }
assert before is signal.getsignal(signal.SIGINT)
""")
    assert ("", "", 0) == (done.stderr, done.stdout, done.returncode)


def test_what_java_prints_to_its_stdout_is_no_data_of_ours() -> None:
    """Java warns of a full code cache on both of its outputs, and `--json` leaves room for nothing else on ours."""
    done = python("""
with session(Settings(spark=Spark(conf={"spark.driver.extraJavaOptions": "-XX:+PrintFlagsFinal"})), "outspoken"):
    print("data")
""")
    assert ("data\n", 0) == (done.stdout, done.returncode)
    assert "ReservedCodeCacheSize" in done.stderr


def test_an_interrupt_ends_what_spark_is_at() -> None:
    """Whether the program waits for Spark itself or by a thread, without a word of Spark's or of py4j's."""
    done = python("""
import os, signal, time
from concurrent.futures import ThreadPoolExecutor
signal.signal(signal.SIGINT, signal.default_int_handler)
with session(Settings(), "interrupted") as spark, ThreadPoolExecutor(2) as pool:
    tracker = spark.sparkContext.statusTracker()
    def work():
        return spark.range(10**14).where("id < 0").count()
    def interrupt():
        while not tracker.getActiveJobsIds():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
    def ended():
        while tracker.getActiveJobsIds():
            time.sleep(0.1)
        return True
    for waiting in (work, lambda: pool.submit(work).result()):
        pool.submit(interrupt)
        try:
            waiting()
        except KeyboardInterrupt:
            print(ended())
""")
    assert ("True\nTrue\n", "", 0) == (done.stdout, done.stderr, done.returncode)


def test_an_interrupt_while_java_starts_leaves_no_java() -> None:
    """It ends with the program, which ends as soon as Java is there."""
    done = python("""
import os, signal, threading
import psutil
signal.signal(signal.SIGINT, signal.default_int_handler)
us = psutil.Process()
def interrupt():
    while not us.children():
        pass
    print(us.children()[0].pid, flush=True)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
with session(Settings(), "interrupted"):
    pass
""")
    assert "KeyboardInterrupt" == done.stderr.splitlines()[-1]
    wait_until(lambda: not psutil.pid_exists(int(done.stdout)), "Java stayed", 30)


def test_a_session_that_is_there_is_used_and_left(spark: SparkSession) -> None:
    """Stages within one process share one Spark; whoever started it stops it."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    with session(settings(), "inner") as inner:
        assert spark is inner
        assert "UTC" == spark.conf.get("spark.sql.session.timeZone")
    assert 3 == spark.range(3).count()


def test_a_session_that_others_started_wrongly_is_refused() -> None:
    """Whose JVM keeps another time zone, or that has no Kafka, would give wrong results or none."""
    done = python("""
import sys
from pyspark.sql import SparkSession
from reconcile.errors import RefusedError
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
zone = spark._jvm.java.util.TimeZone
for wanted in ("America/New_York", "UTC"):
    zone.setDefault(zone.getTimeZone(wanted))
    try:
        with session(Settings(), "adopted"):
            pass
    except RefusedError as error:
        print(error)
spark.stop()
""")
    assert 0 == done.returncode, done.stderr
    zone, jars = done.stdout.splitlines()
    assert zone.startswith("Spark's driver runs in the time zone America/New_York")
    assert zone.endswith("--conf spark.driver.extraJavaOptions=-Duser.timezone=UTC")
    assert jars == (
        "Spark runs without org.apache.spark.sql.kafka010.KafkaSourceProvider: start it with --jars "
        + ",".join(map(str, files.jars("spark")))
    )


def test_spark_submit_wins_over_the_settings(tmp_path: Path) -> None:
    """Under spark-submit the master is its own; our rules hold none the less."""
    program = tmp_path / "program.py"
    program.write_text(
        PRELUDE
        + """
with session(Settings(spark=Spark(master="local[7]")), "submitted") as spark:
    print(spark.sparkContext.master, spark.conf.get("spark.sql.session.timeZone"), spark.range(5).count())
"""
    )
    submit = Path(sys.executable).with_name("spark-submit")
    options = ["--master", "local[1]", "--jars", ",".join(map(str, files.jars("spark")))]
    options += ["--conf", "spark.driver.extraJavaOptions=-Duser.timezone=UTC"]
    done = subprocess.run(
        [submit, *options, program], capture_output=True, text=True, timeout=300, check=False, env={**os.environ}
    )
    assert ("local[1] UTC 5", 0) == (done.stdout.strip(), done.returncode), done.stderr[-2000:]


@pytest.mark.parametrize(
    ("code", "environ", "told"),
    [
        ('Spark(master="local[x]")', {}, "Could not parse Master URL: 'local[x]'"),
        ("Spark()", {"JAVA_HOME": "/no/java"}, "/no/java/bin/java: No such file or directory"),
    ],
)
def test_why_spark_does_not_start_is_told_once(code: str, environ: dict[str, str], told: str) -> None:
    """In the error, and nowhere else."""
    done = python(
        f"""
from reconcile.spark.session import SparkStartError
try:
    with session(Settings(spark={code}), "broken"):
        pass
except SparkStartError as error:
    print(error)
""",
        **environ,
    )
    assert told in done.stdout
    assert "look at `spark` in the settings" in done.stdout
    assert ("", 0) == (done.stderr, done.returncode)


def test_warnings_come_through() -> None:
    """Quiet is not deaf."""
    done = python("""
with session(Settings(spark=Spark(master="local[1]")), "loud") as spark:
    spark._jvm.org.slf4j.LoggerFactory.getLogger("org.example.Thing").warn("heed this")
    spark._jvm.org.slf4j.LoggerFactory.getLogger("org.example.Thing").info("not this")
""")
    assert ("WARN spark Thing: heed this", "") == (done.stderr.strip().partition(" ")[2], done.stdout)


def test_timestamps_come_back_through_parquet(spark: SparkSession, tmp_path: Path) -> None:
    """To the microsecond, before 1900 and after 9000, with zone and without."""
    instants = [
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(1582, 10, 10, 1, 2, 3, 456789, tzinfo=dt.UTC),
        dt.datetime(1883, 11, 18, 12, tzinfo=dt.UTC),
        dt.datetime(2026, 3, 8, 2, 30, 0, 1, tzinfo=dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    ]
    texts = [(each.strftime("%Y").zfill(4) + each.strftime("-%m-%d %H:%M:%S.%f"),) for each in instants]
    df = spark.createDataFrame(texts, "t string").selectExpr(
        "t", "cast(t as timestamp) as at", "cast(t as timestamp_ntz) as local", "cast(t as date) as day"
    )
    df.write.parquet(str(tmp_path / "p"))
    read = spark.read.parquet(str(tmp_path / "p"))
    shown = read.selectExpr("t", "unix_micros(at) as micros", "date_format(local, 'yyyy-MM-dd HH:mm:ss.SSSSSS') as l")
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    expected = {
        text: ((each - epoch) // dt.timedelta(microseconds=1), text)
        for (text,), each in zip(texts, instants, strict=True)
    }
    assert expected == {row["t"]: (row["micros"], row["l"]) for row in shown.collect()}
    assert "INT64" in _physical(tmp_path / "p", "at")


def test_a_local_frame_has_the_rows_behind_an_empty_chunk(spark: SparkSession) -> None:
    """Spark itself stops there, and says nothing."""
    chunks = pa.chunked_array([pa.array(each, pa.int64()) for each in ([1, 2], [], [3])])

    frame = local_frames.of_table(spark, pa.table({"n": chunks}), "n bigint")

    assert [1, 2, 3] == [row["n"] for row in frame.collect()]


def test_arithmetic_that_overflows_is_an_error(spark: SparkSession) -> None:
    """A cast that fails is never a silent NULL."""
    with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
        spark.sql("select cast('x' as int)").collect()


def test_decimals_compare_by_value(spark: SparkSession) -> None:
    """Whatever their scales."""
    row: Any = spark.sql("select cast(12.3400 as decimal(10,4)) as a, cast(12.34 as decimal(10,2)) as b").first()
    assert (Decimal("12.3400"), True) == (row["a"], row["a"] == row["b"])


def test_java_starts_from_the_archive_of_spark_s_classes(spark: SparkSession) -> None:
    """It fits these jars, this Java and its options: one that it cannot use would slow each start, and nobody see."""
    system = spark._jvm.java.lang.System  # type: ignore[union-attr]
    java, classes = Path(system.getProperty("java.home"), "bin", "java"), system.getProperty("java.class.path")
    bean = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()  # type: ignore[union-attr]
    given = [each for each in list(bean.getInputArguments()) if each.startswith("-XX:")]
    assert f"-XX:SharedArchiveFile={files.class_archive()}" in given
    strictly = [*given, "-Xshare:on", "-cp", classes, "-version"]
    done = subprocess.run([java, *strictly], capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout


def test_an_archive_of_another_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word, wherever it lies."""
    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "spark").symlink_to(files.jars("spark")[0].parent)
    (folder / "spark.jsa").write_bytes(b"another Java's")
    monkeypatch.setenv("RECONCILE_JARS", str(folder))
    done = python("""
with session(Settings(), "passed over") as spark:
    print(spark.range(3).count())
""")
    assert ("3\n", "", 0) == (done.stdout, done.stderr, done.returncode)


def test_configuration_lets_settings_win_but_not_over_rules() -> None:
    """The user's shuffle partitions and jars are taken; the user's time zone is not."""
    found = configuration(
        settings(
            **{
                "spark.sql.shuffle.partitions": "3",
                "spark.ui.enabled": "true",
                "spark.sql.session.timeZone": "Asia/Tokyo",
                "spark.jars": "/x/oracle.jar",
                "spark.driver.extraJavaOptions": "-Xss4m -Duser.timezone=Asia/Tokyo",
            }
        ),
        "name",
    )
    assert ("3", "true", "UTC") == tuple(
        found[f"spark.{key}"] for key in ("sql.shuffle.partitions", "ui.enabled", "sql.session.timeZone")
    )
    assert [*map(str, files.jars("spark")), "/x/oracle.jar"] == found["spark.jars"].split(",")
    assert found["spark.driver.extraJavaOptions"].endswith("-Xss4m -Duser.timezone=Asia/Tokyo -Duser.timezone=UTC")


def test_a_setting_of_spark_may_be_a_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark gets the secret, no command line does, and Spark's own pages hide it, whatever the setting's name."""
    (tmp_path / "s").write_text("hush\n")
    monkeypatch.setenv("SECRET", "hush")
    theirs = {"spark.hadoop.a": "env:SECRET", "spark.hadoop.b": "file:s", "spark.hadoop.c": "plain"}
    (tmp_path / "reconcile.yaml").write_text(json.dumps({"spark": {"conf": theirs}}))
    given = load_settings(tmp_path / "reconcile.yaml")
    found, public = configuration(given, "n"), public_configuration(given, "n")
    assert ["hush", "hush", "plain"] == [found[f"spark.hadoop.{name}"] for name in "abc"]
    assert {"spark.hadoop.c"} == set(theirs) & public.keys()
    assert "hush" not in repr(given)
    monkeypatch.delenv("SECRET")
    assert public == public_configuration(given, "n"), "a driver on another machine may have it"
    assert [True, True, False] == [
        re.search(public["spark.redaction.regex"], f"spark.hadoop.{name}") is not None for name in "abc"
    ]


@pytest.mark.parametrize("key", ["spark.driver.extraJavaOptions", "spark.jars"])
def test_what_stands_on_a_command_line_is_no_reference(key: str) -> None:
    """It could not be kept from anybody."""
    with pytest.raises(ValueError, match="has to stand on a command line"):
        Settings.model_validate({"spark": {"conf": {key: "env:SECRET"}}})


def test_a_local_driver_has_room_for_compiled_code_unless_the_user_says_how_much() -> None:
    """Java takes the last of equal options; a cluster's driver keeps Java's own default."""
    theirs = {"spark.driver.extraJavaOptions": "-XX:ReservedCodeCacheSize=64m"}
    local, cluster = (Settings(spark=Spark(master=each, conf=theirs)) for each in ("local[2]", "spark://h:7077"))
    given = [configuration(each, "n")["spark.driver.extraJavaOptions"].split() for each in (local, cluster)]
    rooms = [[each for each in options if "ReservedCodeCacheSize" in each] for options in given]
    assert [
        ["-XX:ReservedCodeCacheSize=240m", "-XX:ReservedCodeCacheSize=64m"],
        ["-XX:ReservedCodeCacheSize=64m"],
    ] == rooms


def test_configuration_binds_only_a_local_master_to_loopback() -> None:
    """Executors of a cluster have to reach the driver."""
    local, cluster = (configuration(Settings(spark=Spark(master=each)), "n") for each in ("local[2]", "spark://h:7077"))
    assert ("127.0.0.1", "127.0.0.1") == (local["spark.driver.host"], local["spark.driver.bindAddress"])
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & cluster.keys()


def test_missing_jars_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before Spark starts."""
    monkeypatch.setenv("RECONCILE_JARS", str(tmp_path))
    with pytest.raises(RefusedError, match="reconcile setup"):
        configuration(settings(), "n")


def _physical(folder: Path, column: str) -> str:
    from pyarrow import parquet

    schema = parquet.ParquetFile(next(folder.glob("*.parquet"))).schema
    return str(schema.column(schema.names.index(column)).physical_type)
