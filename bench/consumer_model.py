"""How long the promises of the consumer library hold: the model of its unit tests, with many more histories.

A history that breaks a promise is printed in its shortest form, and exits 1. The same seed makes the same histories.

python -m bench.consumer_model --histories 5000 --seed 7
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback

from tests.unit.consumer.test_model import TERMS, explore


def main(arguments: list[str]) -> int:
    """Run histories of each kind of consumer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=1000, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=TERMS, action="append")
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    broken = 0
    for kind in given.kind or TERMS:
        started = time.monotonic()
        try:
            explore(TERMS[kind], given.histories, seed=given.seed)
            found = "all promises hold"
        except Exception:  # noqa: BLE001 - whatever a history ends with is what is looked for
            traceback.print_exc()
            broken += 1
            found = "a promise is broken"
        print(f"{kind}: {given.histories} histories, seed {given.seed}, {time.monotonic() - started:.0f} s: {found}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
