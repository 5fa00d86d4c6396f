"""What became of corrections that were to be emitted."""

from __future__ import annotations

from dataclasses import dataclass

from reconcile.domain.correction import Correction


@dataclass(frozen=True)
class Placed:
    """A correction, and where it stands in its topic."""

    correction: Correction
    partition: int
    offset: int


@dataclass(frozen=True)
class Withheld:
    """A correction that was not emitted, why, and the offset of the newer event where it is known."""

    correction: Correction
    reason: str
    offset: int | None


@dataclass(frozen=True)
class Outcome:
    """What became of each correction: emitted now, dropped, or emitted by an earlier attempt already."""

    emitted: tuple[Placed, ...] = ()
    dropped: tuple[Withheld, ...] = ()
    already: tuple[Placed, ...] = ()
