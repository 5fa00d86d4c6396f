"""The gate: which expectations keep a run from being repaired."""

from __future__ import annotations

from collections.abc import Iterable

from reconcile.errors import RefusedError
from reconcile.quality.suites import Checked

ABOUT_FINDINGS = "findings"
"""The suite about the result itself: drift is reported as drift, and is what repair is for."""
OF_DRIFT = (ABOUT_FINDINGS, ("drift",))
"""Its expectation of how much differs, by suite and columns: the one that a repair may meet."""


class GateClosedError(RefusedError):
    """Raised when what was read may not be repaired from: mend the data, or the suite, and start a new run."""


def closes(each: Checked) -> bool:
    """Say whether an expectation failed so that nothing may be repaired."""
    return each.stops and each.suite != ABOUT_FINDINGS


def unmet(results: Iterable[Checked]) -> list[str]:
    """List the expectations that failed so that nothing may be repaired."""
    return [f"{each.link or each.suite}: {each.words}" for each in results if closes(each)]


def against_repair(results: Iterable[Checked]) -> list[str]:
    """List them as reasons to refuse a plan."""
    return [f"an expectation failed: {each}" for each in unmet(results)]


def require_open(results: Iterable[Checked]) -> None:
    """Raise GateClosedError, with every reason, if expectations failed so that nothing may be repaired."""
    if reasons := against_repair(results):
        raise GateClosedError("nothing is planned or emitted:\n  " + "\n  ".join(reasons))
