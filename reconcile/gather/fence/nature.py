"""What a source is: its primary, which shows all rows as they are now, or something that may show less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from psycopg2 import sql

from reconcile.contract.model import Source
from reconcile.gather.stores.contract_check import relation
from reconcile.gather.stores.contract_sql import require_whole
from reconcile.gather.stores.session import Snapshot, StoreSession

_KINDS = (
    "select n.nspname || '.' || c.relname, c.relkind, c.relrowsecurity,"
    " exists (select from pg_subscription_rel s where s.srrelid = c.oid"
    " or s.srrelid in (select pg_partition_ancestors(c.oid)))"
    " from pg_class c join pg_namespace n on n.oid = c.relnamespace"
    " where (n.nspname, c.relname) in (select * from unnest(%s::text[], %s::text[])) order by 1"
)
_FOREIGN, _MATERIALIZED = "f", "m"


@dataclass(frozen=True)
class SourceNature:
    """Whether an id that the source does not show is gone, and what speaks against it."""

    proven_primary: bool
    """Whether it is proven that it shows all rows as they are now."""
    limits: tuple[str, ...] = ()
    """Why it is not, in words."""
    row_security: tuple[str, ...] = ()
    """Its tables that are under row-level security; the account sees all their rows, or the fence would not open."""


def of_other_store(store: str) -> SourceNature:
    """Build it for a store that is not Postgres."""
    return SourceNature(False, (f"{store} is not proven to be the primary: it is no Postgres",))


def of_mariadb(store: str, replica: str | None) -> SourceNature:
    """Build it for a MariaDB: nothing in it proves that no other server writes before it does."""
    limits = (f"{store} is not proven to be the primary: it is no Postgres",)
    return SourceNature(False, limits if replica is None else (f"{store} {replica}", *limits))


def of_postgres(session: StoreSession, source: Source, snapshot: Snapshot) -> SourceNature:
    """Query what the rows of a source are read from, views and queries included."""
    scans = list(_scans(_plan(session, source)))
    names = sorted({(each["Schema"], each["Relation Name"]) for each in scans if "Relation Name" in each})
    kinds = session.rows(_KINDS, ([schema for schema, _ in names], [name for _, name in names]))
    functions = sorted({_function(each) for each in scans if _is_opaque(each)})
    limits = [
        *([f"{source.store} is a replica: it may be behind its primary"] if snapshot.replica else []),
        *(f"{source.store} {each}" for each in functions),
        *(limit for name, kind, _, subscribed in kinds if (limit := _limit(name, kind, subscribed)) is not None),
    ]
    return SourceNature(not limits, tuple(limits), tuple(name for name, _, secured, _ in kinds if secured))


def _limit(name: str, kind: str, subscribed: bool) -> str | None:
    if kind == _FOREIGN:
        return f"{name} is a foreign table: nothing shows what the server behind it is"
    if kind == _MATERIALIZED:
        return f"{name} is a materialized view: it shows what was there when it was refreshed"
    return f"{name} is filled by a subscription: it may be behind its publisher" if subscribed else None


def _is_opaque(scan: dict[str, Any]) -> bool:
    """Decide whether a function gives the rows that a plan cannot look into: each one but the server's own."""
    return scan.get("Node Type") == "Function Scan" and scan.get("Schema") != "pg_catalog"


def _function(scan: dict[str, Any]) -> str:
    name = scan.get("Function Name")
    if name is None:
        return "is read by several functions at once: nothing shows what they read"
    if str(name).startswith("dblink"):
        return "reads another server by dblink: nothing shows what that one is"
    return f"is read by the function {scan.get('Schema')}.{name}: nothing shows what it reads"


def _plan(session: StoreSession, source: Source) -> dict[str, Any]:
    """Query how the rows, and whether they count as deleted, would be read: the plan has looked through all views."""
    deleted = require_whole(source.deleted or "false")
    statement = sql.SQL("explain (verbose, format json) select *, {} from {}").format(deleted, relation(source))
    plan: dict[str, Any] = session.rows(statement)[0][0][0]["Plan"]
    return plan


def _scans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for each in node.get("Plans", ()):
        yield from _scans(each)
