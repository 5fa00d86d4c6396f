"""Where log histories are kept: one index after the other, whoever writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconcile.gather.log.index import Index
from reconcile.gather.log.store import KEPT_GENERATIONS, HistoryStore, Home
from reconcile.workspace.filesystem import LocalFileSystem


def index(generation: int) -> Index:
    """An index that holds nothing."""
    return Index(generation=generation, cluster="main", topic="t", topic_id="id", derivation="d")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """The folder of one history."""
    return HistoryStore(LocalFileSystem(), str(tmp_path)).home("main", "t", "id", "d")


def test_of_two_indexes_of_a_generation_the_first_counts(home: Home) -> None:
    """Whoever comes second is told so, and changes nothing."""
    second = index(1).model_copy(update={"topic_id": "other"})
    assert [True, False] == [home.publish(index(1)), home.publish(second)]
    assert index(1) == home.load()


def test_an_index_of_a_generation_that_is_gone_is_refused(home: Home) -> None:
    """An extension that took longer than many others does not take the place that theirs had."""
    for generation in range(1, KEPT_GENERATIONS + 3):
        assert home.publish(index(generation))
    home.remove_leftovers()
    assert not home.publish(index(1))
    assert index(KEPT_GENERATIONS + 2) == home.load()
