"""Versions: whole numbers, or instants where a source counts by time."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_WHOLE = re.compile(r"[+-]?\d{1,30}(\.0+)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_whole(text: str) -> bool:
    """Tell whether a version is a plain number."""
    return _WHOLE.fullmatch(text.strip()) is not None


def parse(text: str | None) -> int | None:
    """Give a version as a number that grows as it does; None for what is no version."""
    if text is None:
        return None
    if is_whole(text):
        return int(text.strip().partition(".")[0])
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
