"""The record of a correction: what the source says, in the form that the topic's own events have."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

from reconcile.contract.consumer import EncodedValue
from reconcile.contract.model import Contract, Topic
from reconcile.contract.terms import TOMBSTONE
from reconcile.domain import correction as words
from reconcile.domain import deletion, untold
from reconcile.domain.correction import Correction
from reconcile.domain.encoding import Encoding
from reconcile.domain.plan import Item
from reconcile.domain.plan_rules import Action
from reconcile.gather.log.value_reader import TYPE
from reconcile.repair import connect_schema, json_values
from reconcile.repair.compensation import compensable
from reconcile.repair.json_values import MisfitError, RowMisfitError, fitted, path_of, put, written
from reconcile.repair.logged_aggregates import LoggedAggregate
from reconcile.repair.source_values import SourceRow
from reconcile.repair.topic_form import PLACES_IN_LOG, TopicForm, header_name, is_mark


@dataclass(frozen=True)
class CorrectionWriter:
    """Writes corrections of one run on one topic."""

    contract: Contract
    form: TopicForm
    run_id: str
    since: Mapping[int, int]
    """The offsets from which on a newer event forbids a correction, by partition."""

    def of(self, item: Item, logged: LoggedAggregate, row: SourceRow | None) -> list[Correction]:
        """Build the records of an item, one for each partition; raise MisfitError where its value does not fit."""
        try:
            return self._of(item, logged, row)
        except RowMisfitError:
            raise
        except MisfitError as error:
            if row is not None:
                raise
            raise RowMisfitError(f"its last record does not fit the topic as it is now: {error}") from None
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON may hold and UTF-8 may not
            raise RowMisfitError("topic.value gives a text that is none: it holds half of a character") from None

    def _of(self, item: Item, logged: LoggedAggregate, row: SourceRow | None) -> list[Correction]:
        assert item.aggregate_id is not None
        assert item.topic is not None
        assert item.correction_id is not None
        assert logged.key is not None
        event_id = words.event_id(item.correction_id, self.run_id)
        body, *others = self._bodies(item, logged, row)
        type_ = self._type(item, logged, body)
        value, *then = (self._value(each, event_id, type_, item.action, logged) for each in (body, *others))
        headers = self._headers(item, event_id, type_, self._version_header(logged, row, body))
        return [
            Correction(
                id=item.correction_id,
                event_id=event_id,
                link=item.link,
                aggregate_id=item.aggregate_id,
                cause=item.cause,
                topic=item.topic,
                partition=partition,
                key=logged.key,
                value=value,
                headers=headers,
                basis_version=item.basis_version,
                since=self.since[partition],
                then=tuple(then),
            )
            for partition in item.partitions
        ]

    def _bodies(self, item: Item, logged: LoggedAggregate, row: SourceRow | None) -> list[dict[str, Any] | None]:
        """Build what each record of an item says; None for a tombstone."""
        if item.action is Action.TOMBSTONE:
            written = self.contract.topic.deletions
            return [None if each == TOMBSTONE else self._deleted(each, logged, row) for each in written]
        assert row is not None
        body = self._of_row(row) if item.action is Action.RESTATE else self._compensating(item, row)
        self._mark(body, deleted=False)
        return [body]

    def _value(
        self,
        body: dict[str, Any] | None,
        event_id: str,
        type_: str | None,
        action: Action,
        logged: LoggedAggregate,
    ) -> bytes | None:
        if body is None:
            return self.form.tombstone
        own = logged.body or {}
        name = body.get(TYPE) or own.get(TYPE)
        self._put_places(body, event_id, type_)
        name = body.get(TYPE) or name
        codec = self.form.codec_of(name if self.contract.topic.type is None else type_, name)
        unset = _paths(self.contract, "set") if action is Action.COMPENSATE else ()
        same = own if codec.by_schema and own.get(TYPE) == (codec.states or ({},))[-1].get(TYPE) else None
        return codec.write(body, connect_schema.LeftOut(added(self.contract), unset), same)

    def _compensating(self, item: Item, row: SourceRow) -> dict[str, Any]:
        """Build what identifies the aggregate, with the amounts, and nothing that a newer event may have set since."""
        body = self._of_row(row)
        consumer = next(each for each in self.contract.consumers if self.contract.link(each) == item.link)
        for compared in consumer.fields:
            if compared.apply == "set":
                for path in compared.event_paths:
                    json_values.take_out(body, path_of(path))
        paths = compensable(consumer)
        for name, amount in item.amounts.items():
            put(body, paths[name], self._fitted(paths[name], Decimal(amount)))
        return body

    def _of_row(self, row: SourceRow) -> dict[str, Any]:
        topic = self.contract.topic
        body: dict[str, Any] = {}
        for name in carried(self.contract):
            path = path_of(name)
            put(body, path, self._fitted(path, row.values[name]))
        if topic.version is not None and header_name(topic.version) is None:
            path = path_of(topic.version)
            if json_values.at(body, path) is None:
                put(body, path, self._fitted(path, self._number(row, written(path))))
        return body

    def _number(self, row: SourceRow, place: str) -> int:
        """Return the version of a row, for a place that topic.value says nothing of; raise MisfitError without one."""
        if row.version is None:
            error = MisfitError if self.contract.source.version_column is None else RowMisfitError
            raise error(f"neither topic.value nor source.version gives the version at {place}")
        if not (row.numbered and self.form.numbered):
            how = "; only topic.value can say how to write one" if place.startswith("$") else ""
            raise MisfitError(f"the versions at {place} are no plain numbers{how}")
        return row.version

    def _deleted(self, form: str, logged: LoggedAggregate, row: SourceRow | None) -> dict[str, Any]:
        """Build the aggregate's last state, without what events add, with the test for a deletion made true."""
        state = logged.body if row is None else self._of_row(row)
        test = deletion.writable(form)
        if state is None or test is None:
            raise RowMisfitError("no record of it and no row are left that a deletion could be made of")
        above = self.form.codec.row_path
        body = copy.deepcopy(dict(state))
        for name in [name for name in json_values.at(body, above) or () if is_mark(name)]:
            json_values.take_out(body, (*above, name))
        if any(self._is_untold(value) for value in (json_values.at(body, above) or {}).values()):
            raise RowMisfitError("its last record does not tell all of it, and nothing else of it is left")
        for path in added(self.contract):
            json_values.take_out(body, path)
        self._mark(body, deleted=True)
        put(body, test.path, test.value)
        return body

    def _is_untold(self, value: Any) -> bool:
        """Whether a record has a placeholder in place of a value."""
        text = value if isinstance(value, str) else json_values.dumps(value)
        return text in untold.in_records(self.contract.topic.untold)

    def _mark(self, body: dict[str, Any], *, deleted: bool) -> None:
        """Write into the row what connectors write beside its columns, where topic.value does not."""
        above, codec = self.form.codec.row_path, self.form.codec
        if codec.form == "debezium-json":
            return  # the envelope has it
        row = json_values.at(body, above)
        for name, common in self.form.marks.items():
            if isinstance(row, dict) and name not in row:
                value, schema = _mark(name, common, deleted=deleted), codec.schema_at((*above, name))
                kept = value is None and schema is not None and connect_schema.requires(schema)
                row[name] = json_values.at(codec.whole, (*above, name)) if kept else value

    def _type(self, item: Item, logged: LoggedAggregate, body: dict[str, Any] | None) -> str | None:
        topic = self.contract.topic
        if topic.type is None:
            return None
        if item.action is Action.COMPENSATE:
            adding = logged.adding_type or self.form.adding_type
            if adding is None:
                raise MisfitError("no record of the topic shows which type an event with an amount has")
            return adding
        deleting = self.form.deleting_type if body is None else None
        found = topic.correction_type or deleting or logged.type or self.form.usual_type
        if found is None:
            raise MisfitError("no record of the topic shows which type an event has: set topic.correction_type")
        return found

    def _put_places(self, body: dict[str, Any], event_id: str, type_: str | None) -> None:
        """Write into the value what has a place there beside the state."""
        topic = self.contract.topic
        for place, text in ((topic.event_id, event_id), (topic.type, type_), (topic.correlation_id, self.run_id)):
            if place is not None and text is not None and header_name(place) is None:
                put(body, path_of(place), self._fitted(path_of(place), text))

    def _fitted(self, path: json_values.Path, value: Any) -> Any:
        """Bring a value into the form that the topic's records have there."""
        if self.contract.topic.format in ("avro", "protobuf"):
            return value
        schema = self.form.codec.schema_at(path)
        form = self._encodings.get(path)
        if form is not None and not connect_schema.names_form(schema):
            objects = schema is None and json_values.Type.OBJECT in self.form.types.get(path, ())
            with_scale = objects and form.form == "decimal"
            value = connect_schema.variable(value, path) if with_scale else connect_schema.encoded(value, form, path)
        return fitted(value, path, self.form.types) if schema is None else connect_schema.fitted(value, schema, path)

    @cached_property
    def _encodings(self) -> dict[json_values.Path, Encoding]:
        """How connectors write what stands at some paths, by the contract."""
        values = (field.event for consumer in self.contract.consumers for field in consumer.fields)
        return {path_of(each.path): each.encoding for each in values if isinstance(each, EncodedValue)}

    def _version_header(
        self, logged: LoggedAggregate, row: SourceRow | None, body: Mapping[str, Any] | None
    ) -> str | None:
        """Write the version that a header bears; a tombstone has one where the topic's own do, and one is known."""
        place = self.contract.topic.version
        if place is None or header_name(place) is None or (body is None and not self.form.versioned_tombstones):
            return None
        if row is not None:
            return str(self._number(row, place))
        if body is not None and logged.version_text is None:
            raise RowMisfitError(f"no record of it shows which version {place} has")
        return logged.version_text

    def _headers(
        self, item: Item, event_id: str, type_: str | None, version: str | None
    ) -> tuple[tuple[str, bytes], ...]:
        topic = self.contract.topic
        own = [
            (header_name(topic.event_id), event_id),
            (header_name(topic.type), type_),
            (header_name(topic.correlation_id), self.run_id),
            (header_name(topic.version), version),
            (self.form.cloud_event_id, event_id),
        ]
        assert item.correction_id is not None
        ours = [
            (words.CORRECTION_ID, item.correction_id),
            (words.RUN_ID, self.run_id),
            (words.LINK, item.link),
            (words.CAUSE, item.cause),
            (words.BASIS_VERSION, "" if item.basis_version is None else str(item.basis_version)),
        ]
        named = {name: text.encode() for name, text in own if name is not None and text is not None}
        return (*self.form.headers, *named.items(), *((name, text.encode()) for name, text in ours))


def carried(contract: Contract) -> tuple[str, ...]:
    """List the entries of topic.value that corrections carry: none that events add to, as that would be added anew."""
    adds = added(contract)
    return tuple(name for name in contract.topic.value or () if path_of(name) not in adds)


def deletable(topic: Topic) -> bool:
    """Decide whether a program can write what deletes."""
    return bool(topic.deletions) and all(
        each == TOMBSTONE or deletion.writable(each) is not None for each in topic.deletions
    )


def versioned_deletion(topic: Topic) -> bool:
    """Decide whether a record that deletes carries a version: a tombstone, and Debezium's `op: d`, have no state."""
    return topic.version is not None and any(_carries_state(each, topic) for each in topic.deletions)


def _carries_state(form: str, topic: Topic) -> bool:
    test = deletion.writable(form)
    of_envelope = topic.format == "debezium-json" and test is not None and test.path == ("__op",)
    return form != TOMBSTONE and not of_envelope


def _mark(name: str, common: Any, *, deleted: bool) -> Any:
    """Choose what a connector would write beside a row's columns; None where only it could know."""
    plain = name.removeprefix("__").removeprefix("source_")
    now = time.time_ns()
    times = {"ts_ms": now // 1_000_000, "ts_us": now // 1_000, "ts_ns": now}
    if plain == "deleted" and (common is None or str(common).lower() in ("true", "false")):
        return deleted if isinstance(common, bool) else str(deleted).lower()
    if plain == "op":
        return "d" if deleted else "u"
    return times.get(plain, None if plain in PLACES_IN_LOG else common)


def added(contract: Contract) -> set[json_values.Path]:
    """Collect the paths that events add to."""
    return _paths(contract, "add")


def _paths(contract: Contract, apply: Literal["add", "set"]) -> set[json_values.Path]:
    return {
        path_of(path)
        for consumer in contract.consumers
        for field in consumer.fields
        if field.apply == apply
        for path in field.event_paths
    }
