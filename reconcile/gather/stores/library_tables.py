"""What the consumer library keeps in a consumer's store: who consumes by it there, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconcile.gather.stores.session import StoreSession

LEDGER = "reconcile.ledger"
READ = ("consumer", "ledger", "stash", "discarded", "damaged")
"""The tables that an auditor reads."""
# By the catalog, which every account may read: to name a table of a schema that is not ours to use is an error.
_RIGHTS = """
    select has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')
        and not row_security_active(c.oid)
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'reconcile' and c.relname = any(%s)
"""
_REGISTERED = "select consumer_group, topic, policy, guard, ledger from reconcile.consumer order by consumer_group"


@dataclass(frozen=True)
class Registration:
    """How a group consumes by the library, as it said when it was started."""

    group: str
    topic: str
    policy: str
    guard: str
    ledger: bool
    """Whether it notes what it is done with."""


@dataclass(frozen=True)
class LibraryTables:
    """The tables of the library in one store."""

    readable: bool
    """Whether our account may read all that the audit looks at; if not, it is as if they were not there."""
    registrations: tuple[Registration, ...] = ()

    def of(self, group: str, topic: str) -> Registration | None:
        """Look up how a group consumes a topic; None if it does not by the library."""
        return next((each for each in self.registrations if (each.group, each.topic) == (group, topic)), None)


def library_tables(session: StoreSession) -> LibraryTables | None:
    """Query the tables of the library; None for a store that has none."""
    rights = [readable for (readable,) in session.rows(_RIGHTS, (list(READ),))]
    if len(rights) < len(READ):
        return None
    if not all(rights):
        return LibraryTables(readable=False)
    return LibraryTables(True, tuple(Registration(*row) for row in session.rows(_REGISTERED)))
