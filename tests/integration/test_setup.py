"""`reconcile setup` against a repository on loopback, with PySpark's own Ivy."""

from __future__ import annotations

import hashlib
import io
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from reconcile import files
from reconcile.errors import RefusedError, UnreachableError
from reconcile.spark import setup
from tests.schemas import valid_output

# As ivy.xml, with two small jars.
ASKED = """<ivy-module version="2.0"><info organisation="o" module="jars"/>
<configurations defaultconfmapping="*->master"><conf name="spark"/><conf name="broker"/>
<conf name="delta"/></configurations>
<dependencies>
  <dependency org="org.one" name="one" rev="1.0" conf="spark->master;delta->master"/>
  <dependency org="org.two" name="two" rev="{two}" conf="broker->master"/>
</dependencies></ivy-module>"""
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>org.{0}</groupId><artifactId>{0}</artifactId>
<version>1.0</version></project>"""


class Repository(SimpleHTTPRequestHandler):
    """Serves files, also as a proxy; keeps what it was asked for."""

    server: Server

    def do_GET(self) -> None:
        """Answer a request for a path or, as a proxy, for a URL."""
        parts = urlsplit(self.path)
        self.server.asked.append((parts.netloc, Path(parts.path).name, self.headers.get("Proxy-Authorization", "")))
        self.path = parts.path
        if self.server.wants_password and parts.netloc and "Proxy-Authorization" not in self.headers:
            self.send_response(407)
            self.send_header("Proxy-Authenticate", 'Basic realm="proxy"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.command == "HEAD":
            super().do_HEAD()
        elif self.server.held and self.path.endswith(self.server.held):
            self.server.holding.set()
            self.server.free.wait(30)
            self.close_connection = True
        else:
            super().do_GET()

    do_HEAD = do_GET  # noqa: N815 - as the base class names it

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """A repository on loopback."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Repository, directory=str(folder)))
        self.asked: list[tuple[str, str, str]] = []
        self.wants_password = False
        self.held = ""
        self.holding, self.free = threading.Event(), threading.Event()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A repository with two jars."""
    for name in ("one", "two"):
        folder = tmp_path / "repository" / "org" / name / name / "1.0"
        folder.mkdir(parents=True)
        (folder / f"{name}-1.0.pom").write_text(POM.format(name), "utf-8")
        (folder / f"{name}-1.0.jar").write_bytes(packed(name))
    server = Server(tmp_path / "repository")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.free.set()
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that asks for two jars, with a cache of its own, and classes that nobody archives."""
    monkeypatch.setattr(files, "_PACKAGED", tmp_path / "installed")
    ask(tmp_path, "1.0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(setup, "_archive", lambda *_: None)
    for name in ("RECONCILE_JARS", "http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)


def packed(name: str) -> bytes:
    """Pack a jar that is the same whenever it is packed."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as jar:
            jar.writestr(zipfile.ZipInfo("name"), name)
        return file.getvalue()


def ask(folder: Path, two: str) -> None:
    """Write what is asked for, and the checksums."""
    (folder / "installed").mkdir(exist_ok=True)
    (folder / "installed" / "ivy.xml").write_text(ASKED.format(two=two), "utf-8")
    one, other = (hashlib.sha256(packed(name)).hexdigest() for name in ("one", "two"))
    pins = f"{one}  spark/one-1.0.jar\n{one}  delta/one-1.0.jar\n{other}  broker/two-{two}.jar\n"
    (folder / "installed" / "ivy.sha256").write_text(pins, "utf-8")


def fetched() -> list[str]:
    """Give the names of the jars that are in place."""
    return [jar.name for each in setup.CONFIGURATIONS for jar in files.jars(each)]


def test_the_jars_come_from_a_mirror(server: Server) -> None:
    """And are there for those who look for them; how far it is, is told."""
    told: list[setup.Progress] = []
    made = setup.set_up(server.url, told.append)
    assert (["one-1.0.jar", "two-1.0.jar"], 2, True) == (fetched(), made.jars, made.anew)
    assert setup.Progress("fetching jars", 2, 2) in told


def test_what_is_there_stays(server: Server) -> None:
    """Nobody is asked again."""
    setup.set_up(server.url)
    server.asked.clear()
    assert (False, []) == (setup.set_up(server.url).anew, server.asked)


def test_other_jars_are_fetched_anew(server: Server, tmp_path: Path) -> None:
    """Into a folder of their own; what cannot be found is named, and the old ones stay."""
    setup.set_up(server.url)
    before = files.jars_folder()
    ask(tmp_path, "2.0")
    with pytest.raises(RefusedError, match=r"has no org\.two#two;2\.0, which ivy\.xml asks for"):
        setup.set_up(server.url)
    assert (before / "broker" / "two-1.0.jar").is_file()


def test_a_named_folder_gets_other_jars_in_place(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is complete there is not taken for what is asked for now."""
    monkeypatch.setenv("RECONCILE_JARS", str(tmp_path / "jars"))
    setup.set_up(server.url)
    repository = tmp_path / "repository" / "org" / "two" / "two"
    (repository / "2.0").mkdir()
    for kind in ("pom", "jar"):
        text = (repository / "1.0" / f"two-1.0.{kind}").read_bytes().replace(b"<version>1.0<", b"<version>2.0<")
        (repository / "2.0" / f"two-2.0.{kind}").write_bytes(text)
    ask(tmp_path, "2.0")
    setup.set_up(server.url)
    assert ["one-1.0.jar", "two-2.0.jar"] == fetched()


@pytest.mark.parametrize("changed", ["one", "two"])
def test_a_jar_that_is_not_the_one_that_was_pinned_is_not_used(server: Server, tmp_path: Path, changed: str) -> None:
    """Ivy itself takes what a repository says of its own files; nothing of what came with it is used either."""
    (tmp_path / "repository" / "org" / changed / changed / "1.0" / f"{changed}-1.0.jar").write_bytes(packed("evil"))
    with pytest.raises(RefusedError, match=rf"/{changed}-1\.0\.jar: what was fetched is not what ivy\.sha256"):
        setup.set_up(server.url)
    with pytest.raises(RefusedError, match="reconcile setup"):
        files.jars("spark")


def test_a_jar_that_nobody_pinned_is_not_used(server: Server, tmp_path: Path) -> None:
    """As one that a new version of another brings."""
    pins = tmp_path / "installed" / "ivy.sha256"
    pins.write_text("".join(pins.read_text("utf-8").splitlines(keepends=True)[:-1]), "utf-8")
    with pytest.raises(RefusedError, match=r"broker/two-1\.0\.jar: what was fetched"):
        setup.set_up(server.url)


def test_checksums_are_pinned_of_what_is_fetched(server: Server, tmp_path: Path) -> None:
    """By the target of the Makefile, after a change of ivy.xml."""
    pins = tmp_path / "installed" / "ivy.sha256"
    before = sorted(pins.read_text("utf-8").splitlines())
    pins.unlink()
    setup.pin(tmp_path / "installed" / "ivy.xml", ("spark", "broker", "delta"), server.url)
    assert before == sorted(pins.read_text("utf-8").splitlines())


def test_optional_jars_are_fetched_where_they_are_asked_for(server: Server) -> None:
    """Before that, who needs them is told the command; later they are kept up to date."""
    setup.set_up(server.url)
    with pytest.raises(RefusedError, match="run `reconcile setup --with delta`"):
        files.jars("delta")
    made = setup.set_up(server.url, more=("delta",))
    assert (True, 3, ["one-1.0.jar"]) == (made.anew, made.jars, [jar.name for jar in files.jars("delta")])
    made = setup.set_up(server.url)
    assert (False, 3) == (made.anew, made.jars)


def test_an_interrupted_setup_goes_on(server: Server, tmp_path: Path) -> None:
    """What was fetched is not fetched again, and no jar is in place before all are."""
    server.held = "two-1.0.jar"
    imports = "from reconcile import files; from reconcile.spark import setup"
    code = f"{imports}; files._PACKAGED = files.Path({str(tmp_path / 'installed')!r}); "
    command = [sys.executable, "-c", f"{code} setup.set_up({server.url!r})"]
    asking = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    assert server.holding.wait(60)
    asking.send_signal(signal.SIGINT)
    assert 0 != asking.wait(30)
    with pytest.raises(RefusedError, match="reconcile setup"):
        files.jars("spark")
    server.held = ""
    server.free.set()
    server.asked.clear()
    setup.set_up(server.url)
    assert ["one-1.0.jar", "two-1.0.jar"] == fetched()
    assert "one-1.0.jar" not in [name for _, name, _ in server.asked]


def test_a_proxy_is_used_with_its_password(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the environment names one."""
    server.wants_password = True
    monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{server.server_port}")
    setup.set_up("http://mirror.invalid")
    assert ["one-1.0.jar", "two-1.0.jar"] == fetched()
    assert ("mirror.invalid", "one-1.0.jar", "Basic bWU6c2VjcmV0") in server.asked


def test_a_proxy_that_wants_a_password_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """With how to give one."""
    server.wants_password = True
    monkeypatch.setenv("http_proxy", server.url)
    with pytest.raises(RefusedError, match=r"wants a user: HTTPS_PROXY="):
        setup.set_up("http://mirror.invalid")


def test_a_host_beside_the_proxy_is_asked_itself(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NO_PROXY says, and always on this machine."""
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:9")
    setup.set_up(server.url)
    assert {""} == {host for host, _, _ in server.asked}


def test_without_a_network_it_is_told_what_to_do(server: Server) -> None:
    """The jars can be copied."""
    server.server_close()
    with pytest.raises(
        UnreachableError, match=r"copy the folder of the jars from a machine .* set RECONCILE_JARS to it"
    ):
        setup.set_up(server.url)


def test_a_server_that_refuses_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the URL that it refused."""
    for method in ("do_HEAD", "do_GET"):
        monkeypatch.setattr(Repository, method, lambda self: self.send_error(403))
    with pytest.raises(RefusedError, match=r"/org/one/one/1\.0/one-1\.0\.\w+ is refused \(Forbidden\)"):
        setup.set_up(server.url)


def test_the_command_tells_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As data, where they are asked for."""
    monkeypatch.setenv("RECONCILE_JARS", str(tmp_path / "jars"))
    jar = tmp_path / "jars" / "{}" / "a.jar"
    for each in setup.CONFIGURATIONS:
        place = Path(str(jar).format(each))
        place.parent.mkdir(parents=True)
        place.touch()
    version = subprocess.run(
        [sys.executable, "-c", "from reconcile import files; print(files.jars_version())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (tmp_path / "jars" / ".ready").write_text(f"{version}{setup._java()[1]}\n", "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "reconcile.cli", "setup", "--json"], capture_output=True, text=True, check=True
    )
    told = valid_output("setup", done.stdout)
    assert (str(tmp_path / "jars"), 2, None, False) == tuple(told[key] for key in ("folder", "jars", "archive", "anew"))
