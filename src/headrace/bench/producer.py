"""How fast does the producer send, beside bare confluent-kafka and Kafka's own Java tool?

All systems send the same records (250 bytes, with keys) to the same brokers in turns, several
rounds. Ratios are taken within a round, and the median round counts.
"""

import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import psutil
from confluent_kafka import Producer as Bare

from headrace.bench.measurement import Measurement
from headrace.clients import Admin, Producer
from headrace.config.producer_settings import PROFILES
from headrace.local import LocalCluster
from headrace.observe import Progress

QUESTION = "How fast does the producer send, beside bare confluent-kafka and Kafka's Java tool?"
RECORDS = 1_000_000  # twice what the queue holds: all must keep pace with the brokers
RECORD_BYTES = 250
PARTITIONS = 5
ROUNDS = 7
LATENCY_RECORDS = 1_500
LATENCY_RATE = 300
MEMORY_RECORDS = 5_000_000
PERF_TOOL = "org.apache.kafka.tools.ProducerPerformance"
SEND = "headrace send"
AWAITED = "headrace send, awaited"
SEND_MANY = "headrace send_many"
PRODUCE = "confluent-kafka produce"
PRODUCE_BATCH = "confluent-kafka produce_batch"
PERF_TEST = "kafka-producer-perf-test"
PERF_TEST_READY = "kafka-producer-perf-test, ready-made records without keys"
CAPITALS = range(ord("A"), ord("Z") + 1)
Pair = tuple[bytes, bytes]


@dataclass(frozen=True)
class Bench:
    """The brokers, the topic and the records of one run."""

    cluster: LocalCluster
    topic: str
    records: Sequence[Pair]

    @property
    def settings(self) -> dict[str, Any]:
        """The throughput profile, for all systems."""
        return PROFILES["throughput"]


def measure(progress: Progress) -> Measurement:
    with LocalCluster(3, progress=progress) as cluster:
        Admin(cluster.bootstrap).create_topic("bench", PARTITIONS, 1)
        bench = Bench(cluster, "bench", _records(RECORDS))
        rates = _throughput(bench, progress)
        latencies = _latency(bench, progress)
        memory = _memory(bench, progress)
    throughput = [
        {"case": "throughput", "system": name, "records_per_second": round(median(found))}
        for name, found in rates.items()
    ]
    return Measurement([*throughput, *latencies, memory], _ratios(rates, latencies))


def _records(count: int) -> list[Pair]:
    dice = random.Random(3)
    # Random capital letters, as Kafka's tool makes them: so all have the same to compress.
    values = [bytes(dice.choices(CAPITALS, k=RECORD_BYTES)) for _ in range(10_000)]
    return [(str(number).encode(), values[number % 10_000]) for number in range(count)]


def _throughput(bench: Bench, progress: Progress) -> dict[str, list[float]]:
    """Each system's records per second, round by round."""
    rates: dict[str, list[float]] = {name: [] for name in SYSTEMS}
    for number in range(1 + ROUNDS):
        progress.step(f"throughput, round {number} of {ROUNDS}" if number else "warming up")
        # To and fro: what one leaves behind on the disks, the next one pays for.
        for name in list(SYSTEMS)[:: 1 if number % 2 else -1]:
            rate = SYSTEMS[name](bench)
            if number:  # before, the brokers still compile themselves
                rates[name].append(rate)
    return rates


def _send(bench: Bench) -> float:
    with Producer(bench.cluster.bootstrap, profile="throughput") as producer:
        started = time.perf_counter()
        for key, value in bench.records:
            producer.send(bench.topic, value, key)
        producer.flush()
        seconds = time.perf_counter() - started
        assert producer.acknowledged == len(bench.records)
    return len(bench.records) / seconds


def _send_many(bench: Bench) -> float:
    with Producer(bench.cluster.bootstrap, profile="throughput") as producer:
        started = time.perf_counter()
        written = producer.send_many(bench.topic, bench.records).result()
        seconds = time.perf_counter() - started
        assert written == len(bench.records)
    return len(bench.records) / seconds


class _Counter:
    """The least that a careful user of the bare client does: count outcomes."""

    def __init__(self) -> None:
        self.written = 0

    def __call__(self, error: Any, _message: Any) -> None:
        if error is None:
            self.written += 1


def _bare(bench: Bench) -> Bare:
    producer = Bare({"bootstrap.servers": bench.cluster.bootstrap, "log_level": 0} | bench.settings)
    producer.list_topics(bench.topic, timeout=10)
    return producer


def _bare_produce(bench: Bench) -> float:
    producer, count = _bare(bench), _Counter()
    produce, poll = producer.produce, producer.poll
    started = time.perf_counter()
    for key, value in bench.records:
        while True:
            try:
                produce(bench.topic, value, key, on_delivery=count)
                break
            except BufferError:
                poll(0.01)
        poll(0)
    producer.flush()
    seconds = time.perf_counter() - started
    assert count.written == len(bench.records)
    return len(bench.records) / seconds


def _bare_batch(bench: Bench, size: int = 2_000) -> float:
    producer, count = _bare(bench), _Counter()
    limit = bench.settings["queue.buffering.max.messages"]
    started = time.perf_counter()
    for start in range(0, len(bench.records), size):
        part = bench.records[start : start + size]
        while len(producer) + size > limit:
            producer.poll(0.01)
        messages = [{"key": key, "value": value} for key, value in part]
        producer.produce_batch(bench.topic, messages, on_delivery=count)
        producer.poll(0)
    producer.flush()
    seconds = time.perf_counter() - started
    assert count.written == len(bench.records)
    return len(bench.records) / seconds


def _perf_test(bench: Bench) -> float:
    """As it comes: it makes each record while it sends."""
    return _perf_test_rate(bench, ["--record-size", str(RECORD_BYTES)])


def _perf_test_ready(bench: Bench) -> float:
    """With records from a file, all in memory before it begins."""
    with tempfile.NamedTemporaryFile(prefix="headrace-bench-") as payload:
        payload.write(b"\n".join(value for _key, value in bench.records[:10_000]))
        payload.flush()
        return _perf_test_rate(bench, ["--payload-file", payload.name])


def _perf_test_rate(bench: Bench, payload: list[str]) -> float:
    same = {
        "bootstrap.servers": bench.cluster.bootstrap,
        "acks": "all",
        "batch.size": bench.settings["batch.size"],
        "linger.ms": bench.settings["linger.ms"],
        "compression.type": bench.settings["compression.type"],
        "buffer.memory": 128 << 20,
    }
    printed = _run_perf_test(bench, len(bench.records), -1, payload, same)
    return float(printed[-1].split(" records/sec")[0].rpartition(" ")[2])


def _run_perf_test(
    bench: Bench, count: int, rate: int, payload: list[str], props: dict[str, Any]
) -> list[str]:
    output = bench.cluster.run_tool(
        PERF_TOOL,
        *("--topic", bench.topic, "--num-records", str(count), *payload),
        *("--throughput", str(rate)),
        *("--command-property", *(f"{name}={value}" for name, value in props.items())),
    )
    return [line for line in output.splitlines() if "records/sec" in line]


def _latency(bench: Bench, progress: Progress) -> list[dict[str, Any]]:
    progress.step(f"latency at {LATENCY_RATE} records/s")
    ours = _awaited_latencies(bench)
    props = {"bootstrap.servers": bench.cluster.bootstrap, "acks": "all", "linger.ms": 0}
    size = ["--record-size", str(RECORD_BYTES)]
    last = _run_perf_test(bench, LATENCY_RECORDS, LATENCY_RATE, size, props)[-1]
    p50, p99 = (float(last.split(f" ms {name}")[0].rpartition(" ")[2]) for name in ("50th", "99th"))
    return [
        {
            "case": "latency",
            "system": AWAITED,
            "p50_ms": round(median(ours), 2),
            "p99_ms": round(quantiles(ours, n=100)[98], 2),
        },
        {"case": "latency", "system": PERF_TEST, "p50_ms": p50, "p99_ms": p99},
    ]


def _awaited_latencies(bench: Bench) -> list[float]:
    found = []
    with Producer(bench.cluster.bootstrap, profile="latency") as producer:
        begun = time.perf_counter()
        for number, (key, value) in enumerate(bench.records[:LATENCY_RECORDS]):
            due = begun + number / LATENCY_RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            started = time.perf_counter()
            producer.send(bench.topic, value, key).result()
            found.append((time.perf_counter() - started) * 1000)
    return found


def _memory(bench: Bench, progress: Progress) -> dict[str, Any]:
    progress.step(f"memory while {MEMORY_RECORDS:,} records are sent")
    process = psutil.Process(os.getpid())
    before = highest = process.memory_info().rss
    with Producer(bench.cluster.bootstrap, profile="throughput") as producer:
        for _ in range(MEMORY_RECORDS // len(bench.records)):
            producer.send_many(bench.topic, bench.records)
            highest = max(highest, process.memory_info().rss)
    grown = (highest - before) / 1e6
    return {"case": "memory", "system": SEND_MANY, "grown_mb": round(grown, 1)}


SYSTEMS: dict[str, Callable[[Bench], float]] = {
    SEND: _send,
    PRODUCE: _bare_produce,
    SEND_MANY: _send_many,
    PRODUCE_BATCH: _bare_batch,
    PERF_TEST: _perf_test,
    PERF_TEST_READY: _perf_test_ready,
}


def _ratios(
    rates: Mapping[str, Sequence[float]], latencies: Sequence[dict[str, Any]]
) -> dict[str, float]:
    p99 = {row["system"]: row["p99_ms"] for row in latencies}

    def ratio(one: str, other: str) -> float:
        """The median round's: what slows a round down slows both."""
        return round(median(a / b for a, b in zip(rates[one], rates[other], strict=True)), 2)

    return {
        "send_many / perf-test": ratio(SEND_MANY, PERF_TEST),
        "send_many / perf-test, ready-made": ratio(SEND_MANY, PERF_TEST_READY),
        "send / produce": ratio(SEND, PRODUCE),
        "send_many / produce_batch": ratio(SEND_MANY, PRODUCE_BATCH),
        "p99 of send / perf-test": round(p99[AWAITED] / p99[PERF_TEST], 2),
    }
