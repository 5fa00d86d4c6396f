"""When two values are equal, and in which fields a copy differs from its source."""

from __future__ import annotations

from decimal import Context, Decimal, InvalidOperation

from reconcile.domain.canonical import Kind
from reconcile.domain.case import FieldRule, Link, Row
from reconcile.domain.finding import FieldDifference
from reconcile.domain.redaction import as_read

# Wide enough for any numeric of Postgres: a sum is never rounded.
EXACT = Context(prec=150_000)
_ROUNDED = Decimal("1e-12")


def differing(link: Link, source: Row, copy: Row) -> tuple[FieldDifference, ...]:
    """Compute the fields in which a copy differs, in the contract's order."""
    ours, theirs = source.fields, copy.fields
    return tuple(
        FieldDifference(rule.name, ours.get(rule.name), theirs.get(rule.name))
        for rule in link.fields
        if not equal(rule, ours.get(rule.name), theirs.get(rule.name))
    )


def equal(rule: FieldRule, one: str | None, other: str | None) -> bool:
    """Whether two values of a field are the same: as text, or as numbers within its tolerance."""
    if one == other:
        return True
    if one is None or other is None:
        return False
    if rule.kind is Kind.FLOAT:
        return _equal_floats(one, other, float(rule.tolerance))
    if rule.kind is Kind.INTEGER or rule.kind is Kind.NUMERIC:
        return _equal_numbers(one, other, rule.tolerance)
    return False


def equivalent(rule: FieldRule, one: str | None, other: str | None) -> bool:
    """Whether two values are the same to a reader: text may be in another Unicode form, or have spaces behind."""
    if equal(rule, one, other):
        return True
    if one is None or other is None or (rule.kind is not Kind.TEXT and rule.kind is not Kind.OTHER):
        return False
    return as_read(one) == as_read(other)


def number(text: str | None) -> Decimal | None:
    """Parse a canonical number; None for NULL, for what is no number, and for what nothing can be added to."""
    if text is None:
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() else None


def near(one: Decimal, other: Decimal, tolerance: Decimal) -> bool:
    """Whether two numbers are at most the tolerance apart."""
    return one == other or (tolerance > 0 and abs(EXACT.subtract(one, other)) <= tolerance)


def near_sum(rule: FieldRule, one: Decimal, other: Decimal) -> bool:
    """Whether two sums are the same: one of floats depends on the order in which they were added."""
    if rule.kind is not Kind.FLOAT:
        return near(one, other, rule.tolerance)
    return near(one, other, max(rule.tolerance, _ROUNDED * max(abs(one), abs(other))))


def _equal_floats(one: str, other: str, tolerance: float) -> bool:
    try:
        a, b = float(one), float(other)
    except ValueError:
        return False
    return a == b or (a != a and b != b) or abs(a - b) <= tolerance


def _equal_numbers(one: str, other: str, tolerance: Decimal) -> bool:
    try:
        a, b = Decimal(one), Decimal(other)
    except InvalidOperation:
        return False
    if a.is_finite() and b.is_finite():
        return near(a, b, tolerance)
    return (a.is_nan() and b.is_nan()) or (not a.is_nan() and not b.is_nan() and a == b)
