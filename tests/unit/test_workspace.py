"""The workspace on a local path, which needs no Spark."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.errors import RefusedError
from reconcile.workspace.filesystem import FileSystem, LocalFileSystem
from reconcile.workspace.manifest import Inputs
from reconcile.workspace.run_id import InvalidRunIdError, new_run_id
from reconcile.workspace.workspace import Workspace
from tests.workspace_behaviour import RUN_ID, FileSystemBehaviour, WorkspaceBehaviour

NOON = datetime(2026, 11, 18, 14, 30, 5, tzinfo=UTC)


class TestLocalFileSystem(FileSystemBehaviour):
    """Files of this machine."""

    @pytest.fixture
    def files(self) -> FileSystem:
        return LocalFileSystem()

    @pytest.fixture
    def folder(self, tmp_path: Path) -> str:
        return str(tmp_path)


class TestLocalWorkspace(WorkspaceBehaviour):
    """A workspace on a local path."""

    @pytest.fixture
    def disk(self, tmp_path: Path) -> Path:
        return tmp_path / "runs"

    @pytest.fixture
    def workspace(self, disk: Path) -> Workspace:
        disk.mkdir()
        return Workspace(disk)


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    """It is made by the first run."""
    assert [] == Workspace(tmp_path / "no").runs()


def test_relative_root_is_fixed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later change of the working folder moves nothing."""
    monkeypatch.chdir(tmp_path)
    workspace = Workspace("runs")
    monkeypatch.chdir("/")
    assert f"{tmp_path}/runs" == workspace.root


def test_uri_needs_a_session() -> None:
    """What only Hadoop reaches is refused without Spark, before anything is tried."""
    with pytest.raises(RefusedError, match="reached through Spark"):
        Workspace("hdfs://name:8020/runs")


def test_uri_that_lost_a_slash_is_refused() -> None:
    """`Path("s3a://bucket/runs")` is another place than was meant."""
    with pytest.raises(RefusedError, match="neither a path nor a URI"):
        Workspace(Path("s3a://bucket/runs"))


def test_local_workspace_loads_no_spark() -> None:
    """Commands that only list stay fast."""
    code = "import sys, reconcile.workspace; print(sorted({'pyspark', 'py4j'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout


def test_run_id_tells_aggregate_instant_and_mark() -> None:
    """The instant is in UTC."""
    now = NOON.astimezone(timezone(timedelta(hours=-7)))
    run_id = new_run_id("user-account", now, _random())
    assert "user-account-20261118T143005Z-" == run_id[:-4]
    assert run_id[-4:].isalnum()


@given(st.datetimes(min_value=datetime(1970, 1, 1)), st.datetimes(min_value=datetime(1970, 1, 1)))  # noqa: DTZ001
def test_run_ids_sort_by_time(one: datetime, other: datetime) -> None:
    """Within an aggregate, by seconds."""
    one, other = sorted(each.replace(tzinfo=UTC, microsecond=0) for each in (one, other))
    ids = [new_run_id("a", each, _random()) for each in (one, other)]
    assert (one < other) == (ids[0] < ids[1])


def test_run_id_of_a_long_aggregate_is_valid(tmp_path: Path) -> None:
    """It is shortened, so that it stays the name of a folder."""
    run_id = new_run_id("a" * 300, NOON, _random())
    assert (128, run_id) == (len(run_id), Workspace(tmp_path).run(run_id).id)


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "../x", "/", "/etc", "a/b", "a\\b", "a\0", "a\n", " a", ".a", "_a", "-a", "a:b", "é", "a" * 129],
)
def test_run_ids_are_no_paths(tmp_path: Path, text: str) -> None:
    """A run id comes from outside: it names a folder of its own or nothing."""
    with pytest.raises(InvalidRunIdError, match="is not a run id"):
        Workspace(tmp_path).run(text)


@given(st.text(max_size=140))
def test_a_run_stays_in_the_workspace(text: str) -> None:
    """Whatever the id, its folder is right below the root."""
    try:
        folder = Workspace("/w").run(text).folder
    except InvalidRunIdError:
        return
    assert (Path("/w"), text) == (Path(folder).parent, Path(folder).name)


@pytest.mark.parametrize(
    ("old", "new", "same"), [(1, True, False), (None, 0, False), ([1], [1], True), ("", None, False)]
)
def test_inputs_are_equal_by_type_and_value(old: object, new: object, same: bool) -> None:
    """1 is not true, and nothing is not zero."""
    before, now = (Inputs(contract="c", settings={"x": each}) for each in (old, new))  # type: ignore[dict-item]
    assert same == (not before.changes(to=now))


def test_absent_setting_is_not_null() -> None:
    """A setting that was added is a change."""
    assert ["x: none → null"] == Inputs(contract="c").changes(to=Inputs(contract="c", settings={"x": None}))


def test_a_file_for_a_root_is_refused(tmp_path: Path) -> None:
    """The path and the reason are in the error."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(RefusedError, match=r"cannot read .*/file/.*: Not a directory"):
        Workspace(tmp_path / "file").run(RUN_ID).publish_json("fence", 1, Inputs(contract="c"), stage="gather")


def _random() -> Random:
    return Random(7)  # noqa: S311
