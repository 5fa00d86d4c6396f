"""`reconcile damaged`: messages that no release will ever be able to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from reconcile.cli import options
from reconcile.cli.output import print_json, say
from reconcile.cli.outputs import DamagedChangeOutput, DamagedLine, DamagedOutput
from reconcile.cli.stash import Opening
from reconcile.cli.tables import console, table


@click.group()
def damaged() -> None:
    """Register messages as damaged: a consumer that reads the topic again with skip_damaged=True skips them."""


def _place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --partition and --offset."""
    for name in ("offset", "partition"):
        words = f"The message's {name} in the main topic."
        command = click.option(f"--{name}", type=click.IntRange(0), required=True, help=words)(command)
    return command


@damaged.command("list")
@options.of_consumer
@options.as_json
def list_(opening: Opening, as_json: bool) -> None:
    """Show what is registered as damaged for a consumer of CONTRACT, and what became of each."""
    consumer = opening()
    with consumer.damaged() as register:
        found = register.listed()
    if as_json:
        lines = tuple(
            DamagedLine(
                origin=str(each.place),
                because=each.because,
                noted_at=each.noted_at,
                outcome=each.outcome,
                stashed=each.stashed,
            )
            for each in found
        )
        print_json(DamagedOutput(group=consumer.group, damaged=lines))
        return
    if not found:
        say(f"nothing is registered as damaged for {consumer.group}")
        return
    shown = table("message", "registered", "because", "became")
    for each in found:
        became = "stashed" if each.stashed else (each.outcome or "-").replace("_", " ")
        shown.add_row(str(each.place), f"{each.noted_at:%Y-%m-%d %H:%M:%S}", each.because, became)
    console().print(shown)


@damaged.command()
@options.of_consumer
@_place
@click.option("--because", required=True, help="Why; it is kept, and the audit tells it.")
@options.as_json
def add(opening: Opening, partition: int, offset: int, because: str, as_json: bool) -> None:
    """Register a message as damaged. What has been applied of it stays, and what is stashed of it waits."""
    consumer = opening()
    with consumer.damaged() as register:
        changed = register.add(partition, offset, because)
    _say(
        consumer.reading.topic,
        partition,
        offset,
        changed,
        "is registered",
        "was registered: the reason is new",
        as_json,
    )


@damaged.command()
@options.of_consumer
@_place
@options.as_json
def remove(opening: Opening, partition: int, offset: int, as_json: bool) -> None:
    """Take a message out of the register, so that it is applied when it is read."""
    consumer = opening()
    with consumer.damaged() as register:
        changed = register.remove(partition, offset)
    _say(
        consumer.reading.topic, partition, offset, changed, "is not registered any more", "was not registered", as_json
    )


def _say(topic: str, partition: int, offset: int, changed: bool, done: str, otherwise: str, as_json: bool) -> None:
    place = f"{topic}[{partition}]@{offset}"
    if as_json:
        print_json(DamagedChangeOutput(origin=place, changed=changed))
    else:
        click.echo(f"{place} {done if changed else otherwise}")
