"""What parts of the log's state are of records that this process has: what `facts` has Spark compute of many."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from itertools import groupby
from typing import TYPE_CHECKING, Any

from reconcile.audit.columns import ROUTED_BY, ROUTING
from reconcile.audit.home_partition import Router, routed
from reconcile.domain.case import Routing
from reconcile.gather.log.history_columns import DELETES, ID, KEY, OFFSET, PARTITION, TIMESTAMP, TYPE, VERSION
from reconcile.gather.log.state import Found
from reconcile.spark import local_frames

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

_PLAIN = re.compile(r"-?[0-9]{1,38}", re.ASCII)
"""A version that Spark reads as this number; of other texts Spark alone knows what it reads."""


def placement(records: pa.Table, router: Router, columns: str) -> Found:
    """Find the ids with a record in a wrong partition, and count those that stand in several."""
    import pyarrow as pa

    newest: dict[tuple[str, bytes | None, int], tuple[int, int | None]] = {}
    for row in _rows(records, (ID, KEY, PARTITION, OFFSET, TIMESTAMP)):
        if row[ID] is not None:
            place = row[ID], row[KEY], row[PARTITION]
            newest[place] = max(newest.get(place, (-1, None)), (row[OFFSET], row[TIMESTAMP]), key=lambda each: each[0])
    keys, partitions = (
        pa.array([key for _, key, _ in newest], pa.binary()),
        pa.array([p for *_, p in newest], pa.int32()),
    )
    offsets = pa.array([offset for offset, _ in newest.values()], pa.int64())
    routing = routed(router, keys, partitions, offsets).to_pylist() if newest else []
    of_ids = defaultdict(list)
    for (id_text, _, partition), (offset, at), where in zip(newest, newest.values(), routing, strict=True):
        of_ids[id_text].append((partition, at, offset, where[ROUTING], where[ROUTED_BY]))
    rows, spread, grown = [], 0, 0
    for id_text, places in of_ids.items():
        several = len({partition for partition, *_ in places}) > 1
        wrong = [each for each in places if each[3] == Routing.WRONG.value]
        spread += several
        grown += several and not wrong and all(each[3] != Routing.UNKNOWN.value for each in places)
        if wrong:
            last = max(places, key=lambda each: (each[1] is not None, each[1] or 0, each[2]))
            at = max((each[1] for each in wrong if each[1] is not None), default=None)
            rows.append((id_text, last[3] == Routing.WRONG.value, at, sorted({each[4] or "" for each in wrong})))
    return Found({"ids": len(of_ids), "spread": spread, "grown": grown}, local_frames.arrow_table(rows, columns))


def inversions(records: pa.Table, ignored: Collection[str], columns: str, *, positive: bool) -> Found | None:
    """Find the ids whose versions go down; None where a version is not plain. With `positive` a 0 tells nothing."""
    here = [
        row for row in _rows(records, (ID, PARTITION, OFFSET, TIMESTAMP, VERSION, DELETES, TYPE)) if row[ID] is not None
    ]
    known = [row for row in here if row[TYPE] not in ignored]
    if any(row[VERSION] is not None and not _PLAIN.fullmatch(row[VERSION]) for row in known):
        return None
    found: dict[str, list[int | None]] = defaultdict(list)
    known.sort(key=lambda row: (row[ID], row[PARTITION], row[OFFSET]))
    for (id_text, _), places in groupby(known, key=lambda row: (row[ID], row[PARTITION])):
        before: int | None = None
        for row in places:
            number = None if row[VERSION] is None else int(row[VERSION])
            if number is not None:
                if before is not None and number < before and (number > 0 or not positive):
                    found[id_text].append(row[TIMESTAMP])
                before = number if before is None else max(before, number)
            if row[DELETES]:
                before = None  # an aggregate that is made anew may count from one again
    rows = [(each, len(at), max((one for one in at if one is not None), default=None)) for each, at in found.items()]
    return Found({"records": sum(map(len, found.values()))}, local_frames.arrow_table(rows, columns))


def _rows(records: pa.Table, columns: Collection[str]) -> list[dict[str, Any]]:
    """Build rows of plain values, times in microseconds since 1970."""
    import pyarrow as pa

    found = records.select(list(columns))
    at = found.schema.get_field_index(TIMESTAMP)
    plain: list[dict[str, Any]] = found.set_column(at, TIMESTAMP, found.column(at).cast(pa.int64())).to_pylist()
    return plain
