"""Changed-only runs: they find what a full run finds, as far as what happened has left a trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from reconcile.lab import faults, truth
from reconcile.lab.folder import Lab
from reconcile.lab.services.database import connect
from reconcile.lab.traffic import traffic
from reconcile.pipeline import since
from reconcile.pipeline.handoffs import Gathered, Summary
from reconcile.pipeline.job import Job
from tests.integration.runs import Runs, findings
from tests.integration.worlds import seeded_world
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTRACT, LINK = "user-account", "user-account/login"
# Each strikes some aggregates and leaves a trace: in the log, in a failure topic, or in the outbox.
TRACED = (
    "zoey-race",
    "overtaken-dead-letter",
    "stash",
    "ignored-tombstone",
    "swallowed-exception",
    "outbox-stuck",
    "duplicate-send",
    "wrong-partitioner",
)
UNTRACED = ("hand-edit", "hand-delete", "phantom")


@dataclass(frozen=True)
class World:
    """What happened, and what the runs before and after it found."""

    lab: Lab
    runs: Runs
    edited: str
    """Whose row of the source somebody edited by hand."""
    first: Summary
    changed: tuple[Job, Summary]
    full: tuple[Job, Summary]


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world that agrees and is compared; then much happens, and a changed-only run and a full one look at it."""
    with seeded_world(aggregates=1500, ports=ports_of("changed only")) as lab:
        runs = Runs.of(spark, lab, tmp_path_factory.mktemp("changed"))
        _, first = runs.audited(CONTRACT, "first", since="last")
        traffic(lab, rate=20, seconds=1)
        faults.plant(lab, [each for each in faults.FAULTS if each.name in (*TRACED, *UNTRACED)], 1)
        edited = edit_source(lab)
        changed = runs.audited(CONTRACT, "changed", since="last")
        yield World(lab, runs, edited, first, changed, runs.audited(CONTRACT, "full"))


def execute(lab: Lab, database: str, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Do what somebody with a database console would do."""
    with closing(connect(lab.url(database))) as session, session, session.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def edit_source(lab: Lab) -> str:
    """Edit a row of the source by hand, of somebody whom nothing else struck, and give the id."""
    struck = [row["aggregate_id"] for row in truth.read(lab.truth)]
    ((edited,),) = execute(
        lab,
        "user",
        "update user_account set first_name = 'By Hand', updated_at = now() where id = (select id from user_account"
        " where deleted_at is null and id::text <> all(%s) order by id limit 1) returning id::text",
        struck,
    )
    return str(edited)


def told(world: World, names: tuple[str, ...]) -> set[str]:
    """Give the ids that some faults struck."""
    return {row["aggregate_id"] for row in truth.read(world.lab.truth) if row["link"] == LINK and row["fault"] in names}


def untraced(world: World) -> set[str]:
    """Give the ids of which only the copy was touched; those that were new when they were have an event."""
    of_new = {row["aggregate_id"] for row in truth.read(world.lab.truth) if row["fields"] == ["phone"]}
    return told(world, UNTRACED) - of_new


def found(job: Job) -> dict[str, tuple[Any, ...]]:
    """Give what a run found, by id."""
    of = ("difference", "status", "cause", "confidence", "hop", "fields")
    return {id_: tuple(each[name] for name in of) for (_, id_), each in findings(job).items()}


def test_the_first_run_compares_everything(world: World) -> None:
    """There is nothing since when changes could be told, and it says so."""
    scope = world.first.scope
    assert scope is not None
    assert ("full", "no complete run that looked at all copies is in the workspace") == (scope.kind, scope.reason)


def test_it_looks_only_at_what_may_have_changed(world: World) -> None:
    """Since the first run, which was a full one."""
    job, summary = world.changed
    assert summary.scope is not None
    told_of = (summary.scope.kind, summary.scope.since, summary.scope.aggregates)
    assert ("changed", "first", world.first.links[0].compared) == told_of
    link = job.run.read(Gathered).links[0]
    assert ("changed", True) == (link.mode, 0 < link.source_rows < 150)


def test_it_finds_what_the_full_run_finds(world: World) -> None:
    """With the same causes and fields, but for what has left no trace."""
    whole, unseen = found(world.full[0]), untraced(world)
    assert unseen <= whole.keys()
    assert {id_: each for id_, each in whole.items() if id_ not in unseen} == found(world.changed[0])


def test_every_fault_with_a_trace_is_found(world: World) -> None:
    """In the log, in a failure topic, in the outbox, or by the time of a change."""
    struck = told(world, (*TRACED, *UNTRACED)) - untraced(world)
    assert {*struck, world.edited} == found(world.changed[0]).keys()


def test_what_it_could_not_see_is_counted(world: World) -> None:
    """The full run says how much escaped the changed-only one: what was done to the copy by hand."""
    _, summary = world.full
    assert [len(untraced(world))] == [each.escaped for each in summary.links]
    assert summary.scope is not None
    assert ("full", None, ("changed",)) == (summary.scope.kind, summary.scope.reason, summary.scope.after)


def test_a_changed_only_run_closes_what_it_saw_agree(world: World) -> None:
    """An open finding is looked at again, though nothing but the copy was touched; others stay open."""
    (before,) = world.full[1].links
    edited = next(
        row["aggregate_id"]
        for row in truth.read(world.lab.truth)
        if (row["fault"], row["fields"]) == ("hand-edit", ["email"])
    )
    ((mail,),) = execute(
        world.lab, "user", "select address from email_address where user_id = %s and position = 1", edited
    )
    execute(world.lab, "login", "update login_profile set mail = %s where user_id = %s", mail, edited)
    _, summary = world.runs.audited(CONTRACT, "again", since="last")
    (after,) = summary.links
    assert summary.scope is not None
    assert ("changed", "full") == (summary.scope.kind, summary.scope.since)
    assert before.over_time is not None
    assert after.over_time is not None
    told_of = (after.over_time.opened, after.over_time.closed, after.over_time.still_open)
    assert (0, 1, before.over_time.still_open - 1) == told_of


def test_so_many_changes_compare_everything(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, finds what a full run does, and counts no more as escaped than what no run has looked at."""
    monkeypatch.setattr(since, "SHARE", 0.0)
    job, summary = world.runs.audited(CONTRACT, "many", since="last")
    assert summary.scope is not None
    assert ("full", None, ("again",)) == (summary.scope.kind, summary.scope.ids, summary.scope.after)
    assert "aggregates may have changed, and comparing all is cheaper then" in str(summary.scope.reason)
    assert ([0], True) == ([each.escaped for each in summary.links], job.scope.whole)
    assert found(world.runs.job(CONTRACT, "again")) == found(job)


def test_a_copy_that_cannot_be_read_leaves_the_run_incomplete(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is told from such a run, and the next one looks since the one before it."""
    monkeypatch.setenv("DOWN_URL", "postgresql://nobody@127.0.0.1:1/login")
    known = yaml.safe_load(world.runs.settings_file.read_text("utf-8"))
    known["connections"]["login-db"] = {"url": "env:DOWN_URL"}
    settings = tmp_path / "reconcile.yaml"
    settings.write_text(yaml.safe_dump(known), "utf-8")
    _, summary = replace(world.runs, settings_file=settings).audited(CONTRACT, "down", since="last")
    assert summary.scope is not None
    assert (False, 2, "no copy could be read") == (summary.complete, summary.exit_code, summary.scope.reason)
