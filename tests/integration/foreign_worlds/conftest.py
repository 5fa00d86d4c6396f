"""One pair of servers for the worlds of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.foreign_worlds.servers import Servers, foreign_servers


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Both servers, empty."""
    with foreign_servers() as servers:
        yield servers
