"""How the values of a link's tables were distributed, run by run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import select

from reconcile.control.database import Database, now
from reconcile.control.run_record import DistributionPoint
from reconcile.control.runs import require_begun
from reconcile.control.tables import distribution, run
from reconcile.domain.distribution import Distribution, FieldDistribution, Side


class Distributions:
    """The distributions of all links."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, run_id: str, link: str, sides: Mapping[Side, Distribution]) -> None:
        """Write down what a run read of a link; the last word counts. Raises RunNotBegunError if it has not begun."""
        with self._database.writing() as connection:
            require_begun(connection, run_id)
            for side, found in sides.items():
                values = {"figures": asdict(found), "recorded_at": now()}
                key = {"link": link, "run_id": run_id, "side": side}
                statement = self._database.insert(distribution).values(**key, **values)
                connection.execute(statement.on_conflict_do_update(index_elements=list(key), set_=values))

    def until(self, link: str, run_id: str, limit: int) -> list[DistributionPoint]:
        """Query the distributions of a link in a run and in the last runs that began before it, oldest first."""
        of_link = select(run.c.id, run.c.started_at).where(
            run.c.id.in_(select(distribution.c.run_id).where(distribution.c.link == link)),
            run.c.started_at <= select(run.c.started_at).where(run.c.id == run_id).scalar_subquery(),
        )
        latest = of_link.order_by(run.c.started_at.desc(), run.c.id.desc()).limit(limit)
        with self._database.reading() as connection:
            begun = {row.id: row.started_at for row in connection.execute(latest)}
            rows = connection.execute(
                select(distribution).where(distribution.c.link == link, distribution.c.run_id.in_(list(begun)))
            )
            sides: dict[str, dict[Side, Distribution]] = {each: {} for each in begun}
            for row in rows:
                sides[row.run_id][row.side] = _distribution(row.figures)
        return [DistributionPoint(each, begun[each], sides[each]) for each in reversed(begun)]


def _distribution(figures: Mapping[str, Any]) -> Distribution:
    fields = [
        FieldDistribution(
            each["name"],
            each["missing"],
            None if each["quantiles"] is None else tuple(each["quantiles"]),
            each["shares"],
        )
        for each in figures["fields"]
    ]
    return Distribution(figures["rows"], figures["sampled"], tuple(fields))
