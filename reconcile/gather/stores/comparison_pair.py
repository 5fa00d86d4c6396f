"""The comparison pair: source and copy as the contract describes them, and how their rows come into one form."""

from __future__ import annotations

from dataclasses import dataclass

from reconcile.contract.model import Consumer, Contract
from reconcile.domain.canonical import CanonicalType, Layout, agreed_layout
from reconcile.gather.stores.digest import DigestReading, Mode, Side


@dataclass(frozen=True)
class ComparisonPair:
    """How the rows of a source and of one of its copies are read to be compared."""

    source: DigestReading
    copy: DigestReading

    @property
    def form(self) -> Layout[CanonicalType]:
        """What both are compared as."""
        return self.copy.form


def source_side(contract: Contract, consumer: Consumer) -> Side:
    """Describe the source as one consumer's copy is compared with it."""
    source = contract.source
    fields = tuple(field.source for field in consumer.fields)
    return Side(source.id, fields, source.table, source.query, source.version_column, source.deleted)


def copy_side(consumer: Consumer) -> Side:
    """Describe a consumer's copy."""
    fields = tuple(field.consumer for field in consumer.fields)
    return Side(consumer.id, fields, consumer.table, consumer.query, consumer.version)


def types_for(types: Layout[str], contract: Contract, consumer: Consumer) -> Layout[str]:
    """Choose the source's types for one consumer, of those for the fields of all consumers in their order."""
    before = 0
    for each in contract.consumers:
        if each.name == consumer.name:
            break
        before += len(each.fields)
    return Layout(types.id, types.version, types.fields[before : before + len(consumer.fields)])


def comparison_pair(
    contract: Contract, consumer: Consumer, source_types: Layout[str], copy_types: Layout[str]
) -> ComparisonPair:
    """Build both readings, of all rows; `source_types` are those for this consumer."""
    form = agreed_layout(copy_types, source_types)
    return ComparisonPair(
        DigestReading(source_side(contract, consumer), source_types, form, Mode.FULL),
        DigestReading(copy_side(consumer), copy_types, form, Mode.FULL),
    )
