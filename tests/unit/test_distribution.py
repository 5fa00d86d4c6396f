"""How far the values of a table have moved between nights."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reconcile.domain.canonical import Kind
from reconcile.domain.distribution import (
    Distribution,
    Limits,
    changes,
    distribution,
    moved_share,
    shift,
    usual,
)

FIELDS = [("status", Kind.TEXT, False), ("balance", Kind.NUMERIC, False), ("email", Kind.TEXT, True)]
LIMITS = Limits()


def night(
    rows: int = 1000, *, retried: int = 0, without: int = 0, paid: float = 0.0, sampled: int | None = None
) -> Distribution:
    """Give a night: of so many rows in a hundred the status is another, or the e-mail is missing."""
    sample: list[Sequence[str | None]] = [
        ("RETRIED" if row % 100 < retried else "OK", str(row % 90 + paid), None if row % 100 < without else f"e{row}@x")
        for row in range(rows if sampled is None else sampled)
    ]
    return distribution(rows, sample, FIELDS)


def drifted(now: Distribution, *earlier: Distribution) -> list[str]:
    """Say what has moved too far, on the source's side."""
    found = changes({"source": now}, {"source": usual(earlier)}, LIMITS)
    return [each.said for each in found if each.drifted]


def test_a_night_like_those_before_has_not_moved() -> None:
    """Each field is compared all the same: missing values, and values where they may be known."""
    found = changes({"source": night()}, {"source": usual([night()] * 7)}, LIMITS)
    measured = [(None, "rows"), ("status", "missing"), ("status", "values"), ("balance", "missing")]
    assert [*measured, ("balance", "values"), ("email", "missing")] == [(each.field, each.measure) for each in found]
    assert not any(each.moved for each in found)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (night(500), "500 rows in the source, usually 1,000"),
        (night(without=12), "email: 12% missing in the source, usually 0%"),
        (
            night(retried=14),
            "status: 14% of rows have moved, most at 'RETRIED': 14%, usually 0%, in the source",
        ),
        (night(paid=20), "balance: 24% of the numbers have moved, the median is 64, usually 44, in the source"),
    ],
)
def test_what_has_moved_too_far_is_said(now: Distribution, said: str) -> None:
    """How far, and what was usual."""
    assert [said] == drifted(now, night(), night(), night())


@pytest.mark.parametrize("now", [night(850), night(without=1), night(retried=9), night(paid=5)])
def test_a_small_step_is_not_told(now: Distribution) -> None:
    """Below the limits, tables live."""
    assert [] == drifted(now, night(), night(), night())


def test_a_step_is_the_usual_after_half_a_week() -> None:
    """The median takes no notice of one odd night, and of a step once most nights have it."""
    before, after = night(), night(without=30)
    assert drifted(after, *[before] * 4, *[after] * 3)
    assert [] == drifted(after, *[before] * 3, *[after] * 4)
    assert [] == drifted(before, *[before] * 6, after)


def test_of_sensitive_fields_and_of_few_rows_no_value_is_kept() -> None:
    """Of the one its missing values, of the others their number."""
    email = night(without=12).field("email")
    assert email is not None
    assert [None, None, 0.12] == [email.quantiles, email.shares, email.missing]
    assert () == night(99).fields


def test_values_of_few_rows_are_not_kept() -> None:
    """Neither one that a single row has, nor free text, nor long text."""
    texts = [("x",)] * 300 + [("long" * 20,)] * 100 + [(f"name {row}",) for row in range(50)] + [("y",)] * 4
    rest = distribution(454, texts, [("a", Kind.TEXT, False)]).fields[0].shares
    assert rest is not None
    assert [("x", 300 / 454)] == list(rest.items())
    free = distribution(400, [(f"name {row}",) for row in range(400)], [("a", Kind.TEXT, False)])
    assert free.fields[0].shares is None


def test_a_sample_may_differ_by_chance() -> None:
    """So the limit is wider where not all rows were looked at: by three standard errors of what is usual."""
    whole, sample = night(without=50), night(1_000_000, without=50, sampled=1000)
    found = [
        each.limit
        for before in (whole, sample)
        for each in changes({"copy": before}, {"copy": usual([before])}, LIMITS)
        if (each.field, each.measure) == ("email", "missing")
    ]
    assert [0.01, pytest.approx(0.077, abs=0.001)] == found


def test_of_both_sides_the_one_that_moved_is_told() -> None:
    """Once, and not once for each side."""
    found = changes({"source": night(), "copy": night(500)}, {"source": night(), "copy": night()}, LIMITS)
    assert ["500 rows in the copy, usually 1,000"] == [each.said for each in found if each.drifted]
    assert 6 == len(found)


def test_a_field_that_is_new_is_compared_with_nothing() -> None:
    """Its first night says what is usual from then on."""
    old = distribution(1000, [("OK",)] * 1000, FIELDS[:1])
    assert {None, "status"} == {each.field for each in changes({"copy": night()}, {"copy": old}, LIMITS)}


@pytest.mark.parametrize(
    ("ours", "theirs", "moved"),
    [
        ({"a": 0.5, "b": 0.5}, {"a": 0.5, "b": 0.5}, 0.0),
        ({"a": 1.0}, {"b": 1.0}, 1.0),
        ({"a": 0.6}, {"a": 0.6, "b": 0.4}, 0.4),
        ({"a": 0.7, "b": 0.3}, {"a": 0.5, "b": 0.5}, 0.2),
    ],
)
def test_the_share_of_rows_that_moved(ours: dict[str, float], theirs: dict[str, float], moved: float) -> None:
    """From 0 to 1; what is in no share is in `others`."""
    assert pytest.approx(moved) == moved_share(ours, theirs) == moved_share(theirs, ours)


def test_numbers_that_all_moved_are_shifted_by_one() -> None:
    """And equal ones by nothing, however many there are of one."""
    few, many = [float(n) for n in range(1, 50)], [n + 100.0 for n in range(1, 50)]
    assert 0 == shift(few, few) == shift([1.0] * 49, [1.0] * 49)
    assert pytest.approx(0.98) == shift(few, many)
