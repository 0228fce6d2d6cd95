"""A database table as what a forward reads."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.errors import BadInput
from headrace.spark.pipelines.databases import DatabaseTable, find_database
from headrace.spark.pipelines.decoding import read_values
from headrace.spark.pipelines.holding import CHECKPOINTS
from headrace.spark.pipelines.lake import Lake
from headrace.spark.pipelines.outgoing import PIECE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark.pipelines.checkpoints import Checkpoint
    from headrace.spark.pipelines.runner import StreamOptions


class DatabaseInput:
    """Rows of a table."""

    def __init__(self, source: DatabaseTable, name: str, options: "StreamOptions") -> None:
        self._source, self._name = source, name
        self._refuse(options)
        address = find_database(source, options.database)
        self._table = source.at(address, options.records_per_batch)
        self._table.check()

    def _refuse(self, options: "StreamOptions") -> None:
        if options.realtime:
            raise BadInput(
                f"pipeline {self._name} reads a database, which real-time mode cannot",
                hint="--every 1s",
            )
        if "://" in options.lake:
            raise BadInput(
                f"pipeline {self._name} keeps rows beside its checkpoint, in files: not in "
                f"{options.lake}",
                hint="give --lake a folder that the driver and all executors see",
            )

    def partitions(self) -> int:
        return 1

    def identity(self) -> Mapping[str, str]:
        return {self._table.title: ""}

    def left(self, checkpoint: "Checkpoint") -> int:
        return 0  # nobody knows without reading them

    def rows(self, spark: "SparkSession", options: "StreamOptions") -> "DataFrame":
        folder = Lake(spark, options.lake).folder
        reader = spark.readStream.format("headrace-table")
        stage = f"{folder}/{CHECKPOINTS}/{self._name}/staged"
        for name, value in self._table.options(stage).items():
            reader = reader.option(name, value)
        # A batch is one piece: its staged rows, which are the same in every attempt.
        return read_values(reader.load(), self._source.value).withColumn(PIECE, F.lit("rows"))
