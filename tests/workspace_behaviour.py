"""What holds for every workspace and every file system, on a local path as by a URI."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reconcile.errors import RefusedError
from reconcile.workspace.filesystem import Entry, FileSystem
from reconcile.workspace.manifest import (
    AlreadyPublishedError,
    ChangedInputsError,
    DamagedArtifactError,
    Inputs,
    MissingArtifactError,
)
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import UnknownRunError, Workspace

RUN_ID = "user-account-20261118T143005Z-k3f9"
INPUTS = Inputs(contract="c" * 64, settings={"mode": "digest"})


class FileSystemBehaviour:
    """Each test takes `files`, a file system, and `folder`, an empty folder in it."""

    def test_text_comes_back(self, files: FileSystem, folder: str) -> None:
        """Text is UTF-8; folders above a file are made."""
        files.write_atomically(f"{folder}/a/b.txt", ["Größe ∑ 𝄞\n"])
        assert "Größe ∑ 𝄞\n" == files.read_text(f"{folder}/a/b.txt")

    def test_a_text_comes_in_pieces(self, files: FileSystem, folder: str) -> None:
        """And stands as one."""
        files.write_atomically(f"{folder}/a", iter(["Grö", "ße ∑", "\n"]))
        assert "Größe ∑\n" == files.read_text(f"{folder}/a")

    def test_pieces_that_end_early_leave_nothing(self, files: FileSystem, folder: str) -> None:
        """Half a text is none."""

        def broken() -> Iterator[str]:
            yield "half"
            raise ZeroDivisionError

        files.mkdirs(folder)
        with pytest.raises(ZeroDivisionError):
            files.write_atomically(f"{folder}/a", broken())
        assert [] == files.list(folder)

    def test_write_replaces(self, files: FileSystem, folder: str) -> None:
        """The second text stands, and nothing else does."""
        files.write_atomically(f"{folder}/a", ["one, which is longer"])
        files.write_atomically(f"{folder}/a", ["two"])
        assert ("two", [Entry("a", 3, False)]) == (files.read_text(f"{folder}/a"), files.list(folder))

    def test_rename_moves_a_folder(self, files: FileSystem, folder: str) -> None:
        """All that is in it stands under the new name."""
        files.write_atomically(f"{folder}/a/b/c", ["x"])
        files.rename(f"{folder}/a", f"{folder}/z")
        assert [Entry("z", 0, True)] == files.list(folder)
        assert "x" == files.read_text(f"{folder}/z/b/c")

    @pytest.mark.parametrize("target", ["folder", "file"])
    def test_rename_replaces_nothing(self, files: FileSystem, folder: str, target: str) -> None:
        """What stands stays, were it an empty folder."""
        files.write_atomically(f"{folder}/a/b", ["x"])
        files.mkdirs(f"{folder}/folder")
        files.write_atomically(f"{folder}/file", ["y"])
        with pytest.raises(FileExistsError):
            files.rename(f"{folder}/a", f"{folder}/{target}")
        assert "x" == files.read_text(f"{folder}/a/b")

    def test_what_is_missing_is_said_to_be(self, files: FileSystem, folder: str) -> None:
        """The same error for every operation that needs what is not there."""
        for operation in (
            lambda: files.read_text(f"{folder}/no"),
            lambda: files.list(f"{folder}/no"),
            lambda: files.rename(f"{folder}/no", f"{folder}/z"),
        ):
            with pytest.raises(FileNotFoundError):
                operation()
        assert not files.exists(f"{folder}/no")

    def test_delete(self, files: FileSystem, folder: str) -> None:
        """Files and folders go, and what is not there is no error."""
        files.write_atomically(f"{folder}/a/b", ["x"])
        files.write_atomically(f"{folder}/c", ["x"])
        for name in ("a", "c", "no"):
            files.delete(f"{folder}/{name}")
        assert [] == files.list(folder)

    def test_a_file_in_the_way_is_refused(self, files: FileSystem, folder: str) -> None:
        """A file is no folder to write into."""
        files.write_atomically(f"{folder}/a", ["x"])
        with pytest.raises((RefusedError, FileExistsError)):
            files.write_atomically(f"{folder}/a/b", ["y"])


class WorkspaceBehaviour:
    """Each test takes `workspace`, and `disk`, its root as a local folder."""

    @pytest.fixture
    def run(self, workspace: Workspace) -> Run:
        return workspace.run(RUN_ID)

    @pytest.mark.parametrize(
        "value", [{}, [], {"a": [1, 2.5, None, True, "Größe\ud800"]}, "text", None, [{"b": 1}] * 3]
    )
    def test_json_comes_back(self, run: Run, value: Any) -> None:
        """A published value is read as it was."""
        run.publish_json("fence", value, INPUTS, stage="gather")
        assert value == run.json("fence")
        assert run.find("summary") is None

    def test_manifest_tells_of_the_artifact(self, run: Run) -> None:
        """What is published is what is read."""
        published = run.publish_json("plan", [1, 2], INPUTS, stage="plan", notes=["capped"])
        assert published == run.manifest("plan")
        assert ("plan", "plan", RUN_ID, "json", 2) == (
            published.name,
            published.stage,
            published.run_id,
            published.kind,
            published.rows,
        )
        assert (INPUTS, True, ("capped",), {"data.json"}) == (
            published.inputs,
            published.complete,
            published.notes,
            set(published.files),
        )

    def test_manifest_is_a_file_with_a_schema_version(self, run: Run, disk: Path) -> None:
        """Other programs read it too."""
        run.publish_json("plan", {}, INPUTS, stage="plan")
        raw = json.loads((disk / RUN_ID / "plan" / "manifest.json").read_text("utf-8"))
        assert 1 == raw["schema_version"]
        assert {"contract": "c" * 64, "settings": {"mode": "digest"}, "artifacts": {}} == raw["inputs"]

    def test_digest_is_of_the_content(self, run: Run) -> None:
        """The order of keys is none of it; values are."""
        digests = [
            run.publish_json(name, value, INPUTS, stage="plan").digest
            for name, value in (("a", {"x": 1, "y": 2}), ("b", {"y": 2, "x": 1}), ("c", {"x": 1, "y": 3}))
        ]
        assert (True, False) == (digests[0] == digests[1], digests[0] == digests[2])

    def test_nothing_is_done_at_first(self, run: Run) -> None:
        """A run without artifacts has nothing, and says so."""
        assert (False, None, []) == (run.done("fence", INPUTS), run.find("fence"), run.manifests())
        with pytest.raises(MissingArtifactError, match="has no fence"):
            run.json("fence")

    def test_complete_artifact_is_done(self, run: Run) -> None:
        """With the same inputs there is nothing to do."""
        run.publish_json("fence", {}, INPUTS, stage="gather")
        assert run.done("fence", INPUTS)

    def test_incomplete_artifact_is_replaced(self, run: Run) -> None:
        """It is not done, whatever its inputs, and the next one takes its place."""
        run.publish_json("fence", 1, INPUTS, stage="gather", complete=False, notes=["billing-db did not answer"])
        assert not run.done("fence", INPUTS)
        assert not run.done("fence", Inputs(contract="other"))
        run.publish_json("fence", 2, INPUTS, stage="gather")
        assert (2, True) == (run.json("fence"), run.done("fence", INPUTS))

    def test_complete_artifact_is_never_replaced(self, run: Run) -> None:
        """Whoever comes second is told, and the first stands."""
        run.publish_json("fence", 1, INPUTS, stage="gather")
        with pytest.raises(AlreadyPublishedError, match="a complete fence"):
            run.publish_json("fence", 2, INPUTS, stage="gather")
        assert 1 == run.json("fence")

    def test_changed_inputs_are_listed(self, run: Run) -> None:
        """Each with what it was and what it is."""
        before = Inputs(contract="a" * 64, settings={"mode": "full", "ids": ["1"]}, artifacts={"fence": "d" * 64})
        now = Inputs(contract="b" * 64, settings={"mode": "digest"}, artifacts={"fence": "e" * 64})
        run.publish_json("audit", {}, before, stage="audit")
        with pytest.raises(ChangedInputsError) as caught:
            run.done("audit", now)
        assert [
            "  contract: aaaaaaaaaaaa → bbbbbbbbbbbb",
            '  ids: ["1"] → none',
            '  mode: "full" → "digest"',
            "  artifact fence: dddddddddddd → eeeeeeeeeeee",
        ] == str(caught.value).splitlines()[1:-1]

    def test_inputs_name_artifacts_by_digest(self, run: Run) -> None:
        """Artifacts of the run by name, others by manifest."""
        fence = run.publish_json("fence", {}, INPUTS, stage="gather")
        log = run.publish_json("log", [], INPUTS, stage="gather")
        inputs = run.inputs("c" * 64, {"mode": "full"}, made_of=["fence", log])
        assert (
            Inputs(contract="c" * 64, settings={"mode": "full"}, artifacts={"fence": fence.digest, "log": log.digest})
            == inputs
        )

    def test_inputs_must_be_published(self, run: Run) -> None:
        """Nothing is made of what is not there."""
        with pytest.raises(MissingArtifactError):
            run.inputs("c", made_of=["fence"])

    def test_incompleteness_spreads(self, run: Run) -> None:
        """What is made of the incomplete is incomplete, over several steps, and says why."""
        run.publish_json("fence", 1, INPUTS, stage="gather", complete=False)
        run.publish_json("audit", 1, run.inputs("c", made_of=["fence"]), stage="audit")
        plan = run.publish_json("plan", 1, run.inputs("c", made_of=["audit"]), stage="plan")
        assert (False, ("made of audit, which is incomplete",)) == (plan.complete, plan.notes)

    def test_leftovers_of_killed_attempts_are_ignored_and_removed(self, run: Run, disk: Path) -> None:
        """Readers pass over them; the next publisher of that name, and no other, removes them."""
        for name in (".fence.0123456789ab", ".plan.0123456789ab"):
            (disk / RUN_ID / name / "data").mkdir(parents=True)
            (disk / RUN_ID / name / "data" / "part").write_text("half")
        assert ([], None) == (run.manifests(), run.find("fence"))
        run.publish_json("fence", 1, INPUTS, stage="gather")
        assert [".plan.0123456789ab", "fence"] == sorted(entry.name for entry in (disk / RUN_ID).iterdir())

    def test_failed_publication_leaves_nothing(self, run: Run, disk: Path) -> None:
        """What could not be written is not there."""
        with pytest.raises(ValueError, match="JSON"):
            run.publish_json("fence", float("nan"), INPUTS, stage="gather")
        assert (None, []) == (run.find("fence"), list((disk / RUN_ID).iterdir()))

    @pytest.mark.parametrize(
        ("damage", "told"),
        [
            (lambda a: _cut(a / "manifest.json"), "manifest.json is not whole JSON"),
            (lambda a: (a / "manifest.json").write_bytes(b""), "manifest.json is not whole JSON"),
            (lambda a: (a / "manifest.json").write_bytes(b"\xff\xfe\x00"), "manifest.json is not whole JSON"),
            (lambda a: (a / "manifest.json").write_text("[]"), "manifest.json: "),
            (lambda a: _edit(a, schema_version=2), 'schema_version "2"; this reconcile reads 1'),
            (lambda a: _edit(a, rows=-1), "manifest.json: rows: "),
            (lambda a: _edit(a, run_id="other"), "is that of fence of the run other"),
            (lambda a: (a / "data.json").unlink(), "data.json is missing"),
            (lambda a: _cut(a / "data.json"), "data.json has "),
            (lambda a: (a / "part-1.parquet").write_text("x"), "part-1.parquet was not published with it"),
            (lambda a: _swap(a / "data.json", "3", "4"), "not what was published"),
        ],
    )
    def test_damaged_artifact_is_never_read(
        self, run: Run, disk: Path, damage: Callable[[Path], object], told: str
    ) -> None:
        """The error names the folder and says what to do."""
        run.publish_json("fence", [1, 2, 3], INPUTS, stage="gather")
        damage(disk / RUN_ID / "fence")
        with pytest.raises(DamagedArtifactError) as caught:
            run.json("fence")
        assert f"{run.folder}/fence is damaged: " in str(caught.value)
        assert told in str(caught.value)
        assert "delete this folder and run its stage again" in str(caught.value)

    def test_hidden_files_are_nobodys_data(self, run: Run, disk: Path) -> None:
        """Such as what a file manager leaves."""
        run.publish_json("fence", 1, INPUTS, stage="gather")
        (disk / RUN_ID / "fence" / ".DS_Store").write_text("x")
        assert 1 == run.json("fence")

    @pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/a", ".a", "A", "a\0", "a" * 151, "a\n"])
    def test_artifact_names_are_no_paths(self, run: Run, name: str) -> None:
        """Nothing is written beside the run."""
        with pytest.raises(RefusedError, match="no name for an artifact"):
            run.publish_json(name, 1, INPUTS, stage="gather")

    def test_runs_are_listed(self, workspace: Workspace, disk: Path) -> None:
        """By name; what is no run is left out."""
        assert [] == workspace.runs()
        for run_id in ("b-20261118T143005Z-k3f9", "a-20261118T143006Z-k3f9"):
            workspace.run(run_id).publish_json("fence", 1, INPUTS, stage="gather")
        (disk / "_log").mkdir()
        (disk / "notes.txt").write_text("x")
        assert ["a-20261118T143006Z-k3f9", "b-20261118T143005Z-k3f9"] == workspace.runs()

    def test_unknown_run_has_a_nearest_name(self, workspace: Workspace) -> None:
        """A slip of the finger is told."""
        workspace.run(RUN_ID).publish_json("fence", 1, INPUTS, stage="gather")
        assert RUN_ID == workspace.existing_run(RUN_ID).id
        with pytest.raises(UnknownRunError, match=f'did you mean "{RUN_ID}"'):
            workspace.existing_run(RUN_ID[:-1])


def _cut(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def _swap(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text("utf-8").replace(old, new))


def _edit(artifact: Path, **changes: object) -> None:
    file = artifact / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **changes}))
