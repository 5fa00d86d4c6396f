"""How long an audit takes beside datacompy's report on the same two tables, each in a process and a Spark of its own.

datacompy gets its two sides as Parquet; the audit reads them from the stores, with the log and all evidence.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from reconcile.files import committed
from reconcile.lab import world
from reconcile.lab.folder import Lab, Ports
from reconcile.lab.seed import seed
from reconcile.lab.services.database import connect

CONTRACT = committed("contracts", "user-account.yaml")
DATACOMPY = """
import sys
from datacompy.spark import SparkSQLCompare
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[*]").config("spark.driver.memory", "2g")
spark = builder.config("spark.ui.enabled", "false").getOrCreate()
ours, theirs = (spark.read.parquet(path) for path in sys.argv[1:3])
print(len(SparkSQLCompare(spark, ours, theirs, join_columns=["id"]).report()))
"""
SIDES = {
    "ours": (
        "user",
        "select a.id::text, first_name || ' ' || last_name as display_name, e.address as email, p.number as phone"
        " from user_account a left join email_address e on e.user_id = a.id and e.position = 1"
        " left join phone_number p on p.user_id = a.id and p.position = 1 where deleted_at is null",
    ),
    "theirs": ("login", "select user_id::text as id, display_name, mail as email, phone from login_profile"),
}


def exported(lab: Lab, folder: Path) -> list[str]:
    """Write both sides to Parquet, as datacompy is to have them."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    paths = []
    for name, (database, query) in SIDES.items():
        with closing(connect(lab.url(database))) as session, session.cursor() as cursor:
            cursor.execute(query)
            columns = [column.name for column in cursor.description or ()]
            values = list(zip(*cursor.fetchall(), strict=True))
        path = folder / f"{name}.parquet"
        pq.write_table(pa.table([pa.array(column, pa.string()) for column in values], names=columns), path)
        paths.append(str(path))
    return paths


def seconds(command: list[str], codes: tuple[int, ...]) -> float:
    """Give how long a program takes, its start included."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise RuntimeError(done.stderr[-2000:])
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aggregates", type=int, default=200_000)
    parser.add_argument("--drift", type=float, default=0.03)
    asked = parser.parse_args()
    folder = Path(tempfile.gettempdir()) / "reconcile-bench-audit"
    lab = Lab(folder / "lab")
    world.down(lab, wipe=True)
    folder.mkdir(exist_ok=True)
    world.up(lab, Ports(postgres=15612, kafka=19462, controller=19463))
    try:
        seed(lab, asked.aggregates, 7)
        dice = random.Random(7)  # noqa: S311
        with closing(connect(lab.url("login"))) as session, session, session.cursor() as cursor:
            cursor.execute("select setseed(%s)", (dice.random(),))
            cursor.execute("update login_profile set mail = 'x' || mail where random() < %s", (asked.drift,))
            drifted = cursor.rowcount
        paths = exported(lab, folder)
        theirs = seconds([sys.executable, "-c", DATACOMPY, *paths], (0,))
        command = [sys.executable, "-m", "reconcile.cli", "run", str(CONTRACT)]
        command += ["--config", str(world.settings_file(lab)), "--workspace", str(folder / "runs")]
        first = seconds([*command, "--run-id", f"first-{int(time.time())}"], (1,))
        second = seconds([*command, "--run-id", f"second-{int(time.time())}"], (1,))
    finally:
        world.down(lab, wipe=True)
    lines = {
        "aggregates, of which drifted": f"{asked.aggregates:,}, {drifted:,}",
        "datacompy's report, from Parquet": f"{theirs:.1f} s",
        "reconcile run, the log read for the first time": f"{first:.1f} s = {first / theirs:.2f} x",
        "reconcile run, the next night": f"{second:.1f} s = {second / theirs:.2f} x (goal below 1)",
    }
    for name, value in lines.items():
        sys.stdout.write(f"{name:<48} {value}\n")


if __name__ == "__main__":
    main()
