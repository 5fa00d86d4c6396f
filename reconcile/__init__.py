"""Finds where services that copy each other's state through Kafka disagree, says why, and repairs it."""

__version__ = "0.2.0"
