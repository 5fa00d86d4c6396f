"""`reconcile contract`: is a contract right, before anything is read?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from reconcile.cli import options
from reconcile.cli.output import print_json
from reconcile.contract.model import Contract, json_schema, load_contract
from reconcile.errors import InvalidFileError, Problem
from reconcile.files import committed
from reconcile.settings.settings import Settings, UnknownConnectionError, load_settings

COULD_NOT_TELL = 2
EXAMPLES = ("user-account", "user-balance", "user-activity")


@click.group()
def contract() -> None:
    """Check contracts, and print their JSON Schema and examples."""


@contract.command()
@click.argument("file", type=click.Path(path_type=Path))
@options.config
@options.workspace
@options.as_json
@click.pass_context
def check(context: click.Context, file: Path, config: Path | None, workspace: str | None, as_json: bool) -> None:
    """Check the contract FILE. Exits 0 if it is valid, also with warnings, and 2 if not.

    With --config, also check that the settings have the connections that it names.
    """
    settings = None if config is None else load_settings(config, workspace)
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    summary = ""
    try:
        checked = load_contract(file)
    except InvalidFileError as error:
        problems = error.problems
    else:
        summary = _summary(checked)
        warnings = tuple(checked.warnings())
        if settings is not None:
            problems = tuple(_unknown(checked, settings))
    if as_json:
        from reconcile.cli.outputs import ContractCheck

        print_json(ContractCheck(file=str(file), valid=not problems, problems=problems, warnings=warnings))
        context.exit(COULD_NOT_TELL if problems else 0)
    for warning in warnings:
        click.echo(f"{file}: warning: {warning}", err=True)
    if problems:
        for problem in problems:
            where = f" (line {problem.line})" if problem.line else ""
            click.echo(f"{file}: {problem}{where}", err=True)
        context.exit(COULD_NOT_TELL)
    click.echo(f"{file}: {summary}")


@contract.command()
def schema() -> None:
    """Print the JSON Schema of contracts."""
    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@contract.command()
@click.argument("name", type=click.Choice(EXAMPLES), default=EXAMPLES[0])
def example(name: str) -> None:
    """Print an example contract of the lab's world; user-account by default."""
    click.echo(committed("contracts", f"{name}.yaml").read_text("utf-8"), nl=False)


def _unknown(checked: Contract, settings: Settings) -> Iterator[Problem]:
    named = [("source.store", checked.source.store), ("topic.cluster", checked.topic.cluster)]
    if checked.topic.value_schema is not None and checked.topic.value_schema.registry is not None:
        named.append(("topic.schema.registry", checked.topic.value_schema.registry))
    named += [(f"consumers[{number}].store", each.store) for number, each in enumerate(checked.consumers)]
    for path, name in named:
        try:
            settings.connection(name)
        except UnknownConnectionError as error:
            yield Problem(path, str(error))


def _summary(checked: Contract) -> str:
    consumers = ", ".join(consumer.name for consumer in checked.consumers)
    return f"ok: {checked.aggregate} through topic {checked.topic.name} to {consumers}"
