"""`format("headrace-files")`: planned chunks of files as a table of lines and columns.

Columns of CSV are text. Those of JSON lines have the types that JSON has.
"""

import codecs
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast
from zlib import crc32

import orjson
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from headrace.errors import OperationFailed
from headrace.spark.collector import collector_paused
from headrace.spark.ingest.formats import Format
from headrace.spark.ingest.json_lines import JsonField, Kind, json_batches
from headrace.spark.ingest.lines import split

if TYPE_CHECKING:
    import pyarrow as pa

GZIP = b"\x1f\x8b"
_SPARK_TYPES: dict[Kind, DataType] = {
    "text": StringType(),
    "whole": LongType(),
    "number": DoubleType(),
    "truth": BooleanType(),
}


@dataclass(frozen=True)
class ChunkToRead:
    """One chunk, as its task needs it."""

    path: str
    piece: str
    start: int
    end: int
    first_line: int
    lines: int  # without the blank ones
    mid_line: bool
    skip_lines: int  # the header's
    checksum: int
    format: Format = "csv"


def plan_option(
    chunks: Sequence[ChunkToRead], width: int, fields: Sequence[JsonField] | None = None
) -> str:
    """What the reader needs: chunks of CSV, or of JSON lines if `fields` are given."""
    plan = {
        "width": width,
        "fields": None if fields is None else [tuple(field) for field in fields],
        "chunks": [asdict(chunk) for chunk in chunks],
    }
    return orjson.dumps(plan).decode()


def names_option(chunks: Sequence[ChunkToRead]) -> str:
    """The sink's option `pieces`: the chunks' names, as the reader makes a partition of each."""
    return orjson.dumps([chunk.piece for chunk in chunks]).decode()


class FilesSource(DataSource):
    """Reads chunks, a partition each. What is wrong with a row is told in column `reason`."""

    @classmethod
    def name(cls) -> str:
        return "headrace-files"

    def schema(self) -> StructType:
        plan = orjson.loads(self.options["plan"])
        if (fields := _fields(plan)) is not None:
            return lines_schema([_SPARK_TYPES[field.kind] for field in fields])
        return lines_schema([StringType()] * plan["width"])

    def reader(self, schema: StructType) -> DataSourceReader:
        return FilesReader(orjson.loads(self.options["plan"]))


class FilesReader(DataSourceReader):
    """Reads one chunk at a time."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._width: int = plan["width"]
        self._fields = _fields(plan)
        self._chunks = [ChunkToRead(**chunk) for chunk in plan["chunks"]]

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(chunk) for chunk in self._chunks]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        chunk: ChunkToRead = partition.value
        data, first_line = read_chunk(chunk), chunk.first_line
        if chunk.start == 0:
            data = data.removeprefix(codecs.BOM_UTF8)  # spreadsheets write it; no part of a value
        for _ in range(chunk.skip_lines):
            data = data[data.find(b"\n") + 1 or len(data) :]
            first_line += 1
        with collector_paused():
            for batch in self._batches(data, first_line, chunk.mid_line):
                count = batch.num_rows
                place = [pa.repeat(text, count) for text in (chunk.piece, chunk.path)]
                yield pa.RecordBatch.from_arrays(
                    [*place, *batch.columns], names=["piece", "file", *batch.schema.names]
                )

    def _batches(self, data: bytes, first_line: int, mid_line: bool) -> "Iterator[pa.RecordBatch]":
        if self._fields is not None:
            return json_batches(data, first_line, self._fields, mid_line=mid_line)
        return split(data, first_line, self._width, mid_line=mid_line).batches(self._width)


def _fields(plan: dict[str, Any]) -> list[JsonField] | None:
    fields = plan["fields"]
    return None if fields is None else [JsonField(*field) for field in fields]


def lines_schema(types: Sequence[DataType]) -> StructType:
    fields = [
        StructField("piece", StringType()),
        StructField("file", StringType()),
        StructField("line", LongType()),
        StructField("raw", BinaryType()),
        StructField("reason", StringType()),
    ]
    return StructType(fields + [StructField(f"c{i}", each) for i, each in enumerate(types)])


def open_file(path: str | Path) -> IO[bytes]:
    """A file's content, uncompressed."""
    with Path(path).open("rb") as file:
        magic = file.read(len(GZIP))
    return cast(IO[bytes], gzip.open(path)) if magic == GZIP else Path(path).open("rb")


def read_chunk(chunk: ChunkToRead) -> bytes:
    with open_file(chunk.path) as file:
        file.seek(chunk.start)
        data = file.read(chunk.end - chunk.start)
    if crc32(data) != chunk.checksum:
        raise OperationFailed(
            f"{chunk.path} was changed between planning and reading it: bytes {chunk.start:,} to "
            f"{chunk.end:,} are not what they were, and nothing of them is sent",
            hint="put the old content back, or send what is changed in it with --changed-is-new",
        )
    return data
