"""Which corrections go in one transaction. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconcile.domain.correction import Correction


def batches(corrections: Iterable[Correction], size: int) -> Iterator[list[Correction]]:
    """Give batches that touch few partitions, and keep what has the same id together."""
    groups: dict[str, list[Correction]] = {}
    for each in sorted(corrections, key=lambda each: each.partition):
        groups.setdefault(each.id, []).append(each)
    batch: list[Correction] = []
    for group in groups.values():
        if batch and len(batch) + len(group) > size:
            yield batch
            batch = []
        batch += group
    if batch:
        yield batch


def last_offsets(batch: Iterable[Correction], offsets: Iterable[int]) -> dict[int, int]:
    """Give the last offset of a batch in each partition."""
    last: dict[int, int] = {}
    for each, offset in zip(batch, offsets, strict=True):
        last[each.partition] = max(offset, last.get(each.partition, 0))
    return last
