"""Doctor on a real world: silent where it is well, and right about what was done to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from reconcile.audit.home_partition import Former, Router, with_routing
from reconcile.audit.partitioner_inference import infer_from_log
from reconcile.audit.topology.facts import LogFacts, log_facts
from reconcile.cli import cli
from reconcile.contract.model import Topic, load_contract
from reconcile.domain.partitioner import Partitioner, partition_of
from reconcile.files import committed
from reconcile.gather.log.index import Growth, Held, Index, Segment
from reconcile.gather.log.state import ScannedState
from reconcile.gather.topology_facts import ClusterFacts, cluster_facts
from reconcile.kafka.client import ClusterClient
from reconcile.lab import faults, world
from reconcile.lab.folder import Lab
from reconcile.lab.services import offsets
from reconcile.lab.services.relay import producer
from tests.integration.worlds import seeded_world, until
from tests.ports import ports_of
from tests.schemas import valid_output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PORTS = ports_of("doctor")
NOW = datetime(2026, 6, 1, tzinfo=UTC)
M, C = Partitioner.MURMUR2, Partitioner.CRC32
COLUMNS = (
    "id string, key binary, partition int, offset bigint, timestamp timestamp, version string, type string,"
    " tombstone boolean, deletes boolean, value string, readable boolean"
)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A world of these tests' own."""
    with seeded_world(120, ports=PORTS) as lab:
        yield lab


@pytest.fixture
def admin(lab: Lab) -> AdminClient:
    """A client that may change the cluster."""
    return offsets.admin_client(lab.bootstrap)


def doctor(lab: Lab, contract: Path, workspace: Path, *options: str) -> Result:
    """Run the command in this process, with the session that the tests share."""
    config = str(world.settings_file(lab))
    return CliRunner().invoke(
        cli, ["doctor", str(contract), "--config", config, "--workspace", str(workspace), *options]
    )


def told(result: Result) -> dict[str, Any]:
    """Give the object that it printed."""
    found: dict[str, Any] = valid_output("doctor", result.stdout)
    return found


def by_severity(found: dict[str, Any], severity: str) -> list[str]:
    """Give the ids of the checks that came out so."""
    return sorted(each["id"] for each in found["checks"] if each["severity"] == severity)


def facts_of(lab: Lab, contract: Path) -> ClusterFacts:
    """Ask the cluster what the checks look at."""
    with closing(ClusterClient("main", {"bootstrap.servers": lab.bootstrap})) as cluster:
        return cluster_facts(cluster, load_contract(contract))


@pytest.mark.parametrize(
    ("name", "warnings"),
    [
        ("user-account", ["T-B5", "T-C5", "T-D2"]),
        ("user-balance", ["T-C5", "T-D2"]),
        ("user-activity", ["T-C5", "T-D2"]),
    ],
)
def test_a_healthy_world_has_no_fault(
    spark: SparkSession, lab: Lab, tmp_path: Path, name: str, warnings: list[str]
) -> None:
    """One broker, services that do not run, and unused retry topics are warnings; the rest is well."""
    result = doctor(lab, committed("contracts", f"{name}.yaml"), tmp_path, "--json")
    found = told(result)
    assert (0, [], warnings) == (result.exit_code, by_severity(found, "fault"), by_severity(found, "warning"))
    assert (1, "murmur2", 12) == (found["schema_version"], found["partitioner"]["name"], found["partitions"])


def test_it_is_readable_on_a_small_terminal(spark: SparkSession, lab: Lab, tmp_path: Path) -> None:
    """No line is wider than 80 columns, and each warning says what was found, why it matters and what to do."""
    result = doctor(lab, committed("contracts", "user-balance.yaml"), tmp_path)
    lines = result.stdout.splitlines()
    assert [] == [line for line in lines if len(line) > 80 or line != line.rstrip()]
    assert [2, 2, 2] == [sum(line.startswith(f"  {label} ") for line in lines) for label in ("found", "why", "do")]
    assert "19 checks: 0 faults, 2 warnings" == lines[-1]
    assert any("T-A1-events" in line and line.startswith("ok") for line in lines)


def test_what_the_cluster_does_not_have_is_told(spark: SparkSession, lab: Lab, tmp_path: Path) -> None:
    """A group that does not exist, with the one that may have been meant, and a failure topic that is not there."""
    text = committed("contracts", "user-activity.yaml").read_text("utf-8")
    text = text.replace("group: activity-service", "group: activty-service").replace("activity.dlq", "activity.dql")
    contract = tmp_path / "contract.yaml"
    contract.write_text(text, "utf-8")
    result = doctor(lab, contract, tmp_path, "--json")
    assert (1, ["T-B17", "T-D1"]) == (result.exit_code, by_severity(told(result), "fault"))
    assert any('did you mean "activity-service"?' in each["found"] for each in told(result)["checks"])


def test_a_store_that_cannot_be_read_is_told(
    spark: SparkSession, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be looked at exits 2, and the rest is shown."""
    monkeypatch.setenv("RECONCILE_CONN_BILLING_DB", "postgresql://nobody@127.0.0.1:1/billing")
    result = doctor(lab, committed("contracts", "user-balance.yaml"), tmp_path, "--json")
    found = told(result)
    assert (2, 1) == (result.exit_code, len(found["untold"]))
    assert "T-A2" in by_severity(found, "ok")


def test_settings_are_those_in_force(lab: Lab, admin: AdminClient) -> None:
    """A topic's own settings win over the broker's, and both are read."""
    name = "user-activity.activity.dlq"
    _configure(admin, name, "SET")
    try:
        until(lambda: "compact" == _layout(lab, name).cleanup)
        found = _layout(lab, name)
        assert (timedelta(seconds=5), 1, 3, "compact") == (
            found.retention,
            found.replicas,
            found.partitions,
            found.cleanup,
        )
        assert None is _layout(lab, "user-activity").retention
    finally:
        _configure(admin, name, "DELETE")


def _configure(admin: AdminClient, topic: str, operation: str) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType[operation])
        for name, value in (("cleanup.policy", "compact"), ("retention.ms", "5000"))
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def _layout(lab: Lab, topic: str) -> Any:
    return facts_of(lab, committed("contracts", "user-activity.yaml")).topics[topic]


def test_groups_that_read_a_topic_are_found(lab: Lab) -> None:
    """A group is a reader by its members as well as by its commits."""
    settings = {"bootstrap.servers": lab.bootstrap, "group.id": "watcher", "log_level": 0}
    topic = "user-activity.activity.retry-1"
    contract = committed("contracts", "user-activity.yaml")
    with closing(Consumer({**settings, "enable.auto.commit": False})) as consumer:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.05) is None and bool(consumer.assignment()))
        found = facts_of(lab, contract)
    assert ["watcher"] == [each.group for each in found.readers[topic]]
    assert ["activity-service"] == [each.group for each in found.readers["user-activity"]]
    assert frozenset({"user-activity"}) == found.group_topics["activity-service"]
    assert (1, ()) == (found.brokers, found.unreadable)


def test_keys_of_a_compacted_failure_topic_are_counted(lab: Lab, admin: AdminClient, tmp_path: Path) -> None:
    """The newest records of each partition tell how many keys there are."""
    admin.create_topics([NewTopic("parked", 2, 1, config={"cleanup.policy": "compact"})])["parked"].result(30)
    sender = producer(lab.bootstrap)
    for number in range(9):
        sender.produce("parked", key=b"2026-06-01", value=b"{}", partition=number % 2)
    assert not sender.flush(30)
    text = committed("contracts", "user-balance.yaml").read_text("utf-8")
    contract = tmp_path / "contract.yaml"
    contract.write_text(text.replace("policy: block", "policy: stash\n      stash: parked"), "utf-8")
    assert {"parked": (9, 1)} == facts_of(lab, contract).keys


def keys(count: int) -> list[str]:
    """Give ids."""
    return [f"user-{number}" for number in range(count)]


def rows(*records: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Give records as the history has them, a minute apart, in the order in which they were written."""
    ends: dict[int, int] = {}
    found = []
    for minute, each in enumerate(records):
        partition = each["partition"]
        ends[partition] = ends.get(partition, -1) + 1
        value = each.get("value", '{"id": 1}')
        found.append(
            (
                each["id"],
                each["id"].encode(),
                partition,
                ends[partition],
                NOW + timedelta(minutes=minute),
                each.get("version"),
                each.get("type", "Changed"),
                value is None,
                value is None or each.get("deletes", False),
                value,
                True,
            )
        )
    return found


def index_of(records: list[tuple[Any, ...]], *growth: Growth) -> Index:
    """Give the index of a history that holds these records."""
    ends: dict[int, int] = {}
    for each in records:
        ends[each[2]] = max(ends.get(each[2], 0), each[3] + 1)
    held = {p: Held(start=0, end=end, rows=end, first=0, last=end - 1) for p, end in ends.items()}
    segment = Segment(
        name="s",
        partitions=held,
        latest=NOW,
        null_keys=0,
        unreadable_keys=0,
        unreadable_values=0,
        digest="",
        files={},
    )
    seen = growth or (grown(12, {}, ends),)
    return Index(
        generation=1, cluster="main", topic="t", topic_id="i", derivation="d", segments=(segment,), partitions=seen
    )


def grown(count: int, after: dict[int, int], ends: dict[int, int]) -> Growth:
    """Give what the history notes of a partition count."""
    return Growth(count=count, seen_at=NOW, after=after, ends=ends)


def placed(ids: list[str], partitions: int, partitioner: Partitioner = M, **more: Any) -> list[dict[str, Any]]:
    """Put records where a partitioner puts them."""
    return [{"id": each, "partition": partition_of(each.encode(), partitions, partitioner), **more} for each in ids]


def seen_in(spark: SparkSession, found: list[tuple[Any, ...]], *growth: Growth, **topic: Any) -> LogFacts:
    """Give what a log tells."""
    said = Topic.model_validate({"cluster": "main", "name": "t", "version": "$.version", **topic})
    index = index_of(found, *growth)
    return log_facts(ScannedState(frame(spark, found), index), index, said)


def frame(spark: SparkSession, found: list[tuple[Any, ...]]) -> DataFrame:
    """Give records as a DataFrame."""
    return spark.createDataFrame(found, COLUMNS)


def test_a_log_is_routed_as_each_record_is(spark: SparkSession) -> None:
    """Spark's columns say what the router says of each record, and all other columns stay."""
    found = rows(*placed(keys(200), 12), *placed(keys(50), 18), *placed(keys(20), 18, C))
    router = Router(18, (M,), (Former(12, dict.fromkeys(range(12), 9)),))
    routed = with_routing(frame(spark, found), router).collect()
    told_by_router = {(row[2], row[3]): router.routing(row[1], row[2], row[3]) for row in found}
    assert told_by_router == {(row["partition"], row["offset"]): (row["routing"], row["routed_by"]) for row in routed}
    assert {"home", "former", "wrong"} == {row["routing"] for row in routed}


def test_deletions_are_known_in_the_forms_of_connectors(spark: SparkSession) -> None:
    """Whatever the contract says; and of those which it takes for states."""
    values = [
        '{"__deleted":"true","id":1}', '{"__deleted":"false","id":1}', '{"payload":{"__deleted":"true"},"schema":{}}',
        '{"op":"d","before":{},"source":{}}', '{"op":"d"}', '{"schema":{},"payload":null}', "gibberish", None,
    ]  # fmt: skip
    found = rows(*(placed([str(n)], 12, value=value)[0] for n, value in enumerate(values)))
    seen = seen_in(spark, found, delete=["tombstone", "$.__deleted == true"]).deletions
    assert (1, {
        "$.__deleted == 'true'": 1,
        "$.payload.__deleted == 'true'": 1,
        "$.op == 'd' and $.source is not null": 1,
        "$.schema is not null and $.payload is null": 1,
    }) == (seen.tombstones, seen.events)  # fmt: skip
    assert seen.events.keys() - {"$.__deleted == 'true'"} == seen.unread.keys()


def test_only_what_was_written_since_the_growth_tells(spark: SparkSession) -> None:
    """Samples come from after the last growth."""
    old, new = placed(keys(100), 12, C), placed(keys(100), 18)
    found = rows(*old, *new)
    ends = {partition: sum(each["partition"] == partition for each in old) for partition in range(18)}
    index = index_of(found, grown(12, {}, {}), grown(18, ends, ends))
    inference = infer_from_log(ScannedState(frame(spark, found), index), index.partitions)
    assert (M, 100, 18) == (inference.partitioner, inference.seen, inference.partitions)


def test_a_topic_that_is_silent_since_it_grew_tells_by_what_was_before(spark: SparkSession) -> None:
    """Where nothing was written since the growth, the earlier count and its records tell the partitioner."""
    found = rows(*placed(keys(100), 12, C))
    ends = {partition: len(found) for partition in range(18)}
    index = index_of(found, grown(12, {}, {}), grown(18, ends, ends))
    inference = infer_from_log(ScannedState(frame(spark, found), index), index.partitions)
    assert (C, 100, 18) == (inference.partitioner, inference.seen, inference.partitions)


def test_ids_in_several_partitions_are_told_apart(spark: SparkSession) -> None:
    """Growth explains some of them, another partitioner others."""
    moved = [each for each in keys(500) if _home(each, 12) != _home(each, 18)][:5]
    strays = [each for each in keys(900)[500:] if _home(each, 18, C) not in (_home(each, 18), _home(each, 12))][:3]
    old = placed(keys(900), 12)
    found = rows(*old, *placed(keys(900), 18), *placed(strays, 18, C))
    ends = {partition: sum(each["partition"] == partition for each in old) for partition in range(18)}
    placement = seen_in(spark, found, grown(12, {}, {}), grown(18, ends, ends)).placement
    assert (900, 3, 3) == (placement.ids, placement.stray, placement.stray_last)
    assert placement.spread == placement.stray + placement.grown
    assert placement.grown >= len(moved)
    assert (3, NOW + timedelta(minutes=len(found) - 1)) == (placement.routed_by["crc32"], placement.stray_at)


def _home(each: str, partitions: int, partitioner: Partitioner = M) -> int:
    return partition_of(each.encode(), partitions, partitioner)


def test_versions_that_go_down_are_counted(spark: SparkSession) -> None:
    """An older version behind a newer one is counted; in another partition, or in a new life, it is none."""
    (first,) = placed(["user-1"], 12)
    other = {**first, "partition": (first["partition"] + 1) % 12}
    versions = [
        {**first, "version": "9"},
        {**first, "version": "10"},
        {**first, "version": "9"},
        {**other, "version": "1"},
        {**first, "value": None},
        {**first, "version": "1"},
        {**first, "version": "1", "type": "Noted"},
    ]
    found = seen_in(spark, rows(*versions), ignore_types=["Noted"]).inversions
    assert found is not None
    assert (1, 1, NOW + timedelta(minutes=2)) == (found.ids, found.records, found.last_at)


def test_a_deletion_by_a_test_does_not_go_back_to_the_version_that_its_connector_fills_in(spark: SparkSession) -> None:
    """Under the default replica identity a rewritten deletion has 0 in place of a version that is not known."""
    (first,) = placed(["user-1"], 12)
    versions = [{**first, "version": "2"}, {**first, "version": "0", "value": '{"__deleted": "true"}'}]
    found = seen_in(spark, rows(*versions), delete="$.__deleted == 'true'").inversions
    assert found is not None
    assert 0 == found.records


def test_a_deleting_event_needs_no_version(spark: SparkSession) -> None:
    """Debezium's `op: d` has no row after it, and is no record that breaks its schema."""
    (first,) = placed(["user-1"], 12)
    found = seen_in(spark, rows({**first, "version": "1"}, {**first, "value": '{"__op":"d"}', "deletes": True}))
    assert [0] == [each.unversioned for each in found.types]


def test_the_fields_of_each_type_are_told(spark: SparkSession) -> None:
    """Fields that are always there are told from those that are there now and then."""
    values = ['{"id": 1, "email": "a"}', '{"id": 1}', None]
    found = seen_in(spark, rows(*({**placed(["user-1"], 12)[0], "value": value} for value in values)))
    (changed,) = found.types
    assert (frozenset({"id"}), frozenset({"id", "email"}), 3, 2) == (
        changed.always,
        changed.ever,
        changed.records,
        changed.unversioned,
    )


def test_what_was_done_to_the_world_is_found(spark: SparkSession, lab: Lab, tmp_path: Path) -> None:
    """Strays, inversions, growth and used retry topics are told, also when nobody looked before."""
    planted = ("zoey-race", "producer-reorder", "wrong-partitioner", "topic-growth")
    faults.plant(lab, faults.named(planted), 1)
    account = told(doctor(lab, committed("contracts", "user-account.yaml"), tmp_path, "--json"))
    balance = told(doctor(lab, committed("contracts", "user-balance.yaml"), tmp_path, "--json"))
    assert (["T-A2", "T-B5", "T-C4"], 1) == (by_severity(account, "fault"), account["exit_code"])
    growth = next(each for each in balance["checks"] if each["id"] == "T-D3")
    spread = next(each for each in balance["checks"] if each["id"] == "T-A2")
    assert growth["found"].startswith("grew from 12 to 18 partitions; 1 id stand")
    assert "2 as crc32 would" in spread["found"]
