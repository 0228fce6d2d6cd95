"""Runs a pipeline: one streaming query, from a topic to all its tables."""

import contextlib
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from headrace.clients import Admin, Connection
from headrace.errors import BadInput, TopicExists
from headrace.model import Latest, TopicPartition
from headrace.observe import Progress, Silent
from headrace.observe.signals import stopping_on_signals
from headrace.spark.pipelines.accounts import Standing
from headrace.spark.pipelines.definition import Pipeline
from headrace.spark.running import cancelled_by_ctrl_c, translate_failure
from headrace.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

    from headrace.spark.pipelines.batch import BatchDone

CHECKPOINTS = "_checkpoints"
RECORDS_PER_BATCH = 1_000_000
_EARLIEST = -2  # as Spark writes it


@dataclass(frozen=True)
class StreamOptions:
    """Which pipeline, into which folder, and when it looks for more: `every` some seconds, or once
    for all that is there now. `group` is where its lag is shown, if it is; `topic` stands in for
    the pipeline's own."""

    pipeline: Pipeline
    lake: str
    topic: str | None = None
    every: float | None = None
    group: str | None = None
    show_lag: bool = True
    dead_topic: str | None = None
    records_per_batch: int = RECORDS_PER_BATCH
    master: str | None = None


@dataclass
class StreamResult:
    """What a run did."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    rows_dead: int = 0
    duplicates: int = 0
    seconds: float = 0.0

    def add(self, batch: "BatchDone") -> None:
        self.batches += 1
        for name in ("rows_in", "rows_out", "rows_dead", "duplicates"):
            setattr(self, name, getattr(self, name) + getattr(batch.counts, name))
        self.seconds += batch.seconds


def group_of(pipeline: Pipeline) -> str:
    """The group that shows a pipeline's lag."""
    return f"headrace-{pipeline.name}"


def dead_topic_of(pipeline: Pipeline) -> str:
    """Where a pipeline's dead letters go."""
    return f"{pipeline.source.name}.{pipeline.name}.dead"


def stream(
    options: StreamOptions,
    connection: Connection,
    progress: Progress | None = None,
    *,
    on_batch: "Callable[[BatchDone], None] | None" = None,
    stop: threading.Event | None = None,
) -> StreamResult:
    """Run a pipeline; with `every`, until `stop` is set. Returns what it did."""
    pipeline = options.pipeline
    if options.topic is not None:
        pipeline = replace(pipeline, source=replace(pipeline.source, name=options.topic))
    running = _Running(replace(options, pipeline=pipeline), connection, progress or Silent())
    return running.run(on_batch or (lambda _done: None), stop or threading.Event())


class _Running:
    """One run of a pipeline."""

    def __init__(self, options: StreamOptions, connection: Connection, progress: Progress) -> None:
        self._options, self._connection, self._progress = options, connection, progress
        self._pipeline = options.pipeline
        self._admin = Admin(connection)
        self.result = StreamResult()

    def run(self, on_batch: "Callable[[BatchDone], None]", stop: threading.Event) -> StreamResult:
        if self._connection.settings:
            raise BadInput(
                "Spark's Kafka source does not know librdkafka's settings",
                hint=f"{self._connection.source} needs settings: take a cluster without",
            )
        dead_topic = self._prepare_topics()
        spark = session(master=self._options.master, progress=self._progress)
        try:
            self._stream(spark, dead_topic, on_batch, stop)
        except Exception as failure:
            raise translate_failure(failure) from failure
        finally:
            self._progress.end()
        return self.result

    def _stream(
        self,
        spark: "SparkSession",
        dead_topic: str,
        on_batch: "Callable[[BatchDone], None]",
        stop: threading.Event,
    ) -> None:
        from headrace.spark.pipelines.batch import Batches, DeadLetters
        from headrace.spark.pipelines.checkpoints import Checkpoint
        from headrace.spark.pipelines.lag import LagListener
        from headrace.spark.pipelines.lake import Lake
        from headrace.spark.pipelines.mending import mend

        def done(batch: "BatchDone") -> None:
            self.result.add(batch)
            self._progress.advance(batch.counts.rows_in)
            on_batch(batch)

        lake = Lake(spark, self._options.lake)
        checkpoint = Checkpoint(spark, f"{lake.folder}/{CHECKPOINTS}/{self._pipeline.name}")
        standing = mend(self._pipeline, lake, checkpoint.open_batch, self._progress)
        dead_letters = DeadLetters(dead_topic, self._connection)
        batches = Batches(
            *(self._pipeline, lake, checkpoint, standing, dead_letters, self._topic_id, done)
        )
        batches.check_topic()
        name = f"{self._pipeline.name}-{uuid.uuid4().hex[:8]}"
        group = self._options.group or group_of(self._pipeline)
        listener = LagListener(group, self._connection, name) if self._options.show_lag else None
        if listener is not None:
            spark.streams.addListener(listener)
        try:
            self._begin(standing)
            records = self._records(spark, standing).load()
            writer = records.writeStream.queryName(name).foreachBatch(batches.run)
            writer = writer.option("checkpointLocation", checkpoint.folder)
            self._wait(self._triggered(writer).start(), stop)
        except Exception:
            if batches.failure is not None and not stop.is_set():
                raise batches.failure from None
            if not stop.is_set():
                raise
        finally:
            if listener is not None:
                self._until_told(spark, listener)
            batches.close()

    def _triggered(self, writer: "DataStreamWriter") -> "DataStreamWriter":
        if self._options.every is None:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{self._options.every} seconds")

    def _begin(self, standing: Standing) -> None:
        """A bar, if there is an end to go to; markers of transactions are counted as records."""
        name = self._pipeline.source.name
        self._progress.step(f"pipeline {self._pipeline.name}: {name} to {self._options.lake}")
        if self._options.every is None:
            ends = standing.ends.get(name, {})
            count = len(self._admin.topic(name).partitions)
            places = [TopicPartition(name, number) for number in range(count)]
            offsets = self._admin.offsets(places, Latest())
            left = sum(end - ends.get(str(at.partition), 0) for at, end in offsets.items())
            self._progress.begin("reading", max(0, left), "records")

    def _prepare_topics(self) -> str:
        partitions = len(self._admin.topic(self._pipeline.source.name).partitions)
        dead = self._options.dead_topic or dead_topic_of(self._pipeline)
        with contextlib.suppress(TopicExists):
            self._admin.create_topic(dead, partitions, None, {})
        return dead

    def _topic_id(self) -> str:
        return self._admin.topic_id(self._pipeline.source.name)

    def _records(self, spark: "SparkSession", standing: Standing) -> "DataStreamReader":
        """All that was committed to the topic, from where the tables end; a checkpoint that has
        seen a batch knows by itself where to go on."""
        starting = "earliest"
        if standing.ranges:
            starting = orjson.dumps(self._after(standing)).decode()
        return (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._connection.bootstrap)
            .option("subscribe", self._pipeline.source.name)
            .option("startingOffsets", starting)
            .option("includeHeaders", "true")
            .option("kafka.isolation.level", "read_committed")
            .option("maxOffsetsPerTrigger", str(self._options.records_per_batch))
            .option("failOnDataLoss", "true")
            .option("groupIdPrefix", f"headrace-{self._pipeline.name}")
        )

    def _after(self, standing: Standing) -> dict[str, dict[str, int]]:
        topic = self._admin.topic(self._pipeline.source.name)
        ends = standing.ends.get(topic.name, {})
        numbers = (str(partition.id) for partition in topic.partitions)
        return {topic.name: {number: ends.get(number, _EARLIEST) for number in numbers}}

    def _wait(self, query: "StreamingQuery", stop: threading.Event) -> None:
        """Until the query ends, by itself or because somebody wants it to.

        Signals are taken now and not before: Spark's start takes SIGINT for itself.
        """
        once = self._options.every is None
        with cancelled_by_ctrl_c(query.stop) if once else stopping_on_signals(stop.set):
            while not query.awaitTermination(1):
                if stop.is_set():
                    query.stop()

    def _until_told(self, spark: "SparkSession", listener: Any) -> None:
        """Spark tells listeners of a batch a moment after it."""
        with contextlib.suppress(Exception):  # its tables are written, and the next run tells
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
            spark.streams.removeListener(listener)
        listener.close()
