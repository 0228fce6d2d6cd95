"""A running subscriber finds a topic's new partition by itself; assigned partitions stay the same.

Two consumers read the three partitions of a topic, one as a subscriber, one with the partitions
given by number. The topic grows to four while they run. The subscriber's group is given the new
partition with the next look at the topic; the other goes on with its three, and finds the fourth
when it is started again with four. Nothing is lost meanwhile: it waits in the topic.
"""

import threading
from collections import Counter
from collections.abc import Sequence

from headrace.clients import Producer
from headrace.labs.stage import Stage
from headrace.model import Deadline, Record
from headrace.parallel import App
from headrace.parallel.engine.running import RunningApp

BEFORE, AFTER = 3, 4
NEW = AFTER - 1
PER_PARTITION = 100
REFRESH_MS = 2_000  # how often the client looks at the topic; 30 s if nothing is said
SETTINGS = {"topic.metadata.refresh.interval.ms": REFRESH_MS}


class Consumer:
    """An app with one consumer that counts what it handles, by partition."""

    def __init__(
        self, stage: Stage, topic: str, group: str, partitions: Sequence[int] | None = None
    ) -> None:
        self.group = group
        self.handled: Counter[int] = Counter()
        self._counting = threading.Lock()
        self.app = App(stage.connection)
        self.app.consumer(topic, group=group, partitions=partitions, settings=SETTINGS)(self.handle)

    def handle(self, _value: bytes, record: Record) -> None:
        with self._counting:
            self.handled[record.partition] += 1


def run(stage: Stage) -> None:
    topic = stage.topic("growing", BEFORE)
    subscriber = Consumer(stage, topic, stage.group("subscriber"))
    assigned = Consumer(stage, topic, stage.group("assigned"), range(BEFORE))
    send(stage, topic, BEFORE)
    with subscriber.app.running() as sharing, assigned.app.running() as fixed:
        wait_for(stage, [subscriber, assigned], dict.fromkeys(range(BEFORE), PER_PARTITION))
        before = [held(sharing), held(fixed)]
        seconds = grow(stage, topic, sharing)
        wait_for(stage, [subscriber], total(AFTER))
        wait_for(stage, [assigned], total(BEFORE))
        look_again(stage, assigned)
        after = [held(sharing), held(fixed)]
    table = [
        row("subscribed", subscriber, before[0], after[0]),
        row("partitions=[0, 1, 2]", assigned, before[1], after[1]),
    ]
    seen_by_assigned = assigned.handled[NEW]
    stage.fact(f"a topic grows from {BEFORE} partitions to {AFTER}", table)
    stage.fact("the subscriber had it after (s)", round(seconds, 1))
    stage.check("both had all three partitions before", before == [[0, 1, 2]] * 2)
    stage.check("the subscriber was given the new partition", after[0] == [0, 1, 2, 3])
    stage.check(
        "it handled every record of all four, each once", subscriber.handled == total(AFTER)
    )
    stage.check(
        "the assigned one still has three, and saw nothing of the fourth",
        after[1] == [0, 1, 2] and seen_by_assigned == 0,
    )
    judge_restart(stage, topic, assigned)


def judge_restart(stage: Stage, topic: str, assigned: Consumer) -> None:
    stage.say("starting the assigned one again, with four partitions")
    again = Consumer(stage, topic, assigned.group, range(AFTER))
    with again.app.running():
        wait_for(stage, [again], {NEW: PER_PARTITION})
    stage.fact("started again with four, it handled", dict(again.handled))
    stage.check(
        "started again with four, it handled what had waited there, and only that",
        again.handled == {NEW: PER_PARTITION},
    )


def grow(stage: Stage, topic: str, sharing: RunningApp) -> float:
    """Add the partition and send to all; how long it took until the subscriber had it."""
    stage.say(f"growing the topic to {AFTER} partitions while both run")
    stage.admin.add_partitions(topic, AFTER)
    send(stage, topic, AFTER)
    return stage.wait_until(lambda: NEW in held(sharing), "the subscriber has the new partition")


def look_again(stage: Stage, assigned: Consumer) -> None:
    """The assigned one has as long again as a look at the topic takes, to be fair to it."""
    stage.say("giving the assigned one two more looks at the topic")
    for _ in Deadline(2 * REFRESH_MS / 1000).polls(every=0.1):
        if assigned.handled[NEW]:
            return


def send(stage: Stage, topic: str, partitions: int) -> None:
    with Producer(stage.connection) as producer:
        for number in range(partitions * PER_PARTITION):
            producer.send(topic, str(number), partition=number % partitions)


def total(partitions: int) -> dict[int, int]:
    """What there is to handle in the first partitions after both lots."""
    lots = {partition: 2 if partition < BEFORE else 1 for partition in range(partitions)}
    return {partition: PER_PARTITION * count for partition, count in lots.items()}


def wait_for(stage: Stage, consumers: Sequence[Consumer], wanted: dict[int, int]) -> None:
    stage.wait_until(
        lambda: all(sum(c.handled.values()) >= sum(wanted.values()) for c in consumers),
        f"{sum(wanted.values())} records are handled",
    )


def held(running: RunningApp) -> list[int]:
    return [partition.partition for partition in running.status()[0].partitions]


def row(name: str, consumer: Consumer, before: list[int], after: list[int]) -> dict[str, object]:
    return {
        "consumer": name,
        "partitions before": ", ".join(map(str, before)),
        "after": ", ".join(map(str, after)),
        "handled in 0 to 2": sum(consumer.handled[p] for p in range(BEFORE)),
        "handled in 3": consumer.handled[NEW],
    }
