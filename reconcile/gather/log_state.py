"""Where a topic's log stands, asked from the cluster."""

from __future__ import annotations

from reconcile.gather.cluster import Cluster
from reconcile.gather.history_index import LogState


def log_state(cluster: Cluster, topic: str) -> LogState:
    """Ask where a log begins and ends; raise TopicMissingError with the nearest name if there is no such topic."""
    standing = cluster.topic(topic)
    # In this order: a log that is written to and cut meanwhile never seems to begin behind its end.
    begins = cluster.begins(topic, standing.partitions)
    stable = cluster.ends(topic, standing.partitions)
    ends = cluster.high_watermarks(topic, standing.partitions)
    return LogState(standing.id, begins, stable, ends)
