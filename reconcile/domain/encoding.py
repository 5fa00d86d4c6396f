"""How connectors write what JSON has no type for: decimals as bytes, dates and instants as numbers, intervals.

`decode` gives the text that a database would read, `encode` builds what a record holds, of what a database gives as
JSON. Both raise ValueError for what has no such form; nothing is rounded.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, cast

Form = Literal[
    "decimal",
    "epoch_days",
    "epoch_millis",
    "epoch_micros",
    "epoch_nanos",
    "millis_of_day",
    "micros_of_day",
    "nanos_of_day",
    "micro_duration",
    "iso_interval",
    "base64",
]

MOST_DIGITS = 38
"""So many digits Spark's decimals hold."""

_MOST_BYTES = 16
PLAIN = (
    *("epoch_days", "epoch_millis", "epoch_micros", "epoch_nanos"),
    *("millis_of_day", "micros_of_day", "nanos_of_day", "micro_duration", "iso_interval", "base64"),
)
"""The forms that need no more than their names."""
HOW_TO_WRITE = f"write decimal(precision, scale), such as decimal(12,2), or one of {', '.join(PLAIN)}"

_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NANOS = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}
_WHOLE = re.compile(r"-?\d{1,19}", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_ISO = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?"
    r"(?:T(?=[-\d])(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d{1,6})?)S)?)?",
    re.ASCII,
)
_POSTGRES = re.compile(
    r"(?:([+-]?\d+) years?)? ?(?:([+-]?\d+) mons?)? ?(?:([+-]?\d+) days?)?"
    r" ?(?:([+-]?)(\d+):(\d\d):(\d\d(?:\.\d{1,6})?))?",
    re.ASCII,
)
_A_DAY = 86_400_000_000
_A_MONTH = 2_629_800_000_000
"""Microseconds of a month in a MicroDuration: a twelfth of 365.25 days."""


@dataclass(frozen=True)
class Encoding:
    """One form in which connectors write values."""

    form: Form
    precision: int = MOST_DIGITS
    scale: int = 0

    def decode(self, text: str) -> str:
        """Read what stands in a record; numbers and objects come as their JSON text."""
        try:
            return _DECODE[self.form](self, text)
        except (LookupError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(str(error)) from None

    def encode(self, value: Any) -> Any:
        """Build what a record holds of a value as a database gives it; what is in this form already stays."""
        if value is None:
            return None
        try:
            return _ENCODE[self.form](self, value)
        except (InvalidOperation, OverflowError) as error:
            raise ValueError(str(error)) from None

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.form == "decimal" else self.form


def parse(text: str) -> Encoding:
    """Parse the name of a form; ValueError says which there are."""
    if text in PLAIN:
        return Encoding(cast("Form", text))
    match = _DECIMAL.fullmatch(text)
    if match is None:
        raise ValueError(HOW_TO_WRITE)
    precision, scale = int(match[1]), int(match[2])
    if not 1 <= precision <= MOST_DIGITS or scale > precision:
        raise ValueError(f"a decimal has 1 to {MOST_DIGITS} digits, and no more of them behind the point than in all")
    return Encoding("decimal", precision, scale)


def _decode_decimal(self: Encoding, text: str) -> str:
    scale = self.scale
    if text.startswith("{"):  # Debezium's VariableScaleDecimal brings its own
        said = json.loads(text)
        text, scale = said["value"], said["scale"]
    data = _from_base64(text)
    if not 0 < len(data) <= _MOST_BYTES or abs(scale) > MOST_DIGITS:
        raise ValueError("no decimal")
    number = int.from_bytes(data, "big", signed=True)
    digits = str(abs(number))
    if len(digits) > self.precision:
        raise ValueError("too many digits")
    return format(Decimal((number < 0, tuple(map(int, digits)), -scale)), "f")


def _encode_decimal(self: Encoding, value: Any) -> str:
    if isinstance(value, (bool, float)) or not isinstance(value, (int, str, Decimal)):
        raise ValueError("no number")
    encoded = isinstance(value, str) and _is_base64(value)
    try:
        sign, digits, exponent = Decimal(value).as_tuple()
    except InvalidOperation:
        text = _text(value)
        self.decode(text)
        return text
    if encoded:
        raise ValueError("a text that is a number, and base64 of another one: let topic.value give a number")
    if not isinstance(exponent, int):
        raise ValueError("not finite")
    number = int("".join(map(str, digits)))
    shift = exponent + self.scale
    if shift < 0:
        number, rest = divmod(number, 10**-shift)
        if rest:
            raise ValueError("more digits behind the point")
    elif number:
        if shift > MOST_DIGITS:
            raise ValueError("too many digits")
        number *= 10**shift
    if len(str(number)) > self.precision:
        raise ValueError("too many digits")
    number = -number if sign else number
    # As Java's BigInteger: the fewest bytes that keep the sign.
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return base64.b64encode(number.to_bytes(length, "big", signed=True)).decode()


def _decode_days(_: Encoding, text: str) -> str:
    return (_EPOCH + timedelta(days=_whole(text))).date().isoformat()


def _encode_days(_: Encoding, value: Any) -> int:
    if _is_whole(value):
        return int(value)
    text = _text(value)
    if _DAY.fullmatch(text):
        return (date.fromisoformat(text) - _EPOCH.date()).days
    instant = _instant(text)
    if (instant - _EPOCH) % timedelta(days=1):
        raise ValueError("a time of day")
    return (instant - _EPOCH).days


def _decode_instant(self: Encoding, text: str) -> str:
    micros = _whole(text) * _unit(self) // 1000
    instant = (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None)
    return instant.isoformat(timespec="microseconds") + "Z"


def _encode_instant(self: Encoding, value: Any) -> int:
    if _is_whole(value):
        return int(value)
    micros = (_instant(_text(value)) - _EPOCH) // _MICROSECOND
    return _exact(micros * 1000, _unit(self))


def _decode_time(self: Encoding, text: str) -> str:
    micros = _whole(text) * _unit(self) // 1000
    if not 0 <= micros < _A_DAY:
        raise ValueError("no time of a day")
    return (_EPOCH + timedelta(microseconds=micros)).time().isoformat("microseconds")


def _encode_time(self: Encoding, value: Any) -> int:
    if _is_whole(value):
        return int(value)
    found = time.fromisoformat(_text(value))
    if found.tzinfo is not None:
        raise ValueError("a time with a zone")
    micros = ((found.hour * 60 + found.minute) * 60 + found.second) * 1_000_000 + found.microsecond
    return _exact(micros * 1000, _unit(self))


def _decode_duration(_: Encoding, text: str) -> str:
    return _postgres_interval(0, 0, _whole(text))


def _encode_duration(_: Encoding, value: Any) -> int:
    if _is_whole(value):
        return int(value)
    months, days, micros = _interval(_text(value))
    return months * _A_MONTH + days * _A_DAY + micros


def _decode_interval(_: Encoding, text: str) -> str:
    return _postgres_interval(*_interval(text))


def _encode_interval(_: Encoding, value: Any) -> str:
    """Write all parts, as Debezium does."""
    months, days, micros = _interval(_text(value))
    years, months = _parts(months, 12)
    minutes, rest = _parts(micros, 60_000_000)
    hours, minutes = _parts(minutes, 60)
    return f"P{years}Y{months}M{days}DT{hours}H{minutes}M{_seconds(rest)}S"


def _decode_bytes(_: Encoding, text: str) -> str:
    return "\\x" + _from_base64(text).hex()


def _encode_bytes(_: Encoding, value: Any) -> str:
    text = _text(value)
    if text.startswith("\\x"):
        return base64.b64encode(bytes.fromhex(text[2:])).decode()
    _from_base64(text)
    return text


def _interval(text: str) -> tuple[int, int, int]:
    """Read months, days and microseconds of an interval, in ISO's form or in Postgres' own."""
    match = _ISO.fullmatch(text)
    if match is not None and text != "P":
        years, months, weeks, days, hours, minutes = (int(each or 0) for each in match.groups()[:6])
        micros = (hours * 60 + minutes) * 60_000_000 + _micros(match[7] or "0")
        return years * 12 + months, weeks * 7 + days, micros
    match = _POSTGRES.fullmatch(text)
    if match is None or not text.strip():
        raise ValueError("no interval")
    years, months, days = (int(each or 0) for each in match.groups()[:3])
    sign = -1 if match[4] == "-" else 1
    micros = (int(match[5] or 0) * 60 + int(match[6] or 0)) * 60_000_000 + _micros(match[7] or "0")
    return years * 12 + months, days, sign * micros


def _postgres_interval(months: int, days: int, micros: int) -> str:
    """Write an interval as Postgres does."""
    years, months = _parts(months, 12)
    parts: list[str] = []
    negative = False
    for number, name in ((years, "year"), (months, "mon"), (days, "day")):
        if number:
            sign = "+" if negative and number > 0 else ""
            parts.append(f"{sign}{number} {name}{'' if number == 1 else 's'}")
            negative = number < 0
    if micros or not parts:
        sign = "-" if micros < 0 else "+" if negative else ""
        minutes, rest = divmod(abs(micros), 60_000_000)
        seconds, fraction = divmod(rest, 1_000_000)
        behind = f".{fraction:06d}".rstrip("0") if fraction else ""
        parts.append(f"{sign}{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}{behind}")
    return " ".join(parts)


def _parts(number: int, size: int) -> tuple[int, int]:
    """Divide towards zero, so that both parts have the number's sign."""
    whole, rest = divmod(abs(number), size)
    return (-whole, -rest) if number < 0 else (whole, rest)


def _micros(seconds: str) -> int:
    return int(Decimal(seconds).scaleb(6))


def _seconds(micros: int) -> str:
    whole, rest = divmod(abs(micros), 1_000_000)
    return f"{'-' if micros < 0 else ''}{whole}" + (f".{rest:06d}".rstrip("0") if rest else "")


def _unit(encoding: Encoding) -> int:
    """Look up the nanoseconds of what a form counts in."""
    return next(nanos for name, nanos in _NANOS.items() if name in encoding.form)


def _exact(nanos: int, unit: int) -> int:
    found, rest = divmod(nanos, unit)
    if rest:
        raise ValueError("more digits behind the second")
    return found


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)


def _whole(text: str) -> int:
    if _WHOLE.fullmatch(text) is None:
        raise ValueError("no whole number")
    return int(text)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")
    return value


def _from_base64(text: Any) -> bytes:
    return base64.b64decode(_text(text), validate=True)


def _is_base64(text: str) -> bool:
    try:
        return bool(_from_base64(text))
    except ValueError:
        return False


_INSTANTS = ("epoch_millis", "epoch_micros", "epoch_nanos")
_TIMES = ("millis_of_day", "micros_of_day", "nanos_of_day")
_DECODE: Mapping[str, Callable[[Encoding, str], str]] = {
    "decimal": _decode_decimal,
    "epoch_days": _decode_days,
    **dict.fromkeys(_INSTANTS, _decode_instant),
    **dict.fromkeys(_TIMES, _decode_time),
    "micro_duration": _decode_duration,
    "iso_interval": _decode_interval,
    "base64": _decode_bytes,
}
_ENCODE: Mapping[str, Callable[[Encoding, Any], Any]] = {
    "decimal": _encode_decimal,
    "epoch_days": _encode_days,
    **dict.fromkeys(_INSTANTS, _encode_instant),
    **dict.fromkeys(_TIMES, _encode_time),
    "micro_duration": _encode_duration,
    "iso_interval": _encode_interval,
    "base64": _encode_bytes,
}
