"""How commands print data: one JSON object on stdout."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import click

SCHEMA_VERSION = 1

_SURROGATE = re.compile("[\ud800-\udfff]")


def print_json(data: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout, as UTF-8 whatever the terminal's encoding."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **data}, ensure_ascii=False, allow_nan=False)
    click.echo(_SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text).encode())
