"""Schemas by their number, from a registry that speaks Confluent's protocol."""

from __future__ import annotations

import base64
import functools
import json
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from reconcile.errors import RefusedError, SecretError, UnreachableError
from reconcile.settings import connections

TIMEOUT = 15.0


class UnknownSchemaError(Exception):
    """Raised when the registry has no schema of this number: the value that names it cannot be read."""


@dataclass(frozen=True)
class RegistryAddress:
    """Where a registry is, and how to reach it."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, registry: connections.Registry) -> RegistryAddress:
        """Take it from a connection; raise SecretError if a secret is missing."""
        said = registry.security.resolve()
        ca = said.get("ssl.ca.pem")
        if ca is None and "ssl.ca.location" in said:
            ca = _certificates(said["ssl.ca.location"])
        scheme, _, place = registry.registry.resolve().get_secret_value().rstrip("/").partition("://")
        if scheme not in ("http", "https"):
            raise RefusedError("the schema registry's URL begins with neither http:// nor https://")
        host, slash, path = place.partition("/")
        login, _, host = host.rpartition("@")
        user, _, password = map(unquote, login.partition(":"))
        found = said.get("sasl.username", user or None), said.get("sasl.password", password or None)
        return cls(f"{scheme}://{host}{slash}{path}", *found, ca)

    def check(self) -> None:
        """Raise UnreachableError if the registry does not answer, RefusedError if it does not let us in."""
        with suppress(UnknownSchemaError):  # an older registry does not know this question
            _get(self, "/schemas/types")

    def schema(self, number: int) -> tuple[str, ...]:
        """Fetch the schema of a number, behind all that it refers to; raise UnknownSchemaError if there is none."""
        return _schema(self, number)


def _certificates(file: str) -> str:
    try:
        return Path(file).read_text("ascii")
    except OSError as error:
        raise SecretError(f"ssl.ca.location: {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SecretError(f"ssl.ca.location: {file} is no text of certificates in PEM form") from None


def _trusting(certificates: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise SecretError(f"the registry's certificate authority holds no certificates in PEM form: {error}") from None


@functools.lru_cache(maxsize=1024)
def _schema(registry: RegistryAddress, number: int) -> tuple[str, ...]:
    found = _get(registry, f"/schemas/ids/{number}")
    if found.get("schemaType", "AVRO") != "AVRO":
        raise UnknownSchemaError(f"schema {number} is none of Avro's")
    return *_referred(registry, found, set()), found["schema"]


def _referred(registry: RegistryAddress, found: Any, seen: set[tuple[str, int]]) -> list[str]:
    """Fetch the schemas that one refers to, each before the one that needs it."""
    parts: list[str] = []
    for each in found.get("references", ()):
        place = each["subject"], each["version"]
        if place not in seen:
            seen.add(place)
            other = _get(registry, f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}")
            parts += [*_referred(registry, other, seen), other["schema"]]
    return parts


def _get(registry: RegistryAddress, path: str) -> Any:
    request = urllib.request.Request(registry.url + path)  # noqa: S310
    if registry.user is not None:
        login = base64.b64encode(f"{registry.user}:{registry.password or ''}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
    context = _trusting(registry.ca) if registry.ca else None
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT, context=context) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                raise UnknownSchemaError(path) from None
            if error.code in (401, 403):
                raise RefusedError(f"the schema registry at {registry.url} does not let us in: {error.code}") from None
            raise UnreachableError(f"the schema registry at {registry.url} fails: {error.code} for {path}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise UnreachableError(f"the schema registry at {registry.url} does not answer: {error}") from None
