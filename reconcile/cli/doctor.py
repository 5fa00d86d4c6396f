"""`reconcile doctor`: a contract and its topology against the live world."""

from __future__ import annotations

import logging
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconcile.cli import options
from reconcile.cli.ci import Ci, Level, Outcome, told
from reconcile.cli.output import print_json
from reconcile.contract.model import Contract, load_contract
from reconcile.settings.settings import Settings

if TYPE_CHECKING:
    from reconcile.audit.topology import Check, TopologyFacts
    from reconcile.cli.outputs import DoctorOutput
    from reconcile.gather.fence.fence import Fence

_LOG = logging.getLogger(__name__)

_WIDE = 80
_LABEL = 9
_COLOURS = {"fault": "bold red", "warning": "yellow", "ok": "green"}


@click.command()
@options.contract_file
@options.settings
@options.as_json
@told
@click.pass_context
def doctor(context: click.Context, contract: Path, read_settings: options.ReadSettings, as_json: bool, ci: Ci) -> None:
    """Check CONTRACT, its topics and its groups against the live stores and cluster.

    It only reads, and keeps the log's history in the workspace for later runs. Exits 0 if all is well or there are
    only warnings, 1 if something loses events or breaks their order, 2 if something could not be read.
    """
    agreed = load_contract(contract)
    facts, unread = _facts(agreed, contract, read_settings())
    from reconcile.audit.topology import checked, exit_code

    checks = checked(facts)
    of_fence = (f"{each.link}: {each.message}" for each in facts.fence.unread)
    unreadable = [*dict.fromkeys([*of_fence, *facts.cluster.unreadable, *unread])]
    code = exit_code(checks, unreadable)
    if as_json:
        print_json(_output(contract, facts, checks, unreadable, code))
    else:
        _show(facts, checks)
    for each in unreadable:
        click.echo(f"reconcile: {each}", err=True)
    ci.tell([*_outcomes(contract, checks), *(Outcome(str(contract), "reading", "error", each) for each in unreadable)])
    context.exit(code)


def _outcomes(contract: Path, checks: Sequence[Check]) -> Iterator[Outcome]:
    levels: dict[str, Level] = {"fault": "failure", "warning": "warning", "ok": "ok"}
    for each in checks:
        name, found = f"{each.id} {each.title}: {each.about}", (each.found, each.why, each.todo)
        yield Outcome(str(contract), name, levels[each.severity.value], "\n".join(part for part in found if part))


def _facts(contract: Contract, file: Path, settings: Settings) -> tuple[TopologyFacts, list[str]]:
    from reconcile.audit.events import require_analysed
    from reconcile.audit.topology import TopologyFacts
    from reconcile.audit.topology.facts import log_facts
    from reconcile.gather.fence.opening import open_fence
    from reconcile.gather.log.history import extend
    from reconcile.gather.log.state import KeptState
    from reconcile.gather.log.store import HistoryStore
    from reconcile.gather.log.value_reader import value_reader
    from reconcile.gather.topology_facts import cluster_facts
    from reconcile.kafka.client import ClusterClient
    from reconcile.pipeline.live_event_tests import tested_live
    from reconcile.spark.session import session
    from reconcile.workspace.workspace import Workspace

    _LOG.info("looking at stores, topic and groups")
    with open_fence(contract, file, settings, timeout=timedelta(0)) as opened:
        fence: Fence = opened.fence
    topic = contract.topic
    connection = settings.cluster(topic.cluster)
    with closing(ClusterClient(topic.cluster, connection.resolve())) as cluster:
        found = cluster_facts(cluster, contract)
    values = value_reader(topic, file.parent, settings)
    until = {each.partition: each.log_end for each in fence.topic.partitions}
    with session(settings.reading(contract.stores), f"reconcile doctor {contract.aggregate}") as spark:
        require_analysed(spark, contract, file)
        _LOG.info("reading the log")
        store = HistoryStore.of(Workspace(settings.workspace, spark))
        history = extend(spark, topic, connection, until, store, values=values)
        log = log_facts(KeptState(spark, history), history.index, topic)
        _LOG.info("testing what the contract says of events")
        live = tested_live(spark, contract, file, settings, history)
    return TopologyFacts(contract, fence, found, log, live.tests, live.strange), live.unread


def _output(
    file: Path, facts: TopologyFacts, checks: Sequence[Check], unreadable: Sequence[str], code: int
) -> DoctorOutput:
    from reconcile.cli.outputs import DoctorOutput, ProbablePartitioner

    inference = facts.log.inference
    return DoctorOutput(
        contract=str(file),
        digest=facts.fence.contract,
        aggregate=facts.contract.aggregate,
        topic=facts.topic,
        partitions=inference.partitions,
        partitioner=ProbablePartitioner(
            name=inference.partitioner,
            seen=inference.seen,
            shares={name: round(share, 4) for name, share in inference.shares.items()},
        ),
        checks=tuple(checks),
        counts={name: _counts(checks)[name] for name in _COLOURS},
        untold=tuple(unreadable),
        exit_code=code,
    )


def _show(facts: TopologyFacts, checks: Sequence[Check]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    several = len(facts.contract.consumers) > 1

    def line(label: str, text: str, style: str = "dim") -> None:
        for number, part in enumerate(textwrap.wrap(text, console.width - _LABEL, break_on_hyphens=False)):
            console.print(Text(f"{'' if number else label:<{_LABEL}}", style).append(part, "default"), soft_wrap=True)

    console.print(Text(f"{facts.contract.aggregate} through {facts.topic} on {facts.contract.topic.cluster}"))
    for severity in ("fault", "warning"):
        for each in (one for one in checks if one.severity == severity):
            console.print()
            line(severity.upper(), f"{each.id}  {each.title}: {each.about}", _COLOURS[severity])
            for label, text in (("  found", each.found), ("  why", each.why), ("  do", each.todo)):
                line(label, text)
    console.print()
    for each in (one for one in checks if one.severity == "ok"):
        about = f"{each.about}: " if several and each.about in {link for link, _ in facts.links()} else ""
        advice = f" ({each.todo})" if each.todo else ""
        line("ok", f"{each.id}  {each.title}: {about}{each.found}{advice}", _COLOURS["ok"])
    console.print()
    counts = _counts(checks)
    failed = ", ".join(f"{counts[each]} {each}{'' if counts[each] == 1 else 's'}" for each in ("fault", "warning"))
    console.print(Text(f"{len(checks)} checks: {failed}"))


def _counts(checks: Sequence[Check]) -> Counter[str]:
    return Counter(each.severity.value for each in checks)
