"""Durations as people write them: `500ms`, `60s`, `5m`, `1h`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from reconcile.config.yamlfile import quoted

PATTERN = r"[0-9]{1,11}(ms|s|m|h|d)"
LONGEST = timedelta(days=365)

_UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_EXAMPLES = "write 500ms, 60s, 5m, 1h or 1d"


def parse(value: object) -> timedelta:
    """Read a duration; raise ValueError that says how one is written."""
    if isinstance(value, timedelta):
        duration = value
    elif isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"a duration is needed: {_EXAMPLES}")
    elif not isinstance(value, str) or re.fullmatch(r"[0-9.]+", value, re.ASCII):
        raise ValueError(f"the number {str(value)[:20]} has no unit: {_EXAMPLES}")
    elif re.fullmatch(PATTERN, value, re.ASCII) is None:
        raise ValueError(f"{quoted(value, 20)} is not a duration: {_EXAMPLES}")
    else:
        number, unit = re.findall(r"[0-9]+|[a-z]+", value)
        try:
            duration = int(number) * _UNITS[unit]
        except OverflowError:
            duration = timedelta.max
    if not timedelta(0) <= duration <= LONGEST:
        raise ValueError(f"is longer than {text(LONGEST)}" if duration > LONGEST else "is below zero")
    return duration


def text(duration: timedelta) -> str:
    """Write a duration in the largest unit that says it exactly."""
    if not duration:
        return "0s"
    for name, unit in _UNITS.items():
        if not duration % unit:
            return f"{duration // unit}{name}"
    return f"{round(duration / _UNITS['ms'])}ms"


Duration = Annotated[
    timedelta,
    BeforeValidator(parse, json_schema_input_type=Annotated[str, Field(pattern=f"^{PATTERN}$")]),
    PlainSerializer(text, return_type=str),
]
