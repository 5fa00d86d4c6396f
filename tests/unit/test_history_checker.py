"""The checker of histories finds each broken promise in a history that was made by hand, and nothing in a good one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.history_checker import Attempt, Breach, Claim, EmissionHistory, Visible, Write, violations

EMITTED = Attempt("c1", "a", 1, Claim.EMITTED)
DROPPED = Attempt("c2", "b", 1, Claim.DROPPED)
FIRST = Visible(0, 0, "a", 1)
CORRECTION = Visible(0, 1, "a", 1, "c1")
SECOND = Visible(0, 3, "b", 2)


def good() -> EmissionHistory:
    """One correction was emitted, and one was dropped because its key moved on."""
    return EmissionHistory([Write("a", 1), Write("b", 2)], [EMITTED, DROPPED], [FIRST, CORRECTION, SECOND])


def breaches(history: EmissionHistory) -> list[tuple[Breach, str]]:
    return [(each.breach, each.subject) for each in violations(history)]


def test_a_good_history_has_no_violation() -> None:
    """Gaps between offsets, and what was dropped, are none."""
    assert [] == violations(good())


@pytest.mark.parametrize("claim", [Claim.EMITTED, Claim.DROPPED])
def test_what_a_later_attempt_decides_counts(claim: Claim) -> None:
    """An attempt that did not know what became of its correction is followed by one that does."""
    history = good()
    decided = next(each for each in history.attempts if each.claim is claim)
    history.attempts.insert(0, replace(decided, claim=Claim.UNKNOWN))
    assert [] == violations(history)


def test_a_dropped_correction_that_is_visible() -> None:
    """It is a read of what was taken back."""
    history = good()
    history.visible.insert(2, Visible(0, 2, "b", 1, "c2"))
    assert [(Breach.ABORTED_READ, "c2")] == breaches(history)


def test_a_dropped_correction_that_becomes_visible_under_another_attempt() -> None:
    """One that was reported dropped stays so, whatever comes later."""
    history = good()
    history.attempts.append(replace(DROPPED, claim=Claim.EMITTED))
    history.visible.insert(2, Visible(0, 2, "b", 1, "c2"))
    assert [(Breach.ABORTED_READ, "c2")] == breaches(history)


def test_an_emitted_correction_that_nobody_sees() -> None:
    """It is lost."""
    history = good()
    history.visible.remove(CORRECTION)
    assert [(Breach.LOST_WRITE, "c1")] == breaches(history)


def test_a_correction_that_is_there_twice() -> None:
    """It is doubled, also where it does no harm."""
    history = good()
    history.visible.append(replace(CORRECTION, offset=9))
    assert [(Breach.DOUBLED, "c1")] == breaches(history)


def test_a_correction_behind_a_newer_event() -> None:
    """It is overtaken, and the copy ends with its version."""
    history = good()
    history.writes.append(Write("a", 2))
    history.visible[:2] = [FIRST, Visible(0, 1, "a", 2), replace(CORRECTION, offset=2)]
    assert [(Breach.OVERTAKEN, "c1"), (Breach.DIFFERENT_END, "a")] == breaches(history)


def test_a_correction_that_a_later_event_heals_was_overtaken_too() -> None:
    """Readers had the older version for a while."""
    history = good()
    history.writes += [Write("a", 2), Write("a", 3)]
    versions = [(0, 1, None), (1, 2, None), (2, 1, "c1"), (4, 3, None)]
    history.visible[:2] = [Visible(0, offset, "a", version, id_) for offset, version, id_ in versions]
    assert [(Breach.OVERTAKEN, "c1")] == breaches(history)


def test_the_order_is_that_of_offsets_in_a_partition() -> None:
    """In which order records were read from several partitions says nothing."""
    history = good()
    history.visible.reverse()
    assert [] == violations(history)


def test_an_event_that_is_gone() -> None:
    """What the source wrote is lost, and its copy ends elsewhere."""
    history = good()
    history.visible.remove(SECOND)
    assert [(Breach.LOST_WRITE, "b"), (Breach.DIFFERENT_END, "b")] == breaches(history)


def test_a_record_that_nobody_wrote() -> None:
    """It is unfounded, be it an event or a correction."""
    history = good()
    history.visible += [Visible(1, 0, "z", 1), Visible(1, 1, "z", 1, "c9")]
    assert [(Breach.UNFOUNDED, "c9"), (Breach.UNFOUNDED, "z")] == breaches(history)


def test_a_correction_that_nobody_decided() -> None:
    """Somebody has to say what became of it in the end."""
    history = good()
    history.attempts.append(replace(EMITTED, claim=Claim.UNKNOWN))
    assert [(Breach.UNDECIDED, "c1")] == breaches(history)
