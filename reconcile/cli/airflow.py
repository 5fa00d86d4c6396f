"""`reconcile airflow`: an Airflow on the lab's world, to see a night in its UI."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconcile.cli.lab import folder, ports_of, server_ports
from reconcile.cli.output import say

if TYPE_CHECKING:
    from reconcile.lab.airflow.standalone import Standalone
    from reconcile.lab.folder import Lab

_PORT = 18080
_HOME = Path(".airflow")

_home = click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    default=_HOME,
    show_default=True,
    help="Airflow's folder.",
)


@click.group()
def airflow() -> None:
    """Run an Airflow that is set up for the lab's world."""


@airflow.command()
@_home
@folder
@click.option("--port", type=click.IntRange(1, 65533), default=_PORT, show_default=True, help="First of three.")
@server_ports
@click.option("--master", default="local[2]", show_default=True, help="Where Spark runs.")
def up(home: Path, lab: Lab, port: int, ports: Mapping[str, int], master: str) -> None:
    """Start the lab if it is not running, start a standalone Airflow, and start a nightly run.

    The run waits for an approval: Airflow's UI asks for it.
    """
    from reconcile.airflow.installation import wiring
    from reconcile.lab.airflow import world as lab_airflow

    made = _standalone(home, port)
    night = lab_airflow.up(lab, made, wiring, master, ports_of(lab, ports))
    say(f"the run {night} of nightly has begun; `reconcile airflow down` ends Airflow")
    say(f"user admin, password in {home / 'passwords.json'}")
    click.echo(f"{made.url}/dags/nightly")


@airflow.command()
@_home
def down(home: Path) -> None:
    """Stop Airflow and all that `up` started with it. The data stay."""
    from reconcile.lab.airflow import world as lab_airflow

    lab_airflow.down(_standalone(home, _PORT))
    say("down")


def _standalone(home: Path, port: int) -> Standalone:
    import airflow  # noqa: F401 - Airflow itself starts as a process

    from reconcile.lab.airflow.standalone import Standalone

    return Standalone(home, port)
