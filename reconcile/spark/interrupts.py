"""What Ctrl-C does while Spark is at work.

PySpark's own handler asks Spark to cancel on the very connection on which the program waits for an answer. That breaks
the connection, and a program that was interrupted looks like one that has failed.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from reconcile.spark import internals

if TYPE_CHECKING:
    from pyspark import SparkContext

_CANCELS_WITHIN = 10.0


def take(context: SparkContext) -> None:
    """Have SIGINT end what Spark is at, and raise KeyboardInterrupt; for the main thread only, as signals are.

    While that waits for an answer of Java's, it is raised when the answer is there: that breaks no connection. Who does
    not want to wait for that asks twice.
    """
    from py4j.protocol import MEMORY_COMMAND_NAME

    if not _is_ours():
        return
    client = internals.py4j_client(context)
    client.__dict__.pop("send_command", None)  # that of an earlier context
    ask_java = client.send_command
    pressed, waits = threading.Event(), 0

    def send_command(command: str, *given: Any, **named: Any) -> Any:
        nonlocal waits
        if not _is_ours():
            return ask_java(command, *given, **named)
        waits += 1
        try:
            answer = ask_java(command, *given, **named)
        finally:
            waits -= 1
        # What gives back memory is called by Python's garbage collector, which swallows all that is raised.
        if pressed.is_set() and not waits and not command.startswith(MEMORY_COMMAND_NAME):
            pressed.clear()
            raise KeyboardInterrupt
        return answer

    def interrupted(_number: int, _frame: object) -> None:
        cancelling = threading.Thread(target=_cancel, args=(context,), daemon=True)  # with a connection of its own
        cancelling.start()
        if waits and not pressed.is_set():
            pressed.set()
            return
        cancelling.join(_CANCELS_WITHIN)
        raise KeyboardInterrupt

    client.send_command = send_command
    signal.signal(signal.SIGINT, interrupted)


@contextmanager
def held_back() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end, at the second Ctrl-C at once: Java, cut off in its start, stays for ever."""
    if not _is_ours():
        yield
        return
    pressed = threading.Event()

    def interrupted(_number: int, _frame: object) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    logging.getLogger().addFilter(_no_interrupt)
    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed.is_set():
        raise KeyboardInterrupt


@contextmanager
def restored() -> Iterator[None]:
    """Give SIGINT back afterwards: PySpark would answer it even after its end."""
    if not _is_ours():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _cancel(context: SparkContext) -> None:
    from py4j.protocol import Py4JError

    with suppress(Py4JError, AttributeError):  # Spark may have ended by now
        context.setLogLevel("OFF")  # it would warn of each task that it ends
        context.cancelAllJobs()


def _is_ours() -> bool:
    return threading.current_thread() is threading.main_thread()


def _no_interrupt(record: logging.LogRecord) -> bool:
    """Keep py4j from printing where the program was."""
    return not (record.exc_info and record.exc_info[0] is KeyboardInterrupt)
