"""The control store: what is kept beyond one run, in Postgres, or for a trial in a SQLite file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reconcile.control.approvals import Approvals
from reconcile.control.corrections import Corrections
from reconcile.control.database import Database, connect
from reconcile.control.distributions import Distributions
from reconcile.control.errors import ControlRefusedError
from reconcile.control.findings import Findings
from reconcile.control.leases import Leases
from reconcile.control.migration import migrate, require_current
from reconcile.control.requests import Requests
from reconcile.control.retention import Retention
from reconcile.control.runs import Runs
from reconcile.errors import RefusedError
from reconcile.settings.connections import SqliteFile
from reconcile.settings.settings import Settings
from reconcile.workspace.filesystem import make_private_file


class ControlStore:
    """Runs, findings and distributions over time, corrections, approvals, leases and requests. Threads may share it.

    Any call raises ControlUnreachableError if the database does not answer, and ControlRefusedError if it refuses.
    """

    def __init__(self, database: Database) -> None:
        self.runs = Runs(database)
        self.findings = Findings(database)
        self.distributions = Distributions(database)
        self.corrections = Corrections(database)
        self.approvals = Approvals(database)
        self.leases = Leases(database)
        self.requests = Requests(database)
        self.retention = Retention(database)


@contextmanager
def open_control(settings: Settings, *, read_only: bool = False) -> Iterator[ControlStore]:
    """Open the control store of an installation, its schema up to date.

    Without `control_store` in the settings it is a SQLite file in the workspace. Raises NewerSchemaError if a newer
    program has been there. Who only reads makes and migrates nothing: OlderSchemaError is raised instead.
    """
    address = settings.control_address()
    if address is None:
        raise RefusedError(
            f"the workspace {settings.workspace} is no folder of this machine, so that it cannot hold the control"
            " store: set control_store.url"
        )
    if isinstance(address, SqliteFile) and not read_only:
        try:
            make_private_file(address.path)
        except OSError as error:
            raise ControlRefusedError(f"no folder for the control store {address.path}: {error.strerror}") from None
    database = connect(address, read_only=read_only)
    try:
        require_current(database) if read_only else migrate(database)
        yield ControlStore(database)
    finally:
        database.close()
