"""When values are equal, and when they are the same to a reader."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.domain.canonical import Kind
from reconcile.domain.case import FieldRule, Row
from reconcile.domain.comparison import differing, equal, equivalent, number
from reconcile.domain.finding import FieldDifference
from tests.unit.cases import LOGIN, person, row

TEXT = FieldRule("x")
NUMERIC = FieldRule("x", Kind.NUMERIC)
FLOAT = FieldRule("x", Kind.FLOAT)
INTEGER = FieldRule("x", Kind.INTEGER)
LONG = "9" * 40


@pytest.mark.parametrize(
    ("rule", "one", "other", "expected"),
    [
        (TEXT, "a", "a", True),
        (TEXT, None, None, True),
        (TEXT, None, "", False),
        (TEXT, "", None, False),
        (TEXT, "1.0", "1", False),
        (TEXT, "a", "a ", False),
        (NUMERIC, "1.50", "1.5", True),
        (NUMERIC, "NaN", "NaN", True),
        (NUMERIC, "NaN", "1", False),
        (NUMERIC, "Infinity", "Infinity", True),
        (NUMERIC, "Infinity", "-Infinity", False),
        (NUMERIC, LONG + "1", LONG + "2", False),
        (NUMERIC, "one", "1", False),
        (NUMERIC, None, "0", False),
        (INTEGER, "7", "7.0", True),
        (FLOAT, "1e3", "1000.0", True),
        (FLOAT, "NaN", "nan", True),
        (FLOAT, "0.1", "0.10000000000000001", True),
        (FLOAT, "-0", "0", True),
        (FLOAT, "x", "1", False),
        (replace(NUMERIC, tolerance=Decimal("0.01")), "1.00", "1.01", True),
        (replace(NUMERIC, tolerance=Decimal("0.01")), "1.00", "1.011", False),
        (replace(NUMERIC, tolerance=Decimal(1)), LONG + "1", LONG + "3", False),
        (replace(NUMERIC, tolerance=Decimal(1)), "Infinity", "1", False),
        (replace(FLOAT, tolerance=Decimal("0.5")), "1", "1.5", True),
        (replace(TEXT, tolerance=Decimal(1)), "1", "2", False),
    ],
)
def test_equal(rule: FieldRule, one: str | None, other: str | None, expected: bool) -> None:
    """Text as it is, numbers by value within the tolerance, NULL only with NULL."""
    assert expected == equal(rule, one, other) == equal(rule, other, one)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Zo\u00eb", "Zoe\u0308", True),
        ("a", "a  ", True),
        ("Zo\u00eb ", "Zoe\u0308", True),
        ("a", " a", False),
        ("a", "a\t", False),
        ("a", "A", False),
        (None, "", False),
        ("\ufb01", "fi", False),
    ],
)
def test_equivalent(one: str | None, other: str | None, expected: bool) -> None:
    """The same letters in another Unicode form, or with spaces behind; nothing more."""
    assert expected == equivalent(TEXT, one, other) == equivalent(TEXT, other, one)


def test_only_text_is_equivalent() -> None:
    """A number with a space behind is no number."""
    assert not equivalent(replace(TEXT, kind=Kind.UUID), "a", "a ")


def test_the_fields_that_differ() -> None:
    """In the contract's order, with both values; a field that is missing is NULL."""
    found = differing(LOGIN, row(person("a", "x", "1")), Row({"name": "b", "email": "x"}))
    assert (FieldDifference("name", "a", "b"), FieldDifference("phone", "1", None)) == found


@pytest.mark.parametrize(("text", "expected"), [("1.50", Decimal("1.5")), (None, None), ("NaN", None), ("x", None)])
def test_number(text: str | None, expected: Decimal | None) -> None:
    """What can be added up."""
    assert expected == number(text)


@given(st.none() | st.text(max_size=4), st.none() | st.text(max_size=4), st.sampled_from(Kind))
def test_equal_implies_equivalent(one: str | None, other: str | None, kind: Kind) -> None:
    """For values of any kind, also where they are not what the kind says."""
    rule = FieldRule("x", kind)
    assert equal(rule, one, one)
    assert equal(rule, one, other) <= equivalent(rule, one, other)
