"""What is kept from people's eyes: by the contract that a run was made with, and by that contract as it is now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reconcile.contract.model import Contract
from reconcile.report.story import HIDDEN

_HASHED = re.compile("sha256:[0-9a-f]{16}")
_UNNAMED = "This run did not keep the names of its fields, so the values in its stories are hidden."


@dataclass(frozen=True)
class Hiding:
    """Which fields of each consumer may be shown."""

    fields: Mapping[str, tuple[str, ...]]
    """The names of the fields, in the order in which the run's cases hold their values, by consumer."""
    hidden: Mapping[str, frozenset[str]]
    note: str | None = None

    def finding(self, finding: dict[str, Any], consumer: str) -> dict[str, Any]:
        """Give a finding whose hidden values are hidden."""
        hidden = self.hidden.get(consumer, frozenset())
        return {**finding, "fields": [_field(each, hidden) for each in finding["fields"]]}


def hiding(links: Iterable[Mapping[str, Any]], contract: Contract | None) -> Hiding:
    """Say what may be shown of a run that gathered these links; `contract` is the run's, as it is now, if it is.

    A field is hidden that was sensitive then or is now. A run that did not keep the names of its fields cannot tell
    which value is whose: then values in its stories are hidden, all of them.
    """
    names: dict[str, tuple[str, ...]] = {}
    hidden = {
        each.name: {field.name for field in each.fields if field.sensitive}
        for each in (contract.consumers if contract is not None else ())
    }
    unnamed = False
    for link in links:
        consumer, fields = link["consumer"], link.get("fields")
        if fields is None:
            unnamed = True
            fields = [{"name": f"field {number + 1}", "sensitive": True} for number in range(len(link["form"]))]
        names[consumer] = tuple(field["name"] for field in fields)
        hidden.setdefault(consumer, set()).update(field["name"] for field in fields if field["sensitive"])
    kept = {consumer: frozenset(some) for consumer, some in hidden.items()}
    return Hiding(names, kept, _UNNAMED if unnamed else None)


def _field(field: dict[str, Any], hidden: frozenset[str]) -> dict[str, Any]:
    return {**field, **{side: _shown(field[side], field["name"] in hidden) for side in ("source", "consumer")}}


def _shown(value: str | None, hide: bool) -> str | None:
    if value is None:
        return None
    return HIDDEN if hide or _HASHED.fullmatch(value) else value
