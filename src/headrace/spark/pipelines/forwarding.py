"""Runs a forward: one streaming query, from a source to a topic.

Batch by batch it writes through `format("headrace")`, exactly once. In real-time mode it writes
through Spark's own Kafka sink, record by record: at least once.
"""

import os
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

import orjson
from pyspark.sql import functions as F  # noqa: N812

from headrace.clients import Admin, Connection
from headrace.errors import BadInput, ConfigError, HeadraceError
from headrace.model import Deadline
from headrace.observe import Progress
from headrace.spark.ingest.limits import Limits, limits_of
from headrace.spark.pipelines.batch import BatchDone, refuse_made_again
from headrace.spark.pipelines.checkpoints import Checkpoint
from headrace.spark.pipelines.database_input import DatabaseInput
from headrace.spark.pipelines.databases import DatabaseTable
from headrace.spark.pipelines.decoding import read_values, refine
from headrace.spark.pipelines.definition import Topic
from headrace.spark.pipelines.forward_definition import Forward
from headrace.spark.pipelines.holding import CHECKPOINTS, held
from headrace.spark.pipelines.lag import lag_shown
from headrace.spark.pipelines.lake import Lake
from headrace.spark.pipelines.outgoing import PIECE, for_headrace, for_spark, made, records
from headrace.spark.pipelines.querying import (
    committed_records,
    ensure_dead_topic,
    heard_by,
    partitions_of,
    records_left,
    triggered,
    wait_for_end,
)
from headrace.spark.pipelines.runner import (
    StreamOptions,
    StreamResult,
    dead_topic_of,
    lag_group,
    refuse_settings,
)
from headrace.spark.pipelines.telling import BatchListener, counted
from headrace.spark.running import translate_failure, until_planned
from headrace.spark.session import LOCAL_MASTER, choose_master, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SECONDS_OF_REALTIME = 10.0  # how long a batch of real-time mode is
LEAST_SECONDS = 1.0
SECONDS_TO_STOP = 20.0
IDENTITY = "headrace.json"  # in the checkpoint's folder


class Input(Protocol):
    """What a forward reads."""

    def partitions(self) -> int:
        """How many there are; in real-time mode each needs a task of its own."""

    def identity(self) -> Mapping[str, str]:
        """What a checkpoint belongs to, by name: another id is another source."""

    def left(self, checkpoint: Checkpoint) -> int:
        """How many records are to come."""

    def rows(self, spark: "SparkSession", options: StreamOptions) -> "DataFrame":
        """Typed rows with a row id, a key, a value, and a reason if they are bad (see decoding),
        and the piece that each belongs to (see sink)."""


def input_of(forward: Forward, connection: Connection, options: StreamOptions) -> Input:
    if isinstance(forward.source, Topic):
        return TopicInput(forward.source, forward.name, connection)
    if isinstance(forward.source, DatabaseTable):
        return DatabaseInput(forward.source, forward.name, options)
    raise ConfigError(
        f"pipeline {forward.name!r} reads a {type(forward.source).__name__}",
        hint="take a Topic or a DatabaseTable",
    )


class TopicInput:
    """Records of topics."""

    def __init__(self, topic: Topic, name: str, connection: Connection) -> None:
        self._topic, self._name, self._connection = topic, name, connection
        self._admin = Admin(connection)

    def partitions(self) -> int:
        return sum(partitions_of(self._admin, self._topic.names).values())

    def identity(self) -> Mapping[str, str]:
        return {name: self._admin.topic_id(name) for name in self._topic.names}

    def left(self, checkpoint: Checkpoint) -> int:
        return records_left(self._admin, self._topic.names, checkpoint.ends)

    def rows(self, spark: "SparkSession", options: StreamOptions) -> "DataFrame":
        group = f"headrace-{self._name}"
        reader = committed_records(
            spark, self._connection, self._topic.names, group, realtime=options.realtime
        )
        reader = reader.option("startingOffsets", "earliest")
        if not options.realtime:
            reader = reader.option("maxOffsetsPerTrigger", str(options.records_per_batch))
        # A piece is a partition's range of offsets. Spark's own number of it would not do: it may
        # deal the partitions out in another order when a batch is run again.
        piece = F.concat_ws("-", "kafka_topic", F.col("kafka_partition").cast("string"))
        return read_values(reader.load(), self._topic.value).withColumn(PIECE, piece)


class Forwarding:
    """One run of a forward."""

    def __init__(
        self, forward: Forward, options: StreamOptions, connection: Connection, progress: Progress
    ) -> None:
        self._forward, self._options, self._connection = forward, options, connection
        self._progress = progress
        self._admin = Admin(connection)
        self._input = input_of(forward, connection, options)
        self._slots, self._limits = 0, Limits()
        self._failure: HeadraceError | None = None
        self._every = options.every
        if options.realtime:
            self._every = max(options.every or SECONDS_OF_REALTIME, LEAST_SECONDS)
        self.result = StreamResult()

    def run(self, on_batch: Callable[[BatchDone], None], stop: threading.Event) -> StreamResult:
        refuse_settings(self._connection)
        dead_topic = self._prepare_topics()
        spark = session(master=self._master(), progress=self._progress)
        try:
            self._check_slots(spark)
            with held(self._options.lake, self._forward.name):
                self._run(spark, dead_topic, on_batch, stop)
        except Exception as failure:
            raise translate_failure(failure) from failure
        finally:
            self._progress.end()
        return self.result

    # --- before it starts ---

    def _prepare_topics(self) -> str:
        partitions = self._input.partitions()
        partitions_of(self._admin, [self._forward.to])
        settings = {config.name: config.value for config in self._admin.configs(self._forward.to)}
        self._limits = limits_of(self._forward.to, settings, event_time=False, now=0)
        dead = self._options.dead_topic or dead_topic_of(self._forward)
        return ensure_dead_topic(self._admin, dead, partitions)

    def _master(self) -> str | None:
        """In real-time mode every partition has a task that does not end."""
        master, _ = choose_master(self._options.master)
        if not self._options.realtime or master != LOCAL_MASTER:
            return self._options.master
        return f"local[{max(self._input.partitions(), os.cpu_count() or 1)},4]"

    def _check_slots(self, spark: "SparkSession") -> None:
        self._slots = spark.sparkContext.defaultParallelism
        if self._options.realtime:
            self._refuse_few_slots(self._input.partitions())

    def _refuse_few_slots(self, partitions: int) -> None:
        """Spark would leave partitions unread, and say nothing."""
        if partitions > self._slots:
            raise BadInput(
                f"{self._forward.source.name}: {partitions} partitions, but Spark has "
                f"{self._slots} slots for tasks; in real-time mode each partition needs one",
                hint=f"--master 'local[{partitions}]', or a cluster with as many cores",
            )

    def _check_identity(self, checkpoint: Checkpoint) -> None:
        found, text = dict(self._input.identity()), checkpoint.read(IDENTITY)
        known: dict[str, str] = orjson.loads(text) if text else found
        refuse_made_again(self._forward.name, known, found)
        if gone := sorted(set(known) - set(found)):
            raise BadInput(
                f"the checkpoint {checkpoint.folder} is of {', '.join(gone)}, not of "
                f"{', '.join(found)}",
                hint="give each its own --lake",
            )
        checkpoint.write(IDENTITY, orjson.dumps(found).decode())

    # --- the query ---

    def _run(
        self,
        spark: "SparkSession",
        dead_topic: str,
        on_batch: Callable[[BatchDone], None],
        stop: threading.Event,
    ) -> None:
        def tell(batch: BatchDone) -> None:
            note(batch.offsets)
            if batch.counts.rows_in:
                self.result.add(batch)
                if self._every is None:
                    self._progress.advance(batch.counts.rows_in)
                on_batch(batch)
            self._look_again(checkpoint, len(batch.offsets), stop)

        lake = Lake(spark, self._options.lake)
        checkpoint = Checkpoint(spark, f"{lake.folder}/{CHECKPOINTS}/{self._forward.name}")
        self._check_identity(checkpoint)
        name = f"{self._forward.name}-{uuid.uuid4().hex[:8]}"
        listener = BatchListener(name, tell)
        self._begin(checkpoint)
        writer = self._writer(spark, lake, dead_topic).queryName(name)
        writer = writer.option("checkpointLocation", checkpoint.folder)
        try:
            group = lag_group(self._options, self._forward)
            shown = lag_shown(group, self._admin, self._progress)
            with shown as note, heard_by(spark, listener):
                until_planned(
                    lambda: wait_for_end(
                        writer.start(),
                        stop,
                        once=self._every is None,
                        may_stop=self._at_the_end_of_a_batch(listener),
                    )
                )
        except Exception:
            if not stop.is_set():
                self._look_again(checkpoint, 0, stop)  # Spark would say that offsets have changed
            if not stop.is_set():
                raise
        if self._failure is not None:
            raise self._failure

    def _begin(self, checkpoint: Checkpoint) -> None:
        source, to = ", ".join(self._input.identity()), self._forward.to
        self._progress.step(f"pipeline {self._forward.name}: {source} to {to}")
        if self._every is None:
            self._progress.begin("reading", self._input.left(checkpoint), "records")

    def _writer(self, spark: "SparkSession", lake: Lake, dead_topic: str) -> "DataStreamWriter":
        rows = refine(self._input.rows(spark, self._options), self._forward, lake.read_lookup)
        rows = counted(made(rows, self._forward, self._limits), self._forward)
        going = records(rows, self._forward, dead_topic)
        if self._options.realtime:
            return self._realtime(for_spark(going))
        # A piece is a range of offsets, or a file of rows: what was sent of it before a crash is
        # done, though a lookup or the definition has changed since.
        writer = for_headrace(going).writeStream.format("headrace").option("trustLedger", "true")
        writer = writer.options(**self._limits.sink_options)
        return triggered(writer.option("bootstrap", self._connection.bootstrap), self._every)

    def _realtime(self, going: "DataFrame") -> "DataStreamWriter":
        conf = going.sparkSession.conf
        conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", f"{LEAST_SECONDS:.0f}s")
        writer = going.writeStream.format("kafka").outputMode("update")
        writer = writer.option("kafka.bootstrap.servers", self._connection.bootstrap)
        trigger: Any = writer.trigger  # PySpark's own types do not know this mode
        return cast("DataStreamWriter", trigger(realTime=f"{self._every} seconds"))

    # --- the end ---

    def _at_the_end_of_a_batch(self, listener: BatchListener) -> Callable[[], bool]:
        """Real-time mode notes its offsets at the end of a batch: what came since the last one
        would come again. So a batch is waited for, but not for ever."""
        asked: list[tuple[int, Deadline]] = []

        def may_stop() -> bool:
            if not self._options.realtime:
                return True
            if not asked:
                self._progress.step("stopping at the end of this batch")
                asked.append((listener.ended, Deadline(SECONDS_TO_STOP + (self._every or 0))))
            ended, deadline = asked[0]
            return listener.ended > ended or deadline.expired

        return may_stop

    def _look_again(self, checkpoint: Checkpoint, partitions: int, stop: threading.Event) -> None:
        """What was checked at the start may change meanwhile."""
        try:
            if isinstance(self._input, TopicInput):
                self._check_identity(checkpoint)
            if self._options.realtime:
                self._refuse_few_slots(partitions)
        except BadInput as failure:
            self._failure = failure
            stop.set()
        except HeadraceError:
            return  # brokers that are away now are asked again after the next batch
