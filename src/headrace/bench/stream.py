"""What does a pipeline cost beside the same read, decode and write by plain Spark?

The same records of a topic are read into Spark's `noop`, as Spark comes and with the settings by
which Headrace reads; read, decoded and written to a Delta table by plain Spark, with no checks; and
by pipelines: to the table of events alone, and to all four tables of the clickstream. In turns,
several rounds; ratios are taken within a round, and the median round counts. A round before that
warms up: what Java has compiled is there for all alike. What it costs to be watched is measured in
a run of its own (see watching).
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from headrace.bench.measurement import Measurement
from headrace.bench.rounds import in_turns, median_ratio
from headrace.bench.watching import RECORDS_PER_BATCH, Watching, watch
from headrace.clients import Admin, Connection
from headrace.local import LocalCluster
from headrace.observe import Progress, Silent
from headrace.services.generate import write_clickstream
from headrace.spark.columns import ROW_HEADER
from headrace.spark.reading import committed, in_pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark.pipelines import Pipeline

QUESTION = "What does a pipeline to tables cost beside plain Spark?"
ROWS = 1_000_000
ROUNDS = 5
PARTITIONS = 5
TOPIC = "events"
PLACE = ("topic", "partition", "offset")
FIELDS = (
    "eventTime long, eventType string, productId long, categoryId long, categoryCode string, "
    "brand string, price decimal(12,2), userid long, userSession string"
)
NOOP, PLAIN = "Spark, Kafka to noop", "Spark, read, decode, write"
NOOP_LIKE_US = "Spark, Kafka to noop, read like headrace"
EVENTS, FULL = "headrace, events", "headrace, four tables"
WATCHED = "headrace, events, all that watching does"


@dataclass(frozen=True)
class Bench:
    """The Spark session, the brokers, and how each system reads a topic."""

    spark: "SparkSession"
    connection: Connection
    folder: Path
    numbers: "count[int]"

    def noop(self, topic: str) -> None:
        self._noop(self._records(topic))

    def noop_like_us(self, topic: str) -> None:
        self._noop(self._records(topic, committed(self.connection) | in_pieces(self.spark, ROWS)))

    def _noop(self, records: "DataFrame") -> None:
        writer = records.writeStream.format("noop")
        writer.option("checkpointLocation", self._new()).trigger(
            availableNow=True
        ).start().awaitTermination()

    def plain(self, topic: str) -> None:
        """The same rows, by somebody who trusts every record and sees each once."""
        from pyspark.sql import functions as F  # noqa: N812

        event = F.from_json(F.col("value").cast("string"), FIELDS).alias("event")
        ids = F.filter("headers", lambda header: header["key"] == ROW_HEADER)
        place = [F.col(name).alias(f"kafka_{name}") for name in PLACE]
        rows = self._records(topic).select(
            event, F.get(ids, F.lit(0))["value"].cast("string").alias("row_id"), *place, "timestamp"
        )
        rows = rows.select(
            "event.*",
            "row_id",
            *(f"kafka_{name}" for name in PLACE),
            F.col("timestamp").alias("kafka_time"),
        )
        rows = rows.withColumn("event_time", F.timestamp_millis("eventTime")).drop("eventTime")
        rows = rows.withColumn("hour", F.date_trunc("hour", "event_time"))
        category = F.coalesce(F.split_part("categoryCode", F.lit("."), F.lit(1)), F.lit("none"))
        rows = rows.withColumn("category", category)
        writer = rows.writeStream.format("delta").option("checkpointLocation", self._new())
        writer.trigger(availableNow=True).start(self._new()).awaitTermination()

    def events(self, topic: str) -> None:
        from headrace.spark.pipelines import CLICKSTREAM

        self._stream(replace(CLICKSTREAM, derived=()), topic)

    def full(self, topic: str) -> None:
        from headrace.spark.pipelines import CLICKSTREAM

        self._stream(CLICKSTREAM, topic)

    def watched(self, topic: str) -> Watching:
        return watch(self.spark, self.connection, topic, self._new())

    def _stream(self, pipeline: "Pipeline", topic: str) -> None:
        from headrace.spark.pipelines.runner import StreamOptions, stream

        stream(StreamOptions(pipeline, self._new(), topic=topic), self.connection)

    def _records(self, topic: str, settings: Mapping[str, str] | None = None) -> "DataFrame":
        reader = self.spark.readStream.format("kafka").option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", self.connection.bootstrap)
        reader = reader.option("kafka.isolation.level", "read_committed")
        reader = reader.option("includeHeaders", "true")
        reader = reader.options(**(settings or {}))
        return reader.option("startingOffsets", "earliest").load()

    def _new(self) -> str:
        return str(self.folder / str(next(self.numbers)))


def measure(progress: Progress) -> Measurement:
    from headrace.spark import session

    spark = session("bench", progress=progress)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
            LocalCluster(1, progress=progress) as cluster,
        ):
            bench = Bench(spark, Connection(cluster.bootstrap), Path(folder), count())
            return _measure(bench, progress)
    finally:
        spark.stop()


def _measure(bench: Bench, progress: Progress) -> Measurement:
    progress.step(f"sending {ROWS:,} rows")
    _fill(bench)
    systems: dict[str, Callable[[str], None]] = {
        NOOP: bench.noop,
        NOOP_LIKE_US: bench.noop_like_us,
        PLAIN: bench.plain,
        EVENTS: bench.events,
        FULL: bench.full,
    }
    for name, run in systems.items():
        progress.step(f"warming up: {name}")
        run(TOPIC)
    times: dict[str, list[float]] = {name: [] for name in systems}
    for name in in_turns(list(systems), ROUNDS, progress):
        started = time.perf_counter()
        systems[name](TOPIC)
        times[name].append(time.perf_counter() - started)
    progress.step("watched after each batch")
    watched = bench.watched(TOPIC)
    rows = [_row(f"{ROWS:,} records", name, median(found)) for name, found in times.items()]
    batches = f"{ROWS:,} records, {RECORDS_PER_BATCH:,} at a time"
    rows.append(_row(batches, EVENTS, watched.seconds - watched.watching))
    rows.append(_row(batches, WATCHED, watched.seconds))
    return Measurement(rows, _ratios(times) | {"lag and metrics / neither": watched.ratio})


def _row(case: str, system: str, seconds: float) -> dict[str, Any]:
    rate = round(ROWS / seconds)
    return {"case": case, "system": system, "seconds": round(seconds, 2), "rows_per_second": rate}


def _fill(bench: Bench) -> None:
    from headrace.spark.ingest.job import ingest
    from headrace.spark.ingest.options import IngestOptions
    from headrace.spark.ingest.schema import CLICKSTREAM

    Admin(bench.connection).create_topic(TOPIC, PARTITIONS, 1)
    path = bench.folder / "events.csv"
    write_clickstream(path, ROWS, seed=3, bad=0.0)
    ingest(IngestOptions([str(path)], TOPIC, CLICKSTREAM), bench.connection, Silent())


def _ratios(times: dict[str, list[float]]) -> dict[str, float]:
    return {
        "events / plain Spark": median_ratio(times[EVENTS], times[PLAIN]),
        "events / noop": median_ratio(times[EVENTS], times[NOOP]),
        "events / noop, read like headrace": median_ratio(times[EVENTS], times[NOOP_LIKE_US]),
        "plain Spark / noop": median_ratio(times[PLAIN], times[NOOP]),
        "four tables / events": median_ratio(times[FULL], times[EVENTS]),
    }
