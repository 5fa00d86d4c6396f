"""Requests by Kafka: a record holds one; it is kept in the control store before it counts as read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from reconcile.config.yamlfile import quoted
from reconcile.domain.approval import REQUEST_TOPIC, Actor
from reconcile.errors import RefusedError, UnreachableError
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.errors import HOW_TO_GRANT, ClusterRefusedError, Right
from reconcile.kafka.reader import read as read_log

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from reconcile.control.store import ControlStore
    from reconcile.settings.settings import RunRequests

TOPIC = "reconcile.requests"
AIRFLOW_CONNECTION = "reconcile_requests"
"""The Kafka connection of Airflow by which requests are read."""
GROUP = "reconcile-wakeup"
"""The group of the trigger; those who keep what the records say have one of their own."""
KEEPERS = "reconcile-requests"
CLUSTER = "of the requests"
"""What errors call the cluster that has the topic."""

_SECONDS = 10.0
_LONGEST_ID = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MODES = ("auto", "digest", "full")


@dataclass(frozen=True)
class RequestRecord:
    """A request as a record holds it."""

    id: str
    contract: str
    """The contract's name: its file's, without the ending."""
    ids: tuple[str, ...] = ()
    mode: Literal["auto", "digest", "full"] = "auto"
    apply: bool = False

    def value(self) -> bytes:
        """Build the value of its record."""
        return json.dumps(asdict(self), ensure_ascii=False).encode(errors="surrogatepass")


def read(value: bytes | None) -> RequestRecord:
    """Read a record's value; raise RefusedError with what is wrong in it."""
    try:
        fields = json.loads(value or b"")
    except (ValueError, RecursionError):
        raise RefusedError("it is not JSON") from None
    if not isinstance(fields, dict):
        raise RefusedError("it is no object")
    if unknown := sorted(fields.keys() - {"id", "contract", "ids", "mode", "apply"}):
        raise RefusedError(f"it has unknown keys: {ascii(unknown)[:200]}")
    id_, contract, ids = fields.get("id"), fields.get("contract"), fields.get("ids", [])
    mode, apply = fields.get("mode", "auto"), fields.get("apply", False)
    if not _is_text(id_) or len(id_) > _LONGEST_ID or not id_.isprintable():
        raise RefusedError(f"its id is no text of 1 to {_LONGEST_ID} characters that can be printed")
    if not isinstance(contract, str) or _NAME.fullmatch(contract) is None:
        raise RefusedError("its contract is no contract's name")
    if not isinstance(ids, list) or not all(map(_is_text, ids)):
        raise RefusedError("its ids are no list of texts")
    if mode not in _MODES:
        raise RefusedError(f"its mode is none of {', '.join(_MODES)}")
    if not isinstance(apply, bool):
        raise RefusedError("its apply is neither true nor false")
    return RequestRecord(id_, contract, tuple(ids), mode, apply)


def keep(control: ControlStore, wanted: RequestRecord, rules: RunRequests, requester: Actor = REQUEST_TOPIC) -> None:
    """Queue a request; one that was delivered before stays as it is. A record does not say who wrote it.

    Raises RefusedError for one that asks for too much, and TooManyRequestsError where too many wait.
    """
    if requester == REQUEST_TOPIC and wanted.apply and wanted.contract not in rules.apply:
        _require_known(control, wanted)
    control.requests.queue(
        wanted.id,
        wanted.contract,
        wanted.ids,
        wanted.mode,
        apply=wanted.apply,
        requester=requester,
        most=rules.waiting,
        most_of_one=rules.waiting_of_one,
    )


def _require_known(control: ControlStore, wanted: RequestRecord) -> None:
    """Raise RefusedError unless somebody who is known has asked for it: the record is then a wake-up alone."""
    from reconcile.control.errors import UnknownRequestError

    try:
        control.requests.find(wanted.id)
    except UnknownRequestError:
        raise RefusedError(
            f"a record may not ask for corrections of {wanted.contract}: `reconcile request --apply` does, or put the"
            " contract into `requests.apply` of the settings"
        ) from None


def given_back(control: ControlStore, request_id: str, contract: str) -> RequestRecord:
    """Queue a request again whose run of the DAG is gone, and return it as it was.

    Raises RefusedError if it is another contract's, or done.
    """
    known = control.requests.find(request_id)
    if known.contract != contract:
        raise RefusedError(f"the request {quoted(request_id)} is of the contract {known.contract}, not of {contract}")
    if control.requests.requeue(request_id).state == "done":
        how = f"by the run {known.run_id}" if known.run_id else "without a run"
        raise RefusedError(f"the request {quoted(request_id)} is done, {how}: ask anew, under another id")
    return RequestRecord(known.id, known.contract, known.ids, known.mode, known.apply)


def send(cluster: Mapping[str, Any], wanted: RequestRecord, topic: str = TOPIC) -> None:
    """Send a request's record and wait until the cluster has it.

    Raises UnreachableError if it has not in time, RefusedError if it does not let us.
    """
    from confluent_kafka import KafkaError, Producer

    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    # What is wrong with a connection is heard while it is made; a producer would only say that time is up.
    with closing(ClusterClient(CLUSTER, cluster)) as client:
        producer = Producer({**client.config, "acks": "all", "message.timeout.ms": int(_SECONDS * 1000)})
        producer.produce(topic, wanted.value(), wanted.id.encode(), on_delivery=delivered)
        left = producer.flush(_SECONDS + 5)
    if any(each.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED for each in failures):
        raise ClusterRefusedError(
            f"no record may come to {topic}: grant {Right('Write', 'topic', topic)}; {HOW_TO_GRANT}"
        )
    if left or failures:
        said = "; ".join(each.str() for each in failures) or "the cluster does not answer"
        raise UnreachableError(f"no record came to {topic}: {said}")


def drain(
    cluster: Mapping[str, Any],
    control: ControlStore,
    say: Callable[[str], None],
    rules: RunRequests,
    contracts: Collection[str],
    topic: str = TOPIC,
) -> int:
    """Keep every request in the topic for one of these contracts, and only then commit its record; return how many.

    A record that holds no request, or one too many, is reported and skipped: nobody could ever run it. If the control
    store does not keep a request, the error is raised, and the record is read again next time.
    """
    refused = (_refused(message, control, rules, contracts, topic) for message in _received(cluster, topic))
    kept = 0
    for problem in refused:
        kept += problem is None
        if problem is not None:
            say(problem)
    return kept


def _refused(
    message: Message, control: ControlStore, rules: RunRequests, contracts: Collection[str], topic: str
) -> str | None:
    """Keep a record's request, or say why it is passed by."""
    from reconcile.control.errors import ControlRefusedError

    where = f"{topic}, partition {message.partition()}, offset {message.offset()}"
    try:
        wanted = read(message.value())
    except RefusedError as error:
        return f"{where} holds no request: {error}"
    if wanted.contract not in contracts:
        return f"{where}: there is no contract {quoted(wanted.contract)}"
    try:
        keep(control, wanted, rules)
    except ControlRefusedError:
        raise
    except RefusedError as error:
        return f"{where}: {error}"
    return None


def _is_text(value: object) -> TypeGuard[str]:
    """Check that it is text that a database keeps: not empty, without NUL and halves of characters."""
    return isinstance(value, str) and re.fullmatch("[^\0\ud800-\udfff]+", value) is not None


def _received(cluster: Mapping[str, Any], topic: str) -> Iterator[Message]:
    """Read what the group has not committed, up to the topic's end now; commit each record when the next is wanted."""
    from confluent_kafka import Consumer, KafkaException

    with closing(ClusterClient(CLUSTER, cluster)) as client:
        partitions = client.topic(topic).partitions
        begins, ends = client.begins(topic, partitions), client.ends(topic, partitions)
        committed = client.committed(KEEPERS, topic, partitions)
        stretches = {each: (max(committed[each] or 0, begins[each]), ends[each]) for each in partitions}
        behind = {partition: stretch for partition, stretch in stretches.items() if stretch[0] < stretch[1]}
        options = {**client.config, "auto.offset.reset": "earliest"}
        own = {**client.config, "group.id": KEEPERS, "enable.auto.commit": False}
        with client.reading_records(topic), closing(Consumer(own)) as keeper:
            for batch in read_log(options, topic, behind) if behind else ():
                for message in batch:
                    yield message
                    try:
                        keeper.commit(message=message, asynchronous=False)
                    except KafkaException as error:
                        right = Right("Read", "group", KEEPERS)
                        raise client.failure(error, f"how far {KEEPERS} has come", right) from None
