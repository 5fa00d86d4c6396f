"""One attempt to emit, in a process that dies when it comes to a step for the so many-th time."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from reconcile.control.store import open_control
from reconcile.domain.correction import Correction
from reconcile.repair.emission import emit
from reconcile.settings import Settings
from tests.integration.emission_world import LINK, leased, newer

_TTL = timedelta(minutes=5)


def correction(said: dict[str, Any]) -> Correction:
    """Give a correction that was written down as JSON."""
    headers = tuple((name, value.encode()) for name, value in said["headers"])
    return Correction(**{**said, "key": said["key"].encode(), "value": said["value"].encode(), "headers": headers})


def written(each: Correction) -> dict[str, Any]:
    """Give a correction as JSON."""
    headers = [(name, value.decode()) for name, value in each.headers]
    return {**vars(each), "key": each.key.decode(), "value": (each.value or b"").decode(), "headers": headers}


def main(file: str, step: str, number: str) -> None:
    """Emit, and die when a step is reached for the so many-th time."""
    task = json.loads(Path(file).read_text())
    left = int(number)

    def die(name: str) -> None:
        nonlocal left
        left -= name == step
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    settings = Settings.model_validate({"control_store": {"url": task["control"]}})
    with open_control(settings) as control, leased(control, f"attempt {os.getpid()}", _TTL) as held:
        emit(
            [correction(each) for each in task["corrections"]],
            topic=task["topic"],
            link=LINK,
            run_id=task["run_id"],
            cluster=task["cluster"],
            control=control,
            held=held,
            newer=newer,
            batch=task["batch"],
            step=die,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
