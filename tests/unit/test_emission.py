"""What the records of a topic say of corrections, and which corrections are not taken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reconcile.control.corrections import Intent
from reconcile.control.store import open_control
from reconcile.domain.correction import CORRECTION_ID, RUN_ID, Correction
from reconcile.domain.key import decode
from reconcile.errors import RefusedError
from reconcile.repair.emission import EmissionOutcome, EmissionTask, Watch, _Emission, batches, emit
from reconcile.settings.settings import Settings
from tests.control_behaviour import MINUTE

RUN = "r1"
LINK = "user-account/login"
TASK = EmissionTask(LINK, RUN, "user-account", cluster={})


@dataclass(frozen=True)
class Record:
    """A record as a consumer gives it; its value is its version."""

    at: int
    version: int
    of_key: bytes | None = b"a"
    in_partition: int = 0
    named: tuple[tuple[str, bytes | None], ...] | None = None

    def key(self) -> bytes | None:
        return self.of_key

    def partition(self) -> int:
        return self.in_partition

    def offset(self) -> int:
        return self.at

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return None if self.named is None else list(self.named)


def correction(id_: str = "c1", key: bytes = b"a", partition: int = 0, since: int = 10, version: int = 3) -> Correction:
    return Correction(
        id=id_,
        event_id=f"event of {id_}",
        link=LINK,
        aggregate_id=key.decode(),
        cause="skipped",
        topic="user-account",
        partition=partition,
        key=key,
        value=b"{}",
        headers=(),
        basis_version=version,
        since=since,
    )


def own(at: int, id_: str = "c1", run_id: str = RUN, version: int = 3) -> Record:
    """A correction's own record."""
    return Record(at, version, named=((CORRECTION_ID, id_.encode()), (RUN_ID, run_id.encode())))


def newer(record: Any, each: Correction) -> bool:
    return bool(record.version > (each.basis_version or 0))


def watch(*records: Record, others: tuple[str, ...] = (), of: tuple[Correction, ...] = ()) -> Watch:
    """Show records to a watch."""
    made = Watch(of or (correction(),), RUN, newer, others)
    for record in records:
        made.see(record)  # type: ignore[arg-type]
    return made


def test_the_first_newer_record_overtakes() -> None:
    """Its place is kept."""
    assert {"c1": (0, 12)} == watch(Record(11, 3), Record(12, 4), Record(13, 5)).overtaken


def test_a_newer_record_overtakes_however_its_key_is_spelled() -> None:
    """One producer escapes what another one writes as it is: both keys are of the same aggregate."""
    seen = Watch([correction(key='"é"'.encode())], RUN, newer, id_of=partial(decode, key_type="json"))
    seen.see(Record(12, 4, of_key=b' "\\u00e9"'))  # type: ignore[arg-type]
    seen.see(Record(13, 5, of_key=b'"e"'))  # type: ignore[arg-type]
    assert {"c1": (0, 12)} == seen.overtaken


def test_what_stands_before_the_fence_overtakes_nothing() -> None:
    """The correction was made in its knowledge."""
    assert {} == watch(Record(9, 4)).overtaken


@pytest.mark.parametrize("record", [Record(11, 4, b"b"), Record(11, 4, None), Record(11, 4, in_partition=1)])
def test_another_key_or_partition_overtakes_nothing(record: Record) -> None:
    """Order holds for a key inside a partition."""
    assert {} == watch(record).overtaken


def test_our_own_record_overtakes_nothing() -> None:
    """An aborted one of an earlier attempt is where it stands, whatever the judgement of it is."""
    seen = watch(own(11, version=9))
    assert ({}, {("c1", 0): [11]}) == (seen.overtaken, seen.own_offsets)


def test_every_own_record_is_told() -> None:
    """The first may be aborted, and the second committed."""
    assert {("c1", 0): [11, 14]} == watch(own(11), own(14)).own_offsets


@pytest.mark.parametrize("record", [own(11, run_id="r0", version=4), own(11, id_="c0", version=4)])
def test_another_correction_overtakes_as_an_event_does(record: Record) -> None:
    """One of another run, or of another link in the same run."""
    assert {"c1": (0, 11)} == watch(record).overtaken


def test_a_record_is_judged_for_each_correction_of_its_key() -> None:
    """One may be overtaken by what the other was made from."""
    both = (correction("c1", version=3), correction("c2", version=4))
    assert {"c1": (0, 11)} == watch(Record(11, 4), of=both).overtaken


def test_others_are_found_under_any_key() -> None:
    """Of what this attempt was not given, only the id is known."""
    stray = replace(own(11, id_="c9"), of_key=b"z")
    assert {} == watch(stray).own_offsets
    assert {("c9", 0): [11]} == watch(stray, others=("c9",)).own_offsets


@pytest.mark.parametrize("headers", [((CORRECTION_ID, None),), ((CORRECTION_ID, b"c1"),), ((RUN_ID, RUN.encode()),)])
def test_a_record_with_half_of_our_headers_is_not_ours(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    """Somebody may copy them."""
    seen = watch(Record(11, 4, named=headers))
    assert ({"c1": (0, 11)}, {}) == (seen.overtaken, seen.own_offsets)


def test_batches_touch_few_partitions() -> None:
    """Each partition of a transaction costs a marker, and a place in the log."""
    wanted = [correction(f"c{number}", partition=number % 2) for number in range(6)]
    assert [["c0", "c2"], ["c4", "c1"], ["c3", "c5"]] == [[each.id for each in some] for some in batches(wanted, 2)]


def test_what_has_one_id_stays_in_one_batch() -> None:
    """Also where the batch is full, or smaller than that."""
    wanted = [correction(id_, partition=place) for id_ in ("c1", "c2") for place in (0, 1)]
    for size in (1, 2, 3):
        assert [["c1", "c1"], ["c2", "c2"]] == [[each.id for each in some] for some in batches(wanted, size)]


def given(*corrections: Correction) -> EmissionOutcome:
    """Emit to nowhere: what is refused is refused before anything is asked."""
    nowhere: Any = None
    return emit(corrections, TASK, control=nowhere, held=nowhere, newer=newer)


def test_nothing_to_emit_is_no_error(tmp_path: Path) -> None:
    """Where no earlier attempt was given anything either, no cluster is asked."""
    with open_control(Settings(workspace=str(tmp_path))) as control, control.leases.hold(LINK, "me", MINUTE) as held:
        found = emit([], TASK, control=control, held=held, newer=newer)
    assert EmissionOutcome() == found


@pytest.mark.parametrize(("since", "start"), [({0: 9, 1: 4}, 9), ({}, 0)])
def test_what_this_attempt_was_not_given_is_looked_for_from_the_plans_fence(
    tmp_path: Path, since: dict[int, int], start: int
) -> None:
    """And not in all of the log, which may be large."""
    with open_control(Settings(workspace=str(tmp_path))) as control, control.leases.hold(LINK, "me", MINUTE) as held:
        control.runs.begin(RUN, "user-account", "c" * 64)
        control.corrections.intend(held.require(), [Intent("c9", LINK, "a", 3, 0, RUN)])
        emission = _Emission([], replace(TASK, since=since), control, held, lambda _: None)
        assert {0: start} == emission.starts()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ((correction(), replace(correction("c2"), topic="other")), "c2 is for the topic other, not for user-account"),
        ((replace(correction(), link="a/b"),), "c1 is one of a/b, not of user-account/login"),
        ((correction(), correction()), "c1 is given twice for the partition 0"),
    ],
)
def test_what_cannot_be_emitted_is_refused(wanted: tuple[Correction, ...], said: str) -> None:
    """Before anything is written down."""
    with pytest.raises(RefusedError, match=said):
        given(*wanted)
