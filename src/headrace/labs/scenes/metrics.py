"""The figures that a running client tells of itself agree with what is found outside of it.

A producer works at two paces. While it does, it tells its send rate, average batch size,
compression rate and request latency. Afterwards the same is found without it: the records read
back, the batches that Kafka's own tool counts in the broker's log, the size of that file. For the
latency there is no file to look into, so the broker is held still for a second.
"""

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import orjson

from headrace.clients import Producer
from headrace.clients.statistics import ProducerCounters
from headrace.labs.segments import Batch, bytes_on_disk, stored_batches
from headrace.labs.stage import Stage
from headrace.labs.story import events
from headrace.model import Deadline

NEEDS_FAULTS = True
PACES = {"slow": 500, "fast": 5_000}
SAMPLES_PER_PACE = 4
AT_ONCE = 20_000  # large batches, beside which the headers of requests hardly count
RISE = 1.5  # the paces are ten times apart; a busy machine may not keep up with the fast one
HOLD_SECONDS = 1.0
TOLERANCE = 0.1
SETTINGS = {"statistics.interval.ms": 200, "linger.ms": 50, "compression.type": "zstd"}


@dataclass(frozen=True)
class Sample:
    """What the producer told at one moment, and what this lab's own clock said then."""

    pace: str
    counters: ProducerCounters
    clock: float = field(default_factory=time.perf_counter)

    def row(self, earlier: "Sample") -> dict[str, object]:
        rates = self.counters.since(earlier.counters)
        return {
            "pace": self.pace,
            "records a second": round(rates.records_per_second or 0),
            "bytes a batch": round(rates.bytes_per_batch or 0),
            "compression rate": rates.compression_rate,
            "request latency ms": rates.request_latency_ms,
        }


class Load:
    """Sends events of a shop at a steady pace until it is told to stop."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.pace = PACES["slow"]
        self._producer = producer
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="load")

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        due = time.perf_counter()
        for event in events(sys.maxsize):
            if self._stop.is_set():
                return
            self._producer.send(self._topic, orjson.dumps(event), key=str(event["userid"]))
            due += 1 / self.pace
            if (early := due - time.perf_counter()) > 0:
                time.sleep(early)


def run(stage: Stage) -> None:
    watch_producer(stage)


# --- the producer ---


def watch_producer(stage: Stage) -> None:
    topic = stage.topic("measured", 1, 1)
    with Producer(stage.connection, SETTINGS) as producer:
        samples = sample(stage, producer, topic)
        judge_send_rate(stage, topic, samples)
        stage.say(f"sending {AT_ONCE:,} records at once")
        producer.send_many(topic, [orjson.dumps(event) for event in events(AT_ONCE)]).result()
        judge_totals(stage, topic, samples[0].counters, producer.counters(fresh=True))
        judge_latency(stage, producer, topic)


def sample(stage: Stage, producer: Producer, topic: str) -> list[Sample]:
    """Look at a producer while it works: before, at each pace, and after."""
    samples = [Sample("none", producer.counters(fresh=True))]
    with Load(producer, topic) as load:
        for name, pace in PACES.items():
            stage.say(f"sending {pace:,} records a second")
            load.pace = pace
            samples += [
                Sample(name, producer.counters(fresh=True)) for _ in range(SAMPLES_PER_PACE)
            ]
    producer.flush()
    return [*samples, Sample("none", producer.counters(fresh=True))]


def judge_send_rate(stage: Stage, topic: str, samples: Sequence[Sample]) -> None:
    """Rates told while it ran, times the seconds of our own clock, make the records stored."""
    stage.fact("while it ran", [later.row(earlier) for earlier, later in pairwise(samples[:-1])])
    told = sum(
        (later.counters.since(earlier.counters).records_per_second or 0)
        * (later.clock - earlier.clock)
        for earlier, later in pairwise(samples)
    )
    stored = len(stage.records(topic))
    stage.fact("records by send rates and the clock", round(told))
    stage.fact("records stored", stored)
    stage.check(
        f"send rate: rates by seconds are within {TOLERANCE:.0%} of the records stored",
        abs(told / stored - 1) < TOLERANCE,
    )
    before, slow, fast = (samples[n * SAMPLES_PER_PACE].counters for n in range(3))
    stage.check(
        "send rate: it rises when the pace does",
        (fast.since(slow).records_per_second or 0)
        > RISE * (slow.since(before).records_per_second or 0),
    )


def judge_totals(
    stage: Stage, topic: str, before: ProducerCounters, told: ProducerCounters
) -> None:
    """All that the producer told, beside what the broker has."""
    records = stage.records(topic)
    batches = stored_batches(stage, [topic])[topic]
    stored_bytes = sum(len(r.key or b"") + len(r.value or b"") for r in records)
    rates = told.since(before)
    rate_told = rates.compression_rate or 0.0
    rate_found = bytes_on_disk(stage, topic) / stored_bytes
    figures = [
        ("records", told.acknowledged, len(records), "the topic, read back"),
        ("bytes of keys and values", told.bytes, stored_bytes, "the topic, read back"),
        ("batches", told.batches, len(batches), "Kafka's tool on the log"),
        ("records a batch", told.records_per_batch, per(batches, len(records)), "both"),
        ("bytes a batch", rates.bytes_per_batch, per(batches, stored_bytes), "both"),
        ("compression rate", round(rate_told, 3), round(rate_found, 3), "the log's size"),
    ]
    names = ("figure", "told by the producer", "found outside", "found in")
    stage.fact("in the end", [dict(zip(names, figure, strict=True)) for figure in figures])
    for name, own, outside, _where in figures[:-1]:
        stage.check(f"{name}: the producer tells what is found outside", own == outside != 0)
    stage.check(
        f"compression rate: within {TOLERANCE:.0%} of bytes on disk by bytes given",
        abs(rate_told / rate_found - 1) < TOLERANCE and rate_found < 1,
    )


def judge_latency(stage: Stage, producer: Producer, topic: str) -> None:
    """A request that a broker answers a second late must be told as such."""
    slow = HOLD_SECONDS * 1000 / 2  # half to spare: the request leaves after the linger
    stage.wait_until(lambda: latency_now(producer, topic) < slow, "requests are answered quickly")
    usual = producer.counters().request_latency_ms or 0.0
    leader = stage.admin.topic(topic).partitions[0].leader or 1
    stage.say(f"holding broker {leader} still for {HOLD_SECONDS:g} s with a request on its way")
    began = time.perf_counter()
    stage.cluster.pause(leader)
    try:
        delivery = producer.send(topic, "held up")
        time.sleep(HOLD_SECONDS)  # the fault itself, not a wait for something
    finally:
        stage.cluster.resume(leader)
    delivery.result()
    longest = (time.perf_counter() - began) * 1000
    told = highest_latency(producer, enough=slow)
    stage.fact("request latency in ms, before", round(usual, 1))
    stage.fact("request latency in ms, broker held still", round(told, 1))
    stage.check(
        "request latency: a broker held still shows, and no more than our clock saw",
        slow <= told <= longest,
    )


def latency_now(producer: Producer, topic: str) -> float:
    producer.send(topic, "as usual").result()
    return producer.counters(fresh=True).request_latency_ms or 0.0


def highest_latency(producer: Producer, enough: float) -> float:
    """The highest latency told until it is enough; later requests are quick and push it out."""
    highest = 0.0
    for _ in Deadline(5).polls(every=0.05):
        highest = max(highest, producer.counters().request_latency_ms or 0.0)
        if highest >= enough:
            break
    return highest


def per(batches: Sequence[Batch], total: int) -> float:
    return round(total / max(len(batches), 1), 1)
