"""What is kept from people's eyes: by the contract that a run was made with, and by that contract as it is now."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconcile.contract.model import Contract
from reconcile.report.story import HIDDEN

_HASHED = re.compile("sha256:[0-9a-f]{16}")
_UNNAMED = "This run did not keep the names of its fields, so the values in its stories are hidden."


@dataclass(frozen=True)
class Redaction:
    """Which fields of each consumer may be shown."""

    fields: Mapping[str, tuple[str, ...]]
    """The names of the fields, in the order in which the run's cases hold their values, by consumer."""
    hidden: Mapping[str, frozenset[str]]
    note: str | None = None

    def finding(self, finding: dict[str, Any], consumer: str) -> dict[str, Any]:
        """Give a finding whose hidden values are hidden."""
        hidden = self.hidden.get(consumer, frozenset())
        return {**finding, "fields": [_field(each, hidden) for each in finding["fields"]]}


def redaction(
    fields: Mapping[str, Sequence[tuple[str, bool]]], unnamed: Collection[str], contract: Contract | None
) -> Redaction:
    """Decide what may be shown of a run; `contract` is the run's, as it is now, if it can be read.

    `fields` are the names of each consumer's fields when the run was made, and whether each was sensitive. A field is
    hidden that was sensitive then or is now. Of `unnamed` consumers the run did not keep the names, and so cannot tell
    which value is whose: then values in its stories are hidden, all of them.
    """
    hidden = {
        each.name: {field.name for field in each.fields if field.sensitive}
        for each in (contract.consumers if contract is not None else ())
    }
    for consumer, pairs in fields.items():
        hidden.setdefault(consumer, set()).update(name for name, sensitive in pairs if sensitive)
    return Redaction(
        {consumer: tuple(name for name, _ in pairs) for consumer, pairs in fields.items()},
        {consumer: frozenset(some) for consumer, some in hidden.items()},
        _UNNAMED if unnamed else None,
    )


def _field(field: dict[str, Any], hidden: frozenset[str]) -> dict[str, Any]:
    return {**field, **{side: _shown(field[side], field["name"] in hidden) for side in ("source", "consumer")}}


def _shown(value: str | None, hide: bool) -> str | None:
    if value is None:
        return None
    return HIDDEN if hide or _HASHED.fullmatch(value) else value
