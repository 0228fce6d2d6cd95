"""So many records of such a size at such a rate: all acknowledged, rate within 10 %, latency told.

Latency is counted from handing a record over to its acknowledgement, as Kafka's own
ProducerPerformance does, which then runs beside it with the same figures and settings. The
percentiles leave the first second out on both sides: a virtual machine warms up, and the first
records wait for connections.
"""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence

from headrace.clients import Delivery, Producer
from headrace.errors import OperationFailed
from headrace.labs.stage import Stage
from headrace.model import Latest, TopicPartition

NEEDS_FAULTS = True
RECORDS = 8_000
RECORD_BYTES = 1_000
RATE = 2_000
WARM_UP = RATE
SETTINGS = {"acks": "all", "linger.ms": 5, "compression.type": "none"}
# Names and thousandths: whole numbers, because 0.07 * 100 is a little more than 7.
PERCENTILES = {"p50": 500, "p95": 950, "p99": 990, "p99.9": 999, "max": 1000}
KAFKAS_TOOL = "org.apache.kafka.tools.ProducerPerformance"
KAFKAS_SUMMARY = re.compile(
    r"(?P<records>\d+) (?P<steady>steady state )?records sent, (?P<rate>[\d.]+) records/sec .*, "
    r"(?P<max>[\d.]+) ms max latency, (?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, "
    r"(?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99\.9th"
)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The smallest value that so many of a thousand do not exceed, for each name.

    >>> percentiles([float(n) for n in range(1, 101)])
    {'p50': 50.0, 'p95': 95.0, 'p99': 99.0, 'p99.9': 100.0, 'max': 100.0}
    """
    ordered = sorted(values)
    ranks = {name: -(-share * len(ordered) // 1000) for name, share in PERCENTILES.items()}
    return {name: ordered[max(rank, 1) - 1] for name, rank in ranks.items()} if ordered else {}


class Meter:
    """How long each record took, in milliseconds, in the order of the acknowledgements."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.failed = 0
        self.ended = 0.0

    def start(self) -> Callable[[Delivery], None]:
        """Call when a record is handed over; what comes back is called when its fate is known."""
        started = time.perf_counter()

        def settled(delivery: Delivery) -> None:
            self.ended = time.perf_counter()
            if delivery.failed:
                self.failed += 1
            else:
                self.latencies.append((self.ended - started) * 1000)

        return settled


def run(stage: Stage) -> None:
    own_topic, tool_topic = stage.topic("perf_headrace"), stage.topic("perf_kafka")
    stage.say(f"{RECORDS:,} records of {RECORD_BYTES:,} bytes at {RATE:,} a second")
    meter, seconds = measure(stage, own_topic)
    stage.say("the same with Kafka's own tool")
    tool = measure_kafkas_tool(stage, tool_topic)

    steady = meter.latencies[WARM_UP:]
    figures = percentiles(steady)
    ratio = len(meter.latencies) / seconds / RATE
    own = {"records": len(meter.latencies), "of the asked rate": round(ratio, 3)}
    figures_of_all = {"max from the start": max(meter.latencies, default=0.0)}
    stage.fact("asked for", f"{RECORDS:,} x {RECORD_BYTES:,} bytes at {RATE:,} a second")
    stage.fact(
        "latency in ms",
        [
            {"tool": "headrace", **own, **rounded(figures | figures_of_all)},
            {"tool": "Kafka's", **tool},
        ],
    )
    stage.check(
        "every record is acknowledged", len(meter.latencies) == RECORDS and not meter.failed
    )
    stage.check("every record is in the log", end_of(stage, own_topic) == RECORDS)
    stage.check("the rate is within 10 % of what was asked for", 0.9 <= ratio <= 1.1)
    stage.check(
        "the percentiles rest on every record after the first second, and rise",
        len(steady) == RECORDS - WARM_UP and list(figures.values()) == sorted(figures.values()),
    )
    stage.check(
        "Kafka's tool sent as many", end_of(stage, tool_topic) == tool["records"] == RECORDS
    )


def measure(stage: Stage, topic: str) -> tuple[Meter, float]:
    """Send at the asked rate; every second, what the last one was like."""
    meter = Meter()
    payload = os.urandom(RECORD_BYTES)
    producer = Producer(stage.connection, SETTINGS)
    started = time.perf_counter()
    told = 0
    for number in range(RECORDS):
        # Each record has its moment: one that comes late does not delay those behind it. The
        # acknowledgements are taken in while sending, so they are seen about 1/RATE s late at most.
        if (early := started + number / RATE - time.perf_counter()) > 0:
            time.sleep(early)
        producer.send(topic, payload, on_delivery=meter.start())
        if number % RATE == RATE - 1:
            told = tell(stage, meter, told, started)
    producer.flush()
    return meter, meter.ended - started


def tell(stage: Stage, meter: Meter, told: int, started: float) -> int:
    """What was acknowledged since `told` records were; returns how many are now."""
    figures = percentiles(meter.latencies[told:])
    shown = ", ".join(f"{name} {ms:.1f}" for name, ms in figures.items())
    now = len(meter.latencies)
    stage.say(f"{time.perf_counter() - started:.1f} s: {now:,} acknowledged; ms: {shown}")
    return now


def measure_kafkas_tool(stage: Stage, topic: str) -> dict[str, float]:
    """The same load by Kafka's tool, in the columns of our own table."""
    options = {
        "--topic": topic,
        "--num-records": RECORDS,
        "--record-size": RECORD_BYTES,
        "--throughput": RATE,
        "--warmup-records": WARM_UP,
        "--bootstrap-server": stage.connection.bootstrap,
    }
    arguments = [str(part) for option in options.items() for part in option]
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    printed = stage.cluster.run_tool(KAFKAS_TOOL, *arguments, "--command-property", *settings)
    lines = list(KAFKAS_SUMMARY.finditer(printed))
    whole = next((line for line in lines if not line["steady"]), None)
    steady = next((line for line in lines if line["steady"]), None)
    if whole is None or steady is None:
        raise OperationFailed(f"{KAFKAS_TOOL} gave no summary: {printed!r}", hint="is it Kafka 4?")
    return {
        "records": int(whole["records"]),
        "of the asked rate": round(float(whole["rate"]) / RATE, 3),
        **{name: float(steady[name.replace(".", "")]) for name in PERCENTILES},
        "max from the start": float(whole["max"]),
    }


def rounded(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(ms, 1) for name, ms in figures.items()}


def end_of(stage: Stage, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    return stage.admin.offsets([partition], Latest())[partition]
