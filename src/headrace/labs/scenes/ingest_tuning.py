"""The same rows, three ways: tuned settings send fewer, fuller batches, and no row is lost by it.

A clickstream is sent as JSON with the defaults of Kafka's Java client, with the settings that a
classic advice gives (large batches, a wait of 20 ms, gzip, one acknowledgement), and with the
throughput profile, which keeps every guarantee. How long it takes is shown, and judged by nobody:
that is a benchmark's work. What each way does with requests and bytes is judged.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from headrace.clients import Delivery, Producer
from headrace.clients.statistics import ProducerCounters
from headrace.config.producer_settings import ProducerProfile
from headrace.labs.stage import Stage
from headrace.model import Latest, TopicPartition
from headrace.services.clickstream import HEADER, rows

BROKERS = 3
PARTITIONS = 5
ROWS = 200_000
TOLD_EVERY = 100_000
ADVICE = {
    "batch.size": 64_000,
    "linger.ms": 20,
    "compression.type": "gzip",
    "acks": 1,
    "enable.idempotence": False,
}
# Of Kafka's Java client, of which the advice speaks.
DEFAULTS = {
    "batch.size": 16_384,
    "linger.ms": 5,
    "compression.type": "none",
    "enable.idempotence": False,
}
Event = tuple[bytes, bytes]


@dataclass
class Outcomes:
    """The delivery callback: counts successes and errors."""

    written: int = 0
    failed: int = 0

    def __call__(self, delivery: Delivery) -> None:
        if delivery.failed:
            self.failed += 1
        else:
            self.written += 1


@dataclass(frozen=True)
class Way:
    """One way to send, and what came of it."""

    name: str
    topic: str
    seconds: float
    outcomes: Outcomes
    counters: ProducerCounters

    def row(self) -> dict[str, Any]:
        return {
            "settings": self.name,
            "seconds": round(self.seconds, 1),
            "rows/s": round(self.outcomes.written / self.seconds),
            "MB given": round(self.counters.bytes / 1e6, 1),
            "MB sent": round(self.counters.bytes_on_the_wire / 1e6, 1),
            "batches": self.counters.batches,
            "rows a batch": self.counters.records_per_batch,
            "errors": self.outcomes.failed,
        }


def run(stage: Stage) -> None:
    stage.say(f"making {ROWS:,} events")
    events = make_events()
    ways = [
        send(stage, events, "Java client's defaults", DEFAULTS),
        send(stage, events, "classic advice", ADVICE),
        send(stage, events, "throughput profile", None),
    ]
    stage.fact("the same rows, three ways", [way.row() for way in ways])
    judge(stage, ways)


def make_events() -> list[Event]:
    """Key and JSON of each row of the store's clickstream."""
    names = HEADER.decode().strip().split(",")
    fields = (dict(zip(names, raw.decode().strip().split(","), strict=True)) for raw in lines())
    return [(event["user_id"].encode(), orjson.dumps(event)) for event in fields]


def lines() -> list[bytes]:
    return [raw for raw, _bad in rows(ROWS, seed=7, bad=0.0)]


def send(stage: Stage, events: Sequence[Event], name: str, settings: dict[str, Any] | None) -> Way:
    topic = stage.topic("ecommerce.events", PARTITIONS, 3)
    outcomes = Outcomes()
    stage.say(f"sending with the {name}")
    profile: ProducerProfile = "throughput" if settings is None else "durable"
    with Producer(stage.connection, settings, profile=profile) as producer:
        started = time.perf_counter()
        for number, (key, value) in enumerate(events, 1):
            producer.send(topic, value, key, on_delivery=outcomes)
            if not number % TOLD_EVERY:
                stage.say(f"{number:,} rows after {time.perf_counter() - started:.1f} s")
        producer.flush()
        seconds = time.perf_counter() - started
        counters = producer.counters(fresh=True)
    return Way(name, topic, seconds, outcomes, counters)


def judge(stage: Stage, ways: Sequence[Way]) -> None:
    defaults, advice, profile = ways
    stage.check(
        "each way every row is acknowledged, none fails",
        all((way.outcomes.written, way.outcomes.failed) == (ROWS, 0) for way in ways),
    )
    stage.check(
        "each way every row is in the topic", all(stored(stage, way) == ROWS for way in ways)
    )
    stage.check(
        "tuned ways send fewer batches than the defaults",
        max(advice.counters.batches, profile.counters.batches) < defaults.counters.batches,
    )
    stage.check(
        "compressed ways send less than half of the bytes",
        all(way.counters.bytes_on_the_wire < way.counters.bytes / 2 for way in (advice, profile)),
    )


def stored(stage: Stage, way: Way) -> int:
    partitions = [TopicPartition(way.topic, number) for number in range(PARTITIONS)]
    return sum(stage.admin.offsets(partitions, Latest()).values())
