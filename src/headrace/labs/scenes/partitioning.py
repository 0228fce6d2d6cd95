"""Records go to the partition you name, by turns, by key hash, sticky, or by a rule of your own.

The same records are sent in each way, and what is stored tells where they went. By default the
key's murmur2 hash decides, as it does in Kafka's Java client: Kafka's own console producer sends
the same keys to another topic, and every key must be found in the same partition there. As a
counter-check, another hash (librdkafka's default, CRC32) does disagree.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from headrace.clients import Producer, RoundRobin, Sticky, ToPartition
from headrace.clients.partitioners import murmur2_partition
from headrace.errors import BadInput
from headrace.labs.stage import Stage
from headrace.model import Record

NEEDS_FAULTS = True  # not for a fault: Kafka's own producer runs on a local cluster's jars
PARTITIONS = 5
KEYS = 501  # not a multiple of PARTITIONS: by turns, a key comes to another one next time
TIMES_EACH_KEY = 2
NAMED = 3
STICKY_RECORDS = 25
VIP_PARTITION = 0
LETTERS = "abcXYZ019-_ äßñ漢字かな🚲𐍈"
KAFKAS_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"


@dataclass(frozen=True)
class Way:
    """One way to choose a partition, and the records as they were found."""

    name: str
    stored: Sequence[Record]

    @property
    def numbers(self) -> list[int]:
        return sorted(map(number, self.stored))

    @property
    def per_partition(self) -> Counter[int]:
        return Counter(record.partition for record in self.stored)

    @property
    def in_order_of_sending(self) -> list[int]:
        return [record.partition for record in sorted(self.stored, key=number)]

    @property
    def by_key(self) -> dict[bytes | None, set[int]]:
        found = defaultdict(set)
        for record in self.stored:
            found[record.key].add(record.partition)
        return found

    def row(self) -> dict[str, object]:
        return {
            "way": self.name,
            "records": len(self.stored),
            "changes of partition": sum(a != b for a, b in pairwise(self.in_order_of_sending)),
            "keys": len(self.by_key),
            "keys in several partitions": sum(len(p) > 1 for p in self.by_key.values()),
        }


def number(record: Record) -> int:
    return int(record.value or b"-1")


def make_keys() -> list[str]:
    """Distinct keys of many kinds: the empty one, other scripts, beyond 16 bits; some are VIPs."""
    dice = random.Random(11)
    keys = {""}
    while len(keys) < KEYS:
        length = dice.randint(1, 40)
        name = "".join(dice.choices(LETTERS, k=length))
        keys.add(f"vip-{name}" if dice.random() < 0.2 else name)
    shuffled = sorted(keys)
    dice.shuffle(shuffled)
    return shuffled


def vips_first(record: ToPartition) -> int:
    """A rule of one's own: VIPs have a partition to themselves, the others share the rest."""
    if (record.key or b"").startswith(b"vip-"):
        return VIP_PARTITION
    return 1 + murmur2_partition(record.key, record.partitions - 1)


def run(stage: Stage) -> None:
    keys = make_keys()
    records = keys * TIMES_EACH_KEY
    stage.say(f"sending {len(records):,} records in each way")
    refused = refuse_unknown(stage)
    named = send(stage, "named", records, partition=NAMED)
    turns = send(stage, "round robin", records, partitioner=RoundRobin())
    hashed = send(stage, "key hash", records)
    crc32 = send(stage, "CRC32 hash", records, settings={"partitioner": "consistent_random"})
    sticky = send(stage, "sticky", records, partitioner=Sticky(STICKY_RECORDS))
    own = send(stage, "own rule", records, partitioner=vips_first)
    stage.say(f"sending {len(keys)} keys with Kafka's Java client")
    java = send_with_kafkas_producer(stage, keys)

    ways = [named, turns, hashed, crc32, sticky, own]
    stage.fact("an unknown partition", refused or "was taken")
    stage.fact("records per partition", [counts_row([*ways, java], p) for p in range(PARTITIONS)])
    stage.fact("from record to record", [way.row() for way in ways])
    stage.check(
        "every record is stored once, in each way",
        all(way.numbers == list(range(len(records))) for way in ways),
    )
    stage.check(f"named: all are in partition {NAMED}", set(named.per_partition) == {NAMED})
    judge_hash(stage, keys, hashed, java, crc32)
    judge_partitioners(stage, turns, sticky, own)


def counts_row(ways: Sequence[Way], partition: int) -> dict[str, int]:
    return {"partition": partition} | {way.name: way.per_partition[partition] for way in ways}


# --- sending, and finding where it went ---


def send(
    stage: Stage,
    name: str,
    keys: Sequence[str],
    *,
    partition: int | None = None,
    partitioner: Callable[[ToPartition], int] | None = None,
    settings: dict[str, Any] | None = None,
) -> Way:
    topic = stage.topic(name.replace(" ", "_"), PARTITIONS, 1)
    with Producer(stage.connection, settings, partitioner=partitioner) as producer:
        for at, key in enumerate(keys):
            producer.send(topic, str(at), key=key, partition=partition)
    return Way(name, stage.records(topic))


def send_with_kafkas_producer(stage: Stage, keys: Sequence[str]) -> Way:
    topic = stage.topic("java", PARTITIONS, 1)
    stage.cluster.run_tool(
        KAFKAS_PRODUCER,
        *("--bootstrap-server", stage.connection.bootstrap, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=\t"),
        stdin="".join(f"{key}\t{at}\n" for at, key in enumerate(keys)),
    )
    return Way("Java client", stage.records(topic))


def refuse_unknown(stage: Stage) -> str | None:
    """What the producer says to a partition that the topic does not have; None if it took it."""
    topic = stage.topic("unknown", PARTITIONS, 1)
    said = None
    with Producer(stage.connection) as producer:
        try:
            producer.send(topic, "nowhere", partition=PARTITIONS)
        except BadInput as error:
            said = f"{error.message} ({error.hint})"
    # Whatever was handed over has been acknowledged or has failed by now.
    nothing_sent = producer.acknowledged + producer.failed == 0 and not stage.records(topic)
    stage.check("named: an unknown partition is an error", said is not None)
    stage.check("it is raised before anything is sent", nothing_sent)
    return said


# --- judging ---


def judge_hash(stage: Stage, keys: Sequence[str], ours: Way, java: Way, crc32: Way) -> None:
    same = {key for key, partitions in java.by_key.items() if ours.by_key[key] == partitions}
    other = {key for key, partitions in java.by_key.items() if crc32.by_key[key] == partitions}
    stage.fact("keys where the Java client puts them", f"{len(same)} of {KEYS}")
    stage.fact("the same with CRC32", f"{len(other)} of {KEYS}")
    stage.check(
        "key hash: a key is always in the same partition",
        all(len(partitions) == 1 for partitions in ours.by_key.values()),
    )
    stage.check(
        f"key hash: all {KEYS} keys are where Kafka's Java client puts them",
        same == {key.encode() for key in keys},
    )
    stage.check("CRC32 puts keys elsewhere, so that could have failed", len(other) < KEYS)


def judge_partitioners(stage: Stage, turns: Way, sticky: Way, own: Way) -> None:
    order = turns.in_order_of_sending
    stage.check(
        "round robin: one partition after the other, whatever the key",
        order == [at % PARTITIONS for at in range(len(order))],
    )
    order = sticky.in_order_of_sending
    runs = [set(order[at : at + STICKY_RECORDS]) for at in range(0, len(order), STICKY_RECORDS)]
    stage.check(
        f"sticky: {STICKY_RECORDS} records stay together, then another partition has its turn",
        all(len(together) == 1 for together in runs) and len(sticky.per_partition) > 1,
    )
    vips = {key for key in own.by_key if (key or b"").startswith(b"vip-")}
    with_vips = {key for key, partitions in own.by_key.items() if VIP_PARTITION in partitions}
    stage.check(
        f"own rule: VIPs are in partition {VIP_PARTITION}, and nobody else is",
        with_vips == vips and all(own.by_key[key] == {VIP_PARTITION} for key in vips),
    )
