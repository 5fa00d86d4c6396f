"""What holds for the control store, on Postgres as on SQLite."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from string import ascii_letters
from threading import Event

import pytest
from sqlalchemy import Engine, create_engine, inspect, text

from reconcile.control.corrections import (
    PENDING,
    CorrectionOutcome,
    CorrectionRecord,
    CorrectionState,
    Dropped,
    Emitted,
    Intent,
    VerifiedState,
)
from reconcile.control.database import connect
from reconcile.control.errors import (
    ControlUnreachableError,
    CorrectionStateError,
    LeaseHeldError,
    LeaseLostError,
    NewerSchemaError,
    RequestConflictError,
    RunConflictError,
    RunNotBegunError,
    TooManyRequestsError,
    UnknownRequestError,
)
from reconcile.control.findings import Sighting
from reconcile.control.leases import Lease
from reconcile.control.migration import migrate, migrations
from reconcile.control.run_record import Drift, LinkFigures, RunRecord, link_figures
from reconcile.control.store import ControlStore, open_control
from reconcile.control.tables import tables
from reconcile.domain.approval import REQUEST_TOPIC, Actor
from reconcile.domain.distribution import Distribution, FieldDistribution, Side
from reconcile.errors import RefusedError
from reconcile.settings.settings import Settings

LONG_ID = "".join(random.Random(7).choices(ascii_letters, k=8192))  # noqa: S311
LINK = "user-account/login"
MINUTE = timedelta(minutes=1)
SHORT = timedelta(milliseconds=300)
ALICE, BOB = Actor("alice", "cli"), Actor("bob", "airflow")
CAROL = Actor("carol", "cli")

# Opens the store of this url when told to, so that several do it at once.
OPENER = """
import sys
from reconcile.control.store import open_control
from reconcile.settings.settings import Settings
settings = Settings.model_validate({"control_store": {"url": "env:CONTROL_URL"}})
print("ready", flush=True)
sys.stdin.readline()
with open_control(settings) as control:
    print(len(control.runs.history("user-account")), flush=True)
"""
# Dies without a word after half of its findings were taken in.
DYING = """
import os, signal
from reconcile.control.store import open_control
from reconcile.settings.settings import Settings
def findings():
    for number in range(20_000):
        if number == 12_000:
            os.kill(os.getpid(), signal.SIGKILL)
        yield str(number), "missing", "skipped", None
with open_control(Settings.model_validate({"control_store": {"url": "env:CONTROL_URL"}})) as control:
    control.findings.record("r2", "user-account/login", findings(), complete=True)
"""


def settings() -> Settings:
    """Give settings with the control store that CONTROL_URL names, and nothing else."""
    return Settings.model_validate({"control_store": {"url": "env:CONTROL_URL"}})


def database(url: str) -> Engine:
    """Give the database beside the control store."""
    return create_engine(url.replace("postgresql:", "postgresql+psycopg2:"))


def applied(url: str) -> list[int]:
    """Give the numbers of the migrations that stand."""
    engine = database(url)
    with engine.connect() as connection:
        numbers = connection.execute(text("select number from schema_migration order by number")).scalars().all()
    engine.dispose()
    return list(numbers)


def sightings(*ids: str) -> Iterable[Sighting]:
    return [Sighting(each, "changed", "skipped", f"digest of {each}") for each in ids]


def figures(link: str = LINK, findings: int = 0) -> LinkFigures:
    return LinkFigures(
        link=link,
        settled=True,
        compared=10,
        agreeing=10 - findings,
        findings=findings,
        by_cause={"skipped": findings} if findings else {},
        by_difference={"changed": findings} if findings else {},
        in_flight=1,
    )


def begin(control: ControlStore, *run_ids: str) -> None:
    for run_id in run_ids:
        control.runs.begin(run_id, "user-account", "c" * 64)


def kept(control: ControlStore, run_id: str, digest: str = "c" * 64) -> RunRecord:
    """Read a run that has begun: to begin it again changes nothing."""
    return control.runs.begin(run_id, "user-account", digest)


def intent(number: int, run_id: str = "r1", partition: int = 0, link: str = LINK) -> Intent:
    return Intent(f"c{number}", link, str(number), number, partition, run_id)


def states(control: ControlStore, run_id: str = "r1") -> dict[str, CorrectionState]:
    return {each.correction_id: each.state for each in control.corrections.of_run(LINK, run_id)}


def pending(control: ControlStore) -> list[CorrectionRecord]:
    return [each for each in control.corrections.of_run(LINK, "r1") if each.state in PENDING]


def converged(number: int) -> CorrectionOutcome:
    return CorrectionOutcome(f"c{number}", CorrectionState.CONVERGED)


def emitted(control: ControlStore, number: int, run_id: str = "r1") -> Lease:
    """Bring a correction to its topic."""
    lease = control.leases.acquire(LINK, run_id, MINUTE)
    control.corrections.intend(lease, [intent(number, run_id)])
    control.corrections.mark_emitted(lease, run_id, [Emitted(f"c{number}", 0, 7)])
    return lease


def renewal(name: str) -> threading.Thread:
    """Give the thread that renews a lease."""
    return next(thread for thread in threading.enumerate() if thread.name == f"lease {name}")


class RunsBehaviour:
    """Each test takes `control`, an empty control store."""

    def test_a_run_is_kept_from_begin_to_end(self, control: ControlStore) -> None:
        """What its end tells is None before it."""
        begun = control.runs.begin("r1", "user-account", "d")
        control.runs.reach("r1", "report", ["gather"])
        ended = control.runs.end("r1", complete=True, exit_code=1, links=[figures(findings=2)])
        expected = replace(begun, ended_at=ended.ended_at, stage="report", complete=True, exit_code=1)
        assert replace(expected, links=(figures(findings=2),)) == ended == kept(control, "r1", "d")

    def test_a_run_begins_by_the_database_s_clock(self, control: ControlStore) -> None:
        """Instants are in UTC."""
        started = control.runs.begin("r1", "user-account", "d").started_at
        assert UTC == started.tzinfo
        assert abs(datetime.now(UTC) - started) < MINUTE

    def test_beginning_again_changes_nothing(self, control: ControlStore) -> None:
        """Each stage of a run may begin it."""
        first = control.runs.begin("r1", "user-account", "d")
        assert first == control.runs.begin("r1", "user-account", "d")

    def test_a_run_keeps_who_asked_for_it(self, control: ControlStore) -> None:
        """Whoever goes on with it later does not take their place."""
        asked_for = replace(ALICE, sudo_user="root")
        control.runs.begin("r1", "user-account", "d", asked_for)
        assert asked_for == control.runs.begin("r1", "user-account", "d", BOB).requester
        assert asked_for == control.runs.find("r1").requester

    def test_a_run_may_have_begun_for_nobody(self, control: ControlStore) -> None:
        """Those of before that was kept did."""
        begin(control, "r1")
        assert control.runs.find("r1").requester is None

    @pytest.mark.parametrize("other", [("user-account", "e"), ("user-balance", "d")])
    def test_a_run_keeps_its_contract(self, control: ControlStore, other: tuple[str, str]) -> None:
        """The id of one run is not given to another."""
        control.runs.begin("r1", "user-account", "d")
        with pytest.raises(RunConflictError, match="the run r1 is of the contract user-account"):
            control.runs.begin("r1", *other)

    def test_a_stage_that_runs_again_takes_nothing_back(self, control: ControlStore) -> None:
        """The furthest stage counts."""
        begin(control, "r1")
        stages = ["gather", "audit", "plan"]
        for stage in ("gather", "plan", "audit"):
            control.runs.reach("r1", stage, stages[: stages.index(stage)])
        assert "plan" == kept(control, "r1").stage

    def test_an_unknown_run_reaches_no_stage(self, control: ControlStore) -> None:
        """The error says what to do."""
        with pytest.raises(RunNotBegunError, match="knows no run r9: begin it first"):
            control.runs.reach("r9", "gather", [])

    def test_an_unknown_run_does_not_end(self, control: ControlStore) -> None:
        """The error says what to do."""
        with pytest.raises(RunNotBegunError, match="knows no run r9: begin it first"):
            control.runs.end("r9", complete=True, exit_code=0, links=[])

    def test_figures_may_come_with_others(self) -> None:
        """What a run's summary says beside them is left out."""
        assert figures() == link_figures({**vars(figures()), "latent": 3})

    def test_history_leaves_out_runs_of_some_aggregates(self, control: ControlStore) -> None:
        """However many there are: what they compared is no whole."""
        begin(control, "whole", "r1", "r2")
        for run_id, asked in (("whole", None), ("r1", 3), ("r2", 1)):
            links = [replace(figures(), asked=asked)]
            control.runs.end(run_id, complete=True, exit_code=1, links=links)
        assert ["whole"] == [each.run_id for each in control.runs.history("user-account", limit=1)]
        assert [1, 3, None] == [kept(control, each).links[0].asked for each in ("r2", "r1", "whole")]

    def test_history_tells_drift_run_by_run(self, control: ControlStore) -> None:
        """Oldest first, link by link; runs that have not ended are left out."""
        begin(control, "r1", "r2", "r3")
        for run_id, ids in (("r1", ("a", "b")), ("r2", ("b", "c"))):
            control.findings.record(run_id, LINK, sightings(*ids), complete=True)
            links = [figures(findings=2), figures("user-account/billing")]
            control.runs.end(run_id, complete=True, exit_code=1, links=links)
        told = [(each.run_id, each.figures.link, each.drift) for each in control.runs.history("user-account")]
        assert [
            ("r1", LINK, Drift(complete=True, opened=2, returned=0, closed=0, still_open=2)),
            ("r1", "user-account/billing", None),
            ("r2", LINK, Drift(complete=True, opened=1, returned=0, closed=1, still_open=2)),
            ("r2", "user-account/billing", None),
        ] == told


class FindingsBehaviour:
    """Each test takes `control`, an empty control store, and `url`, its address."""

    def test_a_finding_is_remembered(self, control: ControlStore) -> None:
        """By link and id; what never drifted is left out."""
        begin(control, "r1")
        control.findings.record("r1", LINK, [("a", "missing", "skipped", None)], complete=True)
        seen = control.findings.seen(LINK, ["a", "b"])
        started = kept(control, "r1").started_at
        assert ["a"] == list(seen)
        assert ("r1", started, 0, 0, True) == (
            seen["a"].first_seen_run,
            seen["a"].first_seen_at,
            seen["a"].recurrences,
            seen["a"].returned,
            seen["a"].open,
        )
        assert {} == control.findings.seen("user-account/billing", ["a"])

    @pytest.mark.parametrize("id_", [LONG_ID, "a\0b", "\ud800"], ids=["long", "nul", "surrogate"])
    def test_an_id_that_no_index_holds_is_remembered(self, control: ControlStore, id_: str) -> None:
        """One of 8 kB, or with what a database takes for no text, beside those that are as ids are."""
        begin(control, "r1", "r2")
        for run_id in ("r1", "r2"):
            found = [(each, "missing", "skipped", None) for each in ("a", id_)]
            control.findings.record(run_id, LINK, found, complete=True, scope=["a", id_])
        seen = control.findings.seen(LINK, ["a", id_])
        assert {"a": 1, id_: 1} == {each: of.recurrences for each, of in seen.items()}
        assert id_ == seen[id_].aggregate_id

    def test_drift_that_comes_back_is_marked(self, control: ControlStore) -> None:
        """Four runs: open, still open, gone, back; the first sight of it is kept."""
        begin(control, "r1", "r2", "r3", "r4")
        told = []
        for run_id, ids in (("r1", "a"), ("r2", "a"), ("r3", ""), ("r4", "a")):
            control.findings.record(run_id, LINK, sightings(*ids), complete=True)
            seen = control.findings.seen(LINK, ["a"])["a"]
            told.append((seen.first_seen_run, seen.last_seen_run, seen.recurrences, seen.returned, seen.closed_by_run))
        assert [
            ("r1", "r1", 0, 0, None),
            ("r1", "r2", 1, 0, None),
            ("r1", "r2", 1, 0, "r3"),
            ("r1", "r4", 2, 1, None),
        ] == told

    def test_the_last_cause_counts(self, control: ControlStore) -> None:
        """A finding's difference and cause are those of its last sight."""
        begin(control, "r1", "r2")
        control.findings.record("r1", LINK, [("a", "changed", "skipped", "x")], complete=True)
        control.findings.record("r2", LINK, [("a", "missing", "foreign_write", "y")], complete=True)
        seen = control.findings.seen(LINK, ["a"])["a"]
        assert ("missing", "foreign_write") == (seen.difference, seen.cause)

    def test_an_incomplete_run_closes_nothing(self, control: ControlStore) -> None:
        """What it did not see, it may not have read."""
        begin(control, "r1", "r2")
        control.findings.record("r1", LINK, sightings("a", "b"), complete=True)
        drift = control.findings.record("r2", LINK, sightings("b"), complete=False)
        assert Drift(complete=False, opened=0, returned=0, closed=0, still_open=2) == drift

    def test_a_run_of_some_ids_closes_among_them(self, control: ControlStore) -> None:
        """What was not asked for stays as it is."""
        begin(control, "r1", "r2")
        control.findings.record("r1", LINK, sightings("a", "b", "c"), complete=True)
        drift = control.findings.record("r2", LINK, sightings("b"), complete=True, scope=["a", "b"])
        assert Drift(complete=True, opened=0, returned=0, closed=1, still_open=2) == drift
        assert "r2" == control.findings.seen(LINK, ["a"])["a"].closed_by_run

    def test_what_is_open_is_listed(self, control: ControlStore) -> None:
        """Of the links that are asked for, each id once."""
        begin(control, "r1", "r2")
        control.findings.record("r1", LINK, sightings("a", "b"), complete=True)
        control.findings.record("r1", "user-account/billing", sightings("b", "c"), complete=True)
        control.findings.record("r1", "user-account/other", sightings("d"), complete=True)
        control.findings.record("r2", LINK, sightings("b"), complete=True)
        assert ["b", "c"] == sorted(control.findings.open_ids([LINK, "user-account/billing"]))

    def test_links_are_apart(self, control: ControlStore) -> None:
        """One link's run closes nothing of another's."""
        begin(control, "r1")
        control.findings.record("r1", LINK, sightings("a"), complete=True)
        control.findings.record("r1", "user-account/billing", [], complete=True)
        assert control.findings.seen(LINK, ["a"])["a"].open

    def test_recording_again_counts_once(self, control: ControlStore) -> None:
        """A stage of a run that is done again says the same."""
        begin(control, "r1", "r2")
        control.findings.record("r1", LINK, sightings("a", "b"), complete=True)
        first = control.findings.record("r2", LINK, sightings("b", "c"), complete=True)
        assert first == control.findings.record("r2", LINK, sightings("b", "c"), complete=True)
        assert [1, 0] == [each.recurrences for each in control.findings.seen(LINK, ["b", "c"]).values()]

    def test_a_run_may_correct_itself(self, control: ControlStore) -> None:
        """What it closed and then does see is no return."""
        begin(control, "r1", "r2")
        control.findings.record("r1", LINK, sightings("a"), complete=True)
        control.findings.record("r2", LINK, [], complete=True)
        control.findings.record("r2", LINK, sightings("a"), complete=True)
        seen = control.findings.seen(LINK, ["a"])["a"]
        assert (True, 1, 0) == (seen.open, seen.recurrences, seen.returned)

    def test_an_older_run_does_not_overrule_a_newer_one(self, control: ControlStore) -> None:
        """The run that began later has read later, whichever is done first."""
        begin(control, "r0", "r1", "r2")
        control.findings.record("r0", LINK, sightings("a"), complete=True)
        control.findings.record("r2", LINK, sightings("b"), complete=True)
        drift = control.findings.record("r1", LINK, sightings("a"), complete=True)
        assert Drift(complete=True, opened=0, returned=0, closed=0, still_open=1) == drift
        assert (False, True) == tuple(each.open for each in control.findings.seen(LINK, ["a", "b"]).values())

    def test_an_id_that_is_told_twice_is_one_finding(self, control: ControlStore) -> None:
        """The first counts, also across batches."""
        begin(control, "r1")
        many = [*sightings("a"), *sightings(*map(str, range(6000))), Sighting("a", "missing", "expired")]
        assert 6001 == control.findings.record("r1", LINK, many, complete=True).still_open
        assert "changed" == control.findings.seen(LINK, ["a"])["a"].difference

    def test_findings_need_a_run(self, control: ControlStore) -> None:
        """The error says what to do."""
        with pytest.raises(RunNotBegunError, match="begin it first"):
            control.findings.record("r9", LINK, [], complete=True)

    def test_findings_that_break_off_change_nothing(self, control: ControlStore) -> None:
        """The former state stands, and the store can be used on."""

        def broken() -> Iterable[Sighting]:
            yield from sightings(*map(str, range(6000)))
            raise InterruptedError

        begin(control, "r1", "r2")
        control.findings.record("r1", LINK, sightings("a"), complete=True)
        with pytest.raises(InterruptedError):
            control.findings.record("r2", LINK, broken(), complete=True)
        assert ["a"] == list(control.findings.seen(LINK, ["a", "1"]))
        assert 1 == control.findings.record("r2", LINK, sightings("a"), complete=True).still_open

    def test_a_killed_process_leaves_the_former_state(
        self, control: ControlStore, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Killed after thousands of findings were taken in, it has changed nothing."""
        begin(control, "r1", "r2")
        control.findings.record("r1", LINK, sightings("a"), complete=True)
        monkeypatch.setenv("CONTROL_URL", url)
        done = subprocess.run([sys.executable, "-c", DYING], check=False, timeout=60)
        assert -signal.SIGKILL == done.returncode
        assert ["a"] == list(control.findings.seen(LINK, ["a", "1"]))
        assert 2 == control.findings.record("r2", LINK, sightings("a", "1"), complete=True).still_open

    def test_two_runs_may_record_at_once(self, control: ControlStore) -> None:
        """The newer one's word stands in the end."""
        begin(control, "r1", "r2")
        ids = [str(number) for number in range(6000)]
        with ThreadPoolExecutor() as pool:
            for future in [
                pool.submit(control.findings.record, "r1", LINK, sightings(*ids), complete=True),
                pool.submit(control.findings.record, "r2", LINK, sightings(*reversed(ids)), complete=True),
            ]:
                future.result()
        assert {"r2"} == {each.last_seen_run for each in control.findings.seen(LINK, ids).values()}

    def test_a_lease_is_renewed_while_findings_come(self, control: ControlStore) -> None:
        """Taking findings in holds nobody up before the last one has come."""
        begin(control, "r1")
        lease = control.leases.acquire("x", "me", MINUTE)

        def slow() -> Iterable[Sighting]:
            yield from sightings(*map(str, range(6000)))
            control.leases.renew(lease, MINUTE)
            yield from sightings("last")

        assert 6001 == control.findings.record("r1", LINK, slow(), complete=True).still_open


class LeasesBehaviour:
    """Each test takes `control`, an empty control store."""

    def test_a_lease_has_one_holder(self, control: ControlStore) -> None:
        """The second is told who holds it."""
        control.leases.acquire("x", "first", MINUTE)
        with pytest.raises(LeaseHeldError, match=r"first holds the lease x until .* UTC"):
            control.leases.acquire("x", "second", MINUTE)

    def test_the_same_name_is_no_second_key(self, control: ControlStore) -> None:
        """Two processes that call themselves alike do not share a lease."""
        control.leases.acquire("x", "same", MINUTE)
        with pytest.raises(LeaseHeldError):
            control.leases.acquire("x", "same", MINUTE)

    def test_a_released_lease_is_free(self, control: ControlStore) -> None:
        """The token of the next holder is higher."""
        first = control.leases.acquire("x", "first", MINUTE)
        control.leases.release(first)
        assert Lease("x", "second", first.token + 1) == control.leases.acquire("x", "second", MINUTE)

    def test_an_expired_lease_is_taken_over(self, control: ControlStore) -> None:
        """Its first holder is refused from then on, and can neither renew nor release it."""
        first = control.leases.acquire("x", "first", timedelta())
        second = control.leases.acquire("x", "second", MINUTE)
        for refused in (control.leases.require, lambda lease: control.leases.renew(lease, MINUTE)):
            with pytest.raises(LeaseLostError, match="first no longer holds the lease x: second took it over"):
                refused(first)
        control.leases.release(first)
        control.leases.require(second)

    def test_an_expired_lease_is_not_renewed(self, control: ControlStore) -> None:
        """Whoever let it expire acquires it anew."""
        lease = control.leases.acquire("x", "first", timedelta())
        with pytest.raises(LeaseLostError, match="it expired"):
            control.leases.renew(lease, MINUTE)

    def test_a_lease_is_lost_with_the_one_within_which_it_is_held(self, control: ControlStore) -> None:
        """Whoever lost a contract writes no corrections of its links either."""
        with (
            control.leases.hold("outer", "first", MINUTE) as outer,
            control.leases.hold("x", "first", MINUTE, outer) as inner,
        ):
            assert inner.lease == inner.require()
            outer._ended("somebody took it")
            assert inner.lost
            with pytest.raises(LeaseLostError, match="somebody took it"):
                inner.require()
        control.leases.acquire("x", "second", MINUTE)

    def test_leases_of_other_names_are_apart(self, control: ControlStore) -> None:
        """Each name has its own holder."""
        first, second = control.leases.acquire("x", "first", MINUTE), control.leases.acquire("y", "second", MINUTE)
        control.leases.require(first)
        control.leases.require(second)

    def test_of_many_at_once_one_gets_it(self, control: ControlStore) -> None:
        """The others are refused."""

        def attempt(number: int) -> bool:
            try:
                control.leases.acquire("x", str(number), MINUTE)
            except LeaseHeldError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert [False] * 7 + [True] == sorted(pool.map(attempt, range(8)))

    def test_a_held_lease_outlives_its_time(self, control: ControlStore) -> None:
        """It is renewed beside the work, and free afterwards."""
        renewed, renew = Event(), control.leases.renew

        def told(lease: Lease, ttl: timedelta) -> None:
            renew(lease, ttl)
            renewed.set()

        control.leases.renew = told  # type: ignore[method-assign]
        with control.leases.hold("x", "first", timedelta(seconds=3)) as held:
            assert renewed.wait(30)
            control.leases.require(held.require())
            assert not held.lost
        control.leases.acquire("x", "second", MINUTE)

    def test_a_holder_learns_that_its_lease_was_lost(self, control: ControlStore) -> None:
        """It may write nothing more, and what it leaves is not the new holder's."""
        with control.leases.hold("x", "first", SHORT) as held:
            renewing = renewal("x")
            control.leases.release(held.lease)
            second = control.leases.acquire("x", "second", MINUTE)
            renewing.join(30)
            with pytest.raises(LeaseLostError, match="first no longer holds the lease x"):
                held.require()
        control.leases.require(second)

    def test_a_holder_that_cannot_renew_gives_up(self, control: ControlStore) -> None:
        """A store that does not answer is asked again until the time is over, and no longer."""
        asked: list[float] = []
        enough = Event()

        def unanswered(lease: Lease, ttl: timedelta) -> None:
            asked.append(time.monotonic())
            if len(asked) > 4:
                enough.set()
            raise ControlUnreachableError("no answer")

        control.leases.renew = unanswered  # type: ignore[method-assign]
        with control.leases.hold("x", "first", SHORT) as held:
            assert enough.wait(30)
            with pytest.raises(LeaseLostError, match="it could not be renewed in time"):
                held.require()
        control.leases.acquire("x", "second", MINUTE)


class CorrectionsBehaviour:
    """Each test takes `control`, an empty control store."""

    def test_an_intent_is_pending(self, control: ControlStore) -> None:
        """It is there before anything is emitted."""
        begin(control, "r1")
        control.corrections.intend(control.leases.acquire(LINK, "me", MINUTE), [intent(1)])
        (found,) = pending(control)
        times = found.intended_at, found.changed_at
        assert CorrectionRecord("c1", LINK, "1", 1, 0, "r1", CorrectionState.INTENDED, None, None, *times) == found

    def test_intending_again_takes_nothing_back(self, control: ControlStore) -> None:
        """A resumed emission finds what it had emitted."""
        begin(control, "r1")
        lease = emitted(control, 1)
        control.corrections.intend(lease, [intent(1), intent(2)])
        assert {"c1": CorrectionState.EMITTED, "c2": CorrectionState.INTENDED} == states(control)

    def test_a_correction_may_need_two_partitions(self, control: ControlStore) -> None:
        """Each of its records has a place of its own."""
        begin(control, "r1")
        lease = control.leases.acquire(LINK, "me", MINUTE)
        control.corrections.intend(lease, [intent(1, partition=0), intent(1, partition=3)])
        control.corrections.mark_emitted(lease, "r1", [Emitted("c1", 3, 9)])
        found = [(each.partition, each.state, each.offset) for each in pending(control)]
        assert [(0, CorrectionState.INTENDED, None), (3, CorrectionState.EMITTED, 9)] == found

    @pytest.mark.parametrize(
        "outcome",
        [
            CorrectionState.CONVERGED,
            CorrectionState.PARTIAL,
            CorrectionState.SUPERSEDED,
            CorrectionState.REFUSED,
        ],
    )
    def test_a_verified_correction_has_ended(self, control: ControlStore, outcome: VerifiedState) -> None:
        """It is not pending, and saying so again changes nothing."""
        begin(control, "r1")
        lease = emitted(control, 1)
        for _ in range(2):
            control.corrections.mark_verified(lease, "r1", [CorrectionOutcome("c1", outcome, "because")])
        assert ([], {"c1": outcome}) == (pending(control), states(control))

    def test_an_unverified_correction_may_be_verified_later(self, control: ControlStore) -> None:
        """It is pending until then."""
        begin(control, "r1")
        lease = emitted(control, 1)
        control.corrections.mark_verified(lease, "r1", [CorrectionOutcome("c1", CorrectionState.UNVERIFIED)])
        assert [CorrectionState.UNVERIFIED] == [each.state for each in pending(control)]
        control.corrections.mark_verified(lease, "r1", [converged(1)])
        assert {"c1": CorrectionState.CONVERGED} == states(control)

    def test_a_dropped_correction_keeps_its_reason(self, control: ControlStore) -> None:
        """It is not pending."""
        begin(control, "r1")
        lease = control.leases.acquire(LINK, "me", MINUTE)
        control.corrections.intend(lease, [intent(1)])
        control.corrections.mark_dropped(lease, "r1", [Dropped("c1", "a newer event")])
        (found,) = control.corrections.of_run(LINK, "r1")
        assert (CorrectionState.DROPPED, "a newer event", []) == (
            found.state,
            found.reason,
            pending(control),
        )

    def test_what_is_emitted_cannot_be_dropped(self, control: ControlStore) -> None:
        """A call that cannot hold as a whole changes nothing."""
        begin(control, "r1")
        lease = emitted(control, 1)
        control.corrections.intend(lease, [intent(2)])
        with pytest.raises(CorrectionStateError, match="c1 of the run r1 is emitted at the offset 7 in the partition"):
            control.corrections.mark_dropped(lease, "r1", [Dropped("c2", "x"), Dropped("c1", "x")])
        assert {"c1": CorrectionState.EMITTED, "c2": CorrectionState.INTENDED} == states(control)

    def test_what_is_emitted_stays_where_it_is(self, control: ControlStore) -> None:
        """The same place again changes nothing, another one is an error."""
        begin(control, "r1")
        lease = emitted(control, 1)
        control.corrections.mark_emitted(lease, "r1", [Emitted("c1", 0, 7)])
        with pytest.raises(CorrectionStateError, match="cannot become emitted at the offset 8"):
            control.corrections.mark_emitted(lease, "r1", [Emitted("c1", 0, 8)])

    def test_what_was_emitted_is_known_by_its_place(self, control: ControlStore) -> None:
        """Whatever run and link asks; what was only intended stands nowhere."""
        begin(control, "r1")
        lease = emitted(control, 1)
        control.corrections.intend(lease, [intent(2)])
        assert {("1", 0, 7)} == control.corrections.places([LINK, "another"])
        assert not control.corrections.places(["another"])
        assert not control.corrections.places([])

    def test_what_was_not_intended_is_not_emitted(self, control: ControlStore) -> None:
        """Nor is it in a partition that was not."""
        begin(control, "r1")
        lease = control.leases.acquire(LINK, "me", MINUTE)
        control.corrections.intend(lease, [intent(1)])
        with pytest.raises(CorrectionStateError, match="never intended the correction c1 in the partition 5"):
            control.corrections.mark_emitted(lease, "r1", [Emitted("c1", 5, 1)])

    def test_what_was_not_emitted_is_not_verified(self, control: ControlStore) -> None:
        """Intending is not enough."""
        begin(control, "r1")
        lease = control.leases.acquire(LINK, "me", MINUTE)
        control.corrections.intend(lease, [intent(1)])
        with pytest.raises(CorrectionStateError, match="is intended in the partition 0, and cannot become converged"):
            control.corrections.mark_verified(lease, "r1", [converged(1)])

    def test_the_first_holder_of_a_lease_taken_over_writes_nothing(self, control: ControlStore) -> None:
        """Not one of its calls gets through."""
        begin(control, "r1")
        first = control.leases.acquire(LINK, "first", MINUTE)
        control.corrections.intend(first, [intent(1)])
        control.leases.release(first)
        control.leases.acquire(LINK, "second", MINUTE)
        writing: list[Callable[[], None]] = [
            lambda: control.corrections.intend(first, [intent(2)]),
            lambda: control.corrections.mark_emitted(first, "r1", [Emitted("c1", 0, 7)]),
            lambda: control.corrections.mark_verified(first, "r1", [converged(1)]),
            lambda: control.corrections.mark_dropped(first, "r1", [Dropped("c1", "x")]),
        ]
        for refused in writing:
            with pytest.raises(LeaseLostError, match="second took it over"):
                refused()
        assert {"c1": CorrectionState.INTENDED} == states(control)

    def test_a_lease_is_one_for_its_link(self, control: ControlStore) -> None:
        """Another link's corrections are not its holder's."""
        begin(control, "r1")
        with pytest.raises(RefusedError, match="acquire the lease user-account/billing"):
            control.corrections.intend(
                control.leases.acquire(LINK, "me", MINUTE), [intent(1, link="user-account/billing")]
            )

    def test_runs_are_apart(self, control: ControlStore) -> None:
        """A correction that is needed once more is emitted once more."""
        begin(control, "r1", "r2")
        lease = emitted(control, 1)
        control.corrections.mark_verified(lease, "r1", [converged(1)])
        control.corrections.intend(lease, [intent(1, "r2")])
        assert ({"c1": CorrectionState.CONVERGED}, {"c1": CorrectionState.INTENDED}) == (
            states(control),
            states(control, "r2"),
        )

    def test_intents_need_a_run(self, control: ControlStore) -> None:
        """The error says what to do."""
        with pytest.raises(RunNotBegunError, match="begin it first"):
            control.corrections.intend(control.leases.acquire(LINK, "me", MINUTE), [intent(1, "r9")])

    def test_a_repaired_finding_is_closed(self, control: ControlStore) -> None:
        """It says which correction did it."""
        begin(control, "r1")
        control.findings.record("r1", LINK, sightings("1", "2"), complete=True)
        control.corrections.mark_verified(emitted(control, 1), "r1", [converged(1)])
        found = control.findings.seen(LINK, ["1", "2"])
        assert [(False, "r1", "c1"), (True, None, None)] == [
            (each.open, each.closed_by_run, each.repaired_by) for each in (found["1"], found["2"])
        ]

    def test_a_partial_correction_leaves_its_finding_open(self, control: ControlStore) -> None:
        """The copy still differs; the fields are kept by their names."""
        begin(control, "r1")
        control.findings.record("r1", LINK, sightings("1"), complete=True)
        outcome = CorrectionOutcome("c1", CorrectionState.PARTIAL, "why", ("balance", "le vel"))
        control.corrections.mark_verified(emitted(control, 1), "r1", [outcome])
        assert control.findings.seen(LINK, ["1"])["1"].open
        assert [("balance", "le vel")] == [each.differing for each in control.corrections.of_run(LINK, "r1")]

    def test_repaired_drift_that_comes_back_is_marked(self, control: ControlStore) -> None:
        """It still says which correction had repaired it; repeating its verification does not close it."""
        begin(control, "r1")
        control.findings.record("r1", LINK, sightings("1"), complete=True)
        lease = emitted(control, 1)
        control.corrections.mark_verified(lease, "r1", [converged(1)])
        begin(control, "r2")
        control.findings.record("r2", LINK, sightings("1"), complete=True)
        control.corrections.mark_verified(lease, "r1", [converged(1)])
        found = control.findings.seen(LINK, ["1"])["1"]
        assert (True, 1, "c1") == (found.open, found.returned, found.repaired_by)

    def test_a_run_that_read_before_the_repair_does_not_reopen(self, control: ControlStore) -> None:
        """What it saw is older than the repair."""
        begin(control, "r1", "r2")
        control.findings.record("r1", LINK, sightings("1"), complete=True)
        control.corrections.mark_verified(emitted(control, 1), "r1", [converged(1)])
        control.findings.record("r2", LINK, sightings("1"), complete=True)
        assert not control.findings.seen(LINK, ["1"])["1"].open

    def test_thousands_of_corrections_are_taken(self, control: ControlStore) -> None:
        """More than one batch, in every state."""
        begin(control, "r1")
        lease = control.leases.acquire(LINK, "me", MINUTE)
        control.corrections.intend(lease, (intent(number) for number in range(6000)))
        control.corrections.mark_emitted(lease, "r1", (Emitted(f"c{number}", 0, number) for number in range(6000)))
        control.corrections.mark_verified(lease, "r1", (converged(number) for number in range(6000)))
        assert {CorrectionState.CONVERGED} == set(states(control).values())


class ApprovalsBehaviour:
    """Each test takes `control`, an empty control store."""

    def test_an_approval_is_kept_by_the_database_s_clock(self, control: ControlStore) -> None:
        """Who, by what way, and of which plan."""
        begin(control, "r1")
        kept_one = control.approvals.keep("r1", "p", replace(ALICE, sudo_user="carol"))
        assert ("r1", "p", Actor("alice", "cli", "carol")) == (kept_one.run_id, kept_one.plan_digest, kept_one.approver)
        assert abs(datetime.now(UTC) - kept_one.approved_at) < MINUTE
        assert [kept_one] == control.approvals.of_run("r1")

    def test_approving_again_changes_nothing(self, control: ControlStore) -> None:
        """The first time counts."""
        begin(control, "r1")
        assert control.approvals.keep("r1", "p", ALICE) == control.approvals.keep("r1", "p", ALICE)
        assert 1 == len(control.approvals.of_run("r1"))

    def test_each_person_plan_and_way_has_an_approval(self, control: ControlStore) -> None:
        """Those of another run are apart."""
        begin(control, "r1", "r2")
        control.approvals.keep("r2", "p", ALICE)
        given = [("p", ALICE), ("p", BOB), ("q", ALICE), ("p", replace(ALICE, way="airflow"))]
        for digest, approver in given:
            control.approvals.keep("r1", digest, approver)
        assert sorted(map(str, given)) == sorted(
            str((each.plan_digest, each.approver)) for each in control.approvals.of_run("r1")
        )

    def test_an_approval_needs_a_run(self, control: ControlStore) -> None:
        """The error says what to do."""
        with pytest.raises(RunNotBegunError, match="knows no run r9: begin it first"):
            control.approvals.keep("r9", "p", ALICE)


class RequestsBehaviour:
    """Each test takes `control`, an empty control store."""

    def test_requests_are_claimed_in_their_order(self, control: ControlStore) -> None:
        """One at a time for each holder; None when nothing is left."""
        control.requests.queue("q1", "user-account", ["a", "b"], "full", apply=True)
        control.requests.queue("q2", "user-balance")
        first, second = control.requests.claim("h1"), control.requests.claim("h2")
        assert first is not None
        assert second is not None
        assert ("q1", "user-account", ("a", "b"), "full", True, "running", "h1") == (
            *(first.id, first.contract, first.ids, first.mode, first.apply, first.state, first.holder),
        )
        assert ("q2", None) == (second.id, control.requests.claim("h3"))

    def test_a_holder_gets_its_own_again(self, control: ControlStore) -> None:
        """Whoever starts again goes on with what it had."""
        control.requests.queue("q1", "user-account")
        control.requests.queue("q2", "user-balance")
        assert control.requests.claim("h") == control.requests.claim("h") is not None

    def test_equal_requests_are_claimed_and_done_together(self, control: ControlStore) -> None:
        """One run answers them; what asks for something else waits."""
        control.requests.queue("q1", "user-account", ["a"])
        control.requests.queue("q2", "user-account", ["a"], requester=ALICE)
        control.requests.queue("q3", "user-account", ["b"])
        control.requests.queue("q4", "user-account", ["a"], apply=True)
        first, second, third = (control.requests.claim(holder) for holder in ("h1", "h2", "h3"))
        assert ["q1", "q3", "q4"] == [each.id for each in (first, second, third) if each is not None]
        control.requests.finish("q1", "r1")
        states = [control.requests.find(each) for each in ("q1", "q2", "q3", "q4")]
        assert ["r1", "r1", None, None] == [each.run_id for each in states]
        assert ["done", "done", "running", "running"] == [each.state for each in states]

    def test_corrections_are_asked_for_by_one_person_alone(self, control: ControlStore) -> None:
        """Who asked may not approve, so that two people's requests stay two."""
        control.requests.queue("q1", "user-account", apply=True, requester=ALICE)
        control.requests.queue("q2", "user-account", apply=True, requester=CAROL)
        first, second = control.requests.claim("h1"), control.requests.claim("h2")
        assert first is not None
        assert second is not None
        assert (ALICE, CAROL) == (first.requester, second.requester)

    def test_equal_requests_are_claimed_by_many_at_once(self, control: ControlStore) -> None:
        """Each is somebody's, and nobody waits for another for ever."""
        for number in range(12):
            control.requests.queue(f"q{number:02}", "user-account")
        with ThreadPoolExecutor(4) as pool:
            claimed = list(pool.map(lambda number: control.requests.claim(f"h{number}"), range(12)))
        for each in filter(None, claimed):
            control.requests.finish(each.id, "r1")
        assert {"done"} == {control.requests.find(f"q{number:02}").state for number in range(12)}

    def test_so_many_requests_wait_at_most(self, control: ControlStore) -> None:
        """Of a contract, and of one requester for it; those that are done count no more."""

        def queue(each: str, contract: str = "user-account", requester: Actor = REQUEST_TOPIC) -> None:
            control.requests.queue(each, contract, requester=requester, most=3, most_of_one=2)

        for each in ("q1", "q2", "q2"):
            queue(each)
        with pytest.raises(TooManyRequestsError, match="2 requests of the request topic"):
            queue("q3")
        queue("q3", "user-balance")
        queue("q4", requester=ALICE)
        with pytest.raises(TooManyRequestsError, match="3 requests for user-account"):
            queue("q5", requester=CAROL)
        control.requests.finish("q1", None)
        queue("q5", requester=CAROL)

    def test_a_finished_request_names_its_run(self, control: ControlStore) -> None:
        """The first to finish it counts."""
        control.requests.queue("q1", "user-account")
        control.requests.claim("h")
        done = control.requests.finish("q1", "r1")
        assert ("done", "r1") == (done.state, done.run_id)
        assert done == control.requests.finish("q1", "r2")
        assert None is control.requests.claim("h")

    def test_a_request_that_is_delivered_again_is_one(self, control: ControlStore) -> None:
        """It is not run twice."""
        first = control.requests.queue("q1", "user-account", ["a"])
        assert first == control.requests.queue("q1", "user-account", ["a"])

    def test_a_request_keeps_who_asked(self, control: ControlStore) -> None:
        """The first to ask; a record alone names nobody."""
        control.requests.queue("q1", "user-account", requester=ALICE)
        control.requests.queue("q1", "user-account")
        control.requests.queue("q2", "user-account")
        assert (ALICE, REQUEST_TOPIC) == (control.requests.find("q1").requester, control.requests.find("q2").requester)

    def test_an_id_is_one_request_s(self, control: ControlStore) -> None:
        """The error says what is different."""
        control.requests.queue("q1", "user-account", ["a"])
        with pytest.raises(RequestConflictError, match='the request "q1" is there, with another ids and apply'):
            control.requests.queue("q1", "user-account", ["b"], apply=True)

    def test_a_request_can_be_given_back(self, control: ControlStore) -> None:
        """Another holder gets it, when the first is gone."""
        control.requests.queue("q1", "user-account")
        control.requests.claim("gone")
        assert ("queued", None) == ((back := control.requests.requeue("q1")).state, back.holder)
        assert (claimed := control.requests.claim("h")) is not None
        assert "h" == claimed.holder

    def test_an_unknown_request_is_told(self, control: ControlStore) -> None:
        """The error says what to do."""
        with pytest.raises(UnknownRequestError, match='knows no request "q9": queue it first'):
            control.requests.finish("q9", "r1")

    def test_nobody_gets_what_another_has(self, control: ControlStore) -> None:
        """Many holders at once, each request once."""
        for number in range(12):
            control.requests.queue(f"q{number:02}", "user-account", [str(number)])
        with ThreadPoolExecutor(4) as pool:
            claimed = list(pool.map(lambda number: control.requests.claim(f"h{number}"), range(12)))
        assert [f"q{number:02}" for number in range(12)] == sorted(each.id for each in claimed if each)


class DistributionsBehaviour:
    """How values were distributed, run by run."""

    def test_what_is_recorded_is_read_up_to_a_run(self, control: ControlStore) -> None:
        """The newest of those that began before it and itself, oldest first; the last word of a run counts."""
        begin(control, "r1", "r2", "r3", "r4")
        fields = FieldDistribution("a", 0.5, (1.0, 2.5), None), FieldDistribution("b", 0.0, None, {"x": 0.25})
        sides: dict[Side, Distribution] = {"source": Distribution(7, 5, fields), "copy": Distribution(8, 5, ())}
        control.distributions.record("r1", LINK, sides)
        control.distributions.record("r2", LINK, {"source": Distribution(1, 1, ())})
        for each in ("r2", "r4"):
            control.distributions.record(each, LINK, sides)
        control.distributions.record("r3", "user-account/billing", sides)
        assert [("r1", sides), ("r2", sides)] == [
            (each.run_id, each.sides) for each in control.distributions.until(LINK, "r3", 9)
        ]
        assert ["r2", "r4"] == [each.run_id for each in control.distributions.until(LINK, "r4", 2)]
        assert [] == control.distributions.until(LINK, "r9", 2)

    def test_a_run_that_has_not_begun_is_told(self, control: ControlStore) -> None:
        """As for anything that is recorded of a run."""
        with pytest.raises(RunNotBegunError):
            control.distributions.record("r9", LINK, {})


class RetentionBehaviour:
    """What goes out of the store."""

    def test_old_rows_go(self, control: ControlStore) -> None:
        """Closed findings, answered requests, and runs with their drift and approvals."""
        begin(control, "r1", "r2")
        control.findings.record("r1", LINK, sightings("a", "b"), complete=True)
        control.findings.record("r2", LINK, sightings("b"), complete=True)
        control.distributions.record("r1", LINK, {"copy": Distribution(1, 1, ())})
        control.approvals.keep("r1", "p", ALICE)
        control.requests.queue("q1", "user-account", ["a"])
        control.requests.finish("q1", "r1")
        control.requests.queue("q2", "user-account", ["a"])
        expected = {"finding": 1, "request": 1, "correction": 0, "drift": 1, "distribution": 1, "approval": 1, "run": 1}
        for dry_run in (True, False):
            assert expected == control.retention.prune(timedelta(), {"r2"}, 0, dry_run=dry_run)
        assert {"b"} == control.findings.seen(LINK, ["a", "b"]).keys()
        assert "queued" == control.requests.find("q2").state
        with pytest.raises(RunNotBegunError):
            control.runs.find("r1")
        assert not any(control.retention.prune(timedelta(), {"r2"}, 0, dry_run=False).values())

    def test_what_is_younger_stays(self, control: ControlStore) -> None:
        """By the database's clock."""
        begin(control, "r1")
        assert not any(control.retention.prune(MINUTE, (), 0, dry_run=False).values())

    def test_emitted_corrections_stay_with_their_runs(self, control: ControlStore) -> None:
        """By them the audit knows our own records in a topic."""
        begin(control, "r1")
        emitted(control, 1)
        assert not any(control.retention.prune(timedelta(), (), 0, dry_run=False).values())
        assert 1 == len(control.corrections.places([LINK]))

    def test_the_trend_stays(self, control: ControlStore) -> None:
        """As many runs of each contract as are shown."""
        begin(control, "r1", "r2", "r3")
        for each in ("r1", "r2", "r3"):
            control.runs.end(each, complete=True, exit_code=0, links=[figures()])
        assert 1 == control.retention.prune(timedelta(), (), 2, dry_run=False)["run"]
        assert ["r2", "r3"] == [each.run_id for each in control.runs.history("user-account")]

    def test_runs_that_go_on_are_known(self, control: ControlStore) -> None:
        """By their leases, and because they have not ended."""
        begin(control, "r1", "r2")
        control.runs.end("r2", complete=True, exit_code=0, links=[])
        assert {"r1"} == control.retention.going_on()
        with control.leases.hold_contract("user-account", "r0"):
            assert {"r0", "r1"} == control.retention.going_on()
        assert {"r1"} == control.retention.going_on()

    def test_an_aggregate_is_forgotten(self, control: ControlStore) -> None:
        """On the links of its contract, with what was asked of it; all else stays."""
        begin(control, "r1")
        control.findings.record("r1", LINK, sightings("a", LONG_ID, "b"), complete=True)
        control.findings.record("r1", "other/link", sightings("a"), complete=True)
        control.requests.queue("q1", "user-account", ["a"])
        control.requests.queue("q2", "user-account", ["a", "b"])
        control.requests.queue("q3", "other", ["a"])
        wanted = ([LINK], "user-account", ["a", LONG_ID])
        expected = {"finding": 2, "correction": 0, "request": 2}
        assert expected == control.retention.known(*wanted)
        assert expected == control.retention.forget(*wanted)
        assert dict.fromkeys(expected, 0) == control.retention.known(*wanted)
        assert {"b"} == control.findings.seen(LINK, ["a", LONG_ID, "b"]).keys()
        assert {"a"} == control.findings.seen("other/link", ["a"]).keys()
        assert (("b",), ("a",)) == (control.requests.find("q2").ids, control.requests.find("q3").ids)
        with pytest.raises(UnknownRequestError):
            control.requests.find("q1")


class MigrationBehaviour:
    """Each test takes `url`, the address of an empty database, which CONTROL_URL holds too."""

    def test_the_schema_is_the_program_s(self, url: str) -> None:
        """Tables and columns are those that the program writes, and no others."""
        with open_control(settings()):
            pass
        engine = database(url)
        found = inspect(engine)
        stands = {
            table: [(column["name"], column["nullable"]) for column in found.get_columns(table)]
            for table in found.get_table_names()
        }
        keys = {table: found.get_pk_constraint(table)["constrained_columns"] for table in stands}
        engine.dispose()
        assert {
            name: [(column.name, bool(column.nullable)) for column in table.columns]
            for name, table in tables.tables.items()
        } == stands
        assert {name: {column.name for column in table.primary_key} for name, table in tables.tables.items()} == {
            name: set(columns) for name, columns in keys.items()
        }

    def test_opening_again_changes_nothing(self, url: str) -> None:
        """Each migration is applied once, and what is kept stays."""
        with open_control(settings()) as control:
            first = kept(control, "r1")
        with open_control(settings()) as control:
            assert first == kept(control, "r1")
        assert list(range(1, len(migrations()) + 1)) == applied(url)

    def test_corrections_of_before_the_newest_schema_are_kept(self, url: str) -> None:
        """Their table is made anew, with what it holds."""
        address = settings().control_address()
        assert address is not None
        before = connect(address)
        migrate(before, migrations()[:5])
        before.close()
        engine = database(url)
        at = "'2026-01-01 00:00:00.000000'"
        with engine.begin() as connection:
            connection.execute(
                text(
                    f"insert into run (id, contract, contract_digest, started_at, links)"
                    f" values ('r1', 'c', 'd', {at}, '[]')"
                )
            )
            connection.execute(
                text(
                    f"insert into correction values"
                    f" ('c1', 'r1', 3, '{LINK}', '1', 5, 'refused', 9, 'why', 1, {at}, {at})"
                )
            )
        engine.dispose()
        with open_control(settings()) as control:
            (found,) = control.corrections.of_run(LINK, "r1")
        assert (CorrectionState.REFUSED, 3, 9, "why", ()) == (
            found.state,
            found.partition,
            found.offset,
            found.reason,
            found.differing,
        )

    def test_processes_may_migrate_at_once(self, url: str) -> None:
        """Each of them finds the whole schema."""
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", OPENER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )
            for _ in range(2)
        ]
        for process in processes:
            assert process.stdout is not None
            assert "ready\n" == process.stdout.readline()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
        told = [(process.communicate(timeout=60)[0], process.returncode) for process in processes]
        assert [("0\n", 0), ("0\n", 0)] == told
        assert list(range(1, len(migrations()) + 1)) == applied(url)

    def test_a_newer_schema_is_refused(self, url: str) -> None:
        """The error says what is known and what to do."""
        with open_control(settings()):
            pass
        engine = database(url)
        with engine.begin() as connection:
            connection.execute(text("insert into schema_migration values (99, 'later', '2026-01-01 00:00:00.000000')"))
        engine.dispose()
        with pytest.raises(NewerSchemaError, match="has the schema 99, and this program knows 8"):
            open_control(settings()).__enter__()
