"""The servers that tests of consumers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.consumer.world import Scenario, World, consumer_world


@pytest.fixture(scope="package")
def world() -> Iterator[World]:
    """A broker and a database server."""
    with consumer_world() as started:
        yield started


@pytest.fixture
def scenario(world: World) -> Scenario:
    """A topic and a database of the test's own."""
    return world.scenario()
