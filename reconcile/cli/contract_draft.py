"""`reconcile contract draft`: a first contract, guessed from two tables, a topic and a group."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
from pydantic import SecretStr, ValidationError

from reconcile.cli import options
from reconcile.contract.terms import TABLE_NAME
from reconcile.errors import RefusedError
from reconcile.settings.connections import ClusterConnection, Connection, Registry, Store
from reconcile.settings.references import Given, Reference, reference
from reconcile.settings.settings import Settings, load_settings
from reconcile.settings.urls import MariaUrl, PostgresUrl

SIDE = "CONNECTION:TABLE"
COPY = "CONNECTION:TABLE@GROUP"

_SIDE = re.compile(rf"(?P<place>.+):(?P<table>{TABLE_NAME})", re.DOTALL)
_COPY = re.compile(rf"{_SIDE.pattern}@(?P<group>[^\x00-\x1f]+)", re.DOTALL)
_BOOTSTRAP = re.compile(r"[^\s/@]+:\d+(,[^\s/@]+:\d+)*")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/]+/[^:]*", re.DOTALL)


@dataclass
class _Connections:
    """The connections that a contract gets: those of the settings, and those that were given by their addresses."""

    settings: Settings
    given: dict[str, tuple[str, Connection, dict[str, str]]] = field(default_factory=dict)
    """By what was given: the name, the connection, and what the settings are to say of it."""
    unset: dict[str, str] = field(default_factory=dict)
    """The variables that have to be set, each with the option that told the value."""

    def store(self, place: str, option: str) -> tuple[str, Store]:
        """Choose the store that an option names, or has the URL of."""
        if place in self.settings.connections or not (_URL.fullmatch(place) or _referred(place, option)):
            connection = self.settings.connection(place)
            if not isinstance(connection, Store):
                raise RefusedError(f"the connection {place} is no database")
            return place, connection
        if place not in self.given:
            self._give(place, option)
        name, connection, _ = self.given[place]
        assert isinstance(connection, Store)
        return name, connection

    def cluster(self, place: str | None) -> tuple[str, ClusterConnection]:
        """Choose the cluster: as given, or the only one of the settings."""
        if place is None:
            named = [name for name, each in self.settings.connections.items() if isinstance(each, ClusterConnection)]
            if len(named) != 1:
                which = f"one of {', '.join(named)}" if named else "HOST:PORT"
                raise click.UsageError(f"say with --cluster where the topic is: {which}")
            (place,) = named
        if place in self.settings.connections or not _BOOTSTRAP.fullmatch(place):
            return place, self.settings.cluster(place)
        connection = ClusterConnection.model_validate({"bootstrap": place})
        name = self._name("main")
        self.given[place] = name, connection, {"bootstrap": place}
        return name, connection

    def registry(self, place: str | None) -> tuple[str | None, Registry | None]:
        """Choose the schema registry: as given, or the only one of the settings; none where there is none."""
        if place is None:
            named = {n: each for n, each in self.settings.connections.items() if isinstance(each, Registry)}
            return next(iter(named.items())) if len(named) == 1 else (None, None)
        if not place.startswith(("http://", "https://")):
            connection = self.settings.connection(place)
            if not isinstance(connection, Registry):
                raise RefusedError(f"the connection {place} is no schema registry")
            return place, connection
        connection = Registry(registry=Given(SecretStr(place), "--registry"))
        name = self._name("schemas")
        variable = _variable(name)
        self.unset[variable] = "--registry"
        self.given[place] = name, connection, {"registry": f"env:{variable}"}
        return name, connection

    def written(self) -> dict[str, Mapping[str, str]]:
        """List what the settings are to say."""
        return {name: keys for name, _, keys in self.given.values()}

    def _give(self, place: str, option: str) -> None:
        connection = Store(url=_referred(place, option) or Given(SecretStr(place), option))
        address = connection.resolve()
        named = address.database if isinstance(address, (PostgresUrl, MariaUrl)) else "store"
        name = self._name(re.sub(r"[^a-z0-9]+", "-", named.lower()).strip("-") + "-db")
        url = place
        try:
            Store.model_validate({"url": place})
        except ValidationError:  # it holds a password
            variable = _variable(name)
            self.unset[variable] = option
            url = f"env:{variable}"
        self.given[place] = name, connection, {"url": url}

    def _name(self, wanted: str) -> str:
        taken = {*self.settings.connections, *(name for name, *_ in self.given.values())}
        return next(each for each in (wanted, *(f"{wanted}-{n}" for n in range(2, 1000))) if each not in taken)


@click.command()
@click.option("--source", required=True, metavar=SIDE, help="The table that owns the data.")
@click.option("--topic", required=True, help="The topic that its changes are published to.")
@click.option(
    "--copy", "copies", required=True, multiple=True, metavar=COPY, help="A copy, and the group that keeps it; repeat."
)
@click.option(
    "--cluster",
    "--bootstrap",
    "cluster",
    metavar="CONNECTION|HOST:PORT",
    help="Where the topic is. Default: the only cluster of the settings.",
)
@click.option("--registry", metavar="CONNECTION|URL", help="The schema registry, if one has the topic's schemas.")
@click.option("--output", type=click.Path(path_type=Path), help="Write the contract into this new file.")
@click.option(
    "--settings", "settings_file", type=click.Path(path_type=Path), help="Write connections into this new file."
)
@options.config
def draft(
    source: str,
    topic: str,
    copies: tuple[str, ...],
    cluster: str | None,
    registry: str | None,
    output: Path | None,
    settings_file: Path | None,
    config: Path | None,
) -> None:
    """Draft a contract from samples of two tables, a topic and a group; each guess has its evidence behind it.

    CONNECTION is a name in the settings, or the address itself: postgresql://user@host:5432/database, or
    env:VARIABLE where the variable holds it. Nothing is changed, no file is overwritten, and no value of the data is
    printed.

    \b
    reconcile contract draft --topic product \\
      --source shop-db:product \\
      --copy search-db:search_document@search-indexer \\
      --copy orders-db:ordered_product@orders \\
      --output product.yaml

    \b
    reconcile contract draft --topic product --cluster localhost:9092 \\
      --source env:SHOP_URL:product \\
      --copy postgresql://me@localhost/search:search_document@search-indexer \\
      --output product.yaml --settings reconcile.yaml
    """
    from reconcile.draft.guessing import guess
    from reconcile.draft.reading import Side, Wanted, sample
    from reconcile.draft.writing import contract_text, settings_text

    connections = _Connections(load_settings(config))

    def side(place: str, table: str, option: str) -> Side:
        return Side(*connections.store(place, option), table)

    named = _parsed(_SIDE, source, "--source", SIDE)
    kept = [_parsed(_COPY, each, "--copy", COPY) for each in copies]
    for file in (output, settings_file):
        if file is not None and file.exists():
            raise RefusedError(f"{file} is there already, and nothing is overwritten: name another file, or remove it")
    if output is not None and output == settings_file:
        raise click.UsageError("--output and --settings name one file")
    name, kafka = connections.cluster(cluster)
    wanted = Wanted(
        side(named["place"], named["table"], "--source"),
        name,
        kafka,
        topic,
        tuple((side(each["place"], each["table"], "--copy"), each["group"]) for each in kept),
        *connections.registry(registry),
    )
    if settings_file is not None and not connections.given:
        raise click.UsageError("--settings is for addresses that were given: all of these are in the settings already")
    found = guess(sample(wanted))
    for copy in found.copies:
        if not copy.fields:
            said = "".join(f"\n  {line}" for each in copy.unmatched for line in each)
            raise RefusedError(
                f"no field of {copy.sample.rows.table.name} agrees, so there is nothing to compare{said}"
            )
    text = contract_text(found)
    written = settings_text(connections.written()) if connections.given else ""
    if settings_file is not None:
        _write(settings_file, written)
    elif written:
        text += "# The settings, reconcile.yaml, need these connections:\n"
        text += "".join(f"#   {line}\n" for line in written.splitlines())
    for note in found.notes:
        click.echo(f"look here: {note}", err=True)
    for variable, option in connections.unset.items():
        click.echo(f"{variable} is to hold the URL given by {option}, which a file should not: export it", err=True)
    if output is None:
        click.echo(text, nl=False)
        return
    _write(output, text)
    fields, at = sum(len(each.fields) for each in found.copies), settings_file or config
    click.echo(
        f"{output}: a draft with {fields} field{'s' * (fields != 1)}; look at its comments, then say"
        f" `reconcile contract check {output}{f' --config {at}' if at else ''}`"
    )


def _referred(place: str, option: str) -> Reference | None:
    try:
        return reference(place, "url", Path())
    except ValueError as error:
        raise RefusedError(f"{option} {error}") from None


def _parsed(pattern: re.Pattern[str], text: str, option: str, form: str) -> Mapping[str, str]:
    match = pattern.fullmatch(text)
    # What was given is not repeated: it may hold a password. With a URL that names no table, one was taken from it.
    if match is None or ("://" in match["place"] and not _URL.fullmatch(match["place"])):
        raise click.UsageError(f"{option} is not of the form {form}: the table stands behind the last colon")
    return match.groupdict()


def _variable(name: str) -> str:
    return f"{re.sub(r'[^A-Z0-9]+', '_', name.upper())}_URL"


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise RefusedError(f"{file} cannot be written: {error.strerror}") from None
