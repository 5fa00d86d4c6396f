"""Members, network and servers of a consumer fail for minutes; then it is healed, drained and judged.

Handlers fail at random in both ways; members and drains are killed and stopped at random steps, and wake late; they
come and go; connections to the broker and to the database break, also while a commit is on its way; both servers
restart and die. An oracle that shares no code with the library compares the log, what was applied, and the copy;
and our own audit compares the copy with its source. Damage exits 1. The same seed makes the same choices; their
moments differ.

python -m bench.consumer_chaos --seconds 300 --seed 1 --policy stash --protocol classic
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from reconcile.lab.world import SPARK_OF_SMALL_WORLDS
from reconcile.settings.settings import Settings, Spark
from reconcile.spark.session import session
from tests.integration.consumer.chaos import Chaos, audited
from tests.integration.consumer.world import PROTOCOLS, consumer_world


def main() -> int:
    """Run it, and print; return the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=300)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--policy", choices=["stash", "block"], default="stash")
    arguments.add_argument("--protocol", choices=[*PROTOCOLS], default="classic")
    asked = arguments.parse_args()
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="consumer-chaos-"))
    with consumer_world() as world:
        judged = Chaos(world, folder, asked.seconds, asked.seed, asked.policy, asked.protocol).run()
        settings = Settings(spark=Spark(master="local[2]", conf=SPARK_OF_SMALL_WORLDS))
        with session(settings, "chaos") as spark:
            found = audited(spark, judged, asked.policy, folder)
    print(
        f"{asked.policy}, {asked.protocol}, seed {asked.seed}: {judged.source.versions.total():,} events in"
        f" {time.monotonic() - started:.0f} s; the members' logs are in {folder}"
    )
    print(dict(sorted(judged.happened.items())))
    for each in [*judged.damage[:20], *found[:20]]:
        print(each)
    print(f"the oracle finds {len(judged.damage) or 'nothing'}, the audit {len(found) or 'nothing'}")
    return 1 if judged.damage or found else 0


if __name__ == "__main__":
    sys.exit(main())
