"""The pictures of reports."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from xml.etree import ElementTree

import pytest

from reconcile.domain.finding import Difference, Hop, Status
from reconcile.pipeline.story import story
from reconcile.report.charts import (
    bars_picture,
    fields_picture,
    flow_picture,
    heat_picture,
    measure_picture,
    trend_picture,
)
from reconcile.report.lanes import MOST, lanes_picture
from reconcile.report.model import (
    Count,
    FieldCount,
    Flow,
    Heat,
    HeatRow,
    Measured,
    MeasuredPoint,
    ShownRow,
    Story,
    Trend,
    TrendPoint,
)
from reconcile.report.picture import Dot, Label, Picture
from tests.unit.report_runs import AT, FIELDS, LINK, TOPIC, case, finding

POINTS = tuple(TrendPoint(f"r{each}", AT + timedelta(days=each), each != 1, 100, each * 7) for each in range(4))
HEAT = Heat(tuple(map(str, range(12))), (HeatRow("skipped", (5, *[0] * 11)),), 0)
MEDIANS = Measured(
    LINK,
    "age",
    "values",
    "",
    drifted=True,
    points=tuple(MeasuredPoint("r", AT, each, (each - 9, each + 9)) for each in (-3, 40)),
)
SHARES = Measured(
    LINK,
    "status",
    "values",
    "",
    drifted=False,
    points=tuple(MeasuredPoint("r", AT, 0, None, each) for each in ({"<OK>": 0.9}, {})),
)
PICTURES = [
    flow_picture([Flow(Hop.SOURCE_TO_LOG, "never_published", 1), Flow(None, "expired", 100_000)]),
    flow_picture([]),
    trend_picture(Trend(LINK, POINTS)),
    trend_picture(Trend(LINK, POINTS[:1])),
    trend_picture(Trend(LINK, ())),
    bars_picture("Ages", [Count("under a minute", 0)]),
    fields_picture([FieldCount(LINK, "email", 1), FieldCount("user-account/billing", "a" * 90, 2)]),
    heat_picture(HEAT),
    heat_picture(Heat((), (), 0)),
    measure_picture(Measured(LINK, None, "rows", "9 rows", drifted=False, points=(MeasuredPoint("r0", AT, 9),))),
    measure_picture(Measured(LINK, "a", "missing", "", drifted=True, points=(MeasuredPoint("r0", AT, 0.0),) * 2)),
    measure_picture(MEDIANS),
    measure_picture(SHARES),
]


def told(**changes: object) -> Story:
    """Give a story."""
    return story(LINK, TOPIC, {**case("u1"), **changes}, FIELDS)


def texts(picture: Picture) -> list[str]:
    """Give the texts that a picture shows."""
    return [each.text for each in picture.shapes if isinstance(each, Label)]


@pytest.mark.parametrize("picture", PICTURES)
def test_pictures_are_well_formed_and_named(picture: Picture) -> None:
    """Those who cannot see them are told what they say."""
    root = ElementTree.fromstring(picture.svg())  # noqa: S314 - our own
    assert ("img", True) == (root.get("role"), bool(root.get("aria-label")))


@pytest.mark.parametrize("picture", PICTURES)
def test_all_that_is_drawn_stands_in_the_picture(picture: Picture) -> None:
    """Nothing is cut off."""
    for each in picture.shapes:
        if isinstance(each, Dot | Label):
            assert 0 <= each.x <= picture.width
            assert 0 <= each.y <= picture.height


def test_text_in_pictures_is_escaped() -> None:
    """Names of causes and consumers come from elsewhere."""
    picture = bars_picture("</svg><script>", [Count("<script>alert(1)</script>", 3)])
    assert "<script>" not in picture.svg()


def test_the_lanes_show_what_the_copy_took_and_what_lies_aside() -> None:
    """Source versions, the records' offsets, what was taken, and what lies in retry."""
    shown = texts(lanes_picture(told(), drifts=True))
    assert ["source", "log, partition 1", "copy", "retry"] == shown[:4]
    assert {"v1", "v2", "v3", "@15", "@16", "@17", "took @15", "took @16", "lies there"} <= set(shown)


def test_a_side_without_a_row_is_shown_as_that() -> None:
    """A missing copy is no version."""
    assert "copy: no row" in texts(lanes_picture(told(copy=None), drifts=True))


def test_each_partition_has_a_lane() -> None:
    """A misrouted aggregate stands in two."""
    events = case("u1")["events"]
    moved = [*events[:2], {**events[2], "partition": 11}]
    shown = texts(lanes_picture(told(events=moved), drifts=True))
    assert ["log, partition 1", "log, partition 11"] == [each for each in shown if each.startswith("log")]


def test_a_long_story_shows_its_newest_moments() -> None:
    """And says how many it leaves out."""
    first = case("u1")["events"][0]
    events = [{**first, "offset": each, "timestamp": first["timestamp"] + each * 1000} for each in range(40)]
    shown = texts(lanes_picture(told(events=events, events_total=60, parked=[], ledger=[]), drifts=True))
    assert f"{40 - MOST + 20} older not shown" in shown
    assert "@39" in shown


def test_an_event_that_the_ledger_notes_as_not_applied() -> None:
    """The copy has not taken it, and the words of the ledger say why."""
    entry = {**case("u1")["ledger"][0], "unapplied": "discarded", "because": "he left us"}
    shown = told(ledger=[entry], parked=[])
    (moment,) = (each for each in shown.moments if each.lane == "ledger")
    assert "noted as discarded from the stash by a person, because: he left us" == moment.what
    picture = lanes_picture(shown, drifts=True)
    assert "left out @15" in texts(picture)
    assert "took @15" not in texts(picture)


def test_a_story_without_a_moment_is_drawn() -> None:
    """A phantom has no events."""
    picture = lanes_picture(told(events=None, parked=None, ledger=None, source=None, events_total=0), drifts=True)
    assert "no event of it is known" == picture.about


def test_a_copy_is_drawn_by_what_was_found_of_it() -> None:
    """Not by its values: those that are hidden all look alike."""
    alike = replace(told(), source=ShownRow("3", {"email": "•••"}, 1), copy=ShownRow("3", {"email": "•••"}, 1))
    kinds = [
        [each.kind for each in lanes_picture(alike, drifts=drifts).shapes if isinstance(each, Dot) and each.radius == 7]
        for drifts in (True, False)
    ]
    assert [["dot source now", "dot bad now"], ["dot source now", "dot copy now"]] == kinds


@pytest.mark.parametrize(
    ("changes", "drifts"),
    [({}, True), ({"status": Status.IN_FLIGHT}, False), ({"difference": Difference.LATENT}, False)],
)
def test_what_drifts_is_confirmed_and_not_latent(changes: dict[str, Any], drifts: bool) -> None:
    """What is late, or about to differ, is drawn as agreeing."""
    assert drifts == finding(**changes).drifts
