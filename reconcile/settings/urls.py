"""`postgresql://user:password@host:port/database`, and the forms that drivers want of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pydantic import SecretStr

SCHEME = "postgresql://"
FORM = "postgresql://user:password@host:port/database"
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
PARAMETERS: Mapping[str, str] = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "connect_timeout": "connectTimeout",
    "application_name": "ApplicationName",
    "options": "options",
}
"""The parameters that a URL may carry, by libpq's name, with the JDBC driver's name for each."""


@dataclass(frozen=True)
class PostgresUrl:
    """Where a database is and who asks; the password shows in nothing that is printed by accident."""

    host: str
    database: str
    port: int = 5432
    user: str | None = None
    password: SecretStr | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    def libpq(self) -> dict[str, Any]:
        """Build the keyword arguments of psycopg2.connect, password included."""
        arguments = {"host": self.host, "port": self.port, "dbname": self.database, **self._credentials()}
        return {**arguments, **self.parameters}

    def jdbc(self) -> tuple[str, dict[str, str]]:
        """Build the JDBC URL, and apart from it the properties: user, password and parameters."""
        parameters = {PARAMETERS[name]: value for name, value in self.parameters.items()}
        host = f"[{self.host}]" if ":" in self.host else self.host
        url = f"jdbc:postgresql://{host}:{self.port}/{quote(self.database, safe='')}"
        return url, {**self._credentials(), **parameters}

    def _credentials(self) -> dict[str, str]:
        credentials = {"user": self.user} if self.user is not None else {}
        if self.password is not None:
            credentials["password"] = self.password.get_secret_value()
        return credentials


def parse(url: str) -> PostgresUrl:
    """Read a URL; raise ValueError that says what is wrong without repeating any of it."""
    if not url.startswith(SCHEME):
        raise ValueError(f"a URL begins with {SCHEME}")
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        raise ValueError("a URL holds no spaces, line breaks or control characters: write a space as %20")
    if re.search(r"%(?![0-9a-fA-F]{2})", url):
        raise ValueError("each % in a URL needs two hexadecimal digits after it: write % itself as %25")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        user, password, database = _text(parts.username), _text(parts.password), _text(parts.path[1:])
    except ValueError:
        # The library's own message would repeat what it could not read, which may be the password.
        host, port, user, password, database = None, None, None, None, None
    if host is None or "," in host or parts.fragment or parts.netloc.count("@") > 1 or port == 0:
        raise ValueError(
            f"the URL is not of the form {FORM}: one host, and in user and password /:@?#[] as %2F %3A ..."
        )
    if not database or "/" in database:
        raise ValueError(f"the URL names no database: {FORM}")
    if password is not None and not user:
        raise ValueError(f"the URL has a password and no user: {FORM}")
    return PostgresUrl(
        host=unquote(host),
        database=database,
        port=5432 if port is None else port,
        user=user or None,
        password=None if not password else SecretStr(password),
        parameters=_parameters(parts.query),
    )


def _text(encoded: str | None) -> str | None:
    if encoded is None:
        return None
    text = unquote(encoded, errors="strict")
    if "\0" in text:
        raise ValueError
    return text


def _parameters(query: str) -> dict[str, str]:
    valid = ", ".join(PARAMETERS)
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise ValueError("the URL's parameters are not of the form ?name=value&name=value") from None
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        raise ValueError("the URL has a parameter twice")
    if {"user", "password"} & set(parameters):
        raise ValueError(f"the URL has its user and password before the host: {FORM}")
    if not set(parameters) <= set(PARAMETERS):
        raise ValueError(f"the URL has a parameter that is not known here; valid are {valid}")
    if parameters.get("sslmode", "disable") not in SSL_MODES:
        raise ValueError(f"the URL's sslmode is not valid: write {', '.join(SSL_MODES)}")
    if not all(parameters.values()):
        raise ValueError("the URL has a parameter without a value")
    return parameters
