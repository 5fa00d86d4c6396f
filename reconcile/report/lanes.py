"""The picture of one aggregate's story: a lane for each place that an event passes, time to the right."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reconcile.report.model import NOT_APPLIED, Moment, ShownRow, Story
from reconcile.report.picture import Box, Dot, Label, Line, Path, Picture, Shape

MOST = 10
"""So many columns at most, the newest: as many as a desk shows without scrolling."""

_LEFT, _COLUMN, _NOW, _ROW, _TOP = 128.0, 82.0, 118.0, 38.0, 40.0
_PARKED = {"retry": "retry", "stash": "stash", "dead_letter": "dead letters"}


@dataclass(frozen=True)
class _Column:
    at: datetime | None
    moments: tuple[Moment, ...]


def lanes_picture(story: Story, *, drifts: bool) -> Picture:
    """Draw a story: the source's versions, its records, what the copy took, and what was put aside.

    Whether the copy `drifts` is what was found: hidden values all look alike.
    """
    columns = _columns(story)
    cut, columns = max(len(columns) - MOST, 0), columns[-MOST:]
    moments = [moment for column in columns for moment in column.moments]
    lanes = _lanes(moments)
    rows = {lane: _TOP + (number + 0.5) * _ROW for number, lane in enumerate(lanes)}
    width = _LEFT + len(columns) * _COLUMN + _NOW
    shapes: list[Shape] = []
    for number, (lane, y) in enumerate(rows.items()):
        shapes.append(Box(0, y - _ROW / 2, width, _ROW, "lane even" if number % 2 == 0 else "lane", round=0))
        shapes.append(Label(8, y + 4, lane, "label strong"))
    placed: dict[str, tuple[float, float]] = {}
    lines: list[Shape] = []
    dots: list[Shape] = []
    for number, column in enumerate(columns):
        x = _LEFT + (number + 0.5) * _COLUMN
        dots += _time(x, column.at, columns[number - 1].at if number else None)
        for moment in column.moments:
            y = rows[_lane(moment)]
            dots += _marks(moment, x, y, rows)
            if moment.lane == "log":
                placed[moment.place] = (x, y)
                if moment.version is not None:
                    lines.append(Line(x, rows["source"], x, y, "way"))
            elif (origin := placed.get(_origin(moment))) is not None:
                taken = moment.lane == "ledger" and NOT_APPLIED not in moment.marks
                lines.append(Path(_curve(origin, (x, y)), "way taken" if taken else "way aside"))
    x = width - _NOW / 2
    now: list[Shape] = [
        Line(width - _NOW, 8, width - _NOW, _TOP + len(lanes) * _ROW, "grid"),
        Label(x, 20, "now", "label strong", "middle"),
    ]
    # Where the picture is scrolled to what is now, the names on its left are out of sight.
    others = {lane: y for lane, y in rows.items() if lane not in ("source", "copy")}
    now += [Label(x, y + 4, lane.removeprefix("log, "), "label tiny", "middle") for lane, y in others.items()]
    now += _side(story.source, x, rows["source"], "source", agrees=True)
    now += _side(story.copy, x, rows["copy"], "copy", agrees=not drifts)
    older = cut + story.left_out
    if older:
        now.append(Label(8, 20, f"{older:,} older not shown"))
    about = f"{len(moments)} moments, which the table below lists" if moments else "no event of it is known"
    title = f"The way of {story.id or 'a row without an id'} through {story.link}"
    height = _TOP + len(lanes) * _ROW + 2
    return Picture(width, height, title, about, (*shapes, *lines, *now, *dots), natural=True)


def _columns(story: Story) -> list[_Column]:
    """Put moments of one instant into one column, if they stand in different lanes."""
    found: list[_Column] = []
    for moment in story.moments:
        last = found[-1] if found else None
        if last is not None and last.at == moment.at and _lane(moment) not in map(_lane, last.moments):
            found[-1] = _Column(last.at, (*last.moments, moment))
        else:
            found.append(_Column(moment.at, (moment,)))
    return found


def _lanes(moments: list[Moment]) -> list[str]:
    logs = sorted({moment.place.partition("@")[0] for moment in moments if moment.lane == "log"}, key=int)
    parked = [name for lane, name in _PARKED.items() if any(moment.lane == lane for moment in moments)]
    return ["source", *(f"log, partition {each}" for each in logs), "copy", *parked]


def _lane(moment: Moment) -> str:
    if moment.lane == "log":
        return f"log, partition {moment.place.partition('@')[0]}"
    return "copy" if moment.lane == "ledger" else _PARKED[moment.lane]


def _origin(moment: Moment) -> str:
    """Name the place of the record that a moment tells of."""
    if moment.lane == "ledger":
        return moment.place
    return moment.origin or ""


def _marks(moment: Moment, x: float, y: float, rows: dict[str, float]) -> list[Shape]:
    tip = " · ".join((moment.what, *moment.marks))
    found: list[Shape] = []
    if moment.lane == "log":
        wrong = "cannot be read" in moment.what
        found.append(Dot(x, y, 6, "dot bad" if wrong else "dot log", tip))
        found.append(Label(x + 10, y + 4, f"@{moment.place.partition('@')[2]}", "label tiny"))
        if moment.version is not None:
            found.append(Dot(x, rows["source"], 5, "dot source", f"version {moment.version}"))
            found.append(Label(x + 10, rows["source"] + 4, f"v{moment.version}", "label tiny"))
    elif moment.lane == "ledger":
        taken = NOT_APPLIED not in moment.marks
        found.append(Dot(x, y - 5, 6, "dot copy" if taken else "dot gone", tip))
        place = f" @{moment.place.partition('@')[2]}" if moment.place else ""
        found.append(Label(x, y + 13, f"{'took' if taken else 'left out'}{place}", "label tiny", "middle"))
    else:
        lies = "still there" in moment.marks
        found.append(Box(x - 6, y - 11, 12, 12, "dot aside lies" if lies else "dot aside", tip))
        found.append(Label(x, y + 13, "lies there" if lies else "was there", "label tiny", "middle"))
    return found


def _side(shown: ShownRow | None, x: float, y: float, name: str, *, agrees: bool) -> list[Shape]:
    if shown is None:
        return [
            Dot(x, y - 5, 6, "dot gone", f"the {name} has no row"),
            Label(x, y + 13, f"{name}: no row", "label tiny", "middle"),
        ]
    text = f"v{shown.version}" if shown.version is not None else "a row"
    several = f", {shown.count} times" if shown.count > 1 else ""
    return [
        Dot(x, y - 5, 7, f"dot {name if agrees else 'bad'} now", f"the {name} shows {text}"),
        Label(x, y + 14, f"{name} {text}{several}", "small strong", "middle"),
    ]


def _time(x: float, at: datetime | None, before: datetime | None) -> list[Shape]:
    if at is None:
        return []
    found: list[Shape] = [Label(x, 30, f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}", "label tiny", "middle")]
    if before is None or before.date() != at.date():
        found.append(Label(x, 17, f"{at:%Y-%m-%d}", "label tiny", "middle"))
    return found


def _curve(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = start, end
    middle = (y1 + y2) / 2
    return f"M{x1:g} {y1:g}C{x1:g} {middle + 6:g} {x2:g} {middle - 6:g} {x2:g} {y2 - 5:g}"
