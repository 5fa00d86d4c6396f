"""What a person should know before saying yes to the corrections of a link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reconcile.audit.link_facts import ledger_by_position
from reconcile.audit.partitioner_inference import Inference
from reconcile.contract.model import Consumer, Contract
from reconcile.domain.plan import Item
from reconcile.repair.json_values import path_of
from reconcile.repair.log_facts import Trace
from reconcile.repair.records import carried
from reconcile.repair.topic_form import TopicForm, header_name


def of_log(corrections: Sequence[Item], traces: Mapping[str, Trace], inference: Inference) -> list[str]:
    """Say what is odd about where the aggregates' records stand."""
    found = []
    split = sum(len(traces.get(each.aggregate_id or "", Trace()).last) > 1 for each in corrections)
    if split:
        found.append(f"{split:,} of the aggregates have records in more than one partition")
    if inference.contradicted:
        said = "none" if inference.declared is None else inference.declared.value
        found.append(f"the contract says partitioner: {said}, and the log shows otherwise: the log counts")
    return found


def of_consumer(contract: Contract, consumer: Consumer, *, main: bool) -> list[str]:
    """Say what the consumer may do with a correction."""
    found = []
    if ledger_by_position(contract, consumer):
        found.append(
            "the ledger knows events by their position in the source, and corrections have none: see that the consumer"
            " does not take them all for one event"
        )
    if not main and consumer.guard == "none":
        found.append(
            "nothing orders the corrections with the events of the main topic, and the consumer compares no versions:"
            " see that the source is quiet"
        )
    if consumer.guard != "none" and consumer.version is None:
        found.append(
            "the consumer compares versions, and the contract names no column with its own: it may ignore some"
        )
    return found


def of_values(contract: Contract, form: TopicForm) -> list[str]:
    """Name what the topic's records carry and corrections would not."""
    topic = contract.topic
    if topic.state != "full" or topic.format == "avro":
        return []  # a patch carries what changed; a schema knows by itself what may be left out
    beside = (topic.version, topic.event_id, topic.type, topic.correlation_id)
    names = (*carried(contract), *(place for place in beside if place is not None and header_name(place) is None))
    lacking = sorted(name for name in form.always - {path_of(name)[0] for name in names} if not name.startswith("__"))
    if not lacking:
        return []
    return [f"topic.value leaves out {', '.join(lacking)}, which all records carry: readers would miss that"]
