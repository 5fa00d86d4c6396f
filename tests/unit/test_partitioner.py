from collections.abc import Iterator
from uuid import NAMESPACE_OID, uuid5

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.domain.partitioner import Partitioner, candidates, explained_shares, murmur2, murmur2_many, partition_of

UUIDS = [str(uuid5(NAMESPACE_OID, str(number))).encode() for number in range(20_000)]


def placed(keys: list[bytes], by: Partitioner, partitions: int = 12) -> Iterator[tuple[bytes, int]]:
    return ((key, partition_of(key, partitions, by)) for key in keys)


@pytest.mark.parametrize(
    ("key", "java", "librdkafka", "sarama"),
    [
        ("user-42", 4, 7, 3),
        ("1", 3, 11, 4),
        ("order:1001", 10, 7, 5),
        ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", 11, 6, 4),
    ],
)
def test_a_key_lands_where_each_client_puts_it(key: str, java: int, librdkafka: int, sarama: int) -> None:
    """The check vectors for twelve partitions."""
    assert [java, librdkafka, sarama] == [partition_of(key.encode(), 12, each) for each in Partitioner]


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_the_java_client(key: bytes, hashed: int) -> None:
    """The vectors of the Java client's own test, which writes the hash signed."""
    assert hashed & 0xFFFFFFFF == murmur2(key)


def test_an_empty_key_hashes_to_one_place_in_java_and_sarama() -> None:
    """What no `explain` may rest on, since librdkafka scatters empty keys."""
    assert [275646681 % 12, 0, abs(0x811C9DC5 - (1 << 32)) % 12] == [
        partition_of(b"", 12, each) for each in Partitioner
    ]


@given(st.binary(max_size=40), st.integers(1, 10_000), st.sampled_from(Partitioner))
def test_a_partition_exists(key: bytes, partitions: int, by: Partitioner) -> None:
    """Every key has a partition below the count."""
    assert 0 <= partition_of(key, partitions, by) < partitions


def test_a_topic_without_partitions_is_refused() -> None:
    """A count of zero is a mistake of the caller."""
    with pytest.raises(ValueError, match="one partition or more"):
        partition_of(b"k", 0, Partitioner.MURMUR2)


@given(
    st.integers(0, 21).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=8))
)
def test_many_keys_hash_as_one_by_one(keys: list[bytes]) -> None:
    """The vectorised hash is the scalar one, at every length of the tail."""
    rows = np.array([list(key) for key in keys], dtype=np.uint8).reshape(len(keys), -1)
    assert [murmur2(key) for key in keys] == murmur2_many(rows).tolist()


def test_many_keys_may_be_a_view_of_a_wider_array() -> None:
    """Rows need not be contiguous."""
    wide = np.arange(60, dtype=np.uint8).reshape(5, 12)
    assert [murmur2(bytes(row)) for row in wide[::2, 1:8]] == murmur2_many(wide[::2, 1:8]).tolist()


def test_many_keys_of_no_rows_hash_to_nothing() -> None:
    """An empty batch is a batch."""
    assert murmur2_many(np.empty((0, 16), dtype=np.uint8)).shape == (0,)


def test_many_keys_refuse_what_is_not_bytes() -> None:
    """A cast would hash other bytes than those on the wire."""
    with pytest.raises(ValueError, match="uint8"):
        murmur2_many(np.zeros((2, 4), dtype=np.int64))


@pytest.mark.parametrize(("before", "after", "moved"), [(6, 7, 0.86), (6, 8, 0.76), (6, 12, 0.50)])
def test_growth_moves_keys(before: int, after: int, moved: float) -> None:
    """Adding partitions rehomes half of the keys or more."""
    rows = np.frombuffer(b"".join(UUIDS), dtype=np.uint8).reshape(len(UUIDS), -1)
    hashes = murmur2_many(rows) & np.uint32(0x7FFFFFFF)
    assert float(np.mean(hashes % before != hashes % after)) == pytest.approx(moved, abs=0.02)


def test_murmur2_and_crc32_seldom_agree() -> None:
    """A producer with the wrong default misplaces more than nine uuids in ten."""
    shares = explained_shares(placed(UUIDS[:5000], Partitioner.MURMUR2), 12)
    assert shares[Partitioner.CRC32] == pytest.approx(0.085, abs=0.015)


@given(st.sets(st.binary(min_size=1, max_size=24), min_size=40, max_size=60), st.sampled_from(Partitioner))
def test_a_log_of_one_producer_is_explained(keys: set[bytes], by: Partitioner) -> None:
    """The partitioner that placed every key wins with all of them."""
    shares = explained_shares(placed(list(keys), by), 12)
    assert ((by,), 1.0) == (candidates(shares), shares[by])


def test_a_few_strays_do_not_unseat_the_candidate() -> None:
    """One key in a hundred may be elsewhere."""
    pairs = [*placed(UUIDS[:99], Partitioner.CRC32), (UUIDS[99], 12)]
    assert (Partitioner.CRC32,) == candidates(explained_shares(pairs, 12))


def test_mixed_producers_have_no_candidate_and_show_their_shares() -> None:
    """Half by Java, half by librdkafka: neither explains the log."""
    pairs = [*placed(UUIDS[:500], Partitioner.MURMUR2), *placed(UUIDS[500:1000], Partitioner.CRC32)]
    shares = explained_shares(pairs, 12)
    assert () == candidates(shares)
    assert shares[Partitioner.MURMUR2] == pytest.approx(0.54, abs=0.03)
    assert shares[Partitioner.CRC32] == pytest.approx(0.54, abs=0.03)


def test_one_partition_is_ambiguous() -> None:
    """All partitioners explain it."""
    shares = explained_shares(placed(UUIDS[:10], Partitioner.FNV1A, partitions=1), 1)
    assert tuple(Partitioner) == candidates(shares)


def test_too_few_keys_are_ambiguous() -> None:
    """A key on which two partitioners agree proves neither."""
    key = next(key for key in UUIDS if partition_of(key, 12, "murmur2") == partition_of(key, 12, "crc32"))
    shares = explained_shares([(key, partition_of(key, 12, "murmur2"))], 12)
    assert {Partitioner.MURMUR2, Partitioner.CRC32} <= set(candidates(shares))


def test_empty_keys_prove_nothing() -> None:
    """librdkafka scatters them, so they count neither for nor against."""
    pairs = [*placed(UUIDS[:100], Partitioner.CRC32), *((b"", number % 12) for number in range(100))]
    assert 1.0 == explained_shares(pairs, 12)[Partitioner.CRC32]


def test_an_empty_log_explains_nothing() -> None:
    """No pairs, no candidate."""
    assert () == candidates(explained_shares([], 12))
