"""`reconcile contract`: is a contract right, before anything is read?"""

from __future__ import annotations

import json
from pathlib import Path

import click

from reconcile.cli.output import print_json
from reconcile.contract import Contract, json_schema, load_contract
from reconcile.errors import InvalidFileError, Problem

COULD_NOT_TELL = 2


@click.group()
def contract() -> None:
    """Check contracts, and help editors with them."""


@contract.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def check(context: click.Context, file: Path, as_json: bool) -> None:
    """Check the contract FILE by itself: exit 0 if it is right, 2 if not."""
    problems: tuple[Problem, ...] = ()
    summary = ""
    try:
        summary = _summary(load_contract(file))
    except InvalidFileError as error:
        problems = error.problems
    if as_json:
        found = [{"path": each.path, "line": each.line, "message": each.message} for each in problems]
        print_json({"file": str(file), "valid": not problems, "problems": found})
    elif problems:
        for problem in problems:
            where = f" (line {problem.line})" if problem.line else ""
            click.echo(f"{file}: {problem}{where}", err=True)
    else:
        click.echo(f"{file}: {summary}")
    if problems:
        context.exit(COULD_NOT_TELL)


@contract.command()
def schema() -> None:
    """Print the JSON Schema of contracts."""
    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


def _summary(checked: Contract) -> str:
    consumers = ", ".join(consumer.name for consumer in checked.consumers)
    return f"ok: {checked.aggregate} through topic {checked.topic.name} to {consumers}"
