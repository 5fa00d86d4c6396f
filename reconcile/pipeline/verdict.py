"""The verdict on a run: one word for each link and for the run, and one sentence."""

from __future__ import annotations

from reconcile.report.model import Level, LinkResult, Selection

AGREEING = (Level.AGREES, Level.TOLERATED, Level.REPAIRED)
_EXIT_LEVEL = {0: Level.AGREES, 1: Level.DRIFT, 2: Level.UNKNOWN}


def level_of(exit_code: int, links: tuple[LinkResult, ...]) -> Level:
    """Compute the level of a run from the exit code of its comparison and the levels of its links."""
    levels = {each.level for each in links}
    within = next((each for each in (Level.TOLERATED, Level.REPAIRED) if each in levels), Level.AGREES)
    return within if exit_code == 0 else _EXIT_LEVEL[exit_code]


def exit_code_with(code: int, unmet: int) -> int:
    """Compute the exit code of a run of which so many expectations failed that stop a repair."""
    return max(code, int(unmet > 0))


def level_with(compared: Level, unmet: int) -> Level:
    """Compute the level of a run of which so many expectations failed that stop a repair."""
    return Level.UNMET if unmet and compared in AGREEING else compared


def verdict(
    level: Level, links: tuple[LinkResult, ...], selection: Selection | None, unmet: int, differing: int | None = None
) -> str:
    """Compute the sentence; `level` is that of the comparison alone, `differing` counts each aggregate once."""
    return _compared(level, links, selection, differing) + _repaired(links) + _failed(level, unmet)


def _compared(level: Level, links: tuple[LinkResult, ...], selection: Selection | None, differing: int | None) -> str:
    ids = None if selection is None else selection.ids
    which = "requested" if selection is None or selection.since is None else "changed"
    several = len(links) > 1
    if level == Level.UNKNOWN:
        names = [each.consumer for each in links if each.level == Level.UNKNOWN]
        return f"{', '.join(names)} could not be compared with the source"
    if drifted := _beyond_tolerance(links):
        copies = f"{len(drifted)} of {len(links)} copies have drifted" if several else "The copy has drifted"
        number, of = sum(each.drifted for each in drifted), sum(each.compared for each in drifted)
        what = f"{of:,} aggregates" if ids is None else f"{ids * len(drifted):,} {which} aggregates"
        differ = "differ" if _still_different(drifted) is None else "differed"
        if differing is not None and len(drifted) > 1 and number == sum(each.drifted for each in links):
            return f"{copies}: {differing:,} aggregates {differ}, with {number:,} findings"
        return f"{copies}: {number:,} of {what} {differ}"
    how = "within the contract's tolerance" if any(each.drifted for each in links) else "with the source"
    requested = "" if ids is None else f" in the {f'{which} aggregate' if ids == 1 else f'{ids:,} {which} aggregates'}"
    return f"{'The copies agree' if several else 'The copy agrees'} {how}{requested}"


def _repaired(links: tuple[LinkResult, ...]) -> str:
    about = _beyond_tolerance(links) or links
    remaining = _still_different(about)
    drifted = sum(each.drifted for each in about if each.still_different is not None)
    if remaining is None or not drifted:
        return ""
    return f"; {_number(drifted - remaining)} repaired, {_number(remaining)} still different"


def _number(number: int) -> str:
    return f"{number:,}" if number else "none"


def _failed(level: Level, unmet: int) -> str:
    if not unmet:
        return ""
    joined = ", but" if level in AGREEING else ", and"
    return f"{joined} {unmet:,} {'expectation' if unmet == 1 else 'expectations'} of the data failed"


def _beyond_tolerance(links: tuple[LinkResult, ...]) -> tuple[LinkResult, ...]:
    return tuple(each for each in links if each.beyond_tolerance)


def _still_different(links: tuple[LinkResult, ...]) -> int | None:
    """Count what still differs; None where no correction was verified."""
    found = [each.still_different for each in links if each.still_different is not None]
    return sum(found) if found else None
