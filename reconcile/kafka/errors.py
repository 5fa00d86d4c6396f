"""What goes wrong with a Kafka cluster, in terms of what a person can do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from reconcile.errors import RefusedError, UnreachableError
from reconcile.kafka import options as kafka_options
from reconcile.kafka.listener import speaks_tls
from reconcile.kafka.reader import READER_GROUP

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_SHOWN = 2
_TIMES = re.compile(r" \((after [^()]*|\d+ identical[^()]*)\)")


class Right(NamedTuple):
    """A right in a cluster."""

    operation: str
    kind: Literal["topic", "group", "cluster"]
    name: str = ""

    def __str__(self) -> str:
        return f"{self.operation} on the {self.kind} {self.name}".rstrip()


_USUAL = (Right("Read", "topic"), Right("Describe", "group", READER_GROUP), Right("Describe", "cluster"))
"""What is lacking where a client was refused something beside what it asked for."""
HOW_TO_GRANT = "`reconcile contract grants` prints all that is needed"


class ClusterUnreachableError(UnreachableError):
    """Raised when a cluster does not answer: see to it that it is up and that the address is right; try again."""


class ClusterRefusedError(RefusedError):
    """Raised when a cluster, or the client, refuses the settings of the connection: correct them, or grant rights."""


class TopicMissingError(RefusedError):
    """Raised when a contract names a topic that the cluster does not have: correct the name, or create the topic."""


def unusable(name: str, config: Mapping[str, Any], error: BaseException) -> ClusterRefusedError:
    """Build the error for options that the client does not take."""
    return ClusterRefusedError(f"the connection {name} cannot be used: {_text(config, error)}")


def unanswered(
    name: str,
    config: Mapping[str, Any],
    heard: Sequence[KafkaError],
    error: BaseException,
    wanted: str,
    right: Right | None = None,
) -> ClusterUnreachableError | ClusterRefusedError:
    """Build the error for what was wanted and not answered; `heard` is what the client said of its connections.

    `right` is what one needs to see it.
    """
    from confluent_kafka import KafkaError, KafkaException

    code = error.args[0].code() if isinstance(error, KafkaException) else KafkaError._TIMED_OUT
    kinds = {
        KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
        KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
        KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    }
    if (kind := kinds.get(code)) is not None:
        lacking = next(each for each in (right, *_USUAL) if each is not None and each.kind == kind)
        return ClusterRefusedError(f"the cluster {name} does not let us see {wanted}: grant {lacking}; {HOW_TO_GRANT}")
    if code in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN) and heard:
        return unconnected(name, config, heard)
    return ClusterUnreachableError(f"the cluster {name} does not tell {wanted}: {_text(config, error)}; try again")


def unconnected(
    name: str, config: Mapping[str, Any], heard: Sequence[KafkaError]
) -> ClusterUnreachableError | ClusterRefusedError:
    """Build the error for a cluster that no connection can be had to; query what listens where nothing says it."""
    from confluent_kafka import KafkaError

    advice = {
        KafkaError._AUTHENTICATION: "Check sasl.mechanism, sasl.username and sasl.password of the connection",
        KafkaError._SSL: "Check security.protocol and the ssl settings of the connection",
        KafkaError._RESOLVE: "Check the names in `bootstrap`",
        KafkaError._BAD_MSG: "Check `bootstrap` and security.protocol: what listens there does not speak this",
    }
    codes = [error.code() for error in heard]
    if any("SSL" in error.str() for error in heard):  # a handshake that is cut off has no code of its own
        codes.append(KafkaError._SSL)
    texts = dict.fromkeys(
        _TIMES.sub("", error.str()) for error in heard if error.code() != KafkaError._ALL_BROKERS_DOWN
    )
    said = "; ".join(list(texts)[:_SHOWN]) or "no connection"
    for code, what_to_do in advice.items():
        if code in codes:
            kind = ClusterUnreachableError if code == KafkaError._RESOLVE else ClusterRefusedError
            return kind(f"the cluster {name} cannot be reached: {said}. {what_to_do}")
    protocol = str(config.get("security.protocol", "PLAINTEXT"))
    if not texts and (with_tls := speaks_tls(config["bootstrap.servers"])) is not None:
        if with_tls is not protocol.endswith("SSL"):
            what, fitting = ("TLS", "SSL or SASL_SSL") if with_tls else ("no TLS", "PLAINTEXT or SASL_PLAINTEXT")
            return ClusterRefusedError(
                f"the cluster {name} cannot be reached: what listens there speaks {what}, and our connections are"
                f" {protocol}. Set security.protocol to {fitting}"
            )
        if protocol == "SSL":
            return ClusterRefusedError(
                f"the cluster {name} cannot be reached: it agreed on TLS, and then ended our connections, as one does"
                " that wants a log-in, or a certificate of ours. Set security.protocol to SASL_SSL, or"
                " ssl.certificate.location and ssl.key.location"
            )
    return ClusterUnreachableError(
        f"the cluster {name} cannot be reached: {said}. See that it is up and that `bootstrap` is right"
    )


def _text(config: Mapping[str, Any], error: BaseException) -> str:
    from confluent_kafka import KafkaException

    said = error.args[0].str() if isinstance(error, KafkaException) else str(error) or type(error).__name__
    return kafka_options.without_secrets(said, config)
