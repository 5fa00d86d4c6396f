"""Pictures as SVG that is made here: shapes with a kind each, which the style sheet gives its colour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup, escape

Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    tip: str = ""
    round: float = 2


@dataclass(frozen=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    kind: str


@dataclass(frozen=True)
class Path:
    """A path, as SVG writes it."""

    way: str
    kind: str
    tip: str = ""


@dataclass(frozen=True)
class Dot:
    """A circle."""

    x: float
    y: float
    radius: float
    kind: str
    tip: str = ""


@dataclass(frozen=True)
class Label:
    """A line of text."""

    x: float
    y: float
    text: str
    kind: str = "label"
    anchor: Anchor = "start"


Shape = Box | Line | Path | Dot | Label


@dataclass(frozen=True)
class Picture:
    """A picture, what it is called and what it says to those who cannot see it."""

    width: float
    height: float
    title: str
    about: str
    shapes: tuple[Shape, ...]
    natural: bool = False
    """Whether it keeps its size and is scrolled, instead of growing and shrinking with the page."""

    def svg(self) -> Markup:
        """Render it as an SVG element; all text in it is escaped."""
        size = f' width="{self.width:g}" height="{self.height:g}"' if self.natural else ""
        name = escape(f"{self.title}: {self.about}" if self.about else self.title)
        head = f'<svg viewBox="0 0 {self.width:g} {self.height:g}"{size} role="img" aria-label="{name}">'
        return Markup(head + "".join(_drawn(self.shapes)) + "</svg>")  # noqa: S704 - each text is escaped below


def _drawn(shapes: tuple[Shape, ...]) -> Iterator[str]:
    for each in shapes:
        match each:
            case Box(x, y, width, height, kind, tip, radius):
                at = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:g}"'
                yield f'<rect class="{escape(kind)}" {at}{_end("rect", tip)}'
            case Line(x1, y1, x2, y2, kind):
                yield f'<line class="{escape(kind)}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
            case Path(way, kind, tip):
                yield f'<path class="{escape(kind)}" d="{escape(way)}"{_end("path", tip)}'
            case Dot(x, y, radius, kind, tip):
                yield f'<circle class="{escape(kind)}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"{_end("circle", tip)}'
            case Label(x, y, text, kind, anchor):
                place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
                yield f'<text class="{escape(kind)}" {place}>{escape(text)}</text>'


def _end(tag: str, tip: str) -> str:
    return f"><title>{escape(tip)}</title></{tag}>" if tip else "/>"
