"""What a registry answers, and what it does not: only its own word that there is no schema makes a value unreadable."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from reconcile.errors import RefusedError, UnreachableError
from reconcile.gather.log import schema_registry as client
from reconcile.gather.log.schema_registry import RegistryAddress
from reconcile.gather.log.value_reader import ValueReader
from reconcile.lab.certificates import Authority
from reconcile.lab.schema_registry import Registry, serving
from reconcile.settings import connections

PART = {"type": "record", "name": "Part", "fields": [{"name": "n", "type": "int"}]}
WHOLE = {"type": "record", "name": "Whole", "fields": [{"name": "part", "type": "Part"}]}
VALUE = struct.pack(">bI", 0, 2) + b"\x0e"


@pytest.fixture
def held() -> Iterator[Registry]:
    """A registry with a schema that refers to another."""
    held = Registry()
    held.register("parts", json.dumps(PART))
    held.register("wholes", json.dumps(WHOLE), "AVRO", [{"name": "Part", "subject": "parts", "version": 1}])
    with serving(held):
        yield held


def reader(held: Registry) -> ValueReader:
    """Reads by this registry."""
    return ValueReader("avro", registry=RegistryAddress(held.url))


@pytest.mark.parametrize(("answer", "error", "said"), [
    ((404, "<html>no such page</html>"), UnreachableError, "404 for /schemas/ids/2 without a code of its own"),
    ((404, '{"error_code": 404, "message": "HTTP 404 Not Found"}'), UnreachableError, "a proxy"),
    ((500, "{}"), UnreachableError, "fails: 500"),
    ((503, '{"error_code": 40403}'), UnreachableError, "fails: 503"),
    ((429, ""), UnreachableError, "fails: 429"),
    ((401, "{}"), RefusedError, "does not let us in: 401"),
    ((403, "{}"), RefusedError, "does not let us in: 403"),
    ((302, ""), RefusedError, "is no schema registry"),
    ((200, "<html>log in</html>"), RefusedError, "is no schema registry"),
    ((200, "[1]"), RefusedError, "is no schema registry"),
    ((200, '{"id": 2}'), RefusedError, "is no schema registry"),
])  # fmt: skip
def test_what_is_not_the_registrys_own_word_is_no_unreadable_value(
    held: Registry, answer: tuple[int, str], error: type[Exception], said: str
) -> None:
    """Nothing is known then, and nothing is kept: the same value is read once the registry answers."""
    held.answer = answer
    with pytest.raises(error, match=said):
        reader(held).read(VALUE)
    held.answer = None
    assert '{"__type": "Whole", "part": {"n": 7}}' == reader(held).read(VALUE)


@pytest.mark.parametrize("answer", [(200, "<html></html>"), (200, "{}"), (404, ""), (302, "")])
def test_what_is_no_registry_is_told_before_anything_is_read(held: Registry, answer: tuple[int, str]) -> None:
    """The connection's setting is named."""
    held.answer = answer
    with pytest.raises((RefusedError, UnreachableError), match="correct the connection's `registry`"):
        RegistryAddress(held.url).check()


def test_an_older_registry_is_one_too(held: Registry) -> None:
    """It does not know which types of schemas there are, but its own word for an unknown schema is enough."""
    held.answer = (404, '{"error_code": 40403, "message": "Schema not found"}')
    RegistryAddress(held.url).check()


def test_a_schema_that_is_not_there_makes_its_values_unreadable(held: Registry) -> None:
    """The registry is asked once for a while, not once for each record."""
    held.asked.clear()
    assert [None] * 5 == [reader(held).read(struct.pack(">bI", 0, 99) + b"\x0e")] * 5
    assert ["/schemas/ids/99"] == held.asked


def test_a_subject_that_is_deleted_softly_is_still_referred_to(held: Registry) -> None:
    """One that is deleted for good is not: its values cannot be read any more."""
    held.delete("parts")
    assert reader(held).read(VALUE) is not None
    with serving(Registry(schemas=dict(held.schemas))) as gone:
        assert reader(gone).read(VALUE) is None


def test_a_registry_that_says_nothing_has_a_name_within_15_seconds(
    held: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question has two steps at most that wait so long."""
    assert 2 * client.TIMEOUT < 15
    monkeypatch.setattr(client, "TIMEOUT", 0.2)
    held.stalled.set()
    with pytest.raises(UnreachableError, match="does not answer: timed out"):
        RegistryAddress(held.url).check()


@pytest.mark.parametrize("schema", ["{", '{"type": "recrd"}', '["Part"]', '{"type": {"type": {}}}', "7"])
def test_a_schema_that_is_none_makes_its_values_unreadable(held: Registry, schema: str) -> None:
    """It ends no run."""
    number = held.register("odd", schema)
    assert reader(held).read(struct.pack(">bI", 0, number) + b"\x0e") is None


def test_protobuf_that_is_served_as_text_is_compiled(held: Registry) -> None:
    """With what it refers to and what it imports; what cannot be compiled is no unreadable value."""
    held.register("base", 'syntax = "proto3"; package shop; message Base { string id = 1; }', "PROTOBUF")
    imports = ("shop/base.proto", "google/protobuf/timestamp.proto", "google/type/date.proto")
    head = 'syntax = "proto3"; package shop; ' + " ".join(f'import "{each}";' for each in imports)
    fields = "Base base = 1; google.protobuf.Timestamp at = 2; google.type.Date day = 3;"
    reference = [{"name": "shop/base.proto", "subject": "base", "version": 1}]
    number = held.register("top", f"{head} message Top {{ {fields} }}", "PROTOBUF", reference)
    by_text = ValueReader("protobuf", registry=RegistryAddress(held.url))
    read = by_text.read(struct.pack(">bI", 0, number) + b"\0\x0a\x03\x0a\x01x")
    assert {"__type": "shop.Top", "base": {"id": "x"}, "at": None, "day": None} == json.loads(read or "")
    broken = held.register("broken", 'syntax = "proto3"; message {', "PROTOBUF")
    with pytest.raises(RefusedError, match="cannot be compiled"):
        by_text.read(struct.pack(">bI", 0, broken) + b"\0")
    leading = [{"name": "../base.proto", "subject": "base", "version": 1}]
    elsewhere = held.register("elsewhere", 'syntax = "proto3"; message M {}', "PROTOBUF", leading)
    assert by_text.read(struct.pack(">bI", 0, elsewhere) + b"\0") is None


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Registry]:
    """A registry that wants TLS and a log-in."""
    held = Registry("auditor", "a word")
    held.register("parts", json.dumps(PART))
    with serving(held, Authority(tmp_path).issue("registry")) as serving_it:
        yield serving_it


def address(url: str, **security: str) -> RegistryAddress:
    """Build the address that a connection gives."""
    said = {name.replace("_", "."): value for name, value in security.items()}
    return RegistryAddress.of(connections.Registry.model_validate({"registry": url, "security": said}))


def test_a_registry_behind_tls_and_a_log_in_is_read(
    secure: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the connection says."""
    monkeypatch.setenv("PASSWORD", "a word")
    login = {"sasl_username": "auditor", "sasl_password": "env:PASSWORD"}
    found = address(secure.url, **login, ssl_ca_location=str(tmp_path / "ca.pem"))
    found.check()
    assert PART == json.loads(found.schema(1).text)


@pytest.mark.parametrize("what", ["password", "authority", "no authority", "expired", "plaintext"])
def test_a_registry_that_lets_nobody_in_is_named(
    secure: Registry, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong password, a certificate that is not trusted, and http where https is spoken."""
    monkeypatch.setenv("PASSWORD", "wrong" if what == "password" else "a word")
    login = {"sasl_username": "auditor", "sasl_password": "env:PASSWORD"}
    other = Authority(tmp_path / "other")
    trusted = {"ssl_ca_location": str(other.certificate if what == "authority" else tmp_path / "ca.pem")}
    url = secure.url.replace("https", "http") if what == "plaintext" else secure.url
    said = {"password": "does not let us in: 401", "plaintext": "write https:// in `registry`"}
    with ExitStack() as stack:
        if what == "expired":
            expired = Authority(tmp_path).issue("expired", timedelta(days=-1))
            url = stack.enter_context(serving(Registry(), expired)).url
        with pytest.raises(RefusedError, match=said.get(what, "do not agree on TLS: CERTIFICATE_VERIFY_FAILED")):
            address(url, **login, **({} if what == "no authority" else trusted)).check()


def test_a_certificate_is_no_log_in_of_a_registry() -> None:
    """It is refused and not passed over."""
    with pytest.raises(RefusedError, match=r"ssl\.certificate\.location"):
        address("https://registry", ssl_certificate_location="/some.pem")
