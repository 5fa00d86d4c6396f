"""How the lab's services talk to their databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg2
from psycopg2.extensions import connection, cursor


def connect(url: str) -> connection:
    """Open a connection; the caller closes it."""
    return psycopg2.connect(url, options="-c timezone=UTC")


@contextmanager
def connected(url: str, autocommit: bool = False) -> Iterator[cursor]:
    """Open a cursor whose one transaction commits at the end of the block."""
    with closing(connect(url)) as session:
        session.autocommit = autocommit
        with session.cursor() as cursor:
            yield cursor
        if not autocommit:
            session.commit()
