"""Every group reads the whole topic for itself; one that joins late at latest sees only the rest.

Reading takes nothing away. The first group reads and commits everything before the second even
begins, and the second gets all of it again. The third asks for the latest: it begins at the end
as it was when it joined.
"""

import contextlib
import threading
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError

from headrace.clients import Connection, Producer
from headrace.labs.stage import Stage
from headrace.model import Latest, TopicPartition

PARTITIONS = 3
FIRST_LOT = 600
SECOND_LOT = 300
EVERYTHING = list(range(FIRST_LOT + SECOND_LOT))


@dataclass
class Member:
    """The only member of its group, on a thread of its own; notes where it began and stands.

    The client itself, not a Reader: where a group begins is told by the end of a partition too,
    and that is all there is to see for a group that starts at latest.
    """

    connection: Connection
    topic: str
    group: str
    start: str
    began: dict[int, int] = field(default_factory=dict)
    position: dict[int, int] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=self.group)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        own = {
            "group.id": self.group,
            "auto.offset.reset": self.start,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        with contextlib.closing(Consumer(self.connection.client_settings() | own)) as consumer:
            consumer.subscribe([self.topic])
            while not self._stop.is_set():
                records = sum(self._note(message) for message in consumer.consume(500, timeout=0.1))
                if records:
                    consumer.commit(asynchronous=False)

    def _note(self, message: Any) -> bool:
        """Take one message in; whether it was a record."""
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            return False  # the client goes on by itself
        partition, offset = message.partition(), message.offset()
        self.began.setdefault(partition, offset)
        if error is None:
            self.numbers.append(int(message.value()))
        self.position[partition] = offset if error else offset + 1
        return error is None

    def row(self) -> dict[str, object]:
        offsets = ", ".join(str(offset) for _, offset in sorted(self.began.items()))
        return {
            "group": self.group,
            "started at": f"{self.start}: offsets {offsets}",
            "records read": len(self.numbers),
        }


def run(stage: Stage) -> None:
    topic = stage.topic("shared", PARTITIONS)
    with contextlib.ExitStack() as members:

        def join(name: str, start: str) -> Member:
            member = Member(stage.connection, topic, stage.group(name), start)
            members.callback(member.stop)
            return member

        send(stage, topic, EVERYTHING[:FIRST_LOT])
        middle = ends(stage, topic)
        first = join("billing", "earliest")
        stage.wait_until(
            lambda: committed(stage, first) == middle, "the first group has committed everything"
        )
        second = join("audit", "earliest")
        late = join("alerts", "latest")
        stage.wait_until(
            lambda: second.position == late.position == middle, "two more groups are at the end"
        )
        send(stage, topic, EVERYTHING[FIRST_LOT:])
        end = ends(stage, topic)
        stage.wait_until(
            lambda: first.position == second.position == late.position == end,
            "all three groups have read to the end",
        )
    judge(stage, first, second, late, middle)


def judge(
    stage: Stage, first: Member, second: Member, late: Member, middle: dict[int, int]
) -> None:
    stage.fact("sent before the late group joined", FIRST_LOT)
    stage.fact("sent after", SECOND_LOT)
    stage.fact("groups", [first.row(), second.row(), late.row()])
    stage.check("the first group read every record, once", sorted(first.numbers) == EVERYTHING)
    stage.check("the second group read every record, once", sorted(second.numbers) == EVERYTHING)
    stage.check(
        "the second began at 0 though the first had committed everything",
        set(second.began.values()) == {0},
    )
    stage.check("the late group began where the topic ended when it joined", late.began == middle)
    stage.check(
        "the late group read what was sent after it joined, and only that",
        sorted(late.numbers) == EVERYTHING[FIRST_LOT:],
    )


def send(stage: Stage, topic: str, numbers: list[int]) -> None:
    """Spread over the partitions by number, so that every one has its share."""
    stage.say(f"sending {len(numbers)} records")
    with Producer(stage.connection) as producer:
        for number in numbers:
            producer.send(topic, str(number), partition=number % PARTITIONS)


def ends(stage: Stage, topic: str) -> dict[int, int]:
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    return {p.partition: end for p, end in stage.admin.offsets(partitions, Latest()).items()}


def committed(stage: Stage, member: Member) -> dict[int, int]:
    return {p.partition: offset for p, offset in stage.admin.committed(member.group).items()}
