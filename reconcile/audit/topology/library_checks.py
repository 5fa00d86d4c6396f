"""Checks of the consumer library, by what its tables in the copies' stores say."""

from __future__ import annotations

from collections.abc import Iterator

from reconcile.audit.topology.facts import TopologyFacts
from reconcile.audit.topology.rule import Check, Rule, listed
from reconcile.contract.model import Consumer
from reconcile.gather.stores.library_tables import LEDGER, Registration

_AS_AGREED = Rule(
    "T-B14",
    ("B14",),
    "The consumer library runs as the contract says",
    "findings and corrections are decided by the contract's policy and guard, whatever the service really does",
)
_GROUPS = Rule(
    "T-B14-groups",
    ("B14", "B17"),
    "Groups of one store fail alike",
    "a group that the contract does not name, with another policy, keeps a copy in the same store that nobody audits",
)


def registrations(facts: TopologyFacts) -> Iterator[Check]:
    """Compare how each group was started with what the contract says of it."""
    for link, consumer, fence in facts.fences():
        if fence.library is None:
            continue
        if not fence.library.readable:
            found = f"{fence.store} has the library's tables, and our account may not read them: they are no evidence"
            todo = "grant the account what `reconcile contract grants` prints for this store, now that they are there"
            yield _AS_AGREED.warning(link, found, todo)
            continue
        elsewhere = [each for each in fence.library.registrations if each.group == consumer.group]
        if (registered := fence.registration(facts.topic)) is not None:
            yield _compared(link, consumer, registered)
        elif elsewhere:
            found = f"{consumer.group} was started on {elsewhere[0].topic}, not on {facts.topic}"
            yield _AS_AGREED.fault(link, found, "start it with this contract, or correct the names in it")


def other_groups(facts: TopologyFacts) -> Iterator[Check]:
    """Look for groups of the library beside the contract's that consume its topic into the same store otherwise."""
    named = {each.group for each in facts.contract.consumers}
    for link, _, fence in facts.fences():
        registered = fence.registration(facts.topic)
        if fence.library is None or registered is None:
            continue
        others = [
            f"{each.group} ({each.policy})"
            for each in fence.library.registrations
            if each.group not in named and each.topic == facts.topic and each.policy != registered.policy
        ]
        if others:
            found = f"{fence.store} is also written by {listed(others)}"
            todo = "name it in the contract, or stop it and remove its row of reconcile.consumer"
            yield _GROUPS.warning(link, found, todo)
        else:
            yield _GROUPS.ok(link, f"no other group with another policy than {registered.policy}")


def _compared(link: str, consumer: Consumer, registered: Registration) -> Check:
    agreed: dict[str, str] = {"guard": consumer.guard}
    if "failure" in consumer.model_fields_set:
        agreed["policy"] = consumer.failure.policy
    found = [
        f"{name} {running}, and {said} in the contract"
        for name, said in agreed.items()
        if (running := getattr(registered, name)) != said
    ]
    if found:
        todo = "correct the contract, or start the service with it (Consumer.from_contract)"
        return _AS_AGREED.fault(link, f"{registered.group} runs with the {'; the '.join(found)}", todo)
    how = f"{registered.group} runs with the policy {registered.policy} and the guard {registered.guard}"
    ledger = consumer.failure.ledger
    if ledger is not None and ledger.table != LEDGER and registered.ledger:
        found_too = f"it keeps the library's ledger, and the contract declares {ledger.table}, which counts instead"
        todo = "take failure.ledger out of the contract: the library's is read without"
        return _AS_AGREED.warning(link, f"{how}; {found_too}", todo)
    if not registered.ledger:
        todo = "" if ledger else "let it keep its ledger: nothing shows better what was applied"
        return _AS_AGREED.ok(link, f"{how}, without the library's ledger", todo)
    return _AS_AGREED.ok(link, how)
