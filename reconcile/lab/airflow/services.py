"""The lab's services as one process, so that corrections are consumed while Airflow runs on the lab's world."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from reconcile.errors import ReconcileError
from reconcile.lab.folder import Lab
from reconcile.lab.services.copies import SERVICES
from reconcile.lab.services.database import connect
from reconcile.lab.services.member import ServiceConsumer, stop
from reconcile.lab.services.relay import OutboxRelay, producer
from reconcile.lab.world import require_running

_LOOK_AGAIN = 0.2


def run(lab: Lab, going: threading.Event) -> None:
    """Publish what is committed and consume it, until `going` is cleared; raise ReconcileError if a service fails."""
    require_running(lab)
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised by the thread that waits
            failures.append(error)
            going.clear()

    with lab.alone("services"):
        members = [ServiceConsumer(lab.bootstrap, service, lab.url(service.name)) for service in SERVICES]
        threads = [threading.Thread(target=guarded, args=(member.run,), daemon=True) for member in members]
        for thread in threads:
            thread.start()
        guarded(lambda: _relay(lab, going))
        for member, thread in zip(members, threads, strict=True):
            stop(member, thread)
    if failures:
        raise ReconcileError(f"the lab's services stopped: {failures[0]}") from failures[0]


def main() -> None:
    """Run the services of the lab in the folder that is named, until SIGTERM or SIGINT."""
    going = threading.Event()
    going.set()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: going.clear())
    run(Lab(Path(sys.argv[1])), going)


def _relay(lab: Lab, going: threading.Event) -> None:
    with closing(connect(lab.url("user"))) as database:
        relay = OutboxRelay(database, producer(lab.bootstrap))
        while going.is_set():
            relay.run()
            time.sleep(_LOOK_AGAIN)


if __name__ == "__main__":
    main()
