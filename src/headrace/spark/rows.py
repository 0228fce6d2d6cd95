"""Rows of Arrow batches as records for Kafka: which columns mean what, and how they are read."""

import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp", "piece")
_DIGEST_BITS = (1 << 64) - 1


class KafkaRow(NamedTuple):
    """One row, ready to be sent. Without a partition Kafka's own rule decides (-1)."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    timestamp: int
    headers: list[tuple[str, bytes | None]] | None


def check_columns(schema: "StructType", topic: str | None) -> None:
    """Refuse a table that cannot be records, naming the column."""
    from pyspark.sql import types as t

    texts = (t.BinaryType, t.StringType)
    allowed: dict[str, tuple[type[DataType], ...]] = {
        "key": texts,
        "value": texts,
        "headers": (t.ArrayType,),
        "topic": (t.StringType,),
        "partition": (t.IntegerType, t.LongType),
        "timestamp": (t.TimestampType, t.LongType),
        "piece": (t.StringType,),
    }
    for field in schema.fields:
        if field.name not in allowed:
            raise BadInput(
                f"column {field.name!r} means nothing to Kafka",
                hint=f"the columns are {', '.join(COLUMNS)}: select and rename",
            )
        if not isinstance(field.dataType, allowed[field.name]):
            kinds = " or ".join(kind.typeName() for kind in allowed[field.name])
            raise BadInput(
                f"column {field.name!r} is {field.dataType.simpleString()}, not {kinds}",
                hint=f"cast it: .withColumn({field.name!r}, ...)",
            )
    names = set(schema.fieldNames())
    if "value" not in names:
        raise BadInput("there is no column 'value'", hint="to_json(struct(...)).alias('value')")
    if "topic" not in names and topic is None:
        raise BadInput(
            "no topic is given", hint=".option('topic', NAME), or a column 'topic' with a name"
        )


def rows_of(batch: "pa.RecordBatch", topic: str | None) -> Iterator[KafkaRow]:
    """The rows of one batch."""
    count: int = batch.num_rows
    names: list[str] = batch.schema.names

    def column(name: str, default: Any) -> Sequence[Any]:
        if name not in names:
            return [default] * count
        values: list[Any] = batch.column(names.index(name)).to_pylist()
        return values

    return map(
        KafkaRow,
        column("topic", topic),
        map(_as_bytes, column("value", None)),
        map(_as_bytes, column("key", None)),
        (-1 if number is None else number for number in column("partition", -1)),
        map(_as_milliseconds, column("timestamp", 0)),
        _headers(batch) if "headers" in names else (None,) * count,
    )


def pieces_of(batch: "pa.RecordBatch") -> list[tuple[str, "pa.RecordBatch"]]:
    """A batch cut where column `piece` changes."""
    values = batch.column(batch.schema.names.index("piece"))
    if not batch.num_rows:
        return []
    import pyarrow.compute as pc

    runs = pc.run_end_encode(values)
    cut, start = [], 0
    for end, name in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        if name is None:
            raise BadInput("column 'piece' is null in a row", hint="give every row a piece")
        cut.append((name, batch.slice(start, end - start)))
        start = end
    return cut


def digest_of(row: KafkaRow) -> int:
    """A number for a row's content; a piece's digest is their sum, whatever their order."""
    return zlib.crc32(row.value or b"", zlib.crc32(row.key or b"", zlib.crc32(row.topic.encode())))


def add_digest(one: int, other: int) -> int:
    return (one + other) & _DIGEST_BITS


def _headers(batch: "pa.RecordBatch") -> Iterator[list[tuple[str, bytes | None]] | None]:
    """Each row's headers. Taken apart as whole columns: a dictionary per header is slow."""
    column = batch.column(batch.schema.names.index("headers"))
    inner = column.flatten()
    names: Sequence[str] = inner.field(0).to_pylist()
    values: Sequence[Any] = inner.field(1).to_pylist()
    pairs = list(zip(names, map(_as_bytes, values), strict=True))
    lengths = [length or 0 for length in column.value_lengths().to_pylist()]
    start = 0
    for length in lengths:
        yield pairs[start : start + length] or None
        start += length


def _as_bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _as_milliseconds(value: Any) -> int:
    if value is None:
        return 0
    return value if isinstance(value, int) else round(value.timestamp() * 1000)
