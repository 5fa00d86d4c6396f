"""What a workspace needs of files, and the files of this machine; Hadoop's are in hadoop_filesystem.py."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from reconcile.errors import RefusedError, UnreachableError

FOLDER, FILE = 0o700, 0o600
"""Who may do what with what we write, whatever the umask is: its owner, and nobody else."""


@dataclass(frozen=True)
class Entry:
    """A file or a folder in a folder."""

    name: str
    size: int
    folder: bool


class FileSystem(Protocol):
    """What a workspace needs of files. Paths are absolute, or URIs of this file system.

    What is not there raises FileNotFoundError, what is in the way FileExistsError, all else RefusedError or
    UnreachableError.
    """

    @property
    def renames_atomically(self) -> bool:
        """Tell whether a renamed folder appears under its new name at once and whole."""

    def read_text(self, path: str) -> str:
        """Read a file's text."""

    def write_atomically(self, path: str, pieces: Iterable[str]) -> None:
        """Write or replace a file, of which readers see all or nothing; make the folders above it."""

    def rename(self, source: str, target: str) -> None:
        """Change the name of a file or folder, where nothing of that name stands."""

    def exists(self, path: str) -> bool:
        """Tell whether there is such a file or folder."""

    def list(self, path: str) -> list[Entry]:
        """List what is in a folder, by name."""

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it; nothing happens where there is none."""

    def mkdirs(self, path: str) -> None:
        """Make a folder and those above it, where they are missing, for nobody but us."""

    def restrict(self, path: str) -> None:
        """Let nobody but us into a folder that others have written to for us, and all that is in it."""

    def uri(self, path: str) -> str:
        """Write a path as Spark knows it, whatever its default file system is."""


class LocalFileSystem:
    """Files of this machine."""

    renames_atomically = True

    def read_text(self, path: str) -> str:
        with _named("read", path):
            return Path(path).read_text("utf-8")

    def write_atomically(self, path: str, pieces: Iterable[str]) -> None:
        with _named("write", path):
            target = Path(path)
            make_private(target.parent)
            fresh = target.with_name(beside(target.name))
            try:
                with open(fresh, "x", encoding="utf-8", opener=_private) as file:
                    for piece in pieces:
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
                fresh.replace(target)
            except BaseException:
                fresh.unlink(missing_ok=True)
                raise

    def rename(self, source: str, target: str) -> None:
        with _named("rename", source):
            if os.path.lexists(target):  # rename(2) replaces files and empty folders
                raise FileExistsError(target)
            try:
                Path(source).rename(target)
            except OSError as error:
                if os.path.lexists(target):
                    raise FileExistsError(target) from error
                raise

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def list(self, path: str) -> list[Entry]:
        with _named("list", path), os.scandir(path) as entries:
            found = []
            for entry in entries:
                folder = entry.is_dir(follow_symlinks=False)
                found.append(Entry(entry.name, 0 if folder else entry.stat(follow_symlinks=False).st_size, folder))
        return sorted(found, key=lambda each: each.name)

    def delete(self, path: str) -> None:
        with _named("delete", path):
            target = Path(path)
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)

    def mkdirs(self, path: str) -> None:
        with _named("make", path):
            make_private(Path(path))

    def restrict(self, path: str) -> None:
        with _named("restrict", path):
            for each in (Path(path), *Path(path).rglob("*")):
                each.chmod(FOLDER if each.is_dir() else FILE)

    def uri(self, path: str) -> str:
        return f"file://{Path(path).absolute()}"


def make_private(folder: Path) -> None:
    """Make a folder and those above it, where they are missing, for nobody but us; those that are there stay so."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        # Between the two it is narrower than wanted, never wider.
        with suppress(FileExistsError):
            each.mkdir(FOLDER)
            each.chmod(FOLDER)
    folder.mkdir(exist_ok=True)


def make_private_file(file: Path) -> None:
    """Make an empty file for nobody but us, and the folders above it, unless it is there."""
    make_private(file.parent)
    with suppress(FileExistsError), open(file, "xb", opener=_private):
        pass


def beside(name: str) -> str:
    """Name what is written before it takes this name; no reader looks at names with a dot in front."""
    return f".{name}.{uuid4().hex[:12]}"


def literal(path: str) -> str:
    """Write a path to read from so that Spark takes none of it for a pattern."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def _private(path: str, flags: int) -> int:
    found = os.open(path, flags, FILE)
    os.fchmod(found, FILE)
    return found


@contextmanager
def _named(verb: str, path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except (PermissionError, NotADirectoryError, IsADirectoryError) as error:
        raise RefusedError(f"cannot {verb} {path}: {error.strerror}") from error
    except OSError as error:
        raise UnreachableError(f"cannot {verb} {path}: {error.strerror}") from error
