"""What a run comes to: link by link, in one word, and in one sentence."""

from __future__ import annotations

from reconcile.report.model import Level, LinkResult, Selection

AGREEING = (Level.AGREES, Level.TOLERATED, Level.REPAIRED)
_EXIT_LEVEL = {0: Level.AGREES, 1: Level.DRIFT, 2: Level.UNKNOWN}


def level_of(exit_code: int, links: tuple[LinkResult, ...]) -> Level:
    """Say in one word what a run comes to that returned this."""
    levels = {each.level for each in links}
    within = next((each for each in (Level.TOLERATED, Level.REPAIRED) if each in levels), Level.AGREES)
    return within if exit_code == 0 else _EXIT_LEVEL[exit_code]


def exit_code_with(code: int, unmet: int) -> int:
    """Compute the exit code of a run of which so many expectations failed that stop a repair."""
    return max(code, int(unmet > 0))


def level_with(compared: Level, unmet: int) -> Level:
    """Say the same of what the comparison alone comes to."""
    return Level.UNMET if unmet and compared in AGREEING else compared


def verdict(level: Level, links: tuple[LinkResult, ...], asked: Selection | None, unmet: int) -> str:
    """Say it in one sentence."""
    return _compared(level, links, None if asked is None else asked.ids) + _repaired(links) + _failing(level, unmet)


def consumer_of(link: str) -> str:
    """Give the name of a link's consumer."""
    return link.rpartition("/")[2]


def _compared(level: Level, links: tuple[LinkResult, ...], ids: int | None) -> str:
    several = len(links) > 1
    if level == Level.UNKNOWN:
        unread = [each.consumer for each in links if each.level == Level.UNKNOWN]
        return f"It could not be told whether {', '.join(unread)} agrees"
    if drifted := _beyond(links):
        who = f"{len(drifted)} of {len(links)} copies have drifted" if several else "The copy has drifted"
        number = sum(each.drifted for each in drifted)
        of = sum(each.compared for each in drifted) if ids is None else ids * len(drifted)
        what = "aggregates" if ids is None else "aggregates that were asked for"
        return f"{who}: {number:,} of {of:,} {what} {'differ' if _left(drifted) is None else 'differed'}"
    copies = "The copies agree" if several else "The copy agrees"
    how = "as far as the contract asks" if any(each.drifted for each in links) else "with the source"
    return f"{copies} {how}{_among(ids)}"


def _among(ids: int | None) -> str:
    if ids is None:
        return ""
    return " in the aggregate that was asked for" if ids == 1 else f" in the {ids:,} aggregates that were asked for"


def _repaired(links: tuple[LinkResult, ...]) -> str:
    """Go on with what corrections did about it."""
    about = _beyond(links) or links
    left, drifted = _left(about), sum(each.drifted for each in about if each.left is not None)
    if left is None or not drifted:
        return ""
    return f"; {_of(drifted - left, 'was', 'were')} repaired, {_of(left, 'is', 'are')} left"


def _beyond(links: tuple[LinkResult, ...]) -> tuple[LinkResult, ...]:
    return tuple(each for each in links if each.beyond_tolerance)


def _of(number: int, one: str, more: str) -> str:
    return f"none {one}" if not number else f"{number:,} {one if number == 1 else more}"


def _left(links: tuple[LinkResult, ...]) -> int | None:
    """Give how many still differ; None where no correction was verified."""
    found = [each.left for each in links if each.left is not None]
    return sum(found) if found else None


def _failing(level: Level, unmet: int) -> str:
    """End the sentence with what failed beside it."""
    if not unmet:
        return ""
    joined = ", but" if level in AGREEING else ", and"
    return f"{joined} {unmet:,} {'expectation' if unmet == 1 else 'expectations'} of the data failed"
