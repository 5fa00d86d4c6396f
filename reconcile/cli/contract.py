"""`reconcile contract`: is a contract right, before anything is read?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from reconcile.cli import options
from reconcile.cli.ci import Ci, Outcome, of_error, told
from reconcile.cli.contract_draft import draft
from reconcile.cli.output import print_json
from reconcile.config.validation import Contradiction
from reconcile.config.yamlfile import KeyPath
from reconcile.contract.model import Contract, StashTable, examine_contract, json_schema, load_contract
from reconcile.contract.terms import Rows
from reconcile.domain.sql_calls import JDBC, SPARK, Calls, require_calls
from reconcile.errors import InvalidFileError, Problem, SecretError
from reconcile.files import committed
from reconcile.pipeline import grants as pipeline_grants
from reconcile.pipeline.grants import Purpose
from reconcile.settings.connections import Connection, Folder, JdbcUrl, Lake, PluginUrl, Store
from reconcile.settings.settings import Settings, UnknownConnectionError, load_settings
from reconcile.settings.urls import PostgresUrl

COULD_NOT_TELL = 2
EXAMPLES = ("user-account", "user-balance", "user-activity")


@click.group()
def contract() -> None:
    """Draft and check contracts, and print their JSON Schema and examples."""


contract.add_command(draft)


@contract.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.config
@options.workspace
@options.as_json
@told
@click.pass_context
def check(
    context: click.Context, files: tuple[Path, ...], config: Path | None, workspace: str | None, as_json: bool, ci: Ci
) -> None:
    """Check the contracts in each FILE. Exits 0 if they are valid, also with warnings, and 2 if not.

    With --config, also check that the settings have the connections that it names, and that its SQL calls only what
    Spark, or a database behind JDBC, may be asked for.
    """
    if as_json and len(files) > 1:
        raise click.UsageError("--json is about one FILE: call it once for each")
    settings = None if config is None else load_settings(config, workspace)
    found = [_Checked.of(file, settings) for file in files]
    ci.tell([outcome for each in found for outcome in each.outcomes()])
    for each in found:
        if as_json:
            from reconcile.cli.outputs import ContractCheck

            file, problems = str(each.file), each.problems
            print_json(ContractCheck(file=file, valid=not problems, problems=problems, warnings=each.warnings))
        else:
            each.show()
    context.exit(COULD_NOT_TELL if any(each.problems for each in found) else 0)


@contract.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--for",
    "purposes",
    type=click.Choice([each.value for each in Purpose]),
    multiple=True,
    default=(Purpose.AUDIT.value,),
    show_default=True,
    help="What the rights are for; may be given several times.",
)
@options.consumers
@click.option("--role", default="reconcile_reader", show_default=True, help="Who gets the rights in Postgres.")
@click.option("--principal", default="User:reconcile", show_default=True, help="Who gets the rights in Kafka.")
@click.option("--store", help="Only the SQL for this store.")
@click.option("--kafka", is_flag=True, help="Only the lines for Kafka.")
@options.config
@options.workspace
@options.as_json
def grants(
    file: Path,
    purposes: tuple[str, ...],
    consumers: tuple[str, ...],
    role: str,
    principal: str,
    store: str | None,
    kafka: bool,
    config: Path | None,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Print the rights that the contract FILE needs: SQL for each Postgres, and calls of kafka-acls.

    Nothing is connected. `apply` is beside `audit`: who emits corrections needs both. With --config, stores that are
    no Postgres are said.
    """
    from reconcile.consumer.declared import find_consumer

    checked = load_contract(file)
    for each in consumers:
        find_consumer(checked, each, file)
    wanted = [Purpose(each) for each in dict.fromkeys(purposes)]
    statements = {each: pipeline_grants.store_sql(checked, each, role, consumers) for each in wanted}
    calls = {
        each: [one.command(principal) for one in pipeline_grants.kafka_grants(checked, each, consumers)]
        for each in wanted
    }
    others = {} if config is None else _no_postgres(load_settings(config, workspace), checked)
    if as_json:
        from reconcile.cli.outputs import ContractGrants

        print_json(ContractGrants(sql=statements, kafka=calls))
        return
    for purpose in wanted:
        for name, text in statements[purpose].items():
            if not kafka and store in (None, name):
                click.echo(f"-- {purpose}: in the database of {name}, as the owner of its tables{others.get(name, '')}")
                if purpose is Purpose.AUDIT:
                    click.echo(f"-- once, by who may: alter role {role} set default_transaction_read_only = on;")
                click.echo(f"{text}\n")
    for purpose in wanted:
        if store is None:
            where = "KAFKA holds --bootstrap-server HOST:PORT --command-config FILE"
            click.echo(f"# {purpose}: in the cluster {checked.topic.cluster}; {where}")
            click.echo("\n".join([*calls[purpose], ""]))


@contract.command()
def schema() -> None:
    """Print the JSON Schema of contracts."""
    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@contract.command()
@click.argument("name", type=click.Choice(EXAMPLES), default=EXAMPLES[0])
def example(name: str) -> None:
    """Print an example contract of the lab's world; user-account by default."""
    click.echo(committed("contracts", f"{name}.yaml").read_text("utf-8"), nl=False)


@dataclass(frozen=True)
class _Checked:
    """What came of checking one file."""

    file: Path
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()
    summary: str = ""

    @classmethod
    def of(cls, file: Path, settings: Settings | None) -> _Checked:
        try:
            found = examine_contract(file)
        except InvalidFileError as error:
            return cls(file, error.problems)
        checked, problems = found.model, found.problems
        if settings is not None and checked is not None:
            problems = found.with_contradictions((*_unknown(checked, settings), *_called(checked, settings)))
        if problems or checked is None:
            return cls(file, problems)
        return cls(file, (), tuple(checked.warnings()), _summary(checked))

    def show(self) -> None:
        for warning in self.warnings:
            click.echo(f"{self.file}: warning: {warning}", err=True)
        for problem in self.problems:
            where = f" (line {problem.line})" if problem.line else ""
            click.echo(f"{self.file}: {problem}{where}", err=True)
        if not self.problems:
            click.echo(f"{self.file}: {self.summary}")

    def outcomes(self) -> Iterator[Outcome]:
        file = str(self.file)
        if self.problems:
            yield from of_error(InvalidFileError(file, self.problems), file)
        else:
            yield Outcome(file, "the contract", "ok", self.summary)
        for each in self.warnings:
            yield Outcome(file, each.path or "the file", "warning", str(each), each.line)


def _unknown(checked: Contract, settings: Settings) -> Iterator[Contradiction]:
    named: list[tuple[KeyPath, str]] = [
        (("source", "store"), checked.source.store),
        (("topic", "cluster"), checked.topic.cluster),
    ]
    if checked.topic.value_schema is not None and checked.topic.value_schema.registry is not None:
        named.append((("topic", "schema", "registry"), checked.topic.value_schema.registry))
    named += [(("consumers", number, "store"), each.store) for number, each in enumerate(checked.consumers)]
    for path, name in named:
        try:
            settings.connection(name)
        except UnknownConnectionError as error:
            yield path, str(error)


def _no_postgres(settings: Settings, checked: Contract) -> dict[str, str]:
    """Say of which stores the statements are a list to go by, and not to be run."""
    addresses = {each: settings.connection(each) for each in checked.stores}
    return {
        name: "; it is no Postgres: grant the same there in its own words"
        for name, each in addresses.items()
        if not (isinstance(each, Store) and isinstance(each.resolve(), PostgresUrl))
    }


def _called(checked: Contract, settings: Settings) -> Iterator[Contradiction]:
    """Find SQL that the kind of its store does not take; what kind that is stays open where a secret is not here."""
    from reconcile.gather.stores.contract_check import consumer_parts, source_parts

    source, outbox = checked.source, checked.source.outbox
    of_source = [(part.path, part.sql) for parts in source_parts(checked) for part in parts]
    of_source.append((("source", "outbox", "published"), outbox.published if outbox else ""))
    sides: list[tuple[KeyPath, Rows, list[tuple[KeyPath, str]]]] = [(("source",), source, of_source)]
    for number, consumer in enumerate(checked.consumers):
        here: KeyPath = ("consumers", number)
        of_copy = [(part.path, part.sql) for parts in consumer_parts(checked, number) for part in parts]
        if isinstance(stash := consumer.failure.stash, StashTable):
            of_copy.append(((*here, "failure", "stash", "resolved"), stash.resolved or ""))
        sides.append((here, consumer, of_copy))
    for here, rows, texts in sides:
        connection = settings.connections.get(rows.store)
        if connection is None or (calls := _calls_of(connection)) is None:
            continue
        if calls is JDBC or isinstance(connection, Folder):  # another's query is no SQL
            texts.append(((*here, "query"), rows.query or ""))
        for path, text in texts:
            try:
                require_calls(text, calls, tables=calls is JDBC or path[-1] == "query")
            except ValueError as error:
                yield path, str(error)


def _calls_of(connection: Connection) -> Calls | None:
    if isinstance(connection, (Folder, Lake)):
        return SPARK
    if isinstance(connection, Store):
        with suppress(SecretError):
            return {JdbcUrl: JDBC, PluginUrl: SPARK}.get(type(connection.resolve()))
    return None


def _summary(checked: Contract) -> str:
    consumers = ", ".join(consumer.name for consumer in checked.consumers)
    return f"ok: {checked.aggregate} through topic {checked.topic.name} to {consumers}"
