"""What a certain cause has as a rival: histories in which another explanation fits as well, simulated with its faults.

In each of them, what looks like the one fault that is named first had no part in what differs.
"""

from __future__ import annotations

import pytest

from bench.simulation import Fault, Values, World
from reconcile.domain.attribution import attribute
from reconcile.domain.cause import Cause
from reconcile.domain.finding import Confidence
from tests.unit.test_several_faults import ACCOUNT, PATCHES, STATES, ZOE, fault, lived, people, said

UNNOTED = World(changes=True, patch=True, copy_versions=False)
WHOLE = World(changes=True, copy_versions=False)
FRESH: Values = {**ACCOUNT, "tariff": "basic"}


def summed(*amounts: str) -> list[Values | None]:
    """Give whole states that differ by name, each with an amount."""
    return [{**ACCOUNT, "name": f"name {number}", "balance": each} for number, each in enumerate(amounts)]


CASES: dict[str, tuple[World, list[Values | None], tuple[Fault, ...], Cause]] = {
    "an event came late, and the deletion that it lost to stands in a wrong partition": (
        World(copy_versions=False),
        [*people("a", "b"), None],
        (fault("late", 1, 1), fault("misroute", 2)),
        Cause.OUT_OF_ORDER,
    ),
    "the row was deleted and made anew, and its first record cannot be read": (
        PATCHES,
        [ACCOUNT, {"tariff": "plus"}, {"name": "b"}],
        (fault("unreadable", 0), fault("edit", 1)),
        Cause.FOREIGN_WRITE,
    ),
    "the row was deleted, and the newest record cannot be read": (
        World(copy_versions=False, log_from=2),
        people("a", "b", "c"),
        (fault("unreadable", 2), fault("edit", 2)),
        Cause.FOREIGN_WRITE,
    ),
    "an older event came after the turn of the record that cannot be read": (
        STATES,
        people("a", "b", "c"),
        (fault("late", 1, 1), fault("unreadable", 2)),
        Cause.OUT_OF_ORDER,
    ),
    "an older event stands once more behind the record that cannot be read": (
        STATES,
        people("a", "b", "c"),
        (fault("twice", 1, 1), fault("unreadable", 2)),
        Cause.DUPLICATE_APPLIED,
    ),
    "the row was deleted and made anew, and a change before that was never published": (
        PATCHES,
        [
            {**FRESH, "phone": None},
            {"balance": "5"},
            {"phone": "2", "tariff": "gold"},
            {"email": "b@x"},
            {"tariff": "plus"},
            {"name": "b", "tariff": "plus"},
        ],
        (fault("lost", 2), fault("edit", 4)),
        Cause.FOREIGN_WRITE,
    ),
    "the copy says what nobody said, and a change after the last one was never published": (
        STATES,
        [ZOE, {**ZOE, "name": "b", "email": "b@x"}, {"name": "c", "email": "c@x", "phone": None}],
        (fault("late", 0, 2), fault("lost", 2), fault("edit", 2, fields={"name": "by hand"})),
        Cause.FOREIGN_WRITE,
    ),
    "the first event was lost, and a pending one has been applied": (
        UNNOTED,
        [FRESH, {"name": "b"}, {"name": "c", "email": "c@x", "balance": "20"}],
        (fault("behind", 1, 1), fault("skip", 0)),
        Cause.SKIPPED,
    ),
    "the row was made anew, and its events add up to what one of them less would give": (
        WHOLE,
        summed("-50", "100", "50", "50"),
        (fault("edit", 2),),
        Cause.FOREIGN_WRITE,
    ),
    "the fold lacks an event that lost to a newer one in another partition": (
        UNNOTED,
        [ACCOUNT, {"name": "b"}, {"email": "c@x"}, {"name": "c"}, {"name": "d", "email": "d@x"}],
        (fault("misroute", 4, -2), fault("misroute", 3, 1)),
        Cause.MISROUTED,
    ),
    "one event took away what another one brought, and was lost": (
        UNNOTED,
        [{"phone": None}, {**FRESH, "email": None, "balance": "70"}, {"name": "b", "balance": "-70"}, {"phone": "2"}],
        (fault("skip", 1),),
        Cause.SKIPPED,
    ),
    "an amount came twice, and a pending one has been applied that makes up for it": (
        World(changes=True, patch=True),
        [{**ACCOUNT, "balance": "-50"}, {"tariff": "gold", "balance": "50"}],
        (fault("behind", 1, 1), fault("double", 0)),
        Cause.DUPLICATE_APPLIED,
    ),
    "the deletion was lost, and an event before it came late": (
        PATCHES,
        [ACCOUNT, {"tariff": "plus"}, {"name": "b"}, None],
        (fault("late", 1, 1, traced=True), fault("skip", 3)),
        Cause.SKIPPED,
    ),
    "the source had it a moment ago, and its one event stood in a partition that does not reach back": (
        World(log_from=1),
        [*people("a"), None],
        (fault("moved", 1), fault("misroute", 0)),
        Cause.IN_FLIGHT,
    ),
    "the ledger shows a pending event, and a version is missing that no event makes up for": (
        PATCHES,
        [{"phone": "1"}, {"name": "b", "email": "b@x"}, {"phone": "2", "balance": "7"}, {"phone": "3"}],
        (fault("behind", 2, 1), fault("lost", 1)),
        Cause.NEVER_PUBLISHED,
    ),
    "a guard refuses what stands there again, and the newer event waits": (
        World(ledger="each", ledger_from=1, copy_versions=False, guard="newer-or-equal"),
        people("a", "b"),
        (fault("twice", 0, 1), fault("retry", 1)),
        Cause.RETRYING,
    ),
    "a person wrote what the stash might have, and something else besides": (
        PATCHES,
        [ACCOUNT, {"email": "b@x", "tariff": "plus"}, {"tariff": "gold"}, {"tariff": "plus"}, {"phone": "2"}],
        (fault("stash", 3), fault("edit", 3, fields={"tariff": "gold", "email": "by hand"})),
        Cause.FOREIGN_WRITE,
    ),
    "an older event came out of its turn after the newer one had been lost": (
        World(ledger="each"),
        people("a", "b", "c", "d"),
        (fault("behind", 3), fault("swap", 0), fault("skip", 2), fault("late", 1, 1)),
        Cause.OUT_OF_ORDER,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_rival_that_fits_is_told(name: str) -> None:
    """Nothing is certain then, and the true cause is named or an alternative."""
    world, changes, faults, rival = CASES[name]
    finding = said(lived(world, changes, *faults))
    assert Confidence.CERTAIN is not finding.confidence
    assert rival in {finding.cause, *finding.alternatives}


def test_a_parked_deletion_does_not_keep_a_row_from_being_made() -> None:
    """The deletion from before lies in the stash; the event that makes the row anew is a dead letter."""
    changes: list[Values | None] = [ACCOUNT, None, ACCOUNT, None, {"email": "b@x"}]
    finding = said(lived(PATCHES, changes, fault("stash", 1), fault("dead_letter", 4)))
    assert Cause.DEAD_LETTERED is finding.cause


def test_a_retried_event_that_says_what_the_copy_says_is_not_to_blame() -> None:
    """It would change nothing; the one before it was applied twice, as the ledger shows."""
    changes: list[Values | None] = [ACCOUNT, {"tariff": "gold"}, {"tariff": "plus", "balance": "7"}]
    faults = fault("behind", 2), fault("double", 0, traced=True), fault("retry", 1)
    assert Cause.DUPLICATE_APPLIED is said(lived(PATCHES, changes, *faults)).cause


def test_an_amount_before_the_log_may_have_been_the_same() -> None:
    """One as large was never published, and the log does not reach back to it."""
    changes = summed("500", "7", "100", "500", "9")
    finding = attribute(lived(World(changes=True, log_from=2), changes, fault("lost", 0)).case)
    assert finding is not None
    assert (Confidence.PROBABLE, True) == (finding.confidence, Cause.EXPIRED in finding.alternatives)
