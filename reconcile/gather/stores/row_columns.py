"""The columns of rows in canonical form, by the names that every stage uses for them."""

from __future__ import annotations

ID = "reconcile_id"
"""The id's text; NULL for a row that has none."""
VERSION = "reconcile_version"
"""The version's text; NULL where the side has none."""


def field(number: int) -> str:
    """Name the column of a compared field, by its place in the contract."""
    return f"field_{number}"


def names(fields: int) -> tuple[str, ...]:
    """List the names of all columns."""
    return (ID, VERSION, *map(field, range(fields)))


def schema(fields: int) -> str:
    """List all columns, in Spark's DDL."""
    return ", ".join(f"{name} string" for name in names(fields))
