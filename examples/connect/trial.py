"""The trial of an example: faults planted, audited, repaired, and compared with what should be; and its commands."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import click
from rich.console import Console
from rich.table import Table

from examples.connect.world import World
from reconcile.errors import ReconcileError
from reconcile.lab import process
from reconcile.lab.folder import Ports, write_atomically
from reconcile.lab.services.database import connected

_PATIENCE = 120
_UNTOLD = 2
_INTERRUPTED = 130
W = TypeVar("W", bound=World)
_PORT = click.IntRange(1, 65535)

Mended = Literal["correction", "itself", "nobody"]
"""By what an aggregate that differs is mended: by a correction, as its pipeline goes on, or not by this trial."""


@dataclass(frozen=True)
class Planted:
    """One aggregate that differs, and why."""

    fault: str
    id: str
    difference: str
    cause: str
    fields: tuple[str, ...] = ()
    mended: Mended = "correction"


class Pipeline(Protocol):
    """What a trial needs of a pipeline: a source, its topic, and a copy."""

    @property
    def world(self) -> World:
        """Where its servers are."""

    @property
    def variant(self) -> str:
        """Its name."""

    @property
    def contract(self) -> Path:
        """The committed contract."""

    @property
    def databases(self) -> tuple[str, str]:
        """The databases of source and copy."""

    @property
    def rows(self) -> str:
        """SQL of all rows, the same in both databases; the id comes first."""

    def provide(self) -> None:
        """Create databases, tables and topics."""

    def seed(self) -> None:
        """Fill the source, start the pipeline, and wait for the copy."""

    def plant(self) -> list[Planted]:
        """Plant every fault."""

    def go_on(self) -> None:
        """Let what is behind go on, and do by hand what a person has to do."""


@dataclass(frozen=True)
class Example(Generic[W]):
    """An example, as its commands know it."""

    about: str
    world: W
    variants: tuple[str, ...]
    pipeline: Callable[[W, str], Pipeline]
    settings: Path


def run_example(example: Example[W]) -> None:
    """Run the commands of an example; exits 2 if something did not answer."""
    try:
        _program(example)()
    except ReconcileError as error:
        click.echo(error, err=True)
        sys.exit(_UNTOLD)


def _program(example: Example[W]) -> click.Group:
    """Build the commands."""

    def of_world(command: Callable[..., None]) -> Callable[..., None]:
        """Add where the world is."""
        for option, port in (
            ("--postgres-port", example.world.ports.postgres),
            ("--kafka-port", example.world.ports.kafka),
            ("--controller-port", example.world.ports.controller),
            ("--connect-port", example.world.connect_port),
        ):
            command = click.option(option, type=_PORT, default=port, show_default=True)(command)
        folder = click.Path(file_okay=False, path_type=Path)
        return click.option("--dir", "folder", type=folder, default=example.world.folder, show_default=True)(command)

    def opened(folder: Path, postgres_port: int, kafka_port: int, controller_port: int, connect_port: int) -> W:
        ports = Ports(postgres=postgres_port, kafka=kafka_port, controller=controller_port)
        return replace(example.world, folder=folder, ports=ports, connect_port=connect_port)

    def pipelines(world: W, variants: Sequence[str], *, plant: bool) -> list[tuple[Pipeline, list[Planted]]]:
        found = []
        for variant in variants:
            pipeline = example.pipeline(world, variant)
            pipeline.provide()
            pipeline.seed()
            found.append((pipeline, pipeline.plant() if plant else []))
        return found

    @click.group(invoke_without_command=True, help=f"{example.about}; without a command, all of `run`.")
    @click.pass_context
    def main(context: click.Context) -> None:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
        if context.invoked_subcommand is None:
            context.invoke(run)

    @main.command()
    @of_world
    @click.option(
        "--variant", "variants", type=click.Choice(example.variants), multiple=True, default=example.variants,
        show_default=True,
    )  # fmt: skip
    def run(variants: Sequence[str], **where: Any) -> None:
        """Bring the world up, plant the faults, audit, repair, verify, and take it down.

        Exits 0 if each fault was found and named, nothing else was found, and all that can be repaired was; 1 if not;
        2 if something did not answer.
        """
        world = opened(**where)
        try:
            world.up()
            tried = pipelines(world, variants, plant=True)
            wrong = [line for each in tried for line in _tried(*each, example.settings)]
        except KeyboardInterrupt:
            sys.exit(_INTERRUPTED)
        finally:
            world.down()
        for line in wrong:
            click.echo(line)
        click.echo("all is as it should be" if not wrong else f"{len(wrong)} differ from what should be")
        sys.exit(1 if wrong else 0)

    @main.command()
    @of_world
    @click.option("--plant/--no-plant", default=True, show_default=True, help="Plant the faults.")
    def up(plant: bool, **where: Any) -> None:
        """Bring the world up and leave it running, for trials."""
        world = opened(**where)
        try:
            world.up()
            for pipeline, planted in pipelines(world, example.variants, plant=plant):
                lines = "".join(json.dumps(asdict(each)) + "\n" for each in planted)
                write_atomically(world.folder / f"truth-{pipeline.variant}.jsonl", lines)
        except BaseException:
            world.down()
            raise
        exports = "".join(f"export {name}='{value}'\n" for name, value in world.environment().items())
        write_atomically(world.folder / "environment", exports)
        click.echo(f"up: `. {world.folder / 'environment'}` gives {example.settings} its connections")

    @main.command()
    @of_world
    def down(**where: Any) -> None:
        """Stop the servers of `up`, and remove what they kept."""
        opened(**where).down()

    return main


def reconcile(
    settings: Path,
    *arguments: str,
    environment: Mapping[str, str],
    workspace: Path | None = None,
    stdout: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command line as people do; it prints for them, unless `stdout` catches that."""
    if stdout is None:
        click.echo(f"$ reconcile {' '.join(arguments)}")
    where = ["--config", str(settings), *(() if workspace is None else ("--workspace", str(workspace)))]
    return subprocess.run(
        [sys.executable, "-m", "reconcile.cli", *arguments, *where],
        env={**os.environ, **environment},
        stdout=stdout,
        text=True,
        check=False,
    )


def _tried(pipeline: Pipeline, planted: Sequence[Planted], settings: Path) -> list[str]:
    """Audit, let the pipeline go on, repair; list what is other than it should be."""

    def audited(*arguments: str, stdout: int | None = None) -> str:
        world = pipeline.world
        environment, workspace = world.environment(), world.runs
        done = reconcile(settings, *arguments, environment=environment, workspace=workspace, stdout=stdout)
        return done.stdout or ""

    truth = {each.id: each for each in planted}
    wrong = [f"{id_}: planted or different, not both" for id_ in sorted(truth.keys() ^ _differing(pipeline))]
    audit, repair = f"{pipeline.variant}-audit", f"{pipeline.variant}-repair"
    audited("run", str(pipeline.contract), "--run-id", audit)
    said = audited("findings", audit, "--format", "jsonl", stdout=subprocess.PIPE)
    wrong += _compared(truth, [json.loads(line) for line in said.splitlines()])

    pipeline.go_on()
    behind = {each.id for each in planted if each.mended == "itself"}
    process.wait_until(
        lambda: not behind & _differing(pipeline), f"the copy of {pipeline.variant} is behind", _PATIENCE, every=0.5
    )
    audited("run", str(pipeline.contract), "--run-id", repair, "--apply", "--yes")
    left = _differing(pipeline)
    for each in planted:
        if each.mended != "nobody" and each.id in left:
            wrong.append(f"{each.id} ({each.fault}): not repaired")
        elif each.mended == "nobody" and each.id not in left:
            wrong.append(f"{each.id} ({each.fault}): repaired, and only its owner may do that")
    wrong += [f"{id_}: different since the repair" for id_ in sorted(left - truth.keys())]
    return [f"{pipeline.variant}: {line}" for line in wrong]


def _compared(truth: Mapping[str, Planted], findings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Show what was planted beside what was found; list where they differ."""
    found = {each["aggregate_id"]: each for each in findings}
    table = Table(
        "fault", "difference", "cause", "planted", "found", "named", title="What was found, against the truth"
    )
    groups: dict[tuple[str, str, str], list[Planted]] = {}
    for each in truth.values():
        groups.setdefault((each.fault, each.difference, each.cause), []).append(each)
    wrong = []
    for (fault, difference, cause), members in groups.items():
        seen = [(each, _shape(found[each.id])) for each in members if each.id in found]
        named = [each for each, shape in seen if shape == (difference, cause, each.fields)]
        table.add_row(fault, difference, cause, *map(str, (len(members), len(seen), len(named))))
        for each in members:
            if each not in named:
                shape = _shape(found[each.id]) if each.id in found else "nothing"
                wrong.append(f"{each.id} ({fault}): expected {(difference, cause, each.fields)}, found {shape}")
    Console(width=110).print(table)
    return wrong + [f"{id_}: found {_shape(found[id_])}, and nothing planted" for id_ in found.keys() - truth.keys()]


def _shape(finding: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    changed = finding["difference"] == "changed"
    fields = sorted(each["name"] for each in finding["fields"]) if changed else []
    return finding["difference"], finding["cause"], tuple(fields)


def _differing(pipeline: Pipeline) -> set[str]:
    """Compare source and copy by hand."""
    rows = []
    for database in pipeline.databases:
        with connected(pipeline.world.lab.url(database, "postgres")) as cursor:
            cursor.execute(pipeline.rows)
            rows.append(set(cursor.fetchall()))
    return {str(row[0]) for row in rows[0] ^ rows[1]}
