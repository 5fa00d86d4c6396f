"""The cases of a few suspects, joined in this process: the rows that `cases.case_rows` joins by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reconcile.audit import columns
from reconcile.gather.log.history_columns import ID
from reconcile.gather.stores import row_columns
from reconcile.spark import local_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reconcile.audit.cases import Readings

_Row = dict[str, Any]
_ROW = "struct<version: string, fields: array<string>, count: int>"
_EVENT = (
    "struct<key: binary, partition: int, offset: bigint, timestamp: bigint, version: string, event_id: string,"
    " type: string, readable: boolean, deletes: boolean, tells: array<boolean>, values: array<string>,"
    " bad: array<boolean>, untold: array<boolean>>"
)
_PARKED = (
    "struct<kind: string, topic: string, partition: int, offset: bigint, at: bigint, origin_partition: int,"
    " origin_offset: bigint, event_id: string, version: string, correlation_id: string, resolved: string,"
    " error: string>"
)
_ENTRY = "struct<event_id: string, partition: int, offset: bigint, at: bigint, unapplied: string, because: string>"
_UNDECIDED = "struct<partition: int, offset: bigint, at: bigint>"


def case_rows(readings: Readings, total: str, most: int) -> DataFrame | None:
    """Join all that was read of each suspect into one row; None where not all of it is local.

    `total` names the column with the number of an id's events. Of parked records and entries the newest `most` stay.
    """
    frames = (readings.suspects, readings.source, readings.copy, readings.events, readings.parked)
    read = [local_frames.plain_rows(each) for each in frames]
    more = (readings.ledger, readings.outbox, readings.undecided)
    read += [[] if each is None else local_frames.plain_rows(each) for each in more]
    if any(each is None for each in read):
        return None
    suspects, source, copy, events, parked, ledger, outbox, undecided = (each or [] for each in read)
    ours, theirs = (_by_id(rows, row_columns.ID) for rows in (source, copy))
    of_events, waiting, behind = (_by_id(rows, ID) for rows in (events, outbox, undecided))
    aside = _newest(parked, most, lambda row: row["resolved"] is not None)
    entries = _newest(ledger, most, lambda _: False)
    rows = []
    for suspect in suspects:
        id_text = suspect[ID]
        pending = waiting.get(id_text, [{}])[0]
        rows.append(
            (
                id_text,
                suspect[columns.DIFFERS],
                _settled(suspect),
                _stored(ours.get(id_text)),
                _stored(theirs.get(id_text)),
                _listed(of_events.get(id_text), {ID, total}),
                max((each[total] for each in of_events.get(id_text, ())), default=None),
                _listed(aside.get(id_text), {ID}),
                _listed(entries.get(id_text), {ID}),
                pending.get(columns.PENDING),
                pending.get(columns.PENDING_SINCE),
                next(iter(_listed(behind.get(id_text), {ID}) or ()), None),
            )
        )
    kinds = (
        *("string", "boolean", _ROW, _ROW, _ROW, f"array<{_EVENT}>", "bigint", f"array<{_PARKED}>"),
        *("array<string>" if readings.ledger is None else f"array<{_ENTRY}>", "int", "bigint", _UNDECIDED),
    )
    schema = ", ".join(f"{name} {kind}" for name, kind in zip(_COLUMNS, kinds, strict=True))
    return local_frames.of_rows(readings.suspects.sparkSession, rows, schema)


_COLUMNS = (
    *(ID, columns.DIFFERS, columns.SETTLED, columns.SOURCE, columns.COPY, columns.EVENTS, columns.EVENTS_TOTAL),
    *(columns.PARKED, columns.LEDGER, columns.PENDING, columns.PENDING_SINCE, columns.UNDECIDED),
)


def _by_id(rows: Iterable[_Row], name: str) -> dict[str | None, list[_Row]]:
    found: dict[str | None, list[_Row]] = {}
    for row in rows:
        found.setdefault(row[name], []).append(row)
    return found


def _newest(rows: Sequence[_Row], most: int, last: Callable[[_Row], bool]) -> dict[str | None, list[_Row]]:
    """Choose the newest rows of each id; those for which `last` is true come after all others."""

    def rank(row: _Row) -> tuple[Any, ...]:
        newest = ((row[name] is None, -(row[name] or 0)) for name in ("at", "partition", "offset"))
        return last(row), *newest

    with_id = _by_id((row for row in rows if row[ID] is not None), ID)
    return {id_text: sorted(some, key=rank)[:most] for id_text, some in with_id.items()}


def _settled(suspect: Mapping[str, Any]) -> _Row | None:
    fields = suspect[columns.SETTLED_FIELDS]
    return None if fields is None else {"version": suspect[columns.SETTLED_VERSION], "fields": fields, "count": 1}


def _stored(rows: Sequence[_Row] | None) -> _Row | None:
    """Build of an id's rows one, and how many there are."""
    if not rows:
        return None
    fields = [value for name, value in rows[0].items() if name not in (row_columns.ID, row_columns.VERSION)]
    return {"version": rows[0][row_columns.VERSION], "fields": fields, "count": len(rows)}


def _listed(rows: Sequence[_Row] | None, without: set[str]) -> list[_Row] | None:
    if rows is None:
        return None
    return [{name: value for name, value in row.items() if name not in without} for row in rows]
