"""Order holds within a partition, not across; a retry can swap records, an idempotent one cannot.

The trouble is real. A broker is killed in the middle of an idempotent send. Then, with two copies
left, the topic is told to insist on three: every write is refused and tried again, until two are
enough once more. If that happens between two requests that are both on their way, the first one
has been refused and the second is taken: without idempotence they change places.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headrace.clients import Connection, Producer
from headrace.errors import DeliveryFailed
from headrace.labs.stage import Stage, counts
from headrace.model import Record

BROKERS = 3
NEEDS_FAULTS = True
MESSAGES = 100
PARTITIONS = 3
KEYS = 10
THROUGH_A_DEATH = 6_000
PER_ROUND = 30
LEAST_ROUNDS = 3
SECONDS_FOR_A_SWAP = 90.0
REFUSALS = 20
IN_FLIGHT = 5
PROBE = b"probe"


def run(stage: Stage) -> None:
    judge_partitions(stage)
    trouble = stage.topic("trouble", len(LANES), 3, {"min.insync.replicas": "2"})
    topic = stage.topic("killed", 1, 3, {"min.insync.replicas": "2"})
    leader = stage.admin.topic(topic).partitions[0].leader or 1
    try:
        judge_death(stage, topic, leader)
        stage.wait_until(lambda: in_sync(stage, trouble) == {2}, "two copies are left in sync")
        judge_retries(stage, trouble)
    finally:
        stage.say(f"starting broker {leader} again")
        stage.cluster.start(leader)


def in_sync(stage: Stage, topic: str) -> set[int]:
    return {len(partition.isr) for partition in stage.admin.topic(topic).partitions}


def numbers(records: Sequence[Record]) -> list[int]:
    return [int(record.value or b"-1") for record in records if record.key != PROBE]


def behind(found: Sequence[int]) -> int:
    """How often a number stands right behind a larger one.

    >>> behind([0, 1, 2, 3]), behind([0, 3, 1, 2, 5, 4])
    (0, 2)
    """
    return sum(later < earlier for earlier, later in pairwise(found))


# --- within a partition, and across ---


def judge_partitions(stage: Stage) -> None:
    topic = stage.topic("numbered", PARTITIONS)
    dice = random.Random(5)
    stage.say(f"sending {MESSAGES} numbered records with random keys")
    with Producer(stage.connection) as producer:
        for number in range(MESSAGES):
            producer.send(topic, str(number), key=f"key-{dice.randrange(KEYS)}")
    records = stage.records(topic)
    lanes = {p: numbers([r for r in records if r.partition == p]) for p in range(PARTITIONS)}
    found = numbers(records)
    table = [
        {
            "partition": partition,
            "records": len(lane),
            "keys": len({r.key for r in records if r.partition == partition}),
            "out of order": behind(lane),
            "first numbers": ", ".join(map(str, lane[:8])),
        }
        for partition, lane in lanes.items()
    ]
    stage.fact("within each partition", table)
    stage.fact("out of order, read across partitions", behind(found))
    stage.check("every number is stored once", sorted(found) == list(range(MESSAGES)))
    stage.check(
        "within each partition the numbers rise",
        all(lane and not behind(lane) for lane in lanes.values()),
    )
    stage.check("across partitions they do not", behind(found) > 0)


# --- a broker dies in the middle ---


def judge_death(stage: Stage, topic: str, leader: int) -> None:
    """Many small batches, so that there are always five on their way."""
    with Producer(stage.connection, {"batch.num.messages": 10, "linger.ms": 0}) as producer:
        for number in range(THROUGH_A_DEATH // 2):
            producer.send(topic, str(number))
        begun = THROUGH_A_DEATH // 20
        stage.wait_until(lambda: producer.acknowledged >= begun, "sending has begun", every=0.02)
        stage.say(f"killing broker {leader}, the leader, in the middle of an idempotent send")
        stage.cluster.kill(leader)
        pending = producer.flush(0.2)  # takes in what was answered before; no more will come yet
        acknowledged = producer.acknowledged
        for number in range(THROUGH_A_DEATH // 2, THROUGH_A_DEATH):
            producer.send(topic, str(number))
    found = numbers(stage.records(topic))
    distinct, repeats = counts(found)
    table = {
        "acknowledged before": acknowledged,
        "under way": pending,
        "sent": THROUGH_A_DEATH,
        "acknowledged": producer.acknowledged,
        "repeated": repeats,
        "missing": THROUGH_A_DEATH - len(distinct),
        "out of order": behind(found),
    }
    stage.fact("the leader killed in the middle of an idempotent send", [table])
    stage.check("the broker died in the middle of it", acknowledged > 0 and pending > 0)
    stage.check("all was acknowledged in the end", producer.acknowledged == THROUGH_A_DEATH)
    stage.check(
        "no record is missing or stands twice, and all are in order",
        found == list(range(THROUGH_A_DEATH)),
    )


# --- retries ---


@dataclass
class Lane:
    """One producer with a partition of its own, one record in each request."""

    name: str
    idempotent: bool
    partition: int
    sent: int = 0
    found: list[int] = field(default_factory=list)

    def open(self, connection: Connection, topic: str) -> None:
        settings = {
            "enable.idempotence": self.idempotent,
            "max.in.flight": IN_FLIGHT,
            "batch.num.messages": 1,
            "linger.ms": 0,
            "retry.backoff.ms": 1,
            "retry.backoff.max.ms": 1,
            "statistics.interval.ms": 100,
        }
        self._topic = topic
        self.producer = Producer(connection, settings)
        # The guard begins with the first record that is stored: from a producer it does not know,
        # a broker takes any number for the first, whatever it has refused before.
        self.send(1)
        self.producer.flush()

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            self.producer.send(self._topic, str(number), partition=self.partition)
        self.sent += count

    @property
    def requests(self) -> int:
        return self.producer.counters().batches

    def row(self) -> dict[str, object]:
        distinct, repeats = counts(self.found)
        return {
            "producer": self.name,
            "records": self.sent,
            "requests": self.requests,
            "at once": IN_FLIGHT,
            "acknowledged": self.producer.acknowledged,
            "missing": self.sent - len(distinct),
            "repeated": repeats,
            "out of order": behind(self.found),
        }


PROBER = {"enable.idempotence": False, "retries": 0, "request.timeout.ms": 1000}
LANES = (("idempotent", True, 0), ("not idempotent", False, 1))


def judge_retries(stage: Stage, topic: str) -> None:
    lanes = [Lane(*lane) for lane in LANES]
    for lane in lanes:
        lane.open(stage.connection, topic)
    idempotent, swapping = lanes
    prober = Producer(stage.connection, PROBER)
    rounds, deadline = 0, time.monotonic() + SECONDS_FOR_A_SWAP
    stage.say("refusing and taking writes in turns, until records change places")
    while rounds < LEAST_ROUNDS or (not behind(swapping.found) and time.monotonic() < deadline):
        refuse_for_a_while(stage, topic, lanes, prober)
        rounds += 1
    stage.fact("rounds of refusal", rounds)
    stage.fact("first swap", first_swap(swapping.found))
    stage.fact("retries", [lane.row() for lane in lanes])
    stage.check("without idempotence, records have changed places", behind(swapping.found) > 0)
    stage.check(
        "with it, in the same trouble: none missing, none twice, all in order",
        idempotent.found == list(range(idempotent.sent)),
    )
    stage.check("it had to try again as well", idempotent.requests > idempotent.sent)


def refuse_for_a_while(stage: Stage, topic: str, lanes: Sequence[Lane], prober: Producer) -> None:
    """One round: insist on a copy that is not there, send, and give in."""
    stage.admin.set_configs(topic, {"min.insync.replicas": "3"})
    # Leaders hear of it one after the other. What one takes a moment before would stand there
    # without an acknowledgement: another trouble than the one that is meant.
    stage.wait_until(
        lambda: all(refuses(prober, topic, lane.partition) for lane in lanes), "writes are refused"
    )
    goals = [lane.requests + REFUSALS for lane in lanes]
    for lane in lanes:
        lane.send(PER_ROUND)
    stage.wait_until(
        lambda: all(lane.requests > goal for lane, goal in zip(lanes, goals, strict=True)),
        "they are tried again and again",
        every=0.05,
    )
    stage.admin.set_configs(topic, {"min.insync.replicas": "2"})
    for lane in lanes:
        lane.producer.flush()
    stored = stage.records(topic)
    for lane in lanes:
        lane.found = numbers([r for r in stored if r.partition == lane.partition])


def refuses(prober: Producer, topic: str, partition: int) -> bool:
    """Whether the partition's leader refuses a write for want of copies."""
    try:
        prober.send(topic, None, key=PROBE, partition=partition).result()
    except DeliveryFailed as error:
        return bool(error.facts["code"] == "NOT_ENOUGH_REPLICAS")
    return False


def first_swap(found: Sequence[int]) -> str:
    at = next((at for at, (a, b) in enumerate(pairwise(found)) if b < a), None)
    return "none" if at is None else ", ".join(map(str, found[max(0, at - 2) : at + 6]))
