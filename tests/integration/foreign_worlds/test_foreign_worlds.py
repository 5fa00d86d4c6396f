"""Audits of worlds that are nothing like the lab's: what was planted is found, named and placed, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from reconcile.domain.plan_rules import Action
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.handoffs import Summary
from tests.integration.foreign_worlds import captured, keyed, lake, named, odd, orders, parked, placed, written
from tests.integration.foreign_worlds.servers import Servers
from tests.integration.foreign_worlds.world import World
from tests.integration.runs import Runs, findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUILDERS: tuple[Callable[[], World], ...] = (
    *(orders.orders, keyed.meters, keyed.parts),
    *(named.people, named.quiet),
    *(parked.ships, captured.captured, captured.flattened),
    *(placed.rooms, placed.grown, placed.deals, placed.visits),
    *(written.wagons, written.cars, lake.lake, odd.oddities),
)
WORLDS = {each.__name__: each for each in BUILDERS}


Findings = dict[tuple[str, str | None], dict[str, Any]]


class Audits:
    """The worlds, each audited when it is first asked for."""

    def __init__(self, servers: Servers, runs: Runs) -> None:
        self.servers, self.runs = servers, runs
        self.worlds = {name: build() for name, build in WORLDS.items()}
        servers.make(list(self.worlds.values()))
        self._done: dict[str, tuple[Findings, Summary]] = {}

    def of(self, name: str) -> tuple[Findings, Summary]:
        """Give the findings of a world by link and id, and the summary."""
        if name not in self._done:
            job, summary = self.runs.audited(self.servers.contract(self.worlds[name]), f"first-{name}")
            self._done[name] = Findings(findings(job).items()), summary
        return self._done[name]


@pytest.fixture(scope="module")
def audits(servers: Servers, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audits:
    """All worlds, made."""
    return Audits(servers, Runs(spark, servers.settings, tmp_path_factory.mktemp("foreign")))


@pytest.mark.parametrize("name", WORLDS)
def test_what_was_planted_is_found_as_it_is_and_nothing_else(audits: Audits, name: str) -> None:
    """The kind of difference, its status and exactly the fields that differ, of each planted id and no other."""
    found, _ = audits.of(name)
    expected = {
        key: (told.difference, told.status, set(told.fields)) for key, told in audits.worlds[name].truth.items()
    }
    assert expected == {
        key: (each["difference"], each["status"], {field["name"] for field in each["fields"]})
        for key, each in found.items()
    }


@pytest.mark.parametrize("name", WORLDS)
def test_the_true_cause_is_named(audits: Audits, name: str) -> None:
    """Where evidence is left the cause is certain and true; where it is not, the true one is among those named."""
    found, _ = audits.of(name)
    wrong = {}
    for key, told in audits.worlds[name].truth.items():
        each = found.get(key)
        if each is None:
            continue
        named = {each["cause"]} if told.certain else {each["cause"], *each["alternatives"]}
        if (
            told.cause not in named
            or (each["confidence"] == "certain") > (told.cause == each["cause"])
            or (told.certain and each["confidence"] != "certain")
        ):
            wrong[key] = (told, each["cause"], each["confidence"], each["alternatives"], each["evidence"])
    assert {} == wrong


@pytest.mark.parametrize("name", WORLDS)
def test_the_figures_add_up(audits: Audits, name: str) -> None:
    """What is compared agrees, differs, is tolerated or is in flight, and the exit code says what that means."""
    found, summary = audits.of(name)
    world = audits.worlds[name]
    assert world.exit_code == summary.exit_code
    for link in summary.links:
        of_link = [each for (of, _), each in found.items() if of == link.link]
        told = [each for each in of_link if each["status"] != "in_flight"]
        apart = sum(each["difference"] != "latent" for each in of_link)
        ids = len(world.there) + sum(each["difference"] == "orphan" for each in of_link)
        assert (ids, ids - apart) == (link.compared, link.agreeing)
        assert apart == link.drifted + link.tolerated + link.in_flight
        assert dict(Counter(each["cause"] for each in told)) == link.by_cause
        assert dict(Counter(each["difference"] for each in told)) == link.by_difference


@pytest.mark.parametrize("name", ["captured", "flattened"])
def test_the_notes_say_what_a_person_can_do(audits: Audits, name: str) -> None:
    """Of what the copy cannot hold, and of a placeholder that it took for a value."""
    found, _ = audits.of(name)
    unheld = [key for key, each in found.items() if any(captured.UNHELD in note["note"] for note in each["evidence"])]
    apart = [key for key, told in audits.worlds[name].truth.items() if told.fields in (("code",), ("title",))]
    assert sorted(apart) == sorted(unheld)
    assert {"log_to_consumer"} == {found[key]["hop"] for key in unheld}
    taken = [key for key, told in audits.worlds[name].truth.items() if set(captured.LARGE) <= set(told.fields)]
    for key in taken:
        assert any("REPLICA IDENTITY FULL" in note["note"] for note in found[key]["evidence"])


@pytest.mark.parametrize("name", ["orders", "meters", "people"])
def test_all_rows_say_what_the_digests_say(audits: Audits, name: str) -> None:
    """The mode full gives the same findings."""
    found, _ = audits.of(name)
    job, _ = audits.runs.audited(audits.servers.contract(audits.worlds[name]), f"full-{name}", mode="full")
    assert _decided(found) == _decided(Findings(findings(job).items()))


@pytest.mark.parametrize("name", ["orders", "ships"])
def test_some_ids_are_told_of_as_in_a_run_on_all(audits: Audits, name: str) -> None:
    """What is found of an id, with its evidence, does not depend on what else is looked at."""
    found, _ = audits.of(name)
    world = audits.worlds[name]
    asked = sorted({id_text for _, id_text in found if id_text is not None})[::2]
    fine = next(each for each in world.there if each not in {id_text for _, id_text in found})
    ids = [*asked, fine, "nobody has this"]
    job, _ = audits.runs.audited(audits.servers.contract(world), f"ids-{name}", ids=ids)
    some = {key: each for key, each in found.items() if key[1] in asked}
    assert _decided(some) == _decided(Findings(findings(job).items()))


def test_one_odd_record_stops_no_plan(audits: Audits) -> None:
    """What can be written is planned; an id that nothing can note down first, and an object 400 deep, are advice."""
    world = audits.worlds["oddities"]
    ids = [id_text for _, id_text in world.truth if id_text and id_text not in odd.UNWRITTEN]
    job, _ = audits.runs.audited(audits.servers.contract(world), "planned-oddities", ids=ids)
    planned = pipeline.plan(job)
    assert [] == planned.reasons
    actions = {each.aggregate_id: each.action for each in planned.links[0].items}
    advised = dict.fromkeys((odd.LONG, odd.NESTED), Action.ADVICE)
    assert advised == {name: each for name, each in actions.items() if each is not Action.RESTATE}
    assert set(ids) == actions.keys()


def _decided(found: Findings) -> dict[tuple[str, str | None], Any]:
    names = ("difference", "status", "fields", "cause", "confidence", "alternatives", "evidence")
    return {key: [each[name] for name in names] for key, each in found.items()}
