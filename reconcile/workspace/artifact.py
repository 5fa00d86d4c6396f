"""One artifact: a folder with data and a manifest, which appears whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pydantic import JsonValue

from reconcile.config.yamlfile import quoted
from reconcile.errors import RefusedError, UnreachableError
from reconcile.workspace.filesystem import FileSystem, beside
from reconcile.workspace.manifest import (
    AlreadyPublishedError,
    DamagedArtifactError,
    Inputs,
    Manifest,
    Stage,
    parse_manifest,
)

MANIFEST = "manifest.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,149}")


@dataclass(frozen=True)
class ArtifactContent:
    """What was written into an artifact's folder."""

    kind: Literal["parquet", "json"]
    rows: int
    digest: str
    columns: dict[str, JsonValue] | None = None


class Artifact:
    """An artifact of a run, published or not."""

    def __init__(self, files: FileSystem, run_folder: str, run_id: str, name: str) -> None:
        if not is_artifact_name(name):
            raise RefusedError(f"{quoted(name)} is no name for an artifact: use a-z, 0-9, '.', '_' and '-'")
        self._files = files
        self._above = run_folder
        self.run_id = run_id
        self.name = name
        self.folder = f"{run_folder}/{name}"

    def find(self) -> Manifest | None:
        """Read the manifest; None if the artifact is not published.

        Raises DamagedArtifactError if its files are not those that were published.
        """
        problem = ""
        for _ in range(20):
            text = self._manifest_text()
            if text is None:
                if not self._files.renames_atomically or not self._files.exists(self.folder):
                    return None
                problem = f"{MANIFEST} is missing"
            else:
                try:
                    return self._checked(text)
                except ValueError as error:
                    problem = str(error)
            # What looks damaged may just have been replaced by another process; then there is another manifest now.
            if self._manifest_text() == text:
                break
        raise self.damaged(problem)

    def publish(
        self,
        write: Callable[[str], ArtifactContent],
        inputs: Inputs,
        stage: Stage,
        *,
        complete: bool,
        notes: Sequence[str],
    ) -> Manifest:
        """Publish what `write` puts into the folder that it is given.

        Raises AlreadyPublishedError if a complete one is there; an incomplete one is replaced.
        """
        self._refuse_complete()
        self._remove_leftovers()
        # Where a rename is atomic, the folder appears under its name at once, with its manifest in it. On an object
        # store a rename copies one file after the other: there data are written in place and the manifest comes last,
        # and readers take a folder without one for not published. Everywhere they check each file that it lists.
        atomic = self._files.renames_atomically
        place = f"{self._above}/{beside(self.name)}" if atomic else self.folder
        try:
            if not atomic:
                self._files.delete(f"{place}/{MANIFEST}")
                self._files.delete(place)
            self._files.mkdirs(place)
            written = write(place)
            spread = tuple(f"made of {each}, which is incomplete" for each in inputs.incomplete)
            manifest = Manifest(
                name=self.name,
                stage=stage,
                run_id=self.run_id,
                created_at=datetime.now(UTC),
                kind=written.kind,
                rows=written.rows,
                digest=written.digest,
                columns=written.columns,
                inputs=inputs,
                complete=complete and not spread,
                notes=(*notes, *spread),
                files=data_files(self._files, place),
            )
            self._files.write_atomically(f"{place}/{MANIFEST}", [manifest.text()])
            self._files.restrict(place)
            if atomic:
                self._put(place)
        except BaseException:
            with suppress(OSError, RefusedError, UnreachableError):
                self._files.delete(place)
            raise
        return manifest

    def rewrite(self, write: Callable[[str], ArtifactContent]) -> Manifest:
        """Replace the content by what `write` puts into the folder that it is given, and keep all else of it.

        What was cut off can be restored.
        """
        published = self.find()
        assert published is not None
        place = f"{self._above}/{beside(self.name)}"
        self._files.mkdirs(place)
        written = write(place)
        changed = {"rows": written.rows, "digest": written.digest, "files": data_files(self._files, place)}
        manifest = published.model_copy(update=changed)
        self._files.write_atomically(f"{place}/{MANIFEST}", [manifest.text()])
        self._files.restrict(place)
        self.remove()
        self._files.rename(place, self.folder)
        return manifest

    def restore(self) -> None:
        """Put back what a rewriting that was cut off has left, the old or the new; remove what else it left."""
        if not self._files.exists(self.folder):
            for place in self._leftovers():
                if self._files.exists(f"{place}/{MANIFEST}"):
                    self._files.rename(place, self.folder)
                    break
        self._remove_leftovers()

    def rewrite_manifest(self, manifest: Manifest) -> None:
        """Replace what is said of it."""
        self._files.write_atomically(f"{self.folder}/{MANIFEST}", [manifest.text()])

    def remove(self) -> None:
        """Take it away: it is not published any more as soon as that begins."""
        retired = f"{self._above}/{beside(self.name)}"
        with suppress(FileNotFoundError):
            if self._files.renames_atomically:
                self._files.rename(self.folder, retired)
                self._files.delete(retired)
            else:
                self._files.delete(f"{self.folder}/{MANIFEST}")
                self._files.delete(self.folder)

    def damaged(self, problem: str) -> DamagedArtifactError:
        """Build the error to raise for what is wrong with the folder."""
        return DamagedArtifactError(f"{self.folder} is damaged: {problem}; delete this folder and run its stage again")

    def _put(self, place: str) -> None:
        retired = f"{self._above}/{beside(self.name)}"
        self._refuse_complete()
        with suppress(FileNotFoundError):
            self._files.rename(self.folder, retired)
        try:
            self._files.rename(place, self.folder)
        except (FileExistsError, FileNotFoundError) as error:
            raise self._overtaken() from error
        self._files.delete(retired)

    def _refuse_complete(self) -> None:
        published = self.find()
        if published is not None and published.complete:
            raise self._overtaken()

    def _overtaken(self) -> AlreadyPublishedError:
        return AlreadyPublishedError(
            f"a complete {self.name} of the run {self.run_id} stands already: another process has published it"
        )

    def _remove_leftovers(self) -> None:
        for place in self._leftovers():
            self._files.delete(place)

    def _leftovers(self) -> list[str]:
        attempt = re.compile(rf"\.{re.escape(self.name)}\.[0-9a-f]{{12}}")
        with suppress(FileNotFoundError):
            listed = self._files.list(self._above)
            return [f"{self._above}/{entry.name}" for entry in listed if attempt.fullmatch(entry.name)]
        return []

    def _checked(self, text: str) -> Manifest:
        manifest = parse_manifest(text)
        if (manifest.run_id, manifest.name) != (self.run_id, self.name):
            raise ValueError(f"{MANIFEST} is that of {manifest.name} of the run {manifest.run_id}")
        try:
            found = data_files(self._files, self.folder)
        except FileNotFoundError:
            found = {}
        for path, size in manifest.files.items():
            if path not in found:
                raise ValueError(f"{path} is missing")
            if found[path] != size:
                raise ValueError(f"{path} has {found[path]} bytes, and had {size}")
        if foreign := sorted(found.keys() - manifest.files.keys()):
            raise ValueError(f"{foreign[0]} was not published with it")
        return manifest

    def _manifest_text(self) -> str | None:
        try:
            return self._files.read_text(f"{self.folder}/{MANIFEST}")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            return "not text"


def data_files(files: FileSystem, folder: str) -> dict[str, int]:
    """List the sizes of an artifact's data files by their paths below its folder."""
    found = dict(_walk(files, folder, ""))
    found.pop(MANIFEST, None)
    return found


def is_artifact_name(text: str) -> bool:
    """Tell whether an artifact may have this name."""
    return _NAME.fullmatch(text) is not None


def _walk(files: FileSystem, folder: str, above: str) -> Iterator[tuple[str, int]]:
    for entry in files.list(f"{folder}/{above}" if above else folder):
        # As Spark sees it: these are nobody's data.
        if entry.name.startswith((".", "_")):
            continue
        if entry.folder:
            yield from _walk(files, folder, f"{above}{entry.name}/")
        else:
            yield f"{above}{entry.name}", entry.size
