"""`reconcile lab`: an embedded world to try, test and demonstrate on."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from reconcile.cli import options
from reconcile.cli.output import print_json, say
from reconcile.cli.tables import console, table
from reconcile.lab.folder import Lab, Ports

DEFAULT_FOLDER = ".lab"
NOT_UP = 2
# What the truth's table shows, and how wide a terminal has to be for it.
_TRUTH_COLUMNS = {"fault": 0, "link": 0, "difference": 0, "cause": 0, "hop": 100, "status": 115, "systems": 125}
_PORT = click.IntRange(1, 65535)


def folder(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --dir, the folder of a lab."""
    return click.option(
        "--dir",
        "lab",
        type=click.Path(file_okay=False, path_type=Path),
        default=lambda: Path(os.environ.get("RECONCILE_LAB") or DEFAULT_FOLDER),
        show_default=f"$RECONCILE_LAB, or {DEFAULT_FOLDER}",
        callback=lambda _context, _parameter, value: Lab(value),
        help="The folder that holds the world.",
    )(command)


def server_ports(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the servers' ports; the command gets `ports`: what was chosen of them, by server."""

    @click.option("--postgres-port", type=_PORT, default=Ports.postgres, show_default=True)
    @click.option("--kafka-port", type=_PORT, default=Ports.kafka, show_default=True)
    @click.option(
        "--controller-port", type=_PORT, default=Ports.controller, show_default=True, help="Kafka's controller."
    )
    @wraps(command)
    def with_ports(*given: Any, postgres_port: int, kafka_port: int, controller_port: int, **more: Any) -> Any:
        all_ports = {"postgres": postgres_port, "kafka": kafka_port, "controller": controller_port}
        source = click.get_current_context().get_parameter_source
        chosen = {n: port for n, port in all_ports.items() if source(f"{n}_port") is not ParameterSource.DEFAULT}
        return command(*given, ports=chosen, **more)

    return with_ports


def ports_of(lab: Lab, chosen: Mapping[str, int]) -> Ports | None:
    """Build the ports of a lab with those that were chosen; None where none were, and it keeps its own."""
    return replace(lab.state().ports, **chosen) if chosen else None


@click.group()
def lab() -> None:
    """Run a test world: real Postgres and Kafka, services, faults, and the truth about the faults."""


@lab.command()
@folder
@server_ports
@click.option("--secure", is_flag=True, help="Both servers want TLS and a password, and Kafka grants no right unasked.")
@options.as_json
def up(lab: Lab, ports: Mapping[str, int], secure: bool, as_json: bool) -> None:
    """Start the servers, and create databases and topics. Does nothing if they run.

    Writes reconcile.yaml beside the folder, with the connections of this world.
    """
    from reconcile.lab import world

    world.up(lab, ports_of(lab, ports), secure=secure)
    where = world.status(lab)
    if as_json:
        _print_status(where)
        return
    say(
        f"up: Postgres on 127.0.0.1:{lab.state().ports.postgres}, Kafka on {where['kafka']},"
        f" settings in {where['config']}"
    )


@lab.command()
@folder
@click.option("--wipe", is_flag=True, help="Also remove the data.")
def down(lab: Lab, wipe: bool) -> None:
    """Stop the servers. The data stay for the next `up`, unless --wipe."""
    from reconcile.lab import world

    made = lab.made
    world.down(lab, wipe=wipe)
    if not made:
        say(f"there is no world in {lab.root}, and nothing of one runs: --dir names another folder")
    else:
        say("down, and the world is gone" if wipe else "down")


@lab.command()
@folder
@options.as_json
def status(lab: Lab, as_json: bool) -> None:
    """Show what runs and how to reach it. Exits 0 if the world is up, else 2."""
    from reconcile.lab import world

    found = world.status(lab)
    if as_json:
        _print_status(found)
    else:
        for name, value in found.items():
            if name == "databases":
                for database, url in value.items():
                    click.echo(f"{database:>10}  {url}")
            elif name == "processes":
                for server, pid in value.items():
                    click.echo(f"{server:>10}  {f'process {pid}' if pid else 'down'}")
            else:
                click.echo(f"{name:>10}  {value}")
    if not found["running"]:
        sys.exit(NOT_UP)


@lab.command()
@folder
@click.option("--aggregates", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--seed", "number", type=click.IntRange(0), default=42, show_default=True)
@options.as_json
def seed(lab: Lab, aggregates: int, number: int, as_json: bool) -> None:
    """Fill a new world with data. The same seed gives the same world."""
    from reconcile.lab.seed import seed as fill

    with _bar("seeding", aggregates) as advance:
        made = fill(lab, aggregates, number, advance)
    rate = made.events / made.seconds
    if as_json:
        from reconcile.cli.outputs import SeedOutput

        print_json(SeedOutput(aggregates=made.aggregates, events=made.events, seconds=round(made.seconds, 2)))
    say(f"seeded {made.aggregates:,} aggregates, {made.events:,} events in {made.seconds:.1f} s ({rate:,.0f} events/s)")


@lab.command()
@folder
@click.option("--rate", type=click.FloatRange(0.1, 5000), default=50.0, show_default=True, help="Changes per second.")
@click.option("--seconds", type=click.FloatRange(0.1), default=30.0, show_default=True)
@options.as_json
def traffic(lab: Lab, rate: float, seconds: float, as_json: bool) -> None:
    """Make changes while relay and consumers run, then wait until every copy has them."""
    from reconcile.lab.traffic import traffic as run

    with _bar("changes", round(rate * seconds)) as advance:
        seen = run(lab, rate, seconds, lambda now: advance(now.changes))
    if as_json:
        from reconcile.cli.outputs import TrafficOutput

        print_json(TrafficOutput(**vars(seen)))
    applied = ", ".join(f"{name} {count:,}" for name, count in seen.applied.items())
    say(f"{seen.changes:,} changes in {seen.seconds:.1f} s; published {seen.published:,}; applied: {applied}")
    if not seen.drained:
        say("the consumers had not caught up when they were stopped")


@lab.command()
@folder
@click.argument("names", nargs=-1)
@click.option("--count", type=click.IntRange(1), default=3, show_default=True, help="Aggregates per form of a fault.")
@click.option("--list", "listing", is_flag=True, help="List the faults.")
@options.as_json
def fault(lab: Lab, names: tuple[str, ...], count: int, listing: bool, as_json: bool) -> None:
    """Plant the faults NAMES, or `all`. Each records in the truth what it changed."""
    from reconcile.lab import faults

    if listing or not names:
        if as_json:
            from reconcile.cli.outputs import FaultLine, FaultOutput

            lines = (FaultLine(name=one.name, systems=one.systems, what=one.summary) for one in faults.FAULTS)
            print_json(FaultOutput(faults=tuple(lines)))
        else:
            for one in faults.FAULTS:
                click.echo(f"{one.name:<22} {', '.join(one.systems):<9} {one.summary}")
        if not listing:
            raise click.UsageError("name at least one fault, or `all`")
        return
    grown = faults.plant(lab, faults.named(names), count)
    if as_json:
        from reconcile.cli.outputs import FaultOutput

        print_json(FaultOutput(differences=grown))


@lab.command()
@folder
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "jsonl"]),
    help="Default: a table on a terminal, else JSON lines.",
)
@options.as_json
def truth(lab: Lab, form: str | None, as_json: bool) -> None:
    """Show what the faults changed."""
    from reconcile.lab.truth import read

    rows = read(lab.truth)
    if as_json:
        from reconcile.cli.outputs import TruthOutput

        print_json(TruthOutput(truth=rows))
    elif (form or ("table" if sys.stdout.isatty() else "jsonl")) == "jsonl":
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
    else:
        show_truth(rows)


def _print_status(found: dict[str, Any]) -> None:
    from reconcile.cli.outputs import LabOutput

    print_json(LabOutput(**found))


def show_truth(rows: list[dict[str, Any]]) -> None:
    """Print the truth as a table, a row for each kind of difference; a narrow terminal gets fewer columns."""
    out = console()
    columns = [name for name, least in _TRUTH_COLUMNS.items() if out.width >= least]
    kinds = Counter(tuple(_cell(row[name]) for name in columns) for row in rows)
    shown = table("ids", *columns, right=("ids",))
    for kind, count in kinds.items():
        shown.add_row(str(count), *kind)
    out.print(f"The truth: {len(rows)} differences")
    out.print(shown)


def _cell(value: object) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value or "-")


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda done: progress.update(bar, completed=done)
