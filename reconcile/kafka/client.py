"""A client of a Kafka cluster that asks, changes nothing, and tells why it got no answer."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from concurrent.futures import Future, TimeoutError
from typing import TYPE_CHECKING, Any, TypeVar

from reconcile.errors import RefusedError, UnreachableError
from reconcile.kafka import options as kafka_options

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

Answer = TypeVar("Answer")

REQUEST_TIMEOUT = kafka_options.TIMEOUT
_TO_CONNECT = 10.0
_ALL_DOWN_FOR = 2.0
_SHOWN = 2
_TIMES = re.compile(r" \((after [^()]*|\d+ identical[^()]*)\)")


class ClusterUnreachableError(UnreachableError):
    """Raised when a cluster does not answer: see to it that it is up and that the address is right; try again."""


class ClusterRefusedError(RefusedError):
    """Raised when a cluster, or the client, refuses the settings of the connection: correct them, or grant rights."""


class ClusterClient:
    """One client; what librdkafka tells only through its error callback ends up in our errors."""

    def __init__(self, name: str, config: Mapping[str, str]) -> None:
        """Connect; raise ClusterUnreachableError or ClusterRefusedError within seconds when nobody answers."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        self.name = name
        self._told: list[KafkaError] = []
        # Not a method of ours: the client would keep us, we the client, and neither would end where it should.
        self.config: dict[str, Any] = {**kafka_options.for_librdkafka(config), "error_cb": self._told.append}
        try:
            self.admin: AdminClient = AdminClient(self.config)
        except (KafkaException, ValueError) as error:
            raise ClusterRefusedError(f"the connection {name} cannot be used: {self._text(error)}") from None
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the client here and now: left to the garbage collector, it may be ended in a thread of its own."""
        if hasattr(self, "admin"):
            del self.admin

    def answer(self, future: Future[Answer], asked: str) -> Answer:
        """Wait for an answer; raise what went wrong in terms of what was asked."""
        from confluent_kafka import KafkaException

        try:
            return future.result(REQUEST_TIMEOUT + 5)
        except (KafkaException, TimeoutError) as error:
            self.admin.poll(0)
            raise self.failure(error, asked) from None

    def answer_unless(self, absent: int, future: Future[Answer], asked: str) -> Answer | None:
        """Wait for an answer; give None where the error has the code that says: there is no such thing."""
        from confluent_kafka import KafkaException

        try:
            return future.result(REQUEST_TIMEOUT + 5)
        except KafkaException as error:
            if error.args[0].code() == absent:
                return None
        except TimeoutError:
            pass
        return self.answer(future, asked)

    def failure(self, error: BaseException, asked: str) -> ClusterUnreachableError | ClusterRefusedError:
        """Give the error for something that was asked and not answered."""
        from confluent_kafka import KafkaError, KafkaException

        code = error.args[0].code() if isinstance(error, KafkaException) else KafkaError._TIMED_OUT
        rights = {
            KafkaError.TOPIC_AUTHORIZATION_FAILED: "Describe and Read on the topic",
            KafkaError.GROUP_AUTHORIZATION_FAILED: "Describe on the group",
            KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Describe on the cluster",
        }
        if code in rights:
            return ClusterRefusedError(f"the cluster {self.name} does not let us see {asked}: grant {rights[code]}")
        if code in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN) and self._told:
            return self._no_connection()
        return ClusterUnreachableError(f"the cluster {self.name} does not tell {asked}: {self._text(error)}; try again")

    def _connect(self) -> None:
        from confluent_kafka import KafkaError

        future = self.admin.describe_cluster(request_timeout=_TO_CONNECT)
        started = time.monotonic()
        while not future.done() and time.monotonic() < started + _TO_CONNECT + 1:
            self.admin.poll(0.02)
            down = any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in self._told)
            if down and time.monotonic() > started + _ALL_DOWN_FOR:
                raise self._no_connection()
        self.answer(future, "who it is")
        self._told.clear()

    def _no_connection(self) -> ClusterUnreachableError | ClusterRefusedError:
        from confluent_kafka import KafkaError

        advice = {
            KafkaError._AUTHENTICATION: "check sasl.mechanism, sasl.username and sasl.password of the connection",
            KafkaError._SSL: "check security.protocol and the ssl settings of the connection",
            KafkaError._RESOLVE: "check the names in `bootstrap`",
            KafkaError._BAD_MSG: "check `bootstrap` and security.protocol: what listens there does not speak this",
        }
        codes = [error.code() for error in self._told]
        if any("SSL" in error.str() for error in self._told):  # a handshake that is cut off has no code of its own
            codes.append(KafkaError._SSL)
        texts = dict.fromkeys(
            _TIMES.sub("", error.str()) for error in self._told if error.code() != KafkaError._ALL_BROKERS_DOWN
        )
        said = "; ".join(list(texts)[:_SHOWN]) or "no connection"
        for code, what_to_do in advice.items():
            if code in codes:
                kind = ClusterUnreachableError if code == KafkaError._RESOLVE else ClusterRefusedError
                return kind(
                    f"the cluster {self.name} cannot be reached: {said}. {what_to_do[0].upper()}{what_to_do[1:]}"
                )
        return ClusterUnreachableError(
            f"the cluster {self.name} cannot be reached: {said}. See that it is up and that `bootstrap` is right"
        )

    def _text(self, error: BaseException) -> str:
        from confluent_kafka import KafkaException

        said = error.args[0].str() if isinstance(error, KafkaException) else str(error) or type(error).__name__
        return kafka_options.without_secrets(said, self.config)
