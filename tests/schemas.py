"""Holds what commands print against the schemas that the docs give for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from reconcile.cli.outputs import schema_file

SCHEMAS = Path(__file__).parents[1] / "docs" / "schemas"


def valid_output(command: str, text: str) -> Any:
    """Parse what a command printed with --json; raise ValidationError unless its schema accepts it."""
    schema = json.loads((SCHEMAS / schema_file(command)).read_text("utf-8"))
    data = json.loads(text)
    Draft202012Validator(schema).validate(data)
    return data
