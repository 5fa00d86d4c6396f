"""What all tests share: the same examples on every machine, and the longest files first."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

LONGEST = ("e2e/test_airflow", "integration/test_repair", "e2e/test_readme", "integration/test_audit", "e2e/test_lab")

# How fast a machine is says nothing of what is tested.
_AT_ANY_SPEED = [HealthCheck.too_slow]
settings.register_profile(
    "reconcile", derandomize=True, deadline=None, database=None, suppress_health_check=_AT_ANY_SPEED
)
settings.load_profile("reconcile")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no worker be left with a long file at the end, while the others have nothing to do."""
    items.sort(key=lambda item: next((n for n, file in enumerate(LONGEST) if file in item.nodeid), len(LONGEST)))
