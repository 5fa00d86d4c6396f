"""Fetches the jars of ivy.xml by the Ivy that ships inside PySpark, and has Java archive Spark's classes.

What is complete is never fetched again, and what an interrupt left is taken up: Ivy keeps each file that it fetched, a
folder of jars takes its place when all of them are in it, and `.ready` is written last.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from reconcile import files
from reconcile.errors import ReconcileError, RefusedError, UnreachableError
from reconcile.spark import class_archive
from reconcile.spark.java_proxy import JavaProxies, java_proxies

CONFIGURATIONS = ("spark", "broker")
OPTIONAL = ("iceberg", "delta")
"""What only runs over the tables of a lake need."""
_OLDEST_JAVA = 17
_INSTALL_JAVA = "install one (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
_READY = ".ready"
_FETCHED = ".fetched"
_PARTIAL = ".partial"
_PINS = ".sha256"
# The jars lie in Ivy's cache too.
_ROOM = {"the jars": 150_000_000, "Spark's class archive": 250_000_000}
_FOUND = re.compile(r"\tfound (\S+) in ")
_HAVE = re.compile(r"\t\[(?:SUCCESSFUL |NOT REQUIRED)\] \S+!\S+\.jar")
_MAVENS = "https:"
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
_NO_USER = re.compile(r'proxy requires authentication|Proxy returns "HTTP/\S+ 407')
_NO_TUNNEL = re.compile(r'Proxy returns "HTTP/\S+ ([^"]+)')
_NO_ACCESS = re.compile(r"CLIENT ERROR: (Unauthorized|Forbidden) url=(\S+)")
_NO_ANSWER = re.compile(r"Server access error at url \S+ \((.+)\)|(Host \S+ not found)|(SERVER ERROR: .+) url=")
_NOT_FOUND = re.compile(r"module not found: (\S+)|\[NOT FOUND +\] (\S+?)[!(]|\[FAILED +\] (\S+?)[!(]")
_WITHOUT_NETWORK = (
    "name a mirror with --mirror, or copy the folder of the jars from a machine with the same versions of reconcile and"
    " PySpark, and set RECONCILE_JARS to it"
)


@dataclass(frozen=True)
class Progress:
    """How far it is."""

    doing: str
    done: int = 0
    total: int | None = None


@dataclass(frozen=True)
class Made:
    """What is there afterwards."""

    folder: Path
    jars: int
    archive: Path | None
    """Spark's class archive; None where this Java makes none."""
    anew: bool
    """Whether there was anything to do."""


def set_up(mirror: str | None, tell: Callable[[Progress], None] = lambda _: None, more: Collection[str] = ()) -> Made:
    """Fetch the jars and make the archive, as far as they are not there; `mirror` stands in for Maven's repository.

    `more` are of the optional configurations; those that were fetched before are kept up to date as well.
    Raises UnreachableError when something does not answer, and RefusedError for all that trying again does not mend.
    """
    folder, version = files.jars_folder(), files.jars_version()
    _, java_version = _java()
    ready = f"{version}\n{java_version}\n"
    wanted = (*CONFIGURATIONS, *(each for each in OPTIONAL if each in more or (folder / each).is_dir()))
    anew = _text(folder / _READY) != ready or bool(_lacking(folder, wanted))
    if anew:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _alone(folder, tell):
                fetching = wanted if _text(folder / _FETCHED) != version else _lacking(folder, wanted)
                if fetching:
                    fetch(files.committed("ivy.xml"), fetching, folder, mirror, tell)
                if set(fetching) & set(CONFIGURATIONS):
                    files.class_archive().unlink(missing_ok=True)  # it was of other jars
                    _write(folder / _FETCHED, version)
                if _text(folder / _READY) != ready or not files.class_archive().is_file():
                    _archive(folder, tell)
                _write(folder / _READY, ready)
        except OSError as error:
            raise RefusedError(f"{error.filename or folder}: {error.strerror}; the jars belong in {folder}") from None
    archive = files.class_archive()
    jars = sum(len(files.jars(each)) for each in wanted)
    return Made(folder, jars, archive if archive.is_file() else None, anew)


def _java() -> tuple[str, str]:
    """Choose the Java that Spark will run on; give its path, and what it says of its version."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise RefusedError(f"Java {_OLDEST_JAVA} or newer is needed, and no `java` is on the PATH: {_INSTALL_JAVA}")
    try:
        ran = subprocess.run([java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RefusedError(f"Java {_OLDEST_JAVA} or newer is needed, and {java} does not run ({error})") from None
    said = ran.stderr.strip()
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None or int(found.group(1)) < _OLDEST_JAVA:
        raise RefusedError(
            f"Java {_OLDEST_JAVA} or newer is needed; {java} is {said.partition(chr(10))[0]}: {_INSTALL_JAVA}"
        )
    return java, said


def fetch(
    ivy: Path,
    configurations: Sequence[str],
    folder: Path,
    mirror: str | None,
    tell: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Fetch the jars of an Ivy file into a folder for each of its configurations; raise as `set_up` does.

    Each has to have the checksum that stands beside the Ivy file, and there is no other.
    """
    partial = _resolved(ivy, configurations, folder, mirror, tell)
    _require_pinned(ivy.with_suffix(_PINS), partial, configurations)
    for each in configurations:
        shutil.rmtree(folder / each, ignore_errors=True)
        (partial / each).rename(folder / each)
    partial.rmdir()


def pin(ivy: Path, configurations: Sequence[str], mirror: str | None = None) -> None:
    """Write the checksums of the jars that an Ivy file asks for, as they are fetched now; raise as `set_up` does."""
    with tempfile.TemporaryDirectory(prefix="reconcile-") as temporary:
        partial = _resolved(ivy, configurations, Path(temporary), mirror, lambda _: None)
        lines = [f"{checksum}  {name}\n" for name, checksum in _checksums(partial, configurations).items()]
    ivy.with_suffix(_PINS).write_text("".join(lines), "utf-8")


def _require_pinned(pins: Path, folder: Path, configurations: Sequence[str]) -> None:
    lines = [line.split() for line in pins.read_text("utf-8").splitlines()]
    pinned = {name: checksum for checksum, name in lines if name.partition("/")[0] in configurations}
    found = _checksums(folder, configurations)
    differing = sorted(name for name in pinned.keys() | found.keys() if pinned.get(name) != found.get(name))
    if differing:
        raise RefusedError(
            f"{', '.join(differing)}: what was fetched is not what {pins.name} has a checksum of, so that none of it is"
            f" used; see what answers for Maven's repository, delete {files.cache() / 'ivy'}, and try again"
        )


def _checksums(folder: Path, configurations: Sequence[str]) -> dict[str, str]:
    jars = (jar for each in configurations for jar in sorted((folder / each).glob("*.jar")))
    return {f"{jar.parent.name}/{jar.name}": hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars}


def _resolved(
    ivy: Path, configurations: Sequence[str], folder: Path, mirror: str | None, tell: Callable[[Progress], None]
) -> Path:
    """Have Ivy fetch the jars; return the folder that holds a folder for each configuration."""
    java, _ = _java()
    _require_room(folder, "the jars")
    proxies = java_proxies()
    partial = folder / _PARTIAL
    shutil.rmtree(partial, ignore_errors=True)
    files.cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="reconcile-") as temporary:
        options = Path(temporary, "options")  # and not on the command line, which everybody can read
        options.write_text(proxies.argument_file(), "utf-8")
        command = [java, f"@{options}", "-jar", str(_ivy()), "-verbose", "-ivy", str(ivy)]
        if mirror is not None:
            settings = Path(temporary, "ivysettings.xml")
            settings.write_text(_settings(mirror), "utf-8")
            command += ["-settings", str(settings)]
        command += ["-cache", str(files.cache() / "ivy"), "-confs", *configurations, "-types", "jar", "bundle"]
        command += ["-retrieve", f"{_PARTIAL}/[conf]/[artifact]-[revision].[ext]"]
        log = files.cache() / "resolve.log"
        if _followed(command, folder, log, tell):
            raise _failure(log.read_text("utf-8", errors="replace"), log, mirror, proxies)
    return partial


def _followed(command: Sequence[str], folder: Path, log: Path, tell: Callable[[Progress], None]) -> int:
    """Run Ivy, tell how far it is, keep all that it says; give its exit code."""
    modules: set[str] = set()
    jars = 0
    tell(Progress("resolving"))
    with (
        log.open("w", encoding="utf-8") as kept,
        subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        ) as ivy,
    ):
        try:
            for line in ivy.stdout or ():
                kept.write(line)
                if found := _FOUND.match(line):
                    modules.add(found.group(1))
                    tell(Progress("resolving", len(modules)))
                elif _HAVE.match(line):
                    jars += 1
                    tell(Progress("fetching jars", jars, len(modules)))
        except BaseException:
            ivy.kill()
            raise
    return ivy.returncode


def _archive(folder: Path, tell: Callable[[Progress], None]) -> None:
    _require_room(folder, "Spark's class archive")
    tell(Progress("archiving Spark's classes"))
    place, partial = files.class_archive(), folder / ".spark.jsa.partial"
    for each in (place, partial):
        each.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", class_archive.__name__, str(partial)]
    # In a process of its own, for its Java has to end; in a session of its own, so that an interrupt ends both at once.
    with (
        tempfile.TemporaryDirectory(prefix="reconcile-", ignore_cleanup_errors=True) as temporary,
        subprocess.Popen(
            command,
            env={**os.environ, "TMPDIR": temporary, "SPARK_LOCAL_DIRS": temporary},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        ) as making,
    ):
        try:
            _, said = making.communicate()
        except BaseException:
            os.killpg(making.pid, signal.SIGKILL)
            raise
    if making.returncode != 0:
        what = said.strip()[-2000:]
        raise RefusedError(f"the jars are in place, but Spark did not run to have its classes archived: {what}")
    if partial.is_file():
        partial.replace(place)


def _ivy() -> Path:
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    found = sorted((home / "jars").glob("ivy-*.jar"))
    if not found:
        raise RefusedError(f"no Ivy in {home / 'jars'}: that is no whole Spark; pip install --force-reinstall pyspark")
    return found[-1]


def _settings(mirror: str) -> str:
    root = quoteattr(mirror.rstrip("/") + "/")
    return (
        '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
        f'<ibiblio name="mirror" m2compatible="true" root={root}/></resolvers></ivysettings>\n'
    )


def _failure(said: str, log: Path, mirror: str | None, proxies: JavaProxies) -> ReconcileError:
    """Say why Ivy failed, and what to do."""
    place = mirror or "Maven's repository"
    proxy = proxies.addresses.get(urlsplit(mirror or _MAVENS).scheme)
    by = f" through the proxy {proxy}" if proxy else ""
    whole = f"the whole story is in {log}"
    if _NO_SPACE.search(said):
        return RefusedError(f"the disk is full: make room, or move RECONCILE_JARS and XDG_CACHE_HOME; {whole}")
    if _NO_USER.search(said):
        return RefusedError(f"the proxy {proxy} wants a user: HTTPS_PROXY=http://user:password@host:port; {whole}")
    if found := _NO_TUNNEL.search(said):
        return RefusedError(f"the proxy {proxy} refuses {place} ({found[1]}): {_WITHOUT_NETWORK}; {whole}")
    if found := _NO_ACCESS.search(said):
        return RefusedError(f"{found[2]} is refused{by} ({found[1]}): name another mirror; {whole}")
    if found := _NO_ANSWER.search(said):
        return UnreachableError(f"{place} does not answer{by} ({_first(found)}): {_WITHOUT_NETWORK}; {whole}")
    if found := _NOT_FOUND.search(said):
        return RefusedError(f"{place} has no {_first(found)}, which ivy.xml asks for: {_WITHOUT_NETWORK}; {whole}")
    return RefusedError(f"Ivy failed: {said.strip()[-500:]}; {whole}")


def _first(found: re.Match[str]) -> str:
    return next(group for group in found.groups() if group is not None)


def _require_room(folder: Path, what: str) -> None:
    free = shutil.disk_usage(folder).free
    if free < _ROOM[what]:
        raise RefusedError(
            f"the disk is full: {what} need {_ROOM[what] // 1_000_000} MB, and {folder} has {free // 1_000_000} MB;"
            " make room, or choose another folder by RECONCILE_JARS"
        )


def _lacking(folder: Path, wanted: Iterable[str]) -> tuple[str, ...]:
    return tuple(each for each in wanted if not any((folder / each).glob("*.jar")))


@contextmanager
def _alone(folder: Path, tell: Callable[[Progress], None]) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(Progress("waiting for another setup"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _text(file: Path) -> str | None:
    return file.read_text("utf-8") if file.is_file() else None


def _write(file: Path, text: str) -> None:
    partial = file.with_name(f"{file.name}{_PARTIAL}")
    partial.write_text(text, "utf-8")
    partial.replace(file)
