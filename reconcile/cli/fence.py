"""`reconcile fence`: where source, log and groups stand right now."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconcile.cli import options
from reconcile.cli.output import print_json
from reconcile.cli.tables import console, table
from reconcile.contract.model import load_contract
from reconcile.gather.fence.fence import Fence, SourceFence

if TYPE_CHECKING:
    from reconcile.cli.outputs import FenceOutput

FAULT = 1
COULD_NOT_TELL = 2


@click.command()
@options.contract_file
@options.consumers
@click.option("--settle", is_flag=True, help="Wait for the groups, up to the contract's timeout.")
@options.settings
@options.as_json
@click.pass_context
def fence(
    context: click.Context,
    contract: Path,
    consumers: tuple[str, ...],
    settle: bool,
    read_settings: options.ReadSettings,
    as_json: bool,
) -> None:
    """Show the current positions of the source, the log and the groups of CONTRACT. It only reads.

    Exits 1 if a transaction hangs in the topic, else 2 if something could not be read.
    """
    agreed = load_contract(contract)
    settings = read_settings()
    from reconcile.gather.fence.opening import open_fence
    from reconcile.kafka.transactions import how_to_end

    timeout = None if settle else timedelta(0)
    with open_fence(agreed, contract, settings, consumers, timeout) as opened:
        found = opened.fence
    if as_json:
        print_json(_output(found, contract))
    else:
        _show(found)
    for missing in found.unread:
        click.echo(f"reconcile: {missing.link}: {missing.message}", err=True)
    for each in found.topic.hanging:
        name = found.topic.name
        click.echo(f"reconcile: a transaction hangs in {name} {each}: {how_to_end(name, each)}", err=True)
    if found.topic.hanging:
        context.exit(FAULT)
    if not found.complete:
        context.exit(COULD_NOT_TELL)


def _output(found: Fence, contract: Path) -> FenceOutput:
    from reconcile.cli.outputs import FenceConsumer, FenceOutput  # the models of all commands load slowly

    consumers = tuple(FenceConsumer(**vars(each)) for each in found.consumers)
    same = {name: getattr(found, name) for name in ("aggregate", "opened_at", "closed_at", "source", "topic", "unread")}
    return FenceOutput(
        contract=str(contract), digest=found.contract, complete=found.complete, consumers=consumers, **same
    )


def _show(found: Fence) -> None:
    out = console()
    source, topic = found.source, found.topic
    parts = [source.store]
    if source.snapshot:
        parts.append(f"at {source.snapshot.taken_at:%Y-%m-%d %H:%M:%S} UTC, about {source.rows:,} rows")
    if source.cut is not None:
        parts.append(f"at {source.cut}")
    if source.outbox_pending is not None:
        parts.append(f"{source.outbox_pending:,} outbox rows not yet published")
    if not source.limits:
        parts.append("proven to be the primary")
    begin, end = (sum(getattr(each, name) for each in topic.partitions) for name in ("begin", "end"))
    out.print(f"source  {', '.join(parts)}")
    for note in _notes(source):
        out.print(f"        note: {note}")
    out.print(
        f"topic   {topic.name} on {topic.cluster}: {len(topic.partitions)} partitions,"
        f" begin {begin:,}, end {end:,} (sums of offsets)"
    )
    out.print()
    _show_consumers(found)
    _show_partitions(found)
    _show_transactions(found)


def _notes(source: SourceFence) -> list[str]:
    secured = ", ".join(source.nature.row_security) if source.nature is not None else ""
    notes = [f"row-level security: {secured}; the account sees all rows"] if secured else []
    return [*source.limits, *notes]


def _show_consumers(found: Fence) -> None:
    shown = table("consumer", "group", "state", "members", "lag", "settled", right=("members", "lag"))
    for each in found.consumers:
        states, members = ", ".join(each.states), str(len(each.group.members))
        shown.add_row(each.name, each.group.name, states, members, f"{each.lag:,}", "yes" if each.settled else "no")
    for missing in found.unread:
        shown.add_row(missing.name, "-", "could not be read", "-", "-", "-")
    console().print(shown)
    for each in found.consumers:
        if each.cut is not None:
            console().print(f"{each.name} is read at {each.cut} of {each.store}")


def _show_partitions(found: Fence) -> None:
    numbers = ("begin", "committed", "end", "lag")
    shown = table("consumer", "partition", "state", *numbers, right=("partition", *numbers))
    ends = {each.partition: each for each in found.topic.partitions}
    for consumer in found.consumers:
        for place in consumer.places:
            if place.state != "caught_up":
                at = ends[place.partition]
                committed = "-" if place.committed_before is None else f"{place.committed_before:,}"
                figures = (f"{at.begin:,}", committed, f"{at.end:,}", f"{place.lag:,}")
                shown.add_row(consumer.name, str(place.partition), place.state.value, *figures)
    if shown.row_count:
        console().print()
        console().print(shown)


def _show_transactions(found: Fence) -> None:
    numbers = ("partition", "offset", "undecided")
    shown = table("partition", "transaction", "offset", "first record", "undecided", right=numbers)
    for each in found.topic.open:
        since = "-" if each.since is None else f"{each.since:%Y-%m-%d %H:%M:%S} UTC"
        state = "hangs" if each.hanging else "open"
        shown.add_row(str(each.partition), state, f"{each.begin:,}", since, f"{each.end - each.begin:,}")
    if shown.row_count:
        console().print()
        console().print(shown)
