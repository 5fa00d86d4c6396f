"""Writing corrections in transactions, under an id that fences whoever wrote under it before."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

from reconcile.domain.correction import Correction
from reconcile.errors import ReconcileError, RefusedError, UnreachableError
from reconcile.kafka import options as kafka_options
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.errors import HOW_TO_GRANT

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException, Message, Producer

TIMEOUT = 60.0
"""Seconds after which the cluster aborts a transaction of which nothing more is heard."""

_PATIENCE = 20.0
_TO_CONNECT = 2.0
_TO_GIVE_UP = 5.0
_SLICE = 0.5
_LARGEST = 1_000_000_000
_SHARDS = 3


class EmissionUnreachableError(UnreachableError):
    """Raised when the cluster does not take corrections, or does not say whether it did: emit again, and what was
    committed is found, and not sent twice."""


class TransactionAbortedError(EmissionUnreachableError):
    """Raised when a transaction can only be aborted: the same corrections may be sent in another one."""


class EmissionFencedError(RefusedError):
    """Raised when another attempt writes under our transactional id: it holds the lease; leave the rest to it."""


class EmissionRefusedError(RefusedError):
    """Raised when the cluster refuses what is written: grant the right, or change what the message names."""


def transactional_ids(link: str) -> list[str]:
    """Build the ids that the corrections of a link are written under."""
    return [f"reconcile-{link}-{shard}" for shard in range(_SHARDS)]


class _Writer:
    """A producer for one transaction; it goes when it is dropped, whatever an error's traceback holds."""

    producer: Producer

    def drop(self) -> None:
        """End the producer here and now; its own close() waits for a cluster that may be away."""
        self.producer.purge()
        del self.producer


class Transactions:
    """Transactions one after another, each of a producer of its own; closing them aborts the one that is open.

    A producer sends a commit or an abort again if no answer comes, and the cluster takes a copy that comes late for the
    end of that producer's next transaction. So no producer has a next one: its successor's epoch shuts all copies out.
    Three ids take turns: while one writes, the next one's producer is opened, and the third rests, for the cluster
    still writes the markers of its commit and lets no successor in before.
    """

    def __init__(self, client: ClusterClient, link: str, topic: str) -> None:
        """Fence and abort what an earlier attempt left open; when this returns, what it committed can be read."""
        self._client = client
        self._name = f"reconcile-{link}"
        self._topic = topic
        self._writer: _Writer | None = None
        self._open = False
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(_SHARDS, thread_name_prefix="transactions")
        ids = transactional_ids(link)
        self._ready = deque(self._pool.submit(self._opened, each) for each in ids)
        self._ids = cycle(ids)
        try:
            for each in self._ready:
                each.result()
        except BaseException:
            self.close()
            raise

    def _opened(self, id_: str) -> _Writer:
        """Open a producer; whoever wrote under its id before is shut out then."""
        from confluent_kafka import KafkaException, Producer

        options = {
            "reconnect.backoff.ms": 10,
            **self._client.config,
            "transactional.id": id_,
            "enable.idempotence": True,
            "acks": "all",
            "transaction.timeout.ms": int(TIMEOUT * 1000),
            "message.max.bytes": _LARGEST,  # it is for the topic to say what is too large
        }
        writer = _Writer()
        writer.producer = Producer(options)
        try:
            # Without a connection it would look for its coordinator again only after half a second. The first answer
            # names the brokers, the second one comes from one of them.
            with suppress(KafkaException):
                for _ in range(2):
                    writer.producer.list_topics(self._topic, _TO_CONNECT)
            self._call(writer, "init_transactions", "begin to write")
        except KafkaException as error:
            writer.drop()
            raise self._failure(error, "begin to write") from None
        except BaseException:
            writer.drop()
            raise
        return writer

    def _next(self) -> _Writer:
        """Take the producer that was opened for the next transaction, and let the one after it be opened."""
        writer = self._ready.popleft().result()
        if not self._ready:
            self._ready.append(self._pool.submit(self._opened, next(self._ids)))
        return writer

    def send(self, corrections: Sequence[Correction], halfway: Callable[[], None]) -> list[int]:
        """Write corrections in a new transaction, and leave it open; return the offset of each one's last record."""
        from confluent_kafka import KafkaException

        offsets: dict[int, int] = {}
        errors: list[KafkaError] = []
        if self._writer is not None:
            self._writer.drop()
        self._writer = writer = self._next()
        try:
            self._open = True
            writer.producer.begin_transaction()
            for number, correction in enumerate(corrections):
                if number == len(corrections) // 2:
                    halfway()
                for value in correction.values:
                    self._produce(writer, correction, value, partial(_delivered, offsets, errors, number))
            self._flush(writer, _PATIENCE, errors)
        except KafkaException as error:
            raise self._failure(error, "write corrections") from None
        if errors:
            raise self._failure(KafkaException(_reason(writer, errors[0])), "write corrections")
        return [offsets[number] for number in range(len(corrections))]

    def commit(self) -> None:
        """Make what was sent readable; raise TransactionAbortedError if that can no longer be."""
        from confluent_kafka import KafkaException

        assert self._writer is not None
        self._open = False  # from here on its outcome may be decided, and aborting it could only confuse
        try:
            self._call(self._writer, "commit_transaction", "commit corrections")
        except KafkaException as error:
            self._open = error.args[0].txn_requires_abort()
            raise self._failure(error, "commit corrections") from None

    def abort(self) -> None:
        """Take back what was sent."""
        from confluent_kafka import KafkaException

        assert self._writer is not None
        try:
            self._call(self._writer, "abort_transaction", "take corrections back")
        except KafkaException as error:
            raise self._failure(error, "take corrections back") from None
        self._open = False

    def close(self) -> None:
        """End the producer here and now, and what it has open with it, unless the cluster is away."""
        from confluent_kafka import KafkaException

        self._closing.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            # What cannot be aborted now is aborted by the cluster after its time, or when the next attempt begins.
            with suppress(KafkaException, EmissionUnreachableError):
                if self._open:
                    # The coordinator refuses to abort a transaction that it has not heard of yet.
                    self._flush(writer, _TO_GIVE_UP, [])
                    writer.producer.abort_transaction(_TO_GIVE_UP)
        finally:
            writer.drop()

    def _produce(
        self,
        writer: _Writer,
        correction: Correction,
        value: bytes | None,
        delivered: Callable[[KafkaError | None, Message], None],
    ) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                writer.producer.produce(
                    correction.topic,
                    value=value,
                    key=correction.key,
                    partition=correction.partition,
                    headers=list(correction.headers),
                    on_delivery=delivered,
                )
            except BufferError:
                if time.monotonic() > deadline:
                    raise self._silent("write corrections") from None
                with _fatal_error():
                    writer.producer.poll(_SLICE)
            else:
                return

    def _flush(self, writer: _Writer, patience: float, errors: Sequence[KafkaError]) -> None:
        # In slices, so that Ctrl-C is heard while the cluster is away.
        deadline = time.monotonic() + patience
        with _fatal_error():
            while writer.producer.flush(_SLICE) and not errors:
                if time.monotonic() > deadline:
                    raise self._silent("write corrections")

    def _call(self, writer: _Writer, call: str, doing: str) -> None:
        from confluent_kafka import KafkaException

        # By name: a method that an error's traceback holds would keep the producer alive after close().
        deadline = time.monotonic() + _PATIENCE
        while True:
            # What is opened ahead ends with us; nothing else runs beside close().
            opening = call == "init_transactions"
            try:
                getattr(writer.producer, call)(_SLICE if opening else max(deadline - time.monotonic(), _SLICE))
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                if time.monotonic() > deadline or (opening and self._closing.is_set()):
                    raise self._silent(doing) from None

    def _failure(self, error: KafkaException, doing: str) -> ReconcileError:
        from confluent_kafka import KafkaError

        fault = error.args[0]
        code = fault.code()
        said = kafka_options.without_secrets(fault.str(), self._client.config)
        if code in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            return EmissionFencedError(
                f"another attempt writes as {self._name} by now, or the cluster ended our transaction after"
                f" {TIMEOUT:.0f} s or got a request of ours twice: see that one attempt runs, and emit again if it is"
                " this one"
            )
        if (what_to_do := _refusals().get(code)) is not None:
            what_to_do = what_to_do.format(name=self._name, topic=self._topic)
            return EmissionRefusedError(
                f"the cluster {self._client.name} does not let us {doing}: {said}. {what_to_do}"
            )
        kind = TransactionAbortedError if fault.txn_requires_abort() else EmissionUnreachableError
        return kind(f"we could not {doing} on the cluster {self._client.name}: {said}; emit again")

    def _silent(self, doing: str) -> EmissionUnreachableError:
        return EmissionUnreachableError(
            f"the cluster {self._client.name} did not let us {doing} within {_PATIENCE:.0f} s: see that it is up, and"
            " emit again"
        )


@contextmanager
def _fatal_error() -> Iterator[None]:
    """Raise what is fatal as it is: the client raises it between two callbacks, and Python objects to the second."""
    from confluent_kafka import KafkaException

    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


def _reason(writer: _Writer, error: KafkaError) -> KafkaError:
    """Query why records were thrown away, where that is all that their reports say."""
    from confluent_kafka import KafkaError, KafkaException

    if error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
        return error
    try:
        # It cannot begin another one: it says what is wrong with this one.
        writer.producer.begin_transaction()
    except KafkaException as refused:
        return refused.args[0] if refused.args[0].code() != KafkaError._STATE else error
    return error


def _delivered(
    offsets: dict[int, int], errors: list[KafkaError], number: int, error: KafkaError | None, message: Message
) -> None:
    offset = message.offset()
    if error is not None:
        errors.append(error)
    elif offset is not None:
        offsets[number] = max(offset, offsets.get(number, offset))


def _refusals() -> dict[int, str]:
    from confluent_kafka import KafkaError

    size = "Raise max.message.bytes of the topic, or mend the aggregate by hand"
    topic = "See that the topic and its partitions are those that the plan was made for, and plan again"
    return {
        KafkaError.TOPIC_AUTHORIZATION_FAILED: f"Grant Write on the topic {{topic}}; {HOW_TO_GRANT}",
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
            f"Grant Write and Describe on the transactional ids that begin with {{name}}-; {HOW_TO_GRANT}"
        ),
        KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Grant IdempotentWrite on the cluster",
        KafkaError.INVALID_TRANSACTION_TIMEOUT: f"Raise transaction.max.timeout.ms to {TIMEOUT:.0f} s at least",
        KafkaError.MSG_SIZE_TOO_LARGE: size,
        KafkaError.RECORD_LIST_TOO_LARGE: size,
        KafkaError.INVALID_RECORD: "The topic takes no such records: check its cleanup.policy and its validation",
        KafkaError.POLICY_VIOLATION: "Check the cluster's policies for the topic",
        KafkaError.UNKNOWN_TOPIC_OR_PART: topic,
        KafkaError._UNKNOWN_TOPIC: topic,
        KafkaError._UNKNOWN_PARTITION: topic,
    }
