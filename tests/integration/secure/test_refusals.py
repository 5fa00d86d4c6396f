"""Whoever may not get in, or may not see something, is told within 15 seconds what is wrong, and what to correct."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reconcile.consumer import Consumer
from reconcile.errors import ReconcileError, RefusedError
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.errors import ClusterRefusedError
from reconcile.lab.certificates import Authority
from reconcile.lab.folder import READER
from reconcile.lab.kafka import Kafka, Proxied
from reconcile.lab.services.database import connected
from tests.integration.secure.world import SecureWorld, message
from tests.ports import ports_of

SOON = 30.0
"""Seconds. We give up after 15; on a busy machine that takes longer, and what nobody has thought of takes a minute."""
LOGIN, TLS = "Check sasl.mechanism, sasl.username and sasl.password", "Check security.protocol and the ssl settings"
NO_LOGIN = {"sasl_mechanism": None, "sasl_username": None, "sasl_password": None}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "password": ({"sasl_password": "file:wrong"}, LOGIN),
    "user": ({"sasl_username": "nobody"}, LOGIN),
    "mechanism": ({"sasl_mechanism": "SCRAM-SHA-256"}, LOGIN),
    "authority": ({"ssl_ca_location": "other/ca.pem"}, TLS),
    "plaintext": ({"security_protocol": "PLAINTEXT", **NO_LOGIN}, "speaks TLS, and our connections are PLAINTEXT"),
    "no log-in": ({"security_protocol": "SSL", **NO_LOGIN}, "Set security.protocol to SASL_SSL"),
}


@contextmanager
def soon() -> Iterator[None]:
    """Let a block take no longer than people wait."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < SOON


@pytest.fixture(params=WRONG)
def wrong(request: pytest.FixtureRequest, world: SecureWorld) -> tuple[Path, str]:
    """Settings with one thing wrong about the cluster, and what is to be corrected."""
    changes, what_to_do = WRONG[request.param]
    (world.folder / "wrong").write_text("wrong")
    other = Authority(world.folder / "other").certificate
    if "ssl_ca_location" in changes:
        changes = {**changes, "ssl_ca_location": str(other)}
    return world.changed(**changes), what_to_do


def test_a_cluster_that_lets_nobody_in_is_named(world: SecureWorld, wrong: tuple[Path, str]) -> None:
    """By the commands that read it, and before any Spark job."""
    settings, what_to_do = wrong
    for words in (("fence", world.contract()), ("doctor", world.contract()), ("trace", world.contract(), "nobody")):
        with soon():
            done = world.run(*words, settings=settings)
        assert isinstance(done.exception, ClusterRefusedError), (words, done.exception, done.output)
        assert what_to_do in message(done)


def test_a_run_that_may_not_read_the_log_is_named(world: SecureWorld, wrong: tuple[Path, str]) -> None:
    """Gathering by Spark tries the connection first."""
    settings, what_to_do = wrong
    with soon():
        done = world.run("run", world.contract(), settings=settings)
    assert what_to_do in message(done)


def test_a_request_says_why_it_woke_nobody(world: SecureWorld, wrong: tuple[Path, str]) -> None:
    """It is kept all the same."""
    settings, what_to_do = wrong
    with soon():
        done = world.run("request", world.contract(), settings=settings)
    assert (0, True) == (done.exit_code, what_to_do in done.stderr)


def test_a_consumer_that_lets_nobody_in_ends(
    world: SecureWorld, wrong: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service does not wait for a password to become right."""
    settings, what_to_do = wrong
    monkeypatch.setenv("RECONCILE_CONN_LOGIN_DB", world.lab.url("login"))
    with soon(), pytest.raises(RefusedError, match=what_to_do):
        consumed(world, settings)


STORES: dict[str, tuple[Callable[[str, Path], str], str]] = {
    "password": (lambda url, _: url.replace(":", ":x", 2).replace("x//", "//", 1), "Check user, password"),
    "authority": (lambda url, other: f"{url.partition('sslrootcert=')[0]}sslrootcert={other}", "Check sslmode"),
    "no authority": (lambda url, _: f"{url.partition('sslrootcert=')[0]}sslrootcert=/nowhere", "Check sslmode"),
    "plaintext": (lambda url, _: f"{url.partition('?')[0]}?sslmode=disable", "It wants TLS"),
}


@pytest.mark.parametrize("which", STORES)
def test_a_store_that_lets_nobody_in_is_named(world: SecureWorld, which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the source of a fence, as the control store, and as the store of a consumer."""
    change, what_to_do = STORES[which]
    other = Authority(world.folder / "other").certificate
    monkeypatch.setenv("RECONCILE_CONN_USER_DB", change(world.lab.url("user", READER), other))
    monkeypatch.setenv("RECONCILE_CONN_LOGIN_DB", change(world.lab.url("login"), other))
    for words in (("fence", world.contract()), ("stash", "list", world.contract())):
        with soon():
            done = world.run(*words)
        assert isinstance(done.exception, RefusedError), (words, done.exception)
        assert what_to_do in message(done)
    with soon(), pytest.raises(RefusedError, match=what_to_do):
        consumed(world, world.settings)


def test_a_table_that_may_not_be_read_is_named(world: SecureWorld) -> None:
    """With what grants it."""
    with connected(world.lab.url("login", "postgres")) as cursor:
        cursor.execute(f"revoke select on login_profile from {READER}")
    try:
        with soon():
            done = world.run("fence", world.contract())
        assert "permission denied for table login_profile; grant select on it" in done.output
    finally:
        with connected(world.lab.url("login", "postgres")) as cursor:
            cursor.execute(f"grant select on login_profile to {READER}")


def test_a_consumer_without_the_librarys_tables_is_told(world: SecureWorld) -> None:
    """The auditor's account is no service's."""
    done = world.run("stash", "list", world.contract())
    assert isinstance(done.exception, RefusedError)
    assert "`reconcile contract grants --for consumer`" in message(done)


def consumed(world: SecureWorld, settings: Path) -> None:
    """Consume for a while with the library."""
    consumer = Consumer.from_contract(world.contract(), "login", lambda _message, _tx: None, settings=settings)
    ending = threading.Timer(SOON + 5, consumer.stop)
    ending.start()
    try:
        consumer.run()
    finally:
        ending.cancel()


def expired(authority: Authority) -> Path:
    """Make a certificate that was valid until yesterday."""
    return authority.issue("expired", timedelta(days=-1))


@pytest.fixture(scope="module")
def other_listener(world: SecureWorld) -> Iterator[dict[str, Any]]:
    """A second broker, which wants a certificate of its clients."""
    ports = ports_of("second secure lab")
    lab = type(world.lab)(world.folder / "second")
    lab.root.mkdir()
    lab.remember(ports=ports, secure=True)
    authority = Authority(lab.authority.parent)
    mutual = {
        "listener.security.protocol.map": "MAIN:SASL_SSL,PROXIED:SSL,CONTROLLER:SSL",
        "listener.name.proxied.ssl.client.auth": "required",
        "super.users": "User:lab;User:CN=broker;User:CN=auditor",
    }
    kafka = Kafka(lab, Proxied(ports.postgres, ports.postgres), mutual)
    kafka.down()
    kafka.wipe()
    try:
        kafka.up()
        yield {"authority": authority, "address": f"127.0.0.1:{ports.postgres}"}
    finally:
        kafka.down()
        kafka.wipe()


def mutual(listener: dict[str, Any], certificate: Path | None) -> dict[str, str]:
    """Build the options of a client that shows a certificate."""
    options = {"bootstrap.servers": listener["address"], "security.protocol": "SSL"}
    options["ssl.ca.location"] = str(listener["authority"].certificate)
    if certificate is not None:
        options |= {"ssl.certificate.location": str(certificate), "ssl.key.location": str(certificate)}
    return options


def test_a_certificate_is_a_log_in(other_listener: dict[str, Any]) -> None:
    """Where the cluster knows clients by their certificates alone (mTLS)."""
    certificate = other_listener["authority"].issue("auditor")
    with closing(ClusterClient("main", mutual(other_listener, certificate))) as client:
        assert 1 == client.brokers()


def test_a_client_without_a_certificate_is_told(other_listener: dict[str, Any], tmp_path: Path) -> None:
    """And one whose certificate has expired, or is of another authority."""
    stranger = Authority(tmp_path).issue("auditor")
    for certificate in (None, expired(other_listener["authority"]), stranger):
        with soon(), pytest.raises(ReconcileError) as refused:
            ClusterClient("main", mutual(other_listener, certificate))
        assert "ssl" in str(refused.value).lower()
        assert isinstance(refused.value, ClusterRefusedError), refused.value


def test_a_broker_whose_certificate_has_expired_is_named(tmp_path: Path) -> None:
    """Nobody takes the certificate for a wrong password, or the broker for one that is down."""
    authority = Authority(tmp_path)
    with tls_listener(expired(authority)) as address, soon():
        options = {"bootstrap.servers": address, "security.protocol": "SSL"}
        with pytest.raises(ClusterRefusedError, match="certificate"):
            ClusterClient("main", {**options, "ssl.ca.location": str(authority.certificate)})


@contextmanager
def tls_listener(certificate: Path) -> Iterator[str]:
    """Shake hands with whoever comes, and say no more; a broker does not start with such a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def serve() -> None:
            listener.settimeout(0.1)
            while not stop.is_set():
                with suppress(OSError):
                    accepted, _ = listener.accept()
                    accepted.settimeout(2)
                    context.wrap_socket(accepted, server_side=True).close()

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            serving.join()
