"""The pictures of figures: drift over time, ages, fields, causes by hop and by partition."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log10

from reconcile.domain.finding import Hop, consumer_of
from reconcile.report.model import Count, FieldCount, Flow, Heat, Measured, MeasuredPoint, Trend
from reconcile.report.picture import Box, Dot, Label, Line, Path, Picture, Shape

HOPS = {Hop.SOURCE_TO_LOG: "source → log", Hop.LOG_TO_CONSUMER: "log → consumer", Hop.CONSUMER: "in the consumer"}
NO_HOP = "unknown"

_WIDTH = 420.0
_STEPS = 6
_FIELDS = 10
_LETTERS = 18
_APART = (6, 3, 5, 2, 4, 1)
"""The steps of heat in an order in which neighbours are told apart."""
_FLOW_LEFT, _FLOW_RIGHT, _FLOW_TOP = 126.0, 268.0, 8.0
_FLOW_HEIGHT, _THINNEST, _FLOW_ROW, _FLOW_GAP = 130.0, 2.0, 21.0, 14.0


def trend_picture(trend: Trend) -> Picture:
    """Draw how many aggregates of a link had drifted in each run."""
    points = trend.points
    height, left, right, top, bottom = 150.0, 44.0, _WIDTH - 14, 14.0, 118.0
    most = _round_up(max((each.drifted for each in points), default=0))
    shapes: list[Shape] = []
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (bottom - top)
        shapes.append(Line(left, y, right, y, "grid"))
        if share != 0.5 or most % 2 == 0:
            shapes.append(Label(left - 7, y + 4, f"{int(most * share):,}", "label number", "end"))
    step = (right - left) / max(len(points) - 1, 1)
    places = [
        (right if len(points) == 1 else left + number * step, bottom - each.drifted / most * (bottom - top))
        for number, each in enumerate(points)
    ]
    if len(places) > 1:
        way = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        shapes.append(Path(f"{way}L{places[-1][0]:.1f} {bottom:g}L{places[0][0]:.1f} {bottom:g}Z", "area"))
        shapes.append(Path(way, "curve"))
    for (x, y), each in zip(places, points, strict=True):
        tip = f"{each.at:%Y-%m-%d %H:%M} {each.run_id}: {each.drifted:,} of {each.compared:,}"
        shapes.append(Dot(x, y, 3.5, "point" if each.complete else "point hollow", tip))
    if points:
        apart = points[0].at.date() != points[-1].at.date()
        first, last = (f"{each.at:%Y-%m-%d}" if apart else f"{each.at:%H:%M}" for each in (points[0], points[-1]))
        shapes.append(Label(left, bottom + 20, first if len(points) > 1 else "", "label"))
        shapes.append(Label(right, bottom + 20, last, "label", "end"))
    about = ", ".join(f"{each.at:%Y-%m-%d %H:%M} {each.drifted:,}" for each in points[-12:])
    return Picture(_WIDTH, height, f"Drift over time, {trend.link}", about, tuple(shapes))


def measure_picture(measured: Measured) -> Picture:
    """Draw one measure of a distribution over the nights: a line, a median within its spread, or shares by night."""
    points = measured.points
    left, right, top, bottom = 6.0, 214.0, 8.0, 58.0
    step = (right - left) / max(len(points) - 1, 1)
    across = [right if len(points) == 1 else left + number * step for number in range(len(points))]
    if any(each.shares is not None for each in points):
        shapes = _shares_by_night(points, right - left)
    else:
        high = max((each.spread or (0, each.level))[1] for each in points)
        low = min([0.0, *((each.spread or (each.level, 0))[0] for each in points)])
        shapes = [Line(left, bottom, right, bottom, "grid")]

        def down(level: float) -> float:
            return bottom - (level - low) / ((high - low) or 1) * (bottom - top)

        spread = [(x, each.spread) for x, each in zip(across, points, strict=True) if each.spread is not None]
        if len(spread) > 1:
            over = [f"{x:.1f} {down(each[1]):.1f}" for x, each in spread]
            under = [f"{x:.1f} {down(each[0]):.1f}" for x, each in reversed(spread)]
            shapes.append(Path(f"M{'L'.join([*over, *under])}Z", "area"))
        if len(points) > 1:
            line = "L".join(f"{x:.1f} {down(each.level):.1f}" for x, each in zip(across, points, strict=True))
            shapes.append(Path(f"M{line}", "curve"))
        for x, each in zip(across, points, strict=True):
            tip = f"{each.at:%Y-%m-%d %H:%M} {each.run_id}: {_level(measured, each)}"
            shapes.append(Dot(x, down(each.level), 3 if each is points[-1] else 2, "point", tip))
    about = ", ".join(f"{each.at:%Y-%m-%d} {_level(measured, each)}" for each in points[-7:])
    return Picture(220.0, 66.0, f"{measured.field or 'rows'}, {measured.measure}", about, tuple(shapes))


def _shares_by_night(points: Sequence[MeasuredPoint], width: float) -> list[Shape]:
    """Draw a column for each night, the values in the order of their shares in the last night; the rest is empty."""
    every = {value: 0.0 for each in reversed(points) for value in each.shares or {}}
    ordered = list(every)[: len(_APART)]
    column = min(width / len(points), 26.0)
    shapes: list[Shape] = []
    for number, each in enumerate(points):
        x, y = 6.0 + width - (len(points) - number) * column, 58.0
        shapes.append(Box(x, 8.0, column - 2, 50.0, "track"))
        for place, value in enumerate(ordered):
            share = (each.shares or {}).get(value, 0.0)
            if share:
                y -= share * 50
                tip = f"{each.at:%Y-%m-%d %H:%M} {value}: {share:.1%}"
                shapes.append(Box(x, y, column - 2, share * 50, f"heat heat-{_APART[place]}", tip, 0))
    return shapes


def _level(measured: Measured, point: MeasuredPoint) -> str:
    if point.shares is not None:
        return " ".join(f"{value} {share:.0%}" for value, share in list(point.shares.items())[:3])
    return f"{point.level:.2%}" if measured.measure == "missing" else f"{point.level:,.6g}"


def bars_picture(title: str, counts: Sequence[Count]) -> Picture:
    """Draw how many there are of each, one bar under the other."""
    most = max((each.number for each in counts), default=0) or 1
    left, right, row = 128.0, _WIDTH - 52, 25.0
    shapes: list[Shape] = []
    for number, each in enumerate(counts):
        y = 6 + number * row
        shapes.append(Label(left - 9, y + 13, _short(each.name), "label", "end"))
        shapes.append(Box(left, y + 1, right - left, 16, "track"))
        if each.number:
            shapes.append(Box(left, y + 1, max(each.number / most * (right - left), 2), 16, "bar"))
        shapes.append(Label(right + 9, y + 13, f"{each.number:,}", "label number" if each.number else "label"))
    about = ", ".join(f"{each.name} {each.number:,}" for each in counts)
    return Picture(_WIDTH, 10 + len(counts) * row, title, about, tuple(shapes))


def fields_picture(fields: Sequence[FieldCount]) -> Picture:
    """Draw which fields differ most."""
    several = len({each.link for each in fields}) > 1
    named = [
        Count(f"{consumer_of(each.link)}.{each.field}" if several else each.field, each.number)
        for each in fields[:_FIELDS]
    ]
    return bars_picture("Fields that differ", named)


def heat_picture(heat: Heat) -> Picture:
    """Draw where in the topic the findings of each cause lie."""
    left, top, row = 128.0, 26.0, 23.0
    cell = (_WIDTH - left - 4) / max(len(heat.columns), 1)
    most = max((number for each in heat.rows for number in each.numbers), default=0) or 1
    every = ceil(max(len(name) for name in heat.columns) * 7.5 / cell) if heat.columns else 1
    shapes: list[Shape] = [Label(left - 9, 16, "partition", "label", "end")]
    shapes += [
        Label(left + (column + 0.5) * cell, 16, name, "label", "middle")
        for column, name in enumerate(heat.columns)
        if column % every == 0
    ]
    for number, each in enumerate(heat.rows):
        y = top + number * row
        shapes.append(Label(left - 9, y + 15, each.cause.replace("_", " "), "label", "end"))
        for column, count in enumerate(each.numbers):
            x = left + column * cell
            step = ceil(count / most * _STEPS)
            tip = f"{each.cause}, partition {heat.columns[column]}: {count:,}" if count else ""
            shapes.append(Box(x + 1, y + 1, cell - 2, row - 2, f"heat heat-{step}", tip))
            if count and cell >= 8 + 7 * len(str(count)):
                kind = "label on-heat" if step > _STEPS - 2 else "label number"
                shapes.append(Label(x + cell / 2, y + 15, str(count), kind, "middle"))
    about = ", ".join(f"{each.cause} {sum(each.numbers):,}" for each in heat.rows)
    return Picture(_WIDTH, top + len(heat.rows) * row + 4, "Causes by partition", about, tuple(shapes))


def flow_picture(flows: Sequence[Flow]) -> Picture:
    """Draw which causes broke which hop."""
    total = sum(each.number for each in flows)
    shapes: list[Shape] = []
    right = left = _FLOW_TOP
    hops = list(dict.fromkeys(each.hop for each in flows))
    for hop in hops:
        of_hop = [each for each in flows if each.hop == hop]
        widths = [max(each.number / total * _FLOW_HEIGHT, _THINNEST) for each in of_hop]
        height = sum(max(width, _FLOW_ROW) for width in widths)
        left += (height - sum(widths)) / 2
        number = sum(each.number for each in of_hop)
        kind, name = hop_kind(hop), hop_name(hop)
        shapes.append(Box(_FLOW_LEFT, left, 7, sum(widths), f"node {kind}", f"{name}: {number:,}"))
        middle = left + sum(widths) / 2
        shapes += [
            Label(_FLOW_LEFT - 9, middle - 1, name, "label strong", "end"),
            Label(_FLOW_LEFT - 9, middle + 13, f"{number:,}", "label number", "end"),
        ]
        for each, width in zip(of_hop, widths, strict=True):
            row = max(width, _FLOW_ROW)
            at = right + (row - width) / 2
            shapes.append(Path(_band(left, at, width), f"band {kind}", f"{name}, {each.cause}: {each.number:,}"))
            shapes.append(Box(_FLOW_RIGHT, at, 4, width, f"node {kind}"))
            shapes.append(
                Label(_FLOW_RIGHT + 11, right + row / 2 + 4, f"{each.cause.replace('_', ' ')}  {each.number:,}")
            )
            left += width
            right += row
        right += _FLOW_GAP
        left = right
    about = "; ".join(f"{hop_name(each.hop)}, {each.cause} {each.number:,}" for each in flows)
    return Picture(_WIDTH, max(right - _FLOW_GAP, _FLOW_TOP) + 6, "Causes by hop", about, tuple(shapes))


def hop_name(hop: Hop | None) -> str:
    """Name a hop in words."""
    return NO_HOP if hop is None else HOPS[hop]


def hop_kind(hop: Hop | None) -> str:
    """Name the kind of shapes that belong to a hop."""
    return "hop-none" if hop is None else f"hop-{hop.replace('_', '-')}"


def _short(name: str) -> str:
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"


def _round_up(number: int) -> int:
    """Choose a number for the top of an axis."""
    if number < 4:
        return max(number, 2)
    size = int(10 ** int(log10(number)))
    return next(share * size for share in (1, 2, 4, 6, 8, 10) if share * size >= number)


def _band(left: float, right: float, width: float) -> str:
    start, end = _FLOW_LEFT + 7, _FLOW_RIGHT
    middle = (start + end) / 2
    there = f"M{start:g} {left:.1f}C{middle:g} {left:.1f} {middle:g} {right:.1f} {end:g} {right:.1f}"
    left, right = left + width, right + width
    return f"{there}V{right:.1f}C{middle:g} {right:.1f} {middle:g} {left:.1f} {start:g} {left:.1f}Z"
