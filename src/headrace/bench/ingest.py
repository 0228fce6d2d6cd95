"""How fast do files come into Kafka exactly once, beside Spark's own sink?

The same table (lines read, typed, as JSON, with key and header) is written to Spark's `noop`,
with Spark's own Kafka sink as it comes and tuned, and exactly once. In turns, several rounds;
ratios are taken within a round, and the median round counts. Before that each writes a little, so
that nobody pays for the start.
"""

import contextlib
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil

from headrace.bench.measurement import Measurement
from headrace.bench.rounds import in_turns, median_ratio
from headrace.clients import Admin
from headrace.local import LocalCluster
from headrace.observe import Progress
from headrace.services.generate import write_clickstream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark.ingest.source import ChunkToRead

QUESTION = "How fast do files come into Kafka exactly once, beside Spark's own sink?"
ROWS = 5_000_000
WARM_UP_ROWS = 500_000
ROUNDS = 3
BAD = 0.01
PARTITIONS = 5
TOPIC = "bench"
EXACTLY_ONCE = "headrace, exactly once"
TUNED = "Spark's sink, tuned"
DEFAULT = "Spark's sink, defaults"
NOOP = "noop"


@dataclass(frozen=True)
class Rows:
    """A file's rows, as ingest makes a table of them."""

    table: "DataFrame"
    pieces: str


@dataclass(frozen=True)
class Bench:
    """The Spark session, the brokers, and how each system writes a table."""

    spark: "SparkSession"
    cluster: LocalCluster

    def rows(self, path: Path) -> Rows:
        from headrace.spark.ingest.events import to_records
        from headrace.spark.ingest.schema import CLICKSTREAM
        from headrace.spark.ingest.source import names_option, plan_option

        chunks = _chunks(path)
        plan = plan_option(chunks, len(CLICKSTREAM.columns))
        lines = self.spark.read.format("headrace-files").option("plan", plan).load()
        table = to_records(
            lines,
            CLICKSTREAM,
            dead=f"{TOPIC}.dead",
            key=CLICKSTREAM.key,
            value="json",
        )
        return Rows(table, names_option(chunks))

    def noop(self, rows: Rows) -> None:
        rows.table.write.format("noop").mode("overwrite").save()

    def exactly_once(self, rows: Rows) -> None:
        from headrace.spark.settings import ROWS_UNMEASURED, set_meanwhile

        writer = rows.table.write.format("headrace").option("job", f"bench-{uuid.uuid4()}")
        writer = writer.option("topic", TOPIC).option("pieces", rows.pieces)
        with set_meanwhile(self.spark, ROWS_UNMEASURED):  # as ingest does
            writer.option("bootstrap", self.cluster.bootstrap).mode("append").save()

    def tuned(self, rows: Rows) -> None:
        from headrace.spark.ingest.job import SPARKS_SINK

        self._sparks_own(rows, SPARKS_SINK)

    def default(self, rows: Rows) -> None:
        self._sparks_own(rows, {})

    def _sparks_own(self, rows: Rows, settings: dict[str, str]) -> None:
        from headrace.spark.ingest.events import for_sparks_sink

        writer = for_sparks_sink(rows.table, TOPIC).write.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", self.cluster.bootstrap)
        for name, value in settings.items():
            writer = writer.option(f"kafka.{name}", value)
        writer.save()


def _chunks(path: Path) -> "list[ChunkToRead]":
    """All chunks of the file, as ingest plans them for a new one."""
    from headrace.spark.ingest.files import plan_file, to_read
    from headrace.spark.ingest.schema import CLICKSTREAM

    plan = plan_file(str(path), "csv", (), CLICKSTREAM)
    return [to_read(plan, chunk) for chunk in plan.chunks]


def measure(progress: Progress) -> Measurement:
    from headrace.spark import session

    spark = session("bench", progress=progress)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
            LocalCluster(3, progress=progress) as cluster,
        ):
            admin = Admin(cluster.bootstrap)
            for topic in (TOPIC, f"{TOPIC}.dead"):
                admin.create_topic(topic, PARTITIONS, 3)
            return _measure(Bench(spark, cluster), Path(folder), progress)
    finally:
        spark.stop()


def _measure(bench: Bench, folder: Path, progress: Progress) -> Measurement:
    progress.step(f"making {ROWS:,} rows")
    files = {
        "warm": _file(folder, "warm", WARM_UP_ROWS, 0.0),
        "good": _file(folder, "good", ROWS, 0.0),
        "bad": _file(folder, "bad", ROWS, BAD),
    }
    systems: dict[str, tuple[Callable[[Rows], None], str]] = {
        NOOP: (bench.noop, "good"),
        DEFAULT: (bench.default, "good"),
        TUNED: (bench.tuned, "good"),
        EXACTLY_ONCE: (bench.exactly_once, "good"),
        _with_bad(): (bench.exactly_once, "bad"),
    }
    for name, (write, _) in systems.items():
        progress.step(f"warming up: {name}")
        write(bench.rows(files["warm"]))
    rates: dict[str, list[float]] = {name: [] for name in systems}
    memory = Memory()
    for name in in_turns(list(systems), ROUNDS, progress):
        write, file = systems[name]
        with memory if write == bench.exactly_once else contextlib.nullcontext():
            rates[name].append(_rate(write, bench.rows(files[file])))
    rows = [
        {"case": "rows", "system": name, "rows_per_second": round(median(found))}
        for name, found in rates.items()
    ]
    rows.append({"case": "memory", "system": "Python workers", **memory.figures()})
    return Measurement(rows, _ratios(rates))


def _with_bad() -> str:
    return f"{EXACTLY_ONCE}, {BAD:.0%} bad rows"


def _file(folder: Path, name: str, rows: int, bad: float) -> Path:
    path = folder / f"{name}.csv"
    write_clickstream(path, rows, seed=3, bad=bad)
    return path


def _rate(write: Callable[[Rows], None], rows: Rows) -> float:
    started = time.perf_counter()
    write(rows)
    return ROWS / (time.perf_counter() - started)


def _ratios(rates: dict[str, list[float]]) -> dict[str, float]:
    return {
        "exactly once / Spark's defaults": median_ratio(rates[EXACTLY_ONCE], rates[DEFAULT]),
        "exactly once / Spark's tuned": median_ratio(rates[EXACTLY_ONCE], rates[TUNED]),
        "noop / exactly once": median_ratio(rates[NOOP], rates[EXACTLY_ONCE]),
        "noop / Spark's tuned": median_ratio(rates[NOOP], rates[TUNED]),
        "1% bad rows / none": median_ratio(rates[_with_bad()], rates[EXACTLY_ONCE]),
    }


class Memory:
    """The largest Python worker's resident memory, early and late in a run."""

    def __init__(self) -> None:
        self._samples: list[list[float]] = []

    def __enter__(self) -> None:
        self._samples.append([])
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def __exit__(self, *_outcome: object) -> None:
        self._over.set()
        self._thread.join()

    def figures(self) -> dict[str, Any]:
        longest = max(self._samples, key=len)
        third = max(1, len(longest) // 3)
        return {
            "early_mb": round(max(longest[:third], default=0.0)),
            "late_mb": round(max(longest[-third:], default=0.0)),
        }

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self._samples[-1].append(max(_worker_megabytes(), default=0.0))


def _worker_megabytes() -> list[float]:
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[1:3] == ["-m", "headrace.spark.daemon"]:
                found.append(process.memory_info().rss / 1e6)
        except psutil.Error:  # it ended meanwhile
            continue
    return found
