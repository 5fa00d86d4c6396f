"""The rights that a contract needs, for each purpose, as statements for whoever grants them: these and no more."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from reconcile.contract.consumer import Consumer, FailureTopic, RepairTopic, StashTable
from reconcile.contract.model import Contract
from reconcile.contract.terms import Rows
from reconcile.errors import RefusedError
from reconcile.files import committed
from reconcile.gather.stores.library_tables import READ as LIBRARY_TABLES
from reconcile.kafka.reader import READER_GROUP
from reconcile.pipeline.requests import GROUP, KEEPERS, TOPIC
from reconcile.repair.transaction import transactional_ids

# Not only words that begin with a letter: a quoted name may hold anything. Texts and comments hold no names.
_TOKENS = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/|\"(?:[^\"]|\"\")+\"|[^\W\d][\w$]*|[(),.;]|\S", re.DOTALL)
_WITH_FROM = frozenset({"extract", "substring", "trim", "overlay"})
# Words that end the list of tables after `from`.
_AFTER_FROM = frozenset(
    re.findall(
        r"\w+",
        "where group having window union intersect except order limit offset fetch for on using join left right full"
        " inner cross natural select with",
    )
)
_ALL = ("select", "insert", "update", "delete")
_LIBRARY_TABLE = re.compile(r"^create table (reconcile\.\w+)", re.MULTILINE)


class Purpose(StrEnum):
    """What rights are for."""

    AUDIT = "audit"
    """To compare, and to say why: everything that only reads."""
    APPLY = "apply"
    """To emit corrections; who emits also audits."""
    CONSUMER = "consumer"
    """To consume with the library, and to drain, release and replay what it put aside."""
    REQUEST = "request"
    """To ask for a run by a record on the request topic."""
    AIRFLOW = "airflow"
    """To read the request topic."""


@dataclass(frozen=True)
class TableGrant:
    """Rights on one table of a store."""

    store: str
    table: str
    """With its schema."""
    rights: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class KafkaGrant:
    """Rights on one resource of a cluster."""

    resource: Literal["topic", "group", "transactional-id", "cluster"]
    name: str
    operations: tuple[str, ...]
    why: str

    def command(self, principal: str) -> str:
        """Build the call of Kafka's tool that grants it."""
        named = "--cluster" if self.resource == "cluster" else f"--{self.resource} {shlex.quote(self.name)}"
        operations = " ".join(f"--operation {each}" for each in self.operations)
        return f"kafka-acls $KAFKA --add --allow-principal {shlex.quote(principal)} {operations} {named}  # {self.why}"


def table_grants(contract: Contract, purpose: Purpose, consumers: Iterable[str] = ()) -> list[TableGrant]:
    """List the rights on tables that a purpose needs, each table once."""
    if purpose is Purpose.AUDIT:
        found = [*_source(contract), *(each for link in _chosen(contract, consumers) for each in _copy(link))]
    elif purpose is Purpose.CONSUMER:
        found = [each for link in _chosen(contract, consumers) for each in _written(link)]
    else:
        found = []  # what is emitted was read before, and what is read again is the same
    return list({(each.store, each.table): each for each in reversed(found)}.values())[::-1]


def kafka_grants(contract: Contract, purpose: Purpose, consumers: Iterable[str] = ()) -> list[KafkaGrant]:
    """List the rights in the topic's cluster that a purpose needs, each resource once.

    Raises RefusedError for a group of a name that cannot be granted alone.
    """
    links = _chosen(contract, consumers)
    found: list[KafkaGrant] = []
    if purpose is Purpose.AUDIT:
        found.append(KafkaGrant("topic", contract.topic.name, ("Read", "DescribeConfigs"), "the log"))
        found.append(KafkaGrant("group", READER_GROUP, ("Describe",), "the name of readers that join no group"))
        found.append(KafkaGrant("cluster", "", ("DescribeConfigs",), "how long a transaction may last"))
        for link in links:
            found += _evidence(contract, link)
    elif purpose is Purpose.APPLY:
        for link in links:
            route = link.repair.route
            topic = route.topic if isinstance(route, RepairTopic) else contract.topic.name
            found.append(KafkaGrant("topic", topic, ("Read", "Write"), "corrections"))
            for id_ in transactional_ids(contract.link(link)):
                found.append(KafkaGrant("transactional-id", id_, ("Describe", "Write"), "transactions"))
    elif purpose is Purpose.CONSUMER:
        for link in links:
            found += _consumed(contract, link)
    elif purpose is Purpose.REQUEST:
        found.append(KafkaGrant("topic", TOPIC, ("Write",), "requests"))
    else:
        found.append(KafkaGrant("topic", TOPIC, ("Read",), "requests"))
        found += [KafkaGrant("group", each, ("Read",), "how far they were read") for each in (KEEPERS, GROUP)]
        found.append(KafkaGrant("group", READER_GROUP, ("Describe",), "the name of readers that join no group"))
    merged: dict[tuple[str, str], KafkaGrant] = {}
    for each in found:
        if each.name == "*":
            raise RefusedError(f"the {each.resource} * of the contract stands for every {each.resource} to kafka-acls")
        known = merged.setdefault((each.resource, each.name), each)
        operations = tuple(dict.fromkeys([*known.operations, *each.operations]))
        merged[each.resource, each.name] = replace(known, operations=operations)
    return list(merged.values())


def store_sql(contract: Contract, purpose: Purpose, role: str, consumers: Iterable[str] = ()) -> dict[str, str]:
    """Build the statements for each store, by its name; the owner of its tables may run them, also again."""
    quoted = _quoted(role)
    found: dict[str, dict[str, str]] = {}
    for each in table_grants(contract, purpose, consumers):
        lines = found.setdefault(each.store, {})
        schema, _, table = each.table.partition(".")
        lines[f"use {schema}"] = f"grant usage on schema {_quoted(schema)} to {quoted};"
        rights = ", ".join(each.rights)
        lines[each.table] = f"grant {rights} on {_quoted(schema)}.{_quoted(table)} to {quoted};  -- {each.why}"
    if purpose is Purpose.AUDIT:
        for consumer in _chosen(contract, consumers):
            found[consumer.store]["library"] = _library_sql(quoted)
    return {store: "\n".join(lines.values()) for store, lines in found.items()}


def tables_read(query: str) -> list[str]:
    """Find the tables that a query reads, by the words before them; it may find one too few or one too many."""
    words = [each for each in _TOKENS.findall(query) if not each.startswith(("'", "--", "/*"))]
    named = {
        _name(words[at - 1]) for at, word in enumerate(words) if word.lower() == "as" and words[at + 1 :][:1] == ["("]
    }
    found: dict[str, None] = {}
    calls: list[str] = []
    at = 0
    while at < len(words):
        before, word = words[at - 1].lower() if at else "", words[at].lower()
        at += 1
        if word == "(":
            calls.append(before)
        elif word == ")" and calls:
            calls.pop()
        if word not in ("from", "join") or before == "distinct" or (calls and calls[-1] in _WITH_FROM):
            continue
        while at < len(words):
            if words[at].lower() in ("lateral", "only"):
                at += 1
                continue
            if not _is_name(words[at]):
                break
            parts = [_name(words[at])]
            at += 1
            while at + 1 < len(words) and words[at] == ".":
                parts.append(_name(words[at + 1]))
                at += 2
            if words[at : at + 1] != ["("] and not (len(parts) == 1 and parts[0] in named):
                found[".".join(parts)] = None
            while at < len(words) and (_is_name(words[at]) and words[at].lower() not in _AFTER_FROM):
                at += 1  # another name for it
            if word != "from" or words[at : at + 1] != [","]:
                break
            at += 1
    return list(found)


def _source(contract: Contract) -> Iterator[TableGrant]:
    source = contract.source
    yield from _rows(source, "the source")
    if source.outbox is not None:
        yield TableGrant(source.store, _in_schema(source.outbox.table), ("select",), "source.outbox")


def _copy(consumer: Consumer) -> Iterator[TableGrant]:
    yield from _rows(consumer, f"the copy of {consumer.name}")
    failure = consumer.failure
    if failure.ledger is not None:
        yield TableGrant(
            consumer.store, _in_schema(failure.ledger.table), ("select",), f"the ledger of {consumer.name}"
        )
    if isinstance(failure.stash, StashTable):
        yield TableGrant(consumer.store, _in_schema(failure.stash.table), ("select",), f"the stash of {consumer.name}")


def _written(consumer: Consumer) -> Iterator[TableGrant]:
    for each in _rows(consumer, "what the handler writes: more, if it writes more"):
        yield TableGrant(each.store, each.table, _ALL, each.why)
    for table in _library_tables():
        yield TableGrant(consumer.store, table, _ALL, "the consumer library")


def _rows(rows: Rows, why: str) -> Iterator[TableGrant]:
    if rows.table is not None:
        yield TableGrant(rows.store, _in_schema(rows.table), ("select",), why)
    else:
        for each in tables_read(rows.query or ""):
            yield TableGrant(
                rows.store, _in_schema(each), ("select",), f"{why}; found in its query: see that it is all"
            )


def _evidence(contract: Contract, consumer: Consumer) -> Iterator[KafkaGrant]:
    why = f"how far {consumer.name} has come"
    for group in (consumer.group, *contract.groups_before(consumer)):
        yield KafkaGrant("group", group, ("Describe",), why)
    for topic, reader in _parking(consumer):
        yield KafkaGrant("topic", topic, ("Read", "DescribeConfigs"), f"what {consumer.name} put aside")
        if reader is not None:
            yield KafkaGrant("group", reader, ("Describe",), why)
    if isinstance(consumer.repair.route, RepairTopic):
        yield KafkaGrant("topic", consumer.repair.route.topic, ("Read", "DescribeConfigs"), "the route of corrections")


def _consumed(contract: Contract, consumer: Consumer) -> Iterator[KafkaGrant]:
    yield KafkaGrant("topic", contract.topic.name, ("Read",), "the topic")
    yield KafkaGrant("group", consumer.group, ("Read",), "the group")
    for group in contract.groups_before(consumer):
        yield KafkaGrant("group", group, ("Describe",), "what it waits for")
    yield KafkaGrant("group", READER_GROUP, ("Describe",), "the name of readers that join no group")
    for topic, reader in _parking(consumer):
        yield KafkaGrant("topic", topic, ("Read", "Write"), "what it puts aside")
        if reader is not None:
            yield KafkaGrant("group", reader, ("Read",), "the group of its retry topic")


def _parking(consumer: Consumer) -> Iterator[tuple[str, str | None]]:
    failure = consumer.failure
    for each in (*failure.retry, failure.dead_letter, failure.stash):
        if isinstance(each, FailureTopic):
            yield each.topic, each.group


def _chosen(contract: Contract, consumers: Iterable[str]) -> list[Consumer]:
    wanted = set(consumers)
    return [each for each in contract.consumers if not wanted or each.name in wanted]


def _library_sql(role: str) -> str:
    """Build what lets an auditor read the consumer library's tables, where the store has them."""
    listed = ", ".join(f"reconcile.{each}" for each in LIBRARY_TABLES)
    return (
        "do $$ begin\n    if to_regclass('reconcile.consumer') is not null then\n"
        f"        grant usage on schema reconcile to {role};\n"
        f"        grant select on {listed} to {role};\n    end if;\nend $$;"
    )


def _library_tables() -> list[str]:
    files = sorted(committed("sql", "consumer").glob("*.sql"))
    return [name for file in files for name in _LIBRARY_TABLE.findall(file.read_text("utf-8"))]


def _in_schema(table: str) -> str:
    return table if "." in table else f"public.{table}"


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _is_name(word: str) -> bool:
    return word.startswith('"') or re.fullmatch(r"[^\W\d][\w$]*", word) is not None


def _name(word: str) -> str:
    return word[1:-1].replace('""', '"') if word.startswith('"') else word.lower()
