"""What is rewritten where an aggregate is forgotten, and what is left where that is cut off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from markupsafe import escape

from reconcile.domain.forgetting import FORGOTTEN, blanked, mentions, without, words
from reconcile.domain.plan import Plan
from reconcile.pipeline.forgetting import forget_in_handoffs
from reconcile.pipeline.handoffs import Applied, Request, Verified
from reconcile.report.csv import csv_of
from reconcile.workspace.filesystem import LocalFileSystem
from reconcile.workspace.manifest import Inputs
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace
from tests.unit.report_runs import finding
from tests.unit.test_report_repair import emitted, planned, seen

LONG = "7d1c6f0e-8b1f"


def test_elements_that_name_an_id_go() -> None:
    """Objects and texts in lists, at any depth; what merely has it within a text stays."""
    value = {"ids": ["a", "b"], "links": [{"items": [{"id": "a", "n": 1}, {"id": "b"}]}], "note": "a"}
    assert {"ids": ["b"], "links": [{"items": [{"id": "b"}]}], "note": "a"} == without(value, {"a"})


def test_a_long_id_is_blanked_as_a_word() -> None:
    """A short one may mean anything, and a part of another id is another id."""
    value = {"why": [f"{LONG} waits, {LONG}-2 does not"], "version": "7"}
    assert {"why": [f"forgotten waits, {LONG}-2 does not"], "version": "7"} == blanked(value, words([LONG, "7"]))
    assert "forgotten" == FORGOTTEN


@pytest.mark.parametrize(
    ("text", "expected"),
    [(f"of {LONG}.", True), (f"{LONG}-2", False), ('{"id": "7"}', True), ("7 of 17", False)],
)
def test_a_text_mentions_an_id(text: str, expected: bool) -> None:
    """As a word, or, of a short id, as a JSON string."""
    assert expected == mentions(text, [LONG, "7"])


@pytest.mark.parametrize("id_", ['["acme", "4711"]', "o'brien&sons", "back\\slash"])
def test_an_id_is_found_however_it_is_written(id_: str) -> None:
    """In JSON, in JSON within JSON, in a report's HTML and in CSV; also right behind the end of a line."""
    inner = json.dumps({"why": f"it waits:\n{id_}"}, ensure_ascii=False)
    csv = next(csv_of([finding(id_)]))
    texts = [id_, inner, json.dumps({"said": inner}, ensure_ascii=False), f"<b>{escape(id_)}</b>", csv]
    assert [True] * 5 == [mentions(each, [id_]) for each in texts]
    assert [False] * 5 == [mentions(blanked(each, words([id_])), [id_]) for each in texts]


def test_a_repaired_run_forgets(tmp_path: Path) -> None:
    """Its plan is sealed anew, its corrections are gone, and what names a digest names the new one."""
    _, run = planned(tmp_path)
    emitted(run, dropped="it moved on")
    seen(run, "converged", 0, 0)
    before = run.read(Plan)
    made_of = run.inputs("0" * 64, made_of=["plan"])
    run.publish_json("more", {}, made_of, stage="report")
    digests: dict[str, str] = {}
    assert 3 == forget_in_handoffs(run, frozenset({"u1"}), digests)
    run.follow(digests)
    after = run.read(Plan)
    assert ["u2"] == [each.aggregate_id for link in after.links for each in link.items]
    assert (after.digest, True) == (digests[before.digest], after.digest != before.digest)
    assert [()] == [each.dropped for each in run.read(Applied).links]
    assert [()] == [each.corrections for each in run.read(Verified).links]
    assert run.manifest("plan").digest == run.manifest("more").inputs.artifacts["plan"]
    assert 0 == forget_in_handoffs(run, frozenset({"u1"}), {})


def test_a_run_that_was_asked_for_it_forgets_that(tmp_path: Path) -> None:
    """It asks for the others."""
    run = Workspace(tmp_path).run("r1")
    run.publish(Request(contract="c.yaml", aggregate="user-account", ids=("u1", "u2")), Inputs(contract="c"))
    assert 1 == forget_in_handoffs(run, frozenset({"u1"}), {})
    assert ("u2",) == run.read(Request).ids


class CutOffError(Exception):
    """Raised where a process would have been killed."""


@pytest.mark.parametrize("renaming", [1, 2])
def test_a_rewriting_that_is_cut_off_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renaming: int
) -> None:
    """The artifact is whole, as it was or as it is to be, and nothing else is left of it."""
    run: Run = Workspace(tmp_path).run("r1")
    run.publish_json("ids", ["a", "b"], Inputs(contract="c"), stage="audit")
    left, rename = [renaming], LocalFileSystem.rename

    def cut_off(files: LocalFileSystem, source: str, target: str) -> None:
        left[0] -= 1
        if not left[0]:
            raise CutOffError
        rename(files, source, target)

    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "rename", cut_off)
        with pytest.raises(CutOffError):
            run.rewrite_json("ids", ["b"])
    run.restore()
    assert run.json("ids") in (["a", "b"], ["b"])
    assert ["ids"] == [path.name for path in (tmp_path / "r1").iterdir()]
    assert ["b"] == without(run.json("ids"), {"a"})
