"""What is pruned, what stays though it is old, and what the nightly DAG prunes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reconcile.airflow import pruning
from reconcile.airflow.installation import Installation
from reconcile.cli import cli
from reconcile.control.store import open_control
from reconcile.domain.retention import GOES_ON, NEWEST, SINCE_FULL, PastRun, choose
from reconcile.gather.log.index import Held, Index, Segment
from reconcile.gather.log.store import HistoryStore, Home
from reconcile.pipeline.handoffs import RunScope
from reconcile.pipeline.retention import prune
from reconcile.pipeline.runs import newest
from reconcile.pipeline.trend import trends
from reconcile.settings.settings import Settings
from reconcile.workspace.workspace import Workspace
from tests.schemas import valid_output
from tests.unit.handoffs import AT
from tests.unit.report_runs import made_run

DAY = timedelta(days=1)
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def night(number: int, **changes: Any) -> PastRun:
    """Build the run of a night, so many nights ago."""
    at = NOW - number * DAY
    given: dict[str, Any] = {"contract": "user-account", "published_at": at, "opened_at": at, "complete": True}
    return PastRun(f"night-{number}", **{**given, **changes})


def test_what_is_old_goes() -> None:
    """And what published something since stays."""
    assert ("night-3", "night-2") == choose([night(3), night(2), night(1)], NOW - 1.5 * DAY, ()).pruned


def test_the_newest_complete_run_stays() -> None:
    """Whatever incomplete runs, and runs of some ids, came after it."""
    runs = [night(9), night(8), night(7, complete=False), night(6, kind="ids"), night(5, contract="other")]
    found = choose(runs, NOW, ())
    assert (("night-9", "night-7", "night-6"), {"night-8": NEWEST, "night-5": NEWEST}) == (found.pruned, found.spared)


def test_what_the_next_full_run_looks_back_to_stays() -> None:
    """The changed-only runs since the full one, and that."""
    runs = [night(9, kind="changed"), night(8), night(7, kind="changed"), night(6, kind="changed")]
    found = choose(runs, NOW, ())
    assert ("night-9",) == found.pruned
    assert {"night-8": NEWEST, "night-7": SINCE_FULL, "night-6": NEWEST} == found.spared


def test_each_choice_of_copies_has_a_newest_run() -> None:
    """Who always looks at one copy finds its last run."""
    runs = [night(9, consumers=("login",)), night(8), night(7, consumers=("billing", "login"))]
    assert () == choose(runs, NOW, ()).pruned


def test_a_run_that_goes_on_stays() -> None:
    """However long it has published nothing."""
    found = choose([night(9), night(8)], NOW, {"night-9"})
    assert ((), GOES_ON) == (found.pruned, found.spared["night-9"])


def test_what_nobody_can_read_goes() -> None:
    """A damaged run holds values all the same."""
    assert ("torn",) == choose([PastRun("torn", None)], NOW, ()).pruned


def pruned(folder: Path, *more: str) -> dict[str, Any]:
    """Run `prune` in a process's clock: all is old."""
    words = ["prune", "--older-than", "0s", "--workspace", str(folder), "--json", *more]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert 0 == done.exit_code
    found = valid_output("prune", done.stdout)
    assert isinstance(found, dict)
    return found


def nights(folder: Path) -> Workspace:
    """Make four runs: a full one, a changed-only one, and both once more."""
    full, changed = RunScope(kind="full", terms="t"), RunScope(kind="changed", since="last", terms="t")
    for number, scope in enumerate((full, changed, full, changed)):
        place, _ = made_run(folder, run_id=f"r{number}", at=AT + number * DAY, scope=scope)
    return place


def test_a_dry_run_removes_nothing(tmp_path: Path) -> None:
    """It says what would go."""
    place = nights(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob("r*/**/*") if path.is_file()}
    assert ["r0", "r1"] == pruned(tmp_path, "--dry-run")["runs"]
    assert before == {path: path.read_bytes() for path in tmp_path.glob("r*/**/*") if path.is_file()}
    assert ["r0", "r1", "r2", "r3"] == place.runs()


def test_lists_and_trends_are_whole_after_it(tmp_path: Path) -> None:
    """As are the changed-only runs that the next one builds on."""
    place = nights(tmp_path)
    assert ["r0", "r1"] == pruned(tmp_path)["runs"]
    assert ["r3", "r2"] == [each.run_id for each in newest(place, 10)[0]]
    (trend,), notes = trends(place, Settings(workspace=place.root), "user-account")
    assert (["r2"], ()) == ([each.run_id for each in trend.points], notes)
    assert [] == pruned(tmp_path)["runs"]


def test_a_removal_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    """What has the name of no run any more goes with the next call."""
    nights(tmp_path)
    (tmp_path / "r0").rename(tmp_path / ".r0.0123456789ab")
    (tmp_path / ".somebody").mkdir()
    pruned(tmp_path)
    assert {".somebody", "r2", "r3", "control.db"} == {path.name for path in tmp_path.iterdir()}


def test_a_run_that_holds_a_lease_is_not_pruned(tmp_path: Path) -> None:
    """Nor one that began and has not ended."""
    nights(tmp_path)
    with open_control(Settings(workspace=str(tmp_path))) as control:
        control.runs.begin("r1", "user-account", "0" * 64)
        with control.leases.hold_contract("user-account", "r0"):
            found = pruned(tmp_path)
    assert ([], GOES_ON, GOES_ON) == (found["runs"], found["spared"]["r0"], found["spared"]["r1"])


def history(place: Workspace, topic: str, latest: datetime) -> Home:
    """Make a history of two segments, of which one is as old as told."""
    home = HistoryStore.of(place).home("main", topic, "id", "0" * 12)
    segments = []
    for number, at in enumerate((latest, NOW)):
        name = f"0000000{number}-0123456789ab"
        place.files.write_atomically(f"{home.path(name)}/part.parquet", ["x"])
        held = {0: Held(start=number, end=number + 1, rows=1, first=number, last=number)}
        counts = {"null_keys": 0, "unreadable_keys": 0, "unreadable_values": 0}
        segments.append(Segment(name=name, partitions=held, latest=at, digest="", files={}, **counts))
    index = Index(generation=1, cluster="main", topic=topic, topic_id="id", derivation="0", segments=tuple(segments))
    assert home.publish(index)
    home.note_use(NOW)
    return home


def test_histories_of_all_topics_obey_keep(tmp_path: Path) -> None:
    """Those of failure topics too; what was given up is not on the disk any more."""
    place = Workspace(tmp_path)
    homes = [history(place, topic, NOW - 40 * DAY) for topic in ("user-account", "user-account.login.dlq")]
    settings = Settings.model_validate({"workspace": str(tmp_path), "history": {"keep": "30d"}})
    found = prune(place, settings, 10 * DAY, NOW, dry_run=False)
    assert [(1, False)] * 2 == [(each.segments, each.superseded) for each in found.histories]
    for home in homes:
        assert ["00000001-0123456789ab"] == [each.name for each in place.files.list(home.segments)]


def test_a_history_that_no_run_needs_goes(tmp_path: Path) -> None:
    """It was of a topic that is gone, or of rules that have changed; one that is used stays whole."""
    place = Workspace(tmp_path)
    old, new = (history(place, topic, NOW) for topic in ("gone", "here"))
    new.note_use(NOW + 20 * DAY)
    found = prune(place, Settings(workspace=str(tmp_path)), 10 * DAY, NOW + 20 * DAY, dry_run=False)
    assert [("_log/main/gone/id-id.000000000000", True)] == [(each.folder, each.superseded) for each in found.histories]
    assert (False, True) == (Path(old.folder).exists(), Path(new.folder).exists())


def test_a_history_of_an_earlier_version_gets_its_time(tmp_path: Path) -> None:
    """Nobody noted its use: that begins when it is first looked at."""
    home = history(place := Workspace(tmp_path), "user-account", NOW)
    Path(f"{home.folder}/used").unlink()
    settings = Settings(workspace=str(tmp_path))
    assert () == prune(place, settings, 10 * DAY, NOW + 20 * DAY, dry_run=False).histories
    assert () == prune(place, settings, 10 * DAY, NOW + 29 * DAY, dry_run=False).histories
    assert 1 == len(prune(place, settings, 10 * DAY, NOW + 31 * DAY, dry_run=False).histories)


@pytest.mark.parametrize(("setting", "left"), [({}, 4), ({"prune": {"older_than": "0s"}}, 2)])
def test_the_nightly_dag_prunes_by_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: dict[str, Any], left: int
) -> None:
    """And nothing without one."""
    place = nights(tmp_path / "runs")
    file = tmp_path / "reconcile.yaml"
    file.write_text(json.dumps({"workspace": place.root, **setting}), "utf-8")
    monkeypatch.setattr(pruning, "installation", lambda: Installation(file, None, tmp_path))
    found = pruning.prune_by_settings()
    assert (left, bool(setting)) == (len(place.runs()), found is not None)
