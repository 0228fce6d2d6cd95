"""What Kafka stores, as plain values.

Named tuples, because records are made by the hundred thousand a second and a tuple is the
cheapest immutable object Python has.
"""

from enum import StrEnum
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class TimestampType(StrEnum):
    """Who set a record's timestamp."""

    NONE = "none"
    CREATE_TIME = "create"
    LOG_APPEND_TIME = "append"


# A header's name may appear more than once, and the order counts: a list, not a dict.
Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record as it stands in a partition.

    >>> record = Record("clicks", 0, 42, 1_570_000_000_000, TimestampType.CREATE_TIME, b"k", b"v")
    >>> record.where
    'clicks[0]@42'
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    leader_epoch: int | None = None

    @property
    def where(self) -> str:
        """Topic, partition and offset, as messages name a record."""
        return f"{self.topic}[{self.partition}]@{self.offset}"
