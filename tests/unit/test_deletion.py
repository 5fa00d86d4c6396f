"""What events that delete tell."""

from __future__ import annotations

import pytest

from reconcile.domain.deletion import told_version


@pytest.mark.parametrize(
    ("version", "deletes", "expected"), [(0, True, None), (0, False, 0), (3, True, 3), (None, True, None)]
)
def test_a_deletion_has_no_version_that_its_connector_fills_in(
    version: int | None, deletes: bool, expected: int | None
) -> None:
    """Debezium writes 0 for a column that takes no NULL, and of which Postgres logged nothing."""
    assert expected == told_version(version, deletes)
