"""What connectors write reads as the database's value, and is written back in the very same form."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.domain.encoding import MOST_DIGITS, Encoding, parse

EXACT = Context(prec=100)


@st.composite
def decimals(draw: st.DrawFn) -> tuple[Encoding, Decimal]:
    """Draw a form with any precision and scale, and a number that it holds."""
    precision = draw(st.integers(1, MOST_DIGITS))
    scale = draw(st.integers(0, precision))
    number = draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    return Encoding("decimal", precision, scale), Decimal(number).scaleb(-scale, EXACT)


@given(decimals())
def test_a_decimal_comes_back_with_every_digit(drawn: tuple[Encoding, Decimal]) -> None:
    """Of any precision and scale, negative ones as well."""
    form, number = drawn
    assert format(number, "f") == form.decode(form.encode(number))
    text = format(number, "f")
    if "." in text or "-" in text:  # no base64
        assert number == Decimal(form.decode(form.encode(text)))


@pytest.mark.parametrize("text", ["1234", "12345678", "1E10"])
def test_a_text_that_is_a_number_and_base64_is_refused(text: str) -> None:
    """It may be the number, or be encoded already: nobody can tell, and a guess would write a wrong amount."""
    with pytest.raises(ValueError, match="base64 of another"):
        parse("decimal(12,2)").encode(text)


@given(st.dates())
def test_a_date_comes_back(day: date) -> None:
    """Before 1970 too."""
    form = parse("epoch_days")
    assert day.isoformat() == form.decode(str(form.encode(day.isoformat())))


@given(st.datetimes(), st.sampled_from(["epoch_micros", "epoch_nanos"]))
def test_an_instant_comes_back_with_its_microseconds(at: datetime, name: str) -> None:
    """A timestamp without a zone is UTC, as everywhere."""
    form = parse(name)
    in_range = -(2**63) <= form.encode(at.isoformat()) < 2**63
    if in_range:
        assert at.isoformat(timespec="microseconds") + "Z" == form.decode(str(form.encode(at.isoformat())))


@given(st.datetimes())
def test_an_instant_comes_back_with_its_milliseconds(at: datetime) -> None:
    """And one with more digits is not rounded: it has no such form."""
    form, rounded = parse("epoch_millis"), at.replace(microsecond=at.microsecond // 1000 * 1000)
    assert rounded.isoformat(timespec="microseconds") + "Z" == form.decode(str(form.encode(rounded.isoformat())))
    if at != rounded:
        with pytest.raises(ValueError, match="more digits"):
            form.encode(at.isoformat())


@given(st.times(), st.sampled_from(["micros_of_day", "nanos_of_day"]))
def test_a_time_of_day_comes_back(at: Any, name: str) -> None:
    """Of a column of the type time."""
    form = parse(name)
    assert at.isoformat("microseconds") == form.decode(str(form.encode(at.isoformat())))


@given(st.integers(-(10**15), 10**15))
def test_a_duration_comes_back(micros: int) -> None:
    """In microseconds, as Debezium writes intervals by default."""
    form = parse("micro_duration")
    assert micros == form.encode(form.decode(str(micros)))


@given(st.integers(-9999, 9999), st.integers(-9999, 9999), st.integers(-(10**13), 10**13))
def test_an_interval_comes_back(months: int, days: int, micros: int) -> None:
    """With months and days of their own, which no number of seconds has."""
    form = parse("iso_interval")
    seconds = f"{'-' if micros < 0 else ''}{abs(micros) // 10**6}.{abs(micros) % 10**6:06d}"
    text = form.decode(f"P0Y{months}M{days}DT0H0M{seconds}S")
    assert text == form.decode(form.encode(text))


@given(st.binary())
def test_bytes_come_back(data: bytes) -> None:
    """As Postgres writes them."""
    form = parse("base64")
    assert "\\x" + data.hex() == form.decode(form.encode("\\x" + data.hex()))


@pytest.mark.parametrize(("name", "plain", "written"), [
    ("decimal(12,2)", "12.34", "BNI="),
    ("decimal(12,2)", "-0.01", "/w=="),
    ("decimal(12,2)", "0.00", "AA=="),
    ("decimal(12,2)", "1.28", "AIA="),
    ("decimal(12,2)", "-1.28", "gA=="),
    ("epoch_days", "1969-12-31", -1),
    ("epoch_days", "2026-01-02", 20455),
    ("epoch_millis", "1969-12-31T23:59:59.999000Z", -1),
    ("epoch_micros", "1969-12-31T23:59:59.999999Z", -1),
    ("epoch_nanos", "2026-01-02T03:04:05.000006Z", 1767323045000006000),
    ("micros_of_day", "03:04:05.000006", 11045000006),
    ("micro_duration", "-00:00:00.000001", -1),
    ("micro_duration", "25:00:00", 90_000_000_000),
    ("iso_interval", "1 year 2 mons -3 days +04:05:06.78", "P1Y2M-3DT4H5M6.78S"),
    ("iso_interval", "00:00:00", "P0Y0M0DT0H0M0S"),
    ("base64", "\\xdead", "3q0="),
])  # fmt: skip
def test_a_value_stands_in_a_record_as_connectors_write_it(name: str, plain: str, written: Any) -> None:
    """Both ways."""
    form = parse(name)
    assert (plain, written) == (form.decode(str(written)), form.encode(plain))


def test_a_variable_decimal_brings_its_scale() -> None:
    """Debezium's form for a numeric column without one."""
    assert "1.234" == parse("decimal(20,2)").decode('{"scale":3,"value":"BNI="}')


def test_a_duration_counts_months_as_debezium_does() -> None:
    """A twelfth of 365.25 days."""
    expected = int(timedelta(days=365.25) / timedelta(microseconds=1))
    assert expected == parse("micro_duration").encode("1 year") == parse("micro_duration").encode("P1Y")


@pytest.mark.parametrize(("name", "value"), [
    ("decimal(4,2)", "123.45"),
    ("decimal(4,2)", "1.234"),
    ("decimal(4,2)", "NaN"),
    ("decimal(4,2)", True),
    ("decimal(4,2)", "twelve"),
    ("decimal(4,2)", "1e999999999"),
    ("epoch_days", "infinity"),
    ("epoch_days", "2026-01-02T03:04:05"),
    ("epoch_micros", "0044-03-15 00:00:00 BC"),
    ("epoch_micros", True),
    ("micro_duration", "soon"),
    ("base64", "\\xno"),
])  # fmt: skip
def test_what_a_form_cannot_hold_is_refused(name: str, value: Any) -> None:
    """Nothing is rounded or guessed."""
    with pytest.raises(ValueError):  # noqa: PT011
        parse(name).encode(value)


@pytest.mark.parametrize(("name", "text"), [
    ("decimal(4,2)", "AMnD//8="), ("decimal(4,2)", ""), ("decimal(4,2)", "12.34"), ("decimal(4,2)", "[]"),
    ("decimal(4,2)", '{"value": "BNI="}'), ("decimal(4,2)", '{"scale":999999999,"value":"BNI="}'),
    ("epoch_days", "99999999"), ("epoch_days", "1.5"), ("epoch_micros", "gibberish"), ("micros_of_day", "-1"),
    ("iso_interval", "P"), ("base64", "%"),
])  # fmt: skip
def test_what_is_not_in_a_form_cannot_be_read(name: str, text: str) -> None:
    """The audit calls it a schema violation."""
    with pytest.raises(ValueError):  # noqa: PT011
        parse(name).decode(text)


@pytest.mark.parametrize("name", ["decimal", "decimal(40,2)", "decimal(4,5)", "epoch_seconds", "connect", ""])
def test_a_name_that_is_none_says_which_there_are(name: str) -> None:
    """As `contract check` shows it."""
    with pytest.raises(ValueError, match="decimal"):
        parse(name)


def test_what_is_in_the_form_already_stays() -> None:
    """A contract that has encoded its values in SQL goes on to work."""
    assert "AAAAAAAABNI=" == parse("decimal(12,2)").encode("AAAAAAAABNI=")
    assert -1 == parse("epoch_days").encode(-1)


def test_epoch_is_utc() -> None:
    """An instant with a zone is the same instant."""
    at = datetime(2026, 1, 2, tzinfo=UTC)
    micros = int(at.timestamp() * 1_000_000)
    assert micros == parse("epoch_micros").encode("2026-01-02T02:00:00+02:00")
