"""The URL of a MariaDB: what the driver gets of it, and what is said of a wrong one."""

from __future__ import annotations

from typing import Any

import pytest

from reconcile.settings.urls import parse_mariadb

SECRET = "hunter2"
PLACE = {"host": "h", "port": 3306, "database": "d"}
VERIFIED = {"ssl_ca": "ca.pem", "ssl_verify_cert": True, "ssl_verify_identity": False}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mariadb://h/d", PLACE),
        ("mysql://u:p%40@h:1/d", {"host": "h", "port": 1, "database": "d", "user": "u", "password": "p@"}),
        ("mariadb://h/d?sslmode=disable", {**PLACE, "ssl_disabled": True}),
        ("mariadb://h/d?sslmode=require", {**PLACE, "ssl": {"check_hostname": False, "verify_mode": False}}),
        ("mariadb://h/d?sslrootcert=ca.pem", {**PLACE, **VERIFIED}),
        ("mariadb://h/d?sslmode=require&sslrootcert=ca.pem", {**PLACE, **VERIFIED}),
        (
            "mariadb://h/d?sslmode=verify-full&sslrootcert=ca.pem&connect_timeout=3",
            {
                **PLACE,
                "connect_timeout": 3,
                "ssl_ca": "ca.pem",
                "ssl_verify_cert": True,
                "ssl_verify_identity": True,
            },
        ),
    ],
)
def test_the_driver_gets_what_the_url_says(url: str, expected: dict[str, Any]) -> None:
    """In its own words."""
    assert expected == parse_mariadb(url).arguments()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"postgresql://u:{SECRET}@h/d", "begins with mariadb://"),
        (f"mariadb://u:{SECRET}@h", "names no database"),
        (f"mariadb://u:{SECRET}@h/d?options=x", "valid are sslmode, sslrootcert, sslcert, sslkey, connect_timeout"),
        (f"mariadb://u:{SECRET}@h/d?sslmode=prefer", "write disable, require, verify-ca, verify-full"),
        (f"mariadb://u:{SECRET}@h/d?connect_timeout=soon", "no number of seconds"),
    ],
)
def test_a_wrong_url_is_told_of_without_being_shown(url: str, said: str) -> None:
    """What is valid stands beside it."""
    with pytest.raises(ValueError, match=said) as raised:
        parse_mariadb(url)
    assert SECRET not in str(raised.value)


def test_the_password_shows_in_nothing_that_is_printed() -> None:
    """Neither in the address."""
    assert SECRET not in repr(parse_mariadb(f"mariadb://u:{SECRET}@h/d"))
