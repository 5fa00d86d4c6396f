"""What a contract keeps from people's eyes, and what a run whose contract has changed keeps from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconcile.contract import Contract
from reconcile.report.story import HIDDEN

_HASHED = re.compile("sha256:[0-9a-f]{16}")


@dataclass(frozen=True)
class Hiding:
    """Which fields of each consumer may be shown."""

    fields: Mapping[str, tuple[str, ...]]
    """The names of the fields, in the order in which cases hold their values, by consumer."""
    hidden: Mapping[str, frozenset[str]]
    note: str | None = None

    def finding(self, finding: dict[str, Any], consumer: str) -> dict[str, Any]:
        """Give a finding whose hidden values are hidden."""
        hidden = self.hidden.get(consumer, frozenset())
        return {**finding, "fields": [_field(each, hidden) for each in finding["fields"]]}


def hiding(contract: Contract | None, digest: str, numbers: Mapping[str, int]) -> Hiding:
    """Say what may be shown of a run made by the contract of a digest, with so many fields for each consumer.

    A contract that has changed since does not tell which value is whose: then values in stories are hidden, all of
    them, and those in findings by the names that it hides now.
    """
    sensitive = {
        each.name: frozenset(field.name for field in each.fields if field.sensitive)
        for each in (contract.consumers if contract is not None else ())
    }
    if contract is not None and contract.digest == digest:
        names = {each.name: tuple(field.name for field in each.fields) for each in contract.consumers}
        return Hiding(names, sensitive)
    generic = {name: tuple(f"field {number + 1}" for number in range(count)) for name, count in numbers.items()}
    hidden = {name: frozenset(generic[name]) | sensitive.get(name, frozenset()) for name in generic}
    why = "cannot be read any more" if contract is None else "has changed since"
    return Hiding(generic, hidden, f"The contract of this run {why}, so the values in its stories are hidden.")


def _field(field: dict[str, Any], hidden: frozenset[str]) -> dict[str, Any]:
    return {**field, **{side: _shown(field[side], field["name"] in hidden) for side in ("source", "consumer")}}


def _shown(value: str | None, hide: bool) -> str | None:
    if value is None:
        return None
    return HIDDEN if hide or _HASHED.fullmatch(value) else value
