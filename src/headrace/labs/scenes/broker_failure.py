"""When the leader of a replicated partition is killed, another takes over and nothing is lost.

A producer and a consumer work without pause on `replicated_topic` (one partition, three copies).
The leader gets SIGKILL; a new leader is chosen, the in-sync copies shrink from 3 to 2; the broker
comes back, and they are 3 again. A partition with one copy only is gone until its broker returns.
"""

import threading
from dataclasses import dataclass, field

from headrace.clients import Connection, Delivery, Producer, Reader
from headrace.errors import HeadraceError
from headrace.labs.consuming import Load
from headrace.labs.stage import Stage, counts

BROKERS = 3
NEEDS_FAULTS = True
RECORDS_PER_SECOND = 200


@dataclass
class Writer:
    """Writes numbered records; remembers what was promised."""

    connection: Connection
    topic: str
    acknowledged: list[int] = field(default_factory=list)
    failed: int = 0

    def __post_init__(self) -> None:
        self.producer = Producer(self.connection, {"delivery.timeout.ms": 60_000})

    def send(self, number: int) -> None:
        self.producer.send(self.topic, str(number), on_delivery=self._settled)

    def _settled(self, delivery: Delivery) -> None:
        if delivery.failed:
            self.failed += 1
        else:
            self.acknowledged.append(int(delivery.record.value or b"-1"))


@dataclass
class Follower:
    """Reads on and on, from the beginning, until told to stop."""

    connection: Connection
    topic: str
    numbers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="follower")
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        with Reader(self.topic, connection=self.connection, follow=True) as reader:
            for batch in reader.batches(empty=True):
                self.numbers.extend(int(r.value or b"-1") for r in batch)
                if self._stop.is_set():
                    return


def run(stage: Stage) -> None:
    topic = stage.topic("replicated_topic", 1, 3, {"min.insync.replicas": "2"})
    writer = Writer(stage.connection, topic)
    follower = Follower(stage.connection, topic)
    try:
        with Load(writer.send, RECORDS_PER_SECOND) as load:
            stage.wait_until(lambda: len(follower.numbers) > 100, "writer and reader have begun")
            old_leader, timeline = _kill_and_return(stage, topic, writer, follower)
        writer.producer.flush()
        numbers = [int(r.value or b"-1") for r in stage.records(topic)]
        stage.wait_until(lambda: len(follower.numbers) >= len(numbers), "the reader is done")
    finally:
        follower.stop()
    distinct, repeats = counts(numbers)
    lost = set(writer.acknowledged) - distinct

    stage.fact("timeline", timeline)
    stage.fact("sent", load.sent)
    stage.fact("acknowledged", len(writer.acknowledged))
    stage.fact("read", len(numbers))
    stage.fact("lost", len(lost))
    stage.fact("repeated", repeats)
    isr_sizes = [row["in sync"] for row in timeline]
    leaders = [row["leader"] for row in timeline]
    stage.check("in-sync copies went 3, 2, 3", isr_sizes == [3, 2, 3])
    stage.check("another broker became leader", leaders[1] not in (None, old_leader))
    stage.check("writing went on without the killed broker", writer.failed == 0)
    stage.check("no acknowledged record is lost", not lost)
    stage.check("no record stands twice, order is kept", numbers == sorted(distinct))
    stage.check("the reader that never paused saw the same", follower.numbers == numbers)
    _one_copy_only(stage)


def _kill_and_return(
    stage: Stage, topic: str, writer: Writer, follower: Follower
) -> tuple[int, list[dict[str, object]]]:
    """Kill the leader, let work go on, bring it back; what the partition looked like each time."""
    timeline = [_look(stage, topic, "before")]
    old_leader = int(str(timeline[0]["leader"]))
    stage.say(f"killing broker {old_leader}, the leader")
    stage.cluster.kill(old_leader)
    stage.wait_until(
        lambda: _partition(stage, topic)[0] not in (None, old_leader), "a new leader is chosen"
    )
    stage.wait_until(lambda: _partition(stage, topic)[1] == 2, "in-sync copies shrink to 2")
    timeline.append(_look(stage, topic, f"broker {old_leader} is dead"))
    written, seen = len(writer.acknowledged), len(follower.numbers)
    stage.wait_until(lambda: len(writer.acknowledged) > written + 100, "writing goes on")
    stage.wait_until(lambda: len(follower.numbers) > seen + 100, "reading goes on")
    stage.say(f"starting broker {old_leader} again")
    stage.cluster.start(old_leader)
    stage.wait_until(lambda: _partition(stage, topic)[1] == 3, "in-sync copies are 3 again")
    timeline.append(_look(stage, topic, f"broker {old_leader} is back"))
    return old_leader, timeline


def _one_copy_only(stage: Stage) -> None:
    """The other side of the promise: without a second copy there is nobody to take over."""
    topic = stage.topic("single_copy", 1, 1)
    with Producer(stage.connection) as producer:
        producer.send(topic, "kept").result()
    leader = _partition(stage, topic)[0]
    assert leader is not None
    stage.say(f"killing broker {leader}, which holds the only copy of {topic}")
    stage.cluster.kill(leader)
    stage.wait_until(lambda: _partition(stage, topic)[0] is None, "the partition has no leader")
    refused = False
    try:
        Producer(stage.connection, {"message.timeout.ms": 2000}).send(topic, "x").result(10)
    except HeadraceError:
        refused = True
    stage.cluster.start(leader)
    stage.wait_until(lambda: _partition(stage, topic)[0] == leader, "its leader is back")
    kept = [r.value for r in stage.records(topic)]
    stage.check("with one copy, writing fails while its broker is dead", refused)
    stage.check("with one copy, the record is back with the broker", b"kept" in kept)


def _partition(stage: Stage, topic: str) -> tuple[int | None, int]:
    """Leader and number of in-sync copies."""
    partition = stage.admin.topic(topic).partitions[0]
    return partition.leader, len(partition.isr)


def _look(stage: Stage, topic: str, when: str) -> dict[str, object]:
    leader, in_sync = _partition(stage, topic)
    return {"when": when, "leader": leader, "in sync": in_sync}
