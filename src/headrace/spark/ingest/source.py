"""`format("headrace-files")`: planned chunks of files as a table of lines and columns."""

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import orjson
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from headrace.spark.ingest.lines import split

if TYPE_CHECKING:
    import pyarrow as pa

GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class ChunkToRead:
    """One chunk, as its task needs it."""

    path: str
    piece: str
    start: int
    end: int
    first_line: int
    lines: int
    mid_line: bool
    skip_lines: int  # the header's


def plan_option(chunks: Sequence[ChunkToRead], width: int) -> str:
    return orjson.dumps({"width": width, "chunks": [asdict(chunk) for chunk in chunks]}).decode()


class FilesSource(DataSource):
    """Reads chunks, a partition each. What is wrong with a row is told in column `reason`."""

    @classmethod
    def name(cls) -> str:
        return "headrace-files"

    def schema(self) -> StructType:
        return lines_schema(orjson.loads(self.options["plan"])["width"])

    def reader(self, schema: StructType) -> DataSourceReader:
        return FilesReader(orjson.loads(self.options["plan"]))


class FilesReader(DataSourceReader):
    """Reads one chunk at a time."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._width: int = plan["width"]
        self._chunks = [ChunkToRead(**chunk) for chunk in plan["chunks"]]

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(chunk) for chunk in self._chunks]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        chunk: ChunkToRead = partition.value
        data, first_line = read_chunk(chunk), chunk.first_line
        for _ in range(chunk.skip_lines):
            data = data[data.find(b"\n") + 1 or len(data) :]
            first_line += 1
        rows = split(data, first_line, self._width, mid_line=chunk.mid_line)
        for batch in rows.batches(self._width):
            count = batch.num_rows
            place = [pa.array([text] * count) for text in (chunk.piece, chunk.path)]
            yield pa.RecordBatch.from_arrays(
                [*place, *batch.columns], names=["piece", "file", *batch.schema.names]
            )


def lines_schema(width: int) -> StructType:
    fields = [
        StructField("piece", StringType()),
        StructField("file", StringType()),
        StructField("line", LongType()),
        StructField("raw", BinaryType()),
        StructField("reason", StringType()),
    ]
    return StructType(fields + [StructField(f"c{i}", StringType()) for i in range(width)])


def open_file(path: str | Path) -> IO[bytes]:
    """A file's content, uncompressed."""
    with Path(path).open("rb") as file:
        magic = file.read(len(GZIP))
    return cast(IO[bytes], gzip.open(path)) if magic == GZIP else Path(path).open("rb")


def read_chunk(chunk: ChunkToRead) -> bytes:
    with open_file(chunk.path) as file:
        file.seek(chunk.start)
        data = file.read(chunk.end - chunk.start)
    if len(data) != chunk.end - chunk.start:
        raise OSError(f"{chunk.path} became shorter while it was read")
    return data
