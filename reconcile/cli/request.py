"""`reconcile request`: asks for a run that Airflow does."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from click.core import ParameterSource

from reconcile.cli import options
from reconcile.cli.output import print_json, say
from reconcile.cli.outputs import RequestOutput
from reconcile.contract.model import load_contract
from reconcile.errors import RefusedError, UnreachableError
from reconcile.pipeline.job import ids_of
from reconcile.settings.settings import Settings

if TYPE_CHECKING:
    from reconcile.pipeline.requests import RequestRecord


@click.command()
@options.contract_file
@options.ids
@options.ids_file
@click.option("--mode", type=click.Choice(["auto", "digest", "full"]), default="auto", show_default=True)
@click.option("--apply", is_flag=True, help="Also emit corrections once they are approved.")
@click.option("--request-id", help="The same id asks only once. Default: a new id.")
@click.option("--again", is_flag=True, help="Request --request-id again, because its DAG run is gone.")
@options.settings
@options.as_json
@click.pass_context
def request(
    context: click.Context,
    contract: Path,
    ids: tuple[str, ...],
    ids_file: Path | None,
    mode: Literal["auto", "digest", "full"],
    apply: bool,
    request_id: str | None,
    again: bool,
    read_settings: options.ReadSettings,
    as_json: bool,
) -> None:
    """Ask Airflow to run CONTRACT. The control store keeps the request, and a record on a topic wakes Airflow."""
    from reconcile.control.store import open_control
    from reconcile.pipeline.approval import os_user
    from reconcile.pipeline.requests import TOPIC, RequestRecord, given_back, keep, read

    given = context.get_parameter_source("mode") is not ParameterSource.DEFAULT
    if again and (request_id is None or ids or ids_file or apply or given):
        raise click.UsageError("--again takes --request-id alone: it asks for what was asked then")
    cluster = load_contract(contract).topic.cluster
    settings = read_settings()
    with open_control(settings) as control:
        if again and request_id is not None:
            wanted = given_back(control, request_id, contract.stem)
        else:
            given_id, wanted_ids = request_id or str(uuid.uuid4()), ids_of(ids, ids_file) or ()
            wanted = read(RequestRecord(given_id, contract.stem, wanted_ids, mode, apply).value())
            keep(control, wanted, settings.requests, os_user())
    problem = _sent(settings, cluster, wanted)
    if as_json:
        print_json(RequestOutput(request_id=wanted.id, contract=wanted.contract, topic=TOPIC, sent=problem is None))
    else:
        click.echo(wanted.id)
    if problem is not None:
        say(f"reconcile: {problem}; the request is kept, and Airflow finds it when it next looks")


def _sent(settings: Settings, cluster: str, wanted: RequestRecord) -> str | None:
    """Send the wake-up; give why it could not be sent."""
    from reconcile.pipeline.requests import send

    try:
        send(settings.cluster(cluster).resolve(), wanted)
    except (RefusedError, UnreachableError) as error:
        return str(error)
    return None
