"""Deletions that are told by a state are read once more as the audit reads events, and have to be deletions there."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import pytest

from reconcile.contract.model import Contract
from reconcile.domain.correction import Correction
from reconcile.domain.plan import Item
from reconcile.domain.plan_rules import Action
from reconcile.gather.link_reader import LinkReader
from reconcile.repair.correction_writer import CorrectionWriter
from reconcile.repair.logged_aggregates import LoggedAggregate
from reconcile.repair.rereading import Rereading
from reconcile.repair.topic_form import Sample, learned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEM = Item(
    link="cars/lot", aggregate_id="1", action=Action.TOMBSTONE, cause="skipped", reason="", topic="cars",
    partitions=(0,), correction_id="00000000-0000-0000-0000-000000000001",
)  # fmt: skip
ROW = {"id": 1, "rev": 4, "plate": "P", "seats": 3}
ENVELOPE = {"before": None, "after": ROW, "source": {"name": "cars", "lsn": 1}, "op": "u", "ts_ms": 1}


class Reader:
    """What is needed of a link's reader."""

    def __init__(self, spark: SparkSession, contract: Contract) -> None:
        from reconcile.domain.canonical import CanonicalType, Kind, Layout

        self.spark, self.contract, self.consumer = spark, contract, contract.consumers[0]
        text = CanonicalType(Kind.TEXT)
        rows = type("Rows", (), {"form": Layout((text,), None, (text, CanonicalType(Kind.NUMERIC)))})
        self.rows = (rows, rows)
        self.reading = nullcontext


def contract(**topic: Any) -> Contract:
    """Give a contract whose topic is told about, with a sum among its fields."""
    said = {"cluster": "main", "name": "cars", "value": {"id": "id", "plate": "plate"}}
    fields = [
        {"name": "plate", "source": "plate", "consumer": "plate", "event": "$.plate"},
        {"name": "seats", "source": "seats", "consumer": "seats", "event": "$.seats", "apply": "add"},
    ]
    lot = {"name": "lot", "group": "lot", "store": "copies", "table": "lot", "id": "car", "fields": fields}
    source = {"store": "origin", "table": "car", "id": "id", "version": "rev"}
    data = {"version": 1, "aggregate": "cars", "source": source, "topic": {**said, **topic}, "consumers": [lot]}
    return Contract.model_validate(data)


def deletion(of: Contract, newest: dict[str, Any]) -> Correction:
    """Write what deletes an aggregate of which the log has this record."""
    sample = Sample(b"1", json.dumps(newest).encode(), (("rev", b"4"),))
    form = learned(of.topic, [sample], None)
    logged = LoggedAggregate(key=b"1", body=form.codec.read(sample.value or b""), version_text="4")
    (found,) = CorrectionWriter(of, form, "run-1", {0: 0}).of(ITEM, logged, None)
    return found


@pytest.mark.parametrize(("topic", "newest"), [
    ({"delete": "$.gone == true", "version": "$.rev"}, ROW),
    ({"delete": "$.gone == true", "version": "header:rev"}, ROW),
    ({"delete": "$.gone == true", "version": "$.rev", "state": "patch"}, ROW),
    ({"format": "debezium-json", "delete": "$.__op == 'd'", "version": "$.rev"}, ENVELOPE),
    ({"format": "debezium-json", "delete": "$.__op == 'd'"}, {"schema": {}, "payload": ENVELOPE}),
    ({"version": "$.rev"}, ROW),
    (
        {
            "format": "debezium-json",
            "version": "$.rev",
            "delete": ["$.__op == 'd'", "tombstone"],
            "delete_as": ["$.__op == 'd'", "tombstone"],
        },
        ENVELOPE,
    ),
    ({"delete": ["tombstone", "$.gone == true", "$.state == 9"], "delete_as": "$.state == 9"}, {**ROW, "state": 1}),
])  # fmt: skip
def test_a_deletion_is_read_as_one(spark: SparkSession, topic: dict[str, Any], newest: dict[str, Any]) -> None:
    """With a version where the topic's deletions have one, and nothing that is added."""
    of = contract(**topic)
    assert [] == Rereading(cast("LinkReader", Reader(spark, of)), None).problems([], [deletion(of, newest)])


@pytest.mark.parametrize(("topic", "value", "why"), [
    ({"delete": "$.gone == true", "version": "$.rev"}, {"id": 1, "rev": 4}, "would not be taken for one"),
    ({"delete": "$.gone == true", "version": "$.rev"}, {"id": 1, "gone": True}, "would carry no version"),
    ({"delete": "$.gone == true", "state": "patch"}, {**ROW, "gone": True}, "would add to seats"),
    (
        {"delete": "$.__op == 'd'", "format": "debezium-json"},
        {**ENVELOPE, "after": {"id": 1}},
        "would not be taken for one",
    ),
])  # fmt: skip
def test_a_deletion_that_is_read_otherwise_is_told(
    spark: SparkSession, topic: dict[str, Any], value: dict[str, Any], why: str
) -> None:
    """Before anything is emitted."""
    made = Correction("c", "e", "cars/lot", "1", "skipped", "cars", 0, b"1", json.dumps(value).encode(), (), None, 0)
    (said,) = Rereading(cast("LinkReader", Reader(spark, contract(**topic))), None).problems([], [made])
    assert f"1 of 1 deletions {why}" in said
