"""What a contract is likely to say, guessed from samples: each guess with its evidence in counts, and no values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from reconcile.contract.terms import NAME
from reconcile.domain.canonical import Kind
from reconcile.draft import events as topic_events
from reconcile.draft.derivations import NUMBERS, comparable
from reconcile.draft.events import Events, Guess
from reconcile.draft.matching import Inputs, Match, best_match
from reconcile.draft.samples import (
    Column,
    CopySample,
    FailureSample,
    Id,
    Sampled,
    SideTable,
    Table,
    TableSample,
    is_alike,
    tokens,
)

_VERSIONS = ("version", "rowversion", "lockversion", "revision", "rev", "sequence", "seq")
_UPDATED = ("updatedat", "modifiedat", "lastmodified", "lastmodifiedat", "changedat", "updated", "modified", "mtime")
_DELETED = ("deletedat", "deleted", "isdeleted", "removedat", "archivedat")
_PUBLISHED = ("publishedat", "sentat", "dispatchedat", "processedat", "published", "sent", "dispatched", "processed")
_WRITTEN = ("createdat", "occurredat", "insertedat", "writtenat", "created", "timestamp")
_OF_AGGREGATE = ("aggregateid", "aggregate", "entityid", "aggregatekey", "key", "messagekey")
_SENSITIVE = frozenset(
    (
        *("email", "mail", "phone", "mobile", "fax", "address", "street", "iban", "ssn", "passport"),
        *("name", "firstname", "lastname", "surname", "fullname", "username", "birth", "birthday", "birthdate", "dob"),
    )
)
_SUFFIXES = ("service", "consumer", "group", "cg", "app")
_KINDS_OF_FAILURE = {
    "stash": re.compile(r"stash|park", re.IGNORECASE),
    "dead_letter": re.compile(r"dlq|dlt|dead|error|failed", re.IGNORECASE),
    "retry": re.compile(r"retr(y|ies)|delay", re.IGNORECASE),
}
_KIND_WORD = re.compile(
    r"stash|park(ed|ing)|lot|dl[qt]|dead|letters?|errors?|failed|retr(y|ies)|delay(ed)?|events?|\d+\w?"
)
_UNLIKELY = 0.5
_FEWEST_SUMS = 3


@dataclass(frozen=True)
class FieldGuess:
    """One thing that source and copy are likely to agree on."""

    name: str
    column: Column
    """The copy's."""
    source: Match
    event: Match | None
    added: tuple[str, str] | None
    """Where events have what is added, with the evidence; None where they have the value."""
    sensitive: bool


@dataclass(frozen=True)
class FailureGuess:
    """Where events that a consumer could not apply are likely to lie."""

    policy: str
    topics: tuple[tuple[str, str, str | None, str], ...] = ()
    """Of each topic its kind, its name, the group that reads it where it is another, and the evidence."""
    ledger: tuple[Mapping[str, str], str] | None = None
    """The keys of the ledger, and the evidence."""


@dataclass(frozen=True)
class CopyGuess:
    """A consumer of the contract."""

    name: str
    sample: CopySample
    version: Guess
    fields: tuple[FieldGuess, ...]
    unmatched: tuple[tuple[str, ...], ...]
    """What is said of each column that nothing gives, line by line."""
    failure: FailureGuess | None


@dataclass(frozen=True)
class Draft:
    """A contract with the evidence of each of its guesses."""

    aggregate: str
    sample: Sampled
    events: Events
    version: Guess
    updated_at: Guess
    deleted: Guess
    outbox: tuple[Mapping[str, str], str] | None
    places: Mapping[str, Guess]
    topic_version: Guess
    copies: tuple[CopyGuess, ...]
    value: tuple[tuple[str, str, str], ...]
    """Of each member that events have: its name, SQL over the source's row, and the evidence."""
    notes: tuple[str, ...]
    """What makes all of it less certain."""


def guess(sample: Sampled) -> Draft:
    """Guess the contract."""
    events = _events(sample)
    version = _version(sample.source.table)
    names: set[str] = set()
    copies = []
    for copy in sample.copies:
        name = _distinct(_slug(_without_suffix(copy.group, sample.topic.name)), names)
        names.add(name)
        copies.append(_copy(name, copy, sample, events, version))
    return Draft(
        aggregate=_slug(sample.source.table.name.rpartition(".")[2]),
        sample=sample,
        events=events,
        version=version,
        updated_at=_timestamp(sample.source.table, _UPDATED),
        deleted=_deleted(sample),
        outbox=next(filter(None, (_outbox(each, sample) for each in sample.outboxes)), None),
        places=topic_events.places(events),
        topic_version=_topic_version(sample, events, version),
        copies=tuple(copies),
        value=tuple(_value(sample, events)),
        notes=tuple(_notes(sample, events)),
    )


def _events(sample: Sampled) -> Events:
    """Read the events; whether they tell only what changed is decided by how more of the source's values come out."""
    events = topic_events.read(sample.topic)
    ids = [each for each in sample.source.rows if each in events.ids]
    paths = dict.fromkeys(events.rare)
    merged, whole = (
        Inputs(paths, replace(events, patch=patch).newest(ids), connectors=True) for patch in (True, False)
    )
    votes = 0
    for column in sample.source.table.columns:
        wanted = [sample.source.rows[each].get(column.name) for each in ids]
        found = [
            best_match(wanted, column.kind, each, [column.name], None, _scale(column.type)) for each in (merged, whole)
        ]
        shares = [each.share if each is not None and each.convinces else 0.0 for each in found]
        votes += (shares[0] > shares[1]) - (shares[0] < shares[1])
    return replace(events, patch=votes > 0 if votes else events.patch)


def id_column(table: Table, known: Mapping[str, tuple[int, int]]) -> str | None:
    """Choose the column of a copy that has the source's ids; None where none has.

    `known` tells for each column how many different values were looked up, and how many of them are ids.
    """
    alone = {key[0] for key in table.keys if len(key) == 1}

    def rank(name: str) -> tuple[float, bool, bool, int]:
        found, looked_up = known[name]
        return found / looked_up, name in alone, "id" in tokens(name), found

    likely = [name for name, (found, looked_up) in known.items() if looked_up and found / looked_up >= _UNLIKELY]
    # Nearly the same share is the same: a unique column with an orphan in it, and a count whose numbers are all ids.
    near = [name for name in likely if rank(name)[0] >= max(rank(each)[0] for each in likely) - 0.1]
    return max(near, key=lambda name: rank(name)[1:], default=None)


def _copy(name: str, copy: CopySample, sample: Sampled, events: Events, version: Guess) -> CopyGuess:
    source, rows = sample.source, copy.rows
    ids = [each for each in rows.rows if each in source.rows]
    columns = Inputs({each.name: each.kind for each in source.table.columns}, [source.rows[each] for each in ids])
    own_version, source_version = _version(rows.table), version.value
    if own_version.value and source_version:
        match = _same(rows, ids, own_version.value, source, source_version)
        own_version = Guess(own_version.value if match[0] else None, f"agrees for {match[0]} of {match[1]} sampled ids")
    elif not source_version:
        own_version = Guess(None, "the source has none")
    told_ids = [each for each in rows.rows if each in events.ids]
    told_inputs = events.inputs(told_ids)
    fields: list[FieldGuess] = []
    unmatched: list[tuple[str, ...]] = []
    for column in rows.table.columns:
        if column.name in rows.id or column.name == own_version.value:
            continue
        if column.kind is Kind.BYTEA:
            unmatched.append((f"{column.name}: bytes are not sampled",))
            continue
        wanted = [rows.rows[each].get(column.name) for each in ids]
        found = best_match(wanted, column.kind, columns, [column.name])
        names = [column.name, *(found.derivation.inputs if found else ())]
        wanted = [rows.rows[each].get(column.name) for each in told_ids]
        like = found.derivation if found else None
        told = best_match(wanted, column.kind, told_inputs, names, like, _scale(column.type))
        if found is None or not found.convinces:
            unmatched.append(_unmatched(column, found, told, source.table))
            continue
        event = told if told is not None and told.convinces else None
        added = _added(column, rows, events) if column.kind in NUMBERS else None
        fields.append(FieldGuess(column.name, column, found, event, added, _is_sensitive(column.name, found)))
    return CopyGuess(name, copy, own_version, tuple(fields), tuple(unmatched), _failure(copy, sample, events))


def _added(column: Column, rows: TableSample, events: Events) -> tuple[str, str] | None:
    """Find where events have what is added to a sum: only ids with several events tell it from the value itself."""
    best: tuple[int, str, str] | None = None
    for path in events.paths:
        several = {each: total for each, (total, count) in events.sums(path).items() if count > 1}
        wanted = {
            each: comparable(rows.rows[each].get(column.name), Kind.NUMERIC) for each in several if each in rows.rows
        }
        newest = dict(zip(wanted, events.newest(list(wanted)), strict=True))
        by_sum = sum(wanted[each] == several[each] for each in wanted)
        by_newest = sum(wanted[each] == comparable(newest[each].get(path), Kind.NUMERIC) for each in wanted)
        if by_sum >= _FEWEST_SUMS and by_sum > 2 * by_newest and (best is None or by_sum > best[0]):
            said = f"the sum of the sampled events agrees for {by_sum} of {len(wanted)} ids that have several"
            best = by_sum, path, f"{said}, the newest alone for {by_newest}"
    return None if best is None else best[1:]


def _unmatched(column: Column, found: Match | None, told: Match | None, source: Table) -> tuple[str, ...]:
    said = [f"{column.name}: no column of {source.name} agrees"]
    if found is not None and found.values:
        few = f", in {found.values} different values" if found.share >= _UNLIKELY else ""
        said.append(f"  the nearest is {' and '.join(found.derivation.inputs)}, which {found.evidence}{few}")
    if told is not None and told.convinces:
        said.append(f"  the event's {told.derivation.event()} {told.evidence}: a `query` may bring what it is made of")
    return tuple(said)


def _version(table: Table) -> Guess:
    for wanted in _VERSIONS:
        for column in table.columns:
            words = tokens(column.name)
            named = "".join(words) == wanted or (wanted in words[-1:] and len(words) > 1 and wanted == "version")
            if named and column.kind in (Kind.INTEGER, Kind.NUMERIC):
                return Guess(column.name, "by its name and type")
    return Guess(None, "no column is named like it")


def _timestamp(table: Table, names: Sequence[str]) -> Guess:
    for wanted in names:
        for column in table.columns:
            if "".join(tokens(column.name)) == wanted and column.kind is Kind.TIMESTAMP:
                return Guess(column.name, "by its name and type")
    return Guess(None, "no column is named like it")


def _deleted(sample: Sampled) -> Guess:
    source = sample.source
    for wanted in _DELETED:
        for column in source.table.columns:
            if "".join(tokens(column.name)) != wanted:
                continue
            if column.kind in (Kind.TIMESTAMP, Kind.DATE):
                sql, gone = f"{column.sql} is not null", [i for i, row in source.rows.items() if row[column.name]]
            elif column.kind is Kind.BOOLEAN or column.type == "smallint":
                sql = column.sql if column.kind is Kind.BOOLEAN else f"{column.sql} <> 0"
                gone = [i for i, row in source.rows.items() if comparable(row[column.name], Kind.BOOLEAN) is True]
            else:
                continue
            absent = sum(all(each not in copy.rows.rows for copy in sample.copies) for each in gone)
            return Guess(
                sql, f"holds for {len(gone)} of {len(source.rows)} sampled rows; {absent} of these are in no copy"
            )
    return Guess(None, "no column is named like it")


def _outbox(box: SideTable, sample: Sampled) -> tuple[Mapping[str, str], str] | None:
    """Guess how an outbox is read; None for a table that does not look like one after all."""
    named = {"".join(tokens(each.name)): each for each in box.table.columns}
    shares = {}
    for column in box.table.columns:
        values = {row[column.name] for row in box.rows if row.get(column.name) is not None}
        shares[column.name] = sum((each,) in sample.source.rows or (each,) in sample.topic.ids for each in values)
    by_name = next((named[each].name for each in _OF_AGGREGATE if each in named), None)
    id_ = max(shares, key=lambda name: (shares[name], name == by_name), default=None)
    if id_ is None or (not shares[id_] and by_name is None):
        return None
    id_ = id_ if shares[id_] else by_name
    published = next((named[each] for each in _PUBLISHED if each in named), None)
    if id_ is None or published is None:
        return None
    test = published.sql if published.kind is Kind.BOOLEAN else f"{published.sql} is not null"
    topic = named.get("topic") or named.get("topicname")
    if topic is not None and any(row.get(topic.name) == sample.topic.name for row in box.rows):
        test = f"{topic.sql} <> '{sample.topic.name}' or {test}"
    said = {"table": box.table.name, "id": id_, "published": test}
    at = next((named[each].name for each in _WRITTEN if each in named and named[each].kind is Kind.TIMESTAMP), None)
    if at is not None:
        said["at"] = at
    return said, f"{id_} has {shares[id_]} of the sampled ids; the rest is by names"


def _topic_version(sample: Sampled, events: Events, version: Guess) -> Guess:
    ids = [each for each in sample.source.rows if each in events.ids]
    newest = events.newest(ids)
    names = {path for row in newest for path in row}
    named = [each for each in names if "".join(tokens(each))[-7:] == "version" or is_alike(each, version.value or "")]
    if version.value is None:
        return Guess(None, "the source has no version")
    inputs = Inputs(dict.fromkeys(sorted(named or names)), newest)
    wanted = [sample.source.rows[each].get(version.value) for each in ids]
    found = best_match(wanted, Kind.NUMERIC, inputs, [version.value])
    if found is None or not found.convinces or found.derivation.form != "same":
        return Guess(None, f"nothing in the events agrees with {version.value}")
    return Guess(found.derivation.inputs[0], f"{found.evidence} with {version.value}")


def _value(sample: Sampled, events: Events) -> Iterator[tuple[str, str, str]]:
    """List the members of events that a row of the source gives; for corrections all of them are needed."""
    if sample.topic.format == "debezium-json":
        return
    source = sample.source
    told = [each for each in source.rows if each in events.ids]
    living = {each: row for each, row in zip(told, events.newest(told), strict=True) if row}
    ids, newest = list(living), list(living.values())
    columns = Inputs({each.name: each.kind for each in source.table.columns}, [source.rows[each] for each in ids])
    names = {each.name: each.sql for each in source.table.columns}
    parts: set[str] = set()
    for path in events.paths:
        member = path.removeprefix("$.")
        if not re.fullmatch(r"\w+", member):
            member = re.split(r"\W", member, maxsplit=1)[0]
            if member and member not in parts:
                parts.add(member)
                yield member, "", "it has parts: build it of them"
            continue
        kinds = [source.table.column(each).kind for each in names if is_alike(each, member)]
        wanted = [row.get(path) for row in newest]
        tried = (best_match(wanted, kind, columns, [member]) for kind in (*kinds, Kind.TEXT))
        found = next((each for each in tried if each is not None and each.convinces), None)
        if found is not None:
            yield member, found.derivation.sql(names, maria=source.maria), found.evidence
        else:
            yield member, "", "no column agrees"


def _failure(copy: CopySample, sample: Sampled, events: Events) -> FailureGuess | None:
    topics = []
    for each in copy.failures:
        kind = failure_kind(each.name)
        others = [group for _, group in each.origins if group is not None]
        if kind is None or (others and copy.group not in others) or not _is_own(each, copy, sample):
            continue
        spoken = Counter[str]()
        for (dialect, _), count in each.origins.items():
            spoken[dialect] += count
        said = ", ".join(f"{count} speak {dialect}" for dialect, count in spoken.most_common())
        evidence = f"of {each.records} sampled records {said or 'none names its origin'}"
        if not each.records:
            evidence = "we may not read it" if each.records is None else "empty"
        named = {word for word in tokens(each.name) if not _KIND_WORD.fullmatch(word)}
        if not _is_shown_own(each, copy) and named - set(tokens(sample.topic.name)):
            evidence += "; its name may be of another group: look whose it is"
        reader = None if copy.group in each.readers else next(iter(each.readers), None)
        topics.append((kind, each.name, reader, evidence))
    kinds = {kind for kind, *_ in topics}
    # Where nothing has come as far as the later ones, nobody has committed there yet.
    retrying = next((reader for kind, _, reader, _ in topics if kind == "retry" and reader is not None), None)
    topics = [(*each[:2], each[2] or (retrying if each[0] == "retry" else None), each[3]) for each in topics]
    kept: list[tuple[str, str, str | None, str]] = []
    for kind, topic, reader, evidence in sorted(topics, key=lambda each: each[:2]):
        if kind == "retry" or kind not in {each[0] for each in kept}:
            kept.append((kind, topic, reader, evidence))
    ledger = next(filter(None, (_ledger(each, events) for each in copy.ledgers)), None)
    if not kept and ledger is None:
        return None
    policy = "ignore"
    for kind, words in (("stash", "stash"), ("dead_letter", "retry-then-dead-letter"), ("retry", "retry-topics")):
        if kind in kinds:
            policy = words
            break
    return FailureGuess(policy, tuple(kept), ledger)


def failure_kind(topic: str) -> str | None:
    """Choose what kind of failed events a topic has by its name; None for a topic of something else."""
    return next((kind for kind, pattern in _KINDS_OF_FAILURE.items() if pattern.search(topic)), None)


def _is_own(topic: FailureSample, copy: CopySample, sample: Sampled) -> bool:
    """Decide whether a topic is this consumer's: by a group, by its name, or because there is no other."""
    if len(sample.copies) == 1 or _is_shown_own(topic, copy):
        return True
    words = set(tokens(topic.name)) - set(tokens(sample.topic.name))
    named = [each for each in sample.copies if words & set(tokens(each.group)) - set(_SUFFIXES)]
    return [copy] == named


def _is_shown_own(topic: FailureSample, copy: CopySample) -> bool:
    """Whether a group that wrote or reads it, or its name, shows that it is this consumer's."""
    by_group = any(group == copy.group for _, group in topic.origins) or copy.group in topic.readers
    words = set(tokens(topic.name)) & set(tokens(copy.group)) - set(_SUFFIXES)
    return by_group or copy.group in topic.name or bool(words)


def ledger_columns(table: Table) -> tuple[str | None, str | None, str | None]:
    """Choose by their names the columns of a ledger with the event's id, its partition and its offset."""
    named = {"".join(tokens(each.name)): each.name for each in table.columns}
    wanted = ("eventid", "messageid", "msgid", "id"), ("partition", "kafkapartition", "part")
    event_id, partition, offset = (
        next((named[each] for each in names if each in named), None)
        for names in (*wanted, ("offset", "kafkaoffset", "logoffset"))
    )
    return event_id, partition, offset


def _ledger(ledger: SideTable, events: Events) -> tuple[Mapping[str, str], str] | None:
    event_id, partition, offset = ledger_columns(ledger.table)
    named = {"".join(tokens(each.name)): each.name for each in ledger.table.columns}
    at = next(
        (named[each] for each in ("processedat", "appliedat", "handledat", "at", "createdat") if each in named), None
    )
    places = {(str(each.partition), str(each.offset)) for each in events.topic.records}
    place = topic_events.places(events)["event_id"].value
    pairs = zip(events.topic.records, events.bodies, strict=True)
    own = {topic_events.located(record, body, place) for record, body in pairs}
    by_id = sum(row.get(event_id or "") in own - {None} for row in ledger.rows)
    by_place = sum((row.get(partition or ""), row.get(offset or "")) in places for row in ledger.rows)
    if not by_id and not by_place:
        return None
    said: dict[str, str] = {"table": ledger.table.name}
    if by_id and event_id:
        said["event_id"] = event_id
    if partition and offset:
        said |= {"partition": partition, "offset": offset}
    if at is not None:
        said["at"] = at
    if ledger.looked_up:
        return said, f"{max(by_id, by_place)} of {ledger.looked_up} sampled records are in it"
    return said, f"{max(by_id, by_place)} of {len(ledger.rows)} sampled rows name a sampled record"


def _notes(sample: Sampled, events: Events) -> Iterator[str]:
    topic = sample.topic
    if not topic.records:
        yield f"the topic {topic.name} is empty: all that is said of its records is the default, and not seen"
        return
    if topic.looked_up and topic.known < topic.looked_up * 0.9:
        yield (
            f"{topic.known} of {topic.looked_up} ids in the keys of {topic.name} are ids of {sample.source.table.name}:"
            " deleted, or of something else"
        )
    if events.unreadable:
        yield f"{events.unreadable} of {len(topic.records)} sampled values of {topic.name} cannot be read"
    unclaimed = {each.name for copy in sample.copies for each in copy.failures}
    unclaimed -= {each.name for copy in sample.copies for each in copy.failures if _is_own(each, copy, sample)}
    for name in sorted(unclaimed):
        yield f"{name} is named like failed events of {topic.name}: nothing shows whose they are"
    for copy in sample.copies:
        shared = sum(each in events.ids for each in copy.rows.rows)
        if not shared:
            yield f"no sampled row of {copy.rows.table.name} has a sampled record: no event could be tried"
        if copy.rows.doubled:
            yield (
                f"{copy.rows.doubled} sampled ids have several rows in {copy.rows.table.name}: where it keeps a row per"
                " event, write `semantics: records`"
            )


def _same(one: TableSample, ids: Sequence[Id], own: str, other: TableSample, others: str) -> tuple[int, int]:
    pairs = [(one.rows[each].get(own), other.rows[each].get(others)) for each in ids]
    return sum(left == right for left, right in pairs), len(pairs)


def _is_sensitive(name: str, found: Match) -> bool:
    words = {word for each in (name, *found.derivation.inputs) for word in (*tokens(each), "".join(tokens(each)))}
    return bool(words & _SENSITIVE)


def _scale(postgres_type: str) -> int:
    found = re.search(r",\s*(\d+)\)", postgres_type)
    return int(found[1]) if found else 0


def _without_suffix(group: str, topic: str) -> str:
    """Choose what a consumer is called by its group's name: without the topic's, and without what all groups end in."""
    short = group.removeprefix(f"{topic}.").removeprefix(f"{topic}-").removeprefix("connect-")
    for suffix in _SUFFIXES:
        for separator in ".-_":
            short = short.removesuffix(separator + suffix)
    return short or group


def _slug(text: str) -> str:
    found = re.sub(r"[^a-z0-9.-]+", "-", re.sub(r"(?<=[a-z])(?=[A-Z])", "-", text).lower()).strip(".-")
    return found if re.fullmatch(NAME, found) else "aggregate"


def _distinct(name: str, taken: set[str]) -> str:
    return next(each for each in (name, *(f"{name}-{number}" for number in range(2, 1000))) if each not in taken)
