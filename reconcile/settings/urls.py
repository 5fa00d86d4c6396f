"""The URLs of databases, such as `postgresql://user:password@host:port/database`, in the forms that drivers want."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pydantic import SecretStr

SCHEME = "postgresql://"
FORM = "postgresql://user:password@host:port/database"
MARIADB_SCHEMES = ("mariadb://", "mysql://")
MARIADB_FORM = "mariadb://user:password@host:port/database"
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
MARIADB_PARAMETERS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout")
"""The parameters that the URL of a MariaDB may carry: libpq's names, too."""
_TRY_LATER = ("starting up", "shutting down", "too many", "remaining connection slots", "recovery mode")
_OF_TLS = re.compile("SSL error:|certificate|does not support SSL|private key")
_MARIADB_SSL_MODES = ("disable", "require", "verify-ca", "verify-full")


@dataclass(frozen=True)
class PostgresUrl:
    """Where a database is and who asks; the password shows in nothing that is printed by accident."""

    host: str
    database: str
    port: int = 5432
    user: str | None = None
    password: SecretStr | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    def qualified(self, table: str) -> str:
        """Build the full name of a table: database, schema and table."""
        return f"{self.database}.{table if '.' in table else f'public.{table}'}"

    def libpq(self) -> dict[str, Any]:
        """Build the keyword arguments of psycopg2.connect, password included."""
        arguments = {"host": self.host, "port": self.port, "dbname": self.database, **self._credentials()}
        return {**arguments, **self.parameters}

    def jdbc(self) -> tuple[str, dict[str, str]]:
        """Build the JDBC URL, and apart from it the properties: user, password and parameters."""
        parameters = {PARAMETERS[name]: value for name, value in self.parameters.items()}
        # As libpq does with an authority; the driver would take any certificate.
        if parameters.get("sslmode") == "require" and "sslrootcert" in parameters:
            parameters["sslmode"] = "verify-ca"
        host = f"[{self.host}]" if ":" in self.host else self.host
        url = f"jdbc:postgresql://{host}:{self.port}/{quote(self.database, safe='')}"
        return url, {**self._credentials(), **parameters}

    def _credentials(self) -> dict[str, str]:
        credentials = {"user": self.user} if self.user is not None else {}
        if self.password is not None:
            credentials["password"] = self.password.get_secret_value()
        return credentials


@dataclass(frozen=True)
class MariaUrl:
    """Where a MariaDB or a MySQL is and who asks; the password shows in nothing that is printed by accident."""

    host: str
    database: str
    port: int = 3306
    user: str | None = None
    password: SecretStr | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    def qualified(self, table: str) -> str:
        """Build the full name of a table: database and table."""
        return table if "." in table else f"{self.database}.{table}"

    def arguments(self) -> dict[str, Any]:
        """Build the keyword arguments of pymysql.connect, password included."""
        given = self.parameters
        arguments: dict[str, Any] = {"host": self.host, "port": self.port, "database": self.database}
        if self.user is not None:
            arguments["user"] = self.user
        if self.password is not None:
            arguments["password"] = self.password.get_secret_value()
        if "connect_timeout" in given:
            arguments["connect_timeout"] = int(given["connect_timeout"])
        mode = given.get("sslmode")
        if mode == "disable":
            return {**arguments, "ssl_disabled": True}
        files = {"sslrootcert": "ssl_ca", "sslcert": "ssl_cert", "sslkey": "ssl_key"}
        arguments |= {theirs: given[ours] for ours, theirs in files.items() if ours in given}
        # Whoever names an authority wants it to be asked, as libpq does: the driver does not by itself.
        if mode in ("verify-ca", "verify-full") or "sslrootcert" in given:
            arguments["ssl_verify_cert"] = True
            arguments["ssl_verify_identity"] = mode == "verify-full"
        elif mode == "require" and not arguments.keys() & set(files.values()):
            arguments["ssl"] = {"check_hostname": False, "verify_mode": False}
        return arguments


def to_correct(said: str) -> str | None:
    """Choose what to correct in a Postgres' URL, by what was said of a connection; None where it may just be down."""
    if "no encryption" in said:
        return "It wants TLS: write ?sslmode=verify-full&sslrootcert=FILE behind its url"
    if _OF_TLS.search(said) and "eof" not in said.lower():
        return "Check sslmode, sslrootcert, sslcert and sslkey of its url"
    if "FATAL" in said and not any(reason in said for reason in _TRY_LATER):
        return "Check user, password and database of its url"
    return None


def parse(url: str) -> PostgresUrl:
    """Read a URL; raise ValueError that says what is wrong without repeating any of it."""
    return PostgresUrl(**_address(url, (SCHEME,), FORM, 5432, tuple(PARAMETERS), SSL_MODES))


def parse_mariadb(url: str) -> MariaUrl:
    """Read the URL of a MariaDB; raise ValueError that says what is wrong without repeating any of it."""
    found = _address(url, MARIADB_SCHEMES, MARIADB_FORM, 3306, MARIADB_PARAMETERS, _MARIADB_SSL_MODES)
    if not found["parameters"].get("connect_timeout", "1").isdecimal():
        raise ValueError("the URL's connect_timeout is no number of seconds")
    return MariaUrl(**found)


def _address(
    url: str, schemes: tuple[str, ...], form: str, port_of_kind: int, valid: tuple[str, ...], modes: tuple[str, ...]
) -> dict[str, Any]:
    if not url.startswith(schemes):
        raise ValueError(f"a URL begins with {schemes[0]}")
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
            f"the URL is not of the form {form}: one host, and in user and password /:@?#[] as %2F %3A ..."
        )
    if not database or "/" in database:
        raise ValueError(f"the URL names no database: {form}")
    if password is not None and not user:
        raise ValueError(f"the URL has a password and no user: {form}")
    return {
        "host": unquote(host),
        "database": database,
        "port": port_of_kind if port is None else port,
        "user": user or None,
        "password": None if not password else SecretStr(password),
        "parameters": _parameters(parts.query, form, valid, modes),
    }


def _text(encoded: str | None) -> str | None:
    if encoded is None:
        return None
    text = unquote(encoded, errors="strict")
    if "\0" in text:
        raise ValueError
    return text


def _parameters(query: str, form: str, valid: tuple[str, ...], modes: tuple[str, ...]) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise ValueError("the URL's parameters are not of the form ?name=value&name=value") from None
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        raise ValueError("the URL has a parameter twice")
    if {"user", "password"} & set(parameters):
        raise ValueError(f"the URL has its user and password before the host: {form}")
    if not set(parameters) <= set(valid):
        raise ValueError(f"the URL has a parameter that is not known here; valid are {', '.join(valid)}")
    if parameters.get("sslmode", "disable") not in modes:
        raise ValueError(f"the URL's sslmode is not valid: write {', '.join(modes)}")
    if not all(parameters.values()):
        raise ValueError("the URL has a parameter without a value")
    return parameters
