"""A batch of rows on their way to Kafka, column by column: loops over rows are for sending only."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from headrace.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa

Headers = list[tuple[str, bytes | None]]
ANY_PARTITION = -1
NOW = 0
_DIGEST_BITS = (1 << 64) - 1


@dataclass(frozen=True)
class Batch:
    """Rows as columns of equal length, in librdkafka's own terms."""

    topics: Sequence[str]
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    partitions: Sequence[int]
    timestamps: Sequence[int]
    headers: Sequence[Headers | None]

    @classmethod
    def of(cls, batch: "pa.RecordBatch", topic: str | None) -> "Batch":
        """An Arrow batch with the columns that `format("headrace")` knows."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        count = batch.num_rows

        def column(name: str, read: Any, default: Any) -> Sequence[Any]:
            found: Sequence[Any] = read(columns[name]) if name in columns else [default] * count
            return found

        return cls(
            topics=column("topic", lambda c: _topics(c, topic), topic),
            values=column("value", _bytes, None),
            keys=column("key", _bytes, None),
            partitions=column("partition", lambda c: _filled(c, ANY_PARTITION), ANY_PARTITION),
            timestamps=column("timestamp", _milliseconds, NOW),
            headers=column("headers", _headers, None),
        )

    def __len__(self) -> int:
        return len(self.topics)

    def __iter__(self) -> Iterator[tuple[str, Any, Any, int, int, Headers | None]]:
        return zip(
            *(self.topics, self.values, self.keys, self.partitions),
            *(self.timestamps, self.headers),
            strict=True,
        )

    def part(self, start: int, stop: int | None = None) -> "Batch":
        return Batch(*(column[start:stop] for column in vars(self).values()))

    @property
    def per_topic(self) -> Counter[str]:
        return Counter(self.topics)

    @property
    def size(self) -> int:
        parts = itertools.chain(self.values, self.keys)
        return sum(map(len, filter(None, parts)))

    @property
    def digest(self) -> int:
        """A number for the rows' content: a sum over rows, whatever their order."""
        rows = sum(map(crc32, _no_nulls(self.values), map(crc32, _no_nulls(self.keys))))
        topics = sum(crc32(topic.encode()) * count for topic, count in self.per_topic.items())
        return (rows + topics) & _DIGEST_BITS


def add_digests(one: int, other: int) -> int:
    return (one + other) & _DIGEST_BITS


def _bytes(column: Any) -> Sequence[bytes | None]:
    import pyarrow as pa

    found: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return found


def _filled(column: Any, default: int) -> Sequence[int]:
    found: list[int] = column.fill_null(default).to_pylist()
    return found


def _milliseconds(column: Any) -> Sequence[int]:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return _filled(column, NOW)


def _headers(column: Any) -> Sequence[Headers | None]:
    """Taken apart as whole columns: a dictionary per header is slow."""
    import pyarrow.compute as pc

    inner = column.flatten()
    # By name, whatever their order. A header that is null as a whole has no name either.
    names = pc.struct_field(inner, "key").to_pylist()
    if None in names:
        raise BadInput("a header in column 'headers' has no name", hint="give each one a key")
    pairs = list(zip(names, _bytes(pc.struct_field(inner, "value")), strict=True))
    ends = itertools.accumulate(length or 0 for length in column.value_lengths().to_pylist())
    bounds = itertools.pairwise(itertools.chain([0], ends))
    return [pairs[start:end] or None for start, end in bounds]


def _topics(column: Any, default: str | None) -> Sequence[str]:
    """Each row's topic; the default is for rows without one."""
    if column.null_count and default is None:
        raise BadInput(
            "column 'topic' is null in a row", hint=".option('topic', NAME) is for those"
        )
    found: list[str] = (column.fill_null(default) if column.null_count else column).to_pylist()
    return found


def _no_nulls(values: Sequence[bytes | None]) -> Sequence[bytes]:
    return [value or b"" for value in values]
