"""Tests of the `event` expressions on what the stores and the log hold right now, for `reconcile doctor`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from reconcile.audit.event_tests import SAMPLE, EventTest, agreeing, evaluate
from reconcile.audit.link_facts import field_rules
from reconcile.contract.model import Contract
from reconcile.errors import RefusedError, UnreachableError
from reconcile.gather.fence.opening import open_fence
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.log.history import History
from reconcile.gather.stores import row_columns
from reconcile.settings.settings import Settings
from reconcile.spark import local_frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class LiveEventTests:
    """How the expressions did, link by link."""

    tests: list[EventTest] = field(default_factory=list)
    strange: dict[str, int] = field(default_factory=dict)
    """Of the links that have no row of any id of the log that was looked at: how many those are."""
    unread: list[str] = field(default_factory=list)


def tested_live(
    spark: SparkSession, contract: Contract, file: Path, settings: Settings, history: History
) -> LiveEventTests:
    """Read the rows of some ids of the log from both stores of each link, and test what events say of those."""
    found, ids = LiveEventTests(), history.some_ids(spark, SAMPLE)
    if not ids:
        return found
    wanted = local_frames.of_rows(spark, [(each,) for each in ids], f"{row_columns.ID} string")
    with open_fence(contract, file, settings, timeout=timedelta(0)) as opened:
        for consumer in (each for each in contract.consumers if each.name in opened.consumers):
            link = contract.link(consumer)
            try:
                reader = LinkReader(spark, contract, consumer, settings, opened)
                with reader.reading():
                    source, copy = reader.rows
                    ours, theirs = (list(map(tuple, side.among(wanted).collect())) for side in (source, copy))
                if not ours and not theirs:
                    found.strange[link] = len(ids)
                form = copy.form.fields
                agreed = agreeing(ours, theirs, field_rules(consumer, form))
                found.tests += evaluate(spark, history, contract, consumer, form, agreed, None)
            except (RefusedError, UnreachableError) as error:
                found.unread.append(f"{link}: {error}")
            finally:
                opened.release(consumer.name)
    return found
