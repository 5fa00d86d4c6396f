"""Where log histories are kept: a folder for each topic and derivation, with generations of its index.

The highest generation counts. An extension writes its segment beside those that are there, and then the next index
under a name that nobody else can take: of two extensions at once, one finds the name taken, and looks again. (Where a
rename is not atomic, on an object store, both may think they were first: then one's segment is left over, and its
offsets are read again.) What no index names is left over from an extension that was killed or was second; once a later
generation stands it can never be named, and is removed. A topic that was made anew has another id, and so another
folder; so has a changed derivation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from reconcile.errors import UnreachableError
from reconcile.gather.log.index import DamagedIndexError, Index, pruned
from reconcile.workspace import handoff
from reconcile.workspace.filesystem import FileSystem
from reconcile.workspace.workspace import Workspace

KEPT_GENERATIONS = 10
"""So many indexes, and the segments that they name, stay for those who still read them."""

_GENERATION = re.compile(r"\d{8}")
_FILE = "index.json"
_USED = "used"
_ATTEMPTS = 8
_USE = timedelta(days=1)
_NEXT = ".next-"
_SEGMENT = re.compile(r"(\d{8})-[0-9a-f]{12}")


class UnsettledHistoryError(UnreachableError):
    """Raised when the log or the history changed under each attempt to change it: try again."""


@dataclass(frozen=True)
class HistoryStore:
    """The histories of a workspace."""

    files: FileSystem
    root: str
    """The folder that holds them all."""

    @classmethod
    def of(cls, workspace: Workspace) -> HistoryStore:
        """Name the folder of the histories that all runs of a workspace share."""
        return cls(workspace.files, f"{workspace.root}/_log")

    def homes(self) -> Iterator[Home]:
        """List the folders of all histories: those of failure topics, and of what was superseded, too."""
        for cluster in self._folders(self.root):
            for topic in self._folders(cluster):
                yield from self._homes(topic)

    def homes_of(self, cluster: str, topic: str) -> Iterator[Home]:
        """List the folders of a topic's histories, by whatever rules they were derived."""
        yield from self._homes(f"{self.root}/{cluster}/{topic}")

    def _homes(self, topic: str) -> Iterator[Home]:
        return (Home(self.files, each) for each in self._folders(topic))

    def _folders(self, above: str) -> list[str]:
        with suppress(FileNotFoundError):
            return [f"{above}/{each.name}" for each in self.files.list(above) if each.folder]
        return []

    def home(self, cluster: str, topic: str, topic_id: str, derivation: str) -> Home:
        """Name the folder for one topic and derivation."""
        return Home(self.files, f"{self.root}/{cluster}/{topic}/id-{topic_id}.{derivation[:12]}")


@dataclass(frozen=True)
class Home:
    """The folder of one history."""

    files: FileSystem
    folder: str

    def load(self) -> Index | None:
        """Read the latest index, None if nothing was ever published here."""
        for _ in range(KEPT_GENERATIONS):
            generations = self._generations()
            if not generations:
                return None
            path = self._index(generations[-1])
            try:
                return handoff.parse(Index, self.files.read_text(path))
            except FileNotFoundError:
                continue  # a newer one came, and this one was removed
            except ValueError as error:
                raise DamagedIndexError(f"{path} is damaged: {error}; delete {self.folder}") from None
        raise DamagedIndexError(f"the indexes in {self.folder} vanish while they are read")

    def note_use(self, at: datetime) -> None:
        """Note that somebody needs this history, once a day: what nobody needs can be pruned."""
        before = self.last_used()
        if before is None or at - before > _USE:
            self.files.write_atomically(f"{self.folder}/{_USED}", [at.isoformat(), "\n"])

    def last_used(self) -> datetime | None:
        """Read when somebody needed this history, to the day; None where that was not noted."""
        with suppress(FileNotFoundError, ValueError):
            return datetime.fromisoformat(self.files.read_text(f"{self.folder}/{_USED}").strip())
        return None

    def remove(self) -> None:
        """Remove all of it."""
        self.files.delete(self.folder)

    def remove_past(self) -> None:
        """Remove all indexes but the newest, and what only those name, as nobody reads them any more."""
        generations = self._generations()
        for generation in generations[:-1]:
            self._remove(self._generation(generation))
        if generations:
            self.remove_leftovers()

    def remove_state(self) -> None:
        """Remove what is kept of the log's state: it is made anew when somebody asks for it."""
        self.files.delete(f"{self.folder}/state")

    def stored_segments(self) -> list[str]:
        """List the segments that are there, whether an index names them or not."""
        with suppress(FileNotFoundError):
            names = [each.name for each in self.files.list(self.segments) if _SEGMENT.fullmatch(each.name)]
            return [each for each in names if any(one.size for one in self.files.list(self.path(each)))]
        return []

    def new_segment(self, index: Index) -> str:
        """Name a segment that the index after this one is to name."""
        return f"{index.generation:08d}-{uuid4().hex[:12]}"

    @property
    def segments(self) -> str:
        """The folder of all segments."""
        return f"{self.folder}/segments"

    def path(self, segment: str) -> str:
        """Name the folder of a segment."""
        return f"{self.segments}/{segment}"

    def uri(self, segment: str) -> str:
        """Name the folder of a segment as Spark knows it."""
        return self.files.uri(self.path(segment))

    def publish(self, index: Index) -> bool:
        """Put the next index in its place; tell whether nobody else was faster."""
        if self._generations()[-1:] >= [index.generation]:
            return False  # also where the others were so many that its own place is free again
        if not self.files.renames_atomically:
            self.files.write_atomically(self._index(index.generation), [index.text()])
            return True
        # A folder, because a rename never replaces one that is not empty: of two, one fails.
        self.files.mkdirs(f"{self.folder}/index")
        written = f"{self.folder}/{_NEXT}{uuid4().hex[:12]}"
        try:
            self.files.write_atomically(f"{written}/{_FILE}", [index.text()])
            self.files.rename(written, self._generation(index.generation))
        except (FileExistsError, FileNotFoundError):
            self.files.delete(written)
            return False
        return True

    def change(self, following: Callable[[Index], Index | None]) -> Index | None:
        """Publish what follows the newest index, unless that is None; return the index then, None where there is none.

        Raises UnsettledHistoryError where others change the history at each attempt.
        """
        for _ in range(_ATTEMPTS):
            index = self.load()
            if index is None:
                return None
            changed = following(index)
            if changed is None or self.publish(changed):
                return changed or index
        raise UnsettledHistoryError(f"the history in {self.folder} changes all the time: try again")

    def prune(self, older_than: datetime) -> Index | None:
        """Give up the oldest segments in which all records are older; return the index as `change` does."""
        index = self.change(lambda index: pruned(index, older_than, datetime.now(UTC)))
        if index is not None:
            self.remove_leftovers()
        return index

    def remove_leftovers(self) -> None:
        """Remove old indexes, and all segments that no index names and none can name any more.

        What somebody else removes at the same time, or still writes to, is for the next extension.
        """
        generations = self._generations()
        for generation in generations[:-KEPT_GENERATIONS]:
            self._remove(self._generation(generation))
        named: set[str] = set()
        for generation in generations[-KEPT_GENERATIONS:]:
            with suppress(FileNotFoundError):
                index = handoff.parse(Index, self.files.read_text(self._index(generation)))
                named |= {segment.name for segment in index.segments}
        with suppress(FileNotFoundError):
            for entry in self.files.list(self.segments):
                match = _SEGMENT.fullmatch(entry.name)
                if match and entry.name not in named and int(match[1]) < generations[-1]:
                    self._remove(self.path(entry.name))
        for entry in self.files.list(self.folder):
            if entry.name.startswith(_NEXT):
                self._remove(f"{self.folder}/{entry.name}")

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError, UnreachableError):
            self.files.delete(path)

    def _generation(self, generation: int) -> str:
        return f"{self.folder}/index/{generation:08d}"

    def _index(self, generation: int) -> str:
        return f"{self._generation(generation)}/{_FILE}"

    def _generations(self) -> list[int]:
        try:
            entries = self.files.list(f"{self.folder}/index")
        except FileNotFoundError:
            return []
        return sorted(int(entry.name) for entry in entries if _GENERATION.fullmatch(entry.name))
