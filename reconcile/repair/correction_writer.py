"""The record of a correction: what the source says, in the form that the topic's own events have."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from reconcile.contract.model import Contract, Topic
from reconcile.contract.terms import TOMBSTONE
from reconcile.domain import correction as words
from reconcile.domain import mapping
from reconcile.domain.correction import Correction
from reconcile.domain.plan import Item
from reconcile.domain.plan_rules import Action
from reconcile.repair import json_values
from reconcile.repair.compensation import compensable
from reconcile.repair.json_values import MisfitError, fitted, path_of, put, written
from reconcile.repair.logged_aggregates import LoggedAggregate
from reconcile.repair.source_values import SourceRow
from reconcile.repair.topic_form import TopicForm, header_name

_TEST = re.compile(r"\s*(\$\S+?)\s*==?\s*(true|false|-?\d+|'[^']*')\s*", re.IGNORECASE)


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
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON may hold and UTF-8 may not
            raise MisfitError("topic.value gives a text that is none: it holds half of a character") from None

    def _of(self, item: Item, logged: LoggedAggregate, row: SourceRow | None) -> list[Correction]:
        assert item.aggregate_id is not None
        assert item.topic is not None
        assert item.correction_id is not None
        assert logged.key is not None
        event_id = words.event_id(item.correction_id, self.run_id)
        body = self._body(item, logged, row)
        type_ = self._type(item, logged, body)
        if body is not None:
            self._put_places(body, event_id, type_)
        value = None if body is None else self.form.codec.write(body)
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
            )
            for partition in item.partitions
        ]

    def _body(self, item: Item, logged: LoggedAggregate, row: SourceRow | None) -> dict[str, Any] | None:
        if item.action is Action.TOMBSTONE:
            return None if self.contract.topic.delete == TOMBSTONE else self._deleted(logged, row)
        assert row is not None
        return self._of_row(row) if item.action is Action.RESTATE else self._compensating(item, row)

    def _compensating(self, item: Item, row: SourceRow) -> dict[str, Any]:
        """Build what identifies the aggregate, with the amounts, and nothing that a newer event may have set since."""
        body = self._of_row(row)
        consumer = next(each for each in self.contract.consumers if self.contract.link(each) == item.link)
        for compared in consumer.fields:
            if compared.apply == "set" and compared.event is not None:
                for path in mapping.paths(compared.event):
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
            raise MisfitError(f"neither topic.value nor source.version gives the version at {place}")
        if not (row.numbered and self.form.numbered):
            how = "; only topic.value can say how to write one" if place.startswith("$") else ""
            raise MisfitError(f"the versions at {place} are no plain numbers{how}")
        return row.version

    def _deleted(self, logged: LoggedAggregate, row: SourceRow | None) -> dict[str, Any]:
        """Build the aggregate's last state, without what events add, with the test for a deletion made true."""
        state = logged.body if row is None else self._of_row(row)
        wanted = deletion(self.contract.topic)
        if state is None or wanted is None:
            raise MisfitError("no record of it and no row are left that a deletion could be made of")
        body = {name: copy.deepcopy(value) for name, value in state.items() if not name.startswith("__")}
        for path in added(self.contract):
            json_values.take_out(body, path)
        put(body, *wanted)
        return body

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
        return value if self.contract.topic.format == "avro" else fitted(value, path, self.form.types)

    def _version_header(
        self, logged: LoggedAggregate, row: SourceRow | None, body: Mapping[str, Any] | None
    ) -> str | None:
        """Write the version that a header bears; a tombstone of a row that is gone needs none."""
        place = self.contract.topic.version
        if place is None or header_name(place) is None:
            return None
        if row is not None:
            return str(self._number(row, place))
        if body is not None and logged.version_text is None:
            raise MisfitError(f"no record of it shows which version {place} has")
        return None if body is None else logged.version_text

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


def deletion(topic: Topic) -> tuple[json_values.Path, Any] | None:
    """Parse the path and the value that make topic.delete's test true; None where only a person can tell."""
    match = _TEST.fullmatch(topic.delete)
    if match is None or not mapping.is_path(match.group(1)):
        return None
    text = match.group(2)
    return mapping.steps(match.group(1)), text[1:-1] if text[0] == "'" else json_values.loads(text.lower())


def versioned_deletion(topic: Topic) -> bool:
    """Decide whether a record that deletes carries a version: a tombstone, and Debezium's `op: d`, have no state."""
    if topic.version is None or topic.delete == TOMBSTONE:
        return False
    test = deletion(topic)
    return topic.format != "debezium-json" or test is None or test[0] != ("__op",)


def added(contract: Contract) -> set[json_values.Path]:
    """Collect the paths that events add to."""
    return {
        path_of(path)
        for consumer in contract.consumers
        for field in consumer.fields
        if field.apply == "add" and field.event is not None
        for path in mapping.paths(field.event)
    }
