"""A consumer in the rack of a follower reads from that follower, not from the leader.

Every broker stands in a rack of its own. The same partition is read four times: without a rack,
and from the rack of each of its three copies. Who served the records is told by the clients'
statistics: the bytes that came from each broker, beside the bytes of the records. Then a follower
that serves a consumer is killed; the consumer goes on at another broker and misses nothing.
"""

import os
import threading
from collections.abc import Mapping
from typing import Any

import orjson

from headrace.clients import Producer
from headrace.labs.stage import Stage
from headrace.model import Record
from headrace.parallel import App

BROKERS = 3
NEEDS_FAULTS = True
RECORDS = 2_000
RECORD_BYTES = 1_000
MORE = 100
MOST_OF_IT = 0.9


class RackReader:
    """A consumer that says in which rack it stands, and hears from whom its records came."""

    def __init__(self, stage: Stage, topic: str, rack: str | None) -> None:
        self.rack = rack
        self.offsets: list[int] = []
        self.received: dict[int, int] = {}  # bytes by broker
        self.source: int | None = None  # the broker that it fetches from now
        self._topic = topic
        self._noting = threading.Lock()
        self.app = App(stage.connection)
        group = stage.group(rack or "no-rack")
        declare = self.app.consumer(
            topic, group=group, order="partition", settings=self._settings()
        )
        declare(self._handle)

    def _settings(self) -> dict[str, Any]:
        own = {"client.rack": self.rack} if self.rack is not None else {}
        return {**own, "statistics.interval.ms": 200, "stats_cb": self._told}

    def _handle(self, _value: bytes, record: Record) -> None:
        with self._noting:
            self.offsets.append(record.offset)

    def _told(self, text: str) -> None:
        told = orjson.loads(text)
        known = [broker for broker in told["brokers"].values() if broker["nodeid"] > 0]
        self.received = {broker["nodeid"]: broker["rxbytes"] for broker in known}
        topic: Mapping[str, Any] = told["topics"].get(self._topic, {})
        if partition := topic.get("partitions", {}).get("0"):
            self.source = partition["broker"]

    def read(self, stage: Stage, count: int) -> None:
        """Wait until so many records are handled, and the statistics tell of all their bytes."""
        stage.wait_until(lambda: len(self.offsets) >= count, f"{count} records are handled")
        stage.wait_until(
            lambda: sum(self.received.values()) >= count * RECORD_BYTES, "the statistics are told"
        )

    def share_from(self, broker: int) -> float:
        return self.received.get(broker, 0) / max(1, sum(self.received.values()))


def run(stage: Stage) -> None:
    topic = stage.topic("racks", 1, 3)
    send(stage, topic, RECORDS)
    partition = stage.admin.topic(topic).partitions[0]
    leader = partition.leader or 1
    followers = [broker for broker in partition.replicas if broker != leader]
    stage.wait_until(
        lambda: len(stage.admin.topic(topic).partitions[0].isr) == BROKERS, "all are in sync"
    )
    racks: list[tuple[str | None, int]] = [(None, leader), (rack_of(leader), leader)]
    racks += [(rack_of(broker), broker) for broker in followers]
    readers = [(read_from(stage, topic, rack), expected) for rack, expected in racks]
    stage.fact("the leader", f"broker {leader}, in {rack_of(leader)}")
    stage.fact("where the records came from", [row(reader) for reader, _ in readers])
    stage.check(
        "every reader had every record, once, in order",
        all(reader.offsets == list(range(RECORDS)) for reader, _ in readers),
    )
    for reader, expected in readers:
        stage.check(
            f"{reader.rack or 'without a rack'}: {MOST_OF_IT:.0%} and more came from "
            f"broker {expected}, {'the leader' if expected == leader else 'a follower'}",
            reader.share_from(expected) >= MOST_OF_IT and reader.source == expected,
        )
    judge_death(stage, topic, followers[0])


def read_from(stage: Stage, topic: str, rack: str | None) -> RackReader:
    stage.say(f"reading {'without a rack' if rack is None else f'from {rack}'}")
    reader = RackReader(stage, topic, rack)
    with reader.app.running():
        reader.read(stage, RECORDS)
    return reader


def judge_death(stage: Stage, topic: str, follower: int) -> None:
    """The follower that serves a consumer dies while it reads."""
    reader = RackReader(stage, topic, rack_of(follower))
    with reader.app.running():
        reader.read(stage, RECORDS)
        before = reader.source
        stage.say(f"killing broker {follower}, which serves the consumer")
        stage.cluster.kill(follower)
        try:
            send(stage, topic, MORE)
            stage.wait_until(lambda: len(reader.offsets) >= RECORDS + MORE, "reading goes on")
            stage.wait_until(lambda: reader.source not in (None, -1, before), "it is told by whom")
            after = reader.source
        finally:
            stage.say(f"starting broker {follower} again")
            stage.cluster.start(follower)
    stage.fact("served by, before and after the follower's death", [before, after])
    stage.check("it was served by the follower that died", before == follower)
    stage.check("it went on at another broker", after not in (None, follower))
    stage.check(
        "it missed nothing and saw nothing twice", reader.offsets == list(range(RECORDS + MORE))
    )


def rack_of(broker: int) -> str:
    """As the local cluster places its brokers."""
    return f"rack-{broker}"


def send(stage: Stage, topic: str, count: int) -> None:
    """Bytes that cannot be compressed, so that they weigh the same wherever they are counted."""
    with Producer(stage.connection) as producer:
        for _ in range(count):
            producer.send(topic, os.urandom(RECORD_BYTES))


def row(reader: RackReader) -> dict[str, object]:
    return {
        "consumer in": reader.rack or "no rack",
        "fetched from": f"broker {reader.source}",
        "records": len(reader.offsets),
        **{f"kB from {broker}": size // 1000 for broker, size in sorted(reader.received.items())},
    }
