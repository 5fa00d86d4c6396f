"""What came of an expectation, in the words of the data: which column, how many rows, and what is with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

_NAMED = 3
_WHICH = "values, which"
_LONGEST = 40

# Of each expectation of rows: what a row is that meets it, and what rows do that do not.
_ROWS = {
    "expect_column_values_to_not_be_null": ("present", "are missing"),
    "expect_column_values_to_be_null": ("empty", "are there, where none is expected"),
    "expect_column_values_to_be_unique": ("unique", "share theirs with another row"),
    "expect_compound_columns_to_be_unique": ("unique together", "share theirs with another row"),
    "expect_select_column_values_to_be_unique_within_record": ("different from one another", "hold a value twice"),
    "expect_column_values_to_be_in_set": ("allowed", "hold {values, which} the suite does not allow"),
    "expect_column_values_to_not_be_in_set": ("allowed", "hold {values, which} the suite forbids"),
    "expect_column_values_to_be_between": ("{range}", "are not {range}"),
    "expect_column_value_lengths_to_be_between": ("{range} long", "are not {range} long"),
    "expect_column_value_lengths_to_equal": ("{value} long", "are not {value} long"),
    "expect_column_values_to_match_regex": ("like {regex}", "are not like {regex}"),
    "expect_column_values_to_not_match_regex": ("unlike {regex}", "are like {regex}, which the suite forbids"),
    "expect_column_pair_values_to_be_equal": ("equal", "are not equal"),
    "expect_column_pair_values_a_to_be_greater_than_b": ("in order", "have a first that is not the greater"),
}

# Of each expectation of a whole column or table: what is measured, and whether that is a value of some row.
_MEASURES = {
    "expect_column_min_to_be_between": ("the smallest", True),
    "expect_column_max_to_be_between": ("the largest", True),
    "expect_column_median_to_be_between": ("the median", True),
    "expect_column_mean_to_be_between": ("the mean", False),
    "expect_column_stdev_to_be_between": ("the standard deviation", False),
    "expect_column_sum_to_be_between": ("the sum", False),
    "expect_column_unique_value_count_to_be_between": ("the number of different values", False),
    "expect_column_proportion_of_unique_values_to_be_between": ("the share of unique values", False),
    "expect_table_row_count_to_be_between": ("the number of rows", False),
    "expect_table_row_count_to_equal": ("the number of rows", False),
}


def said(
    expectation: str,
    columns: Sequence[str],
    kwargs: Mapping[str, Any],
    figures: Mapping[str, Any],
    *,
    success: bool,
    shown: Collection[str],
) -> str:
    """Say what an expectation found. Values of a row are told of the columns in `shown` alone."""
    name = ", ".join(columns) or "the table"
    where = f" where {kwargs['row_condition']}" if kwargs.get("row_condition") else ""
    return f"{name}: {_found(expectation, kwargs, figures, success=success, open_=set(columns) <= set(shown))}{where}"


def _found(
    expectation: str, kwargs: Mapping[str, Any], figures: Mapping[str, Any], *, success: bool, open_: bool
) -> str:
    rows, unexpected = figures.get("element_count"), figures.get("unexpected_count")
    if expectation == "expect_table_columns_to_match_set":
        return "all columns are there, and no others" if success else _columns(figures)
    if expectation in _MEASURES:
        return _measured(expectation, kwargs, figures, success=success, open_=open_)
    if rows is None or unexpected is None:
        return f"{'met' if success else 'not met'}: {_plain(expectation)}"
    meets, fails = _ROWS.get(expectation, (f"as expected ({_plain(expectation)})", f"fail to {_plain(expectation)}"))
    of_set = open_ and _WHICH in fails
    values = _values(figures.get("partial_unexpected_list") or ()) if of_set else None
    told = {
        "range": _range(kwargs),
        "value": kwargs.get("value"),
        "regex": kwargs.get("regex"),
        _WHICH: "what" if values is None else f"{values}, which",
    }
    many = _number(rows)
    if not unexpected:
        return f"{many} of {many} {_filled(meets, told)}"
    text = f"{_number(unexpected)} of {many} rows {_filled(fails, told)}"
    mostly = kwargs.get("mostly", 1)
    return text if mostly == 1 else f"{text}; {(1 - mostly) * 100:.4g}% may"


def _measured(
    expectation: str, kwargs: Mapping[str, Any], figures: Mapping[str, Any], *, success: bool, open_: bool
) -> str:
    measure, of_row = _MEASURES[expectation]
    observed = figures.get("observed_value")
    named = open_ and isinstance(observed, (int, float)) if of_row else observed is not None  # a text may be a person's
    value = f" {_number(observed)}" if named else ""
    expected = _number(kwargs["value"]) if "value" in kwargs else _range(kwargs)
    if success:
        return f"{measure} is{value}, {expected}" if value else f"{measure} is {expected}"
    return f"{measure} is{value}, expected {expected}" if value else f"{measure} is not {expected}"


def _columns(figures: Mapping[str, Any]) -> str:
    apart = (figures.get("details") or {}).get("mismatched") or {}
    parts = [
        f"{', '.join(map(str, names))} {words}"
        for names, words in ((apart.get("missing"), "missing"), (apart.get("unexpected"), "not expected"))
        if names
    ]
    return "; ".join(parts) or "the columns are not those that are expected"


def _values(some: Sequence[Any]) -> str | None:
    """Name a few of the values that are not expected; None where no two rows share one, as it may be a person's."""
    shared = [_value(value) for value, rows in Counter(some).items() if rows > 1]
    if not shared:
        return None
    return ", ".join(shared[:_NAMED]) + (" and others" if len(shared) > _NAMED or len(shared) < len(set(some)) else "")


def _value(value: Any) -> str:
    text = str(value)
    cut = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return f"'{cut}'" if isinstance(value, str) else cut


def _range(kwargs: Mapping[str, Any]) -> str:
    least, most = kwargs.get("min_value"), kwargs.get("max_value")
    if least is None and most is None:
        return "anything"
    if least is None:
        return f"at most {_number(most)}"
    if most is None:
        return f"at least {_number(least)}"
    return f"from {_number(least)} to {_number(most)}"


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _filled(words: str, told: Mapping[str, Any]) -> str:
    """Fill in what is told; what it holds is text, whatever braces are in it."""
    for name, value in told.items():
        words = words.replace(f"{{{name}}}", str(value))
    return words


def _plain(expectation: str) -> str:
    return expectation.removeprefix("expect_").removeprefix("column_").removeprefix("values_to_").replace("_", " ")
