"""Corrections on topics that Kafka Connect writes stand in the form that a sink connector takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from reconcile.audit.home_partition import Router
from reconcile.contract.model import Contract
from reconcile.domain.cause import Cause
from reconcile.domain.finding import Confidence, Difference, FieldDifference, Finding, Hop
from reconcile.domain.partitioner import Partitioner, partition_of
from reconcile.domain.plan import LinkPlan
from reconcile.domain.plan_rules import Action
from reconcile.repair import connect_schema, planning
from reconcile.repair.correction_writer import CorrectionWriter
from reconcile.repair.json_values import RowMisfitError, path_of
from reconcile.repair.logged_aggregates import LoggedAggregate
from reconcile.repair.planning import LinkFacts, Route, TopicFacts
from reconcile.repair.source_values import SourceRow
from reconcile.repair.topic_form import Sample, learned
from tests.unit.test_plan_drafting import PARTITIONS, SINCE, inferred

DECIMAL = "org.apache.kafka.connect.data.Decimal"
ROW_FIELDS: list[dict[str, Any]] = [
    {"field": "id", "type": "int32", "optional": False},
    {"field": "name", "type": "string", "optional": False},
    {"field": "balance", "type": "bytes", "optional": True, "name": DECIMAL, "parameters": {"scale": "2"}},
    {"field": "born", "type": "int32", "optional": True, "name": "io.debezium.time.Date"},
    {"field": "at", "type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp"},
    {"field": "zoned", "type": "string", "optional": False, "name": "io.debezium.time.ZonedTimestamp"},
    {"field": "photo", "type": "bytes", "optional": True},
    {
        "field": "any",
        "type": "struct",
        "optional": True,
        "name": "io.debezium.data.VariableScaleDecimal",
        "fields": [
            {"field": "scale", "type": "int32", "optional": False},
            {"field": "value", "type": "bytes", "optional": False},
        ],
    },
]
MARKS: list[dict[str, Any]] = [
    {"field": "__deleted", "type": "string", "optional": True},
    {"field": "__op", "type": "string", "optional": True},
    {"field": "__table", "type": "string", "optional": True},
    {"field": "__lsn", "type": "int64", "optional": True},
    {"field": "__source_ts_ms", "type": "int64", "optional": True},
]
LOGGED = {
    "id": 7, "name": "Zoey", "balance": "BNI=", "born": -1, "at": -1, "zoned": "2026-01-02T03:04:05Z", "photo": "3q0=",
    "any": {"scale": 1, "value": "Ag=="},
}  # fmt: skip
VALUES = {
    "id": 7, "name": "Zoiee", "balance": Decimal("-0.01"), "born": "1969-12-30", "at": "2026-01-02T03:04:05.000006",
    "zoned": "2026-01-02T03:04:06+00:00", "photo": "\\xbeef", "any": Decimal("1.50"),
}  # fmt: skip
EXPECTED = {
    "id": 7, "name": "Zoiee", "balance": "/w==", "born": -2, "at": 1767323045000006,
    "zoned": "2026-01-02T03:04:06+00:00", "photo": "vu8=", "any": {"scale": 2, "value": "AJY="},
}  # fmt: skip

PLAIN = {**VALUES, "at": 1767323045000006, "photo": "vu8="}
"""The same where nothing but the types of the records says how values are written."""


def struct(fields: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Give the schema of a struct."""
    return {"type": "struct", "fields": fields, "optional": False, **more}


SOURCE = struct(
    [
        {"field": name, "type": "string", "optional": False}
        for name in ("version", "connector", "name", "db", "schema", "table")
    ]
    + [{"field": "ts_ms", "type": "int64", "optional": False}, {"field": "lsn", "type": "int64", "optional": True}],
    field="source",
)
ENVELOPE = struct(
    [
        struct(ROW_FIELDS, field="before") | {"optional": True},
        struct(ROW_FIELDS, field="after") | {"optional": True},
        SOURCE,
        {"field": "op", "type": "string", "optional": False},
        {"field": "ts_ms", "type": "int64", "optional": True},
        {"field": "ts_us", "type": "int64", "optional": True},
        {"field": "transaction", "type": "struct", "fields": [], "optional": True},
    ],
    name="server1.public.account.Envelope",
)


def enveloped(op: str, **row: Any) -> dict[str, Any]:
    """Give a value as Debezium's connector writes it with its defaults."""
    said = {**LOGGED, **row}
    source = dict.fromkeys(("version", "connector", "name", "db", "schema", "table"), "x") | {"ts_ms": 1, "lsn": 77}
    payload = {"before": said if op == "d" else None, "after": None if op == "d" else said, "source": source, "op": op}
    return {"schema": ENVELOPE, "payload": {**payload, "ts_ms": 2, "ts_us": 2000, "transaction": None}}


def flattened(deleted: bool = False, **row: Any) -> dict[str, Any]:
    """Give a value as ExtractNewRecordState writes it, with rewritten deletes."""
    marks = {"__deleted": str(deleted).lower(), "__op": "d" if deleted else "u", "__table": "account"}
    payload = {**LOGGED, **row, **marks, "__lsn": 77 + row.get("id", 0), "__source_ts_ms": 1}
    return {"schema": struct(ROW_FIELDS + MARKS), "payload": payload}


def contract(path: str = "$.", deletes: bool = False, **topic: Any) -> Contract:
    """Give a contract on such a topic; its values are the plain columns."""
    row = dict.fromkeys(LOGGED)
    value = {f"{path}{name}" if path != "$." else name: name for name in row}
    said = {"cluster": "main", "name": "account", "key": {"type": "json"}, "value": value, **topic}
    events: dict[str, Any] = {
        "name": f"{path}name",
        "balance": {"path": f"{path}balance", "as": "decimal(12,2)"},
        "born": {"path": f"{path}born", "as": "epoch_days"},
        "any": {"path": f"{path}any", "as": "decimal(38,10)"},
    }
    fields = [{"name": name, "source": name, "consumer": name, "event": event} for name, event in events.items()]
    consumer = {
        "name": "sink", "group": "connect-sink", "store": "copy", "table": "account", "id": "id", "fields": fields,
        "isolation": "read_committed", "repair": {"deletes": deletes, "max_ratio": 1},
    }  # fmt: skip
    source = {"store": "db", "table": "account", "id": "id"}
    return Contract.model_validate(
        {"version": 1, "aggregate": "account", "source": source, "topic": said, "consumers": [consumer]}
    )


def samples(value: Callable[..., Any]) -> list[Sample]:
    """Give records as the topic has them."""
    return [Sample(f'{{"id":{n}}}'.encode(), json.dumps(value(id=n)).encode(), at=n) for n in range(6)]


def finding(difference: Difference = Difference.CHANGED, id_text: str = "7") -> Finding:
    """Give a finding of the sink."""
    fields = (FieldDifference("name", "Zoiee", "Zoey"),) if difference is Difference.CHANGED else ()
    return Finding(
        "account/sink", id_text, difference, Cause.SKIPPED, Confidence.CERTAIN, Hop.LOG_TO_CONSUMER, fields=fields
    )


def facts(of: Contract, records: list[Sample], rows: dict[str, dict[str, Any]], body: Any = None) -> LinkFacts:
    """Give a world in which nothing speaks against a correction of these rows."""
    form, placed = learned(of.topic, records, None), inferred()
    known = LoggedAggregate({}, None, None, None, None, body)
    topic = TopicFacts(placed, Router.of(placed, ()), form, False, {"7": known} if body is not None else {})
    route = Route("account", "t-1", PARTITIONS, SINCE, (), main=True)
    entries = {name: path_of(name)[-1] for name in of.topic.value or ()}
    found = {
        id_text: (SourceRow(id_text, None, gone=False, values={name: row[own] for name, own in entries.items()}),)
        for id_text, row in rows.items()
    }
    return LinkFacts(topic, route, SINCE, found)


def planned(of: Contract, now: LinkFacts, *findings: Finding) -> LinkPlan:
    """Plan for the sink."""
    empty = LinkPlan(
        link="account/sink", consumer="sink", group="connect-sink", topic="", topic_id="", partitions=0,
        partitioner=(), since={}, readers=(), approval=True,
    )  # fmt: skip
    return planning.planned(empty, findings or (finding(),), of, of.consumers[0], "run-1", now)


def written(of: Contract, now: LinkFacts, plan: LinkPlan) -> list[Any]:
    """Give the values of the first item's records; None for a tombstone, also one that is JSON's null."""
    assert () == plan.refused
    logged = planning.with_key("7", now.topic.aggregates.get("7"), now.topic.form.keys)
    row = next(iter(now.rows.get("7", ())), None)
    (record,) = CorrectionWriter(of, now.topic.form, "run-1", SINCE).of(plan.items[0], logged, row)
    assert (b'{"id":7}', partition_of(b'{"id":7}', PARTITIONS, Partitioner.MURMUR2)) == (record.key, record.partition)
    return [None if value is None else json.loads(value) for value in record.values]


def test_a_flattened_value_keeps_its_schema() -> None:
    """And its columns are written as the schema says, from the plain values of the source."""
    of = contract("$.payload.")
    now = facts(of, samples(flattened), {"7": VALUES})
    (found,) = written(of, now, planned(of, now))
    assert struct(ROW_FIELDS + MARKS) == found["schema"]
    row, marks = ({k: v for k, v in found["payload"].items() if k.startswith("__") is mark} for mark in (False, True))
    assert EXPECTED == row
    assert marks.pop("__source_ts_ms") > 1_700_000_000_000
    assert {"__deleted": "false", "__op": "u", "__table": "account", "__lsn": None} == marks


def test_a_flattened_value_without_a_schema_is_written_as_the_contract_says() -> None:
    """`as` is the way back as well; what the contract does not compare takes the types of the records."""
    of = contract()
    bare = [
        Sample(each.key, json.dumps(json.loads(each.value or b"")["payload"]).encode()) for each in samples(flattened)
    ]
    now = facts(of, bare, {"7": PLAIN})
    (found,) = written(of, now, planned(of, now))
    assert EXPECTED == {name: value for name, value in found.items() if not name.startswith("__")}
    assert "false" == found["__deleted"]


def test_debeziums_envelope_keeps_its_schema_and_what_the_schema_requires() -> None:
    """Everything that a sink reads: schema, source, op, times; and no place in the source's log."""
    of = contract(format="debezium-json")
    now = facts(of, samples(lambda **row: enveloped("u", **row)), {"7": VALUES})
    (found,) = written(of, now, planned(of, now))
    assert ENVELOPE == found["schema"]
    payload = found["payload"]
    assert (EXPECTED, None, "u") == (payload["after"], payload["before"], payload["op"])
    assert {each["field"] for each in ENVELOPE["fields"]} == payload.keys()
    assert ("x", "reconcile", None) == tuple(payload["source"][name] for name in ("table", "connector", "lsn"))
    assert payload["ts_us"] // 1000 == payload["ts_ms"] == payload["source"]["ts_ms"]


@pytest.mark.parametrize(("path", "value", "more"), [
    ("$.", lambda **row: enveloped("u", **row), {"format": "debezium-json"}), ("$.payload.", flattened, {}),
])  # fmt: skip
def test_a_required_field_that_topic_value_leaves_out_refuses_the_plan(
    path: str, value: Callable[..., Any], more: dict[str, Any]
) -> None:
    """Every correction would go to the sink's dead letters."""
    of = contract(path, **more)
    less = {name: text for name, text in (of.topic.value or {}).items() if not name.endswith("zoned")}
    of = of.model_copy(update={"topic": of.topic.model_copy(update={"value": less})})
    now = facts(of, samples(value), {"7": VALUES})
    reasons = planned(of, now).refused
    assert any(f"leaves out {path}zoned, which all records carry" in each for each in reasons)
    assert any(f"no entry for {path}zoned, which the topic's schema requires" in each for each in reasons)


@pytest.mark.parametrize(("path", "more"), [("$.payload.", {}), ("$.", {"format": "debezium-json"})])
def test_a_column_that_the_source_has_had_for_a_moment_refuses_the_plan(path: str, more: dict[str, Any]) -> None:
    """The schema of the newest record has it: without a value a sink would set it to null."""
    phone = {"field": "phone", "type": "string", "optional": True}
    after = struct([*ROW_FIELDS, phone], field="after") | {"optional": True}
    newest: dict[str, Any] = flattened(phone="+49") | {"schema": struct([*ROW_FIELDS, phone, *MARKS])}
    if more:
        fields = [after if each["field"] == "after" else each for each in ENVELOPE["fields"]]
        newest = enveloped("u", phone="+49") | {"schema": struct(fields)}
    of = contract(path, **more)
    records = samples((lambda **row: enveloped("u", **row)) if more else flattened)
    records += [Sample(b'{"id":6}', json.dumps(newest).encode(), at=6)]
    reasons = planned(of, facts(of, records, {"7": VALUES})).refused
    assert any(f"leaves out {path}phone" in each for each in reasons)


def test_values_beside_the_payload_refuse_the_plan() -> None:
    """The contract speaks of a row, and the records are a schema and a payload."""
    of = contract()
    reasons = planned(of, facts(of, samples(flattened), {"7": VALUES})).refused
    assert any("write the entries of topic.value as paths such as $.payload.id" in each for each in reasons)


@pytest.mark.parametrize(("column", "value"), [
    ("balance", Decimal("0.001")),
    ("born", "infinity"),
    ("id", 2**31),
    ("name", None),
    ("any", "NaN"),
    ("photo", "%"),
])  # fmt: skip
def test_a_row_that_the_schema_cannot_hold_is_left_out_and_no_other_one(column: str, value: Any) -> None:
    """Its reason names the place; nothing is rounded."""
    of = contract("$.payload.")
    rows = {"7": {**VALUES, column: value}, "8": {**VALUES, "id": 8}}
    plan = planned(of, facts(of, samples(flattened), rows), finding(), finding(id_text="8"))
    assert ([(Action.RESTATE, "8"), (Action.ADVICE, "7")], ()) == (
        [(each.action, each.aggregate_id) for each in plan.items],
        plan.refused,
    )
    assert f"$.payload.{column}" in plan.items[1].reason
    assert value is None or str(value) not in plan.items[1].reason


def test_bits_are_not_taken_for_base64() -> None:
    """The text of a `bit(8)` is base64 too, of other bits."""
    bits = {"type": "bytes", "optional": True, "name": "io.debezium.data.Bits", "parameters": {"length": "8"}}
    with pytest.raises(RowMisfitError, match="flags"):
        connect_schema.fitted("01010101", bits, ("flags",))
    assert ["VQ==", None] == [connect_schema.fitted(each, bits, ("flags",)) for each in ("VQ==", None)]


def test_debeziums_deletion_is_a_pair() -> None:
    """A delete event with the last state, and the tombstone behind it: one correction with one id."""
    test = "$.__op == 'd'"
    of = contract(format="debezium-json", deletes=True, delete=[test, "tombstone"], delete_as=[test, "tombstone"])
    body = {**LOGGED, "__op": "u", "__source": {"lsn": 1}}
    now = facts(of, samples(lambda **row: enveloped("u", **row)), {}, body)
    deleting, tombstone = written(of, now, planned(of, now, finding(Difference.ORPHAN)))
    assert tombstone is None
    payload = deleting["payload"]
    assert (LOGGED, None, "d") == (payload["before"], payload["after"], payload["op"])


def test_a_rewritten_deletion_is_marked() -> None:
    """As ExtractNewRecordState rewrites it: `__deleted` and `__op` beside the last state, as text."""
    of = contract("$.payload.", deletes=True, delete="$.payload.__deleted == 'true'")
    now = facts(of, samples(flattened), {}, flattened())
    (found,) = written(of, now, planned(of, now, finding(Difference.ORPHAN)))
    assert struct(ROW_FIELDS + MARKS) == found["schema"]
    assert {**LOGGED, "__deleted": "true", "__op": "d", "__table": "account", "__lsn": None} == {
        name: value for name, value in found["payload"].items() if name != "__source_ts_ms"
    }


@pytest.mark.parametrize("value", ["__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="])
def test_a_placeholder_is_never_written(value: str) -> None:
    """A deletion is made of the last record, which may not tell all of it."""
    of = contract("$.payload.", deletes=True, delete="$.payload.__deleted == 'true'")
    now = facts(of, samples(flattened), {}, flattened(name=value))
    plan = planned(of, now, finding(Difference.ORPHAN))
    assert ([Action.ADVICE], ()) == ([each.action for each in plan.items], plan.refused)
    assert "does not tell all" in plan.items[0].reason


@pytest.mark.parametrize("fields", [ROW_FIELDS, [*ROW_FIELDS, {"field": "dropped", "type": "string"}]])
def test_a_last_record_that_does_not_fit_refuses_no_other_correction(fields: list[dict[str, Any]]) -> None:
    """It is of a time before the marks, or of a column that has been dropped since."""
    of = contract("$.payload.", deletes=True, delete="$.payload.__deleted == 'true'")
    old = {"schema": struct(fields), "payload": dict(LOGGED)}
    now = facts(of, samples(flattened), {"8": {**VALUES, "id": 8}}, old)
    plan = planned(of, now, finding(Difference.ORPHAN), finding(id_text="8"))
    assert ({("7", Action.ADVICE), ("8", Action.RESTATE)}, ()) == (
        {(each.aggregate_id or "", each.action) for each in plan.items},
        plan.refused,
    )


AMOUNT: dict[str, Any] = {"field": "amount", "type": "int64", "optional": True, "default": 10}


def summed(**row: Any) -> dict[str, Any]:
    """Give a value beside whose columns there is an amount, which has a default."""
    return {"schema": struct([*ROW_FIELDS, AMOUNT]), "payload": {**LOGGED, "amount": 5, **row}}


def test_a_schemas_default_is_not_added_once_more() -> None:
    """A restatement leaves out what events add, and a sink fills in the default of what is missing."""
    of = contract("$.payload.")
    adding = (
        of.consumers[0]
        .fields[0]
        .model_copy(update={"name": "sum", "event": "cast($.payload.amount as bigint)", "apply": "add"})
    )
    consumer = of.consumers[0].model_copy(update={"fields": (*of.consumers[0].fields, adding)})
    of = of.model_copy(update={"consumers": (consumer,)})
    now = facts(of, samples(summed), {"7": VALUES})
    (found,) = written(of, now, planned(of, now))
    assert 0 == found["payload"]["amount"]


@pytest.mark.parametrize("marked", ["__v", "__typename"])
def test_a_column_that_begins_like_a_mark_is_a_column(marked: str) -> None:
    """Left out of topic.value, it refuses the plan: another aggregate's value would be written otherwise."""
    of = contract()
    records = [Sample(b'{"id":%d}' % n, json.dumps({**LOGGED, marked: n}).encode(), at=n) for n in range(6)]
    reasons = planned(of, facts(of, records, {"7": PLAIN})).refused
    assert any(f"leaves out $.{marked}, which all records carry" in each for each in reasons)


@pytest.mark.parametrize(("flag", "gone"), [(False, "true"), ("N", "'Y'"), (0, "1")])
def test_what_says_that_a_row_is_not_deleted_is_written_as_all_records_have_it(flag: Any, gone: str) -> None:
    """It is the test of the contract, and need not stand in topic.value."""
    of = contract(delete=f"$.removed == {gone}")
    records = [Sample(b'{"id":%d}' % n, json.dumps({**LOGGED, "removed": flag}).encode(), at=n) for n in range(6)]
    now = facts(of, records, {"7": PLAIN})
    (found,) = written(of, now, planned(of, now))
    assert (flag, type(flag)) == (found["removed"], type(found["removed"]))


@pytest.mark.parametrize("schema", [
    {"type": "struct", "fields": ["id", "name"]}, {"fields": 5}, {"type": "struct", "fields": [{"type": "int32"}]},
    struct([{"field": "id", "type": "bytes", "name": DECIMAL, "parameters": {"scale": "x"}}]),
    struct([{"field": "id", "type": "bytes", "name": DECIMAL, "parameters": ["scale"]}]),
])  # fmt: skip
def test_a_schema_that_is_none_of_connects_ends_no_plan(schema: Any) -> None:
    """A team may have an envelope of its own with these two names."""
    of = contract("$.payload.")
    records = [Sample(b'{"id":7}', json.dumps({"schema": schema, "payload": LOGGED}).encode())]
    planned(of, facts(of, records, {"7": VALUES}))


def test_a_deletion_shows_no_form_of_a_state() -> None:
    """The newest record may be a rewritten deletion."""
    of = contract("$.payload.", delete="$.payload.__deleted == 'true'")
    gone = Sample(b'{"id":9}', json.dumps(flattened(deleted=True, id=9)).encode(), at=99)
    bare = Sample(b'{"id":8}', json.dumps({"schema": struct(ROW_FIELDS), "payload": None}).encode(), at=98)
    now = facts(of, [*samples(flattened), gone, bare], {"7": VALUES})
    (found,) = written(of, now, planned(of, now))
    assert ("false", "u") == (found["payload"]["__deleted"], found["payload"]["__op"])


@pytest.mark.parametrize(("path", "value", "more"), [
    ("$.", lambda **row: enveloped("u", **row), {"format": "debezium-json"}), ("$.payload.", flattened, {}),
])  # fmt: skip
def test_a_record_without_a_schema_is_not_the_form_of_the_topic(
    path: str, value: Callable[..., Any], more: dict[str, Any]
) -> None:
    """A connector that was set up without schemas for a while: a sink takes none of these records."""
    of = contract(path, **more)
    bare = Sample(b'{"id":9}', json.dumps(value(id=9)["payload"]).encode(), at=99)
    now = facts(of, [*samples(value), bare], {"7": VALUES})
    (found,) = written(of, now, planned(of, now))
    assert value()["schema"] == found["schema"]


def test_a_link_of_deletions_needs_no_value_for_all_fields() -> None:
    """What corrections would leave out matters for states alone."""
    of = contract(format="debezium-json", deletes=True)
    less = {"id": "id"}
    of = of.model_copy(update={"topic": of.topic.model_copy(update={"value": less})})
    now = facts(of, samples(lambda **row: enveloped("u", **row)), {}, {**LOGGED, "__op": "u"})
    assert [None] == written(of, replace(now), planned(of, now, finding(Difference.ORPHAN)))


@pytest.mark.parametrize("value", [None, b"null"])
def test_a_tombstone_is_written_as_the_topic_has_them(value: bytes | None) -> None:
    """Where Connect writes JSON's null, a sink that reads texts fails on a record without a value."""
    form = learned(contract().topic, [*samples(flattened), Sample(b'{"id":7}', value, at=9)], None)
    assert value == form.tombstone
    of = contract(deletes=True)
    now = facts(of, samples(flattened), {}, {})
    plan = planned(of, now, finding(Difference.ORPHAN))
    logged = planning.with_key("7", now.topic.aggregates.get("7"), form.keys)
    (record,) = CorrectionWriter(of, form, "run-1", SINCE).of(plan.items[0], logged, None)
    assert (value,) == record.values
