"""Holds what commands print against the schemas that the docs give for it."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator

from reconcile.cli.outputs import schema_file
from reconcile.files import committed


def valid_output(command: str, text: str) -> Any:
    """Parse what a command printed with --json; raise ValidationError unless its schema accepts it."""
    schema = json.loads(committed("docs", "schemas", schema_file(command)).read_text("utf-8"))
    data = json.loads(text)
    Draft202012Validator(schema).validate(data)
    return data
