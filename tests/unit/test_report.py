"""The result model of a run."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reconcile.contract.model import load_contract
from reconcile.domain.cause import Cause
from reconcile.domain.finding import Difference, Evidence, FieldDifference, Finding, Hop, Status
from reconcile.errors import RefusedError
from reconcile.gather.fence.nature import SourceNature
from reconcile.pipeline.handoffs import Fence
from reconcile.pipeline.result import MOMENTS, report_of
from reconcile.pipeline.story import HIDDEN
from reconcile.pipeline.verdict import verdict
from reconcile.report.model import Count, FieldCount, Flow, Level, LinkResult, Report
from reconcile.settings.settings import Settings
from tests.unit import report_runs
from tests.unit.handoffs import fence
from tests.unit.report_runs import AT, CONTRACT, LINK, case, contract_file, finding, made_run


def report(folder: Path, *findings: Finding, shown: int = 500, **made: object) -> Report:
    """Give the report of a run with these findings."""
    place, run = made_run(folder / "runs", findings, **made)  # type: ignore[arg-type]
    return report_of(run, place, Settings(workspace=place.root), shown=shown)


def test_a_copy_without_findings_agrees(tmp_path: Path) -> None:
    """The verdict comes first, and says so."""
    told = report(tmp_path)
    assert (Level.AGREES, "The copy agrees with the source") == (told.level, told.verdict)


def test_drift_is_told_in_figures(tmp_path: Path) -> None:
    """How many differ, of how many."""
    told = report(tmp_path, finding("a"), finding("b"))
    assert (Level.DRIFT, "The copy has drifted: 2 of 1,000 aggregates differ") == (told.level, told.verdict)


def test_drift_within_tolerance_is_not_called_agreement(tmp_path: Path) -> None:
    """An exit code of 0 with drift is no agreement."""
    place, run = made_run(tmp_path / "runs", [finding()], exit_code=0)
    told = report_of(run, place, Settings(workspace=place.root))
    assert (Level.TOLERATED, "The copy agrees within the contract's tolerance") == (told.level, told.verdict)


def test_a_source_that_may_show_less_than_there_is_gets_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It limits what is certain."""
    nature = SourceNature(proven_primary=False, limits=("user-db is a replica: it may be behind its primary",))

    def limited(**made: Any) -> Fence:
        known = fence(**made)
        return replace(known, source=replace(known.source, nature=nature))

    monkeypatch.setattr(report_runs, "fence", limited)
    assert any("may exist all the same: user-db is a replica" in each for each in report(tmp_path).notes)


def test_what_could_not_be_read_is_no_agreement(tmp_path: Path) -> None:
    """A link that was not read has no figures, and its message stands in its place."""
    told = report(tmp_path, unread={LINK: "the store does not answer"})
    assert Level.UNKNOWN == told.level
    assert [(Level.UNKNOWN, "the store does not answer")] == [(each.level, each.message) for each in told.links]
    assert "login could not be compared with the source" == told.verdict


def test_causes_stand_by_their_hops(tmp_path: Path) -> None:
    """Hops come in the order of the data's way, and the unknown one last."""
    lost = {"cause": Cause.NEVER_PUBLISHED, "hop": Hop.SOURCE_TO_LOG}
    told = report(
        tmp_path, finding("a"), finding("b", **lost), finding("c"), finding("d", cause=Cause.EXPIRED, hop=None)
    )
    expected = (
        Flow(Hop.SOURCE_TO_LOG, "never_published", 1),
        Flow(Hop.LOG_TO_CONSUMER, "skipped", 2),
        Flow(None, "expired", 1),
    )
    assert expected == told.flows


def test_ages_are_counted_at_the_instant_of_the_run(tmp_path: Path) -> None:
    """Not at the instant of the rendering: a past run renders as it was."""
    told = report(tmp_path, finding("a"), finding("b", since=AT - timedelta(seconds=9)), finding("c", since=None))
    counted = {each.name: each.number for each in told.ages if each.number}
    assert {"under a minute": 1, "under a week": 1, "not known": 1} == counted


def test_what_is_in_flight_is_shown_and_not_counted(tmp_path: Path) -> None:
    """It is no drift."""
    told = report(tmp_path, finding(status=Status.IN_FLIGHT, cause=Cause.IN_FLIGHT))
    assert (1, (), "The copy agrees with the source") == (told.total, told.flows, told.verdict)


def test_fields_are_counted(tmp_path: Path) -> None:
    """The most frequent first."""
    both = (FieldDifference("email", "a", "b"), FieldDifference("phone", None, ""))
    told = report(tmp_path, finding("a", fields=both), finding("b", fields=both[:1]))
    assert (FieldCount(LINK, "email", 2), FieldCount(LINK, "phone", 1)) == told.fields


def test_the_partition_is_that_of_the_first_evidence_in_the_topic(tmp_path: Path) -> None:
    """Partitions of other topics do not count."""
    parked = Evidence("retry", 'a note that says "topic": "user-account", "partition": 9', "user-account.retry", 0, 4)
    event = Evidence("event", "the copy lacks it", "user-account", 7, 20)
    told = report(tmp_path, finding("a", evidence=(parked, event)), finding("b", evidence=(parked,)))
    assert [("skipped", {7: 1})] == [
        (row.cause, {place: number for place, number in enumerate(row.numbers) if number}) for row in told.heat.rows
    ]
    assert 1 == told.heat.elsewhere


def test_a_hand_edit_lies_in_no_partition(tmp_path: Path) -> None:
    """Its evidence names records, which somebody wrote over in the copy."""
    told = report(tmp_path, finding("a"), finding("b", cause=Cause.FOREIGN_WRITE, hop=Hop.CONSUMER))
    assert (["skipped"], 1) == ([each.cause for each in told.heat.rows], told.heat.elsewhere)


def test_the_oldest_drift_is_since_when_it_stands(tmp_path: Path) -> None:
    """Latent findings are no drift yet."""
    older = finding("b", difference=Difference.LATENT, since=AT - timedelta(days=30))
    told = report(tmp_path, finding("a"), older)
    assert AT - timedelta(days=2) == told.links[0].oldest


def test_the_most_affected_come_first(tmp_path: Path) -> None:
    """Drift before what may become it, and what has stood longest before the rest."""
    old, new = finding("old", since=AT - timedelta(days=9)), finding("new")
    latent = finding("latent", difference=Difference.LATENT, since=AT - timedelta(days=90))
    told = report(tmp_path, new, latent, old)
    assert ["old", "new", "latent"] == [each.finding.aggregate_id for each in told.shown]


def test_a_rare_cause_is_shown_among_many_of_another(tmp_path: Path) -> None:
    """However much worse the many are."""
    many = [finding(f"m{number:04d}", since=AT - timedelta(days=50)) for number in range(700)]
    rare = finding("rare", cause=Cause.PHANTOM, hop=Hop.CONSUMER, since=None)
    told = report(tmp_path, *many, rare, shown=10)
    assert (10, 701) == (len(told.shown), told.total)
    assert "rare" in [each.finding.aggregate_id for each in told.shown]


def test_findings_that_are_alike_are_all_shown(tmp_path: Path) -> None:
    """Rows without an id have nothing to tell them apart."""
    assert 3 == len(report(tmp_path, *[finding(None)] * 3).shown)


def test_sensitive_values_are_hidden(tmp_path: Path) -> None:
    """Both in what the findings say and in the stories."""
    file = contract_file(tmp_path)
    apart = finding("u1", fields=(FieldDifference("email", "zoe@example.org", "old@example.org"),))
    place, run = made_run(tmp_path / "runs", [apart], [case("u1")], contract=file)
    told = report_of(run, place, Settings(workspace=place.root), load_contract(file))
    assert (FieldDifference("email", HIDDEN, HIDDEN),) == told.shown[0].finding.fields
    assert "example.org" not in repr(told)
    assert "Zoiee" in repr(told)


def test_hashes_of_hidden_values_are_hidden_too(tmp_path: Path) -> None:
    """The audit has put them there; they mean nothing to a reader."""
    told = report(tmp_path, finding(fields=(FieldDifference("email", "sha256:0123456789abcdef", None),)))
    assert (FieldDifference("email", HIDDEN, None),) == told.shown[0].finding.fields


@pytest.mark.parametrize("change", ["gone", "changed", "the same"])
def test_stories_of_a_run_that_did_not_name_its_fields_show_no_values(tmp_path: Path, change: str) -> None:
    """Nobody knows which value was whose."""
    file = contract_file(tmp_path)
    place, run = made_run(tmp_path / "runs", [finding("u1")], [case("u1")], contract=file, named=False)
    other = None if change == "gone" else load_contract(file)
    if change == "changed":
        other = load_contract(contract_file(tmp_path, CONTRACT.replace("policy: ignore", "policy: block")))
    told = report_of(run, place, Settings(workspace=place.root), other)
    story = told.shown[0].story
    assert story is not None
    assert "Zoey" not in repr(story)
    assert "example.org" not in repr(story)
    assert [True] == [note.startswith("This run did not keep the names of its fields") for note in told.notes]


NOW = {
    "gone": None,
    "unrelated": CONTRACT.replace("policy: ignore", "policy: block"),
    "reordered": "\n".join([*(lines := CONTRACT.splitlines())[:-3], lines[-2], lines[-3], lines[-1], ""]),
    "longer": CONTRACT.replace(
        "    failure:", "      - {name: city, source: city, consumer: city, event: $.city}\n    failure:"
    ),
    "open": CONTRACT.replace(", sensitive: true", ""),
}


@pytest.mark.parametrize("change", NOW)
def test_stories_keep_the_names_that_their_run_was_made_with(tmp_path: Path, change: str) -> None:
    """Whatever the contract has become: what was hidden stays hidden, and what was shown is shown under its name."""
    file = contract_file(tmp_path)
    place, run = made_run(tmp_path / "runs", [finding("u1")], [case("u1")], contract=file)
    text = NOW[change]
    now = None if text is None else load_contract(contract_file(tmp_path, text))
    told = report_of(run, place, Settings(workspace=place.root), now)
    assert (1, ()) == (len(told.shown), told.notes)
    assert told.shown[0].story is not None
    assert told.shown[0].story.source is not None
    assert {"display_name": "Zoiee", "email": HIDDEN, "phone": None} == told.shown[0].story.source.fields
    assert "example.org" not in repr(told)


def test_what_became_sensitive_since_is_hidden_too(tmp_path: Path) -> None:
    """In the stories of runs that were made before, and in what was found."""
    file = contract_file(tmp_path)
    place, run = made_run(tmp_path / "runs", [finding("u1")], [case("u1")], contract=file)
    text = CONTRACT.replace("event: $.display_name}", "event: $.display_name, sensitive: true}")
    told = report_of(run, place, Settings(workspace=place.root), load_contract(contract_file(tmp_path, text)))
    assert "Zoiee" not in repr(told.shown)


def test_a_story_tells_its_newest_moments(tmp_path: Path) -> None:
    """And how many it leaves out; those that are told know what stood before them."""
    told = case("u1")
    first = told["events"][0]
    events = [{**first, "offset": number, "timestamp": number, "version": str(number)} for number in range(80)]
    long = {**told, "events": events, "events_total": 90, "parked": [], "ledger": []}
    place, run = made_run(tmp_path / "runs", [finding("u1")], [long])
    story = report_of(run, place, Settings(workspace=place.root)).shown[0].story
    assert story is not None
    assert (MOMENTS, 90 - MOMENTS) == (len(story.moments), story.left_out)
    assert ("1@30", "UserRenamed") == (story.moments[0].place, story.moments[0].what)
    assert "1@79" == story.moments[-1].place


def test_a_run_that_was_not_audited_has_no_report(tmp_path: Path) -> None:
    """It says which stage is missing."""
    place, _ = made_run(tmp_path / "runs")
    with pytest.raises(RefusedError, match="has no summary"):
        report_of(place.run("r2"), place, Settings(workspace=place.root))


def test_many_partitions_are_shown_as_ranges(tmp_path: Path) -> None:
    """The picture stays as wide as it is."""
    from reconcile.pipeline.finding_counts import FindingCounts

    heat = FindingCounts("t", 100, AT, 10).heat
    assert ("0–6", "98–99", 15) == (heat.columns[0], heat.columns[-1], len(heat.columns))


def test_each_cause_has_its_most_affected_open(tmp_path: Path) -> None:
    """Three stories of three causes, and not of one."""
    findings = [finding("a"), finding("b"), finding("c", cause=Cause.RETRYING)]
    place, run = made_run(tmp_path / "runs", findings, [case(each) for each in "abc"])
    told = report_of(run, place, Settings(workspace=place.root))
    assert ["a", "c"] == [each.finding.aggregate_id for each in told.most_affected]
    assert Count("skipped", 2) == told.links[0].by_cause[0]


def test_an_aggregate_that_differs_in_two_copies_is_one() -> None:
    """The headline counts aggregates, and findings beside them; runs that did not count them say what they said."""
    links = tuple(
        LinkResult(f"user/{name}", name, Level.DRIFT, True, 1000, 987, 13, 0, 0, 0, True, (), (), None)
        for name in ("login", "billing")
    )
    said = "2 of 2 copies have drifted: 20 aggregates differ, with 26 findings"
    assert said == verdict(Level.DRIFT, links, None, 0, 20)
    said = "2 of 2 copies have drifted: 26 of 2,000 aggregates differ"
    assert said == verdict(Level.DRIFT, links, None, 0)
