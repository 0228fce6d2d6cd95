"""Partitioners are pure: the same record and state give the same partition."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clients.partitioners import (
    RoundRobin,
    Sticky,
    ToPartition,
    murmur2,
    murmur2_partition,
)


def record(key=b"k", partitions=5, topic="t"):
    return ToPartition(topic, key, b"v", (), partitions)


@pytest.mark.parametrize(
    ("data", "expected"),
    # From the test vectors of Kafka's own Java client.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_the_java_clients(data, expected):
    assert murmur2(data) == expected % 2**32


@given(st.binary(), st.integers(1, 1000))
def test_a_key_always_goes_to_the_same_partition_within_range(key, count):
    partition = murmur2_partition(key, count)
    assert 0 <= partition < count
    assert partition == murmur2_partition(key, count)


def test_records_without_a_key_are_spread():
    assert {murmur2_partition(None, 3) for _ in range(200)} == {0, 1, 2}


def test_round_robin_takes_turns_for_each_topic_by_itself():
    turn = RoundRobin()
    assert [turn(record(partitions=3)) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert turn(record(partitions=3, topic="other")) == 0


def test_sticky_stays_for_its_size_and_then_moves():
    sticky = Sticky(size=50)
    chosen = [sticky(record(partitions=8)) for _ in range(50 * 40)]
    runs = [set(chosen[start : start + 50]) for start in range(0, len(chosen), 50)]
    assert all(len(run) == 1 for run in runs)
    assert len(Counter(chosen)) > 3


def test_sticky_leaves_a_partition_that_is_gone():
    sticky = Sticky(size=1000)
    for _ in range(50):
        sticky(record(partitions=8))
    assert sticky(record(partitions=1)) == 0
