"""The picture of causes by hop: what broke between source, log and consumer, as wide as there is of it."""

from __future__ import annotations

from collections.abc import Sequence

from reconcile.report.model import Flow
from reconcile.report.picture import Box, Label, Path, Picture, Shape

HOPS = {"source_to_log": "source → log", "log_to_consumer": "log → consumer", "consumer": "in the consumer"}
NO_HOP = "cannot be told"

_WIDTH, _LEFT, _RIGHT, _TOP = 420.0, 126.0, 268.0, 8.0
_SCALE, _LEAST, _ROW, _GAP = 130.0, 2.0, 21.0, 14.0


def flow_picture(flows: Sequence[Flow]) -> Picture:
    """Draw which causes broke which hop."""
    total = sum(each.number for each in flows)
    shapes: list[Shape] = []
    right = left = _TOP
    hops = list(dict.fromkeys(each.hop for each in flows))
    for hop in hops:
        of_hop = [each for each in flows if each.hop == hop]
        widths = [max(each.number / total * _SCALE, _LEAST) for each in of_hop]
        height = sum(max(width, _ROW) for width in widths)
        left += (height - sum(widths)) / 2
        number = sum(each.number for each in of_hop)
        kind, name = hop_kind(hop), hop_name(hop)
        shapes.append(Box(_LEFT, left, 7, sum(widths), f"node {kind}", f"{name}: {number:,}"))
        middle = left + sum(widths) / 2
        shapes += [
            Label(_LEFT - 9, middle - 1, name, "label strong", "end"),
            Label(_LEFT - 9, middle + 13, f"{number:,}", "label number", "end"),
        ]
        for each, width in zip(of_hop, widths, strict=True):
            row = max(width, _ROW)
            at = right + (row - width) / 2
            shapes.append(Path(_band(left, at, width), f"band {kind}", f"{name}, {each.cause}: {each.number:,}"))
            shapes.append(Box(_RIGHT, at, 4, width, f"node {kind}"))
            shapes.append(Label(_RIGHT + 11, right + row / 2 + 4, f"{each.cause.replace('_', ' ')}  {each.number:,}"))
            left += width
            right += row
        right += _GAP
        left = right
    about = "; ".join(f"{hop_name(each.hop)}, {each.cause} {each.number:,}" for each in flows)
    return Picture(_WIDTH, max(right - _GAP, _TOP) + 6, "Causes by hop", about, tuple(shapes))


def hop_name(hop: str | None) -> str:
    """Give a hop in words."""
    return NO_HOP if hop is None else HOPS[hop]


def hop_kind(hop: str | None) -> str:
    """Give the kind of shapes that belong to a hop."""
    return "hop-none" if hop is None else f"hop-{hop.replace('_', '-')}"


def _band(left: float, right: float, width: float) -> str:
    start, end = _LEFT + 7, _RIGHT
    middle = (start + end) / 2
    there = f"M{start:g} {left:.1f}C{middle:g} {left:.1f} {middle:g} {right:.1f} {end:g} {right:.1f}"
    left, right = left + width, right + width
    return f"{there}V{right:.1f}C{middle:g} {right:.1f} {middle:g} {left:.1f} {start:g} {left:.1f}Z"
