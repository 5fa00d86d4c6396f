"""What Java says at the bottom of an error of Spark's: above it stand the plan and the stages that failed of it."""

from __future__ import annotations

from typing import Any


def root_cause(error: Exception) -> Any | None:
    """Give the Java exception that was thrown first; None for an error that Spark has told in Python's own classes."""
    thrown = getattr(error, "java_exception", None)
    while thrown is not None and thrown.getCause() is not None:
        thrown = thrown.getCause()
    return thrown
