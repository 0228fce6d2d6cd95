"""Pyrallel-Consumer on one load; prints what it measured as one line of JSON.

Arguments: bootstrap topic group records work_ms concurrency order tuned

Run by the Python of Pyrallel's own environment, in which there is no headrace.
"""

import asyncio
import json
import sys
import time
from typing import Any

ORDERS = {"key": "KEY_HASH", "partition": "PARTITION", "none": "UNORDERED"}


class Tally:
    """Counts records and keeps the time from the first one's start to the last one's end."""

    def __init__(self, records: int, work_ms: float) -> None:
        self.done = asyncio.Event()
        self._records = records
        self._seconds_of_work = work_ms / 1000
        self._seen: set[tuple[int, int]] = set()
        self._duplicates = 0
        self._started = 0.0
        self._ended = 0.0

    async def handle(self, item: Any) -> None:
        if not self._started:
            self._started = time.perf_counter()
        if self._seconds_of_work:
            await asyncio.sleep(self._seconds_of_work)
        place = (item.tp.partition, item.offset)
        if place in self._seen:
            self._duplicates += 1
            return
        self._seen.add(place)
        if len(self._seen) == self._records:
            self._ended = time.perf_counter()
            self.done.set()

    def to_json(self) -> str:
        return json.dumps(
            {
                "seconds": self._ended - self._started,
                "handled": len(self._seen),
                "duplicates": self._duplicates,
            }
        )


def settings(bootstrap: str, group: str, concurrency: int, order: str, tuned: bool) -> Any:
    from pyrallel_consumer.config import KafkaConfig  # type: ignore[import-not-found]
    from pyrallel_consumer.dto import ExecutionMode, OrderingMode  # type: ignore[import-not-found]

    config = KafkaConfig()
    config.BOOTSTRAP_SERVERS = [bootstrap]
    config.CONSUMER_GROUP = group
    config.AUTO_OFFSET_RESET = "earliest"
    # Else it keeps a copy of each record, in case it should fail.
    config.dlq_enabled = False
    config.parallel_consumer.ordering_mode = OrderingMode[ORDERS[order]]
    config.parallel_consumer.execution.mode = ExecutionMode.ASYNC
    config.parallel_consumer.execution.max_in_flight = concurrency
    if tuned:
        # It fetches anew only when nearly nothing is left, and waits for it: the more, the better.
        config.parallel_consumer.poll_batch_size = 10_000
        config.parallel_consumer.queue_max_messages = 100_000
    return config


async def run(arguments: list[str]) -> None:
    from pyrallel_consumer.consumer import PyrallelConsumer  # type: ignore[import-not-found]

    bootstrap, topic, group, records, work_ms, concurrency, order, tuned = arguments
    tally = Tally(int(records), float(work_ms))
    consumer = PyrallelConsumer(
        config=settings(bootstrap, group, int(concurrency), order, tuned == "yes"),
        worker=tally.handle,
        topic=topic,
    )
    await consumer.start()
    finished = asyncio.ensure_future(tally.done.wait())
    # The consumer closes by itself only if it has failed.
    failed = asyncio.ensure_future(consumer.wait_closed())
    await asyncio.wait([finished, failed], return_when=asyncio.FIRST_COMPLETED)
    if failed.done():
        await failed
        raise SystemExit("the consumer stopped before the last record")
    await consumer.stop()
    sys.stdout.write(tally.to_json() + "\n")


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1:]))
