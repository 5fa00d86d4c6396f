"""`reconcile setup`: what Spark and the lab need beside Python, fetched once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconcile.cli import options
from reconcile.cli.output import print_json, say
from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import quoted
from reconcile.errors import RefusedError
from reconcile.settings.settings import load_settings, mirror_url

if TYPE_CHECKING:
    from reconcile.spark.setup import Progress

_LINE_EVERY = 10


@click.command()
@click.option("--mirror", metavar="URL", help="A mirror of Maven's repository.")
@click.option("--with", "more", metavar="NAMES", help="Also jars that few need: iceberg, delta, or both.")
@options.config
@options.as_json
def setup(mirror: str | None, more: str | None, config: Path | None, as_json: bool) -> None:
    """Fetch the jars, and archive Spark's classes so that it starts in half the time.

    They are kept in the user's cache, or in $RECONCILE_JARS. After an interruption, the same command continues.
    """
    from reconcile.spark.setup import OPTIONAL, set_up

    settings = load_settings(config)
    try:
        mirror = settings.setup.mirror if mirror is None else mirror_url(mirror)
    except ValueError as error:
        raise RefusedError(f"--mirror: {error}") from None
    named = [each.strip() for each in (more or "").split(",") if each.strip()]
    for each in named:
        if each not in OPTIONAL:
            hint = suggestion(each, OPTIONAL) or f"; there are {', '.join(OPTIONAL)}"
            raise RefusedError(f"--with: no jars {quoted(each)}{hint}")
    began = time.monotonic()
    with _shown() as tell:
        made = set_up(mirror, tell, named)
    if as_json:
        from reconcile.cli.outputs import SetupOutput

        print_json(
            SetupOutput(
                folder=str(made.folder),
                jars=made.jars,
                archive=None if made.archive is None else str(made.archive),
                anew=made.anew,
                seconds=round(time.monotonic() - began, 1),
            )
        )
    archive = (
        "Spark's class archive" if made.archive else "no archive of Spark's classes, which this Java does not make,"
    )
    took = f", in {time.monotonic() - began:.0f} s" if made.anew else ": there was nothing to do"
    say(f"{made.jars} jars and {archive} are in {made.folder}{took}")


@contextmanager
def _shown() -> Iterator[Callable[[Progress], None]]:
    """Show progress: one live line on a terminal, else a line now and then."""
    from rich.console import Console
    from rich.progress import Progress as Live
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(time.monotonic())
        return
    with Live(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as live:
        line = live.add_task("")
        yield lambda now: live.update(line, description=_words(now))


def _lines(began: float) -> Callable[[Progress], None]:
    def tell(now: Progress) -> None:
        if now.done % _LINE_EVERY == 0 or now.done == now.total:
            say(f"{_words(now)} ({time.monotonic() - began:.0f} s)")

    return tell


def _words(now: Progress) -> str:
    if now.total is not None:
        return f"{now.doing}: {now.done} of {now.total}"
    return f"{now.doing}: {now.done} found" if now.done else now.doing
