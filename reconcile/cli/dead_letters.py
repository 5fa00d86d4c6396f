"""`reconcile dead-letters`: what a consumer has given up, and how it comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from reconcile.cli import options
from reconcile.cli.output import print_json, say
from reconcile.cli.outputs import DeadLetterLine, DeadLettersDoneOutput, DeadLettersOutput
from reconcile.cli.stash import Opening
from reconcile.cli.tables import console, table

if TYPE_CHECKING:
    from reconcile.consumer.dead_letters import DeadLetter


_DAY = click.DateTime(formats=["%Y-%m-%d"])


@click.group("dead-letters")
def dead_letters() -> None:
    """Show, replay and clean what a consumer has given up, for consumers that run on reconcile.consumer."""


@dead_letters.command("list")
@options.of_consumer
@options.ids
@click.option("--day", type=_DAY, help="Only those that were given up on this day, as 2026-01-31.")
@click.option("--unresolved", is_flag=True, help="Only those about which something is left to do.")
@options.as_json
def list_(opening: Opening, ids: tuple[str, ...], day: object, unresolved: bool, as_json: bool) -> None:
    """Show the dead letters of a consumer of CONTRACT, and what became of each."""
    topic, letters = _read(opening, ids, day)
    letters = [each for each in letters if not unresolved or not each.resolved]
    if as_json:
        print_json(DeadLettersOutput(topic=topic, letters=tuple(_line(each, payload=False) for each in letters)))
        return
    if not letters:
        say(f"there are no such dead letters in {topic}")
        return
    shown = table("key", "aggregate", "event", "error", "became")
    for each in letters:
        event = each.message.event_id or "-"
        shown.add_row(each.key, each.message.aggregate_id or "-", event, each.error_class or "-", _became(each))
    console().print(shown)


@dead_letters.command()
@options.of_consumer
@click.argument("key", metavar="KEY")
@click.option("--payload", is_flag=True, help="Also show the message's value, which may be personal data.")
@options.as_json
def show(opening: Opening, key: str, payload: bool, as_json: bool) -> None:
    """Show one dead letter, named by its KEY."""
    topic, letters = _read(opening, (), None)
    found = [each for each in letters if each.key == key]
    if as_json:
        print_json(DeadLettersOutput(topic=topic, letters=tuple(_line(each, payload=payload) for each in found)))
        return
    if not found:
        say(f"there is no dead letter {key} in {topic}")
    for each in found:
        for name, value in _line(each, payload=payload).model_dump().items():
            if value is not None and (name != "payload" or payload):
                click.echo(f"{name:>12}  {value}")


@dead_letters.command()
@options.of_consumer
@options.ids
@click.option("--day", type=_DAY, help="Only those that were given up on this day, as 2026-01-31.")
@options.as_json
def replay(opening: Opening, ids: tuple[str, ...], day: object, as_json: bool) -> None:
    """Put dead letters into the stash of the consumer that gave them up, in order; `stash drain` applies them.

    Those that are resolved, or belong to no aggregate, are passed over.
    """
    topic, letters = _read(opening, ids, day)
    consumer = opening()
    with consumer.stash() as stash:
        count = consumer.dead_letters().replay(letters, stash, consumer.terms)
    _done(topic, count, f"{count:,} of {len(letters):,} dead letters are in the stash: drain it", as_json)


@dead_letters.command()
@options.of_consumer
@click.option("--day", type=_DAY, required=True, help="The day on which they were given up, as 2026-01-31.")
@click.option("--unresolved", is_flag=True, help="Also those about which something is left to do.")
@options.as_json
def clean(opening: Opening, day: object, unresolved: bool, as_json: bool) -> None:
    """Write a tombstone for each dead letter of a day, so that compaction takes them away."""
    topic, letters = _read(opening, (), day)
    count = opening().dead_letters().clean(letters, unresolved_too=unresolved)
    _done(topic, count, f"{count:,} dead letters are cleaned", as_json)


def _read(opening: Opening, ids: tuple[str, ...], day: object) -> tuple[str, list[DeadLetter]]:
    consumer = opening()
    dead = consumer.dead_letters()
    with consumer.stash() as stash:
        letters = dead.read(stash)
    wanted = None if day is None else f"{day:%Y-%m-%d}"
    return dead.topic, [
        each
        for each in letters
        if (not ids or each.message.aggregate_id in ids) and (wanted is None or each.day == wanted)
    ]


def _done(topic: str, count: int, words: str, as_json: bool) -> None:
    if as_json:
        print_json(DeadLettersDoneOutput(topic=topic, letters=count))
    else:
        click.echo(words)


def _line(letter: DeadLetter, *, payload: bool) -> DeadLetterLine:
    message = letter.message
    return DeadLetterLine(
        key=letter.key,
        aggregate_id=message.aggregate_id,
        origin=str(message.origin),
        event_id=message.event_id,
        day=letter.day,
        error=letter.error_class,
        message=letter.error_message,
        nameless=letter.nameless,
        outcome=None if letter.outcome is None else letter.outcome.value,
        resolved=letter.resolved,
        payload=message.value.decode(errors="replace") if payload and message.value is not None else None,
    )


def _became(letter: DeadLetter) -> str:
    if letter.resolved and letter.outcome is not None:
        return letter.outcome.value.replace("_", " ")
    return "belongs to no aggregate" if letter.nameless else "waits"
