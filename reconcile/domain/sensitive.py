"""Sensitive values: a finding tells that they differ, and never what they are."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace

from reconcile.domain.finding import FieldDifference, Finding


def masked(finding: Finding, names: Collection[str]) -> Finding:
    """Give the finding with hashes in place of the values of these fields: equal values have equal ones."""
    if not names or not finding.fields:
        return finding
    return replace(
        finding, fields=tuple(_masked(finding, each) if each.name in names else each for each in finding.fields)
    )


def _masked(finding: Finding, field: FieldDifference) -> FieldDifference:
    # Salted by the aggregate, so that nobody can look for a known value among all findings.
    salt = f"{finding.link}\0{finding.aggregate_id}\0{field.name}\0"
    return replace(field, source=_hash(salt, field.source), consumer=_hash(salt, field.consumer))


def _hash(salt: str, value: str | None) -> str | None:
    return None if value is None else "sha256:" + hashlib.sha256(f"{salt}{value}".encode()).hexdigest()[:16]
