"""The faults that the lab knows."""

from __future__ import annotations

import pytest

from reconcile.errors import RefusedError
from reconcile.lab.faults import FAULTS, named

REPRODUCED = {"A2", "B1", "B2", "B3", "B4", "B10", "B15", "C1", "C2", "C3", "C4", "D3"}


def test_every_known_way_is_reproduced() -> None:
    """Each row of the field's knowledge that a lab can reproduce has a fault."""
    assert set() == REPRODUCED - {row for fault in FAULTS for row in fault.systems}


def test_the_zoey_race_comes_first() -> None:
    """The canonical race is the first that `all` plants."""
    assert "zoey-race" == named(["all"])[0].name


def test_an_unknown_fault_is_told_with_the_nearest() -> None:
    """A misspelt name is answered with the name that was meant."""
    with pytest.raises(RefusedError, match=r'no fault "zoe-race"; did you mean "zoey-race"\?'):
        named(["zoe-race"])


def test_every_fault_says_what_happens() -> None:
    """Each fault has a sentence for `lab fault --list`."""
    assert all(fault.summary.endswith(".") for fault in FAULTS)
