"""How long a consumer waits, and which policies it refuses."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from reconcile.consumer.consumer import Consumer, Postgres
from reconcile.consumer.errors import PolicyRefusedError
from reconcile.consumer.policy import Backoff, Block, Ignore, RetryThenDeadLetter, RetryTopics, Stash, Terms
from reconcile.errors import RefusedError


def seconds(backoff: Backoff, tries: int) -> list[float]:
    """Compute the first delays."""
    return [backoff.delay(number).total_seconds() for number in range(1, tries + 1)]


def test_b8_a_delay_grows_up_to_its_limit() -> None:
    """B8: by the factor, from the first."""
    assert [1.0, 3.0, 9.0, 10.0, 10.0] == seconds(Backoff(timedelta(seconds=1), 3.0, timedelta(seconds=10)), 5)


def test_b8_a_delay_stays_at_its_limit_for_ever() -> None:
    """B2, B8: a message that fails for days is still waited for."""
    assert timedelta(seconds=60) == Backoff().delay(10_000_000)


@pytest.mark.parametrize(("first", "delays"), [(5, [5, 8, 8]), (8, [8, 8]), (20, [8, 8])])
def test_b8_a_first_delay_may_be_as_long_as_the_limit(first: int, delays: list[float]) -> None:
    """B8: no delay is longer than the limit."""
    backoff = Backoff(timedelta(seconds=first), 2.0, timedelta(seconds=8))
    assert delays == seconds(backoff, len(delays))


def test_b8_a_delay_may_stay_the_same() -> None:
    """B8: with a factor of one; then there is no limit to tell of."""
    backoff = Backoff(timedelta(seconds=1), 1.0, timedelta(seconds=8))
    assert ([1.0, 1.0, 1.0], False) == (seconds(backoff, 3), backoff.at_limit(10**6))


@pytest.mark.parametrize("wrong", [{"first": timedelta(0)}, {"limit": timedelta(0)}, {"factor": 0.5}])
def test_b8_a_delay_that_would_be_none_is_refused(wrong: dict[str, Any]) -> None:
    """B8: a consumer that tries again and again at once would neither poll nor stop."""
    with pytest.raises(RefusedError, match="above zero"):
        Backoff(**wrong)


@pytest.mark.parametrize("first", [1, 8, 9])
def test_b8_people_are_told_once_when_the_limit_is_reached(first: int) -> None:
    """B8: not at each try after it."""
    backoff = Backoff(timedelta(seconds=first), 2.0, timedelta(seconds=8))
    told = [tries for tries in range(1, 100) if backoff.at_limit(tries)]
    assert [4 if first == 1 else 1] == told


def test_b5_retry_topics_are_refused_for_a_copy_of_state() -> None:
    """B5: they would change its order; there is no flag."""
    with pytest.raises(PolicyRefusedError, match="stash or block"):
        Terms(RetryTopics(()), "state")


def test_b5_retry_topics_are_for_records() -> None:
    """B5: rows that are written once and never changed."""
    assert "retry-topics" == Terms(RetryTopics(()), "records").policy.name


@pytest.mark.parametrize("policy", [Ignore(), Block(), RetryThenDeadLetter("dead"), Stash()])
@pytest.mark.parametrize("semantics", ["state", "records"])
def test_b5_all_others_are_for_both(policy: Ignore | Block | RetryThenDeadLetter | Stash, semantics: str) -> None:
    """B5: only retry topics lose the order by design."""
    assert policy is Terms(policy, semantics).policy


@pytest.mark.parametrize("name", ["semantics", "events", "guard"])
def test_a_word_that_is_none_of_ours_is_refused(name: str) -> None:
    """It would be taken for another one, silently."""
    with pytest.raises(RefusedError, match=f"{name}: 'newest' is not valid: write "):
        Terms(Stash(), **{name: "newest"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"start": "newest"}, "start: 'newest' is not valid"),
        ({"guard": "newer"}, "guard: newer compares the events' ver"),
    ],
)
def test_a_consumer_that_would_do_otherwise_than_it_says_is_refused(said: dict[str, Any], why: str) -> None:
    """It would begin elsewhere, or guard nothing, silently."""
    store = Postgres("postgresql://nobody@localhost:1/none")
    with pytest.raises(RefusedError, match=why):
        Consumer(topic="t", group="g", policy=Stash(), store=store, handler=lambda _, __: None, kafka={}, **said)


def test_the_dead_letter_topic_is_the_policys() -> None:
    """Of those that have one."""
    assert ["dead", None] == [Terms(each).dead_letter for each in (RetryThenDeadLetter("dead"), Stash())]
