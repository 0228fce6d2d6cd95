"""A running pipeline's figures for Prometheus."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.errors import BadInput

if TYPE_CHECKING:
    from headrace.spark.pipelines.batch import BatchDone


class StreamMetrics:
    """Counts what a pipeline's batches did; `registry` is Prometheus's own.

    >>> metrics = StreamMetrics("clickstream")
    >>> labels = {"pipeline": "clickstream"}
    >>> metrics.registry.get_sample_value("headrace_stream_batches_total", labels)
    0.0
    """

    def __init__(self, pipeline: str) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge

        self._pipeline = pipeline
        self.registry = CollectorRegistry()

        def counter(name: str, what: str) -> Counter:
            full = f"headrace_stream_{name}"
            return Counter(full, what, ["pipeline"], registry=self.registry).labels(pipeline)

        def gauge(name: str, what: str) -> Gauge:
            full = f"headrace_stream_{name}"
            return Gauge(full, what, ["pipeline"], registry=self.registry).labels(pipeline)

        self._batches = counter("batches", "Batches that are done")
        self._seconds = counter("batch_seconds", "Seconds that batches took")
        self._records = counter("records", "Records read")
        self._outcomes = {
            "rows_out": counter("rows", "Rows written to the table of rows, or sent on"),
            "rows_dead": counter("dead_letters", "Records that became dead letters"),
            "duplicates": counter("duplicates", "Records that were there already"),
        }
        self._rate = gauge("records_per_second", "Records a second in the last batch")
        self._delay = gauge(
            "delay_seconds", "From the newest record of the last batch to the batch's end"
        )
        self._tables = Gauge(
            "headrace_stream_table_bytes",
            "Bytes of a table after the last batch: tables are all the state there is",
            ["pipeline", "table"],
            registry=self.registry,
        )

    def tell(self, batch: "BatchDone") -> None:
        """One more batch is done."""
        self._batches.inc()
        self._seconds.inc(batch.seconds)
        self._records.inc(batch.counts.rows_in)
        for name, counter in self._outcomes.items():
            counter.inc(getattr(batch.counts, name))
        self._rate.set(batch.rate)
        if batch.delay is not None:
            self._delay.set(batch.delay)
        for table, size in batch.tables.items():
            self._tables.labels(self._pipeline, table).set(size)

    @contextlib.contextmanager
    def served(self, port: int) -> Iterator[int]:
        """Serve them on a port of this machine; 0 is any that is free. Gives the port."""
        from prometheus_client import start_http_server

        try:
            server, thread = start_http_server(port, "127.0.0.1", registry=self.registry)
        except OSError as error:
            raise BadInput(
                f"metrics cannot be served on port {port}: {error.strerror}",
                hint="give --metrics another port, or 0 for any that is free",
            ) from error
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
