"""One run at a time for a contract: whoever changes its world holds its lease, on the command line and in Airflow."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

from reconcile.control.errors import LeaseHeldError
from reconcile.control.leases import HeldLease
from reconcile.control.store import ControlStore

_LOG = logging.getLogger(__name__)
_TTL = timedelta(seconds=60)
_LOOK_AGAIN = 1.0


def lease_name(contract: str) -> str:
    """Give the name of a contract's lease."""
    return f"run of {contract}"


def holder(run_id: str) -> str:
    """Say who holds a lease for a run."""
    return f"{run_id} on {socket.gethostname()}, process {os.getpid()}"


@contextmanager
def alone(
    control: ControlStore,
    contract: str,
    run_id: str,
    patience: float = 0.0,
) -> Iterator[HeldLease]:
    """Hold a contract, waiting for another run of it, or for an attempt of ours that was killed.

    Raises LeaseHeldError when the patience is over.
    """
    deadline = time.monotonic() + patience
    told = False
    with ExitStack() as stack:
        while True:
            try:
                held = stack.enter_context(control.lease(lease_name(contract), holder(run_id), _TTL))
                break
            except LeaseHeldError as error:
                if time.monotonic() >= deadline:
                    raise
                if not told:
                    _LOG.info(f"waiting: {error}")
                    told = True
            time.sleep(_LOOK_AGAIN)
        yield held
