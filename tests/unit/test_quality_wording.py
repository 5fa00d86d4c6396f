"""What came of an expectation is said in the words of the data, and sensitive values are not."""

from __future__ import annotations

from typing import Any

import pytest

from reconcile.quality.wording import said

IN_SET = "expect_column_values_to_be_in_set"


def words(
    expectation: str,
    columns: list[str],
    kwargs: dict[str, Any],
    figures: dict[str, Any],
    *shown: str,
    met: bool = False,
) -> str:
    """Say what came of an expectation."""
    return said(expectation, columns, kwargs, figures, success=met, shown=shown)


def counted(rows: int, unexpected: int, *values: Any) -> dict[str, Any]:
    """Give the figures of an expectation of rows."""
    return {"element_count": rows, "unexpected_count": unexpected, "partial_unexpected_list": list(values)}


@pytest.mark.parametrize(
    ("expectation", "unexpected", "text"),
    [
        ("expect_column_values_to_not_be_null", 0, "email: 336 of 336 present"),
        ("expect_column_values_to_not_be_null", 3, "email: 3 of 336 rows are missing"),
        ("expect_column_values_to_be_unique", 2, "email: 2 of 336 rows share theirs with another row"),
        ("expect_column_values_to_be_dateutil_parseable", 2, "email: 2 of 336 rows fail to be dateutil parseable"),
        ("expect_column_values_to_be_dateutil_parseable", 0, "email: 336 of 336 as expected (be dateutil parseable)"),
    ],
)
def test_rows_are_counted_in_words(expectation: str, unexpected: int, text: str) -> None:
    """The library's name of an expectation is in none of them, also of those that are not known here."""
    assert text == words(expectation, ["email"], {}, counted(336, unexpected), met=not unexpected)


def test_a_value_that_is_not_allowed_is_named() -> None:
    """Of a field whose values may be shown."""
    figures = counted(2938, 3, "RETRIED", "RETRIED", "RETRIED")
    told = words(IN_SET, ["status"], {"value_set": ["OK"]}, figures, "status")
    assert "status: 3 of 2,938 rows hold 'RETRIED', which the suite does not allow" == told


@pytest.mark.parametrize(("shown", "values"), [((), ["RETRIED", "RETRIED"]), (("status",), ["RETRIED", "ONCE"])])
def test_a_value_of_a_sensitive_field_or_of_one_row_is_not_named(shown: tuple[str, ...], values: list[str]) -> None:
    """What one row alone holds may be a person's, and outlive it."""
    told = words(IN_SET, ["status"], {"value_set": ["OK"]}, counted(2938, 2, *values), *shown)
    assert "status: 2 of 2,938 rows hold what the suite does not allow" == told


def test_many_values_are_cut() -> None:
    """Three of them are named, and long ones end early."""
    figures = counted(90, 10, *[each for each in ("a", "b{regex}", "c" * 99, "d", "e") for _ in range(2)])
    told = words(IN_SET, ["status"], {}, figures, "status")
    assert f"'a', 'b{{regex}}', '{'c' * 39}…' and others, which" in told


def test_what_mostly_lets_pass_is_said() -> None:
    """As a share, beside what there is."""
    told = words("expect_column_values_to_not_be_null", ["id"], {"mostly": 0.999}, counted(1000, 7))
    assert "id: 7 of 1,000 rows are missing; 0.1% may" == told


@pytest.mark.parametrize(
    ("figures", "shown", "text"),
    [
        ({"observed_value": 1000.25}, ("age",), "age: the largest is 1,000.25, expected at most 120"),
        ({"observed_value": 1000.25}, (), "age: the largest is not at most 120"),
        ({"observed_value": "Zoë"}, ("age",), "age: the largest is not at most 120"),
    ],
)
def test_a_measure_of_a_hidden_column_has_no_value(figures: dict[str, Any], shown: tuple[str, ...], text: str) -> None:
    """The largest is some row's."""
    assert text == words("expect_column_max_to_be_between", ["age"], {"max_value": 120}, figures, *shown)


def test_a_mean_is_nobodys() -> None:
    """So it is said of every column."""
    told = words("expect_column_mean_to_be_between", ["age"], {"min_value": 1}, {"observed_value": 41.5}, met=True)
    assert "age: the mean is 41.5, at least 1" == told


def test_columns_that_are_missing_are_named() -> None:
    """And those that are not expected."""
    apart = {"details": {"mismatched": {"missing": ["phone"], "unexpected": ["fax"]}}}
    assert "the table: phone missing; fax not expected" == words("expect_table_columns_to_match_set", [], {}, apart)


def test_a_condition_is_said() -> None:
    """Because the rows are those alone."""
    told = words("expect_column_values_to_be_null", ["n"], {"row_condition": "a > 1"}, counted(5, 0), met=True)
    assert "n: 5 of 5 empty where a > 1" == told
