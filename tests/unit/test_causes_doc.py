"""Every ground of the table is reached by a case, and docs/causes.md says the same as the table."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import click
import pytest

from reconcile.cli import cli
from reconcile.domain.attribution import attribute, decide
from reconcile.domain.case import Case, FieldRule, Routing, Undecided
from reconcile.domain.cause import Cause
from reconcile.domain.grounds import Ground
from reconcile.domain.inquiry import Inquiry
from reconcile.domain.mending import mending
from reconcile.files import committed
from tests.unit.cases import (
    ACTIVITY,
    BILLING,
    LOGIN,
    UNVERSIONED,
    applied,
    case,
    event,
    history,
    minute,
    parked,
    person,
    row,
)

FOUR = history(person("a"), person("b"), person("c"), person("d"))
V1, V2, V3, V4 = FOUR
AT_1, AT_2, AT_3, AT_4 = (row(each.fields, each.version) for each in FOUR)
GONE = event(4, None)
PLAIN = [replace(each, version=None) for each in FOUR]
WAS_1, WAS_2, WAS_3, WAS_4 = (row(each.fields) for each in FOUR)
SUMS = [event(1, {"balance": "100"}), event(2, {"tariff": "plus"}), event(3, {"balance": "40"})]
OWED = row({"balance": "140", "tariff": "plus"}, 3)
SUMS_ALONE = replace(BILLING, event_versions=False, source_versions=False, dense_versions=False)
UNREAD = event(2, {}, version=None, problem="not JSON")
PATCH = replace(LOGIN, patch=True, copy_versions=False)
BACK = "its group has committed past it"
PATCH = replace(LOGIN, patch=True, copy_versions=False)


def billing(balance: str, tariff: str = "plus") -> Case:
    return case(BILLING, OWED, row({"balance": balance, "tariff": tariff}), SUMS)


def two_logs(of: Case, begin: int) -> Case:
    """Give the case on two partitions of which the second has lost its beginning."""
    places = {0: of.link.places[0], 1: replace(of.link.places[0], begin=begin)}
    return replace(of, link=replace(of.link, places=places))


def unread(of: Case) -> Case:
    """Give the case on a log that has more behind an open transaction than anybody looks at."""
    places = {number: replace(place, open=5, unread=True) for number, place in of.link.places.items()}
    return replace(of, link=replace(of.link, places=places))


def misrouted(routing: Routing) -> Case:
    events = [*FOUR[:3], replace(V4, partition=1, offset=0, routing=routing)]
    return case(LOGIN, AT_4, AT_3, events, partitions=(0, 1))


def both_shown(of: Case) -> Case:
    """Give the case with a ledger that shows its events in the order of the log."""
    return replace(of, ledger=applied(of.events), link=replace(of.link, ledger=True, ledger_since=minute(0)))


def billing_late() -> Case:
    """Give a tariff that was applied after two newer ones, of which one brought an amount that is there."""
    events = [event(1, {"tariff": "a"}), event(2, {"tariff": "b", "balance": "10"}), event(3, {"tariff": "c"})]
    source, copy = row({"balance": "10", "tariff": "c"}, 3), row({"balance": "10", "tariff": "a"})
    of = both_shown(case(BILLING, source, copy, events))
    return replace(of, ledger=tuple(replace(each, at=None) for each in of.ledger))


def behind_a_gap(balance: str) -> Case:
    """Give a sum whose log is cut, and version 7 is not in it."""
    events = [event(number, {"balance": str(number)}) for number in (5, 6, 8, 9)]
    return case(BILLING, row({"balance": "100"}, 9), row({"balance": balance}), events, begin=4)


def partly(kind: str) -> Case:
    return case(LOGIN, AT_4, AT_1, FOUR, parked=(parked(kind, V2),))  # type: ignore[arg-type]


INVERTED = case(LOGIN, AT_3, AT_2, [V1, replace(V3, offset=1), replace(V2, offset=2)])
ONE_OF_EACH = {
    Ground.PENDING: case(LOGIN, AT_4, AT_3, FOUR, committed=3),
    Ground.PENDING_ALL: case(LOGIN, AT_4, AT_2, [V4], committed=3, begin=3),
    Ground.AHEAD: case(LOGIN, AT_3, AT_4, FOUR, settled_end=3),
    Ground.ON_ITS_WAY: case(LOGIN, AT_4, AT_3, FOUR[:3], settled_source=AT_3),
    Ground.UNDECIDED: case(LOGIN, AT_2, AT_1, [V1], undecided=Undecided(0, 7, V2.at)),
    Ground.PERHAPS_UNDECIDED: unread(case(LOGIN, AT_2, AT_1, [V1])),
    Ground.UNREADABLE: case(LOGIN, AT_2, AT_1, [V1, replace(V2, fields={}, version=None, problem="not JSON")]),
    Ground.PERHAPS_UNREADABLE: case(SUMS_ALONE, row({"balance": "147"}), row({"balance": "140"}),
                                    [event(1, {"balance": "140"}, version=None), UNREAD]),
    Ground.UNREADABLE_FIELD: case(LOGIN, AT_2, AT_1,
                                  [V1, replace(V2, fields={"email": "zoe@x"}, bad_fields=("name",))]),
    Ground.OUTBOX_PENDING: case(LOGIN, AT_2, AT_1, [V1], outbox_pending=1),
    Ground.VERSION_ABSENT: case(LOGIN, AT_2, AT_1, [V1]),
    Ground.VERSION_GAP: case(PATCH, AT_3, AT_3, [V1, V3]),
    Ground.PERHAPS_GAP: behind_a_gap("97"),
    Ground.FOLDED_WITHOUT_OR_GAP: behind_a_gap("91"),
    Ground.FOLDED_TWICE_OR_GAP: behind_a_gap("109"),
    Ground.NO_EVENT: case(LOGIN, AT_1, None),
    Ground.NO_EVENT_IN_PART: two_logs(case(LOGIN, AT_1, None), begin=9),
    Ground.STATE_ABSENT: case(UNVERSIONED, WAS_2, WAS_1, PLAIN[:1]),
    Ground.DELETION_ABSENT: case(LOGIN, None, AT_1, [V1]),
    Ground.RETURN_ABSENT: case(LOGIN, row(person("new"), 5), None, [*FOUR[:3], GONE]),
    Ground.LOG_NEWER: case(LOGIN, AT_1, AT_2, [V1, V2]),
    Ground.DELETED_IN_LOG: case(LOGIN, AT_3, None, [*FOUR[:3], GONE]),
    Ground.EARLIER_STATE: case(UNVERSIONED, WAS_1, WAS_2, PLAIN[:2]),
    Ground.SAME_VERSION: case(LOGIN, AT_2, row(person("x"), 2), [V1, replace(V2, fields=person("x"))]),
    Ground.PLACEHOLDER: case(replace(UNVERSIONED, untold=("?",)), WAS_1, row({**V1.fields, "phone": "?"}),
                             [replace(PLAIN[0], fields={"name": "a", "email": "zoe@x"}, untold=("phone",))]),
    Ground.SAME_VERSION_FOLD: case(BILLING, OWED, row({"balance": "139", "tariff": "plus"}),
                                   [*SUMS[:2], event(3, {"balance": "39"})]),
    Ground.ALL_GONE: case(LOGIN, AT_2, AT_1, begin=9),
    Ground.NEWEST_GONE: case(LOGIN, AT_2, AT_1, [V1], begin=9),
    Ground.PERHAPS_EXPIRED: case(LOGIN, None, AT_1, begin=9),
    Ground.FORMER_STATE_GONE: case(UNVERSIONED, WAS_4, WAS_1, PLAIN[3:], begin=3),
    Ground.NEVER_KNOWN: case(LOGIN, None, AT_1),
    Ground.PERHAPS_NEVER_KNOWN: two_logs(case(LOGIN, None, AT_1), begin=9),
    Ground.COPY_WITHOUT_ID: replace(case(LOGIN, None, AT_1), id=None),
    Ground.NO_STATE: case(UNVERSIONED, WAS_2, row(person("x")), PLAIN[:2]),
    Ground.NO_SUM: billing("141"),
    Ground.NO_KNOWN_STATE: case(UNVERSIONED, WAS_4, row(person("x")), PLAIN[2:], begin=2),
    Ground.OTHER_THAN_VERSION: case(LOGIN, AT_2, row(person("x"), 2), [V1, V2]),
    Ground.OTHER_THAN_LEDGER: case(UNVERSIONED, WAS_2, WAS_1, PLAIN[:2], ledger=applied(PLAIN[:2])),
    Ground.OTHER_SUM_THAN_LEDGER: both_shown(billing("200")),
    Ground.ROW_GONE: case(LOGIN, AT_2, None, [V1, V2]),
    Ground.NOT_CARRIED: case(replace(LOGIN, fields=(*LOGIN.fields, FieldRule("rank", carried=False))),
                        row({**V1.fields, "rank": "1"}, 1), row({**V1.fields, "rank": "2"}, 1), [V1]),
    Ground.RETRYING: case(LOGIN, AT_2, AT_1, [V1, V2], parked=(parked("retry", V2),)),
    Ground.RETRYING_AMONG: partly("retry"),
    Ground.STASHED: case(LOGIN, AT_2, AT_1, [V1, V2], parked=(parked("stash", V2),)),
    Ground.STASHED_AMONG: partly("stash"),
    Ground.DEAD_LETTERED: case(LOGIN, AT_2, AT_1, [V1, V2], parked=(parked("dead_letter", V2),)),
    Ground.DEAD_LETTERED_AMONG: partly("dead_letter"),
    Ground.LEDGER_ORDER: case(LOGIN, AT_3, AT_2, FOUR[:3], ledger=applied([V1, V3, V2])),
    Ground.RETRIED_LATE: case(LOGIN, AT_3, AT_2, FOUR[:3], parked=(parked("retry", V2, resolved=BACK),)),
    Ground.APPLIED_LATE: billing_late(),
    Ground.PERHAPS_LATE: case(LOGIN, AT_4, AT_2, FOUR),
    Ground.DELETED_LATE: case(UNVERSIONED, WAS_4, None, [PLAIN[0], event(2, None), *PLAIN[2:]]),
    Ground.LOG_INVERTED: INVERTED,
    Ground.LEDGER_TWICE: case(BILLING, OWED, row({"balance": "180", "tariff": "plus"}), SUMS,
                              ledger=applied([*SUMS, SUMS[2]])),
    Ground.LOG_TWICE: case(BILLING, OWED, row({"balance": "180", "tariff": "plus"}),
                           [*SUMS, replace(SUMS[2], offset=7)]),
    Ground.FOLDED_TWICE: billing("180"),
    Ground.NOTED_ONCE: case(BILLING, OWED, row({"balance": "180", "tariff": "plus"}), SUMS,
                            ledger=applied(SUMS)),
    Ground.PERHAPS_TWICE: billing("280"),
    Ground.ROW_TWICE: case(ACTIVITY, WAS_1, replace(WAS_1, count=2), PLAIN[:1]),
    Ground.LOSING_PARTITION: misrouted(Routing.WRONG),
    Ground.PERHAPS_LOSING_PARTITION: misrouted(Routing.UNKNOWN),
    Ground.NEWEST_IN_WRONG: case(LOGIN, AT_1, AT_1, [replace(V1, routing=Routing.WRONG)]),
    Ground.NOT_IN_LEDGER: case(LOGIN, AT_2, AT_1, [V1, V2], ledger=applied([V1])),
    Ground.GUARDED: case(replace(LOGIN, guarded=True), AT_2, AT_1, [V1, V2]),
    Ground.FOLDED_WITHOUT: billing("100"),
    Ground.LOST_OR_EDITED: case(PATCH, row(person("b", "y"), 3), row(person("b", "x")),
                                [event(1, {"name": "a", "email": "x", "phone": None}),
                                 event(2, {"name": "b"}), event(3, {"email": "y"})]),
    Ground.PERHAPS_LOST: case(LOGIN, AT_2, AT_1, [V1, V2]),
    Ground.MADE_OTHERWISE: case(BILLING, row({"balance": "40", "tariff": "plus"}, 2),
                                row({"balance": "40", "tariff": "edited"}),
                                [event(1, {"tariff": "plus"}), event(2, {"balance": "40"})]),
    Ground.SEVERAL_LOST: case(BILLING, row({"balance": "147", "tariff": "plus"}, 4),
                              row({"balance": "100", "tariff": "plus"}), [*SUMS, event(4, {"balance": "7"})]),
    Ground.SEVERAL_LOST_OR_LATE: billing("140", "basic"),
    Ground.NO_ROW: case(ACTIVITY, WAS_1, None, PLAIN[:1]),
    Ground.RETURN_LOST: case(UNVERSIONED, WAS_3, None, [PLAIN[0], event(2, None), PLAIN[2]]),
    Ground.WITHOUT_ID: replace(case(LOGIN, AT_1, None), id=None),
    Ground.SOURCE_TWICE: case(LOGIN, replace(AT_1, count=2), AT_1, [V1]),
}  # fmt: skip


@pytest.mark.parametrize("ground", [each for each in Ground if each is not Ground.NOTHING_SHOWN])
def test_every_ground_is_reached(ground: Ground) -> None:
    """A case for each row of the table."""
    assert ground is _ground(ONE_OF_EACH[ground])


@pytest.mark.parametrize("ground", ONE_OF_EACH)
def test_a_finding_says_what_its_ground_says(ground: Ground) -> None:
    """Cause, confidence, hop and alternatives are the table's."""
    finding = attribute(ONE_OF_EACH[ground])
    assert finding is not None
    told = finding.cause, finding.confidence, finding.hop, finding.alternatives
    assert (ground.cause, ground.confidence, ground.hop, ground.alternatives) == told


def test_every_cause_has_a_ground() -> None:
    """The list of causes is closed, and none is without evidence."""
    assert set(Cause) == {ground.cause for ground in Ground}


def test_what_is_certain_has_no_alternatives() -> None:
    """An alternative is a doubt."""
    assert [] == [ground for ground in Ground if ground.confidence == "certain" and ground.alternatives]


def test_the_page_says_what_the_table_says() -> None:
    """docs/causes.md holds, for each cause, its grounds in their order."""
    page = committed("docs", "causes.md").read_text("utf-8")
    sections = re.split(r"^### ", page, flags=re.M)[1:]
    told = {section.split("\n", 1)[0].strip("`"): section for section in sections}
    assert [str(cause) for cause in Cause] == list(told)
    for cause in Cause:
        rows = "".join(_line(ground) for ground in Ground if ground.cause is cause)
        assert rows in told[cause]


def _ground(of: Case) -> Ground | None:
    decided = decide(Inquiry(of))
    return None if decided is None else decided.ground


def _line(ground: Ground) -> str:
    others = ", ".join(f"`{cause}`" for cause in ground.alternatives)
    return f"| {ground.confidence} | {ground.when} | {ground.hop or ''} | {others} |\n"


@pytest.mark.parametrize("cause", Cause)
def test_each_cause_is_explained_in_one_sentence(cause: Cause) -> None:
    """The page says it as reports do."""
    assert f"\n### `{cause}`\n\n{cause.meaning}\n" in committed("docs", "causes.md").read_text("utf-8")


@pytest.mark.parametrize("cause", Cause)
def test_each_cause_has_a_shortest_way_to_mend_it(cause: Cause) -> None:
    """Each command exists, with the options that it is given, and names this run or its contract."""
    for command in mending(cause, "r 1", "the contract.yaml").commands:
        _, name, *rest = shlex.split(command)
        assert {"r 1", "the contract.yaml"} & set(rest)
        found: click.Command | None = cli
        for each in (name, *rest):
            if not isinstance(found, click.Group):
                break
            found = found.get_command(click.Context(found), each)
        assert found is not None, command
        known = {form for each in found.params for form in each.opts}
        assert set() == {each for each in rest if each.startswith("--")} - known


def test_what_is_left_after_corrections_is_for_the_next_run() -> None:
    """They are not planned once more."""
    assert ("reconcile run c.yaml",) == mending(Cause.SKIPPED, "r1", "c.yaml", applied=True).commands
    assert ("reconcile fence c.yaml",) == mending(Cause.RETRYING, "r1", "c.yaml", applied=True).commands
