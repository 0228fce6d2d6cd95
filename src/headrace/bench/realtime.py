"""How long is a record on its way from topic to topic through Spark?

A thousand records a second go through a forward: in real-time mode, and in micro-batches, exactly
once. A record's time on its way is from the call that sends it to the moment when a reader of
committed records has it; sender and reader are in this process, so it is one clock. What is sent
until the first record has come through does not count.
"""

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from headrace.bench.measurement import Measurement
from headrace.clients import Admin, Connection, Producer, Reader
from headrace.errors import OperationFailed
from headrace.local import LocalCluster
from headrace.model import Deadline
from headrace.observe import Progress

if TYPE_CHECKING:
    from headrace.spark.pipelines import Forward

QUESTION = "How long is a record on its way from topic to topic, in real-time mode and in batches?"
RATE = 1_000
SECONDS = 30
WARM_UP_SECONDS = 10
PARTITIONS = 2
SECONDS_TO_START = 120.0
REALTIME, BATCHES = "headrace, real time", "headrace, every 100 ms, exactly once"


@dataclass
class Readings:
    """Seconds on the way, of records that count; `first` is set once anything came through."""

    first: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    counting_from: float = float("inf")
    seconds: list[float] = field(default_factory=list)

    def read(self, topic: str, connection: Connection) -> None:
        settings = {"isolation.level": "read_committed", "fetch.wait.max.ms": 10}
        with Reader(topic, connection=connection, settings=settings, follow=True) as reader:
            for batch in reader.batches(1, empty=True):
                now = time.time()
                for record in batch:
                    self._note(orjson.loads(record.value or b"{}")["sent"], now)
                if self.over.is_set():
                    return

    def _note(self, sent: float, now: float) -> None:
        self.first.set()
        if sent >= self.counting_from:
            self.seconds.append(now - sent)


def measure(progress: Progress) -> Measurement:
    from headrace.spark import session

    spark = session("bench", progress=progress)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
            LocalCluster(1, progress=progress) as cluster,
        ):
            connection = Connection(cluster.bootstrap)
            found = {
                name: _on_the_way(name, connection, Path(folder), progress)
                for name in (REALTIME, BATCHES)
            }
    finally:
        spark.stop()
    rows = [_row(name, seconds) for name, seconds in found.items()]
    return Measurement(
        rows, {"real time / batches, p50": round(rows[0]["p50_ms"] / rows[1]["p50_ms"], 3)}
    )


def _row(name: str, seconds: list[float]) -> dict[str, Any]:
    ordered = sorted(seconds)

    def share(part: float) -> float:
        return round(ordered[int(len(ordered) * part)] * 1000, 1)

    return {
        "case": f"Kafka to Kafka at {RATE:,} records/s",
        "system": name,
        "records": len(ordered),
        "p50_ms": share(0.5),
        "p99_ms": share(0.99),
    }


def _on_the_way(name: str, connection: Connection, folder: Path, progress: Progress) -> list[float]:
    progress.step(f"{RATE:,} records a second for {SECONDS} s: {name}")
    realtime = name == REALTIME
    source, to = (f"{part}-{'realtime' if realtime else 'batches'}" for part in ("in", "out"))
    for topic in (source, to):
        Admin(connection).create_topic(topic, PARTITIONS, 1)
    readings = Readings()
    with (
        _reading(readings, to, connection),
        _streaming(_forward(source, to), folder / source, connection, realtime=realtime),
    ):
        _send(source, readings, connection)
    return readings.seconds


def _forward(source: str, to: str) -> "Forward":
    from headrace.spark.pipelines import Field, Forward, Json, Topic

    fields = (Field("n", "long", required=True), Field("sent", "double"), Field("text"))
    return Forward("bench", Topic(source, Json(*fields)), to)


@contextmanager
def _reading(readings: Readings, topic: str, connection: Connection) -> Iterator[None]:
    thread = threading.Thread(target=readings.read, args=(topic, connection), daemon=True)
    thread.start()
    try:
        yield
    finally:
        readings.over.set()
        thread.join()


@contextmanager
def _streaming(
    forward: "Forward", lake: Path, connection: Connection, *, realtime: bool
) -> Iterator[None]:
    from headrace.spark.pipelines.runner import StreamOptions, stream

    stop = threading.Event()
    every = None if realtime else 0.1
    options = StreamOptions(forward, str(lake), every=every, realtime=realtime, show_lag=False)
    thread = threading.Thread(target=stream, args=(options, connection), kwargs={"stop": stop})
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _send(topic: str, readings: Readings, connection: Connection) -> None:
    """At an even rate: until the first has come through, to warm up, and for as long as counts;
    then wait for those that are still on their way, which are the slowest."""
    deadline, counted = Deadline(SECONDS_TO_START), 0
    with Producer(connection, profile="latency") as producer:
        for number in _evenly():
            sent = time.time()
            value = {"n": number, "sent": sent, "text": "x" * 200}
            producer.send(topic, orjson.dumps(value), key=str(number))
            if readings.counting_from == float("inf") and readings.first.is_set():
                readings.counting_from = sent + WARM_UP_SECONDS
            counted += sent >= readings.counting_from
            if sent > readings.counting_from + SECONDS:
                break
            if not readings.first.is_set() and deadline.expired:
                raise OperationFailed(
                    f"nothing came through in {SECONDS_TO_START:.0f} s", hint="is Spark running?"
                )
    for _ in Deadline(SECONDS_TO_START).polls():
        if len(readings.seconds) >= counted:
            return
    raise OperationFailed(
        f"of {counted:,} records only {len(readings.seconds):,} came through",
        hint="run this again on a machine with less to do",
    )


def _evenly() -> Iterator[int]:
    begin, number = time.monotonic(), 0
    while True:
        yield number
        number += 1
        ahead = begin + number / RATE - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
