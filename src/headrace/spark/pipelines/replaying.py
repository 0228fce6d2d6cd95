"""Runs a bounded range of a topic through a pipeline, into tables of their own.

The same batches as a stream's, but cut by offsets and not by Spark, so there is no checkpoint: the
last commit of the table of rows says how far a replay has come, and the next run goes on there.
Dead letters are kept in their table only: the stream has sent them to their topic.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson

from headrace.clients import Admin, Connection
from headrace.errors import OperationFailed
from headrace.model import Earliest, TopicPartition
from headrace.observe import Progress, Silent
from headrace.spark.interrupts import cancelled_by_ctrl_c
from headrace.spark.pipelines.accounts import Replay, Standing
from headrace.spark.pipelines.checkpoints import Ranges
from headrace.spark.pipelines.cutting import Cuts, continued, rest
from headrace.spark.pipelines.definition import DEAD_LETTERS, Pipeline
from headrace.spark.pipelines.holding import held
from headrace.spark.pipelines.runner import RECORDS_PER_BATCH, StreamResult, refuse_settings
from headrace.spark.reading import committed, in_pieces
from headrace.spark.running import translate_failure
from headrace.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark.pipelines.backfilling import BackfillOptions
    from headrace.spark.pipelines.batch import BatchDone
    from headrace.spark.pipelines.lake import Lake


@dataclass(frozen=True)
class ReplayOptions:
    """Which range, through which pipeline, into which folder. `records` is for the progress."""

    pipeline: Pipeline
    lake: str
    replay: Replay
    records: int = 0
    records_per_batch: int = RECORDS_PER_BATCH
    master: str | None = None


def replay(
    options: ReplayOptions,
    connection: Connection,
    progress: Progress | None = None,
    *,
    on_batch: "Callable[[BatchDone], None] | None" = None,
) -> StreamResult:
    """Run it to its end; again, it goes on where it was. Returns what this run did."""
    told = progress or Silent()
    with tables_held(options, connection, told) as spark:
        return _Replaying(spark, options, connection, told).run(on_batch or _tell_nobody)


@contextlib.contextmanager
def tables_held(
    options: "ReplayOptions | BackfillOptions", connection: Connection, progress: Progress
) -> "Iterator[SparkSession]":
    """A session to write a pipeline's tables with, while nobody else does."""
    refuse_settings(connection)
    spark = session(master=options.master, progress=progress)
    try:
        with (
            held(options.lake, options.pipeline.name),
            cancelled_by_ctrl_c(spark.sparkContext.cancelAllJobs),
        ):
            yield spark
    except Exception as failure:
        raise translate_failure(failure) from failure
    finally:
        progress.end()


def _tell_nobody(_done: "BatchDone") -> None:
    pass


class _Replaying:
    """One run of a replay."""

    def __init__(
        self,
        spark: "SparkSession",
        options: ReplayOptions,
        connection: Connection,
        progress: Progress,
    ) -> None:
        self._spark, self._options, self._connection = spark, options, connection
        self._progress, self._pipeline = progress, options.pipeline
        self._admin = Admin(connection)

    def run(self, on_batch: "Callable[[BatchDone], None]") -> StreamResult:
        from headrace.spark.pipelines.batch import Batches
        from headrace.spark.pipelines.decoding import reader_of
        from headrace.spark.pipelines.lake import Lake

        result = StreamResult()

        def done(batch: "BatchDone") -> None:
            result.add(batch)
            self._progress.advance(batch.counts.rows_in)
            on_batch(batch)

        lake = Lake(self._spark, self._options.lake)
        cuts, standing = self._prepare(lake)
        self._begin(standing)
        batches = Batches(
            *(self._pipeline, lake, cuts, standing, None, self._admin.topic_id, done),
            reader_of(self._pipeline.source, self._connection),
            self._progress,
        )
        batches.check_topic()
        for number, ranges in enumerate(cuts.batches):
            batches.run(read_ranges(self._spark, self._connection, ranges), number)
        return result

    def _prepare(self, lake: "Lake") -> tuple[Cuts, Standing]:
        """The batches that are left, and tables that are in step with each other."""
        from headrace.spark.pipelines.mending import mend, standing_of

        before = standing_of(self._pipeline, lake)
        found = before if before.ranges else begun(self._pipeline, lake)
        wanted = continued(self._options.replay, found, self._options.lake)
        cuts = Cuts(wanted.ranges, before.ends, self._options.records_per_batch)
        self._refuse_gone(rest(wanted.ranges, before.ends))
        standing = mend(self._pipeline, lake, cuts.open_batch, self._progress)
        return cuts, replace(standing, replay=wanted)

    def _begin(self, standing: Standing) -> None:
        topics = ", ".join(self._pipeline.source.names)
        self._progress.step(f"replaying {topics} to {self._options.lake}")
        self._progress.begin("reading", self._options.records, "records")
        self._progress.advance(standing.counts.rows_in)

    def _refuse_gone(self, left: Ranges) -> None:
        """What retention takes away between two runs is an error, as it is for a stream."""
        for topic, places in left.items():
            open_ones = {int(p): at for p, (at, end) in places.items() if at < end}
            partitions = [TopicPartition(topic, number) for number in open_ones]
            for at, kept in self._admin.offsets(partitions, Earliest()).items():
                if kept > open_ones[at.partition]:
                    raise OperationFailed(
                        f"offsets {open_ones[at.partition]} to {kept - 1} of {topic}"
                        f"[{at.partition}] were removed by retention before they were replayed",
                        hint="begin anew with what is left, in another --lake",
                    )


def begun(pipeline: Pipeline, lake: "Lake") -> Standing | None:
    """What tables beside that of rows say, which is written last and not there yet. One that was
    mended meanwhile has nothing, and does not say what for."""
    for name in (*(table.name for table in pipeline.derived), DEAD_LETTERS):
        if (info := lake.last_info(name, pipeline.name)) is not None:
            standing = Standing.from_json(info["so_far"])
            if standing.ranges or standing.replay:
                return standing
    return None


def read_ranges(spark: "SparkSession", connection: Connection, ranges: Ranges) -> "DataFrame":
    """All that was committed in these ranges of offsets. Partitions that are not named are left
    alone, so a topic may grow meanwhile."""
    wanted = {
        topic: {p: at for p, at in places.items() if at[0] < at[1]}
        for topic, places in ranges.items()
    }
    assigned = {topic: [int(p) for p in places] for topic, places in wanted.items() if places}
    begins, ends = (
        {topic: {p: at[side] for p, at in places.items()} for topic, places in wanted.items()}
        for side in (0, 1)
    )
    records = sum(end - begin for places in wanted.values() for begin, end in places.values())
    return (
        spark.read.format("kafka")
        .options(**committed(connection), **in_pieces(spark, records))
        .option("assign", _json(assigned))
        .option("startingOffsets", _json(begins))
        .option("endingOffsets", _json(ends))
        .load()
    )


def _json(document: object) -> str:
    return orjson.dumps(document).decode()
