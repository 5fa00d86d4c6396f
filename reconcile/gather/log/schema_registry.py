"""Schemas by their number, from a registry that speaks Confluent's protocol."""

from __future__ import annotations

import base64
import functools
import json
import ssl
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from reconcile.errors import RefusedError, SecretError, UnreachableError
from reconcile.kafka.listener import speaks_tls
from reconcile.settings import connections

TIMEOUT = 6.0
"""Seconds for each step of a question: to connect, to begin an answer."""
PROTOBUF = "PROTOBUF"

_SERIALIZED = "?format=serialized"
"""Asks for Protobuf as descriptors, so that no compiler is needed; an older registry gives the text all the same."""
_LARGEST = 1 << 24
_MOST_REFERENCES = 1000
_UNKNOWN_FOR = 60.0
"""Seconds for which the registry's word that it has no such schema is taken."""
_UNKNOWN = {40401: "no such subject", 40402: "no such version", 40403: "no such schema"}


class UnknownSchemaError(Exception):
    """Raised when the registry itself says that it has no schema of this number: its values cannot be read."""


class _NotFoundError(UnreachableError):
    """Raised for a 404 that is not the registry's own word: nothing is known of what was asked."""


@dataclass(frozen=True)
class Reference:
    """A schema that another one refers to, and the name that it has there."""

    name: str
    text: str


@dataclass(frozen=True)
class Registered:
    """A schema as the registry has it."""

    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    references: tuple[Reference, ...] = ()
    """All that it needs, each before the one that needs it."""


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
        if own := sorted(key for key in said if key.startswith(("ssl.certificate", "ssl.key"))):
            raise RefusedError(
                f"{own[0]}: a registry is logged in to by sasl.username and sasl.password, by nothing else"
            )
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
        """Raise UnreachableError if the registry does not answer, RefusedError if it is none or does not let us in."""
        path = "/schemas/types"
        try:
            found = _get(self, path)
        except (_NotFoundError, UnknownSchemaError):  # an older registry does not know this question
            path = "/schemas/ids/1"
            with suppress(UnknownSchemaError):
                found = _get(self, path)
                if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
                    raise _no_registry(self, path) from None
            return
        if not isinstance(found, list):
            raise _no_registry(self, path)

    def schema(self, number: int) -> Registered:
        """Fetch the schema of a number with all that it refers to; raise UnknownSchemaError if there is none."""
        found = _told(self, number, int(time.monotonic() / _UNKNOWN_FOR))
        if isinstance(found, str):
            raise UnknownSchemaError(found)
        return found


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
def _told(registry: RegistryAddress, number: int, _about: int) -> Registered | str:
    """Fetch a schema; a text says why there is none, so that the values that name it do not each ask."""
    try:
        return _registered(registry, number)
    except UnknownSchemaError as error:
        return str(error)


@functools.lru_cache(maxsize=1024)
def _registered(registry: RegistryAddress, number: int) -> Registered:
    try:
        found = _get(registry, f"/schemas/ids/{number}")
        kind = found.get("schemaType", "AVRO")
        text = _SERIALIZED if kind == PROTOBUF else ""
        if text:
            found = _get(registry, f"/schemas/ids/{number}{text}")
        return Registered(kind, found["schema"], tuple(_referred(registry, found, text, {})))
    except (TypeError, KeyError, AttributeError):
        raise _no_registry(registry, f"/schemas/ids/{number}") from None


def _referred(registry: RegistryAddress, found: Any, form: str, seen: dict[tuple[str, int], None]) -> list[Reference]:
    """Fetch the schemas that one refers to, each before the one that needs it."""
    parts: list[Reference] = []
    for each in found.get("references") or ():
        place = each["subject"], each["version"]
        if place in seen:
            continue
        seen[place] = None
        if len(seen) > _MOST_REFERENCES:
            raise UnknownSchemaError(f"it refers to more than {_MOST_REFERENCES} others")
        # A subject that was deleted softly is still there for those who refer to it.
        path = f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}"
        other = _get(registry, f"{path}{form}{'&' if form else '?'}deleted=true")
        parts += [*_referred(registry, other, form, seen), Reference(each["name"], other["schema"])]
    return parts


class _NotElsewhere(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: what asks for a log-in elsewhere is no registry, and must not get our password."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _get(registry: RegistryAddress, path: str) -> Any:
    request = urllib.request.Request(registry.url + path)  # noqa: S310
    request.add_header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
    if registry.user is not None:
        login = base64.b64encode(f"{registry.user}:{registry.password or ''}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {login}")
    handlers: list[urllib.request.BaseHandler] = [_NotElsewhere()]
    if registry.ca:
        handlers.append(urllib.request.HTTPSHandler(context=_trusting(registry.ca)))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT) as answer:
            found = _body(answer)
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(registry, path, error) from None
    except (OSError, HTTPException) as error:
        if isinstance(reason := getattr(error, "reason", None), ssl.SSLError):
            raise RefusedError(
                f"the schema registry at {registry.url} and we do not agree on TLS: {reason.reason or reason}; check"
                " `registry` (https:// or http://) and ssl.ca.location of the connection"
            ) from None
        scheme, _, place = registry.url.partition("://")
        if scheme == "http" and speaks_tls(place.partition("/")[0]):
            raise RefusedError(
                f"the schema registry at {registry.url} speaks TLS: write https:// in `registry`"
            ) from None
        raise UnreachableError(f"the schema registry at {registry.url} does not answer: {error}") from None
    try:
        return json.loads(found)
    except (ValueError, RecursionError):
        raise _no_registry(registry, path) from None


def _body(answer: Any) -> bytes:
    """Read an answer, which may be neither endless nor without end in time."""
    found, until = b"", time.monotonic() + TIMEOUT
    while part := answer.read1(1 << 16):
        found += part
        if len(found) > _LARGEST:
            raise HTTPException(f"it sends more than {_LARGEST:,} bytes")
        if time.monotonic() > until:
            raise TimeoutError("timed out")
    return found


def _refused(registry: RegistryAddress, path: str, error: urllib.error.HTTPError) -> Exception:
    """Choose what an answer means: a 404 is the registry's own only if it bears one of its codes."""
    if error.code in (401, 403):
        return RefusedError(f"the schema registry at {registry.url} does not let us in: {error.code}")
    if 300 <= error.code < 400:
        return _no_registry(registry, path)
    if error.code == 404:
        try:
            said = json.loads(_body(error))
            code = said.get("error_code") if isinstance(said, dict) else None
        except (OSError, HTTPException, ValueError, RecursionError):
            code = None
        if code in _UNKNOWN:
            return UnknownSchemaError(f"{path}: {_UNKNOWN[code]} (error code {code})")
        return _NotFoundError(
            f"the schema registry at {registry.url} answers 404 for {path} without a code of its own: a proxy, or no"
            " registry, stands there; correct the connection's `registry`, or try again"
        )
    return UnreachableError(f"the schema registry at {registry.url} fails: {error.code} for {path}")


def _no_registry(registry: RegistryAddress, path: str) -> RefusedError:
    return RefusedError(
        f"what answers at {registry.url} is no schema registry: its answer to {path} is none of Confluent's protocol;"
        " correct the connection's `registry`"
    )
