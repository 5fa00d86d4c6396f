"""What a message waits for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from reconcile.consumer import Dependency, Hooks, Message, RecordPlace
from reconcile.consumer.alerts import Alerts
from reconcile.consumer.dependency import Precedence
from reconcile.consumer.errors import DependencyPendingError


def message(offset: int, partition: int = 0) -> Message:
    place = RecordPlace("topic", partition, offset)
    return Message(place, place, b"key", b"value")


class Known(Precedence):
    """Answers from what a test says that groups have committed, and counts the questions."""

    def __init__(self, committed: dict[tuple[str, str, int], int], *dependencies: Dependency, **more: Any) -> None:
        super().__init__(dependencies, {}, more.pop("alerts", Alerts()), **more)
        self.known = committed
        self.questions = 0

    def _ask(self, group: str, topic: str, partition: int) -> int:
        self.questions += 1
        return self.known[group, topic, partition]


def waits(precedence: Precedence, message: Message) -> bool:
    try:
        precedence.check(message)
    except DependencyPendingError:
        return True
    return False


def test_a_message_waits_until_the_group_has_committed_past_it() -> None:
    """The offset that is committed is that of the next message."""
    committed = {("billing", "topic", 0): 5}
    precedence = Known(committed, Dependency("billing"))
    assert [False, True] == [waits(precedence, message(each)) for each in (4, 5)]
    committed["billing", "topic", 0] = 6
    assert not waits(precedence, message(5))


def test_all_groups_have_to_be_past_it() -> None:
    """One that is not is enough."""
    committed = {("billing", "topic", 0): 5, ("ledger", "topic", 0): 4}
    precedence = Known(committed, Dependency("billing"), Dependency("ledger"))
    assert [False, True] == [waits(precedence, message(each)) for each in (3, 4)]


def test_a_group_is_asked_only_where_its_last_answer_is_too_old() -> None:
    """Not for each message."""
    precedence = Known({("billing", "topic", 0): 100}, Dependency("billing"))
    assert [False] * 100 == [waits(precedence, message(each)) for each in range(100)]
    assert 1 == precedence.questions


def test_a_message_may_wait_for_another_place_or_for_nothing() -> None:
    """As a function finds it."""
    places = {1: RecordPlace("accounts", 2, 7), 2: None}
    dependency = Dependency("billing", lambda each: places[each.place.offset])
    precedence = Known({("billing", "accounts", 2): 7}, dependency)
    assert [True, False] == [waits(precedence, message(each)) for each in (1, 2)]


def test_people_are_told_once_when_the_deadline_has_passed() -> None:
    """The message waits on, and the next one has a deadline of its own."""
    told: list[int] = []
    now = [0.0]
    hooks = Hooks(on_dependency_late=lambda late, _: told.append(late.place.offset))
    dependency = Dependency("billing", deadline=timedelta(seconds=60))
    precedence = Known({("billing", "topic", 0): 0}, dependency, alerts=Alerts(hooks), now=lambda: now[0])
    seen = []
    for time, offset in ((0, 1), (59, 1), (60, 1), (100, 1), (100, 2), (159, 2), (160, 2)):
        now[0] = float(time)
        assert waits(precedence, message(offset))
        seen.append(list(told))
    assert [[], [], [1], [1], [1], [1], [1, 2]] == seen


def test_a_group_that_cannot_be_asked_is_no_messages_fault() -> None:
    """The message waits, and the error says what is missing, without what it holds."""
    with pytest.raises(DependencyPendingError, match="whether billing is done with it is not known: KeyError"):
        Known({}, Dependency("billing")).check(message(0))
    with pytest.raises(DependencyPendingError, match="needs the store of billing"):
        Known({}, Dependency("billing", lambda _: "event-1")).check(message(0))
