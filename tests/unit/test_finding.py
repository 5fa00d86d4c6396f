"""Findings that hold no values of sensitive fields."""

from __future__ import annotations

import json

from reconcile.domain.finding import FieldDifference, from_json, redact, to_data
from tests.unit.report_runs import finding

FIELDS = (FieldDifference("email", "new@example.org", None), FieldDifference("name", "Zoe", "Zoë"))


def test_a_sensitive_value_is_replaced_by_a_hash() -> None:
    """NULL stays NULL, and other fields stay as they are."""
    email, name = redact(finding(fields=FIELDS), {"email"}).fields
    assert email.source is not None
    assert (True, None) == (email.source.startswith("sha256:"), email.consumer)
    assert FIELDS[1] == name


def test_a_hash_is_of_one_aggregate() -> None:
    """Nobody finds a known value by looking for its hash in another's finding."""
    one, other = (redact(finding(each, fields=FIELDS), {"email"}).fields[0] for each in ("u1", "u2"))
    assert one != other


def test_a_finding_without_sensitive_fields_stays_as_it_is() -> None:
    """Nothing is replaced in it."""
    whole = finding(fields=FIELDS)
    assert whole is redact(whole, {"phone"})


def test_a_finding_is_read_back_as_it_was_written() -> None:
    """From its JSON line."""
    written = finding(fields=FIELDS)
    assert written == from_json(json.dumps(to_data(written, "r1")))
