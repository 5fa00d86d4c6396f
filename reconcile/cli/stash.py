"""`reconcile stash`: what a consumer has put aside, and how it comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from reconcile.cli import handlers, options
from reconcile.cli.output import print_json, say
from reconcile.cli.outputs import (
    BlockedLine,
    StashDrainOutput,
    StashedLine,
    StashListOutput,
    StashShowOutput,
    StashTakenOutput,
)
from reconcile.cli.tables import console, table
from reconcile.errors import RefusedError

if TYPE_CHECKING:
    from reconcile.consumer.consumer import Consumer
    from reconcile.consumer.message import RecordPlace
    from reconcile.consumer.postgres_stash import PostgresStash

Opening = Callable[..., "Consumer"]

_STILL_BLOCKED = 1
_INTERRUPTED = 130
_HELD_FOR = 60.0


@click.group()
def stash() -> None:
    """Show, drain and settle what a consumer has stashed, for consumers that run on reconcile.consumer."""


@stash.command("list")
@options.of_consumer
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many aggregates to show.")
@options.as_json
def list_(opening: Opening, limit: int, as_json: bool) -> None:
    """Show the blocked aggregates of a consumer of CONTRACT, those that are blocked for longest first."""
    consumer = opening()
    with consumer.stash() as opened:
        size, blocked = opened.size(), opened.listed(limit)
    if as_json:
        lines = tuple(
            BlockedLine(
                aggregate_id=each.aggregate_id,
                messages=each.messages,
                since=each.since,
                origin=None if each.origin is None else str(each.origin),
                event_id=each.event_id,
                error=each.error_class,
                drains=each.drains,
            )
            for each in blocked
        )
        print_json(
            StashListOutput(
                group=consumer.group,
                aggregates=size.aggregates,
                messages=size.messages,
                oldest=size.oldest,
                blocked=lines,
            )
        )
        return
    if not blocked:
        say(f"nothing is stashed for {consumer.group}")
        return
    shown = table("aggregate", "messages", "blocked since", "first message", "error", "drains", right=("messages",))
    for each in blocked:
        since = f"{each.since:%Y-%m-%d %H:%M:%S}"
        row = (each.aggregate_id, f"{each.messages:,}", since, str(each.origin or "-"), each.error_class or "-")
        shown.add_row(*row, str(each.drains))
    console().print(shown)
    say(f"{size.messages:,} messages of {size.aggregates:,} aggregates are stashed for {consumer.group}")


@stash.command()
@options.of_consumer
@click.argument("aggregate_id", metavar="ID")
@click.option("--payload", is_flag=True, help="Also show the messages' values, which may be personal data.")
@options.as_json
def show(opening: Opening, aggregate_id: str, payload: bool, as_json: bool) -> None:
    """Show the stashed messages of the aggregate ID, in the order in which they will be applied."""
    consumer = opening()
    with consumer.stash() as opened:
        letters = opened.letters(aggregate_id)
    lines = [
        StashedLine(
            origin=str(each.origin),
            event_id=each.event_id,
            at=each.at,
            stashed_at=each.stashed_at,
            replayed=each.replayed,
            drains=each.drains,
            error=each.error_class,
            message=each.error_message,
            payload=None if not payload or each.value is None else each.value.decode(errors="replace"),
        )
        for each in letters
    ]
    if as_json:
        print_json(StashShowOutput(group=consumer.group, aggregate_id=aggregate_id, letters=tuple(lines)))
        return
    if not lines:
        say(f"nothing is stashed for {aggregate_id}")
        return
    shown = table("message", "event", "stashed", "error", *(["payload"] if payload else []))
    for line in lines:
        error = f"{line.error}: {line.message}" if line.error else "waits behind the one before"
        row = (line.origin, line.event_id or "-", f"{line.stashed_at:%Y-%m-%d %H:%M:%S}", error)
        shown.add_row(*row, *([line.payload or "null"] if payload else []))
    console().print(shown)


@stash.command()
@options.of_consumer
@handlers.handler
@options.ids
@click.option("--skip-damaged", is_flag=True, help="Skip messages that are registered as damaged.")
@options.as_json
@click.pass_context
def drain(
    context: click.Context,
    opening: Opening,
    handler_name: str,
    ids: tuple[str, ...],
    skip_damaged: bool,
    as_json: bool,
) -> None:
    """Apply what is stashed, in order, by the service's own handler. Members of the group may run meanwhile.

    Exits 0 if nothing of it is blocked any more, 1 if a message failed again, 130 if it was interrupted.
    """
    consumer = opening(handlers.load(handler_name), skip_damaged=skip_damaged)
    done = consumer.drain(ids or None)
    if as_json:
        print_json(
            StashDrainOutput(
                group=consumer.group,
                applied=done.applied,
                older=done.older,
                damaged=done.damaged,
                seen=done.seen,
                unblocked=tuple(done.unblocked),
                blocked=tuple(done.blocked),
                interrupted=done.interrupted,
            )
        )
    else:
        click.echo(f"{done.applied:,} messages applied, {len(done.unblocked):,} aggregates flow again")
        if done.older:
            say(f"{done.older:,} messages dropped: a newer state had been applied")
        if done.damaged:
            say(f"{done.damaged:,} messages skipped: they are registered as damaged")
        if done.seen:
            say(f"{done.seen:,} messages had been applied before")
        for aggregate_id in done.blocked:
            say(f"{aggregate_id}: failed again; `reconcile stash show` tells why")
        for aggregate_id in () if done.interrupted else sorted({*ids} - {*done.unblocked, *done.blocked}):
            say(f"{aggregate_id}: nothing is stashed of it")
    if done.interrupted:
        context.exit(_INTERRUPTED)
    if done.blocked:
        context.exit(_STILL_BLOCKED)


@stash.command()
@options.of_consumer
@click.argument("aggregate_id", metavar="ID")
@click.option("--because", default="the copy was repaired by hand", show_default=True, help="What is kept as reason.")
@click.option("--through", metavar="MESSAGE", help="The last message that the repaired copy holds, as `show` names it.")
@options.as_json
def release(opening: Opening, aggregate_id: str, because: str, through: str | None, as_json: bool) -> None:
    """Let the aggregate ID flow again, once a person has repaired its copy.

    What is stashed of it counts as done: it is kept as evidence, and is not applied. What came after the repair would
    be lost by that: with --through, what follows is left to the next drain.
    """
    _take(opening, aggregate_id, because, lambda places: _named(places, through, aggregate_id), as_json=as_json)


@stash.command()
@options.of_consumer
@click.argument("aggregate_id", metavar="ID")
@click.option("--because", required=True, help="Why; it is kept with the messages.")
@click.option("--all", "everything", is_flag=True, help="All that is stashed of it, and not the first message alone.")
@options.as_json
def discard(opening: Opening, aggregate_id: str, because: str, everything: bool, as_json: bool) -> None:
    """Give up the first stashed message of the aggregate ID. It is kept as evidence, and is never applied."""
    _take(opening, aggregate_id, because, lambda places: None if everything else places[0], as_json=as_json)


def _named(places: Sequence[RecordPlace], through: str | None, aggregate_id: str) -> RecordPlace | None:
    if through is None:
        return None
    for place in places:
        if str(place) == through:
            return place
    raise RefusedError(f"--through {through}: no such message of {aggregate_id} is stashed; see `reconcile stash show`")


def _take(
    opening: Opening,
    aggregate_id: str,
    because: str,
    last: Callable[[Sequence[RecordPlace]], RecordPlace | None],
    *,
    as_json: bool,
) -> None:
    """Take messages up to one of them, or all."""
    from reconcile.pipeline.approval import os_user

    consumer = opening()
    with consumer.stash() as opened:

        def act() -> int:
            places = [each.origin for each in opened.letters(aggregate_id)]
            if not places:
                return 0  # and not what is stashed from now on: nobody has seen it
            return opened.discard(aggregate_id, because, os_user().name, through=last(places))

        messages = _held(opened, act)
    if as_json:
        print_json(StashTakenOutput(group=consumer.group, aggregate_id=aggregate_id, messages=messages))
    else:
        click.echo(f"{aggregate_id}: {messages:,} messages were taken out of the stash")


def _held(opened: PostgresStash, act: Callable[[], int]) -> int:
    """Act while no drain does."""
    epoch = opened.hold(_HELD_FOR)
    try:
        return act()
    finally:
        opened.give_back(epoch)
