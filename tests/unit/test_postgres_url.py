"""One form of URL, and what each driver makes of it."""

from __future__ import annotations

from urllib.parse import quote

import psycopg2.extensions
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.settings.urls import PostgresUrl, parse

SECRET = "hunter2"


def test_a_whole_url_is_read() -> None:
    """Each part is found and decoded."""
    url = parse("postgresql://me%40corp:p%2Fw%3A1@db.example:6543/my%20db?sslmode=require&connect_timeout=3")
    assert (url.user, url.host, url.port, url.database) == ("me@corp", "db.example", 6543, "my db")
    assert url.password is not None
    assert url.password.get_secret_value() == "p/w:1"
    assert url.parameters == {"sslmode": "require", "connect_timeout": "3"}


def test_user_password_and_port_may_be_missing() -> None:
    """The port is Postgres's own; the rest is left to the driver."""
    assert parse("postgresql://h/d") == PostgresUrl(host="h", database="d")


def test_libpq_takes_keywords() -> None:
    """psycopg2 gets what it calls by its own names."""
    expected = {"host": "::1", "port": 5432, "dbname": "d", "user": "u", "password": "p w", "sslmode": "disable"}
    assert parse("postgresql://u:p%20w@[::1]/d?sslmode=disable").libpq() == expected


def test_jdbc_keeps_credentials_out_of_its_url() -> None:
    """User and password are properties; parameters take the driver's names."""
    url, properties = parse("postgresql://u:p@[::1]:5433/my%20db?sslmode=verify-full&application_name=x").jdbc()
    assert url == "jdbc:postgresql://[::1]:5433/my%20db"
    assert properties == {"user": "u", "password": "p", "sslmode": "verify-full", "ApplicationName": "x"}


@pytest.mark.parametrize(
    ("parameters", "mode"),
    [
        ("sslmode=require&sslrootcert=ca.pem", "verify-ca"),
        ("sslmode=require", "require"),
        ("sslmode=verify-full&sslrootcert=ca.pem", "verify-full"),
    ],
)
def test_jdbc_trusts_nobody_whom_libpq_does_not(parameters: str, mode: str) -> None:
    """With an authority that is named, libpq's `require` verifies; that of the JDBC driver takes any certificate."""
    assert mode == parse(f"postgresql://h/d?{parameters}").jdbc()[1]["sslmode"]


def test_printing_hides_the_password() -> None:
    """Neither repr nor str shows it."""
    url = parse(f"postgresql://u:{SECRET}@h/d")
    assert SECRET not in f"{url!r} {url}"


@pytest.mark.parametrize(
    "url",
    [
        f"postgres://u:{SECRET}@h/d",
        f"postgresql+psycopg2://u:{SECRET}@h/d",
        f"postgresql://u:{SECRET}@/d",
        f"postgresql://u:{SECRET}@h",
        f"postgresql://u:{SECRET}@h/",
        f"postgresql://u:{SECRET}@h/a/b",
        f"postgresql://u:{SECRET}@h:port/d",
        f"postgresql://u:{SECRET}@h:70000/d",
        f"postgresql://u:{SECRET}@h:0/d",
        f"postgresql://u:{SECRET}@h1:1,h2:2/d",
        f"postgresql://u:{SECRET}#x@h/d",
        f"postgresql://u:{SECRET}/x@h/d",
        f"postgresql://u:x?{SECRET}=y@h/d",
        f"postgresql://u:x@{SECRET}@h/d",
        f"postgresql://u:{SECRET}%zz@h/d",
        f"postgresql://u:{SECRET}%ff@h/d",
        f"postgresql://u:{SECRET}%00@h/d",
        f"postgresql://u:{SECRET} @h/d",
        f"postgresql://u:{SECRET}\n@h/d",
        f"postgresql://u:[{SECRET}@h/d",
        f"postgresql://u:{SECRET}\u2100@h/d",
        f"postgresql://:{SECRET}@h/d",
        f"postgresql://u@h/d?password={SECRET}",
        f"postgresql://u@h/d?sslmode={SECRET}",
        f"postgresql://u@h/d?{SECRET}=1",
        f"postgresql://u@h/d?{SECRET}",
        f"postgresql://u:{SECRET}@h/d?sslmode=",
        f"postgresql://u:{SECRET}@h/d?sslmode=require&sslmode=disable",
        SECRET,
        "",
    ],
)
def test_a_malformed_url_is_refused_without_being_repeated(url: str) -> None:
    """No message shows any of the URL, which may hold a password anywhere."""
    with pytest.raises(ValueError, match="URL") as caught:
        parse(url)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


words = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0x2FF, exclude_categories=["Cc"]), min_size=1, max_size=12
)


@given(words, words, words)
def test_libpq_reads_what_was_meant(user: str, password: str, database: str) -> None:
    """The driver's own parser gets it back, whatever the characters."""
    if "/" in database:
        database = database.replace("/", "-")
    url = parse(f"postgresql://{quote(user, safe='')}:{quote(password, safe='')}@h:1/{quote(database, safe='')}")
    dsn = psycopg2.extensions.make_dsn(**url.libpq())
    expected = {"user": user, "password": password, "host": "h", "port": "1", "dbname": database}
    assert psycopg2.extensions.parse_dsn(dsn) == expected


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but a URL or a ValueError comes of any text."""
    message = "the URL"
    try:
        parse(f"postgresql://{text}")
    except ValueError as error:
        message = str(error)
    assert "URL" in message
