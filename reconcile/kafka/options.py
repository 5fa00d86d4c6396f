"""A cluster's settings, in librdkafka's words for our own clients and in Java's for Spark.

Certificates and keys go to Spark as text, not as paths: its executors may run on machines that have no such files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from reconcile.errors import RefusedError, SecretError

TIMEOUT = 15.0
"""Seconds after which a broker that says nothing counts as unreachable."""

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SAME = ("bootstrap.servers", "security.protocol", "sasl.mechanism", "ssl.key.password")
_PEM = {
    "ssl.ca": ("ssl.truststore.type", "ssl.truststore.certificates"),
    "ssl.certificate": ("ssl.keystore.type", "ssl.keystore.certificate.chain"),
    "ssl.key": ("ssl.keystore.type", "ssl.keystore.key"),
}
_SECRET = ("sasl.password", "ssl.key.pem", "ssl.key.password", "sasl.jaas.config", "ssl.keystore.key")


def for_librdkafka(settings: Mapping[str, str]) -> dict[str, str]:
    """Build the options of a client of ours, from what `Cluster.resolve()` gives."""
    return {
        **settings,
        "socket.timeout.ms": str(int(TIMEOUT * 1000)),
        "socket.connection.setup.timeout.ms": str(int(TIMEOUT * 1000)),
        "log_level": "0",  # what librdkafka has to say comes through error_cb
    }


def for_spark(settings: Mapping[str, str]) -> dict[str, str]:
    """Build the options of Spark's source and sink, from what `Cluster.resolve()` gives.

    Raises RefusedError for what Java's clients cannot do, SecretError for a file that cannot be read.
    """
    java = {name: settings[name] for name in _SAME if name in settings}
    if "ssl.endpoint.identification.algorithm" in settings:
        algorithm = settings["ssl.endpoint.identification.algorithm"]
        java["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else algorithm
    if settings.get("security.protocol", "").startswith("SASL"):
        java |= _sasl(settings)
    for name, (kind, option) in _PEM.items():
        pem = settings.get(f"{name}.pem") or _file(settings.get(f"{name}.location"), name)
        if pem:
            java |= {kind: "PEM", option: _java_key(pem) if name == "ssl.key" else pem}
    milliseconds = str(int(TIMEOUT * 1000))
    java |= {"default.api.timeout.ms": milliseconds, "request.timeout.ms": milliseconds}
    return {f"kafka.{name}": value for name, value in java.items()}


def with_files_inside(settings: Mapping[str, str]) -> dict[str, str]:
    """Build librdkafka's settings with the text of certificates and keys, for machines that have no such files."""
    inside = {name: value for name, value in settings.items() if not name.endswith(".location")}
    for name in _PEM:
        if (text := _file(settings.get(f"{name}.location"), name)) is not None:
            inside[f"{name}.pem"] = text
    return inside


def without_secrets(text: str, *options: Mapping[str, str]) -> str:
    """Build the text without the secrets of these options."""
    secrets = {
        value for each in options for name, value in each.items() if name.removeprefix("kafka.") in _SECRET and value
    }
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "[hidden]")
    return text


def _sasl(settings: Mapping[str, str]) -> dict[str, str]:
    mechanism = settings.get("sasl.mechanism", "GSSAPI")
    if mechanism not in _LOGIN_MODULES:
        raise RefusedError(f"Spark cannot log in with {mechanism}: use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
    user, password = (settings.get(f"sasl.{each}") for each in ("username", "password"))
    if user is None or password is None:
        raise RefusedError(f"the mechanism {mechanism} needs both sasl.username and sasl.password")
    login = f"username={_quoted(user)} password={_quoted(password)}"
    return {"sasl.jaas.config": f"{_LOGIN_MODULES[mechanism]} required {login};"}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _file(path: str | None, name: str) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text("ascii")
    except OSError as error:
        raise SecretError(f"{name}.location: the file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SecretError(f"{name}.location: the file {path} is not PEM: Spark reads no other form") from None


def _java_key(pem: str) -> str:
    if re.search("-----BEGIN (ENCRYPTED )?PRIVATE KEY-----", pem) is None:
        raise RefusedError("Java reads a private key in PKCS#8 only: convert it with `openssl pkcs8 -topk8`")
    return pem
