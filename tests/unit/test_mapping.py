"""Paths in expressions over an event's value."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.domain.mapping import is_path, paths, with_names


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$.a", ("$.a",)),
        ("upper($.country)", ("$.country",)),
        ("cast($.price as decimal(12,2))", ("$.price",)),
        ("$.street || ', ' || $.city", ("$.street", "$.city")),
        ("$.b + $.a - $.b", ("$.b", "$.a")),
        ("$.a-$.b", ("$.a", "$.b")),
        ("$.a['b-c'].d", ("$.a['b-c'].d",)),
        ("$['odd name']", ("$['odd name']",)),
        ("'$.a' || $.b", ("$.b",)),
        (r"'it\'s $.a' || $.b", ("$.b",)),
        ("'it''s $.a' || $.b", ("$.b",)),
        ('"$.a" || $.b', ("$.b",)),
        ("`$.a` || $.b", ("$.b",)),
        (r"r'\' || $.b", ("$.b",)),
        ("$.a -- $.b\n + $.c", ("$.a", "$.c")),
        ("$.a /* $.b */", ("$.a",)),
        ("$.deleted == true", ("$.deleted",)),
        ("$.straße", ("$.straße",)),
        ("1", ()),
        ("", ()),
    ],
)
def test_paths_are_found_outside_of_quoted_text(expression: str, expected: tuple[str, ...]) -> None:
    """Each path comes once, in order, and none out of strings, quoted names or comments."""
    assert paths(expression) == expected


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        ("$", "$"),
        ("$.", "$."),
        ("upper($a)", "$a"),
        ("$..a", "$..a"),
        ("$.a.", "$.a."),
        ("$.a..b", "$.a..b"),
        ("$.a[0]", "$.a[0]"),
        ("$[a]", "$[a]"),
        ("x$.a", "x$.a"),
        ("${a}", "${a}"),
        ("$$.a", "$$.a"),
    ],
)
def test_a_malformed_path_is_shown(expression: str, word: str) -> None:
    """The message quotes the word and says how paths are written."""
    with pytest.raises(ValueError, match="is not a path") as caught:
        paths(expression)
    assert str(caught.value) == f"\"{word}\" is not a path: write $.name, $.a.b or $['odd-name']"


@pytest.mark.parametrize(
    ("expression", "what"),
    [("$.a || 'b", "string"), ('"b', "string"), ("`b", "quoted name"), ("$.a /* b", "comment"), ("r'b", "string")],
)
def test_what_is_opened_must_be_closed(expression: str, what: str) -> None:
    """An open string could hide a path, so it is refused."""
    with pytest.raises(ValueError, match=f"a {what} is not closed"):
        paths(expression)


def test_one_path_alone_is_told_from_an_expression() -> None:
    """A locator is a path and nothing around it."""
    assert is_path("$.a['b'].c")
    assert not is_path("$.a + 1")
    assert not is_path("$.a\n")


@given(st.text(alphabet="$.a['b]\"` -/*r\\\n", max_size=30))
def test_any_text_gives_paths_or_a_reason(text: str) -> None:
    """What is found are paths that stand in the text."""
    found: tuple[str, ...] = ()
    with suppress(ValueError):
        found = paths(text)
    assert all(is_path(path) and path in text for path in found)


def test_names_take_the_place_of_paths_alone() -> None:
    """What is quoted or a comment stays as it is."""
    written = with_names("upper($.a) || '$.a' || $.b -- $.b", {"$.a": "first", "$.b": "second"})
    assert "upper(first) || '$.a' || second -- $.b" == written
