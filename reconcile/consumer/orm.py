"""SQLAlchemy's sessions in the library's transaction: for a service whose handler works with an ORM."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from sqlalchemy import Connection, create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from reconcile.consumer.postgres import SharedConnection


class JoinedSession(Session):
    """A session whose commit keeps and whose rollback undoes what it did, and that ends no transaction.

    What it holds at the end of a `with` block, or of the handler, is kept with the message.
    """

    def __init__(self, bound: Connection, **options: Any) -> None:
        super().__init__(bound, join_transaction_mode="create_savepoint", **options)
        self.bound = bound

    def __exit__(
        self, type_: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if type_ is None:
            self.commit()
        super().__exit__(type_, value, trace)


def joined(opened: SharedConnection, options: dict[str, Any]) -> JoinedSession:
    """Build a session in the transaction that is open on a connection."""
    if opened.engine is None:
        # The connection is in autocommit, so that no commit or rollback of the driver ends what `begin` began.
        opened.engine = create_engine(
            "postgresql+psycopg2://", creator=lambda: opened, poolclass=StaticPool, pool_reset_on_return=None
        )
    bound = opened.engine.connect()
    bound.begin()
    return JoinedSession(bound, **options)
