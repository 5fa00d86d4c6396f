"""What `reconcile setup` decides: where jars belong, how Java is told of proxies, and what a failure means."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from reconcile import files
from reconcile.errors import InvalidFileError, RefusedError, UnreachableError
from reconcile.settings.settings import load_settings
from reconcile.spark import setup
from reconcile.spark.java_proxy import JavaProxies, java_proxies

PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
NOT_FOUND = "\t\tmodule not found: org.postgresql#postgresql;42.7.14\n"
MIRROR = "https://mirror.internal/maven"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy and no folder but those of the test."""
    for name in (*PROXIES, *map(str.upper, PROXIES), "RECONCILE_JARS", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)


def java(folder: Path, says: str) -> Path:
    """Write a program that is asked for its version as Java is."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n", "utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


def test_a_clone_keeps_its_jars() -> None:
    """Beside the code."""
    assert files.committed("jars") == files.jars_folder()


def test_an_installed_package_keeps_its_jars_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder for these very jars, of these very versions."""
    monkeypatch.setattr(files, "_PACKAGED", tmp_path / "installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "ivy.xml").write_text("<ivy-module/>", "utf-8")
    first = files.jars_folder()
    (tmp_path / "installed" / "ivy.xml").write_text("<ivy-module version='2'/>", "utf-8")
    second = files.jars_folder()
    assert [tmp_path / "cache" / "reconcile" / "jars"] * 2 == [first.parent, second.parent]
    assert first != second


def test_the_folder_of_the_jars_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By RECONCILE_JARS, also as a path from here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECONCILE_JARS", "mine")
    assert tmp_path / "mine" == files.jars_folder()


def test_no_proxy_is_no_option() -> None:
    """Java goes where it is sent."""
    assert JavaProxies({}, ()) == java_proxies()


def test_java_is_told_of_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the hosts that it is not for, as Java writes them."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.internal:3128")
    monkeypatch.setenv("NO_PROXY", "mirror.internal, .example.com:443,10.0.0.0/8")
    never = "localhost|127.*|[::1]|mirror.internal|*.mirror.internal|example.com|*.example.com"
    expected = (
        "-Dhttps.proxyHost=proxy.internal",
        "-Dhttps.proxyPort=3128",
        f"-Dhttp.nonProxyHosts={never}",
    )
    assert JavaProxies({"https": "proxy.internal:3128"}, expected) == java_proxies()


def test_a_proxy_may_want_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes to Java in a file, with what Java's files want escaped, and is in no message."""
    monkeypatch.setenv("https_proxy", "http://me:p%40ss%22word@proxy.internal")
    found = java_proxies()
    assert {"https": "proxy.internal:80"} == found.addresses
    assert '"-Dhttp.proxyUser=me"\n"-Dhttp.proxyPassword=p@ss\\"word"\n' in found.argument_file()
    assert '"-Djdk.http.auth.tunneling.disabledSchemes="\n' in found.argument_file()


@pytest.mark.parametrize("url", ["socks5://me:secret@proxy.internal:1080", "http://", "http://proxy.internal:x"])
def test_a_proxy_that_java_cannot_use_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without telling its password."""
    monkeypatch.setenv("HTTPS_PROXY", url)
    with pytest.raises(RefusedError, match=r"HTTPS_PROXY .* http://\[user:password@\]host:port") as raised:
        java_proxies()
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("java.io.IOException: No space left on device", RefusedError, "the disk is full"),
        (
            f"\tYour proxy requires authentication.\n{NOT_FOUND}",
            RefusedError,
            "the proxy proxy:3128 wants a user: HTTPS_PROXY=http://user:password@host:port",
        ),
        (
            f'{NOT_FOUND}(java.io.IOException: Unable to tunnel through proxy. Proxy returns "HTTP/1.1 403 Forbidden")',
            RefusedError,
            f"the proxy proxy:3128 refuses {MIRROR} (403 Forbidden)",
        ),
        (
            f"{NOT_FOUND}\tServer access error at url {MIRROR}/x.pom (java.net.ConnectException: Connection refused)",
            UnreachableError,
            f"{MIRROR} does not answer through the proxy proxy:3128 (java.net.ConnectException: Connection refused)",
        ),
        (
            f"\tHost mirror.internal not found. url={MIRROR}/x.pom\n{NOT_FOUND}",
            UnreachableError,
            "set RECONCILE_JARS to it",
        ),
        (f"SERVER ERROR: Bad Gateway url={MIRROR}/x.pom\n{NOT_FOUND}", UnreachableError, "(SERVER ERROR: Bad Gateway)"),
        (
            f"CLIENT ERROR: Unauthorized url={MIRROR}/x.pom\n{NOT_FOUND}",
            RefusedError,
            f"{MIRROR}/x.pom is refused through the proxy proxy:3128 (Unauthorized)",
        ),
        (NOT_FOUND, RefusedError, f"{MIRROR} has no org.postgresql#postgresql;42.7.14"),
        ("something else", RefusedError, "Ivy failed: something else"),
    ],
)
def test_a_failure_is_told_with_its_reason(said: str, kind: type[Exception], told: str, tmp_path: Path) -> None:
    """What did not answer may answer later; the rest wants a person."""
    failure = setup._failure(said, tmp_path / "resolve.log", MIRROR, JavaProxies({"https": "proxy:3128"}, ()))
    assert (kind, True) == (type(failure), told in str(failure)), failure


def test_java_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is told with what to do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RefusedError, match=r"no `java` is on the PATH: install one .* or set JAVA_HOME"):
        setup.set_up(None)


@pytest.mark.parametrize("version", ['java version "1.8.0_402"', 'openjdk version "11.0.2" 2019-01-15'])
def test_java_may_be_too_old(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is told with what there is."""
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, version)))
    with pytest.raises(RefusedError, match=r"Java 17 or newer is needed; .* is (java|openjdk) version"):
        setup.set_up(None)


def test_a_full_disk_is_seen_before_anything_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is needed, and what there is."""
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, 'openjdk version "21"')))
    monkeypatch.setenv("RECONCILE_JARS", str(tmp_path / "jars"))
    monkeypatch.setattr(setup, "_ROOM", {"the jars": os.statvfs(tmp_path).f_blocks * 10**6})
    with pytest.raises(RefusedError, match=r"the disk is full: the jars need \d+ MB, and .*jars has \d+ MB"):
        setup.set_up(None)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands where the folder belongs."""
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, 'openjdk version "17.0.1"')))
    monkeypatch.setenv("RECONCILE_JARS", str(tmp_path / "bin" / "java" / "jars"))
    with pytest.raises(RefusedError, match=r"java/jars: Not a directory; the jars belong in "):
        setup.set_up(None)


@pytest.mark.parametrize("url", ["mirror.internal", "ftp://mirror.internal", "https://me:secret@mirror.internal", ""])
def test_a_mirror_is_a_url_without_secrets(url: str, tmp_path: Path) -> None:
    """A wrong one is told of with its place."""
    file = tmp_path / "reconcile.yaml"
    file.write_text(f"setup: {{mirror: '{url}'}}\n", "utf-8")
    with pytest.raises(InvalidFileError, match=r"setup\.mirror") as raised:
        load_settings(file)
    assert "secret" not in str(raised.value)


def test_the_settings_name_a_mirror(tmp_path: Path) -> None:
    """Once for all who use them."""
    file = tmp_path / "reconcile.yaml"
    file.write_text(f"setup: {{mirror: {MIRROR}}}\n", "utf-8")
    assert MIRROR == load_settings(file).setup.mirror
