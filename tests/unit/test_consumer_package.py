"""What a service imports."""

from __future__ import annotations

import subprocess
import sys

from reconcile import consumer

HEAVY = ("pyspark", "pandas", "numpy", "sqlalchemy", "prometheus_client", "confluent_kafka", "reconcile.contract.model")


def test_the_public_names_are_there() -> None:
    """Each name that the package promises can be imported from it."""
    assert [] == [name for name in consumer.__all__ if not hasattr(consumer, name)]


def test_importing_it_loads_nothing_heavy() -> None:
    """A service starts without Spark, and Kafka's client is loaded when it consumes."""
    code = f"import sys, reconcile.consumer; print([each for each in {HEAVY} if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout
