"""What Prometheus is shown of a consumer."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from reconcile.config.extras import MissingExtraError
from reconcile.consumer import Metrics
from reconcile.consumer.decision import FailureKind
from reconcile.consumer.postgres_stash import StashSize
from reconcile.files import committed


def shown(registry: CollectorRegistry) -> dict[str, float]:
    """Read the samples, without the help and the times of creation."""
    lines = generate_latest(registry).decode().splitlines()
    samples = [line.rsplit(" ", 1) for line in lines if not line.startswith("#") and "_created" not in line]
    return {name.removeprefix("reconcile_consumer_"): float(value) for name, value in samples}


@pytest.fixture
def registry() -> CollectorRegistry:
    """A registry of the test's own."""
    return CollectorRegistry()


def test_messages_are_counted_by_what_became_of_them(registry: CollectorRegistry) -> None:
    """Each group for itself."""
    metrics = Metrics(registry)
    for how in ("applied", "applied", "stashed"):
        metrics.done("g", "t", 0, how)
    found = shown(registry)
    assert (2, 1) == tuple(found[f'messages_total{{group="g",outcome="{how}"}}'] for how in ("applied", "stashed"))


def test_failures_are_counted_by_kind_and_class(registry: CollectorRegistry) -> None:
    """And by nothing that a message holds."""
    Metrics(registry).failed("g", FailureKind.NON_RECOVERABLE, ValueError("the payload of user 7"))
    expected = 'failures_total{error="ValueError",group="g",kind="non-recoverable"}'
    assert {expected: 1.0} == shown(registry)


def test_partitions_wait_until_they_are_done_or_lost(registry: CollectorRegistry) -> None:
    """With the longest delay of them."""
    metrics = Metrics(registry)

    def waiting() -> tuple[float, float]:
        found = shown(registry)
        return found['waiting_partitions{group="g"}'], found['backoff_seconds{group="g"}']

    metrics.waits("g", "t", 0, 3.0, probing=False)
    metrics.waits("g", "t", 1, 5.0, probing=False)
    both = waiting()
    metrics.lost("g", "t", 1)
    one = waiting()
    metrics.done("g", "t", 0, "applied")
    assert [(2, 5), (1, 3), (0, 0)] == [both, one, waiting()]


def test_the_breaker_is_open_until_a_message_is_applied(registry: CollectorRegistry) -> None:
    """Not merely until another one waits."""
    metrics = Metrics(registry)
    metrics.waits("g", "t", 0, 1.0, probing=True)
    metrics.waits("g", "t", 1, 1.0, probing=False)
    opened = shown(registry)['breaker_open{group="g"}']
    metrics.done("g", "t", 0, "applied")
    assert (1, 0) == (opened, shown(registry)['breaker_open{group="g"}'])


def test_the_backlog_is_shown(registry: CollectorRegistry) -> None:
    """What is stashed, since when, and the lag."""
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    Metrics(registry).backlog("g", StashSize(2, 30, hour_ago), 7)
    found = shown(registry)
    names = ("lag_messages", "stashed_messages", "stashed_aggregates", "stash_age_seconds")
    *figures, age = (found[f'{name}{{group="g"}}'] for name in names)
    assert [7, 30, 2] == figures
    assert 3600 <= age < 3700


def test_the_names_are_those_of_the_docs(registry: CollectorRegistry) -> None:
    """docs/consumer.md lists each metric."""
    Metrics(registry)
    names = {each.name for each in registry.collect()}
    page = committed("docs", "consumer.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `(reconcile_consumer_\w+?)(?:_total)?` \|", page, re.M))
    assert names == listed


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'reconcile-kafka\[metrics\]'"):
        Metrics()
