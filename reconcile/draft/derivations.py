"""The few ways in which a copy's value may follow from the source's: as SQL, as an event's expression, and in Python.

What is written into a draft is tested here on samples, without Spark or a database; the closed list keeps the three in
step.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Literal

from reconcile.domain import encoding
from reconcile.domain.canonical import Kind, json_text
from reconcile.draft.samples import Row

Form = Literal["same", "trim", "lower", "upper", "times", "over", "joined", "encoded"]
UNFIT = object()
"""In place of a value that its kind does not hold: it equals nothing."""
NUMBERS = (Kind.INTEGER, Kind.NUMERIC, Kind.FLOAT)
COMPARED = frozenset(Kind) - {Kind.BYTEA, Kind.OTHER, Kind.ARRAY}
"""The kinds whose values are derived; of the others only those of equal type are compared."""

_FACTORS = (100, 1000)
_SEPARATORS = frozenset(" ,;:.-_/|")
_LONGEST_SEPARATOR = 3
_MOST_JOINED = 3
_ENCODINGS: Mapping[Kind, tuple[str, ...]] = {
    Kind.DATE: ("epoch_days",),
    Kind.TIMESTAMP: ("epoch_millis", "epoch_micros", "epoch_nanos"),
    Kind.TIME: ("millis_of_day", "micros_of_day", "nanos_of_day"),
}
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d(?=[ T]|$)", re.ASCII)
_TRUE, _FALSE = ("true", "t", "1", "yes", "on"), ("false", "f", "0", "no", "off")


@dataclass(frozen=True)
class Derivation:
    """One way to derive a value from columns of a row, or from paths of an event."""

    form: Form
    inputs: tuple[str, ...]
    factor: int = 1
    separators: tuple[str, ...] = ()
    """What stands between the parts of `joined`."""
    encoding: str = ""

    def text(self, row: Row) -> str | None:
        """Compute the value as text; raise ValueError where it has none."""
        values = [row.get(each) for each in self.inputs]
        if None in values:
            return None
        first, *others = (str(each) for each in values)
        match self.form:
            case "trim":
                return first.strip(" ")
            case "lower":
                return first.lower()
            case "upper":
                return first.upper()
            case "times":
                return format(_decimal(first) * self.factor, "f")
            case "over":
                return format(_decimal(first) / self.factor, "f")
            case "joined":
                return first + "".join(map("".join, zip(self.separators, others, strict=True)))
            case "encoded":
                return encoding.parse(self.encoding).decode(first)
            case _:
                return first

    def sql(self, names: Mapping[str, str], *, maria: bool) -> str:
        """Build its SQL; `names` has how its store's SQL names each column."""
        first, *others = (names[each] for each in self.inputs)
        match self.form:
            case "trim" | "lower" | "upper":
                return f"{self.form}({first})"
            case "times":
                return f"{first} * {self.factor}"
            case "over":
                return f"{first} / {self.factor}.0"
            case "joined":
                parts = [first, *(part for pair in zip(self._literals, others, strict=True) for part in pair if part)]
                return f"concat({', '.join(parts)})" if maria else " || ".join(parts)
            case _:
                return first

    def event(self) -> str:
        """Build the event's expression; of what is encoded the path alone."""
        first, *others = self.inputs
        number = f"cast({first} as decimal(28,6))"
        match self.form:
            case "trim" | "lower" | "upper":
                return f"{self.form}({first})"
            case "times":
                return f"{number} * {self.factor}"
            case "over":
                return f"{number} / {self.factor}"
            case "joined":
                return " || ".join(
                    [first, *(part for pair in zip(self._literals, others, strict=True) for part in pair if part)]
                )
            case _:
                return first

    @property
    def _literals(self) -> list[str]:
        return [f"'{each}'" if each else "" for each in self.separators]


def simple(name: str, kind: Kind) -> Iterator[Derivation]:
    """List the derivations from one column that can give a value of a kind, the simplest first."""
    yield Derivation("same", (name,))
    if kind is Kind.TEXT:
        yield from (Derivation(form, (name,)) for form in ("trim", "lower", "upper"))
    if kind in NUMBERS:
        for factor in _FACTORS:
            yield from (Derivation(form, (name,), factor) for form in ("times", "over"))


def encoded(path: str, kind: Kind, scale: int) -> Iterator[Derivation]:
    """List the forms in which connectors write a value of a kind."""
    names = (f"decimal(38,{scale})",) if kind is Kind.NUMERIC else _ENCODINGS.get(kind, ())
    yield from (Derivation("encoded", (path,), encoding=each) for each in names)


def joined(value: str | None, row: Row, names: Sequence[str]) -> Iterator[Derivation]:
    """List the ways in which a text is made of two or three of a row's values, with something short between them."""
    parts = {name: text for name in names if (text := row.get(name))}
    if value:
        for inputs, separators in _split(value, parts, _MOST_JOINED):
            if len(inputs) > 1:
                yield Derivation("joined", inputs, separators=separators)


def _split(value: str, parts: Mapping[str, str], most: int) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    for name, text in parts.items():
        if not value.startswith(text):
            continue
        rest = value[len(text) :]
        if not rest:
            yield (name,), ()
            continue
        if most == 1:
            continue
        for length in range(_LONGEST_SEPARATOR + 1):
            separator = rest[:length]
            if len(separator) < length or not set(separator) <= _SEPARATORS:
                break
            others = {each: part for each, part in parts.items() if each != name}
            for inputs, separators in _split(rest[length:], others, most - 1):
                yield (name, *inputs), (separator, *separators)


def comparable(text: str | None, kind: Kind) -> object:
    """Build what is compared of a text under a kind: numbers by value, instants in UTC; UNFIT where it is none."""
    if text is None:
        return None
    try:
        return _comparable(text, kind)
    except (ValueError, ArithmeticError, struct.error):
        return UNFIT


def _comparable(text: str, kind: Kind) -> object:
    match kind:
        case Kind.BOOLEAN:
            plain = text.strip().lower()
            return plain in _TRUE if plain in (*_TRUE, *_FALSE) else UNFIT
        case Kind.INTEGER | Kind.NUMERIC:
            return _decimal(text)
        case Kind.FLOAT:
            # As a `real` holds it: one of the sides may be one.
            return struct.pack("<f", _decimal(text))
        case Kind.UUID:
            return text.lower()
        case Kind.TIMESTAMP:
            if not _DAY.match(text):
                return UNFIT
            at = datetime.fromisoformat(text)
            return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        case Kind.DATE:
            return date.fromisoformat(day[0]) if (day := _DAY.match(text)) else UNFIT
        case Kind.JSON:
            return UNFIT if (found := json_text(text)) is None else found
        case _:
            return text


def _decimal(text: str) -> Decimal:
    if _NUMBER.fullmatch(text.strip()) is None:
        raise ValueError("no number")
    return Decimal(text.strip())
