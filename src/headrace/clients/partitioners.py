"""Which partition a record goes to.

Left alone, a producer hashes the key with murmur2 as the Java client does, and spreads records
without a key. Give `partitioner=` to choose otherwise; any function will do:

    def critical_first(record: ToPartition) -> int:
        if record.key == b"Critical":
            return 0
        return 1 + murmur2_partition(record.key, record.partitions - 1)
"""

import itertools
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.model import Header


class ToPartition(NamedTuple):
    """What a partitioner sees; `partitions` is how many the topic has."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    partitions: int


Partitioner = Callable[[ToPartition], int]


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's Java client, as an unsigned number.

    >>> hex(murmur2(b"21"))
    '0xc5f2f8ec'
    """
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little")
        k = (k * m) & mask
        k = ((k ^ (k >> 24)) * m) & mask
        h = ((h * m) & mask) ^ k
    if tail := data[whole:]:
        h = ((h ^ int.from_bytes(tail, "little")) * m) & mask
    h = ((h ^ (h >> 13)) * m) & mask
    return h ^ (h >> 15)


def murmur2_partition(key: bytes | None, count: int) -> int:
    """The partition the Java client gives this key; without a key, any."""
    if key is None:
        return random.randrange(count)
    return (murmur2(key) & 0x7FFFFFFF) % count


class RoundRobin:
    """One partition after the other, whatever the key.

    >>> turn = RoundRobin()
    >>> [turn(ToPartition("t", b"k", b"v", (), 3)) for _ in range(4)]
    [0, 1, 2, 0]
    """

    def __init__(self) -> None:
        self._turns: dict[str, itertools.count[int]] = {}

    def __call__(self, record: ToPartition) -> int:
        turns = self._turns.setdefault(record.topic, itertools.count())
        return next(turns) % record.partitions


class Sticky:
    """The same partition for `size` records, then another one by chance: fuller batches."""

    def __init__(self, size: int = 100) -> None:
        self._size = size
        self._current: dict[str, tuple[int, int]] = {}

    def __call__(self, record: ToPartition) -> int:
        partition, left = self._current.get(record.topic, (0, 0))
        if not left or partition >= record.partitions:
            partition, left = random.randrange(record.partitions), self._size
        self._current[record.topic] = (partition, left - 1)
        return partition
