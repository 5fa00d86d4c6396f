"""How commands print data, one JSON object on stdout, and what of a text people may see."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import click

from reconcile.workspace import handoff

_SURROGATE = re.compile("[\ud800-\udfff]")
_DRIVING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What drives a terminal, turns the order of what it shows, or cannot be written at all."""


class Output(handoff.Versioned):
    """What a command prints with --json. A field that was not set is left out."""

    def data(self) -> dict[str, Any]:
        """Build the JSON object."""
        shown = self.model_fields_set | {"schema_version"}
        data = {name: value for name, value in handoff.to_data(self).items() if name in shown}
        first = [name for name in ("schema_version", "run_id") if name in data]
        return {name: data[name] for name in dict.fromkeys([*first, *data])}


def visible(text: str, *, lines: bool = True) -> str:
    """Give a text as people may see it: what would drive a terminal stands there as an escape.

    With `lines` it keeps its lines.
    """
    return _DRIVING.sub(lambda match: _escaped(match.group(), lines), text)


def say(message: str) -> None:
    """Print words for people on stderr, apart from the data."""
    click.echo(visible(message), err=True)


def say_next(*commands: str) -> None:
    """Say on stderr which command to type next, or which others, with the settings of this one."""
    given = click.get_current_context().params
    options = [f"--{name} {shlex.quote(str(value))}" for name in ("config", "workspace") if (value := given.get(name))]
    say(f"next: {', or '.join(' '.join(['reconcile', each, *options]) for each in commands)}")


def print_json(value: Any) -> None:
    """Print an output or a hand-off as one JSON object on stdout, as UTF-8 whatever the terminal's encoding."""
    data = value.data() if isinstance(value, Output) else handoff.to_data(value)
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    click.echo(_SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text).encode())


def _escaped(letter: str, lines: bool) -> str:
    if lines and letter in "\n\t":
        return letter
    number = ord(letter)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
