"""Provides what the lab's Airflow needs before it starts: its database, our pool, variables and connections.

Reads one JSON object from stdin: {"pools": {NAME: SLOTS}, "variables": {NAME: TEXT}, "connections": {ID: {...}}}.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def provide(wanted: dict[str, Any]) -> None:
    """Migrate the database, and write the wanted pools, variables and connections."""
    from airflow.models import Connection, Pool, Variable
    from airflow.utils.db import initdb
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    initdb()
    for name, slots in wanted["pools"].items():
        Pool.create_or_update_pool(name, slots, "Spark applications at once", include_deferred=False)
    with create_session() as session:
        for name, value in wanted["variables"].items():
            Variable.set(name, value, session=session)
        for conn_id, fields in wanted["connections"].items():
            session.execute(delete(Connection).where(Connection.conn_id == conn_id))
            session.add(Connection(conn_id=conn_id, **fields))


if __name__ == "__main__":
    provide(json.load(sys.stdin))
