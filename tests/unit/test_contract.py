"""What a contract may say, and how its mistakes are told."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconcile.contract.model import Contract, DelayedTopic, FailureTopic, RepairTopic, StashTable, load_contract
from reconcile.domain.cause import Cause
from reconcile.errors import InvalidFileError

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "contract.md"
SMALLEST = """
version: 1
aggregate: user
source: {store: a, table: t, id: id}
topic: {cluster: main, name: user}
consumers:
  - name: login
    group: g
    store: b
    table: u
    id: id
    fields:
      - {name: email, source: email, consumer: mail}
"""

Change = Callable[[dict[str, Any]], object]


def documented() -> str:
    example = re.search(r"```yaml\n(.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    assert example is not None
    return example.group(1)


def contract(folder: Path, text: str) -> Contract:
    file = folder / "contract.yaml"
    file.write_text(text)
    return load_contract(file)


def changed(folder: Path, change: Change) -> Contract:
    """Read the documented contract after a change."""
    values = yaml.safe_load(documented())
    change(values)
    return contract(folder, yaml.safe_dump(values, sort_keys=False))


def problems(folder: Path, change: Change) -> list[str]:
    with pytest.raises(InvalidFileError) as caught:
        changed(folder, change)
    return [str(problem) for problem in caught.value.problems]


def login(values: dict[str, Any]) -> Any:
    return values["consumers"][0]


def test_the_documented_example_is_valid(tmp_path: Path) -> None:
    """What the documentation shows can be used as it is."""
    read = contract(tmp_path, documented())
    consumer = read.consumers[0]
    assert read.link(consumer) == "user-account/login"
    assert consumer.fields[2].apply == "add"
    assert consumer.failure.retry[1] == DelayedTopic(
        topic="user-account.login.retry-2", group="login-retry", delay=timedelta(minutes=5)
    )
    assert consumer.failure.dead_letter == FailureTopic(topic="user-account.login.dlq")
    assert consumer.settle.timeout == timedelta(seconds=60)
    assert consumer.repair.causes == (Cause.SKIPPED, Cause.OUT_OF_ORDER)


def test_little_is_required(tmp_path: Path) -> None:
    """What is left out has the documented defaults."""
    read = contract(tmp_path, SMALLEST)
    consumer = read.consumers[0]
    assert (read.topic.format, read.topic.key.type, read.topic.state) == ("json", "string", "full")
    assert (read.topic.partitioner, read.topic.delete, read.topic.value) == ("infer", "tombstone", None)
    assert (consumer.semantics, consumer.guard, consumer.isolation) == ("state", "none", None)
    assert (consumer.failure.policy, consumer.failure.dialect, consumer.failure.ledger) == ("ignore", "auto", None)
    assert (consumer.settle.timeout, consumer.settle.confirm_after) == (timedelta(seconds=60), timedelta(seconds=5))
    assert (consumer.repair.route, consumer.repair.causes, consumer.repair.deletes) == ("main", None, False)
    assert (consumer.repair.max_corrections, consumer.repair.max_ratio) == (1000, 0.01)
    assert consumer.repair.approval == "required"


def test_a_tolerance_is_taken_by_its_digits(tmp_path: Path) -> None:
    """0.1 means a tenth and not the binary fraction nearest to it."""
    read = changed(tmp_path, lambda values: login(values)["fields"][2].update(tolerance=0.1))
    assert read.consumers[0].fields[2].tolerance == Decimal("0.1")


def test_retry_topics_on_a_state_consumer_are_accepted(tmp_path: Path) -> None:
    """A contract describes the world as it is, wise or not."""
    read = changed(tmp_path, lambda values: login(values)["failure"].update(policy="retry-topics"))
    assert read.consumers[0].failure.policy == "retry-topics"


def test_a_stash_may_be_a_table(tmp_path: Path) -> None:
    """A mapping with `table` is a table in the consumer's store."""
    stash = {"table": "parked", "id": ["a", "b"], "partition": "p", "offset": "o", "resolved": "done"}
    read = changed(tmp_path, lambda values: login(values)["failure"].update(stash=stash))
    assert read.consumers[0].failure.stash == StashTable(
        table="parked", id=("a", "b"), partition="p", offset="o", resolved="done"
    )


def test_corrections_may_take_a_way_of_their_own(tmp_path: Path) -> None:
    """A route is a topic that no other group reads."""
    read = changed(tmp_path, lambda values: login(values)["repair"].update(route={"topic": "fix"}))
    assert read.consumers[0].repair.route == RepairTopic(topic="fix")


@pytest.mark.parametrize(
    ("written", "column", "dense"),
    [
        ("version", "version", None),
        ("{column: v}", "v", None),
        ("{column: v, dense: auto}", "v", None),
        ("{column: v, dense: yes}", "v", True),
        ('{column: v, dense: "no"}', "v", False),
    ],
)
def test_a_version_may_say_whether_it_is_dense(tmp_path: Path, written: str, column: str, dense: bool | None) -> None:
    """The log tells where the contract does not; YAML reads a bare yes as true."""
    source = contract(tmp_path, SMALLEST.replace("id: id}", f"id: id, version: {written}}}", 1)).source
    assert (column, dense) == (source.version_column, source.dense_versions)


def test_an_id_of_several_columns_has_a_json_key(tmp_path: Path) -> None:
    """Composite ids are lists of columns on both sides."""

    def change(values: dict[str, Any]) -> None:
        values["source"]["id"] = ["tenant", "id"]
        values["topic"]["key"]["type"] = "json"
        login(values)["id"] = ["tenant_id", "user_id"]

    assert changed(tmp_path, change).source.id == ("tenant", "id")


def test_avro_comes_with_a_schema(tmp_path: Path) -> None:
    """`schema` names a file or a registry."""

    def change(values: dict[str, Any]) -> None:
        values["topic"].update(format="avro", schema={"registry": "schemas"})

    value_schema = changed(tmp_path, change).topic.value_schema
    assert value_schema is not None
    assert value_schema.registry == "schemas"


def test_the_digest_does_not_depend_on_how_a_file_is_written(tmp_path: Path) -> None:
    """Order, short forms, defaults and comments do not count."""

    def rewrite(values: dict[str, Any]) -> None:
        values["source"] = dict(reversed(values["source"].items()))
        values["source"]["id"] = ["id"]
        login(values)["failure"]["dead_letter"] = {"topic": "user-account.login.dlq"}
        login(values)["settle"]["timeout"] = "1m"
        login(values)["fields"][2]["tolerance"] = 0
        del login(values)["guard"]

    assert changed(tmp_path, rewrite).digest == contract(tmp_path, documented()).digest


def test_the_digest_changes_with_what_is_said(tmp_path: Path) -> None:
    """Another meaning is another digest."""
    other = changed(tmp_path, lambda values: login(values).update(guard="newer"))
    assert other.digest != contract(tmp_path, documented()).digest


def test_what_is_written_as_json_is_read_back(tmp_path: Path) -> None:
    """A contract survives its own JSON."""
    read = contract(tmp_path, documented())
    assert contract(tmp_path, read.model_dump_json(by_alias=True, exclude_none=True)) == read


def test_a_contract_cannot_be_changed(tmp_path: Path) -> None:
    """Stages share it without fear."""
    with pytest.raises(ValueError, match="frozen"):
        contract(tmp_path, SMALLEST).aggregate = "x"


NAMES = "use a-z, 0-9, '.', '_' and '-', a letter or digit first"
TOPICS = "use a-z, A-Z, 0-9, '.', '_' and '-', at most 249 of them"
PATHS = "write $.name, $.a.b or $['odd-name']"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("version: 1\n", "version: 2\n", "version: this program reads version 1: write `version: 1` (line 2)"),
        ("version: 1\n", "version: '1'\n", "version: this program reads version 1: write `version: 1` (line 2)"),
        ("version: 1\n", "version: true\n", "version: this program reads version 1: write `version: 1` (line 2)"),
        (
            "version: 1\n",
            "",
            "version: is missing: the version of this format: 1 (line 2)",
        ),
        (
            "version: 1\n",
            "version: 1\n'[key]': 1\n",
            '["[key]"]: unknown key "[key]"; valid keys are version, aggregate, source, topic, consumers, incremental'
            " (line 3)",
        ),
        ("aggregate: user", "aggregate: User", f'aggregate: "User" is not a name: {NAMES} (line 3)'),
        (
            "aggregate:",
            "agregate:",
            "aggregate: is missing: what the source owns and publishes, such as user-account (line 2)\n"
            'agregate: unknown key "agregate"; did you mean "aggregate"? (line 3)',
        ),
        (
            "store: a,",
            "",
            "source.store: is missing: the name of the connection to the database or the folder (line 4)",
        ),
        ("id: id}", "id: []}", "source.id: must not be empty (line 4)"),
        ("id: id}", "id: 5}", 'source.id: expected text, found 5; put quotes round it: "5" (line 4)'),
        (
            "id: id}",
            "id: [a, a]}",
            "source.id: names a column twice (line 4)\n"
            "topic: an id of several columns needs the key type json, or schema (line 5)\n"
            "consumers[0].id: has 1 columns, the source's id has 2 (line 11)",
        ),
        ("id: id}", "id: {a: b}}", "source.id: expected a column's name, or a list of them (line 4)"),
        ("table: t,", "", "source: needs either `table` or `query`; neither is there (line 4)"),
        ("table: t,", "table: t, query: q,", "source: needs either `table` or `query`; both are there (line 4)"),
        ("table: t,", "query: '',", "source.query: must not be empty: SQL is needed (line 4)"),
        (
            "table: t,",
            "table: a.b.c,",
            'source.table: "a.b.c" is not a table\'s name: write table or schema.table, or use `query` (line 4)',
        ),
        ("name: user}", "name: a b}", f'topic.name: "a b" is not a topic\'s name: {TOPICS} (line 5)'),
        ("name: user}", "name: ..}", f'topic.name: ".." is not a topic\'s name: {TOPICS} (line 5)'),
        (
            "name: user}",
            "name: user, format: jsn}",
            'topic.format: "jsn" is not valid: write json, avro, json-schema, protobuf or debezium-json;'
            ' did you mean "json"? (line 5)',
        ),
        (
            "name: user}",
            "name: user, format: avro}",
            "topic.format: avro values need `schema: {file: ...}` or `schema: {registry: ...}` (line 5)",
        ),
        (
            "name: user}",
            "name: user, schema: {file: a, registry: b}}",
            "topic.schema: needs either `file` or `registry`; both are there (line 5)",
        ),
        (
            "name: user}",
            "name: user, key: string}",
            'topic.key: expected keys and values, found "string" (line 5)',
        ),
        (
            "name: user}",
            "name: user, version: $version}",
            f'topic.version: "$version" is no place in a record: {PATHS}, or header:name (line 5)',
        ),
        (
            "name: user}",
            "name: user, delete: deleted}",
            'topic.delete: "deleted" is not valid: write tombstone, or a test such as $.deleted == true (line 5)',
        ),
        (
            "name: user}",
            "name: user, delete: [tombstone, deleted]}",
            'topic.delete[1]: "deleted" is not valid: write tombstone, or a test such as $.deleted == true (line 5)',
        ),
        ("name: user}", "name: user, delete: []}", "topic.delete: must not be empty (line 5)"),
        (
            "name: user}",
            "name: user, delete_as: $.at is not null}",
            'topic.delete_as: "$.at is not null" says not what to write: write tombstone, or a test `$.path == value`'
            " (line 5)",
        ),
        ("name: user}", "name: user, value: {}}", "topic.value: must not be empty (line 5)"),
        (
            "name: user}",
            "name: user, value: {a: 1}}",
            'topic.value.a: expected text, found 1; put quotes round it: "1" (line 5)',
        ),
        (
            "group: g",
            "group: no",
            "consumers[0].group: expected text, found no, which YAML reads as false;"
            ' put quotes round it: "no" (line 8)',
        ),
        ("group: g", "group:", "consumers[0].group: expected text, found nothing (line 8)"),
        ("group: g", "group: ''", "consumers[0].group: must not be empty (line 8)"),
        ("group: g", "group: [g]", "consumers[0].group: expected text, found a list (line 8)"),
        (
            "group: g",
            "group: g\n    semantics: event",
            'consumers[0].semantics: "event" is not valid: write state or records (line 9)',
        ),
        (
            "group: g",
            "group: g\n    semantics: records\n    expires: true",
            "consumers[0].expires: is for copies of state: a record that is gone is lost (line 10)",
        ),
        (
            "group: g",
            "group: g\n    settle: {timeout: 60}",
            "consumers[0].settle.timeout: the number 60 has no unit: write 500ms, 60s, 5m, 1h or 1d (line 9)",
        ),
        (
            "group: g",
            "group: g\n    tolerance: {ratio: 5}",
            "consumers[0].tolerance.ratio: must be 1.0 or less, found 5 (line 9)",
        ),
        (
            "group: g",
            "group: g\n    tolerance: {rows: 1.5}",
            "consumers[0].tolerance.rows: expected a whole number, found 1.5 (line 9)",
        ),
        (
            "group: g",
            "group: g\n    failure: {policy: stsh}",
            'consumers[0].failure.policy: "stsh" is not valid: write ignore, block, retry-then-dead-letter,'
            ' retry-topics or stash; did you mean "stash"? (line 9)',
        ),
        (
            "group: g",
            "group: g\n    failure: {policy: block, retry: a}",
            'consumers[0].failure.retry: expected a list, found "a" (line 9)',
        ),
        (
            "group: g",
            "group: g\n    failure: {policy: block, retry: [a b, 5, {topic: c, grop: d}]}",
            f'consumers[0].failure.retry[0]: "a b" is not a topic\'s name: {TOPICS} (line 9)\n'
            "consumers[0].failure.retry[1]: expected a topic's name, or {topic: ..., group: ..., delay: ...} (line 9)\n"
            'consumers[0].failure.retry[2].grop: unknown key "grop"; did you mean "group"? (line 9)',
        ),
        (
            "group: g",
            "group: g\n    failure: {policy: block, stash: {table: t, id: i, partition: p, ofset: o}}",
            "consumers[0].failure.stash.offset: is missing: the column with the offset that the event"
            " came from (line 9)\n"
            'consumers[0].failure.stash.ofset: unknown key "ofset"; did you mean "offset"? (line 9)',
        ),
        (
            "group: g",
            "group: g\n    failure: {policy: block, ledger: {table: t, partition: p}}",
            "consumers[0].failure.ledger: needs `event_id`, or both `partition` and `offset` (line 9)",
        ),
        (
            "group: g",
            "group: g\n    repair: {route: mian}",
            'consumers[0].repair.route: "mian" is not valid: write main, or {topic: mian} (line 9)',
        ),
        (
            "group: g",
            "group: g\n    repair: {causes: [stashed]}",
            "consumers[0].repair.causes[0]: stashed is never repaired: such events are released"
            " from the stash (line 9)",
        ),
        (
            "group: g",
            "group: g\n    repair: {deletes: 1, max_corrections: -1}",
            "consumers[0].repair.deletes: expected true or false, found 1 (line 9)\n"
            "consumers[0].repair.max_corrections: must be 0 or more, found -1 (line 9)",
        ),
        (
            "consumer: mail}",
            "consumr: mail}",
            "consumers[0].fields[0].consumer: is missing: SQL over the copy's row; its"
            " type is the one that values are compared in (line 13)\n"
            'consumers[0].fields[0].consumr: unknown key "consumr";'
            ' did you mean "consumer"? (line 13)',
        ),
        (
            "consumer: mail}",
            "consumer: mail, event: email}",
            f'consumers[0].fields[0].event: "email" has no path into the event: {PATHS} (line 13)',
        ),
        (
            "consumer: mail}",
            "consumer: mail, event: upper($email)}",
            f'consumers[0].fields[0].event: "$email" is not a path: {PATHS} (line 13)',
        ),
        (
            "consumer: mail}",
            "consumer: mail, event: {path: $.mail, as: epoch_seconds}}",
            'consumers[0].fields[0].event.as: "epoch_seconds" is no form of a value: write decimal(precision, scale),'
            " such as decimal(12,2), or one of epoch_days, epoch_millis, epoch_micros, epoch_nanos, millis_of_day,"
            " micros_of_day, nanos_of_day, micro_duration, iso_interval, base64 (line 13)",
        ),
        (
            "consumer: mail}",
            "consumer: mail, event: {path: 'upper($.mail)', as: epoch_days}}",
            f'consumers[0].fields[0].event.path: "upper($.mail)" is no path into the event: {PATHS} (line 13)',
        ),
        (
            "consumer: mail}",
            "consumer: mail, apply: add}",
            "consumers[0].fields[0].apply: `apply: add` needs `event`, which tells how much each event adds (line 13)",
        ),
        (
            "consumer: mail}",
            "consumer: mail, tolerance: -0.5}",
            "consumers[0].fields[0].tolerance: must be 0 or more, found -0.5 (line 13)",
        ),
        (
            "consumer: mail}",
            "consumer: mail, tolerance: '1'}",
            'consumers[0].fields[0].tolerance: expected a number, found "1" (line 13)',
        ),
        (
            "consumer: mail}",
            "consumer: mail, colour: red}",
            'consumers[0].fields[0].colour: unknown key "colour"; valid keys are name, source, consumer, event, apply,'
            " tolerance, sensitive (line 13)",
        ),
    ],
)
def test_a_mistake_is_told_with_what_is_valid(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """Each message has path and line, what was found, and what to write."""
    assert old in SMALLEST
    with pytest.raises(InvalidFileError) as caught:
        contract(tmp_path, SMALLEST.replace(old, new, 1))
    assert "\n".join(f"{problem} (line {problem.line})" for problem in caught.value.problems) == expected


def test_empty_lists_are_told(tmp_path: Path) -> None:
    """A contract without consumers says nothing."""
    assert problems(tmp_path, lambda values: values.update(consumers=[])) == ["consumers: must not be empty"]


MAIN = "is the main topic; failed events need one of their own"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda values: login(values)["failure"].update(dead_letter="user-account"),
            [f"consumers[0].failure.dead_letter: {MAIN}"],
        ),
        (
            lambda values: login(values)["failure"].update(retry=["a", "user-account"]),
            [f"consumers[0].failure.retry[1]: {MAIN}"],
        ),
        (
            lambda values: login(values)["failure"].update(retry=["a", "a"], stash="a"),
            [
                "consumers[0].failure.retry[1]: the topic a is already named in this failure block",
                "consumers[0].failure.stash: the topic a is already named in this failure block",
            ],
        ),
        (
            lambda values: (
                values["topic"].update(delete=["tombstone", "$.gone == true"]),
                values["topic"].pop("delete_as"),
                login(values)["repair"].update(deletes=True),
            ),
            [
                "consumers[0].repair.deletes: `topic.delete` names several forms: say in `topic.delete_as` how a"
                " deletion is written"
            ],
        ),
        (
            lambda values: login(values)["repair"].update(route={"topic": "user-account"}),
            ["consumers[0].repair.route.topic: is the main topic: write `route: main`"],
        ),
        (
            lambda values: login(values)["repair"].update(route={"topic": "user-account.login.dlq"}),
            ["consumers[0].repair.route.topic: is a topic for failed events; corrections need one of their own"],
        ),
        (
            lambda values: login(values).update(failure={"policy": "stash"}),
            ["consumers[0].failure.policy: the policy stash needs `stash`"],
        ),
        (
            lambda values: login(values).update(failure={"policy": "retry-topics"}),
            ["consumers[0].failure.policy: the policy retry-topics needs `retry`"],
        ),
        (
            lambda values: login(values).update(failure={"policy": "retry-then-dead-letter"}),
            ["consumers[0].failure.policy: the policy retry-then-dead-letter needs `dead_letter`"],
        ),
        (
            lambda values: values["source"].update(id=["tenant", "id"]),
            [
                "topic.key.type: an id of several columns needs the key type json, or schema",
                "consumers[0].id: has 1 columns, the source's id has 2",
            ],
        ),
        (
            lambda values: values["consumers"].append(copy.deepcopy(login(values))),
            ["consumers[1].name: there is already a consumer login"],
        ),
        (
            lambda values: login(values)["fields"].append({"name": "email", "source": "a", "consumer": "b"}),
            ['consumers[0].fields[3].name: the field "email" is already there'],
        ),
    ],
)
def test_parts_that_do_not_fit_together_are_told(tmp_path: Path, change: Change, expected: list[str]) -> None:
    """What is right by itself may still contradict the rest."""
    assert problems(tmp_path, change) == expected


def test_all_mistakes_are_told_at_once_in_the_order_of_lines(tmp_path: Path) -> None:
    """A contract is edited once for all its mistakes."""

    def change(values: dict[str, Any]) -> None:
        values["topic"]["format"] = "xml"
        values["source"]["stroe"] = values["source"].pop("store")
        login(values)["fields"][1]["apply"] = "plus"

    found = [problem.split(": ")[0] for problem in problems(tmp_path, change)]
    assert found == ["source.store", "source.stroe", "topic.format", "consumers[0].fields[1].apply"]


def test_a_flood_of_mistakes_is_cut(tmp_path: Path) -> None:
    """Nobody reads more than a hundred."""
    found = problems(tmp_path, lambda values: values.update({f"key{n}": 1 for n in range(500)}))
    assert (len(found), found[-1]) == (101, "and 400 more problems")


def test_sql_with_a_nul_is_refused() -> None:
    """No driver takes a NUL, wherever a contract comes from."""
    values = yaml.safe_load(SMALLEST)
    values["consumers"][0]["fields"][0]["source"] = "a\0b"
    with pytest.raises(ValueError, match="SQL must not contain a NUL character"):
        Contract.model_validate(values)


def test_what_compensation_needs_is_said_at_once(tmp_path: Path) -> None:
    """A route of the consumer's own, a way to add an event once, and a sum."""
    text = SMALLEST.rstrip() + "\n    repair: {compensate: true}\n"
    with pytest.raises(InvalidFileError) as caught:
        contract(tmp_path, text)
    found = str(caught.value)
    assert all(
        f"consumers[0].repair.compensate: needs {each}" in found for each in ("`route:", "failure.ledger", "a field")
    )


ADDING = (
    "    repair: {compensate: true, route: {topic: fix}}\n"
    "    failure: {policy: block, ledger: {table: done, event_id: event}}\n"
)


def test_a_route_of_differences_is_nobody_elses(tmp_path: Path) -> None:
    """Another consumer whose corrections go there reads it, and would add them too."""
    first = SMALLEST.rstrip().replace("mail}", "mail, event: $.m, apply: add}") + "\n" + ADDING
    second = first[first.index("  - name: login") :].replace("name: login", "name: search").replace(ADDING, "")
    with pytest.raises(InvalidFileError, match=r"consumers\[0\].repair.route.topic: is the route of search too"):
        contract(tmp_path, first + second + "    repair: {route: {topic: fix}}\n")


def test_a_ledger_of_positions_in_the_source_does_not_know_a_difference(tmp_path: Path) -> None:
    """Debezium's events are known by their position where nothing else names them, and corrections have none."""
    text = SMALLEST.rstrip().replace("mail}", "mail, event: $.m, apply: add}") + "\n" + ADDING
    with pytest.raises(InvalidFileError, match=r"consumers\[0\].repair.compensate: needs topic.event_id"):
        contract(tmp_path, text.replace("name: user}", "name: user, format: debezium-json}"))
