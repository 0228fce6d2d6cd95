"""Rows on their way to Spark: Arrow batches of line, raw bytes, reason, and the columns."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_LINES = 20_000
MAX_ROW_BYTES = 900_000  # a broker takes a megabyte, with key, headers and all
SHOWN_BYTES = 64_000  # of a row that is too large, as dead letter
TAKEN_BEFORE = "continues a line that was taken before it was complete"


class Bad(NamedTuple):
    """A row that cannot be taken apart."""

    number: int
    raw: bytes
    reason: str


def batch_of(numbers: Any, raws: Any, reasons: Any, columns: Sequence[Any]) -> "pa.RecordBatch":
    """Columns that are no Arrow arrays are text."""
    import pyarrow as pa

    count = len(numbers)
    arrays = [
        pa.array(numbers, pa.int64()),
        raws if isinstance(raws, pa.Array) else pa.array(raws, pa.binary()),
        pa.nulls(count, pa.string()) if reasons is None else pa.array(reasons, pa.string()),
        *(c if isinstance(c, pa.Array) else pa.array(c, pa.string()) for c in columns),
    ]
    names = ["line", "raw", "reason", *(f"c{index}" for index in range(len(columns)))]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def bad_batches(
    bad: Sequence[Bad], types: "Sequence[pa.DataType]", size: int
) -> "Iterator[pa.RecordBatch]":
    """Bad rows, with columns of these types that are all null."""
    import pyarrow as pa

    for start in range(0, len(bad), size):
        numbers, raws, reasons = zip(*bad[start : start + size], strict=True)
        shown = [raw if len(raw) <= MAX_ROW_BYTES else raw[:SHOWN_BYTES] for raw in raws]
        yield batch_of(numbers, shown, reasons, [pa.nulls(len(raws), kind) for kind in types])


def too_large(raw: bytes) -> str:
    return f"has {len(raw):,} bytes, more than {MAX_ROW_BYTES:,}"


def not_utf8(error: UnicodeDecodeError) -> str:
    return f"is not UTF-8: byte 0x{error.object[error.start]:02x} at position {error.start}"
