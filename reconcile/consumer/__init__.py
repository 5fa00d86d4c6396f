"""What a service uses to keep its copy right: one message, one transaction, and a failure policy that loses nothing."""

from reconcile.consumer.alerts import Hooks
from reconcile.consumer.consumer import Consumer, Postgres
from reconcile.consumer.dependency import Dependency
from reconcile.consumer.handling import BatchHandler
from reconcile.consumer.message import Message, RecordPlace
from reconcile.consumer.metrics import Metrics
from reconcile.consumer.policy import (
    Backoff,
    Block,
    BreakerLimits,
    Ignore,
    Policy,
    RetryThenDeadLetter,
    RetryTopic,
    RetryTopics,
    Stash,
    Terms,
)
from reconcile.consumer.postgres import Transaction
from reconcile.consumer.reading import Reading
from reconcile.consumer.recovery import Recovery

__all__ = [
    "Backoff",
    "BatchHandler",
    "Block",
    "BreakerLimits",
    "Consumer",
    "Dependency",
    "Hooks",
    "Ignore",
    "Message",
    "Metrics",
    "Policy",
    "Postgres",
    "Reading",
    "RecordPlace",
    "Recovery",
    "RetryThenDeadLetter",
    "RetryTopic",
    "RetryTopics",
    "Stash",
    "Terms",
    "Transaction",
]
