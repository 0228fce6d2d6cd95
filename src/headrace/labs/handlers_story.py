"""The demo's second act: the events of the first one, handled in parallel, each user's in order.

Half-way the consumer is stopped and another one goes on: nothing is skipped and nothing repeated.
"""

import asyncio
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from headrace.labs.story import PARTITIONS, TOPIC
from headrace.local import LocalCluster
from headrace.model import Record
from headrace.observe import Progress
from headrace.parallel import App

GROUP = "scoring"
WORKERS = 500
WORK_SECONDS = 0.002
LOOK_EVERY = 0.02


@dataclass(frozen=True)
class HandlersAccount:
    """Every event was handled once, and each user's in order."""

    events: int
    handled: int
    repeated: int
    missing: int
    out_of_order: int
    seconds: float
    seconds_by_partition: float  # what one handler for each partition needs at least
    balanced: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Scores:
    """What the handler has seen."""

    def __init__(self) -> None:
        self.times: Counter[int] = Counter()
        self.out_of_order = 0
        self._last: dict[bytes | None, int] = {}

    def note(self, event: dict[str, Any], record: Record) -> None:
        self.times[event["id"]] += 1
        if event["id"] < self._last.get(record.key, -1):
            self.out_of_order += 1
        self._last[record.key] = event["id"]


def tell_handlers(cluster: LocalCluster, progress: Progress, count: int) -> HandlersAccount:
    """Handle the first act's events with many workers, stopped and started half-way."""
    scores = Scores()
    progress.step(
        f"handling {count:,} events, {WORK_SECONDS * 1000:.0f} ms each, with {WORKERS} workers on "
        f"{PARTITIONS} partitions, stopped and started half-way"
    )
    started = time.monotonic()
    _handle(cluster, scores, count // 2)
    _handle(cluster, scores, count)
    seconds = time.monotonic() - started
    handled = len(scores.times)
    repeated = sum(scores.times.values()) - handled
    return HandlersAccount(
        events=count,
        handled=handled,
        repeated=repeated,
        missing=count - handled,
        out_of_order=scores.out_of_order,
        seconds=round(seconds, 1),
        seconds_by_partition=round(count * WORK_SECONDS / PARTITIONS, 1),
        balanced=handled == count and not repeated and not scores.out_of_order,
    )


def _handle(cluster: LocalCluster, scores: Scores, until: int) -> None:
    app = App(cluster.bootstrap)

    @app.consumer(TOPIC, group=GROUP, order="key", concurrency=WORKERS)
    async def score(event: bytes, record: Record) -> None:
        await asyncio.sleep(WORK_SECONDS)
        scores.note(orjson.loads(event), record)

    with app.running() as running:
        while running.alive and len(scores.times) < until:
            time.sleep(LOOK_EVERY)
