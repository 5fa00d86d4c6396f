"""Rows and events whose sensitive values are redacted as they are read: nothing of them comes to a disk in clear."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reconcile.audit.columns import VALUES
from reconcile.domain.redaction import Redactor
from reconcile.gather.log.history_columns import ID
from reconcile.gather.stores import row_columns
from reconcile.spark import local_frames

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame


def table(rows: pa.Table, redactor: Redactor) -> pa.Table:
    """Redact the rows of a table, in the columns of `row_columns`."""
    import pyarrow as pa

    ids = rows[row_columns.ID].to_pylist()
    for number, name in enumerate(redactor.fields):
        if name in redactor.at_once:
            column = row_columns.field(number)
            pairs = zip(ids, rows[column].to_pylist(), strict=True)
            values = pa.array([redactor.redacted(id_text, name, value) for id_text, value in pairs], pa.string())
            rows = rows.set_column(rows.column_names.index(column), column, values)
    return rows


def rows(frame: DataFrame, redactor: Redactor) -> DataFrame:
    """Redact rows, in the columns of `row_columns`."""
    names = row_columns.names(len(redactor.fields))

    def redacted(row: Mapping[str, Any]) -> dict[str, Any]:
        values = redactor.values(row[row_columns.ID], [row[name] for name in names[2:]], redactor.at_once)
        return {**row, **dict(zip(names[2:], values, strict=True))}

    return local_frames.mapped(frame, redacted) if redactor.at_once else frame


def events(frame: DataFrame, redactor: Redactor) -> DataFrame:
    """Redact what events say of the fields, as `event_values` has read it."""

    def redacted(row: Mapping[str, Any]) -> dict[str, Any]:
        return {**row, VALUES: redactor.values(row[ID], row[VALUES], redactor.at_once)}

    return local_frames.mapped(frame, redacted) if redactor.at_once else frame
