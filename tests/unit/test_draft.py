"""What `reconcile contract draft` guesses of samples, and how it says so."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.cli.contract import contract
from reconcile.contract.consumer import EncodedValue
from reconcile.contract.model import Contract, load_contract
from reconcile.domain.canonical import Kind
from reconcile.domain.partitioner import partition_of
from reconcile.draft import events as topic_events
from reconcile.draft.derivations import UNFIT, Derivation, comparable
from reconcile.draft.events import key_readings, value_format
from reconcile.draft.guessing import Draft, guess, id_column
from reconcile.draft.matching import Inputs, best_match
from reconcile.draft.samples import (
    Column,
    CopySample,
    FailureSample,
    Id,
    Record,
    Row,
    Sampled,
    SideTable,
    Table,
    TableSample,
    TopicSample,
)
from reconcile.draft.writing import contract_text, scalar, settings_text

IDS = [f"p-{number}" for number in range(200)]
PRODUCT = {
    "id": "text", "name": "text", "maker": "text", "price": "numeric(10,2)", "sold_on": "date", "active": "boolean",
    "revision": "integer", "updated_at": "timestamp with time zone", "deleted_at": "timestamp with time zone",
}  # fmt: skip
DOCUMENT = {
    "product_id": "text", "title": "text", "label": "text", "price_cents": "bigint", "sold_on": "date",
    "rank": "integer", "version": "integer",
}  # fmt: skip


def table(name: str, columns: Mapping[str, str], *keys: str) -> Table:
    listed = tuple(Column(each, form, each) for each, form in columns.items())
    return Table(name, listed, tuple((key,) for key in keys))


def product(number: int) -> Row:
    return {
        "id": f"p-{number}",
        "name": f"thing {number * 7}",
        "maker": f"maker{number % 17}",
        "price": f"{number * 3}.{number % 100:02}",
        "sold_on": f"2026-01-{number % 28 + 1:02}",
        "active": "true",
        "revision": str(number % 5 + 1),
        "updated_at": f"2026-02-01 10:00:{number % 60:02}.{number:06}+00",
        "deleted_at": None,
    }


def document(row: Row) -> Row:
    return {
        "product_id": row["id"],
        "title": row["name"],
        "label": f"{row['maker']}: {row['name']}",
        "price_cents": str(int(Decimal(str(row["price"])) * 100)),
        "sold_on": row["sold_on"],
        "rank": "5",
        "version": row["revision"],
    }


def record(row: Row, number: int, **more: object) -> Record:
    told = {"id": row["id"], "name": row["name"], "maker": row["maker"], "price": row["price"], **more}
    told |= {"revision": int(str(row["revision"])), "soldOn": row["sold_on"], "meta": {"type": "ProductChanged"}}
    key = str(row["id"]).encode()
    headers = (("event-id", f"e-{number}".encode()), ("correlationId", b"c"))
    return Record(partition_of(key, 6, "murmur2"), number, key, json.dumps(told).encode(), headers)


def documents(rows: list[Row]) -> list[Row]:
    return list(map(document, rows))


def published(rows: list[Row]) -> list[Record]:
    return [record(row, number) for number, row in enumerate(rows)]


def by_id(rows: Sequence[Row], column: str) -> dict[Id, Row]:
    return {(str(row[column]),): row for row in rows}


def sampled(
    rows: Sequence[Row] | None = None,
    copies: Callable[[list[Row]], list[Row]] = documents,
    records: Callable[[list[Row]], list[Record]] = published,
    **more: object,
) -> Sampled:
    """Build the samples of a shop whose search index has titles and prices in cents."""
    found = [product(number) for number in range(200)] if rows is None else list(rows)
    source = TableSample("shop-db", table("product", PRODUCT, "id"), ("id",), by_id(found, "id"))
    kept = by_id(copies(found), "product_id")
    index = TableSample("search-db", table("document", DOCUMENT, "product_id"), ("product_id",), kept)
    told = records(found)
    ids = [None if each.key is None else (each.key.decode(),) for each in told]
    known = len(set(ids))
    topic = TopicSample("main", "product", 6, told, ids, "string", known, known, value_format(told) or "json")
    copy = CopySample("search-indexer", index, 200, 200, committed=6)
    return replace(Sampled(source, topic, (copy,)), **more)  # type: ignore[arg-type]


def loaded(draft: Draft, folder: Path) -> Contract:
    file = folder / "drafted.yaml"
    file.write_text(contract_text(draft), "utf-8")
    return load_contract(file)


def test_a_shop_and_its_search_index(tmp_path: Path) -> None:
    """Fields by other names, in other units and made of two are found, with the events that tell them."""
    drafted = loaded(guess(sampled()), tmp_path)
    (search,) = drafted.consumers
    assert [
        ("title", "name", "$.name", True),
        ("label", "maker || ': ' || name", "$.maker || ': ' || $.name", True),
        ("price_cents", "price * 100", "cast($.price as decimal(28,6)) * 100", False),
        ("sold_on", "sold_on", "$.soldOn", False),
    ] == [(each.name, each.source, each.event, each.sensitive) for each in search.fields]
    assert ("product", ("id",), "revision", "updated_at") == (
        drafted.aggregate,
        drafted.source.id,
        drafted.source.version,
        drafted.source.updated_at,
    )
    assert ("$.revision", "header:event-id", "$.meta.type", "header:correlationId") == (
        drafted.topic.version,
        drafted.topic.event_id,
        drafted.topic.type,
        drafted.topic.correlation_id,
    )
    assert ("search-indexer", ("product_id",), "version") == (search.group, search.id, search.version)
    assert "deleted_at is not null" == drafted.source.deleted


def test_the_evidence_counts_what_agrees() -> None:
    """Two drifted rows of two hundred leave 198, and do not keep the field from being found."""

    def drifted(rows: list[Row]) -> list[Row]:
        kept = [document(each) for each in rows]
        return [{**each, "title": "old"} if number < 2 else each for number, each in enumerate(kept)]

    text = contract_text(guess(sampled(copies=drifted)))
    assert "        source: name  # agrees for 198 of 200 sampled ids\n" in text


def test_what_nothing_gives_is_listed() -> None:
    """A column that no column of the source gives is a comment, with what came nearest."""
    assert "      # rank: no column of product agrees\n" in contract_text(guess(sampled()))


def test_no_value_of_the_data_is_written() -> None:
    """Names, titles, prices, ids and types of records are in no line of a draft."""
    draft = guess(sampled())
    text = contract_text(draft)
    values = {str(value) for row in draft.sample.source.rows.values() for value in row.values() if value}
    values |= {"ProductChanged", *(str(each["price_cents"]) for each in draft.sample.copies[0].rows.rows.values())}
    shown = {each for each in values if len(each) > 4 and each in text}
    assert set() == shown


@pytest.mark.parametrize(
    ("values", "kind", "form"),
    [
        (["Ab 1", "Cd 2", "Ef 3"], Kind.TEXT, "same"),
        (["ab 1", "cd 2", "ef 3"], Kind.TEXT, "lower"),
        (["AB 1", "CD 2", "EF 3"], Kind.TEXT, "upper"),
    ],
)
def test_the_case_of_a_text_is_a_derivation(values: list[str | None], kind: Kind, form: str) -> None:
    """What agrees only in lower or upper case is found as that."""
    inputs = Inputs({"name": Kind.TEXT}, [{"name": each} for each in ("Ab 1", "Cd 2", "Ef 3")])
    match = best_match(values, kind, inputs, ["other"])
    assert match is not None
    assert (form, 3) == (match.derivation.form, match.agreeing)


def test_spaces_around_a_text_are_a_derivation() -> None:
    """A source that pads its texts is trimmed."""
    inputs = Inputs({"name": Kind.TEXT}, [{"name": f" {each} "} for each in "abcd"])
    match = best_match(list("abcd"), Kind.TEXT, inputs, ["other"])
    assert match is not None
    assert "trim" == match.derivation.form


@pytest.mark.parametrize(
    ("price", "told", "form", "factor"),
    [("12.34", "1234", "times", 100), ("12.345", "12345", "times", 1000), ("1234", "12.34", "over", 100)],
)
def test_units_are_derivations(price: str, told: str, form: str, factor: int) -> None:
    """Euros and cents, litres and millilitres, both ways."""
    rows = [{"amount": str(Decimal(price) + each)} for each in range(3)]
    wanted = [
        str(Decimal(each["amount"]) * factor if form == "times" else Decimal(each["amount"]) / factor) for each in rows
    ]
    assert Decimal(told) == Decimal(wanted[0])
    match = best_match(wanted, Kind.NUMERIC, Inputs({"amount": Kind.NUMERIC}, rows), ["cost"])
    assert match is not None
    assert (form, factor) == (match.derivation.form, match.derivation.factor)


def test_columns_of_yes_and_no_agree_by_chance() -> None:
    """Two of them are no match unless their names say so."""
    inputs = Inputs({"active": Kind.BOOLEAN}, [{"active": "true"} for _ in range(50)])
    other = best_match(["true"] * 50, Kind.BOOLEAN, inputs, ["subscribed"])
    named = best_match(["true"] * 50, Kind.BOOLEAN, inputs, ["is_active"])
    assert other is not None
    assert named is not None
    assert (False, True) == (other.convinces, named.convinces)


def test_times_that_nearly_agree_are_not_proposed() -> None:
    """When a copy's row was written is near to when the source's was, and never meant to be the same."""
    times = [f"2026-01-01 00:00:{each:02}+00" for each in range(50)]
    inputs = Inputs({"updated_at": Kind.TIMESTAMP}, [{"updated_at": each} for each in times])
    match = best_match([*times[:46], *["2026-02-01 00:00:00+00"] * 4], Kind.TIMESTAMP, inputs, ["changed_at"])
    assert match is not None
    assert not match.convinces


def test_of_equal_columns_the_name_decides() -> None:
    """A billing address that is the delivery address for all sampled ids is still the billing address."""
    rows = [{"delivery": f"street {each}", "billing": f"street {each}"} for each in range(9)]
    inputs = Inputs({"delivery": Kind.TEXT, "billing": Kind.TEXT}, rows)
    match = best_match([each["billing"] for each in rows], Kind.TEXT, inputs, ["billing_address"])
    assert match is not None
    assert ("billing",) == match.derivation.inputs


@given(
    st.lists(st.tuples(*[st.text("abcXYZ019", min_size=1, max_size=6)] * 3), min_size=4, max_size=20),
    st.sampled_from([" ", ", ", "-", ""]),
    st.sampled_from([" ", "/"]),
)
def test_a_text_made_of_three_is_found(parts: list[tuple[str, str, str]], one: str, other: str) -> None:
    """Whatever is found for such texts gives all of them."""
    rows = [{"a": a, "b": b, "c": c} for a, b, c in parts]
    wanted = [f"{a}{one}{b}{other}{c}" for a, b, c in parts]
    match = best_match(wanted, Kind.TEXT, Inputs(dict.fromkeys("abc", Kind.TEXT), rows), ["x"])
    assert match is not None
    assert len(parts) == match.agreeing
    assert wanted == [match.derivation.text(row) for row in rows]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1_000", Kind.INTEGER),
        ("NaN", Kind.NUMERIC),
        ("20260101", Kind.TIMESTAMP),
        ("20260101", Kind.DATE),
        ("maybe", Kind.BOOLEAN),
        ("{", Kind.JSON),
        ("1e99", Kind.FLOAT),
    ],
)
def test_what_a_database_would_not_read_does_not_agree(text: str, kind: Kind) -> None:
    """Python reads more than databases do."""
    assert UNFIT is comparable(text, kind)


def test_connectors_forms_are_tried() -> None:
    """Days since 1970 and decimals in base64 are found, and written with their forms."""
    rows = [{"$.born": str(each), "$.price": "AfQ="} for each in range(20000, 20010)]
    inputs = Inputs({"$.born": None, "$.price": None}, rows, connectors=True)
    days = [f"2024-10-{each:02}" for each in range(4, 14)]
    born = best_match(days, Kind.DATE, inputs, ["born"])
    price = best_match(["5.00"] * 10, Kind.NUMERIC, inputs, ["price"], scale=2)
    assert born is not None
    assert price is not None
    assert ("epoch_days", "decimal(38,2)") == (born.derivation.encoding, price.derivation.encoding)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([b'{"a": 1}', None], "json"),
        ([], "json"),
        ([b'{"op": "c", "after": {"a": 1}, "source": {}}'], "debezium-json"),
        ([b'{"schema": {}, "payload": {"op": "c", "after": {"a": 1}, "source": {}}}'], "debezium-json"),
        ([b"\0\0\0\0\x07abc"], "registry"),
        ([b"\xc3\x01avro"], None),
        ([b"[1]"], None),
    ],
)
def test_the_format_of_values(values: list[bytes | None], expected: str | None) -> None:
    """JSON, Debezium's envelope with and without a schema round it, what a registry frames, and none of these."""
    assert expected == value_format([Record(0, n, b"k", each) for n, each in enumerate(values)])


def test_keys_are_read_as_each_type() -> None:
    """One of eight bytes is a text and a number; a list in JSON is an id of several columns."""
    number = (42).to_bytes(8, "big")
    read = dict(key_readings([Record(0, 0, number, None), Record(0, 1, b'{"id": 7}', None)], 1))
    assert [("42",), None] == read["int64"]
    assert [None, ("7",)] == read["json"]
    assert {"json": [("eu", "7")]} == dict(key_readings([Record(0, 0, b'{"tenant": "eu", "id": 7}', None)], 2))


def test_deletions_are_read_in_all_their_forms(tmp_path: Path) -> None:
    """Tombstones, and events that say so; what was deleted is not compared."""

    def told(rows: list[Row]) -> list[Record]:
        kept = [record(each, n, deleted=False) for n, each in enumerate(rows)]
        gone = [record(each, 1000 + n, deleted=True) for n, each in enumerate(rows[:3])]
        return [*kept, *gone, Record(0, 5000, b"p-3", None)]

    draft = guess(sampled(records=told))
    assert ("tombstone", "$.deleted == true") == loaded(draft, tmp_path).topic.delete
    assert "# agrees for 196 of 196 sampled ids" in contract_text(draft)


def test_events_of_what_changed_are_a_patch(tmp_path: Path) -> None:
    """Where most members are in some events only, the newest event that has one tells it."""

    def told(rows: list[Row]) -> list[Record]:
        found = []
        for number, row in enumerate(rows):
            parts = ({"name": row["name"]}, {"price": row["price"], "note": "a"}, {"maker": row["maker"], "more": 1})
            key = str(row["id"]).encode()
            found += [Record(0, 3 * number + n, key, json.dumps(each).encode()) for n, each in enumerate(parts)]
        return found

    drafted = loaded(guess(sampled(records=told)), tmp_path)
    assert "patch" == drafted.topic.state
    assert ["$.name", "$.maker || ': ' || $.name", "cast($.price as decimal(28,6)) * 100", None] == [
        each.event for each in drafted.consumers[0].fields
    ]


def test_what_is_left_out_where_it_is_null_makes_no_patch() -> None:
    """Members that are in half of the events tell by the source's values that an event without them is whole."""
    now = [{**product(number), "name": None, "maker": None} for number in range(200)]

    def told(rows: list[Row]) -> list[Record]:
        first = [record(product(number), number) for number in range(200)]
        bodies = [json.loads(record(row, 0).value or b"") for row in rows]
        later = [{name: value for name, value in body.items() if value is not None} for body in bodies]
        return [
            each
            for one, other in zip(first, later, strict=True)
            for each in (one, replace(one, offset=one.offset + 1, value=json.dumps(other).encode()))
        ]

    assert not guess(sampled(now, records=told)).events.patch


def test_a_sum_is_told_by_events_that_add(tmp_path: Path) -> None:
    """The newest event has what was added last: where an id has several, only their sum is what the copy has."""
    columns = {"id": "text", "balance": "numeric(10,2)"}
    rows: list[Row] = [{"id": each, "balance": str(3 * number + 7)} for number, each in enumerate(IDS)]
    side = TableSample("db", table("account", columns, "id"), ("id",), by_id(rows, "id"))
    amounts = [(number, amount) for number in range(200) for amount in (number, 2 * number, 7)]
    told = [
        Record(0, n, IDS[number].encode(), json.dumps({"id": IDS[number], "amount": amount}).encode())
        for n, (number, amount) in enumerate(amounts)
    ]
    topic = TopicSample("main", "booking", 1, told, [(IDS[number],) for number, _ in amounts], known=200, looked_up=200)
    draft = guess(Sampled(side, topic, (CopySample("ledger", side, 200, 200),)))
    (balance,) = loaded(draft, tmp_path).consumers[0].fields
    assert ("add", "$.amount") == (balance.apply, balance.event)
    assert "apply: add  # the sum of the sampled events agrees for 200 of 200 ids that have several" in contract_text(
        draft
    )


def test_the_partitioner_that_explains_the_sample_is_said() -> None:
    """Murmur2 puts all of these keys where they are."""
    said = topic_events.partitioner_evidence(sampled().topic)
    assert said.startswith("of 200 sampled keys so many stand where it puts them: murmur2 200, ")


def test_an_empty_topic_gives_a_draft_that_says_so(tmp_path: Path) -> None:
    """What is compared is known, what the events tell is not; the first lines say why."""
    draft = guess(sampled(records=lambda _: []))
    assert [None] * 4 == [each.event for each in loaded(draft, tmp_path).consumers[0].fields]
    assert "# Look here: the topic product is empty" in contract_text(draft)


def test_the_column_with_the_ids_is_unique() -> None:
    """A count whose numbers are all ids too, and an orphan in the copy, do not mislead."""
    rows = table("document", {"quantity": "integer", "item": "integer"}, "item")
    assert "item" == id_column(rows, {"quantity": (50, 50), "item": (198, 200)})
    assert id_column(rows, {"quantity": (3, 50), "item": (0, 200)}) is None


def test_failure_topics_are_told_by_name_and_dialect(tmp_path: Path) -> None:
    """A dead-letter topic whose records name the group is its own; one of another group is not."""
    base = sampled()
    mine = FailureSample("product.search.dlq", {("spring-dlt", "search-indexer"): 12}, 12, ("retrier",))
    others = FailureSample("product.orders.dlt", {("spring-dlt", "orders"): 3}, 3)
    retries = [FailureSample(f"product.search.retry-{n}", {}, 0, ("again",)[n - 1 :]) for n in (1, 2)]
    copy = replace(base.copies[0], failures=(others, mine, *retries))
    failure = loaded(guess(replace(base, copies=(copy,))), tmp_path).consumers[0].failure
    assert failure.dead_letter is not None
    assert ("retry-then-dead-letter", "product.search.dlq", "retrier", ["again", "again"]) == (
        failure.policy,
        failure.dead_letter.topic,
        failure.dead_letter.group,
        [each.group for each in failure.retry],
    )


@pytest.mark.parametrize(
    ("topic", "doubted"),
    [("product.search.dlq", False), ("product.dlq", False), ("product.retry-2", False), ("product.invoice.dlq", True)],
)
def test_a_topic_of_another_group_is_doubted(topic: str, doubted: bool) -> None:
    """With one copy alone its name is all that tells, and is said to."""
    base = sampled()
    copy = replace(base.copies[0], failures=(FailureSample(topic, {}, 0),))
    text = contract_text(guess(replace(base, copies=(copy,))))
    (line,) = (line for line in text.splitlines() if topic in line)
    assert doubted == ("its name may be of another group" in line)


def test_members_with_parts_are_named() -> None:
    """A correction has to be all of the event: what has parts is to be built by hand."""
    text = contract_text(guess(sampled()))
    assert "  #   meta: ???  # it has parts: build it of them" in text


def test_a_ledger_and_an_outbox_are_told_by_their_rows(tmp_path: Path) -> None:
    """One names events of the sample, the other ids of the source and the topic."""
    times = "timestamp with time zone"
    box = table("outbox", {"position": "bigint", "aggregate_id": "text", "topic": "text", "published_at": times})
    waiting = SideTable(box, [{"position": "1", "aggregate_id": "p-1", "topic": "product", "published_at": None}])
    ledger = table("processed_message", {"event_id": "text", "partition": "integer", "offset": "bigint"})
    noted = SideTable(ledger, [{"event_id": "e-1", "partition": "0", "offset": "1"}])
    base = sampled(outboxes=(waiting,))
    drafted = loaded(guess(replace(base, copies=(replace(base.copies[0], ledgers=(noted,)),))), tmp_path)
    assert drafted.source.outbox is not None
    assert "topic <> 'product' or published_at is not null" == drafted.source.outbox.published
    kept = drafted.consumers[0].failure.ledger
    assert kept is not None
    assert ("event_id", "partition", "offset") == (kept.event_id, kept.partition, kept.offset)


def test_two_copies_have_names_of_their_own(tmp_path: Path) -> None:
    """Groups that differ in what all groups end in give two consumers."""
    base = sampled()
    copies = tuple(replace(base.copies[0], group=each) for each in ("product.search-service", "product-search"))
    drafted = loaded(guess(replace(base, copies=copies)), tmp_path)
    assert ["search", "search-2"] == [each.name for each in drafted.consumers]


def test_debeziums_envelope_is_read_as_the_row(tmp_path: Path) -> None:
    """Its deletions are known by its format; days and decimals are written in its forms."""
    columns = {"id": "bigint", "born": "date", "paid": "numeric(10,2)"}
    rows: list[Row] = [
        {"id": str(n), "born": str(date(2020, 1, 1) + timedelta(n)), "paid": f"{n}.25"} for n in range(1, 101)
    ]
    side = TableSample("db", table("person", columns, "id"), ("id",), by_id(rows, "id"))

    def told(row: Row, op: str = "c") -> bytes:
        born = (date.fromisoformat(str(row["born"])) - date(1970, 1, 1)).days
        unscaled = int(Decimal(str(row["paid"])) * 100)
        after = {"id": int(str(row["id"])), "born": born, "paid": b64encode(unscaled.to_bytes(3, "big")).decode()}
        return json.dumps({"before": None, "after": after, "op": op, "source": {"lsn": 1}}).encode()

    records = [Record(0, n, json.dumps({"id": n + 1}).encode(), told(row)) for n, row in enumerate(rows)]
    (_, ids), *_ = [each for each in key_readings(records, 1) if each[0] == "json"]
    form = value_format(records)
    assert form is not None
    topic = TopicSample("main", "people", 1, records, ids, "json", 100, 100, form)
    drafted = loaded(guess(Sampled(side, topic, (CopySample("connect-people", side, 100, 100),))), tmp_path)
    assert ("debezium-json", "people", "tombstone") == (
        drafted.topic.format,
        drafted.consumers[0].name,
        drafted.topic.delete,
    )
    assert [{"path": "$.born", "as_": "epoch_days"}, {"path": "$.paid", "as_": "decimal(38,2)"}] == [
        each.event.model_dump() for each in drafted.consumers[0].fields if isinstance(each.event, EncodedValue)
    ]


@settings(max_examples=30)
@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=4, unique=True))
def test_a_draft_is_valid_whatever_columns_are_called(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    """Columns whose names no contract holds are left out; all others are written so that they are read again."""
    columns = {"the id": "text", "title": "text", **dict.fromkeys(names, "text")}
    listed = tuple(Column(each, form, '"' + each.replace('"', '""') + '"') for each, form in columns.items())
    rows: list[Row] = [{name: f"{name} {number}" for name in columns} for number in range(5)]
    found = by_id(rows, "the id")
    side = TableSample("db", Table("t", listed, (("the id",),)), ("the id",), found)
    told = [Record(0, n, key[0].encode(), json.dumps(row).encode()) for n, (key, row) in enumerate(found.items())]
    topic = TopicSample("main", "t", 1, told, list(found), known=5, looked_up=5)
    draft = guess(Sampled(side, topic, (CopySample("g", side, 5, 5),)))
    assert "title" in {each.name for each in loaded(draft, tmp_path_factory.mktemp("odd")).consumers[0].fields}


def test_mariadb_is_written_in_its_own_sql() -> None:
    """It has no `||`."""
    derivation = Derivation("joined", ("a", "b"), separators=(", ",))
    assert "concat(`a`, ', ', `b`)" == derivation.sql({"a": "`a`", "b": "`b`"}, maria=True)


@given(st.text(min_size=1, max_size=20).filter(lambda each: each == each.strip() and each.isprintable()))
def test_any_text_is_read_as_what_was_written(text: str) -> None:
    """YAML takes none of them for something else, also within braces."""
    import yaml

    assert {"a": [text]} == yaml.safe_load(f"a: [{scalar(text)}]")


def test_eighty_columns_are_matched() -> None:
    """Wide tables are sampled all the same."""
    wide = {f"c{number}": "text" for number in range(80)}
    rows: list[Row] = [{"id": each, **{name: f"{name} {each} x" for name in wide}} for each in IDS]
    other: list[Row] = [{"id": row["id"], **{f"d{name}": row[name] for name in wide}} for row in rows]
    sides = [
        TableSample(
            "db",
            table("t", {"id": "text", **{k: "text" for k in each[0] if k != "id"}}, "id"),
            ("id",),
            by_id(each, "id"),
        )
        for each in (rows, other)
    ]
    told = [Record(0, n, str(row["id"]).encode(), json.dumps(row).encode()) for n, row in enumerate(rows)]
    topic = TopicSample("main", "t", 1, told, [(each,) for each in IDS], known=200, looked_up=200)
    draft = guess(Sampled(sides[0], topic, (CopySample("g", sides[1], 200, 200),)))
    assert 80 == len(draft.copies[0].fields)


@pytest.mark.parametrize("given_as", ["shop-db", "postgresql://me:hidden@h:5432/shop", ":t", "a:b:", "db:no table"])
def test_a_side_without_its_table_is_refused(given_as: str, tmp_path: Path) -> None:
    """With the form that it is to have, and without what was given, which may hold a password."""
    (tmp_path / "r.yaml").write_text("connections: {main: {bootstrap: 'localhost:1'}}")
    options = ["--source", given_as, "--topic", "t", "--copy", "a:b@g", "--config", str(tmp_path / "r.yaml")]
    result = CliRunner().invoke(contract, ["draft", *options])
    assert (2, True) == (result.exit_code, "--source is not of the form CONNECTION:TABLE" in result.stderr)
    assert "hidden" not in result.stderr


def test_a_copy_without_its_group_is_refused(tmp_path: Path) -> None:
    """An address with a user before its host is not taken for one with a group."""
    (tmp_path / "r.yaml").write_text("connections: {main: {bootstrap: 'localhost:1'}}")
    for each in ("a:b", "postgresql://me:hidden@h:5432/shop:t", "postgresql://me:hidden@h/shop"):
        options = ["--source", "a:b", "--topic", "t", "--copy", each, "--config", str(tmp_path / "r.yaml")]
        result = CliRunner().invoke(contract, ["draft", *options])
        assert (2, True) == (result.exit_code, "--copy is not of the form CONNECTION:TABLE@GROUP" in result.stderr)
        assert "hidden" not in result.stderr


def test_settings_are_written_without_a_password(tmp_path: Path) -> None:
    """A reference to a variable is read as one."""
    from reconcile.settings.settings import load_settings

    text = settings_text({"shop-db": {"url": "env:SHOP_DB_URL"}, "main": {"bootstrap": "localhost:9092"}})
    (tmp_path / "reconcile.yaml").write_text(text)
    assert {"shop-db", "main"} == load_settings(tmp_path / "reconcile.yaml").connections.keys()
