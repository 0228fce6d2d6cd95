"""A consumer's rate is the smaller of two: what its handlers can do, and what the fetches bring.

Handlers: records per poll / processing time, times the workers. Fetches: bytes of a fetch / time
of a fetch, in records. Both are set here, so both can be predicted. The handler sleeps for a given
time over a given number of records. The broker holds each answer back for a given time (it waits
for more bytes than an answer may have), with a given number of bytes in it. Then the consumer runs,
and what it did is counted.
"""

import threading
import time
from dataclasses import dataclass
from typing import Any

from headrace.clients import Producer
from headrace.labs.stage import Stage
from headrace.parallel import App, Batch
from headrace.parallel.engine.running import RunningApp

RECORDS = 30_000
VALUE_BYTES = 200
BYTES_ON_DISK = VALUE_BYTES + 9  # with what Kafka adds to a record of this size
PRODUCED_AT_ONCE = 10  # records to a batch: a fetch ends between batches
WARM_UP_SECONDS = 0.7
SECONDS = 2.0
BAND = (0.5, 2.0)
PLENTY = 100_000_000


@dataclass(frozen=True)
class Case:
    """A consumer whose rate is known beforehand."""

    name: str
    records_per_call: int
    seconds_per_call: float
    workers: int = 1
    fetch_bytes: int = 1_048_576
    fetch_seconds: float | None = None  # None: as fast as it goes

    @property
    def by_handlers(self) -> float:
        return self.workers * self.records_per_call / self.seconds_per_call

    @property
    def by_fetches(self) -> float | None:
        if self.fetch_seconds is None:
            return None
        return self.fetch_bytes / BYTES_ON_DISK / self.fetch_seconds

    @property
    def predicted(self) -> float:
        return min(self.by_handlers, self.by_fetches or self.by_handlers)

    def settings(self) -> dict[str, Any]:
        if self.fetch_seconds is None:
            return {}
        return {
            "max.partition.fetch.bytes": self.fetch_bytes,
            "fetch.max.bytes": PLENTY,
            "fetch.min.bytes": PLENTY,  # never there: each answer waits its time
            "fetch.wait.max.ms": round(self.fetch_seconds * 1000),
        }


CASES = (
    Case("slow handler", 50, 0.05),
    Case("larger polls", 200, 0.05),
    Case("more workers", 50, 0.05, workers=4),
    Case("slow fetches", 50, 0.005, fetch_bytes=40_000, fetch_seconds=0.1),
    Case("larger fetches", 50, 0.005, fetch_bytes=120_000, fetch_seconds=0.1),
    Case("slow fetches, slower handler", 50, 0.1, fetch_bytes=120_000, fetch_seconds=0.1),
)


def run(stage: Stage) -> None:
    topic = stage.topic("load", 1)
    stage.say(f"sending {RECORDS:,} records of {VALUE_BYTES} bytes")
    settings = {"batch.num.messages": PRODUCED_AT_ONCE, "compression.type": "none"}
    with Producer(stage.connection, settings) as producer:
        producer.send_many(topic, [b"x" * VALUE_BYTES] * RECORDS).result()
    measured = {case: measure(stage, topic, case) for case in CASES}
    stage.fact("records a second", [row(case, rate) for case, rate in measured.items()])
    low, high = BAND
    for case, rate in measured.items():
        stage.check(
            f"{case.name}: measured is {low:g} to {high:g} times what was predicted",
            low <= rate / case.predicted <= high,
        )
    rates = {case.name: rate for case, rate in measured.items()}
    stage.check(
        "a bound handler: larger polls and more workers help",
        min(rates["larger polls"], rates["more workers"]) > 1.5 * rates["slow handler"],
    )
    stage.check(
        "bound by fetches: larger ones help", rates["larger fetches"] > 1.5 * rates["slow fetches"]
    )


def row(case: Case, rate: float) -> dict[str, object]:
    return {
        "case": case.name,
        "records per poll": case.records_per_call,
        "processing s": case.seconds_per_call,
        "workers": case.workers,
        "by handlers": round(case.by_handlers),
        "by fetches": "-" if case.by_fetches is None else round(case.by_fetches),
        "predicted": round(case.predicted),
        "measured": round(rate),
        "ratio": round(rate / case.predicted, 2),
    }


def measure(stage: Stage, topic: str, case: Case) -> float:
    stage.say(f"{case.name}: {case.predicted:,.0f} records a second are predicted")
    going_on = threading.Event()
    going_on.set()

    def handle(_values: list[bytes]) -> None:
        if going_on.is_set():
            time.sleep(case.seconds_per_call)

    app = App(stage.connection)
    declare = app.consumer(
        topic,
        group=stage.group("rate"),
        name="rate",
        order="none",
        concurrency=case.workers,
        batch=Batch(case.records_per_call, wait=1.0),
        settings=case.settings(),
    )
    declare(handle)
    with app.running() as running:
        running.wait_until_joined()
        stage.wait_until(lambda: handled(running) > 0, "the first records are handled")
        time.sleep(WARM_UP_SECONDS)  # until what was fetched at once is worked off
        rate = rate_of(running)
        going_on.clear()
        return rate


def rate_of(running: RunningApp) -> float:
    """Handled records by seconds, by two looks at the running client."""
    before, began = handled(running), time.monotonic()
    time.sleep(SECONDS)
    after, ended = handled(running), time.monotonic()
    return (after - before) / (ended - began)


def handled(running: RunningApp) -> int:
    return running.status()[0].handled
