"""What stands in place of a value that may not be kept: an HMAC of it under the installation's key."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from reconcile.domain.finding import FieldDifference, Finding

SHORTEST_KEY = 16
"""So many characters a key has at least."""

_LETTERS = 16
_REDACTED = re.compile("(hmac|sha256):[0-9a-f]{16}")


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

    def __post_init__(self) -> None:
        if self.sensitive and len(self.key) < SHORTEST_KEY:
            raise ValueError("values of sensitive fields cannot be redacted without a key")

    def finding(self, finding: Finding) -> Finding:
        """Redact the values of a finding."""
        if self.sensitive.isdisjoint(each.name for each in finding.fields):
            return finding
        return replace(finding, fields=tuple(self._difference(finding.aggregate_id, each) for each in finding.fields))

    def case(self, case: Mapping[str, Any], sides: Sequence[str], events: str, values: str) -> dict[str, Any]:
        """Redact the values of a case: of its rows in the columns `sides`, and of `values` in its `events`."""
        if not self.sensitive:
            return dict(case)
        redacted = dict(case)
        for name in sides:
            if (row := case[name]) is not None and row["fields"] is not None:
                redacted[name] = {**row, "fields": self._values(case["id"], row["fields"])}
        if case[events] is not None:
            redacted[events] = [{**each, values: self._values(case["id"], each[values])} for each in case[events]]
        return redacted

    def _difference(self, aggregate_id: str | None, difference: FieldDifference) -> FieldDifference:
        if difference.name not in self.sensitive:
            return difference
        source, consumer = (
            self._value(aggregate_id, difference.name, each) for each in (difference.source, difference.consumer)
        )
        return replace(difference, source=source, consumer=consumer)

    def _values(self, aggregate_id: str | None, values: Sequence[str | None]) -> list[str | None]:
        pairs = zip(self.fields, values, strict=True)
        return [self._value(aggregate_id, name, each) if name in self.sensitive else each for name, each in pairs]

    def _value(self, aggregate_id: str | None, name: str, value: str | None) -> str | None:
        if value is None:
            return None
        # With the aggregate, so that nobody who has a key can look for a known value among all findings at once.
        said = f"{self.link}\0{aggregate_id}\0{name}\0{value}".encode(errors="surrogatepass")
        return f"hmac:{hmac.digest(self.key, said, 'sha256').hex()[:_LETTERS]}"


def is_redacted(value: str) -> bool:
    """Tell whether a finding's value stands for another; those of earlier versions are bare hashes."""
    return _REDACTED.fullmatch(value) is not None
