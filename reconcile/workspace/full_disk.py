"""A disk on which no space is left: whoever wrote says so in words of its own, and gets one name here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from reconcile.errors import UnreachableError

_SAID = re.compile(
    r"[^\n]*(?:No space left on device|Disk quota exceeded|database or disk is full)[^\n]*", re.IGNORECASE
)
_LONGEST = 300


class DiskFullError(UnreachableError):
    """Raised when no space is left for what is written: make room, and do the same again."""


@contextmanager
def full_disk_named(doing: str) -> Iterator[None]:
    """Raise DiskFullError for whatever in the block fails because a disk is full: files, Spark, or SQLite."""
    try:
        yield
    except Exception as error:
        if (said := _said(error)) is None:
            raise
        raise DiskFullError(
            f"no space is left on a disk for `{doing}`: {said}; make room, and do it again: what was published before"
            " is whole"
        ) from error


def _said(error: BaseException) -> str | None:
    """Find what was said of a full disk by an error, or by what it came of."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        if (match := _SAID.search(str(at))) is not None:
            return match.group().strip()[:_LONGEST]
        seen.add(id(at))
        at = at.__cause__ or at.__context__
    return None
