"""Findings that hold no values of sensitive fields."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from reconcile.domain.case import FieldRule
from reconcile.domain.comparison import equivalent
from reconcile.domain.finding import FieldDifference, from_json, to_data
from reconcile.domain.redaction import Redactor, fits, is_redacted
from tests.unit.report_runs import finding

FIELDS = (FieldDifference("email", "new@example.org", None), FieldDifference("name", "Zoe", "Zoë"))


def redactor(sensitive: str, key: bytes = b"k" * 16) -> Redactor:
    """Build what redacts one field of a link."""
    return Redactor("user-account/login", ("email", "name"), {sensitive}, key)


def test_a_sensitive_value_is_replaced_by_a_hash() -> None:
    """NULL stays NULL, and other fields stay as they are."""
    email, name = redactor("email").finding(finding(fields=FIELDS)).fields
    assert email.source is not None
    assert (True, None) == (is_redacted(email.source), email.consumer)
    assert FIELDS[1] == name


def test_a_hash_is_of_one_aggregate() -> None:
    """Nobody finds a known value by looking for its hash in another's finding."""
    one, other = (redactor("email").finding(finding(each, fields=FIELDS)).fields[0] for each in ("u1", "u2"))
    assert one != other


def test_a_hash_is_under_a_key() -> None:
    """Who does not have it cannot try values until one fits."""
    one, other = (redactor("email", key).finding(finding(fields=FIELDS)).fields[0] for key in (b"a" * 16, b"b" * 16))
    assert one != other
    with pytest.raises(ValueError, match="without a key"):
        redactor("email", b"")


def test_a_case_holds_no_sensitive_value() -> None:
    """In its rows as in its events; what is equal stays equal, and NULL stays NULL."""
    row, event = {"version": "1", "fields": ["a@x", "Zoe"], "count": 1}, {"values": ["a@x", None], "offset": 7}
    case = {"id": "u1", "source": row, "copy": None, "events": [event]}
    found = redactor("email").case(case, ("source", "copy"), "events", "values")
    said = found["source"]["fields"][0]
    assert is_redacted(said)
    assert {"version": "1", "fields": [said, "Zoe"], "count": 1} == found["source"]
    assert (None, [{"values": [said, None], "offset": 7}]) == (found["copy"], found["events"])


def test_what_is_equivalent_stays_so() -> None:
    """Text in another Unicode form, or with spaces behind, reads the same; other text does not."""
    composed, decomposed, spaced, other = (
        redactor("name").redacted("u1", "name", each) for each in ("Zo\u00eb", "Zoe\u0308", "Zo\u00eb ", "Zoe")
    )
    rule = FieldRule("name")
    assert len({composed, decomposed, spaced, other}) == 4
    assert equivalent(rule, composed, decomposed)
    assert equivalent(rule, decomposed, spaced)
    assert not equivalent(rule, composed, other)


def test_what_a_column_cannot_hold_is_told() -> None:
    """By what stands in place of the value, as by the value."""
    hidden = replace(redactor("name"), columns={"name": "varchar(3)"})
    for value in ("Zoe", "Zoey"):
        said = hidden.redacted("u1", "name", value)
        assert said is not None
        assert is_redacted(said)
        assert fits("varchar(3)", value) == fits("varchar(3)", said)


def test_what_was_redacted_as_it_was_read_stays() -> None:
    """A hash of a hash would say nothing; and what is public is no secret."""
    early = replace(redactor("email"), at_once={"email"}, public={"unavailable"})
    whole = finding(fields=FIELDS)
    assert whole is early.finding(whole)
    assert "unavailable" == early.redacted("u1", "email", "unavailable")


def test_a_finding_without_sensitive_fields_stays_as_it_is() -> None:
    """Nothing is replaced in it."""
    whole = finding(fields=FIELDS)
    assert whole is redactor("phone").finding(whole)


def test_a_finding_is_read_back_as_it_was_written() -> None:
    """From its JSON line."""
    written = finding(fields=FIELDS)
    assert written == from_json(json.dumps(to_data(written, "r1")))
