"""An archive of Spark's classes, as Java keeps them ready to run: with it a command has Spark in half the time.

Spark loads some twenty thousand classes, which Java would read, check and link anew for each command. Java takes the
archive for what it is: made by another Java, or of other jars, it is passed over without a word.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from reconcile.settings.settings import Settings, Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ENDS_WITHIN = 180.0


def main() -> None:
    """Make the archive where the command line says, if this Java makes any."""
    from reconcile.spark import internals
    from reconcile.spark.session import session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("place", type=Path)
    place = parser.parse_args().place
    # Java warns of each class that it leaves out.
    archive = str(place).replace("\\", "\\\\").replace('"', '\\"')
    options = f'"-XX:ArchiveClassesAtExit={archive}" -Xlog:disable -XX:TieredStopAtLevel=1 -XX:+UseSerialGC'
    conf = {"spark.driver.extraJavaOptions": options, "spark.sql.shuffle.partitions": "2"}
    settings = Settings(spark=Spark(conf=conf))
    with tempfile.TemporaryDirectory(prefix="reconcile-") as folder, session(settings, "class archive") as spark:
        _exercise(spark, Path(folder))
    gateway = internals.gateway()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_ENDS_WITHIN)


def _exercise(spark: SparkSession, folder: Path) -> None:
    """Do with a few rows what the stages do with many, so that the classes for it are loaded."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    made = spark.range(200).select(
        f.concat(f.lit("id "), "id").alias("id"),
        f.to_json(f.struct("id", f.lit(None).cast("string").alias("none"))).alias("value"),
        f.timestamp_micros("id").alias("at"),
    )
    rows = _through_files(spark, made, folder / "rows")
    newest = f.row_number().over(Window.partitionBy("id").orderBy(f.desc("at")))
    ranked = rows.withColumn("rank", newest).where("rank = 1").withColumn("n", f.get_json_object("value", "$.id"))
    several = rows.groupBy("id").agg(f.collect_list(f.struct("at", "value")).alias("list"), f.max("at").alias("last"))
    joined = ranked.join(several, "id", "full_outer").join(f.broadcast(rows.select("id").limit(5)), "id", "left_anti")
    kept = joined.repartition(2, "id").mapInArrow(lambda batches: batches, joined.schema).persist()
    _through_files(spark, kept.unionByName(kept).dropDuplicates(["id"]).orderBy("id"), folder / "kept").collect()
    kept.agg(f.count_if(f.col("n").isNull()), f.count_distinct("n"), f.sum(f.xxhash64("id", "n") % 7)).collect()
    kept.unpersist()


def _through_files(spark: SparkSession, rows: DataFrame, folder: Path) -> DataFrame:
    rows.write.parquet(str(folder))
    return spark.read.schema(rows.schema).parquet(str(folder))


if __name__ == "__main__":
    main()
