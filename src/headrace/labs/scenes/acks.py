"""With acks=all nothing acknowledged is lost when the leader dies; with acks=1 and 0 it can be.

Three producers write to one partition with three copies. Then the worst moment is made to last:
the followers stand still (SIGSTOP), so that the leader is alone with what it is given, and the
leader dies (SIGKILL) before they go on. With acks=1 the leader alone has said yes; with acks=0
the producer itself has, as soon as a record was on its way. Only with acks=all there is no
acknowledgement yet, and it comes from the next leader.
"""

import contextlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.clients import Connection, Delivery, Producer
from headrace.labs.stage import Stage, counts

BROKERS = 3
NEEDS_FAULTS = True
LEVELS = ("0", "1", "all")
ROUNDS = 100
AT_RISK = 20
SECONDS_TO_SEE_NOTHING = 0.5


@dataclass
class Writer:
    """Writes numbered records with one level of acks; the level is their key."""

    connection: Connection
    topic: str
    acks: str
    deliveries: list[Delivery] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings: dict[str, object] = {
            "acks": self.acks,
            # Idempotence needs acks=all; the producer would refuse to be built with less.
            "enable.idempotence": self.acks == "all",
            "linger.ms": 0,
            "compression.type": "none",
        }
        self.producer = Producer(self.connection, settings)

    def send(self) -> Delivery:
        delivery = self.producer.send(self.topic, str(len(self.deliveries)), key=self.acks)
        self.deliveries.append(delivery)
        return delivery

    @property
    def acknowledged(self) -> set[int]:
        return {n for n, delivery in enumerate(self.deliveries) if acknowledged(delivery)}


def acknowledged(delivery: Delivery) -> bool:
    return delivery.done and not delivery.failed


Writers = Mapping[str, Writer]


def run(stage: Stage) -> None:
    topic = stage.topic("survivors", 1, 3, {"min.insync.replicas": "2"})
    writers = {acks: Writer(stage.connection, topic, acks) for acks in LEVELS}
    stage.say(f"sending {ROUNDS} records with each level of acks, each one awaited")
    measure(stage, writers)
    stage.wait_until(lambda: len(partition(stage, topic)[1]) == 3, "all copies are in sync")
    leader, in_sync = partition(stage, topic)
    assert leader is not None
    followers = [broker for broker in in_sync if broker != leader]
    try:
        promised = strike(stage, leader, followers, writers)
        stage.wait_until(
            lambda: partition(stage, topic)[0] not in (None, leader), "another broker leads"
        )
        stage.say(f"broker {partition(stage, topic)[0]} leads now; sending goes on")
        for writer in writers.values():
            writer.producer.flush()
            writer.send().result()
    finally:
        stage.say(f"starting broker {leader} again")
        stage.cluster.start(leader)
    stage.wait_until(lambda: len(partition(stage, topic)[1]) == 3, "all copies are in sync again")
    judge(stage, topic, writers, promised)


def partition(stage: Stage, topic: str) -> tuple[int | None, tuple[int, ...]]:
    """The leader, and the brokers whose copies are in sync."""
    found = stage.admin.topic(topic).partitions[0]
    return found.leader, found.isr


# --- how long an acknowledgement takes ---


def measure(stage: Stage, writers: Writers) -> None:
    """In turns, so that a busy moment of the machine strikes all levels alike."""
    for writer in writers.values():
        writer.send().result()  # connections are made, and the idempotent one has its id
    taken: dict[str, list[float]] = {acks: [] for acks in writers}
    for _ in range(ROUNDS):
        for acks, writer in writers.items():
            delivery = writer.send()
            delivery.result()
            taken[acks].append((delivery.latency or 0.0) * 1000)
    median = {acks: statistics.median(latencies) for acks, latencies in taken.items()}
    table = [
        {
            "acks": acks,
            "who says yes": who,
            "median (ms)": round(median[acks], 2),
            "p99 (ms)": round(statistics.quantiles(taken[acks], n=100)[98], 2),
        }
        for acks, who in zip(LEVELS, ("the producer", "the leader", "all in sync"), strict=True)
    ]
    stage.fact("from send to acknowledgement", table)
    stage.check(
        "acks=0 is answered no later than acks=all, by the median", median["0"] <= median["all"]
    )


# --- the fault ---


@contextlib.contextmanager
def standing_still(stage: Stage, brokers: Sequence[int]) -> Iterator[None]:
    try:
        for broker in brokers:
            stage.cluster.pause(broker)
        yield
    finally:
        for broker in brokers:
            stage.cluster.resume(broker)


def strike(
    stage: Stage, leader: int, followers: Sequence[int], writers: Writers
) -> dict[str, set[int]]:
    """Let the leader die alone with the records it was given; which of them were acknowledged.

    1. The followers stand still. They stay in sync by name: that is taken from a broker only
       after its session has expired, and by then the leader is dead.
    2. acks=all sends, and waits in vain.
    3. acks=1 sends; each record is awaited. A follower may have had a question open at the
       leader: when it goes on, it finds the first of all these records in the answer. What came
       after that is on the leader alone.
    4. acks=0 sends to a leader that stands still as well, and reads nothing more.
    5. The leader dies, and the followers go on. One of them becomes the leader.
    """
    stage.say(f"pausing brokers {' and '.join(map(str, followers))}, the followers")
    with standing_still(stage, followers):  # 1
        at_risk = {"all": [writers["all"].send() for _ in range(AT_RISK)]}  # 2
        at_risk["1"] = [send_and_wait(writers["1"]) for _ in range(AT_RISK)]  # 3
        pending = writers["all"].producer.flush(SECONDS_TO_SEE_NOTHING)
        stage.cluster.pause(leader)
        at_risk["0"] = [send_and_wait(writers["0"]) for _ in range(AT_RISK)]  # 4
        promised = {
            acks: {int(d.record.value or b"-1") for d in deliveries if acknowledged(d)}
            for acks, deliveries in at_risk.items()
        }
        stage.say(f"killing broker {leader}, the leader")
        stage.cluster.kill(leader)  # 5
    stage.check(
        "acks=all: nothing is acknowledged while the followers stand still",
        pending >= AT_RISK and not promised["all"],
    )
    stage.check(
        "acks=0: the offset is unknown, nobody has answered",
        all(delivery.result().offset is None for delivery in at_risk["0"]),
    )
    return promised


def send_and_wait(writer: Writer) -> Delivery:
    delivery = writer.send()
    delivery.result()
    return delivery


# --- what survived ---


def judge(stage: Stage, topic: str, writers: Writers, promised: Mapping[str, set[int]]) -> None:
    stored: dict[str, list[int]] = {acks: [] for acks in LEVELS}
    for record in stage.records(topic):
        stored[(record.key or b"").decode()].append(int(record.value or b"-1"))
    lost = {acks: writers[acks].acknowledged - set(stored[acks]) for acks in LEVELS}
    table = [
        {
            "acks": acks,
            "sent": len(writers[acks].deliveries),
            "acknowledged": len(writers[acks].acknowledged),
            "of these during the fault": len(promised[acks]),
            "acknowledged and lost": len(lost[acks]),
            "stored twice": counts(stored[acks])[1],
        }
        for acks in LEVELS
    ]
    stage.fact("the leader died", table)
    sent = list(range(len(writers["all"].deliveries)))
    stage.check("acks=all: no acknowledged record is lost", not lost["all"])
    stage.check(
        "acks=all: every record was acknowledged in the end, and is stored once, in order",
        len(writers["all"].acknowledged) == len(sent) and stored["all"] == sent,
    )
    for acks in ("1", "0"):
        stage.check(
            f"acks={acks}: records acknowledged during the fault are gone",
            bool(lost[acks] & promised[acks]),
        )
    stage.check(
        "acks=1: what was acknowledged before the fault survived",
        all(number > ROUNDS for number in lost["1"]),
    )
