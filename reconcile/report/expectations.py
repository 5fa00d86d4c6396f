"""What came of a run's expectations, and which of them keep it from being repaired."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reconcile.errors import RefusedError
from reconcile.report.model import Count, Expectation, Level, Quality

QUALITY = "quality"
AGREEING = (Level.AGREES, Level.TOLERATED, Level.REPAIRED)
_RESULT = "findings"
"""The suite that holds the result itself against the contract: drift is told as drift, and is what repair is for."""


class GateClosedError(RefusedError):
    """Raised when what was read may not be repaired from: mend the data, or the suite, and start a new run."""


def quality_of(found: Mapping[str, Any] | None) -> Quality | None:
    """Give what it comes to."""
    if found is None:
        return None
    results = found["results"]
    failed = tuple(_expectation(each) for each in results if not each["success"])
    return Quality(len(results), len(results) - len(failed), failed, _read(results))


def unmet(found: Mapping[str, Any] | None) -> list[str]:
    """Say which expectations failed so that nothing may be repaired."""
    return [_sentence(each) for each in (found["results"] if found is not None else ()) if _stops(each)]


def against_repair(found: Mapping[str, Any] | None) -> list[str]:
    """Say the same as reasons to refuse a plan."""
    return [f"an expectation failed: {each}" for each in unmet(found)]


def require_open(found: Mapping[str, Any] | None) -> None:
    """Raise GateClosedError, with every reason, if expectations failed so that nothing may be repaired."""
    if reasons := against_repair(found):
        raise GateClosedError("nothing is planned or emitted:\n  " + "\n  ".join(reasons))


def exit_code_with(code: int, unmet: int) -> int:
    """Give the exit code of a run of which so many expectations failed that stop a repair."""
    return max(code, int(unmet > 0))


def level_with(compared: Level, unmet: int) -> Level:
    """Say the same of what the comparison alone comes to."""
    return Level.UNMET if unmet and compared in AGREEING else compared


def _read(results: Iterable[Mapping[str, Any]]) -> tuple[Count, ...]:
    rows: dict[str, int] = {}
    for each in results:
        if each["rows"] is not None and each["suite"] != _RESULT:
            name = f"{each['link']} {each['suite']}" if each["link"] else each["suite"]
            rows[name] = max(each["rows"], rows.get(name, 0))
    return tuple(Count(name, number) for name, number in rows.items())


def _stops(result: Mapping[str, Any]) -> bool:
    return bool(result["stops"]) and result["suite"] != _RESULT


def _sentence(result: Mapping[str, Any]) -> str:
    columns = ", ".join(result["columns"]) or "the table"
    return f"{result['link'] or result['suite']}: {result['expectation']} of {columns}"


def _expectation(result: Mapping[str, Any]) -> Expectation:
    names = ("suite", "link", "expectation", "severity", "why", "rows", "unexpected", "exception")
    told = {name: result[name] for name in names}
    return Expectation(**told, columns=tuple(result["columns"]), stops=_stops(result))
