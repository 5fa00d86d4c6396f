"""What stands in place of a value that may not be kept: an HMAC of it under the installation's key."""

from __future__ import annotations

import hmac
import re
import unicodedata
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from reconcile.domain.canonical import can_hold
from reconcile.domain.finding import FieldDifference, Finding

SHORTEST_KEY = 16
"""So many characters a key has at least."""

_LETTERS = 16
_TOO_LONG = "!"
_REDACTED = re.compile(rf"(?:hmac|sha256):([0-9a-f]{{16}})(?:\.([0-9a-f]{{16}}))?{_TOO_LONG}?")


@dataclass(frozen=True)
class Redactor:
    """What is redacted of one link, and under which key.

    Equal values of one field of one aggregate have equal HMACs, so that a reader sees whether they differ, and no more.
    A bare hash would not do: there are too few birth dates to hide one among.
    """

    link: str
    fields: tuple[str, ...]
    """The names of all fields, in the order of the link's rows."""
    sensitive: Set[str]
    key: bytes = field(repr=False, default=b"")
    at_once: Set[str] = frozenset()
    """The sensitive fields that are redacted as they are read, because equal texts are all that is asked of them."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The types of the copy's columns by field, where they are known."""
    public: Set[str] = frozenset()
    """Values that say nothing of anybody, and stay as they are."""

    def __post_init__(self) -> None:
        if self.sensitive and len(self.key) < SHORTEST_KEY:
            raise ValueError("values of sensitive fields cannot be redacted without a key")

    def redacted(self, aggregate_id: str | None, name: str, value: str | None) -> str | None:
        """Build what stands in place of a value: what else is asked of it beside equality is said with it."""
        if value is None or value in self.public:
            return value
        shown, read = self._hash(aggregate_id, name, value), _as_read(value)
        equivalent = "" if read == value else f".{self._hash(aggregate_id, name, read)}"
        column = self.columns.get(name)
        return f"hmac:{shown}{equivalent}{'' if column is None or can_hold(column, value) else _TOO_LONG}"

    def finding(self, finding: Finding) -> Finding:
        """Redact the values of a finding, but for those that were redacted as they were read."""
        if self._later.isdisjoint(each.name for each in finding.fields):
            return finding
        return replace(finding, fields=tuple(self._difference(finding.aggregate_id, each) for each in finding.fields))

    def case(self, case: Mapping[str, Any], sides: Sequence[str], events: str, values: str) -> dict[str, Any]:
        """Redact the values of a case in the same way: of its rows in the columns `sides`, and of its `events`."""
        redacted = dict(case)
        if not self._later:
            return redacted
        for name in sides:
            if (row := case[name]) is not None and row["fields"] is not None:
                redacted[name] = {**row, "fields": self.values(case["id"], row["fields"], self._later)}
        if case[events] is not None:
            redacted[events] = [
                {**each, values: self.values(case["id"], each[values], self._later)} for each in case[events]
            ]
        return redacted

    def values(self, aggregate_id: str | None, values: Sequence[str | None], names: Set[str]) -> list[str | None]:
        """Redact those values of a row or an event that belong to fields of these names."""
        pairs = zip(self.fields, values, strict=True)
        return [self.redacted(aggregate_id, name, each) if name in names else each for name, each in pairs]

    @property
    def _later(self) -> Set[str]:
        return self.sensitive - self.at_once

    def _difference(self, aggregate_id: str | None, difference: FieldDifference) -> FieldDifference:
        if difference.name not in self._later:
            return difference
        source, consumer = (
            self.redacted(aggregate_id, difference.name, each) for each in (difference.source, difference.consumer)
        )
        return replace(difference, source=source, consumer=consumer)

    def _hash(self, aggregate_id: str | None, name: str, value: str) -> str:
        # With the aggregate, so that nobody who has a key can look for a known value among all findings at once.
        said = f"{self.link}\0{aggregate_id}\0{name}\0{value}".encode(errors="surrogatepass")
        return hmac.digest(self.key, said, "sha256").hex()[:_LETTERS]


def is_redacted(value: str) -> bool:
    """Tell whether a finding's value stands for another; those of earlier versions are bare hashes."""
    return _REDACTED.fullmatch(value) is not None


def as_read(text: str) -> str:
    """Build what a reader sees of a value: text in one Unicode form, without spaces behind; or what stands for that."""
    match = _REDACTED.fullmatch(text)
    return _as_read(text) if match is None else match[2] or match[1]


def fits(column: str | None, text: str) -> bool:
    """Tell whether a column can hold a value, or that for which a text stands."""
    return not text.endswith(_TOO_LONG) if is_redacted(text) else can_hold(column or "", text)


def _as_read(text: str) -> str:
    return unicodedata.normalize("NFC", text).rstrip(" ")
