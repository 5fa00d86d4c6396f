"""The connections that settings name: databases, Kafka clusters, Parquet folders, schema registries."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, SecretStr, Tag, ValidationInfo

from reconcile.config.validation import Model, suggestion
from reconcile.errors import SecretError
from reconcile.settings import urls as postgres_url
from reconcile.settings.references import FORMS, Given, Reference, Secret, reference
from reconcile.settings.urls import PostgresUrl

_CREDENTIALS = re.compile(
    r"[^/:@]+[:/][^/:@]+@|//[^/]*@|(password|passwd|pwd|secret|token|passphrase)\w*=", re.IGNORECASE
)


SQLITE = "sqlite:///"
_NO_FILE = f"the URL names no file: {SQLITE}path"


@dataclass(frozen=True)
class SqliteFile:
    """A database in a file of this machine, for one machine's trials."""

    path: Path


@dataclass(frozen=True)
class JdbcUrl:
    """The address of a database that Spark reads with a JDBC driver."""

    url: SecretStr


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
    if url.startswith("jdbc:"):
        return _without_credentials(url)
    if not url.startswith(postgres_url.SCHEME):
        return f"is neither {postgres_url.SCHEME}... nor jdbc:...; nor is it a reference: {FORMS}"
    return _postgres(url)


def _postgres(url: str) -> str | None:
    try:
        parsed = postgres_url.parse(url)
    except ValueError as error:
        return str(error)
    return None if parsed.password is None else f"holds a password, and must be a reference then: {FORMS}"


def _control_store(url: str) -> str | None:
    if url.startswith(SQLITE):
        return None if url.removeprefix(SQLITE) else _NO_FILE
    if not url.startswith(postgres_url.SCHEME):
        return f"is neither {postgres_url.SCHEME}... nor {SQLITE}...; nor is it a reference: {FORMS}"
    return _postgres(url)


def _without_credentials(text: str) -> str | None:
    return f"holds a password, and must be a reference then: {FORMS}" if _CREDENTIALS.search(text) else None


_Setting = Annotated[Secret, _secret(lambda _: None)] | None
_SecretSetting = Annotated[Secret, _secret(None)] | None


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

    def resolve(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Resolve what is set, under librdkafka's names, secrets included; raise SecretError if one is missing."""
        resolved: dict[str, str] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is not None:
                text = value if isinstance(value, str) else value.resolve(environ).get_secret_value()
                resolved[_dotted(name)] = text
        return resolved


def _parsed(place: Secret, url: SecretStr) -> PostgresUrl:
    try:
        return postgres_url.parse(url.get_secret_value())
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
            return _parsed(self.url, secret)
        path = secret.get_secret_value().removeprefix(SQLITE)
        if not path:
            raise SecretError(f"{self.url!r}: {_NO_FILE}")
        return SqliteFile(Path(path))


class Store(Model):
    """A database."""

    address: ClassVar[str] = "url"

    url: Annotated[Secret, _secret(_database)]
    """`postgresql://user:password@host:port/database` or `jdbc:...`; a reference if there is a password in it."""

    def resolve(self, environ: Mapping[str, str] = os.environ) -> PostgresUrl | JdbcUrl:
        """Resolve the database's address; raise SecretError if it is missing or malformed."""
        secret = self.url.resolve(environ)
        if secret.get_secret_value().startswith("jdbc:"):
            return JdbcUrl(secret)
        return _parsed(self.url, secret)


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


class Registry(Model):
    """A schema registry."""

    address: ClassVar[str] = "registry"

    registry: Annotated[Secret, _secret(_without_credentials, wanted="url")]
    """The registry's URL."""
    security: Security = Security()
    """How to reach it safely."""


KINDS: Mapping[str, type[Store | ClusterConnection | Folder | Registry]] = {
    kind.address: kind for kind in (Store, ClusterConnection, Folder, Registry)
}
_ADDRESSES = "`url`, `bootstrap`, `path` or `registry`"


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


Connection = Store | ClusterConnection | Folder | Registry
AnyConnection = Annotated[
    Annotated[Store, Tag("<kind:url>")]
    | Annotated[ClusterConnection, Tag("<kind:bootstrap>")]
    | Annotated[Folder, Tag("<kind:path>")]
    | Annotated[Registry, Tag("<kind:registry>")],
    Discriminator(_kind),
    BeforeValidator(_one_kind),
]
