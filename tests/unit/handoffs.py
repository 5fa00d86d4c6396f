"""Hand-offs for unit tests, each with what a test does not care for filled in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from reconcile.domain.canonical import CanonicalType, Kind
from reconcile.gather.fence.fence import Fence, SourceFence, TopicFence
from reconcile.gather.fence.group_position import PartitionExtent
from reconcile.pipeline.handoffs import (
    Gathered,
    GatheredField,
    GatheredLink,
    Interval,
    LinkSummary,
    LogExtent,
    RunScope,
    Summary,
    UnreadLink,
    Verified,
    VerifiedCorrection,
    VerifiedLink,
)
from reconcile.quality.suites import Checked

LINK = "user-account/login"
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def fence(rows: int | None = None, *, contract: str = "0" * 64, at: datetime = AT, partitions: int = 12) -> Fence:
    """Build a fence of a source of so many rows."""
    places = tuple(PartitionExtent(number, 0, 0, 0, 0) for number in range(partitions))
    source = SourceFence("user-db", None, None, rows, None)
    return Fence(contract, "user-account", at, at, source, TopicFence("main", "user-account", "t", places), ())


def gathered_link(fields: tuple[tuple[str, bool], ...] | None, width: int) -> GatheredLink:
    """Build what was read of a link whose fields have these names, and whether each is sensitive."""
    named = None if fields is None else tuple(GatheredField(name=name, sensitive=secret) for name, secret in fields)
    return GatheredLink(
        link=LINK, consumer="login", source_rows=0, copy_rows=0, fetched=0, buckets=None, differing=None, mode="full",
        reasons=(), form=(CanonicalType(Kind.TEXT),) * width, fields=named,
    )  # fmt: skip


def gathered(*links: GatheredLink, scope: RunScope | None = None, history: str = "") -> Gathered:
    """Build what was read of the world; `history` is the folder of the topic's."""
    log = LogExtent(folder=history, generation=1, records=0, expired=())
    return Gathered(
        contract="c.yaml", aggregate="user-account", links=links, unread=(), log=log, artifacts={}, scope=scope
    )


def link_summary(consumer: str = "login", **changes: Any) -> LinkSummary:
    """Build the figures of a link that agrees, unless they are changed."""
    figures: dict[str, Any] = {
        "link": f"user-account/{consumer}", "consumer": consumer, "settled": True, "compared": 100, "agreeing": 100,
        "findings": 0, "drifted": 0, "latent": 0, "tolerated": 0, "in_flight": 0, "by_cause": {}, "by_difference": {},
        "beyond_tolerance": False,
    }  # fmt: skip
    return LinkSummary(**{**figures, **changes})


def summary(
    *links: LinkSummary,
    unread: dict[str, str] | None = None,
    may_pass: bool = False,
    exit_code: int = 0,
    at: datetime = AT,
) -> Summary:
    """Build the figures of a run; `unread` are the links that could not be read, with why."""
    lost = tuple(UnreadLink(link=link, message=why, may_pass=may_pass) for link, why in (unread or {}).items())
    between = Interval(opened_at=at, closed_at=at)
    return Summary(
        contract="user-account", complete=not lost, fence=between, links=links, unread=lost, exit_code=exit_code
    )


def verified_link(
    outcomes: dict[str, int],
    still_different: int = 0,
    link: str = LINK,
    corrections: tuple[VerifiedCorrection, ...] = (),
) -> VerifiedLink:
    """Build what became of the corrections of a link."""
    return VerifiedLink(
        link=link,
        outcomes=outcomes,
        still_different=still_different,
        beyond_tolerance=still_different > 0,
        corrections=corrections,
    )


def verified(*links: VerifiedLink, exit_code: int = 0) -> Verified:
    """Build what became of the corrections of a run."""
    return Verified(run_id="r1", links=links, exit_code=exit_code)


def expected(suite: str = "own", *, success: bool = False, **changes: Any) -> Checked:
    """Build how an expectation went: a critical one that failed, unless it is changed."""
    given: dict[str, Any] = {
        "suite": suite, "link": LINK, "expectation": "expect_column_values_to_not_be_null", "columns": ("phone",),
        "severity": "critical", "success": success, "why": "everybody can be called", "rows": 1000, "unexpected": 3,
        "exception": None, "said": "phone: 3 of 1,000 rows are missing",
    }  # fmt: skip
    changes = {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}
    return Checked(**{**given, **changes})
