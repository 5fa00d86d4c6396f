"""Frames that are kept in memory for as long as a block needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reconcile.spark import local_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def persisted(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep what is computed of a frame until the block ends; the rows of a local one are kept by itself.

    An interrupt releases nothing: after it Java may not answer any more, and ends with us.
    """
    if local_frames.is_local(frame):
        yield frame
        return
    try:
        yield frame.persist()
    except Exception:
        frame.unpersist()
        raise
    frame.unpersist()
