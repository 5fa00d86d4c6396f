"""What records have in place of a value that they do not tell, as Debezium's of Postgres do for a large one.

Postgres does not log a large value that did not change, unless the table's replica identity says so. Debezium then
writes a placeholder, in a form that the column's type can hold.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from hashlib import md5
from uuid import UUID

from reconcile.domain.case import Case

DEBEZIUM = "__debezium_unavailable_value"
"""Debezium's placeholder, unless its `unavailable.value.placeholder` says otherwise."""


def in_records(placeholder: str) -> frozenset[str]:
    """Compute how it stands in a record: as text, bytes, an array of one of these or of its bytes, or a map."""
    raw, coded = placeholder.encode(), b64encode(placeholder.encode()).decode()
    lists = [placeholder], [coded], [_uuid(raw)], list(raw)
    return frozenset((placeholder, coded, *map(_compact, (*lists, {placeholder: placeholder}))))


def in_copies(placeholder: str) -> frozenset[str]:
    """Compute the canonical texts of the values that a consumer keeps which takes it for a value."""
    raw = placeholder.encode()
    elements = placeholder, b64encode(raw).decode(), raw.hex(), _uuid(raw), ",".join(map(str, raw))
    arrays = ("{" + each + "}" for each in elements)
    texts = raw.hex(), json.dumps(placeholder, ensure_ascii=False), f'"{placeholder}"=>"{placeholder}"'
    return in_records(placeholder) | {*arrays, *texts}


def taken_literally(case: Case, placeholders: Mapping[str, str | None]) -> Case:
    """Build the case of a consumer that takes the placeholders of some fields for their values."""
    events = (
        replace(
            event,
            fields={**event.fields, **{name: placeholders[name] for name in event.untold if name in placeholders}},
            untold=tuple(name for name in event.untold if name not in placeholders),
        )
        for event in case.events
    )
    return replace(case, events=tuple(events))


def _uuid(raw: bytes) -> str:
    return str(UUID(bytes=md5(raw, usedforsecurity=False).digest(), version=3))


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
