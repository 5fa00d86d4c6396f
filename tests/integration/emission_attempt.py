"""One attempt to emit, in a process that gets a signal when it comes to a step for the so many-th time."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from reconcile import cli
from reconcile.control.store import open_control
from reconcile.domain.correction import Correction
from reconcile.repair.emission import EmissionTask, emit
from reconcile.repair.transaction import Transactions
from reconcile.settings.settings import Settings
from tests.integration.emission_world import LINK, leased, newer

_TTL = timedelta(minutes=5)
_send = Transactions.send


def correction(said: dict[str, Any]) -> Correction:
    """Give a correction that was written down as JSON."""
    headers = tuple((name, value.encode()) for name, value in said["headers"])
    return Correction(**{**said, "key": said["key"].encode(), "value": said["value"].encode(), "headers": headers})


def written(each: Correction) -> dict[str, Any]:
    """Give a correction as JSON."""
    headers = [(name, value.decode()) for name, value in each.headers]
    return {**vars(each), "key": each.key.decode(), "value": (each.value or b"").decode(), "headers": headers}


def send(self: Transactions, corrections: Sequence[Correction], halfway: Callable[[], None]) -> list[int]:
    """Write corrections so that the first half of them stands in the log when it is told."""

    def written_halfway() -> None:
        assert self._writer is not None
        self._flush(self._writer, 30, [])
        halfway()

    return _send(self, corrections, written_halfway)


def attempt(file: str, step: str, number: str, name: str) -> None:
    """Emit, and get a signal when a step is reached for the so many-th time."""
    task = json.loads(Path(file).read_text())
    left = int(number)

    def interrupt(reached: str) -> None:
        nonlocal left
        left -= reached == step
        if reached == step and left == 0:
            os.kill(os.getpid(), signal.Signals[name])
            time.sleep(60)  # a signal is heard between two steps of the interpreter

    settings = Settings.model_validate({"control_store": {"url": task["control"]}})
    with open_control(settings) as control, leased(control, f"attempt {os.getpid()}", _TTL) as held:
        emit(
            [correction(each) for each in task["corrections"]],
            EmissionTask(LINK, task["run_id"], task["topic"], task["cluster"]),
            control=control,
            held=held,
            newer=newer,
            batch=task["batch"],
            step=interrupt,
        )


if __name__ == "__main__":
    Transactions.send = send  # type: ignore[method-assign]
    arguments = [click.Argument([each]) for each in ("file", "step", "number", "name")]
    command = click.Command("attempt", callback=attempt, params=[*arguments])
    cli.cli = click.Group("cli", [command])  # type: ignore[assignment]
    cli.main()
