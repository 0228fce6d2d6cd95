"""Small tables that rows are enriched by."""

import time
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812

from headrace.observe import Progress
from headrace.spark.pipelines.definition import Lookup, seconds
from headrace.spark.pipelines.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _Read(NamedTuple):
    at: float
    table: "DataFrame"
    content: tuple[int, int]  # how many rows, and a digest of them


class Lookups:
    """Reads them when they are needed, and again when that was too long ago."""

    def __init__(self, lake: Lake, progress: Progress) -> None:
        self._lake, self._progress = lake, progress
        self._read: dict[Lookup, _Read] = {}

    def __call__(self, lookup: Lookup) -> "DataFrame":
        before = self._read.get(lookup)
        if before is None:
            self._read[lookup] = self._load(lookup)
        elif time.monotonic() - before.at > seconds(lookup.refresh):
            try:
                self._read[lookup] = self._load(lookup)
            except Exception as error:  # somebody may be writing it; the next batch looks again
                said = str(error).partition("\n")[0]
                self._progress.warn(f"lookup {lookup.path} is used as it was: {said}")
        return self._read[lookup].table

    @property
    def content(self) -> list[tuple[int, int]]:
        """What was in those that were read, in a form to be compared."""
        return [read.content for read in self._read.values()]

    def _load(self, lookup: Lookup) -> _Read:
        table = self._lake.read_lookup(lookup)
        row = F.xxhash64(lookup.on, *lookup.columns)
        digest = F.coalesce(F.bit_xor(row), F.lit(0))
        count, found = table.agg(F.count("*"), digest).collect()[0]
        return _Read(time.monotonic(), table, (count, found))
