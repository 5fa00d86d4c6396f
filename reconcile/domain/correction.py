"""The correction: one record that makes a copy agree again, and the names and digests by which it is known."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

_NAMESPACE = UUID("5b1f5d0e-6a5c-5e0f-9d3e-7c0b5a1f2e64")

CORRECTION_ID = "reconcile-correction-id"
RUN_ID = "reconcile-run-id"
LINK = "reconcile-link"
CAUSE = "reconcile-cause"
BASIS_VERSION = "reconcile-basis-version"


@dataclass(frozen=True)
class Correction:
    """One record that is ready to be sent."""

    id: str
    event_id: str
    link: str
    aggregate_id: str
    cause: str
    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    basis_version: int | None
    since: int
    """The offset in its partition from which on a newer event of the id forbids it."""
    then: tuple[bytes | None, ...] = ()
    """The values of the records that follow it at once, such as the tombstone behind Debezium's delete event."""

    @property
    def values(self) -> tuple[bytes | None, ...]:
        """The values of all its records, in their order."""
        return (self.value, *self.then)


def correction_id(link: str, aggregate_id: str, basis_version: int | None, basis: str | None) -> str:
    """Compute the id of a correction: the same for the same state of the same aggregate of the same link."""
    state = f"version {basis_version}" if basis_version is not None else f"state {basis}"
    return str(uuid5(_NAMESPACE, json.dumps([link, aggregate_id, state])))


def event_id(correction: str, run_id: str) -> str:
    """Compute its event id: another one in each run, so that no ledger takes a second repair for the first."""
    return str(uuid5(UUID(correction), run_id))


def key_digest(key: bytes) -> str:
    """Compute the SHA-256 of a key's bytes."""
    return hashlib.sha256(key).hexdigest()


def content_digest(value: Any) -> str:
    """Compute the SHA-256 of what a plan or a row says, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()).hexdigest()
