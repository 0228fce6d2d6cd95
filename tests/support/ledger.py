"""A writer that keeps books, and the judgement on what became of its records."""

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise

from headrace.clients import Delivery, Producer, Reader

RECORDS_PER_SECOND = 500


class Writer:
    """Numbers, one after the other, round the partitions of a topic, until it is stopped.

    The producer is Headrace's own: idempotent, acks=all. `acknowledged` is what it was promised.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._producer = Producer(bootstrap, {"delivery.timeout.ms": 120_000})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="writer")

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        number = 0
        while not self._stop.wait(1 / RECORDS_PER_SECOND):
            partition = number % self._partitions
            self._producer.send(
                self._topic, str(number), partition=partition, on_delivery=self._settled
            )
            number += 1
        self._producer.flush(120)

    def _settled(self, delivery: Delivery) -> None:
        if delivery.failed:
            self.failed.append(delivery.reason or "")
        else:
            self.acknowledged.append(int(delivery.record.value or b"-1"))


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a topic, compared with what was acknowledged: three times nothing."""

    lost: set[int]
    repeated: dict[int, int]
    out_of_order: list[tuple[int, int]]


def judge(bootstrap: str, topic: str, acknowledged: list[int]) -> Verdict:
    """Read the whole topic and compare."""
    places: Counter[int] = Counter()
    sequences: dict[int, list[int]] = defaultdict(list)
    with Reader(topic, connection=bootstrap) as reader:
        for batch in reader.batches():
            for record in batch:
                number = int(record.value or b"-1")
                places[number] += 1
                sequences[record.partition].append(number)
    return Verdict(
        lost=set(acknowledged) - set(places),
        repeated={number: count for number, count in places.items() if count > 1},
        out_of_order=[
            (before, after)
            for sequence in sequences.values()
            for before, after in pairwise(sequence)
            if after <= before
        ],
    )
