"""How the values of a table are distributed, and how far that has moved from what is usual: drift between nights.

The figures are of a sample of rows. None of them is of one row: values are kept that several rows share, and quantiles
of many rows.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from reconcile.domain.canonical import Kind

SAMPLE = 10_000
"""About so many rows of a table are looked at."""
FEWEST = 100
"""Of fewer rows nothing is said but their number."""
RUNS = 7
"""What is usual is the median of so many runs: a week of nights."""

Side = Literal["source", "copy"]
SIDES: tuple[Side, Side] = ("source", "copy")
Measure = Literal["rows", "missing", "values"]

_STEPS = 50
_MOST_VALUES, _LEAST_SHARE, _LEAST_ROWS, _LONGEST = 20, 0.01, 5, 40
_KNOWN = 0.5
_NUMBERS = (Kind.INTEGER, Kind.NUMERIC, Kind.FLOAT)
_SHARED = (Kind.TEXT, Kind.BOOLEAN, Kind.OTHER)


@dataclass(frozen=True)
class FieldDistribution:
    """How the values of a field are distributed."""

    name: str
    missing: float
    """The share of rows without a value."""
    quantiles: tuple[float, ...] | None = None
    """Of numbers: the values below which 2 %, 4 % and so on to 98 % lie."""
    shares: Mapping[str, float] | None = None
    """Of values that many rows share: the share of each, the most frequent first."""


@dataclass(frozen=True)
class Distribution:
    """How the values of one side of a link are distributed."""

    rows: int
    sampled: int
    """How many of them were looked at."""
    fields: tuple[FieldDistribution, ...]

    def field(self, name: str) -> FieldDistribution | None:
        """Choose a field; None where there is no such field."""
        return next((each for each in self.fields if each.name == name), None)


@dataclass(frozen=True)
class Limits:
    """How far a distribution may move before that is told."""

    rows: float = 0.2
    """By which part the number of rows."""
    missing: float = 0.01
    """By how much the share of rows without a value."""
    values: float = 0.1
    """Which share of rows may have moved to other values."""


@dataclass(frozen=True)
class Change:
    """How far one measure has moved from what is usual."""

    field: str | None
    """None for the number of rows."""
    measure: Measure
    side: Side
    """The side that moved farther."""
    moved: float
    limit: float
    said: str

    @property
    def drifted(self) -> bool:
        """Whether it has moved too far."""
        return self.moved > self.limit


def distribution(
    rows: int,
    sample: Sequence[Sequence[str | None]],
    fields: Sequence[tuple[str, Kind, bool]],
) -> Distribution:
    """Compute the distribution of a side from a sample of its rows, which have a canonical text for each field.

    Of each field its name, what it is compared as, and whether it is sensitive: then its missing values are counted,
    and nothing else.
    """
    found = []
    for number, (name, kind, sensitive) in enumerate(fields):
        if len(sample) < FEWEST:
            break
        texts = [text for row in sample if (text := row[number]) is not None]
        missing = (len(sample) - len(texts)) / len(sample)
        open_ = not sensitive and len(texts) >= FEWEST
        quantiles = _quantiles(texts) if open_ and kind in _NUMBERS else None
        found.append(FieldDistribution(name, missing, quantiles, _shares(texts) if open_ and kind in _SHARED else None))
    return Distribution(rows, len(sample), tuple(found))


def usual(earlier: Sequence[Distribution]) -> Distribution:
    """Compute what is usual: the median of each figure over some runs, of which there is at least one."""
    names = dict.fromkeys(field.name for each in earlier for field in each.fields)
    fields = []
    for name in names:
        of_field = [found for each in earlier if (found := each.field(name)) is not None]
        numbers = [each.quantiles for each in of_field if each.quantiles is not None]
        shares = [each.shares for each in of_field if each.shares is not None]
        values = dict.fromkeys(value for each in shares for value in each)
        fields.append(
            FieldDistribution(
                name,
                median(each.missing for each in of_field),
                tuple(map(median, zip(*numbers, strict=True))) if numbers else None,
                {value: median(each.get(value, 0.0) for each in shares) for value in values} if shares else None,
            )
        )
    counted = [each.rows for each in earlier]
    return Distribution(round(median(counted)), min(each.sampled for each in earlier), tuple(fields))


def changes(
    now: Mapping[Side, Distribution], before: Mapping[Side, Distribution], limits: Limits
) -> tuple[Change, ...]:
    """Compute how far each measure has moved from what is usual: of both sides the one that moved farther."""
    found: dict[tuple[str | None, Measure], list[Change]] = {}
    for side in SIDES:
        if side in now and side in before:
            for each in _of_side(side, now[side], before[side], limits):
                found.setdefault((each.field, each.measure), []).append(each)
    return tuple(max(sides, key=lambda each: each.moved - each.limit) for sides in found.values())


def shift(quantiles: Sequence[float], others: Sequence[float]) -> float:
    """Compute the largest shift of the share below any number: 0 where two distributions are one, up to 1."""
    return max(abs(bisect_right(quantiles, at) - bisect_right(others, at)) for at in (*quantiles, *others)) / _STEPS


def moved_share(shares: Mapping[str, float], others: Mapping[str, float]) -> float:
    """Compute which share of rows at least must have another value for the one to be the other."""
    values = {*shares, *others}
    apart = [shares.get(each, 0.0) - others.get(each, 0.0) for each in values]
    return (sum(map(abs, apart)) + abs(sum(apart))) / 2


def _of_side(side: Side, now: Distribution, before: Distribution, limits: Limits) -> Iterable[Change]:
    rows = abs(now.rows - before.rows) / max(before.rows, 1)
    said = f"{now.rows:,} rows in the {side}, usually {before.rows:,}"
    yield Change(None, "rows", side, rows, max(limits.rows, _LEAST_ROWS / max(before.rows, 1)), said)
    fewest = min(now.sampled, before.sampled)
    if fewest < FEWEST:
        return
    for field in now.fields:
        if (earlier := before.field(field.name)) is None:
            continue
        said = f"{field.name}: {_percent(field.missing)} missing in the {side}, usually {_percent(earlier.missing)}"
        limit = max(limits.missing, _LEAST_ROWS / fewest) + _doubt(earlier.missing, now, before)
        yield Change(field.name, "missing", side, abs(field.missing - earlier.missing), limit, said)
        if (moved := _moved(field, earlier)) is not None:
            said = f"{field.name}: {_values(field, earlier, moved)} in the {side}"
            yield Change(field.name, "values", side, moved, max(limits.values, _LEAST_ROWS / fewest), said)


def _moved(now: FieldDistribution, before: FieldDistribution) -> float | None:
    if now.quantiles is not None and before.quantiles is not None:
        return shift(now.quantiles, before.quantiles)
    if now.shares is not None and before.shares is not None:
        return moved_share(now.shares, before.shares)
    return None


def _doubt(share: float, now: Distribution, before: Distribution) -> float:
    """Compute how far a share may lie apart in two samples by chance; nothing where all rows were looked at."""
    if now.sampled >= now.rows and before.sampled >= before.rows:
        return 0.0
    return 3 * math.sqrt(2 * share * (1 - share) / min(now.sampled, before.sampled))


def _values(now: FieldDistribution, before: FieldDistribution, moved: float) -> str:
    if now.quantiles is not None and before.quantiles is not None:
        middle, usually = (each[len(each) // 2] for each in (now.quantiles, before.quantiles))
        return f"{_percent(moved)} of the numbers have moved, the median is {middle:,.6g}, usually {usually:,.6g},"
    ours, theirs = now.shares or {}, before.shares or {}
    value = max({*ours, *theirs}, key=lambda each: (abs(ours.get(each, 0.0) - theirs.get(each, 0.0)), each))
    share, usually = ours.get(value, 0.0), theirs.get(value, 0.0)
    return f"{_percent(moved)} of rows have moved, most at '{value}': {_percent(share)}, usually {_percent(usually)},"


def _quantiles(texts: Sequence[str]) -> tuple[float, ...] | None:
    numbers = sorted(number for each in texts if math.isfinite(number := _number(each)))
    if len(numbers) < FEWEST:
        return None
    return tuple(numbers[len(numbers) * step // _STEPS] for step in range(1, _STEPS))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _shares(texts: Sequence[str]) -> dict[str, float] | None:
    """Compute the shares of values that many rows share; None where most rows have one of their own."""
    least = max(_LEAST_ROWS, _LEAST_SHARE * len(texts))
    frequent = [(value, rows) for value, rows in Counter(texts).most_common(_MOST_VALUES) if rows >= least]
    found = {value: rows / len(texts) for value, rows in frequent if len(value) <= _LONGEST}
    return found if sum(found.values()) >= _KNOWN else None


def _percent(share: float) -> str:
    return f"{share * 100:.3g}%"
