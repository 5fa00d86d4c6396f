"""What a check of a topology says, and the rule that it makes sure of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """It will hurt one day, or hides what happens."""
    FAULT = "fault"
    """It breaks the order of events, or loses them."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    id: str
    systems: tuple[str, ...]
    """The rows of the field's knowledge that it covers."""
    severity: Severity
    about: str
    """The topic or the link."""
    title: str
    found: str
    why: str
    """Why it matters."""
    todo: str = ""
    """What to do; may be advice where all is well."""


@dataclass(frozen=True)
class Rule:
    """What is looked at, and why it matters; its methods say what was found."""

    id: str
    systems: tuple[str, ...]
    title: str
    why: str

    def ok(self, about: str, found: str, todo: str = "") -> Check:
        """Say that all is well."""
        return self._check(Severity.OK, about, found, todo)

    def warning(self, about: str, found: str, todo: str) -> Check:
        """Say what will hurt one day."""
        return self._check(Severity.WARNING, about, found, todo)

    def fault(self, about: str, found: str, todo: str) -> Check:
        """Say what breaks order or loses events."""
        return self._check(Severity.FAULT, about, found, todo)

    def _check(self, severity: Severity, about: str, found: str, todo: str) -> Check:
        return Check(self.id, self.systems, severity, about, self.title, found, self.why, todo)


def counted(number: int, one: str, many: str = "") -> str:
    """Format a number of things: 1 id, 2,000 ids."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(names: list[str], most: int = 5) -> str:
    """Format the first names, and how many there are beside them."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
