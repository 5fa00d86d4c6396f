"""How our programs log: what a stage is at goes to stderr, in lines for people."""

from __future__ import annotations

import logging


def log_to_stderr() -> None:
    """Have what our own modules log at INFO and above printed on stderr, whatever other libraries log."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    ours = logging.getLogger("reconcile")
    ours.setLevel(logging.INFO)
    ours.addHandler(handler)
    ours.propagate = False
