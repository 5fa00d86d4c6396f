"""The options that many commands take."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from reconcile.settings.settings import DEFAULT_FILE, FILE_VARIABLE, Settings, load_settings

ReadSettings = Callable[[], Settings]


def config(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --config."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path),
        show_default=f"${FILE_VARIABLE}, or {DEFAULT_FILE}",
        help="The settings file, with the connections.",
    )(command)


def workspace(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --workspace."""
    return click.option("--workspace", help="Where runs are kept: a folder or a URI. Overrides --config.")(command)


def settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --config and --workspace; the command gets `read_settings`, which reads the settings that they name."""

    @config
    @workspace
    @wraps(command)
    def with_settings(*given: Any, config: Path | None, workspace: str | None, **more: Any) -> Any:
        return command(*given, read_settings=partial(load_settings, config, workspace), **more)

    return with_settings


def job(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a run that was begun; the command gets `opening`, with which its job is opened."""

    @run_id
    @click.option("--contract", type=click.Path(path_type=Path), help="The contract, if its file has moved.")
    @config
    @workspace
    @wraps(command)
    def with_job(
        *given: Any, run_id: str, contract: Path | None, config: Path | None, workspace: str | None, **more: Any
    ) -> Any:
        from reconcile.pipeline.job import job_of

        return command(*given, opening=job_of(run_id, contract, config, workspace), **more)

    return with_job


def as_json(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def consumers(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --consumer, which may be given several times."""
    words = "Only this consumer; may be given several times."
    return click.option("--consumer", "consumers", multiple=True, help=words)(command)


def of_consumer(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add CONTRACT, --consumer and the settings; the command gets `opening`, which builds the consumer of a handler."""

    @contract_file
    @click.option("--consumer", metavar="NAME", help="Which consumer, where the contract has several.")
    @settings
    @wraps(command)
    def with_consumer(
        *given: Any, contract: Path, consumer: str | None, read_settings: ReadSettings, **more: Any
    ) -> Any:
        return command(*given, opening=partial(_open_consumer, contract, consumer, read_settings), **more)

    return with_consumer


def _open_consumer(
    contract: Path, name: str | None, read_settings: ReadSettings, handler: Any = None, **changes: Any
) -> Any:
    from reconcile.consumer.consumer import Consumer
    from reconcile.contract.model import load_contract

    if name is None:
        names = [each.name for each in load_contract(contract).consumers]
        if len(names) > 1:
            raise click.UsageError(f"{contract} has several consumers: give one with --consumer: {', '.join(names)}")
        (name,) = names
    return Consumer.from_contract(contract, name, handler, settings=read_settings(), **changes)


def ids(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --id, which may be given several times."""
    words = "Only this aggregate; may be given several times."
    return click.option("--id", "ids", multiple=True, help=words)(command)


def ids_file(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --ids-file."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.option("--ids-file", type=file, help="A file with one id per line.")(command)


def contract_file(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument CONTRACT."""
    return click.argument("contract", metavar="CONTRACT", type=click.Path(path_type=Path))(command)


def new_run_id(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --run-id, which names a run before it begins."""
    return click.option("--run-id", help="The id of the new run. Default: made of the aggregate and the time.")(command)


def run_id(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument RUN_ID, which may be `last`, and --run, which is the same for scripts."""

    @click.argument("run_argument", metavar="RUN_ID|last", required=False)
    @click.option("--run", "run_option", metavar="RUN_ID", help="The same as RUN_ID.")
    @wraps(command)
    def with_run(*given: Any, run_argument: str | None, run_option: str | None, **more: Any) -> Any:
        named = run_argument or run_option
        if named is None or (run_argument and run_option):
            raise click.UsageError("name one run: RUN_ID, or last for the newest")
        return command(*given, run_id=named, **more)

    return with_run
