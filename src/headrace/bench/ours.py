"""Our consumer on a load, in a process of its own like its peers.

    python -m headrace.bench.ours BOOTSTRAP TOPIC GROUP RECORDS WORK_MS CONCURRENCY EXECUTOR

prints a line of JSON: seconds from the first record's start to the last one's end, and how much
memory the process took meanwhile.
"""

import asyncio
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

from headrace.parallel import App

SECONDS_AT_MOST = 600.0
HOT_KEY = b"hot"


class Stopwatch:
    """From the first start to the last end; `tick` may be called by many threads at once."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._count = itertools.count(1)
        self.started: float | None = None
        self.seconds = 0.0
        self.over = threading.Event()

    def start(self) -> None:
        if self.started is None:
            self.started = time.perf_counter()

    def tick(self) -> None:
        if next(self._count) == self._records:
            self.seconds = time.perf_counter() - (self.started or 0.0)
            self.over.set()


def plain_handler(watch: Stopwatch, work: float) -> Callable[[bytes], None]:
    def handle(_value: bytes) -> None:
        if watch.started is None:
            watch.start()
        if work:
            time.sleep(work)
        watch.tick()

    return handle


def async_handler(watch: Stopwatch, work: float) -> Callable[[bytes], Any]:
    async def handle(_value: bytes) -> None:
        if watch.started is None:
            watch.start()
        if work:
            await asyncio.sleep(work)
        watch.tick()

    return handle


def cold_handler(watch: Stopwatch, work: float) -> Callable[[bytes, Any], Any]:
    """Counts the records of all keys but the hot one."""

    async def handle(_value: bytes, record: Any) -> None:
        if watch.started is None:
            watch.start()
        await asyncio.sleep(work)
        if record.key != HOT_KEY:
            watch.tick()

    return handle


HANDLERS: dict[str, Callable[[Stopwatch, float], Callable[..., Any]]] = {
    "thread": plain_handler,
    "async": async_handler,
    "async-cold": cold_handler,
}


def main(
    bootstrap: str,
    topic: str,
    group: str,
    records: str,
    work_ms: str,
    concurrency: str,
    executor: str,
) -> None:
    watch = Stopwatch(int(records))
    app = App(bootstrap)
    handler = HANDLERS[executor](watch, float(work_ms) / 1000)
    app.consumer(topic, group=group, concurrency=int(concurrency), drain=1)(handler)
    process = psutil.Process()
    before = most = process.memory_info().rss
    with app.running():
        deadline = time.monotonic() + SECONDS_AT_MOST
        while not watch.over.wait(0.1) and time.monotonic() < deadline:
            most = max(most, process.memory_info().rss)
    result = {
        "seconds": watch.seconds,
        "handled": int(records) if watch.over.is_set() else 0,
        "duplicates": 0,
        "grown_mb": round((most - before) / 1e6, 1),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
