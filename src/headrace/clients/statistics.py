"""What a producer has done: counts of its own, and what librdkafka tells once a second."""

import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

_SAMPLES = 8192


@dataclass(frozen=True)
class ProducerCounters:
    """A producer so far. Latency is from `send` to acknowledgement, over a sample of records.

    `bytes`, `batches` and what follows come from librdkafka's statistics and are up to one
    interval old (`statistics.interval.ms`, a second).
    """

    sent: int
    acknowledged: int
    failed: int
    pending: int
    latency_p50_ms: float | None
    latency_p95_ms: float | None
    latency_p99_ms: float | None
    latency_max_ms: float | None
    bytes: int
    batches: int
    records_per_batch: float | None
    bytes_on_the_wire: int
    request_latency_ms: float | None
    taken_at: float = field(default_factory=time.monotonic)

    def since(self, earlier: "ProducerCounters") -> "ProducerRates":
        """How fast, and how well batched and compressed, since an earlier look."""
        seconds = self.taken_at - earlier.taken_at
        records = self.acknowledged - earlier.acknowledged
        given = self.bytes - earlier.bytes
        batches = self.batches - earlier.batches
        wire = self.bytes_on_the_wire - earlier.bytes_on_the_wire
        return ProducerRates(
            seconds=round(seconds, 3),
            records_per_second=round(records / seconds, 1) if seconds > 0 else None,
            bytes_per_second=round(given / seconds, 1) if seconds > 0 else None,
            bytes_per_batch=round(given / batches, 1) if batches else None,
            compression_rate=round(wire / given, 4) if given else None,
            request_latency_ms=self.request_latency_ms,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ProducerRates:
    """A producer between two looks at its counters.

    Bytes are those of keys and values. `compression_rate` is bytes on the wire for each of them,
    requests and all: below 1, compression saves more than framing adds. `request_latency_ms` is
    the mean of the last interval that had requests.
    """

    seconds: float
    records_per_second: float | None
    bytes_per_second: float | None
    bytes_per_batch: float | None
    compression_rate: float | None
    request_latency_ms: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class LatencySample:
    """Latencies of some records: every one at first, then every second, fourth, and so on.

    >>> sample = LatencySample(limit=4)
    >>> for milliseconds in range(1, 9):
    ...     sample.add(milliseconds / 1000)
    >>> sample.percentile(50), sample.maximum
    (5.0, 8.0)
    """

    def __init__(self, limit: int = _SAMPLES) -> None:
        self._limit = limit
        self._values: list[float] = []
        self._stride = 1
        self._skip = 0
        self._maximum: float | None = None

    def add(self, seconds: float) -> None:
        if self._maximum is None or seconds > self._maximum:
            self._maximum = seconds
        if self._skip:
            self._skip -= 1
            return
        self._skip = self._stride - 1
        self._values.append(seconds)
        if len(self._values) >= self._limit:
            self._values = self._values[::2]
            self._stride *= 2

    @property
    def maximum(self) -> float | None:
        return None if self._maximum is None else round(self._maximum * 1000, 3)

    def percentile(self, percent: float) -> float | None:
        """In milliseconds; None while nothing was measured."""
        values = sorted(self._values)
        if not values:
            return None
        index = min(len(values) - 1, int(len(values) * percent / 100))
        return round(values[index] * 1000, 3)


class WireStatistics:
    """Adds up what librdkafka's statistics say of each interval."""

    def __init__(self) -> None:
        self.bytes = 0
        self.bytes_on_the_wire = 0
        self.batches = 0
        self.batched_records = 0
        self.request_latency_ms: float | None = None
        self._told = threading.Condition()
        self.emissions = 0

    def update(self, text: str) -> None:
        """librdkafka's callback: averages are of the last interval, counters of the whole life."""
        document = orjson.loads(text)
        topics = document.get("topics", {}).values()
        brokers = document.get("brokers", {}).values()
        windows = [topic["batchcnt"] for topic in topics]
        with self._told:
            self.bytes = document.get("txmsg_bytes", 0)
            self.bytes_on_the_wire = document.get("tx_bytes", 0)
            self.batches += sum(window["cnt"] for window in windows)
            self.batched_records += sum(window["sum"] for window in windows)
            latencies = [b["rtt"]["avg"] for b in brokers if b["rtt"]["cnt"]]
            if latencies:
                self.request_latency_ms = round(max(latencies) / 1000, 3)
            self.emissions += 1
            self._told.notify_all()

    def wait_for_next(self, seconds: float) -> bool:
        """Wait until statistics were told that began after this call; False if none came."""
        with self._told:
            wanted = self.emissions + 2  # the one under way may have begun before
            return self._told.wait_for(lambda: self.emissions >= wanted, seconds)
