"""A service's handler, by the name that a person gives: MODULE:FUNCTION."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from reconcile.errors import RefusedError


def handler(command: Any) -> Any:
    """Add --handler."""
    words = "The service's handler, as MODULE:FUNCTION; found from the working folder on."
    return click.option("--handler", "handler_name", required=True, metavar="MODULE:FUNCTION", help=words)(command)


def load(name: str) -> Any:
    """Import a handler; raise RefusedError that says what is missing."""
    module_name, _, function = name.partition(":")
    if not module_name or not function:
        raise RefusedError(f"--handler {name}: write MODULE:FUNCTION, such as login.consumer:apply")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise RefusedError(f"--handler {name}: there is no module {error.name} in {here} or on PYTHONPATH") from None
    handle = getattr(found, function, None)
    if not callable(handle):
        raise RefusedError(f"--handler {name}: {module_name} has no function {function}")
    return handle
