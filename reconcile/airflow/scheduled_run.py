"""What a run of a DAG does for one contract, and the id of that run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reconcile.domain.approval import SCHEDULER, Actor
from reconcile.workspace.run_id import LONGEST, valid_run_id

if TYPE_CHECKING:
    from airflow.sdk.types import DagRunProtocol

    from reconcile.settings.settings import Settings

_MARK = 8


@dataclass(frozen=True)
class ScheduledRun:
    """A run of one contract that a DAG schedules; tasks hand it on as a dictionary."""

    contract: str
    """The contract's file."""
    run_id: str
    consumers: Sequence[str] = ()
    """Only these; empty for all."""
    ids: Sequence[str] = ()
    """Only these aggregates; empty for all."""
    incremental: bool = False
    """Whether it looks only at what changed since the last run, where its contract says `incremental`."""
    mode: Literal["auto", "digest", "full"] = "auto"
    apply: bool = True
    """Whether corrections may be emitted, if the contract's approval is given."""
    max_corrections: int | None = None
    """At most this many corrections on a link, also where the contract allows more."""
    max_ratio: float | None = None
    """At most this share of a link's aggregates, also where the contract allows more."""
    request_id: str | None = None
    """The request in the control store that it answers."""
    requester: Actor | None = None
    """Who asks for it; None where Airflow does not know."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> ScheduledRun:
        """Parse what `data` built."""
        requester = data.get("requester")
        return cls(**{**data, "requester": None if requester is None else Actor(**requester)})

    def data(self) -> dict[str, Any]:
        """Build the dictionary that tasks hand on."""
        return {**asdict(self), "consumers": list(self.consumers), "ids": list(self.ids)}


def requester_of(dag_run: DagRunProtocol) -> Actor | None:
    """Choose who asked for a run of a DAG: the user who triggered it, or the scheduler."""
    if dag_run.triggering_user_name:
        return Actor(dag_run.triggering_user_name, "airflow")
    return None if dag_run.run_type == "manual" else SCHEDULER


def other_holder(scheduled_run: ScheduledRun, settings: Settings) -> str | None:
    """Query which other run has the lease of the run's contract, if one has."""
    from reconcile.contract.model import load_contract
    from reconcile.control.leases import contract_lease, is_of_run
    from reconcile.control.store import open_control

    contract = load_contract(Path(scheduled_run.contract))
    with open_control(settings) as control:
        found = control.leases.holder_of(contract_lease(contract.aggregate))
    return None if found is None or is_of_run(found, scheduled_run.run_id) else found


def run_id_of(file: Path, dag_id: str, dag_run_id: str, at: datetime, part: str = "") -> str:
    """Build the id of a contract's run: the same for every attempt of one run of a DAG; ids sort by time.

    Files whose names differ have runs of their own; `part` distinguishes several of one file in one run of a DAG.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).strip("._-") or "contract"
    instant = at.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    mark = hashlib.sha256("\0".join((file.stem, dag_id, dag_run_id, part)).encode()).hexdigest()[:_MARK]
    return valid_run_id(f"{name[: LONGEST - len(instant) - _MARK - 2]}-{instant}-{mark}")
