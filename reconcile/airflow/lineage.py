"""What a run says of its tables, as OpenLineage's assertions of data quality, where its provider is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconcile.airflow.installation import installation
from reconcile.airflow.scheduled_run import ScheduledRun
from reconcile.errors import ReconcileError

if TYPE_CHECKING:
    from reconcile.contract.model import Contract
    from reconcile.contract.terms import Rows
    from reconcile.pipeline.handoffs import Summary, Verified
    from reconcile.quality.suites import Checked
    from reconcile.settings.settings import Settings

AGREES = "agrees_with_source"
"""The assertion about a copy as a whole: that no more of it differs than the contract tolerates."""


@dataclass(frozen=True)
class Assertion:
    """One thing that was expected of a table."""

    assertion: str
    success: bool
    column: str | None


def lineage_of(scheduled_run: ScheduledRun) -> Any:
    """Build an `OperatorLineage` of a run's tables; None where OpenLineage is not installed, or nothing was audited."""
    try:
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import InputDataset
        from openlineage.client.facet_v2 import data_quality_assertions_dataset as facet
    except ImportError:
        return None
    from reconcile.pipeline.handoffs import Summary, Verified, results_of
    from reconcile.pipeline.runs import contract_of

    try:
        with installation().run(scheduled_run.run_id) as (_, run, settings):
            contract, summary, results = contract_of(run), run.read_if_there(Summary), results_of(run)
            verified = run.read_if_there(Verified)
    except ReconcileError:
        return None
    if contract is None or summary is None:
        return None
    inputs = []
    for rows, found in assertions(contract, summary, verified, results):
        namespace, name = dataset(rows, settings, contract.aggregate)
        told = [facet.Assertion(assertion=each.assertion, success=each.success, column=each.column) for each in found]
        facets = {"dataQualityAssertions": facet.DataQualityAssertionsDatasetFacet(assertions=told)}
        inputs.append(InputDataset(namespace=namespace, name=name, inputFacets=facets))
    return OperatorLineage(inputs=inputs)


def assertions(
    contract: Contract, summary: Summary, verified: Verified | None, results: Sequence[Checked]
) -> Iterator[tuple[Rows, list[Assertion]]]:
    """Build what was expected of the source and of each copy that was read; a copy's agreement is as it is now."""
    after = {each.link: each.beyond_tolerance for each in verified.links} if verified is not None else {}
    of_source = {_assertion(each): None for each in results if each.suite == "source"}
    if of_source:
        yield contract.source, list(of_source)
    consumers = {contract.link(each): each for each in contract.consumers}
    for link in summary.links:
        if link.link in consumers:
            agrees = Assertion(AGREES, not after.get(link.link, link.beyond_tolerance), None)
            own = [each for each in results if each.link == link.link and each.suite not in ("source", "findings")]
            yield consumers[link.link], [agrees, *map(_assertion, own)]


def dataset(rows: Rows, settings: Settings, aggregate: str) -> tuple[str, str]:
    """Build the namespace and the name of a table, as OpenLineage's naming has them for its kind of database.

    What a query gives has the aggregate's name, and a store of another kind its connection's.
    """
    from reconcile.settings.connections import Store
    from reconcile.settings.urls import MariaUrl, PostgresUrl

    connection = settings.connection(rows.store)
    address = connection.resolve() if isinstance(connection, Store) else None
    table = rows.table or aggregate
    if isinstance(address, PostgresUrl):
        return f"postgres://{address.host}:{address.port}", address.qualified(table)
    if isinstance(address, MariaUrl):
        return f"mysql://{address.host}:{address.port}", address.qualified(table)
    return f"reconcile://{rows.store}", table


def _assertion(checked: Checked) -> Assertion:
    name = checked.expectation.removeprefix("expect_").removeprefix("column_values_to_")
    return Assertion(f"{checked.suite}.{name}", checked.success, ", ".join(checked.columns) or None)
