"""A streaming query's progress, told batch by batch."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.listener import StreamingQueryListener

from headrace.spark.pipelines.accounts import Counts, in_utc
from headrace.spark.pipelines.batch import BatchDone
from headrace.spark.pipelines.decoding import REASON, unmet
from headrace.spark.pipelines.forward_definition import Forward
from headrace.spark.pipelines.lag import read_offsets
from headrace.spark.pipelines.outgoing import goes_on
from headrace.spark.pipelines.values import bounded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

COUNTED = "headrace"


def counted(rows: "DataFrame", forward: Forward) -> "DataFrame":
    """The same rows; Spark counts what becomes of them while they pass."""
    flags = {
        expectation.name: F.count_if(F.col(f"`{unmet(number)}`"))
        for number, expectation in enumerate(forward.expectations)
        if expectation.action == "warn"
    }
    return rows.observe(
        COUNTED,
        F.count(F.lit(1)).alias("rows_in"),
        F.count_if(goes_on(forward)).alias("rows_out"),
        F.count(REASON).alias("rows_dead"),
        F.max(bounded("timestamp", F.col("kafka_time"))).alias("newest"),
        *(count.alias(f"unmet:{name}") for name, count in flags.items()),
    )


class BatchListener(StreamingQueryListener):
    """Tells of each batch of one query that `counted` its rows, of one without records too."""

    def __init__(self, query: str, tell: Callable[[BatchDone], None]) -> None:
        self._query, self._tell = query, tell
        self.ended = 0

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        progress = event.progress
        if progress.name != self._query:
            return
        self.ended += 1  # first: who is told may take its time, and another batch is under way
        self._tell(batch_of(progress))

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802
        pass


def batch_of(progress: "StreamingQueryProgress") -> BatchDone:
    """What a report of Spark's says of a batch."""
    found = progress.observedMetrics.get(COUNTED)
    counts = {} if found is None else found.asDict()
    missed = {
        name.removeprefix("unmet:"): count
        for name, count in counts.items()
        if name.startswith("unmet:") and count
    }
    numbers = {name: counts.get(name, 0) for name in ("rows_in", "rows_out", "rows_dead")}
    return BatchDone(
        progress.batchId,
        Counts(**numbers, unmet=missed),
        progress.durationMs.get("triggerExecution", 0) / 1000,
        in_utc(counts.get("newest")),
        offsets={
            at: end
            for source in progress.sources
            for at, end in read_offsets(source.endOffset).items()
        },
    )
