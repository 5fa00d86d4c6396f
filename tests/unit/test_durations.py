"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.config import durations


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("60s", timedelta(seconds=60)),
        ("5m", timedelta(minutes=5)),
        ("1h", timedelta(hours=1)),
        ("1d", timedelta(days=1)),
        ("0s", timedelta(0)),
    ],
)
def test_a_number_with_a_unit_is_a_duration(text: str, expected: timedelta) -> None:
    """Units go from milliseconds to days."""
    assert durations.parse(text) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (60, "the number 60 has no unit: write 500ms, 60s, 5m, 1h or 1d"),
        (1.5, "the number 1.5 has no unit: write 500ms, 60s, 5m, 1h or 1d"),
        ("60", "the number 60 has no unit: write 500ms, 60s, 5m, 1h or 1d"),
        ("60 seconds", '"60 seconds" is not a duration: write 500ms, 60s, 5m, 1h or 1d'),
        ("-5s", '"-5s" is not a duration: write 500ms, 60s, 5m, 1h or 1d'),
        ("٣s", '"٣s" is not a duration: write 500ms, 60s, 5m, 1h or 1d'),
        (True, "a duration is needed: write 500ms, 60s, 5m, 1h or 1d"),
        (None, "a duration is needed: write 500ms, 60s, 5m, 1h or 1d"),
        ("366d", "is longer than 365d"),
        ("999999999d", "is longer than 365d"),
    ],
)
def test_what_is_no_duration_is_told_with_examples(value: object, message: str) -> None:
    """The message shows how a duration is written."""
    with pytest.raises(ValueError, match=r"duration|unit|longer") as caught:
        durations.parse(value)
    assert str(caught.value) == message


@given(st.integers(0, 365 * 24 * 3600 * 1000))
def test_what_is_written_is_read_back(milliseconds: int) -> None:
    """Writing a duration loses nothing."""
    duration = timedelta(milliseconds=milliseconds)
    assert durations.parse(durations.text(duration)) == duration
