"""A world whose copy is a folder of Parquet."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path

from tests.integration.foreign_worlds.world import Record, Row, Table, Topic, World

LAKE = """
version: 1
aggregate: lake
source: {store: origin, table: lake.fact, id: id, version: version}
topic: {cluster: main, name: foreign.lake, version: $.version}
consumers:
  - name: files
    group: lake.files
    isolation: read_committed
    store: lake
    table: lake-copy
    id: fact
    version: version
    fields:
      - {name: sum, source: sum, consumer: sum, event: $.sum}
      - {name: at, source: at, consumer: at, event: $.at}
      - {name: open, source: open, consumer: open, event: $.open}
      - {name: ratio, source: ratio, consumer: ratio, event: $.ratio, tolerance: 0.001}
      - {name: word, source: "word || '!'", consumer: "concat(word, '!')", event: "$.word || '!'"}
      - {name: tags, source: tags, consumer: tags, event: $.tags}
    failure: {policy: ignore, ledger: {table: lake-ledger, partition: part, offset: pos, at: noted}}
    settle: {timeout: 0s, confirm_after: 0s}
"""


def lake() -> World:
    """A copy, and its ledger, in a folder of Parquet."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    def fold(_: Row | None, record: Record) -> Row | None:
        row = record.said
        if row is None:
            return None
        told = {name: row[name] for name in ("version", "open", "ratio", "word", "tags")}
        return {"fact": row["id"], "sum": Decimal(row["sum"]), "at": datetime.fromisoformat(row["at"]), **told}

    world = World(
        "lake",
        LAKE,
        Table(
            "fact",
            "id text, version bigint, sum numeric(18,6), at timestamptz, open boolean, ratio double precision,"
            " word text, tags text[]",
        ),
        Topic("foreign.lake", 3),
    )
    files = world.copy(
        "files", "", fold, entry=lambda record, at: {"part": record.partition, "pos": record.offset, "noted": at}
    )
    files.ledger = Table("lake-ledger", "")
    names = [f"fact-{number}" for number in range(150)]

    def fields() -> Row:
        draw = world.random
        return {
            "sum": f"{draw.randrange(10**6)}.{draw.randrange(10**6):06d}",
            "at": f"2026-02-03T04:05:06.{draw.randrange(10**6):06d}+00:00",
            "open": draw.random() < 0.5,
            "ratio": draw.random(),
            "word": draw.choice(["a", "", "ä b"]),
            "tags": ["a b", f"t{draw.randrange(10**6)}"],
        }

    for _ in range(2):
        for name in names:
            world.change(name, **fields())
    skipped, flag, tags, near, twice, gone, word, tiny = names[:8]
    world.change(skipped, to=(), sum="0.000001", tags=["only"])
    world.expect("files", skipped, "changed", "skipped", ("sum", "tags"), certain=True)
    rows = files.table.rows
    rows[flag]["open"] = not rows[flag]["open"]
    world.expect("files", flag, "changed", "foreign_write", ("open",), certain=True)
    rows[tags]["tags"] = ["a b", "wrong"]
    world.expect("files", tags, "changed", "foreign_write", ("tags",), certain=True)
    rows[near]["ratio"] += 0.0005
    files.table.loose.append(dict(rows[twice]))
    world.expect("files", twice, "duplicated", "duplicate_applied")
    files.table.loose.append({**rows[twice], "fact": None})
    world.expect("files", None, "orphan", "phantom")
    rows.pop(gone)
    world.expect("files", gone, "missing", "foreign_write", certain=True)
    rows[word]["word"] = None
    world.expect("files", word, "changed", "foreign_write", ("word",), certain=True)
    files.table.loose.append({**rows[tiny], "fact": "ghost"})
    world.expect("files", "ghost", "orphan", "phantom", certain=True)

    def write(path: Path) -> None:
        path.mkdir()
        schema = pa.schema(
            [
                *(("fact", pa.string()), ("version", pa.int64()), ("open", pa.bool_()), ("ratio", pa.float64())),
                *(("word", pa.string()), ("tags", pa.list_(pa.string())), ("sum", pa.decimal128(20, 6))),
                ("at", pa.timestamp("us", tz="UTC")),
            ]
        )
        pq.write_table(pa.Table.from_pylist(files.table.all(), schema), path / "part-0.parquet")

    def write_ledger(path: Path) -> None:
        path.mkdir()
        assert files.ledger is not None
        pq.write_table(pa.Table.from_pylist(files.ledger.all()), path / "part-0.parquet")

    world.files |= {"lake-copy": write, "lake-ledger": write_ledger}
    return world
