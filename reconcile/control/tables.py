"""The tables of the control store, as sql/control makes them."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, Integer, MetaData, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from reconcile.control.database import AggregateId, Instant

_Json = JSON().with_variant(JSONB(), "postgresql")

tables = MetaData()

schema_migration = Table(
    "schema_migration",
    tables,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("applied_at", Instant, nullable=False),
)

run = Table(
    "run",
    tables,
    Column("id", Text, primary_key=True),
    Column("contract", Text, nullable=False),
    Column("contract_digest", Text, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Column("stage", Text),
    Column("complete", Boolean),
    Column("exit_code", Integer),
    Column("links", _Json, nullable=False),
    Column("requested_by", Text),
    Column("requested_way", Text),
    Column("requested_sudo_user", Text),
)

finding = Table(
    "finding",
    tables,
    Column("link", Text, primary_key=True),
    Column("aggregate_id", AggregateId, primary_key=True),
    Column("difference", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("fields_digest", Text),
    Column("first_seen_run", Text, nullable=False),
    Column("first_seen_at", Instant, nullable=False),
    Column("last_seen_run", Text, nullable=False),
    Column("last_seen_at", Instant, nullable=False),
    Column("recurrences", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("closed_by_run", Text),
    Column("closed_at", Instant),
    Column("repaired_by", Text),
    Column("returned", Integer, nullable=False),
    Column("returned_run", Text),
    Column("as_of", Instant, nullable=False),
)

drift = Table(
    "drift",
    tables,
    Column("link", Text, primary_key=True),
    Column("run_id", Text, primary_key=True),
    Column("complete", Boolean, nullable=False),
    Column("opened", Integer, nullable=False),
    Column("returned", Integer, nullable=False),
    Column("closed", Integer, nullable=False),
    Column("still_open", Integer, nullable=False),
    Column("recorded_at", Instant, nullable=False),
)

distribution = Table(
    "distribution",
    tables,
    Column("link", Text, primary_key=True),
    Column("run_id", Text, primary_key=True),
    Column("side", Text, primary_key=True),
    Column("figures", _Json, nullable=False),
    Column("recorded_at", Instant, nullable=False),
)

lease = Table(
    "lease",
    tables,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("acquired_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
)

correction = Table(
    "correction",
    tables,
    Column("id", Text, primary_key=True),
    Column("run_id", Text, primary_key=True),
    Column("topic_partition", Integer, primary_key=True, autoincrement=False),
    Column("link", Text, nullable=False),
    Column("aggregate_id", AggregateId, nullable=False),
    Column("basis_version", BigInteger),
    Column("state", Text, nullable=False),
    Column("topic_offset", BigInteger),
    Column("reason", Text),
    Column("differing", Text),
    Column("token", BigInteger, nullable=False),
    Column("intended_at", Instant, nullable=False),
    Column("changed_at", Instant, nullable=False),
)

request = Table(
    "request",
    tables,
    Column("id", Text, primary_key=True),
    Column("contract", Text, nullable=False),
    Column("ids", _Json, nullable=False),
    Column("mode", Text, nullable=False),
    Column("apply", Boolean, nullable=False),
    Column("requested_at", Instant, nullable=False),
    Column("state", Text, nullable=False),
    Column("holder", Text),
    Column("claimed_at", Instant),
    Column("run_id", Text),
    Column("finished_at", Instant),
    Column("requested_by", Text),
    Column("requested_sudo_user", Text),
)

approval = Table(
    "approval",
    tables,
    Column("run_id", Text, primary_key=True),
    Column("plan_digest", Text, primary_key=True),
    Column("approver", Text, primary_key=True),
    Column("way", Text, primary_key=True),
    Column("sudo_user", Text),
    Column("approved_at", Instant, nullable=False),
)
