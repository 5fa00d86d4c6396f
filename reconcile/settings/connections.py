"""The connections that settings name: databases, Kafka clusters, Parquet folders, lakes, schema registries."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar
from urllib.parse import unquote

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, SecretStr, Tag, ValidationInfo

from reconcile.config.durations import Duration
from reconcile.config.text import Text
from reconcile.config.validation import Contradiction, Model, suggestion
from reconcile.errors import RefusedError, SecretError
from reconcile.settings import urls
from reconcile.settings.references import FORMS, Given, Reference, Secret, reference
from reconcile.settings.urls import MARIADB_SCHEMES, MariaUrl, PostgresUrl

T = TypeVar("T")
_CREDENTIALS = re.compile(
    r"[^/:@]+[:/][^/:@]+@|//[^/]*@|(password|passwd|pwd|secret|token|passphrase)\w*=", re.IGNORECASE
)


SQLITE = "sqlite:///"
_WEB = ("https://", "http://")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_NO_WEB_SERVICE = "is no URL of a web service: https://..."
_NO_FILE = f"the URL names no file: {SQLITE}path"


@dataclass(frozen=True)
class SqliteFile:
    """A database in a file of this machine, for one machine's trials."""

    path: Path


@dataclass(frozen=True)
class JdbcUrl:
    """The address of a database that Spark reads with a JDBC driver."""

    url: SecretStr


@dataclass(frozen=True)
class PluginUrl:
    """The address of a store that a plug-in reads."""

    url: SecretStr
    scheme: str


@dataclass(frozen=True)
class LakePlace:
    """Where the tables of a lake are, secrets included."""

    format: Literal["iceberg", "delta"]
    warehouse: str = field(repr=False)
    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The properties of Iceberg's catalog; none where tables are found in the folders of the warehouse."""
    name: str | None = None
    """The catalog's own name, where it counts."""


@cache
def plugins() -> Mapping[str, EntryPoint]:
    """Look up the stores that installed packages bring, by the schemes of their URLs."""
    return {each.name: each for each in entry_points(group="reconcile.stores")}


def _plugin_scheme(url: str) -> str | None:
    scheme, separator, _ = url.partition("://")
    return scheme if separator and scheme in plugins() else None


def _dotted(name: str) -> str:
    """Write a field's name as librdkafka does: `ssl.ca.location`."""
    return name.replace("_", ".")


def _secret(check: Callable[[str], str | None] | None, wanted: str | None = None) -> Any:
    """Read a reference; a literal only where `check` is there and finds nothing wrong with it.

    Of an Airflow connection it takes what is `wanted`, else what has the field's name.
    """

    def read(value: Any, info: ValidationInfo) -> Secret:
        if isinstance(value, (Reference, Given)):
            return value
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"expected text or a reference: {FORMS}" if check else f"must be a reference: {FORMS}")
        found = reference(value, wanted or _dotted(info.field_name or ""), (info.context or {}).get("folder", Path()))
        if found is not None:
            return found
        problem = check(value) if check else f"is a secret, and must be a reference: {FORMS}"
        if problem:
            raise ValueError(problem)
        return Given(SecretStr(value))

    return BeforeValidator(read)


def _database(url: str) -> str | None:
    if url.startswith("jdbc:") or _plugin_scheme(url):
        return _without_credentials(url)
    if not url.startswith((urls.SCHEME, *MARIADB_SCHEMES)):
        own = ", ".join(f"{scheme}..." for scheme in (urls.SCHEME, *MARIADB_SCHEMES))
        brought = "".join(f", {scheme}://..." for scheme in sorted(plugins()))
        return f"is none of {own}, jdbc:...{brought}; nor is it a reference: {FORMS}"
    return _with_password(url)


def _with_password(url: str) -> str | None:
    try:
        parsed = _parse(url)
    except ValueError as error:
        return str(error)
    return None if parsed.password is None else f"holds a password, and must be a reference then: {FORMS}"


def _parse(url: str) -> PostgresUrl | MariaUrl:
    return urls.parse_mariadb(url) if url.startswith(MARIADB_SCHEMES) else urls.parse(url)


def _control_store(url: str) -> str | None:
    if url.startswith(SQLITE):
        return None if url.removeprefix(SQLITE) else _NO_FILE
    if not url.startswith(urls.SCHEME):
        return f"is neither {urls.SCHEME}... nor {SQLITE}...; nor is it a reference: {FORMS}"
    return _with_password(url)


def _without_credentials(text: str) -> str | None:
    return f"holds a password, and must be a reference then: {FORMS}" if _CREDENTIALS.search(text) else None


def _web_service(url: str) -> str | None:
    return _without_credentials(url) if url.startswith(_WEB) else f"{_NO_WEB_SERVICE}, nor a reference: {FORMS}"


_Setting = Annotated[Secret, _secret(lambda _: None)] | None
_SecretSetting = Annotated[Secret, _secret(None)] | None


_WORKING = "SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN, or a certificate by `security.protocol: SSL`"
_NOT_WORKING = {
    "GSSAPI": "is Kerberos, without which confluent-kafka's wheels are built",
    "OAUTHBEARER": "needs keys that say where tokens come from, which connections do not have",
}


class Security(Model):
    """How to reach a cluster or a registry safely, in librdkafka's words."""

    model_config = ConfigDict(alias_generator=_dotted)

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] | None = None
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"] | None = None
    sasl_username: _Setting = None
    sasl_password: _SecretSetting = None
    ssl_ca_location: _Setting = None
    ssl_ca_pem: _Setting = None
    ssl_certificate_location: _Setting = None
    ssl_certificate_pem: _Setting = None
    ssl_key_location: _Setting = None
    ssl_key_pem: _SecretSetting = None
    ssl_key_password: _SecretSetting = None
    ssl_endpoint_identification_algorithm: Literal["https", "none"] | None = None

    def contradictions(self) -> Iterator[Contradiction]:
        """List what does not fit together."""
        mechanism = self.sasl_mechanism
        if mechanism is None and (self.security_protocol or "").startswith("SASL"):
            yield ("security.protocol",), f"needs sasl.mechanism: {_WORKING}"
        if mechanism in _NOT_WORKING:
            yield ("sasl.mechanism",), f"{mechanism} {_NOT_WORKING[mechanism]}: use {_WORKING}"

    def resolve(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Resolve what is set, under librdkafka's names, secrets included; raise SecretError if one is missing."""
        resolved: dict[str, str] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is not None:
                text = value if isinstance(value, str) else value.resolve(environ).get_secret_value()
                resolved[_dotted(name)] = text
        return resolved


def _parsed(place: Secret, url: SecretStr, parse: Callable[[str], T]) -> T:
    try:
        return parse(url.get_secret_value())
    except ValueError as error:
        raise SecretError(f"{place!r}: {error}") from None


class ControlDatabase(Model):
    """The database that keeps runs, findings over time and corrections."""

    url: Annotated[Secret, _secret(_control_store)]
    """`postgresql://user:password@host:port/database`, a reference if there is a password in it; or `sqlite:///path`."""

    def resolve(self, environ: Mapping[str, str] = os.environ) -> PostgresUrl | SqliteFile:
        """Resolve the database's address; raise SecretError if it is missing or malformed."""
        secret = self.url.resolve(environ)
        if not secret.get_secret_value().startswith(SQLITE):
            return _parsed(self.url, secret, urls.parse)
        path = secret.get_secret_value().removeprefix(SQLITE)
        if not path:
            raise SecretError(f"{self.url!r}: {_NO_FILE}")
        return SqliteFile(Path(path))


SecretReference = Annotated[Secret, _secret(None)]
"""A secret, which is only ever a reference."""


class Alerting(Model):
    """Whom consumers tell of what they cannot settle alone."""

    webhook: Annotated[Secret, _secret(_web_service)] | None = None
    """The URL of a web service that gets each alert as a JSON object; a reference if it holds a password."""

    def resolve(self, environ: Mapping[str, str] = os.environ) -> str | None:
        """Resolve the webhook's URL, if there is one; raise SecretError if it is missing or malformed."""
        if self.webhook is None:
            return None
        url = self.webhook.resolve(environ).get_secret_value()
        if not url.startswith(_WEB):
            raise SecretError(f"{self.webhook!r}: {_NO_WEB_SERVICE}")
        return url


class Metrics(Model):
    """Where the figures of runs are sent, beside the file that each run has."""

    otlp: Annotated[Secret, _secret(_web_service)] | None = None
    """The URL of a collector, such as https://collector:4318/v1/metrics; a reference if it holds a password.
    """
    headers: Annotated[Secret, _secret(None)] | None = None
    """A reference to the headers that it wants, as `name=value,name=value`."""

    def resolve(self, environ: Mapping[str, str] = os.environ) -> tuple[str, dict[str, str]] | None:
        """Resolve the URL and the headers, if there is a URL; raise SecretError if one is missing or malformed."""
        if self.otlp is None:
            return None
        url = self.otlp.resolve(environ).get_secret_value()
        if not url.startswith(_WEB):
            raise SecretError(f"{self.otlp!r}: {_NO_WEB_SERVICE}")
        text = "" if self.headers is None else self.headers.resolve(environ).get_secret_value()
        pairs = [each.partition("=") for each in text.split(",") if each.strip()]
        if any(not equals or not _HEADER.fullmatch(name.strip()) for name, equals, _ in pairs):
            raise SecretError(f"{self.headers!r}: expected name=value,name=value")
        return url, {name.strip(): unquote(value.strip()) for name, _, value in pairs}


_IN_URN = r"[^,()\s]+"
_DATASET = re.compile(rf"urn:li:dataset:\(urn:li:dataPlatform:{_IN_URN},{_IN_URN},[A-Z_]+\)")
_UrnPart = Annotated[str, Field(pattern=rf"^{_IN_URN}$")]
_RESERVED = str.maketrans({",": "%2C", "(": "%28", ")": "%29"})
_PLATFORMS = {"postgresql": "postgres", "mariadb": "mariadb", "mysql": "mysql"}
"""What DataHub calls databases, by the schemes of their URLs."""


def _web_app(url: Any) -> str:
    if not isinstance(url, str) or not url.startswith(_WEB) or _CREDENTIALS.search(url):
        raise ValueError("expected the address of the web app, without a password: https://...")
    return url.rstrip("/")


def _dataset_urn(urn: Any) -> str:
    if not isinstance(urn, str) or not _DATASET.fullmatch(urn):
        raise ValueError("expected a dataset's URN: urn:li:dataset:(urn:li:dataPlatform:postgres,db.schema.table,PROD)")
    return urn


class DataHubStore(Model):
    """What DataHub calls the tables of a connection."""

    platform: _UrnPart | None = None
    """The platform: postgres, oracle, iceberg; left out, that of a database's URL."""
    instance: _UrnPart | None = None
    """The platform instance, where DataHub's ingestion sets one."""


class DataHub(Model):
    """The catalogue that is told of each copy whether it agrees with its source."""

    url: Annotated[Secret, _secret(_web_service)]
    """The URL of DataHub's metadata service, such as https://datahub:8080; a reference if it holds a password."""
    token: SecretReference | None = None
    """A reference to an access token."""
    env: Annotated[str, Field(pattern=r"^[A-Z_]+$")] = "PROD"
    """The environment of all tables, as DataHub names it."""
    stores: dict[Text, DataHubStore] = Field(default_factory=dict)
    """What DataHub calls the tables of connections, by the connections' names."""
    datasets: dict[Text, Annotated[str, BeforeValidator(_dataset_urn)]] = Field(default_factory=dict)
    """The dataset of a copy, by the name of its link, where that is another than `stores` and the URL say."""
    web: Annotated[str, BeforeValidator(_web_app)] | None = None
    """The address of the web app, to which each result links; left out, none does."""

    def contradictions(self) -> Iterator[Contradiction]:
        """List what does not fit together."""
        for link in self.datasets:
            if link.count("/") != 1:
                yield ("datasets", link), "is no link: write contract/consumer, such as user-account/login"

    def resolve(self, environ: Mapping[str, str] = os.environ) -> tuple[str, dict[str, str]]:
        """Resolve the URL and the headers; raise SecretError if one is missing or malformed."""
        url = self.url.resolve(environ).get_secret_value()
        if not url.startswith(_WEB):
            raise SecretError(f"{self.url!r}: {_NO_WEB_SERVICE}")
        token = None if self.token is None else self.token.resolve(environ).get_secret_value()
        return url.rstrip("/"), {} if token is None else {"Authorization": f"Bearer {token}"}

    def dataset(self, store: str, connection: Connection, table: str, environ: Mapping[str, str] = os.environ) -> str:
        """Build the URN of a table; raise RefusedError where nothing says its platform."""
        named = self.stores.get(store, DataHubStore())
        platform = named.platform
        if isinstance(connection, Store):
            address = connection.resolve(environ)
            if isinstance(address, (PostgresUrl, MariaUrl)):
                table = address.qualified(table)
                scheme = connection.url.resolve(environ).get_secret_value().partition(":")[0]
                platform = platform or _PLATFORMS[scheme]
        if platform is None:
            raise RefusedError(
                f"nothing says its platform; set `datahub.stores.{store}.platform`, or `datahub.datasets`"
            )
        name = (f"{named.instance}.{table}" if named.instance else table).translate(_RESERVED)
        return f"urn:li:dataset:(urn:li:dataPlatform:{platform},{name},{self.env})"


class Pause(Model):
    """How busy a database may be before we wait with the next heavy statement."""

    replication_lag: Duration | None = None
    """How far its replicas may be behind."""
    connections: Annotated[int, Field(ge=1)] | None = None
    """How many sessions it may have, with ours."""
    running: Annotated[int, Field(ge=1)] | None = None
    """How many statements of others it may be running."""
    at_most: Duration = timedelta(minutes=10)
    """How long we wait, before the reading is given up."""


class StoreLimits(Model):
    """How much of a database we take at most."""

    readers: Annotated[int, Field(ge=1, le=256)] = 8
    """How many statements read its rows at a time."""
    statement_timeout: Annotated[Duration, Field(ge=timedelta(milliseconds=1))] = timedelta(minutes=10)
    """How long one statement may take."""
    pause: Pause = Pause()
    """When we wait before a heavy statement."""


class Store(StoreLimits):
    """A database."""

    address: ClassVar[str] = "url"

    url: Annotated[Secret, _secret(_database)]
    """`postgresql://user:password@host:port/database`, `mariadb://...`, `jdbc:...`, or a plug-in's; with a password a
    reference.
    """

    @property
    def limits(self) -> StoreLimits:
        """How much of it we take, apart from its address."""
        return StoreLimits(readers=self.readers, statement_timeout=self.statement_timeout, pause=self.pause)

    def resolve(self, environ: Mapping[str, str] = os.environ) -> PostgresUrl | MariaUrl | JdbcUrl | PluginUrl:
        """Resolve the database's address; raise SecretError if it is missing or malformed.

        Raises RefusedError for limits of a store that is not read by sessions of ours.
        """
        secret = self.url.resolve(environ)
        scheme = _plugin_scheme(secret.get_secret_value())
        if not scheme and not secret.get_secret_value().startswith("jdbc:"):
            return _parsed(self.url, secret, _parse)
        if given := sorted(self.model_fields_set & StoreLimits.model_fields.keys()):
            names = ", ".join(f"`{name}`" for name in given)
            raise RefusedError(f"{self.url!r}: {names} would not hold: only postgresql:// and mariadb:// have limits")
        return PluginUrl(secret, scheme) if scheme else JdbcUrl(secret)


class ClusterConnection(Model):
    """A Kafka cluster."""

    address: ClassVar[str] = "bootstrap"

    bootstrap: Annotated[Secret, _secret(_without_credentials)]
    """The brokers to ask first: host:port, host:port."""
    security: Security = Security()
    """How to reach them safely."""

    def resolve(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Resolve librdkafka's settings, secrets included; raise SecretError if one is missing."""
        bootstrap = self.bootstrap.resolve(environ).get_secret_value()
        return {"bootstrap.servers": bootstrap, **self.security.resolve(environ)}


class Folder(Model):
    """A folder of Parquet files."""

    address: ClassVar[str] = "path"

    path: Annotated[Secret, _secret(_without_credentials)]
    """Where the files are: a path, or a URL that Spark reads."""


_IN_CATALOG = re.compile(r"secret|passw|token|credential|authorization|[.-]key\b", re.IGNORECASE)
_PLAIN = re.compile(r"true|false|\d+", re.IGNORECASE)


class Lake(Model):
    """The tables of a lake, each read at one of its snapshots."""

    address: ClassVar[str] = "warehouse"

    warehouse: Annotated[Secret, _secret(_without_credentials)]
    """Where the tables are: a path, a URL that Spark reads, or what the catalog calls its warehouse."""
    format: Literal["iceberg", "delta"]
    """How the tables are kept."""
    catalog: dict[Text, Annotated[Secret, _secret(_without_credentials)]] = Field(default_factory=dict)
    """The properties of Iceberg's catalog, as it names them; without any, the warehouse's folders are the catalog."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")] | None = None
    """The catalog's name, where it counts, as it does for a JDBC catalog; left out, one is made."""

    def contradictions(self) -> Iterator[Contradiction]:
        """List what does not fit together."""
        if self.format == "delta" and (self.catalog or self.name):
            message = "is for Iceberg: Delta's tables are found in the folders of the warehouse"
            yield ("catalog" if self.catalog else "name",), message
        for key, value in self.catalog.items():
            given = value.resolve().get_secret_value() if isinstance(value, Given) else ""
            if given and _IN_CATALOG.search(key) and not _PLAIN.fullmatch(given):
                yield ("catalog", key), f"is a secret, and must be a reference: {FORMS}"

    def resolve(self, environ: Mapping[str, str] = os.environ) -> LakePlace:
        """Resolve where it is, secrets included; raise SecretError if one is missing."""
        catalog = {key: value.resolve(environ).get_secret_value() for key, value in self.catalog.items()}
        warehouse = self.warehouse.resolve(environ).get_secret_value()
        if not catalog and ":/" not in warehouse:
            warehouse = str(Path(warehouse).absolute())  # Delta takes no other path for a table's name
        return LakePlace(self.format, warehouse, catalog, self.name)


class Registry(Model):
    """A schema registry."""

    address: ClassVar[str] = "registry"

    registry: Annotated[Secret, _secret(_without_credentials, wanted="url")]
    """The registry's URL."""
    security: Security = Security()
    """How to reach it safely."""


KINDS: Mapping[str, type[Store | ClusterConnection | Folder | Lake | Registry]] = {
    kind.address: kind for kind in (Store, ClusterConnection, Folder, Lake, Registry)
}
_ADDRESSES = "`url`, `bootstrap`, `path`, `warehouse` or `registry`"


def _one_kind(value: Any) -> Any:
    if not isinstance(value, dict):
        if isinstance(value, tuple(KINDS.values())):
            return value
        raise ValueError(f"expected keys and values, one of the keys {_ADDRESSES}")
    named = [address for address in KINDS if address in value]
    if len(named) > 1:
        raise ValueError(f"is of several kinds at once ({', '.join(named)}): give one of {_ADDRESSES}")
    if not named:
        hint = next((hint for key in value if (hint := suggestion(key, KINDS))), "")
        raise ValueError(f"needs one of {_ADDRESSES}{hint}")
    return value


def _kind(value: Any) -> str:
    address = next(a for a in KINDS if a in value) if isinstance(value, dict) else value.address
    return f"<kind:{address}>"


Connection = Store | ClusterConnection | Folder | Lake | Registry
AnyConnection = Annotated[
    Annotated[Store, Tag("<kind:url>")]
    | Annotated[ClusterConnection, Tag("<kind:bootstrap>")]
    | Annotated[Folder, Tag("<kind:path>")]
    | Annotated[Lake, Tag("<kind:warehouse>")]
    | Annotated[Registry, Tag("<kind:registry>")],
    Discriminator(_kind),
    BeforeValidator(_one_kind),
]
