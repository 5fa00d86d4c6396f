"""The desk's service: it keeps its copy of the orders by the consumer library, until SIGTERM."""

from __future__ import annotations

import logging
from pathlib import Path

from reconcile.consumer import Consumer, Message, Transaction

HERE = Path(__file__).parent
MODULE = "examples.outbox_router.service"
_WRITE = """
insert into orders values
    (%(id)s, %(version)s, %(customer)s, %(total)s, %(paid)s, %(due)s, %(placed_at)s, %(notes)s)
on conflict (id) do update set (version, customer, total, paid, due, placed_at, notes) =
    (excluded.version, excluded.customer, excluded.total, excluded.paid, excluded.due, excluded.placed_at,
     excluded.notes)
"""


def apply(message: Message, tx: Transaction) -> None:
    """Write an order as its event tells it, or delete it."""
    if message.type == "OrderCancelled":
        tx.execute("delete from orders where id = %s", (message.aggregate_id,))
    elif message.type in ("OrderPlaced", "OrderChanged"):
        tx.execute(_WRITE, {**message.json(), "id": message.aggregate_id, "version": message.version})
    else:
        raise ValueError("an event of another type")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    settings = HERE / "reconcile.yaml"
    Consumer.from_contract(HERE / "contract.yaml", "desk", apply, settings=settings).run()
