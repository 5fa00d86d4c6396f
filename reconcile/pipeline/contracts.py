"""The contract of a past run, as it is now."""

from __future__ import annotations

from pathlib import Path

from reconcile.contract.model import Contract, load_contract
from reconcile.errors import InvalidFileError
from reconcile.workspace.run import Run

REQUEST = "request"


def contract_of(run: Run) -> Contract | None:
    """Give a run's contract; None if its file is gone, or is no contract any more."""
    asked = run.json_if_there(REQUEST)
    if asked is None:
        return None
    try:
        return load_contract(Path(asked["contract"]))
    except InvalidFileError:
        return None
