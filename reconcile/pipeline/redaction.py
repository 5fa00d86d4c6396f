"""What is kept from people's eyes: by the contract that a run was made with, and by that contract as it is now."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from reconcile.contract.model import Consumer, Contract
from reconcile.domain.canonical import CanonicalType, Kind
from reconcile.domain.finding import FieldDifference, Finding, consumer_of
from reconcile.domain.redaction import SHORTEST_KEY, Redactor, is_redacted
from reconcile.domain.untold import in_copies
from reconcile.errors import RefusedError, SecretError
from reconcile.pipeline.handoffs import Fence, Gathered
from reconcile.pipeline.job import Job
from reconcile.pipeline.story import HIDDEN
from reconcile.settings.references import Reference
from reconcile.settings.settings import Settings
from reconcile.workspace.filesystem import LocalFileSystem, beside
from reconcile.workspace.manifest import ChangedInputsError
from reconcile.workspace.run import Run

_UNNAMED = "This run did not keep the names of its fields, so the values in its stories are hidden."


@dataclass(frozen=True)
class Redaction:
    """Which fields of each consumer may be shown."""

    fields: Mapping[str, tuple[str, ...]]
    """The names of the fields, in the order in which the run's cases hold their values, by consumer."""
    hidden: Mapping[str, frozenset[str]]
    note: str | None = None

    def finding(self, finding: Finding) -> Finding:
        """Hide the values of a finding that may not be shown."""
        hidden = self.hidden.get(consumer_of(finding.link), frozenset())
        return replace(finding, fields=tuple(_field(each, each.name in hidden) for each in finding.fields))


def redactable_at_once(consumer: Consumer, form: Sequence[CanonicalType]) -> frozenset[str]:
    """Choose the sensitive fields of which nothing but equal texts is asked: no sum, tolerance or suite of a team's."""
    if consumer.quality:
        return frozenset()
    return frozenset(
        field.name
        for field, to in zip(consumer.fields, form, strict=True)
        if field.sensitive and field.apply != "add" and not field.tolerance and to.kind is not Kind.FLOAT
    )


def redactor_of(job: Job, consumer: Consumer, fence: Fence, at_once: Set[str]) -> Redactor:
    """Build what redacts the sensitive fields of a consumer, under the installation's key where there are any.

    Those `at_once` are redacted as they are read.
    """
    names = tuple(each.name for each in consumer.fields)
    sensitive = frozenset(each.name for each in consumer.fields if each.sensitive)
    types, untold = fence.consumer(consumer.name).types, job.contract.topic.untold
    return Redactor(
        job.contract.link(consumer),
        names,
        sensitive,
        installation_key(job.settings) if sensitive else b"",
        at_once,
        {} if types is None else dict(zip(names, types.fields, strict=True)),
        in_copies(untold),
    )


def gathered_redactor(job: Job, consumer: Consumer) -> Redactor:
    """Build what redacts the fields of a consumer as they were when they were gathered.

    Raises ChangedInputsError where that was under another key.
    """
    gathered = job.run.read(Gathered)
    at_once = {each.name for each in gathered.link(consumer.name).fields or () if each.redacted}
    if at_once and gathered.key_mark != key_mark(job.settings):
        raise ChangedInputsError(
            f"{job.run.id} was gathered under another redaction_key: start a new run, or put back what it was"
        )
    return redactor_of(job, consumer, job.run.read(Fence), at_once)


def sensitive_key(job: Job) -> bytes:
    """Read the installation's key for what is made of whole rows; nothing where the contract has no sensitive field."""
    sensitive = any(field.sensitive for each in job.contract.consumers for field in each.fields)
    return installation_key(job.settings) if sensitive else b""


def key_mark(settings: Settings) -> str:
    """Compute what tells keys apart, and nothing else of one."""
    return hmac.digest(installation_key(settings), b"mark", "sha256").hex()


def installation_key(settings: Settings) -> bytes:
    """Read the installation's key; a file that is missing is made, for nobody but us.

    Raises SecretError for one that is missing elsewhere, or too short.
    """
    place = settings.redaction_key
    if isinstance(place, Reference) and place.scheme == "file" and not (place.folder / place.target).exists():
        _make_key(place.folder / place.target)
    key = place.resolve().get_secret_value().encode()
    if len(key) < SHORTEST_KEY:
        raise SecretError(f"redaction_key {place!r} is shorter than {SHORTEST_KEY} characters: make it of random ones")
    return key


def _make_key(file: Path) -> None:
    """Make a key; of two at once the first counts."""
    files, fresh = LocalFileSystem(), str(file.with_name(beside(file.name)))
    try:
        files.write_atomically(fresh, [secrets.token_urlsafe(32), "\n"])
        with suppress(FileExistsError):
            Path(file).hardlink_to(fresh)
    except OSError as error:
        raise RefusedError(f"no redaction key can be made in {file}: {error.strerror}; set redaction_key") from None
    finally:
        files.delete(fresh)


def redaction_of(run: Run, contract: Contract | None) -> Redaction:
    """Decide what may be shown of a run; `contract` is the run's, as it is now, if it can be read.

    A field is hidden that was sensitive when the run was made or is now. Where the run did not keep the names of a
    link's fields, nobody can tell which value is whose: then all values in its stories are hidden.
    """
    names: dict[str, tuple[str, ...]] = {}
    hidden = {
        each.name: {field.name for field in each.fields if field.sensitive}
        for each in (contract.consumers if contract is not None else ())
    }
    links = run.read(Gathered).links
    for link in links:
        kept = link.fields
        names[link.consumer] = tuple(
            (f"field {number + 1}" for number in range(len(link.form)))
            if kept is None
            else (each.name for each in kept)
        )
        sensitive = names[link.consumer] if kept is None else [each.name for each in kept if each.sensitive]
        hidden.setdefault(link.consumer, set()).update(sensitive)
    note = _UNNAMED if any(each.fields is None for each in links) else None
    return Redaction(names, {consumer: frozenset(some) for consumer, some in hidden.items()}, note)


def _field(field: FieldDifference, hide: bool) -> FieldDifference:
    return replace(field, source=_shown(field.source, hide), consumer=_shown(field.consumer, hide))


def _shown(value: str | None, hide: bool) -> str | None:
    if value is None:
        return None
    return HIDDEN if hide or is_redacted(value) else value
