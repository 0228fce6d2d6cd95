"""Four numbers say where a group stands, and its hash says which partition keeps its commits.

A consumer in the middle of its work: the log ends at one offset, the consumer has read up to
another, and has committed a third; what lies between is read again if it dies now. Commits are
records themselves, in one of the 50 partitions of `__consumer_offsets`: the one that Java's hash
of the group's name gives. The lab computes it, then looks where the commits went.
"""

import contextlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from headrace.clients import Connection, Producer, Reader
from headrace.errors import OperationFailed
from headrace.labs.stage import Stage
from headrace.model import AtOffset, Deadline, Latest, Record, TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
IN_EACH_PARTITION = 100
COMMITTED = {0: 40, 1: 30, 2: 20}
READ = {0: 60, 1: 70, 2: 80}
# Short and long, and one that counts as two characters in Java: the hash is over UTF-16.
OTHER_GROUPS = ("a", "order-events-billing-of-the-northern-region", "e-bikes-🚲", "größe")
Offsets = dict[int, int]


@dataclass(frozen=True)
class Commit:
    """A commit as it stands in the offsets topic."""

    kept_in: int
    group: str
    partition: TopicPartition
    offset: int


def java_hash(text: str) -> int:
    """String.hashCode: 31 times what was so far, plus the next UTF-16 unit, in 32 bits.

    >>> java_hash("hello"), java_hash("polygenelubricants")
    (99162322, -2147483648)
    """
    units = text.encode("utf-16-be")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def offsets_partition(group: str, partitions: int) -> int:
    """Which partition of the offsets topic keeps this group.

    >>> offsets_partition("polygenelubricants", 50)
    0
    """
    value = java_hash(group)
    # Java cannot negate its smallest number; Kafka takes 0 for it.
    return 0 if value == -(1 << 31) else abs(value) % partitions


def read_commit(record: Record) -> Commit | None:
    """The commit in a record of the offsets topic; None if it tells something else.

    The key is a version (0 or 1), the group, the topic and the partition; the value begins with
    a version and the offset. A key of another version describes a group's members.
    """
    key = record.key or b""
    version, length = struct.unpack_from(">hh", key)
    if version > 1 or record.value is None:
        return None
    group, at = key[4 : 4 + length].decode(), 4 + length
    (length,) = struct.unpack_from(">h", key, at)
    topic = key[at + 2 : at + 2 + length].decode()
    (partition,) = struct.unpack_from(">i", key, at + 2 + length)
    (offset,) = struct.unpack_from(">q", record.value, 2)
    return Commit(record.partition, group, TopicPartition(topic, partition), offset)


def run(stage: Stage) -> None:
    topic = stage.topic("work", len(READ))
    group = stage.group("accounting")
    with Producer(stage.connection) as producer:
        for partition in READ:
            for number in range(IN_EACH_PARTITION):
                producer.send(topic, str(number), partition=partition)

    with contextlib.closing(make_consumer(stage.connection, group)) as consumer:
        consumer.subscribe([topic])
        stage.say("reading a part of each partition, and committing it")
        read_up_to(consumer, topic, COMMITTED)
        before = ends(stage, OFFSETS_TOPIC)
        consumer.commit(offsets=client_offsets(topic, COMMITTED), asynchronous=False)
        stage.say("reading on, without a commit")
        read_up_to(consumer, topic, READ)
        judge_numbers(stage, topic, group, consumer)
    judge_restart(stage, topic, group)
    judge_offsets_topic(stage, topic, group, before)


# --- the four numbers ---


def make_consumer(connection: Connection, group: str) -> Any:
    """The client itself, not a Reader: its position is asked for, and partitions are paused."""
    own = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    return Consumer(connection.client_settings() | own)


def client_offsets(topic: str, offsets: Mapping[int, int]) -> list[Any]:
    return [ClientPartition(topic, partition, offset) for partition, offset in offsets.items()]


def read_up_to(consumer: Any, topic: str, goals: Mapping[int, int]) -> None:
    """Read each partition up to its goal and no further: there it is paused."""
    deadline = Deadline(60)
    unfinished = set(goals)
    held = {p.partition for p in consumer.assignment()}
    consumer.resume([ClientPartition(topic, partition) for partition in held])
    while unfinished and not deadline.expired:
        message = consumer.poll(0.1)
        if message is None or message.error():
            continue
        if message.offset() + 1 == goals[message.partition()]:
            consumer.pause([ClientPartition(topic, message.partition())])
            unfinished.discard(message.partition())
    if unfinished:
        raise OperationFailed(
            f"partitions {sorted(unfinished)} were not read within {deadline.seconds:.0f} s",
            hint="see `headrace logs`",
        )


def ends(stage: Stage, topic: str) -> Offsets:
    every = [TopicPartition(topic, p.id) for p in stage.admin.topic(topic).partitions]
    return by_partition(stage.admin.offsets(every, Latest()))


def by_partition(offsets: Mapping[TopicPartition, int]) -> Offsets:
    return {p.partition: offset for p, offset in offsets.items()}


def judge_numbers(stage: Stage, topic: str, group: str, consumer: Any) -> None:
    """Ask three different parties, and compare with what was done.

    The log's end is known to the partition's leader, the committed offset to the group's
    coordinator, the position to the consumer alone. The gap is a difference.
    """
    end = ends(stage, topic)
    committed = by_partition(stage.admin.committed(group))
    asked = consumer.position([ClientPartition(topic, p) for p in end])
    position = {p.partition: p.offset for p in asked}
    table = [
        {
            "partition": p,
            "log end": end[p],
            "position": position.get(p),
            "committed": committed.get(p),
            "uncommitted gap": position[p] - committed.get(p, 0),
            "lag": end[p] - committed.get(p, 0),
        }
        for p in end
    ]
    stage.fact("a group at work", table)
    stage.check("the log ends where writing ended", set(end.values()) == {IN_EACH_PARTITION})
    stage.check("the position is what was read", position == READ)
    stage.check("committed is what was committed, not what was read", committed == COMMITTED)


def judge_restart(stage: Stage, topic: str, group: str) -> None:
    """The consumer is gone without another commit: what does the next one get?"""
    stage.say("a new consumer of the same group takes over")
    with Reader(topic, connection=stage.connection, group=group) as reader:
        records = [record for batch in reader.batches() for record in batch]
    begins = {p: min((r.offset for r in records if r.partition == p), default=-1) for p in READ}
    again = sum(record.offset < READ[record.partition] for record in records)
    gap = sum(READ.values()) - sum(COMMITTED.values())
    stage.fact("uncommitted gap, all partitions", gap)
    stage.fact("read again by the next consumer", again)
    stage.check("the next consumer begins at the committed offsets", begins == COMMITTED)
    stage.check("it reads the uncommitted gap again, no more and no less", again == gap)


# --- where commits are kept ---


def judge_offsets_topic(stage: Stage, topic: str, group: str, before: Offsets) -> None:
    groups = [group]
    for name in OTHER_GROUPS:
        groups.append(stage.group(name))
        stage.admin.set_committed(groups[-1], {TopicPartition(topic, 0): len(name)})
    after = ends(stage, OFFSETS_TOPIC)
    grown = {p: end - before.get(p, 0) for p, end in after.items() if end > before.get(p, 0)}
    stage.say(f"{len(grown)} of {len(after)} partitions of {OFFSETS_TOPIC} grew: reading them")
    commits = list(read_commits(stage, {p: before.get(p, 0) for p in grown}))
    kept_in = {name: {c.kept_in for c in commits if c.group == name} for name in groups}
    predicted = {name: offsets_partition(name, len(after)) for name in groups}
    table = [
        {
            "group": name,
            "hashCode": java_hash(name),
            "partition by hash": predicted[name],
            "commits found in": ", ".join(map(str, sorted(kept_in[name]))),
            "it grew by": grown.get(predicted[name], 0),
        }
        for name in groups
    ]
    stage.fact("partitions of the offsets topic", len(after))
    stage.fact("groups", table)
    latest = {c.partition.partition: c.offset for c in commits if c.group == group}
    stage.check("the offsets topic has 50 partitions", len(after) == 50)
    stage.check(
        "each group's commits are in the partition of its hash, and in no other",
        all(kept_in[name] == {predicted[name]} for name in groups),
    )
    stage.check("the last commit that stands there is the group's offset", latest == COMMITTED)


def read_commits(stage: Stage, begins: Mapping[int, int]) -> Iterable[Commit]:
    """What was committed since these partitions of the offsets topic ended at these offsets."""
    for partition, begin in begins.items():
        with Reader(
            OFFSETS_TOPIC,
            connection=stage.connection,
            partition=partition,
            start=AtOffset(begin),
        ) as reader:
            for batch in reader.batches():
                yield from filter(None, map(read_commit, batch))
