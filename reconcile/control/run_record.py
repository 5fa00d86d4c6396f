"""What is kept of a run: how far it came, and what it found and changed on each link. Needs no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from reconcile.domain.approval import Actor
from reconcile.domain.distribution import Distribution, Side


@dataclass(frozen=True)
class LinkFigures:
    """What a run found on one link."""

    link: str
    settled: bool
    compared: int
    agreeing: int
    findings: int
    by_cause: Mapping[str, int]
    by_difference: Mapping[str, int]
    in_flight: int
    asked: int | None = None
    """How many aggregates it was asked for; None for all."""
    escaped: int | None = None
    """How many differed that changed-only runs could not see; None where that was not counted."""


@dataclass(frozen=True)
class RunRecord:
    """A run as the control store knows it; what only its end shows is None until then."""

    id: str
    contract: str
    contract_digest: str
    started_at: datetime
    ended_at: datetime | None
    stage: str | None
    """The furthest stage that it reached."""
    complete: bool | None
    exit_code: int | None
    links: tuple[LinkFigures, ...]
    requester: Actor | None
    """Who asked for it; None for one that began before that was kept."""


@dataclass(frozen=True)
class Drift:
    """How a run changed what is known of a link's findings."""

    complete: bool
    """Whether all that was in scope was read, so that what was not seen any more was closed."""
    opened: int
    """Findings that no run had seen before."""
    returned: int
    """Findings that came back after they were closed or repaired."""
    closed: int
    """Findings that were not there any more."""
    still_open: int
    """All that were open afterwards, those of earlier runs included."""


@dataclass(frozen=True)
class DriftPoint:
    """What one run found on one link, and what that changed; `drift` is None where nothing was recorded."""

    run_id: str
    started_at: datetime
    complete: bool
    figures: LinkFigures
    drift: Drift | None


@dataclass(frozen=True)
class DistributionPoint:
    """How the values of a link were distributed in one run."""

    run_id: str
    at: datetime
    sides: Mapping[Side, Distribution]


def link_figures(data: Mapping[str, Any]) -> LinkFigures:
    """Choose a link's figures from data that may say more."""
    return LinkFigures(**{each.name: data[each.name] for each in fields(LinkFigures) if each.name in data})
