"""What a contract and the settings say of a consumer, in the words of the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import quoted
from reconcile.consumer.errors import PolicyRefusedError
from reconcile.consumer.policy import (
    Block,
    Ignore,
    Policy,
    RetryThenDeadLetter,
    RetryTopic,
    RetryTopics,
    Stash,
    Terms,
)
from reconcile.consumer.reading import Decode, Reading
from reconcile.contract.consumer import Consumer as ContractConsumer
from reconcile.contract.consumer import Failure, FailureTopic
from reconcile.contract.model import Contract, load_contract
from reconcile.domain.plan import repair_order
from reconcile.errors import RefusedError, SecretError
from reconcile.settings.connections import Store
from reconcile.settings.settings import Settings, UnknownConnectionError, load_settings
from reconcile.settings.urls import PostgresUrl

_DELAYS = tuple(
    timedelta(**each)
    for each in ({"seconds": 10}, {"minutes": 1}, {"minutes": 10}, {"hours": 1}, {"hours": 6}, {"days": 1})
)
"""How long a message waits in each retry topic, where the contract does not say; in more topics as in the last."""


@dataclass(frozen=True)
class Declared:
    """A consumer as it is declared; secrets are in what is not printed."""

    place: str
    """Where: the contract's file, and the consumer's path in it."""
    group: str
    reading: Reading
    policy: Policy
    semantics: str
    events: str
    guard: str
    kafka: Mapping[str, str] = field(repr=False)
    store: PostgresUrl
    webhook: str | None = field(repr=False)
    depends_on: tuple[str, ...] = ()

    def terms(self, changes: Mapping[str, Any]) -> Terms:
        """Build what decides about messages; raise PolicyRefusedError for what would corrupt the copy."""
        said = {
            "policy": self.policy,
            "semantics": self.semantics,
            "events": self.events,
            "guard": self.guard,
            **changes,
        }
        try:
            terms = Terms(**said)
        except PolicyRefusedError as error:
            raise PolicyRefusedError(f"{self.place}.failure.policy: {error}") from None
        if terms.guard != "none" and self.reading.version is None:
            raise RefusedError(
                f"{self.place}.guard: {terms.guard} compares the events' versions: say in topic.version where an event"
                " carries its own, or write `guard: none`"
            )
        return terms


def declare(file: Path, name: str, settings: str | Path | Settings | None, decode: Decode | None = None) -> Declared:
    """Read what is declared of a consumer; raise an error of the file, of the settings, or RefusedError."""
    contract = load_contract(file)
    found = settings if isinstance(settings, Settings) else load_settings(None if settings is None else Path(settings))
    place, consumer = find_consumer(contract, name, file)
    try:
        reading = Reading.of(contract.topic, decode)
    except RefusedError as error:
        raise RefusedError(f"{file}: {error}") from None
    try:
        kafka = found.cluster(contract.topic.cluster).resolve()
    except (UnknownConnectionError, RefusedError, SecretError) as error:
        raise type(error)(f"{file}: topic.cluster: {error}") from None
    if consumer.isolation is not None:
        kafka["isolation.level"] = consumer.isolation
    return Declared(
        place,
        consumer.group,
        reading,
        policy_of(consumer.failure),
        consumer.semantics,
        contract.topic.state,
        consumer.guard,
        kafka,
        store_of(consumer, found, place),
        found.alerts.resolve(),
        _dependencies(contract, consumer, place),
    )


def _dependencies(contract: Contract, consumer: ContractConsumer, place: str) -> tuple[str, ...]:
    _, circular = repair_order({each.group: contract.groups_before(each) for each in contract.consumers})
    if consumer.group in circular:
        raise RefusedError(
            f"{place}.depends_on: {', '.join(circular)} wait for one another, and none would ever go on: take one out"
        )
    return contract.groups_before(consumer)


def find_consumer(contract: Contract, name: str, file: Path) -> tuple[str, ContractConsumer]:
    """Choose a consumer, with its place in the file; raise RefusedError with the nearest name if there is none."""
    for index, consumer in enumerate(contract.consumers):
        if consumer.name == name:
            return f"{file}: consumers[{index}]", consumer
    names = [each.name for each in contract.consumers]
    hint = suggestion(name, names) or f"; there are {', '.join(names)}"
    raise RefusedError(f"{file}: the contract has no consumer {quoted(name)}{hint}")


def store_of(consumer: ContractConsumer, settings: Settings, place: str) -> PostgresUrl:
    """Resolve where a consumer's copy is kept, and with it the library's tables; raise RefusedError for no Postgres."""
    try:
        connection = settings.connection(consumer.store)
        address = connection.resolve() if isinstance(connection, Store) else None
    except (UnknownConnectionError, SecretError) as error:
        raise type(error)(f"{place}.store: {error}") from None
    if not isinstance(address, PostgresUrl):
        raise RefusedError(
            f"{place}.store: {consumer.store} is no Postgres (`url: postgresql://...`): the library keeps its tables in"
            " the copy's own database, and knows no other"
        )
    return address


def policy_of(failure: Failure) -> Policy:
    """Choose the library's policy for the contract's."""
    dead_letter = None if failure.dead_letter is None else failure.dead_letter.topic
    if failure.policy == "ignore":
        return Ignore()
    if failure.policy == "block":
        return Block(dead_letter)
    if failure.policy == "stash":
        # A contract may declare the library's own table: then there is no topic that shows what is stashed.
        topic = failure.stash.topic if isinstance(failure.stash, FailureTopic) else None
        return Stash(topic, dead_letter=dead_letter)
    if failure.policy == "retry-topics":
        topics = [
            RetryTopic(
                each.topic, _DELAYS[min(index, len(_DELAYS) - 1)] if each.delay is None else each.delay, each.group
            )
            for index, each in enumerate(failure.retry)
        ]
        return RetryTopics(topics, dead_letter)
    assert dead_letter is not None  # the contract's model needs it
    return RetryThenDeadLetter(dead_letter)
