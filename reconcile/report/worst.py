"""The worst of many, kept in constant memory while they stream by."""

from __future__ import annotations

from typing import Any

from reconcile.domain.finding import Difference, Status

AT_LEAST = 3
"""So many of each cause of each link are shown, however many worse ones others have."""

_STATUS = {Status.CONFIRMED: 0, Status.INCOMPLETE: 1, Status.TOLERATED: 2, Status.IN_FLIGHT: 3}
_NEVER = 2**63
_SPARE = 200
"""So many more are kept before they are ordered and cut."""

Rank = tuple[Any, ...]


class Worst:
    """Keeps the worst findings, as text: drift before what may become it, then what has stood longest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._all = _Kept(limit)
        self._of_each: dict[tuple[str, str], _Kept] = {}

    def add(self, rank: Rank, kind: tuple[str, str], text: str) -> None:
        """Take a finding in; `kind` is its link and cause."""
        self._all.add(rank, text)
        if kind not in self._of_each:
            self._of_each[kind] = _Kept(AT_LEAST)
        self._of_each[kind].add(rank, text)

    def texts(self) -> list[str]:
        """Give the worst, worst first, with some of each cause among them."""
        kept = {rank: text for each in self._of_each.values() for rank, text in each.best()}
        for rank, text in self._all.best():
            if len(kept) >= self._limit:
                break
            kept.setdefault(rank, text)
        return [kept[each] for each in sorted(kept)]


def rank(
    status: str, difference: str, since: int | None, fields: int, link: str, aggregate_id: str | None, number: int
) -> Rank:
    """Give what findings are ordered by, the worst lowest; `number` tells those apart that are alike."""
    latent = difference == Difference.LATENT
    return (_STATUS[Status(status)], latent, since or _NEVER, -fields, link, aggregate_id or "", number)


class _Kept:
    """The lowest of all that were added."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: list[tuple[Rank, str]] = []
        self._highest: Rank | None = None

    def add(self, rank: Rank, text: str) -> None:
        if self._highest is not None and rank >= self._highest:
            return
        self._entries.append((rank, text))
        if len(self._entries) >= self._limit + _SPARE:
            self._entries = self.best()
            self._highest = self._entries[-1][0]

    def best(self) -> list[tuple[Rank, str]]:
        return sorted(self._entries)[: self._limit]
