"""How old drift is, in words and in classes."""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime

UNKNOWN = "not known"
_CLASSES = (
    ("under a minute", 60),
    ("under an hour", 3600),
    ("under a day", 86400),
    ("under a week", 7 * 86400),
    ("under a month", 30 * 86400),
    ("under a year", 365 * 86400),
)
_OLDEST = "a year and more"
CLASSES = (*(name for name, _ in _CLASSES), _OLDEST, UNKNOWN)
"""The classes of ages, youngest first."""

_LIMITS = [limit for _, limit in _CLASSES]
_UNITS = (("year", 365 * 86400), ("month", 30 * 86400), ("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


def age_class(seconds: float | None) -> str:
    """Give the class of an age; None is not known."""
    return UNKNOWN if seconds is None else CLASSES[bisect_right(_LIMITS, seconds)]


def age(since: datetime | None, at: datetime) -> str:
    """Give an age at an instant in words, such as `3 days`; empty where it is not known."""
    if since is None:
        return ""
    seconds = max(int((at - since).total_seconds()), 0)
    for name, size in _UNITS:
        if number := seconds // size:
            return f"{number} {name}{'' if number == 1 else 's'}"
    return "0 seconds"
