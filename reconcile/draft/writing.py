"""A draft as YAML: each guess with its evidence as a comment, so that who reads it knows what to look at."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from reconcile.draft.derivations import NUMBERS, Derivation
from reconcile.draft.events import Guess, partitioner_evidence
from reconcile.draft.guessing import Draft, FailureGuess, FieldGuess
from reconcile.draft.samples import TableSample

_PLAIN = re.compile(r"[A-Za-z_$][\w.$-]*( (is not null|is null))?", re.ASCII)
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"))


def contract_text(draft: Draft) -> str:
    """Write the contract."""
    return "\n".join([*_head(draft), *_source(draft), *_topic(draft), *_consumers(draft), ""])


def settings_text(connections: Mapping[str, Mapping[str, str]]) -> str:
    """Write settings with these connections."""
    lines = ["workspace: runs", "connections:"]
    for name, keys in connections.items():
        said = ", ".join(f"{key}: {scalar(value)}" for key, value in keys.items())
        lines.append(f"  {scalar(name)}: {{{said}}}")
    return "\n".join([*lines, ""])


def scalar(text: str) -> str:
    """Write a text so that YAML reads it as that text, also within braces."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)


def _head(draft: Draft) -> Iterator[str]:
    source, topic = draft.sample.source, draft.sample.topic
    yield "# A draft by `reconcile contract draft`. Each guess has its evidence behind it: look at each, then say"
    yield "# `reconcile contract check` and `reconcile doctor`. docs/contract.md explains every key."
    yield (
        f"# Sampled: {len(source.rows)} rows of {source.table.name}, {len(topic.records)} records of {topic.name}"
        + "".join(f", {len(each.rows.rows)} rows of {each.rows.table.name}" for each in draft.sample.copies)
        + "."
    )
    for note in draft.notes:
        yield f"# Look here: {note}."


def _source(draft: Draft) -> Iterator[str]:
    source, topic = draft.sample.source, draft.sample.topic
    yield "version: 1"
    yield f"aggregate: {scalar(draft.aggregate)}"
    yield "source:"
    yield from _rows(source)
    seen = f"{topic.known} of {topic.looked_up} ids in the topic's keys are there" if topic.looked_up else "not tried"
    is_key = source.id in source.table.keys[:1]
    yield f"  id: {_columns(source.id)}  # {'its primary key' if is_key else 'no primary key'}; {seen}"
    yield from _guessed("  version", draft.version)
    yield from _guessed("  updated_at", draft.updated_at)
    yield from _guessed("  deleted", draft.deleted)
    if draft.outbox is not None:
        keys, evidence = draft.outbox
        yield f"  outbox: {_flow(keys)}  # {evidence}"
    elif draft.sample.outboxes:
        names = ", ".join(each.table.name for each in draft.sample.outboxes)
        yield f"  # outbox: {names} is named like one; nothing in it shows how it is read"


def _topic(draft: Draft) -> Iterator[str]:
    topic, events = draft.sample.topic, draft.events
    yield "topic:"
    yield f"  cluster: {scalar(topic.cluster)}"
    yield f"  name: {scalar(topic.name)}"
    readable = len(topic.records) - events.tombstones - events.unreadable
    seen = f"  # {readable} of {len(topic.records) - events.tombstones} sampled values are" if topic.records else ""
    yield f"  format: {topic.format}{seen}"
    if topic.registry is not None:
        yield f"  schema: {{registry: {scalar(topic.registry)}}}"
    seen = f"  # {topic.known} of {topic.looked_up} keys are ids, read so" if topic.looked_up else ""
    yield f"  key: {{type: {topic.key_type}}}{seen}"
    yield f"  partitioner: infer  # {partitioner_evidence(topic)}"
    if topic.records:
        told = f"{len(events.paths) - len(events.rare)} of {len(events.paths)} paths are in nearly all events"
        yield f"  state: {'patch' if events.patch else 'full'}  # {told}"
    yield from _guessed("  version", draft.topic_version)
    for key, guess in draft.places.items():
        yield from _guessed(f"  {key}", guess)
    forms = [each for each in events.deletes if each.value]
    if not forms:
        yield "  delete: tombstone  # the default; no deletion is in the sample"
    elif len(forms) == 1:
        yield f"  delete: {scalar(str(forms[0].value))}  # {forms[0].evidence}"
    else:
        yield "  delete:  # where a deletion is written in several ways, say in `delete_as` how corrections write it"
        yield from (f"    - {scalar(str(each.value))}  # {each.evidence}" for each in forms)
    if draft.value:
        yield "  # Corrections need `value`: how an event is built of the source's row. It has to be all of the event."
        yield "  # value:"
        for member, sql, evidence in draft.value:
            yield f"  #   {scalar(member)}: {scalar(sql) if sql else '???'}  # {evidence}"


def _consumers(draft: Draft) -> Iterator[str]:
    yield "consumers:"
    for copy in draft.copies:
        sample = copy.sample
        yield f"  - name: {scalar(copy.name)}"
        partitions = draft.sample.topic.partitions
        yield f"    group: {scalar(sample.group)}  # has committed in {sample.committed} of {partitions} partitions"
        yield from _rows(sample.rows, "    ")
        ids = f"{sample.known} of {sample.looked_up} sampled values are ids of the source"
        yield f"    id: {_columns(sample.rows.id)}  # {ids}"
        yield from _guessed("    version", copy.version)
        yield "    # isolation: read_committed  # corrections need it, and no broker knows: look at the service"
        yield "    fields:"
        names = {each.name: each.sql for each in draft.sample.source.table.columns}
        for field in copy.fields:
            yield from _field(field, names, draft.sample.source.maria)
        yield from (f"      # {line}" for each in copy.unmatched for line in each)
        if copy.failure is not None:
            yield from _failure(copy.failure)
        yield "    settle: {timeout: 60s, confirm_after: 5s}"


def _field(field: FieldGuess, names: Mapping[str, str], maria: bool) -> Iterator[str]:
    yield f"      - name: {scalar(field.name)}"
    sql = field.source.derivation.sql(names, maria=maria)
    yield f"        source: {scalar(sql)}  # {field.source.evidence}"
    yield f"        consumer: {scalar(field.column.sql)}"
    if field.added is not None:
        path, evidence = field.added
        yield f"        event: {scalar(path)}"
        yield f"        apply: add  # {evidence}"
    elif field.event is None:
        add = "; where events tell what is added, write it with `apply: add`"
        yield f"        # event: nothing in the sampled records agrees{add if field.column.kind in NUMBERS else ''}"
    else:
        yield f"        event: {_event(field.event.derivation)}  # {field.event.evidence}"
    if field.sensitive:
        yield "        sensitive: true  # by its name"


def _event(derivation: Derivation) -> str:
    if derivation.form == "encoded":
        return f"{{path: {scalar(derivation.inputs[0])}, as: {scalar(derivation.encoding)}}}"
    return scalar(derivation.event())


def _failure(failure: FailureGuess) -> Iterator[str]:
    yield "    failure:"
    yield f"      policy: {failure.policy}  # by what there is: look at the service"
    retries = [each for each in failure.topics if each[0] == "retry"]
    if retries:
        yield "      retry:"
        yield from (f"        - {_parking(topic, group)}  # {evidence}" for _, topic, group, evidence in retries)
    for kind, topic, group, evidence in failure.topics:
        if kind != "retry":
            yield f"      {kind}: {_parking(topic, group)}  # {evidence}"
    if failure.topics:
        yield "      dialect: auto"
    if failure.ledger is not None:
        keys, evidence = failure.ledger
        yield f"      ledger: {_flow(keys)}  # {evidence}"


def _parking(topic: str, group: str | None) -> str:
    return scalar(topic) if group is None else _flow({"topic": topic, "group": group})


def _rows(sample: TableSample, indent: str = "  ") -> Iterator[str]:
    yield f"{indent}store: {scalar(sample.store)}"
    yield f"{indent}table: {scalar(sample.table.name)}"


def _guessed(key: str, guess: Guess) -> Iterator[str]:
    if guess.value is None:
        indent = key[: len(key) - len(key.lstrip())]
        yield f"{indent}# {key.strip()}: {guess.evidence}"
    else:
        yield f"{key}: {scalar(guess.value)}  # {guess.evidence}"


def _columns(names: Sequence[str]) -> str:
    return scalar(names[0]) if len(names) == 1 else f"[{', '.join(map(scalar, names))}]"


def _flow(keys: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{key}: {scalar(value)}' for key, value in keys.items())}}}"
