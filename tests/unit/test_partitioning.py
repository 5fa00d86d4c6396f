"""The partitioner is told by the log, and the router tells where each record should stand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.audit.home_partition import Former, Router, homes, routed
from reconcile.audit.partitioner_inference import Inference, infer
from reconcile.domain.case import Routing
from reconcile.domain.partitioner import Partitioner, partition_of
from reconcile.gather.log.index import Growth

M, C, F = Partitioner.MURMUR2, Partitioner.CRC32, Partitioner.FNV1A


def keys(count: int, prefix: str = "user-") -> list[bytes]:
    """Give keys as string ids have them."""
    return [f"{prefix}{number}".encode() for number in range(count)]


def placed(names: Sequence[bytes], partitions: int, partitioner: Partitioner = M) -> list[tuple[bytes, int]]:
    """Put keys where a partitioner puts them."""
    return [(key, partition_of(key, partitions, partitioner)) for key in names]


def disagreeing(partitions: int, count: int) -> list[bytes]:
    """Give keys that each partitioner puts elsewhere."""
    found = [key for key in keys(500) if len({partition_of(key, partitions, each) for each in Partitioner}) == 3]
    return found[:count]


def growth(count: int, ends: dict[int, int], after: dict[int, int] | None = None) -> Growth:
    """Give what the history notes of a partition count."""
    return Growth(count=count, seen_at=datetime(2026, 1, 1, tzinfo=UTC), after=after or {}, ends=ends)


@pytest.mark.parametrize("partitioner", list(Partitioner))
def test_the_partitioner_of_all_samples_is_inferred(partitioner: Partitioner) -> None:
    """Keys that all stand where one partitioner puts them tell which."""
    found = infer(placed(keys(300), 12, partitioner), 12)
    assert (partitioner, 300, 1.0) == (found.partitioner, found.seen, found.shares[partitioner])


def test_a_few_strays_do_not_hide_it() -> None:
    """One record in a hundred may stand elsewhere."""
    found = infer([*placed(keys(990), 12), *placed(disagreeing(12, 10), 12, C)], 12)
    assert M is found.partitioner


def test_none_is_named_where_none_explains_enough() -> None:
    """Two producers with different defaults are no partitioner, and nobody guesses between them."""
    found = infer([*placed(keys(200), 12), *placed(disagreeing(12, 60), 12, C)], 12)
    assert (None, (), None) == (found.partitioner, found.candidates, found.prevailing)


def test_a_stray_producer_is_told_from_the_one_that_prevails() -> None:
    """Where one partitioner explains most and another the rest, strays are told, and corrections have no home."""
    strays = placed(disagreeing(12, 12), 12, C)
    found = infer([*placed(keys(300, "id-"), 12), *strays], 12)
    router = Router.of(found, [growth(12, {})])
    assert (None, M, None) == (found.partitioner, found.prevailing, router.home(b"user-1"))
    assert (Routing.WRONG, "crc32") == router.routing(*strays[0], 0)
    assert Routing.HOME is router.routing(*placed([b"user-1"], 12)[0], 0)[0]


def test_a_growth_that_nobody_saw_and_a_stray_producer() -> None:
    """Both at once are told apart."""
    strays = placed(disagreeing(18, 8), 18, C)
    found = infer([*placed(keys(300, "id-"), 12), *placed(keys(60, "id-"), 18), *strays], 18)
    assert (None, M, 12) == (found.partitioner, found.prevailing, found.former)


def test_a_few_keys_fit_no_mixture() -> None:
    """What a handful of keys could show by chance is not told."""
    found = infer([*placed(keys(6), 12), *placed(keys(6), 18)], 18)
    assert ((), None, None) == (found.candidates, found.former, found.prevailing)


def test_nothing_seen_tells_nothing() -> None:
    """An empty log names no partitioner; empty keys are nothing either."""
    found = infer([(b"", 3)], 12)
    assert (None, 0) == (found.partitioner, found.seen)


def test_the_contract_tells_where_the_log_does_not() -> None:
    """A partitioner that the contract declares holds for a log without records."""
    assert C is infer([], 12, "crc32").partitioner


def test_the_log_wins_over_the_contract() -> None:
    """What the log shows is taken, and the contradiction is told."""
    found = infer(placed(keys(300), 12), 12, "crc32")
    assert (M, True) == (found.partitioner, found.contradicted)


@pytest.mark.parametrize(("declared", "expected"), [("murmur2", M), ("crc32", None)])
def test_the_contract_settles_a_mixture_unless_most_records_deny_it(
    declared: str, expected: Partitioner | None
) -> None:
    """Where producers differ, the contract may name the one that prevails; not one that hardly anybody uses."""
    found = infer([*placed(keys(300, "id-"), 12), *placed(disagreeing(12, 12), 12, C)], 12, declared)
    assert (expected, expected is None) == (found.partitioner, found.contradicted)


@pytest.mark.parametrize("strays", [12, 120])
@pytest.mark.parametrize("declared", ["infer", "murmur2"])
def test_a_mixture_gives_no_home_whatever_the_contract_says(declared: str, strays: int) -> None:
    """Where producers differ, the next event of a key may stand elsewhere than the contract says."""
    samples = [*placed(keys(300, "id-"), 12), *placed(disagreeing(12, strays), 12, C)]
    router = Router.of(infer(samples, 12, declared), [growth(12, {})])
    assert {None} == {router.home(key) for key in keys(20)}


@pytest.mark.parametrize(("samples", "declared"), [([], "crc32"), (placed(keys(2), 12, C)[:1], "crc32")])
def test_the_contract_gives_the_home_where_the_log_shows_too_little(
    samples: list[tuple[bytes, int]], declared: str
) -> None:
    """Nothing seen, or keys that more than one partitioner explains."""
    router = Router.of(infer(samples, 12, declared), [growth(12, {})])
    assert partition_of(b"user-7", 12, C) == router.home(b"user-7")


def test_the_contract_is_not_believed_where_nothing_explains_the_log() -> None:
    """A partitioner that explains no more than chance does is not taken, whoever names it."""
    found = infer([(key, number % 12) for number, key in enumerate(keys(300))], 12, "murmur2")
    assert (None, True) == (found.partitioner, found.contradicted)


def test_keys_that_differ_decide() -> None:
    """Where one hot key hides the others from the count, the keys on which partitioners differ tell them apart."""
    hot = next(key for key in keys(500) if partition_of(key, 12, M) == partition_of(key, 12, C))
    samples = [*placed([hot], 12) * 2000, *placed(disagreeing(12, 3), 12)]
    assert M is infer([*samples, *placed(keys(40, "agree"), 12)], 12).partitioner


def test_a_hot_key_does_not_speak_for_the_others() -> None:
    """A partitioner that explains one busy key and few others is not named."""
    samples = [*placed(keys(1), 12) * 5000, *placed(disagreeing(12, 20), 12, C)]
    assert None is infer(samples, 12).partitioner


def test_one_partition_tells_nothing_and_needs_nothing() -> None:
    """With one partition no partitioner can be told, and each key's home is known."""
    found = infer(placed(keys(10), 1), 1)
    router = Router.of(found, [growth(1, {0: 10})])
    assert (None, 0, Routing.HOME) == (found.partitioner, router.home(None), router.routing(b"a", 0, 3)[0])


def test_a_growth_that_nobody_saw_is_told() -> None:
    """Keys over 12 and over 18 partitions in one log tell the partitioner and the earlier count."""
    found = infer([*placed(keys(300), 12), *placed(keys(60), 18)], 18)
    assert (M, 12) == (found.partitioner, found.former)


@pytest.mark.parametrize(("offset", "expected"), [(99, Routing.FORMER), (100, Routing.WRONG)])
def test_growth_excuses_what_was_written_before_it(offset: int, expected: Routing) -> None:
    """A record in its former home counts as such below the offsets at which the growth was seen."""
    found = infer(placed(keys(300), 18), 18)
    router = Router.of(found, [growth(12, {}), growth(18, dict.fromkeys(range(18), 100))])
    key = next(key for key in keys(99) if partition_of(key, 18, M) != partition_of(key, 12, M))
    assert expected is router.routing(key, partition_of(key, 12, M), offset)[0]


def test_a_growth_that_nobody_saw_excuses_up_to_the_first_look() -> None:
    """Where the earlier count follows from the log alone, all that stood there at first sight may be older."""
    inference = Inference(18, 300, {}, (M,), former=12)
    router = Router.of(inference, [growth(18, {1: 50})])
    assert (Former(12, {1: 50}),) == router.former


def test_a_wrong_partition_is_told_with_the_partitioner_that_explains_it() -> None:
    """A record where another partitioner puts its key is wrong, and that partitioner is named."""
    router = Router(12, (M,))
    (key,) = disagreeing(12, 1)
    assert (Routing.WRONG, "crc32") == router.routing(key, partition_of(key, 12, C), 5)


def test_a_wrong_partition_that_nothing_explains() -> None:
    """A record where no partitioner puts its key is wrong, and nobody is named."""
    router = Router(12, (M,))
    (key,) = disagreeing(12, 1)
    free = next(p for p in range(12) if p not in {partition_of(key, 12, each) for each in Partitioner})
    assert (Routing.WRONG, None) == router.routing(key, free, 5)


def test_a_producer_that_never_heard_of_the_growth() -> None:
    """A record in its former home, after the growth was seen, is wrong and is told by its count."""
    router = Router(18, (M,), (Former(12, {}),))
    key = next(key for key in disagreeing(18, 99) if partition_of(key, 12, M) not in homes_of(key, 18))
    assert (Routing.WRONG, "murmur2 over 12 partitions") == router.routing(key, partition_of(key, 12, M), 5)


def homes_of(key: bytes, partitions: int) -> set[int]:
    """Give where the partitioners put a key."""
    return {partition_of(key, partitions, each) for each in Partitioner}


def test_without_a_partitioner_nothing_is_known() -> None:
    """No routing is told and no home is given."""
    router = Router(12, ())
    assert ((Routing.UNKNOWN, None), None) == (router.routing(b"a", 3, 5), router.home(b"a"))


def test_candidates_that_agree_know_the_home() -> None:
    """Where few keys leave two partitioners, a key that both put in one place has its home there."""
    router = Router(12, (M, C))
    same = next(key for key in keys(500) if partition_of(key, 12, M) == partition_of(key, 12, C))
    (other,) = disagreeing(12, 1)
    assert (partition_of(same, 12, M), None) == (router.home(same), router.home(other))


@pytest.mark.parametrize(("key", "candidates"), [(None, (M,)), (b"", (C,))])
def test_keys_that_no_hash_places(key: bytes | None, candidates: tuple[Partitioner, ...]) -> None:
    """A null key, and an empty one that librdkafka scatters, stand nowhere in particular."""
    assert (Routing.UNKNOWN, None) == Router(12, candidates).routing(key, 3, 0)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=30), st.sampled_from(list(Partitioner)))
def test_many_keys_stand_where_each_stands(names: list[bytes | None], partitioner: Partitioner) -> None:
    """Homes of many keys are those of each key."""
    router = Router(7, (partitioner,))
    expected = [-1 if (home := router.home(key)) is None else home for key in names]
    assert expected == homes(names, 7, partitioner).tolist()


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.binary(max_size=3)), st.integers(0, 8), st.integers(0, 20)), max_size=30
    ),
    st.sampled_from([(M,), (C,), (M, F), ()]),
)
def test_a_column_is_routed_as_each_record_is(
    records: list[tuple[bytes | None, int, int]], candidates: tuple[Partitioner, ...]
) -> None:
    """The routing of a column is the routing of each record."""
    router = Router(9, candidates, (Former(1, {0: 5}), Former(6, dict.fromkeys(range(9), 10))))
    names, partitions, offsets = ([each[part] for each in records] for part in range(3))
    columns = pa.array(names, pa.binary()), pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64())
    found = [(row["routing"], row["routed_by"]) for row in routed(router, *columns).to_pylist()]
    assert [router.routing(*record) for record in records] == found
