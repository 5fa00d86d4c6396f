"""Causes are as right as their confidence says, against simulated histories with one to three faults each."""

from __future__ import annotations

import pytest

from bench.calibration import Calibration, measure
from bench.simulation import Change, Fault, History, World
from reconcile.domain.attribution import attribute
from reconcile.domain.cause import Cause
from reconcile.domain.finding import Confidence

ZOE = {"name": "Zoe", "email": "zoe@x", "phone": None}
LATER = {**ZOE, "name": "Zoë"}
LAST = {**ZOE, "name": "Zoiee"}
THREE = tuple(Change(each, each) for each in (ZOE, LATER, LAST))


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return measure(2_000)[0]


def test_every_difference_is_found_and_none_is_invented(calibration: Calibration) -> None:
    """What the simulation makes differ is a finding, and nothing else is."""
    assert (0, 0) == (calibration.missed, calibration.invented)


def test_what_is_certain_is_right(calibration: Calibration) -> None:
    """Of three faults one may hide another; so much is held where they come together."""
    assert calibration.share(calibration.right, Confidence.CERTAIN) >= 0.999


def test_what_is_probable_is_right_nine_times_of_ten(calibration: Calibration) -> None:
    """The likelier cause is named."""
    assert calibration.share(calibration.right, Confidence.PROBABLE) >= 0.9


def test_what_is_possible_names_the_cause_or_has_it_among_the_alternatives(calibration: Calibration) -> None:
    """The evidence leaves several, and these are listed."""
    assert calibration.share(calibration.among, Confidence.POSSIBLE) >= 0.95


def test_what_is_certain_is_no_small_part(calibration: Calibration) -> None:
    """Doubt is no way to be right."""
    certain = sum(number for group, number in calibration.told.items() if group.confidence == "certain")
    assert certain / calibration.told.total() >= 0.55


def test_a_loss_that_was_overwritten_is_no_culprit() -> None:
    """What was lost was told anew, and then somebody edited the copy."""
    edit = Fault("edit", 2, fields={"name": "by hand"})
    history = History(World(), THREE, (Fault("skip", 1), edit))
    assert (edit,) == history.culprits


def test_two_faults_of_which_each_would_do_are_both_culprits() -> None:
    """Without one of them alone the difference is the same."""
    faults = Fault("edit", 2, fields={"name": "Zoe"}), Fault("edit", 2, fields={"name": "Zoe"})
    assert faults == History(World(), THREE, faults).culprits


def test_two_faults_of_which_each_would_do_are_culprits_beside_a_third() -> None:
    """No row is there as the event waits, and as somebody would have deleted it; the rest is pending."""
    faults = Fault("behind", 1), Fault("dead_letter", 0), Fault("edit", 0)
    assert set(faults) == set(History(World(), THREE, faults).culprits)


def test_what_was_overwritten_is_no_culprit_beside_a_third() -> None:
    """The loss is covered by what came later, and neither the edit nor what is pending needs it."""
    faults = Fault("behind", 2), Fault("skip", 0), Fault("edit", 1, fields={"name": "by hand"})
    assert Fault("skip", 0).kind not in {fault.kind for fault in History(World(), THREE, faults).culprits}


def test_what_the_simulation_lost_is_told_as_lost() -> None:
    """With a ledger, for certain."""
    history = History(World(ledger="each"), THREE, (Fault("skip", 2),))
    finding = attribute(history.case)
    assert finding is not None
    assert (Cause.SKIPPED, Confidence.CERTAIN) == (finding.cause, finding.confidence)
    assert frozenset({Cause.SKIPPED}) == history.causes
