"""Runs a pipeline: one streaming query, from a topic to all its tables."""

import contextlib
import re
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.clients import Admin, Connection
from headrace.clients.registries import registry_of
from headrace.errors import BadInput, OperationFailed
from headrace.observe import Progress, Silent
from headrace.spark.database.addresses import Address
from headrace.spark.pipelines.accounts import Standing
from headrace.spark.pipelines.databases import DatabaseTable
from headrace.spark.pipelines.definition import Pipeline, Topic, Way
from headrace.spark.pipelines.fields import Avro, ValueKind, value_as
from headrace.spark.pipelines.forward_definition import Forward
from headrace.spark.pipelines.holding import CHECKPOINTS, held
from headrace.spark.pipelines.querying import (
    Patience,
    batch_limit,
    committed_records,
    ensure_dead_topic,
    partitions_of,
    records_left,
    starting_after,
    triggered,
    wait_for_end,
)
from headrace.spark.reading import in_pieces
from headrace.spark.running import EachBatch, translate_failure
from headrace.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from headrace.spark.pipelines.batch import BatchDone
    from headrace.spark.pipelines.checkpoints import Checkpoint
    from headrace.spark.pipelines.lake import Lake

RECORDS_PER_BATCH = 1_000_000


@dataclass(frozen=True)
class StreamOptions:
    """Which pipeline, into which folder, and when it looks for more: `every` some seconds, or once
    for all that is there now. `realtime` is Spark's real-time mode, which notes `every` some
    seconds where it is. `group` is where its lag is shown, if it is; `topic` and
    `value`, a kind of values, stand in for the pipeline's own. For a pipeline that reads a table of
    a `database`, `topic` is the one that it writes."""

    pipeline: Pipeline | Forward
    lake: str
    topic: str | None = None
    value: ValueKind | None = None
    every: float | None = None
    realtime: bool = False
    group: str | None = None
    show_lag: bool = True
    dead_topic: str | None = None
    records_per_batch: int = RECORDS_PER_BATCH
    master: str | None = None
    database: Address | None = None


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


def group_of(pipeline: Way) -> str:
    """The group that shows a pipeline's lag."""
    return f"headrace-{pipeline.name}"


def lag_group(options: StreamOptions, pipeline: Way) -> str | None:
    """The group that shows its lag in this run, if any does."""
    return (options.group or group_of(pipeline)) if options.show_lag else None


def dead_topic_of(pipeline: Way) -> str:
    """Where a pipeline's dead letters go. A database's table may have a name that no topic has.

    >>> from headrace.spark.pipelines import DatabaseTable, Field, Forward
    >>> table = DatabaseTable("Order Details", Field("id", "long"), mode="incrementing")
    >>> dead_topic_of(Forward("details", table, to="details"))
    'Order_Details.details.dead'
    """
    return re.sub(r"[^A-Za-z0-9._-]", "_", f"{pipeline.source.name}.{pipeline.name}.dead")


def stream(
    options: StreamOptions,
    connection: Connection,
    progress: Progress | None = None,
    *,
    on_batch: "Callable[[BatchDone], None] | None" = None,
    stop: threading.Event | None = None,
) -> StreamResult:
    """Run a pipeline; with `every` or `realtime`, until `stop` is set. Returns what it did."""
    pipeline = _with_topic(_part_to_run(options), options.topic)
    pipeline = _with_value(pipeline, options.value)
    told, stopped = on_batch or (lambda _done: None), stop or threading.Event()
    if isinstance(pipeline, Pipeline):
        running = _Running(pipeline, options, connection, progress or Silent())
        return running.run(told, stopped)
    from headrace.spark.pipelines.forwarding import Forwarding

    forwarding = Forwarding(pipeline, options, connection, progress or Silent())
    return forwarding.run(told, stopped)


def _part_to_run(options: StreamOptions) -> Pipeline | Forward:
    pipeline = options.pipeline
    if not options.realtime or not isinstance(pipeline, Pipeline):
        return pipeline
    if pipeline.realtime is None:
        raise BadInput(
            f"pipeline {pipeline.name} writes tables, which real-time mode cannot",
            hint="--every 1s, or give the pipeline a part for it: Pipeline(..., "
            "realtime=Forward(...))",
        )
    return pipeline.realtime


def _with_value(pipeline: Pipeline | Forward, kind: ValueKind | None) -> Pipeline | Forward:
    """The same with values of another kind."""
    if kind is None:
        return pipeline
    if not isinstance(pipeline, Pipeline):
        raise BadInput(
            f"pipeline {pipeline.name} has values of its own kind only", hint="leave --value out"
        )
    source = pipeline.source
    return replace(pipeline, source=replace(source, value=value_as(source.value, kind)))


def _with_topic(pipeline: Pipeline | Forward, topic: str | None) -> Pipeline | Forward:
    """The same from another topic; or to it, if it comes from none."""
    source = pipeline.source
    if topic is None:
        return pipeline
    if isinstance(pipeline, Forward) and isinstance(source, DatabaseTable):
        return replace(pipeline, to=topic)
    if not isinstance(source, Topic) or source.also:
        names = ", ".join(getattr(source, "names", [source.name]))
        raise BadInput(
            f"pipeline {pipeline.name} reads {names}: one topic cannot stand in for that",
            hint="leave --topic out",
        )
    other = replace(source, name=topic)
    if isinstance(pipeline, Pipeline):
        return replace(pipeline, source=other)
    return replace(pipeline, source=other)


def refuse_settings(connection: Connection) -> None:
    if connection.settings:
        raise BadInput(
            "Spark's Kafka source does not know librdkafka's settings",
            hint=f"{connection.source} needs settings: take a cluster without",
        )


class _Running:
    """One run of a pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        options: StreamOptions,
        connection: Connection,
        progress: Progress,
    ) -> None:
        self._options, self._connection, self._progress = options, connection, progress
        self._pipeline = pipeline
        self._admin = Admin(connection)
        self.result = StreamResult()

    def run(self, on_batch: "Callable[[BatchDone], None]", stop: threading.Event) -> StreamResult:
        refuse_settings(self._connection)
        if isinstance(self._pipeline.source.value, Avro):
            registry_of(self._connection)  # refused before Spark is started if there is none
        dead_topic = self._prepare_topics()
        spark = session(master=self._options.master, progress=self._progress)
        try:
            with held(self._options.lake, self._pipeline.name):
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
        from headrace.spark.pipelines.batch import Batches
        from headrace.spark.pipelines.checkpoints import Checkpoint
        from headrace.spark.pipelines.dead_letters import DeadLetters
        from headrace.spark.pipelines.decoding import reader_of
        from headrace.spark.pipelines.lag import lag_shown
        from headrace.spark.pipelines.lake import Lake
        from headrace.spark.pipelines.mending import mend

        def done(batch: "BatchDone") -> None:
            note(batch.offsets)
            self.result.add(batch)
            if self._options.every is None:
                self._progress.advance(batch.counts.rows_in)
            on_batch(batch)

        lake = Lake(spark, self._options.lake)
        checkpoint = Checkpoint(spark, f"{lake.folder}/{CHECKPOINTS}/{self._pipeline.name}")
        self._refuse_without_rows(lake, checkpoint)
        standing = mend(self._pipeline, lake, checkpoint.open_batch, self._progress)
        dead_letters = DeadLetters(dead_topic, self._connection, lake.folder)
        batches = Batches(
            *(self._pipeline, lake, checkpoint, standing, dead_letters, self._admin.topic_id, done),
            reader_of(self._pipeline.source, self._connection),
            self._progress,
            None if self._options.every is None else Patience(self._progress, stop),
        )
        batches.check_topic()
        name, each_batch = f"{self._pipeline.name}-{uuid.uuid4().hex[:8]}", EachBatch(batches.run)
        try:
            self._begin(standing)
            records = self._records(spark, standing).load()
            writer = records.writeStream.queryName(name).foreachBatch(each_batch)
            writer = writer.option("checkpointLocation", checkpoint.folder)
            group = lag_group(self._options, self._pipeline)
            with lag_shown(group, self._admin, self._progress) as note:
                note(batches.standing.offsets)
                query = triggered(writer, self._options.every).start()
                wait_for_end(query, stop, once=self._options.every is None)
        except Exception:
            if each_batch.failure is not None and not stop.is_set():
                raise each_batch.failure from None
            if not stop.is_set():
                with contextlib.suppress(OperationFailed):
                    batches.check_topic()  # Spark would only say that offsets have changed
                raise

    def _refuse_without_rows(self, lake: "Lake", checkpoint: "Checkpoint") -> None:
        """The checkpoint would go on behind what the table of rows had."""
        rows = self._pipeline.rows.name
        ends = [end for places in checkpoint.ends.values() for end in places.values()]
        if any(ends) and not lake.has(rows):  # a batch of nothing, at the very beginning, has none
            raise BadInput(
                f"{lake.path(rows)} is gone, but its batches are done according to "
                f"{checkpoint.folder}",
                hint="delete that folder too, to begin anew with what the topic still has; or put "
                "the table back",
            )

    def _begin(self, standing: Standing) -> None:
        """A bar, if there is an end to go to."""
        names = self._pipeline.source.names
        self._progress.step(
            f"pipeline {self._pipeline.name}: {', '.join(names)} to {self._options.lake}"
        )
        if self._options.every is None:
            left = records_left(self._admin, names, standing.ends)
            self._progress.begin("reading", left, "records")

    def _prepare_topics(self) -> str:
        partitions = partitions_of(self._admin, self._pipeline.source.names)
        dead = self._options.dead_topic or dead_topic_of(self._pipeline)
        return ensure_dead_topic(self._admin, dead, max(partitions.values()))

    def _records(self, spark: "SparkSession", standing: Standing) -> "DataStreamReader":
        """All that was committed to the topic, from where the tables end; a checkpoint that has
        seen a batch knows by itself where to go on."""
        names = self._pipeline.source.names
        reader = committed_records(spark, self._connection, names, group_of(self._pipeline))
        starting = starting_after(self._admin, names, standing.ends)
        limit = self._options.records_per_batch
        if self._options.every is None:
            partitions = sum(partitions_of(self._admin, names).values())
            limit = batch_limit(records_left(self._admin, names, standing.ends), limit, partitions)
        reader = reader.option("maxOffsetsPerTrigger", str(limit))
        reader = reader.options(**in_pieces(spark, limit))
        return reader.option("startingOffsets", starting)
