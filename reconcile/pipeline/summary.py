"""What a run found, in figures: by link, by cause, by difference, and what that means for its exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconcile.contract.model import Consumer, Contract
from reconcile.domain.finding import Difference, Status
from reconcile.gather.fence.fence import Fence, UnreadableLink
from reconcile.pipeline.handoffs import Interval, LinkSummary, Summary, UnreadLink
from reconcile.spark import local_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AGREES, DRIFT, COULD_NOT_TELL = 0, 1, 2


@dataclass(frozen=True)
class Counted:
    """What the first reading of a link gave."""

    compared: int
    """Ids that stand on either side."""
    suspects: int
    """Ids that were looked at closely."""
    differing: int
    """Those of them that differed."""


def summary(
    contract: Contract,
    fence: Fence,
    counted: Mapping[str, Counted],
    findings: DataFrame,
    unread: Mapping[str, UnreadableLink],
    aggregates: int = 0,
) -> Summary:
    """Compute the figures of a run, by link in the contract's order.

    `aggregates` is how many there are at least: where few of them are compared, a share that is tolerated is of all.
    """
    from pyspark.sql import functions as f

    kinds = findings.select("link", "status", "cause", "difference")
    differing = findings.where((f.col("status") == Status.CONFIRMED) & (f.col("difference") != Difference.LATENT))
    ids = differing.select("link", "aggregate_id").where(f.col("link").isin(list(counted.keys() - unread.keys())))
    if (differ := local_frames.plain_rows(ids)) is None:
        aggregates_differing = ids.select("aggregate_id").distinct().count()
    else:
        aggregates_differing = len({each["aggregate_id"] for each in differ})
    if (here := local_frames.plain_rows(kinds)) is None:
        grouped: list[Any] = kinds.groupBy(*kinds.columns).agg(f.count(f.lit(1)).alias("number")).collect()
    else:
        grouped = [{**each, "number": 1} for each in here]
    lines: dict[str, list[Any]] = {}
    for row in grouped:
        lines.setdefault(row["link"], []).append(row)
    links = tuple(
        _link(consumer, link, fence, counted[link], lines.get(link, []), aggregates)
        for consumer in contract.consumers
        if (link := contract.link(consumer)) in counted and link not in unread
    )
    beyond = any(link.beyond_tolerance for link in links)
    return Summary(
        contract=contract.aggregate,
        complete=not unread,
        fence=Interval(opened_at=fence.opened_at, closed_at=fence.closed_at),
        links=links,
        unread=tuple(
            UnreadLink(link=link, message=each.message, may_pass=each.may_pass) for link, each in sorted(unread.items())
        ),
        exit_code=COULD_NOT_TELL if unread else DRIFT if beyond else AGREES,
        drifted_aggregates=aggregates_differing,
    )


def _link(
    consumer: Consumer, link: str, fence: Fence, counted: Counted, rows: list[Any], aggregates: int
) -> LinkSummary:
    def number(**wanted: str) -> int:
        return sum(row["number"] for row in rows if all(row[name] == value for name, value in wanted.items()))

    drifted = sum(
        row["number"] for row in rows if row["status"] == Status.CONFIRMED and row["difference"] != Difference.LATENT
    )
    waiting, tolerated = number(status=Status.IN_FLIGHT), number(status=Status.TOLERATED)
    disagreeing = drifted + waiting + tolerated
    passed = max(counted.differing - disagreeing, 0)
    reported = [row for row in rows if row["status"] != Status.IN_FLIGHT]
    of = max(counted.compared, aggregates)
    within = drifted <= consumer.tolerance.rows or drifted <= of * consumer.tolerance.ratio
    return LinkSummary(
        link=link,
        consumer=consumer.name,
        settled=fence.consumer(consumer.name).settled,
        compared=counted.compared,
        agreeing=max(counted.compared - disagreeing - passed, 0),
        findings=sum(row["number"] for row in reported),
        drifted=drifted,
        latent=number(status=Status.CONFIRMED, difference=Difference.LATENT),
        tolerated=tolerated,
        in_flight=waiting + passed,
        by_cause=_sums(reported, "cause"),
        by_difference=_sums(reported, "difference"),
        beyond_tolerance=not within,
    )


def _sums(rows: list[Any], name: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for row in rows:
        sums[row[name]] = sums.get(row[name], 0) + row["number"]
    return dict(sorted(sums.items(), key=lambda each: (-each[1], each[0])))
