"""A cluster's settings for Spark: the same meaning in Java's words, and no secret in what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconcile.errors import RefusedError, SecretError
from reconcile.kafka.options import for_librdkafka, for_spark, without_secrets

KEY = "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n"


def scram(password: str) -> dict[str, str]:
    """A cluster that asks for a password."""
    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "svc", "sasl.password": password}
    return {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", **login}


def test_a_password_goes_into_the_login_module() -> None:
    """Java takes user and password as JAAS, quoted."""
    options = for_spark(scram('a"b\\c'))
    expected = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="svc" password="a\\"b\\\\c";'
    assert expected == options["kafka.sasl.jaas.config"]
    assert "SASL_SSL" == options["kafka.security.protocol"]
    assert not [name for name in options if "password" in name]


def test_files_go_as_text(tmp_path: Path) -> None:
    """Executors need no files of ours."""
    for name, text in (("ca", "CA"), ("cert", "CERT"), ("key", KEY)):
        (tmp_path / name).write_text(text)
    files = {"ssl.ca.location": "ca", "ssl.certificate.location": "cert", "ssl.key.location": "key"}
    settings = {"bootstrap.servers": "b", "security.protocol": "SSL"}
    options = for_spark({**settings, **{name: str(tmp_path / file) for name, file in files.items()}})
    assert ("PEM", "CA") == (options["kafka.ssl.truststore.type"], options["kafka.ssl.truststore.certificates"])
    assert ("PEM", "CERT") == (options["kafka.ssl.keystore.type"], options["kafka.ssl.keystore.certificate.chain"])
    assert KEY == options["kafka.ssl.keystore.key"]


def test_what_java_cannot_do_is_told() -> None:
    """A key in an old form, a mechanism without a login module, a password that is missing, a file that is missing."""
    base = {"bootstrap.servers": "b", "security.protocol": "SSL"}
    with pytest.raises(RefusedError, match="PKCS#8"):
        for_spark({**base, "ssl.key.pem": "-----BEGIN RSA PRIVATE KEY-----"})
    with pytest.raises(RefusedError, match="OAUTHBEARER"):
        for_spark({**base, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"})
    with pytest.raises(RefusedError, match=r"sasl\.password"):
        for_spark({name: value for name, value in scram("x").items() if name != "sasl.password"})
    with pytest.raises(SecretError, match="cannot be read"):
        for_spark({**base, "ssl.ca.location": "/nowhere/ca.pem"})


def test_host_names_are_checked_unless_told() -> None:
    """Java leaves the check out for an empty name."""
    name = "ssl.endpoint.identification.algorithm"
    assert "" == for_spark({"bootstrap.servers": "b", name: "none"})[f"kafka.{name}"]
    assert "https" == for_spark({"bootstrap.servers": "b", name: "https"})[f"kafka.{name}"]


def test_nobody_waits_for_a_minute() -> None:
    """Both clients give up after the same time."""
    settings = {"bootstrap.servers": "b"}
    assert "15000" == for_spark(settings)["kafka.default.api.timeout.ms"]
    assert "15000" == for_spark(settings)["kafka.request.timeout.ms"]
    assert "15000" == for_librdkafka(settings)["socket.timeout.ms"]


def test_secrets_are_taken_out_of_a_text() -> None:
    """Passwords vanish in either client's words."""
    settings = scram("hunter2")
    text = f"failed with {for_spark(settings)} and {settings}"
    assert "hunter2" not in without_secrets(text, settings, for_spark(settings))
