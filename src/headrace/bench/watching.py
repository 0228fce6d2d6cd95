"""What does it cost to show a pipeline's lag and metrics?

Two runs of the same pipeline differ by several percent on a busy machine, which is more than this
costs. So it is measured within one run: all that watching does after a batch is timed, and counts
as if the pipeline had waited for all of it. (It waits for less: offsets are committed by another
thread.) The batches are small ones, since watching takes as long after a small one as after a large
one.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.clients import Admin, Connection
from headrace.services.stream_metrics import StreamMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.pipelines.batch import BatchDone

RECORDS_PER_BATCH = 50_000
GROUP = "watching"


@dataclass
class Watching:
    """How long a run took, and how much of that was for those who watch."""

    seconds: float = 0.0
    watching: float = 0.0
    batches: int = 0

    @contextmanager
    def timed(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.watching += time.perf_counter() - started

    @property
    def ratio(self) -> float:
        """With watching, by without.

        >>> Watching(seconds=10.1, watching=0.1).ratio
        1.01
        """
        return round(self.seconds / (self.seconds - self.watching), 3)


def watch(spark: "SparkSession", connection: Connection, topic: str, lake: str) -> Watching:
    """Run a pipeline, and after each batch do what shows its lag and metrics."""
    from headrace.spark.pipelines import CLICKSTREAM
    from headrace.spark.pipelines.lake import Lake
    from headrace.spark.pipelines.runner import StreamOptions, stream

    pipeline, found = replace(CLICKSTREAM, derived=()), Watching()
    tables, metrics = Lake(spark, lake), StreamMetrics(pipeline.name)

    def done(batch: "BatchDone") -> None:
        found.batches += 1
        with found.timed():
            admin.set_committed(GROUP, batch.offsets)
            tables.known_bytes(pipeline.rows.name)
            metrics.tell(batch)

    started = time.perf_counter()
    with found.timed():
        admin = Admin(connection)
    options = StreamOptions(
        pipeline, lake, topic=topic, show_lag=False, records_per_batch=RECORDS_PER_BATCH
    )
    with metrics.served(0):
        stream(options, connection, on_batch=done)
    found.seconds = time.perf_counter() - started
    return found
