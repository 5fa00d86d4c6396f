"""Some records of a log, read without Spark: of its history's files, and of the topic what the history lacks.

What is read is what `records.Derivation` makes of the same records. Where only Spark can tell what that is, as of a
value that its parser may read as something else, NeedsSparkError is raised.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconcile.contract.model import Topic
from reconcile.domain import key as domain_key
from reconcile.domain import mapping
from reconcile.domain.key import KeyType
from reconcile.gather.log import history_columns as c
from reconcile.gather.log.index import Index, LogState, Range, plan_extension
from reconcile.gather.log.records import Derivation
from reconcile.gather.log.store import HistoryStore, Home
from reconcile.gather.log.value_reader import FORMATS, key_reader
from reconcile.kafka import reader
from reconcile.kafka.client import ClusterClient
from reconcile.workspace.filesystem import LocalFileSystem

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from confluent_kafka import Message

MOST = 200_000
"""So many offsets that a history lacks are read without Spark."""

_COLUMNS = (
    *(c.ID, c.KEY, c.PARTITION, c.OFFSET, c.TIMESTAMP, c.VERSION, c.EVENT_ID, c.TYPE, c.CORRELATION_ID),
    *(c.TOMBSTONE, c.DELETES, c.RAW),
)
_KEPT = 20_000
"""So many records are kept in memory."""
_AT_ONCE = 5000
_ROWS = 100_000
_LONGEST_NUMBER = 1000  # digits: Spark's parser reads no longer ones
_ENCODED = (KeyType.STRING, KeyType.UUID_BYTES, KeyType.INT64)

Place = tuple[int, int]
"""A partition and an offset."""
_Mask = Callable[["pa.RecordBatch"], Any]


class NeedsSparkError(Exception):
    """Raised when only Spark can tell what a log says."""


@dataclass(frozen=True)
class LogRecord:
    """A record, in the columns of a history."""

    id: str | None
    key: bytes | None
    partition: int
    offset: int
    timestamp: int
    """In microseconds since 1970."""
    version: str | None
    event_id: str
    type: str | None
    correlation_id: str | None
    tombstone: bool
    deletes: bool
    readable: bool
    headers: Sequence[tuple[str, bytes | None]] = ()
    """None where the history keeps none."""

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.partition, self.offset


@dataclass(frozen=True)
class KeptLog:
    """What a history in local files has of a log."""

    topic: str
    derivation: Derivation
    home: Home
    index: Index

    def all(self) -> Iterator[LogRecord]:
        """Read all records."""
        yield from self._records((), None)

    def with_value(self, column: str, value: str) -> Iterator[LogRecord]:
        """Read the records that have a value in a column."""
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        wanted = _arrow_text(value)
        yield from self._records((column,), lambda batch: pc.equal(batch.column(0), wanted))

    def at(self, places: Collection[Place]) -> Iterator[LogRecord]:
        """Read the records that stand at some places."""
        import pyarrow.compute as pc

        if not places:
            return
        offsets = _arrow_numbers({offset for _, offset in places})
        found = self._records((c.OFFSET,), lambda batch: pc.is_in(batch.column(0), offsets))
        yield from (record for record in found if record.place in places)

    def _records(self, by: Sequence[str], mask: _Mask | None) -> Iterator[LogRecord]:
        """Read the records that a mask chooses by some columns; the other columns only where it chooses any."""
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        if not isinstance(self.home.files, LocalFileSystem):
            raise NeedsSparkError
        columns = [*_COLUMNS, *([c.HEADERS] if self.derivation.all_headers else [])]
        for segment in self.index.segments:
            for file in sorted(segment.files):
                with pq.ParquetFile(f"{self.home.path(segment.name)}/{file}") as parquet:
                    for group in range(parquet.num_row_groups):
                        read = {"batch_size": _ROWS, "row_groups": [group]}
                        masks = None
                        if mask is not None:
                            masks = [mask(batch) for batch in parquet.iter_batches(columns=by, **read)]
                            if not any(each.true_count for each in masks):
                                continue
                        for number, batch in enumerate(parquet.iter_batches(columns=columns, **read)):
                            yield from self._of_batch(batch if masks is None else batch.filter(masks[number]))

    def _of_batch(self, batch: pa.RecordBatch) -> Iterator[LogRecord]:
        import pyarrow as pa

        at = batch.schema.get_field_index(c.TIMESTAMP)
        plain = batch.set_column(at, c.TIMESTAMP, batch.column(at).cast(pa.int64()))
        for row in plain.to_pylist():
            raw, headers, key = row.pop(c.RAW), row.pop(c.HEADERS, None) or (), row.pop(c.KEY)
            named = row.pop(c.EVENT_ID)
            yield LogRecord(
                **row,
                key=self._key(key, row[c.ID]),
                event_id=_origin(self.topic, row[c.PARTITION], row[c.OFFSET]) if named is None else named,
                readable=raw is None,
                headers=tuple((each["key"], each["value"]) for each in headers),
            )

    def _key(self, key: bytes | None, id_text: str | None) -> bytes | None:
        if key is None and id_text is not None and self.derivation.key_type in _ENCODED:
            return domain_key.encode(id_text, self.derivation.key_type)
        return key


@dataclass(frozen=True)
class PlainLog:
    """A topic's log as it is now: its history, and behind it what is read of the topic itself."""

    kept: KeptLog
    contract: Topic
    """The topic, as the contract says that its records are written."""
    ranges: Mapping[int, Range]
    """The offsets that the history lacks."""
    ends: Mapping[int, int]

    @classmethod
    def of(cls, cluster: ClusterClient, topic: Topic, store: HistoryStore, derivation: Derivation) -> PlainLog:
        """Look at the history, and where the log stands now; raise NeedsSparkError where it lacks too much."""
        described = cluster.topic(topic.name)
        begins, ends = (read(topic.name, described.partitions) for read in (cluster.begins, cluster.ends))
        state = LogState(described.id, begins, ends, cluster.high_watermarks(topic.name, described.partitions))
        home = store.home(topic.cluster, topic.name, described.id, derivation.digest)
        index = home.load() or Index(
            generation=0,
            cluster=topic.cluster,
            topic=topic.name,
            topic_id=described.id,
            derivation=derivation.digest,
        )
        ranges = plan_extension(index, state, ends).ranges
        if sum(end - start for start, end in ranges.values()) > MOST:
            raise NeedsSparkError
        return cls(KeptLog(topic.name, derivation, home, index), topic, ranges, ends)

    def all(self, cluster: ClusterClient) -> list[LogRecord]:
        """Read all records; raise NeedsSparkError where there are too many."""
        lacking = sum(end - start for start, end in self.ranges.values())
        if lacking + sum(segment.rows for segment in self.kept.index.segments) > _KEPT:
            raise NeedsSparkError
        return [*self.kept.all(), *self._fresh(cluster, lambda _: True)]

    def with_value(self, cluster: ClusterClient, column: str, value: str) -> list[LogRecord]:
        """Read the records that have a value as their id or correlation id."""
        plain = _PlainDerivation(self.contract, self.kept.derivation)

        def fits(message: Message) -> bool:
            return value == (plain.id_of(message.key()) if column == c.ID else plain.located(message, column))

        return [*self.kept.with_value(column, value), *self._fresh(cluster, fits)]

    def at(self, cluster: ClusterClient, places: Collection[Place]) -> list[LogRecord]:
        """Read the records that stand at some places."""
        lacking = any(p in self.ranges and self.ranges[p][0] <= offset < self.ranges[p][1] for p, offset in places)
        fresh = self._fresh(cluster, lambda message: reader.place_of(message) in places) if lacking else ()
        return [*self.kept.at(places), *fresh]

    def _fresh(self, cluster: ClusterClient, fits: Callable[[Message], bool]) -> Iterator[LogRecord]:
        plain, topic = _PlainDerivation(self.contract, self.kept.derivation), self.kept.topic
        if self.ranges:
            with cluster.reading_records(topic):
                for batch in reader.read(cluster.config, topic, self.ranges, self.kept.derivation.isolation, _AT_ONCE):
                    yield from (plain.record(message) for message in batch if fits(message))


# Where Arrow is to make them of a value of Python's, it loads pandas first.
def _arrow_text(text: str) -> Any:
    import pyarrow as pa

    data = text.encode(errors="surrogatepass")
    ends = pa.py_buffer(array("i", [0, len(data)]).tobytes())
    return pa.StringArray.from_buffers(1, ends, pa.py_buffer(data))[0]


def _arrow_numbers(numbers: Collection[int]) -> Any:
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(array("q", numbers).tobytes())])


class _PlainDerivation:
    """What `Derivation.stored` and `Derivation.shown` make of a record, where its value leaves no doubt."""

    def __init__(self, topic: Topic, derivation: Derivation) -> None:
        self._topic = topic.name
        self._derivation = derivation
        self.id_of = key_reader(topic, derivation.values)
        self._locators = {
            c.VERSION: topic.version,
            c.EVENT_ID: topic.event_id,
            c.TYPE: topic.type,
            c.CORRELATION_ID: topic.correlation_id,
        }

    def record(self, message: Message) -> LogRecord:
        """Build the columns of a record."""
        value, (kind, milliseconds) = message.value(), message.timestamp()
        if kind == 0:
            raise NeedsSparkError  # it has no time
        said = None if self._is_null(value) else self._parsed(value)
        located = {column: self.located(message, column, said) for column in self._locators}
        partition, offset = reader.place_of(message)
        if located[c.EVENT_ID] is None:
            located[c.EVENT_ID] = _origin(self._topic, partition, offset)
        return LogRecord(
            id=self.id_of(message.key()),
            key=message.key(),
            partition=partition,
            offset=offset,
            timestamp=max(c.EARLIEST, min(c.LATEST, milliseconds)) * 1000,
            **located,
            tombstone=value is None,
            deletes=self._is_null(value),
            readable=True,
            headers=_headers(message) if self._derivation.all_headers else (),
        )

    def located(self, message: Message, column: str, said: dict[str, Any] | None = None) -> Any:
        """Look up what the contract's locator of a column leads to; `said` is the parsed value, if it was parsed."""
        locator = self._locators[column]
        if locator is None:
            return None
        if locator.startswith("header:"):
            headers = dict(_headers(message))  # of several of one name the last counts
            return _text(headers.get(locator.removeprefix("header:")))
        if self._is_null(message.value()):
            return None
        return _at(self._parsed(message.value()) if said is None else said, locator)

    def _is_null(self, value: bytes | None) -> bool:
        return value is None or (value == b"null" and self._derivation.values is None)

    def _parsed(self, value: bytes | None) -> dict[str, Any]:
        if self._derivation.value_format == "json":
            text = _text(value)
        elif self._derivation.value_format in FORMATS and self._derivation.values is not None:
            text = self._derivation.values.read(value or b"")
        else:
            raise NeedsSparkError
        try:
            found = json.loads(
                text or "", object_pairs_hook=_once, parse_int=_whole, parse_float=_uncertain, parse_constant=_refused
            )
        except (ValueError, RecursionError):
            raise NeedsSparkError from None
        if not isinstance(found, dict):
            raise NeedsSparkError
        return found


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    found: Any = message.headers()
    return tuple(found or ())


def _whole(digits: str) -> int:
    return int(digits) if len(digits) <= _LONGEST_NUMBER else _refused(digits)


def _uncertain(number: str) -> float:
    return float(number) if len(number) <= _LONGEST_NUMBER else _refused(number)


def _refused(number: str) -> Any:
    raise ValueError(f"{number[:20]} is no number for all parsers")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NeedsSparkError
    return found


def _at(value: dict[str, Any], path: str) -> str | None:
    """Look up the text or the whole number at a path; of others every parser has its own spelling."""
    found: Any = value
    for step in mapping.steps(path):
        if not isinstance(found, dict):
            raise NeedsSparkError
        if (found := found.get(step)) is None:
            return None
    if isinstance(found, bool) or not isinstance(found, (str, int)):
        raise NeedsSparkError
    text = str(found)
    if not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text):
        raise NeedsSparkError
    return text


def _text(data: bytes | None) -> str | None:
    """Decode UTF-8; None where it is none."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _origin(topic: str, partition: int, offset: int) -> str:
    return f"{topic}-{partition}@{offset}"
