"""A handler sees a record whole: all nine columns of it are as they were written.

Records of every kind (with and without key, value and headers; with a time of 2019, and with the
broker's own) are sent to two topics, and the broker is started again in between, so that there are
two leaderships. What a consumer's handler is given is shown as a table, and held against what was
sent and what the acknowledgements said.
"""

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headrace.clients import Acknowledged, Outgoing, Producer
from headrace.labs.stage import Stage
from headrace.model import Header, Record, TimestampType
from headrace.parallel import App

NEEDS_FAULTS = True
PARTITIONS = 2
IN_2019 = 1_569_888_000_000
# Retention goes by timestamps: without this the records of 2019 would be deleted at once.
KEEP = {"retention.ms": "-1"}
GIVEN = {"message.timestamp.type": "CreateTime"}
BROKERS_OWN = {"message.timestamp.type": "LogAppendTime"}
TWICE: tuple[Header, ...] = (("trace", b"1"), ("trace", b"2"), ("region", None))


@dataclass(frozen=True)
class Sent:
    """A record as it was sent, and what the acknowledgement said."""

    record: Outgoing
    written: Acknowledged
    leadership: int


@dataclass
class Seen:
    """What the handler was given, by place; as often as it was."""

    records: list[Record] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, _value: bytes, record: Record) -> None:
        with self._lock:
            self.records.append(record)


def run(stage: Stage) -> None:
    given = stage.topic("given_time", PARTITIONS, configs=KEEP | GIVEN)
    own = stage.topic("brokers_time", PARTITIONS, configs=KEEP | BROKERS_OWN)
    sent = send(stage, [given, own], leadership=1)
    leader = stage.admin.topic(given).partitions[0].leader or 1
    stage.say(f"starting broker {leader} again")
    stage.cluster.stop(leader)
    stage.cluster.start(leader)
    sent += send(stage, [given, own], leadership=2)
    seen = consume(stage, [given, own], len(sent))
    table = sorted(seen.records, key=lambda r: (r.topic, r.partition, r.offset))
    stage.fact("records", [row(record) for record in table])
    judge(stage, sent, seen.records, own)


def records_for(topic: str) -> list[Outgoing]:
    """One of each kind."""
    return [
        Outgoing(topic, b"view", b"user-1", partition=0, timestamp=IN_2019),
        Outgoing(topic, b"cart", b"user-2", TWICE, partition=1, timestamp=IN_2019 + 1),
        Outgoing(topic, b"no key", None, partition=0, timestamp=IN_2019 + 2),
        Outgoing(topic, None, b"user-1", partition=0, timestamp=IN_2019 + 3),
        Outgoing(topic, b"", b"", partition=1, timestamp=IN_2019 + 4),
    ]


def send(stage: Stage, topics: list[str], leadership: int) -> list[Sent]:
    with Producer(stage.connection) as producer:
        records = [record for topic in topics for record in records_for(topic)]
        deliveries = [
            producer.send(r.topic, r.value, r.key, r.headers, r.partition, r.timestamp)
            for r in records
        ]
        return [
            Sent(record, delivery.result(), leadership)
            for record, delivery in zip(records, deliveries, strict=True)
        ]


def consume(stage: Stage, topics: list[str], count: int) -> Seen:
    seen = Seen()
    app = App(stage.connection)
    app.consumer(topics, group=stage.group("table"), name="table")(seen)
    with app.running():
        stage.wait_until(lambda: len(seen.records) >= count, f"{count} records are handled")
    return seen


def row(record: Record) -> dict[str, object]:
    moment = datetime.fromtimestamp(record.timestamp / 1000, UTC)
    return {
        "offset": record.offset,
        "topic": record.topic,
        "partition": record.partition,
        "timestamp (UTC)": moment.isoformat(" ", "milliseconds").removesuffix("+00:00"),
        "key": shown(record.key),
        "value": shown(record.value),
        "timestamp type": str(record.timestamp_type),
        "headers": ", ".join(f"{name}={shown(value)}" for name, value in record.headers),
        "leader epoch": record.leader_epoch,
    }


def shown(data: bytes | None) -> str:
    return "null" if data is None else f'"{data.decode()}"'


def judge(stage: Stage, sent: list[Sent], seen: list[Record], own: str) -> None:
    at = {(record.topic, record.partition, record.offset): record for record in seen}
    pairs = [(s, at.get((s.written.topic, s.written.partition, s.written.offset))) for s in sent]
    found = [(s, record) for s, record in pairs if record is not None]
    stage.check(
        "every record was handled once, at the topic, partition and offset acknowledged",
        len(found) == len(sent) == len(seen) == len(at),
    )
    stage.check(
        "key and value are as sent; null, and empty, are two things",
        all((r.key, r.value) == (s.record.key, s.record.value) for s, r in found),
    )
    stage.check(
        "headers are as sent, in order, with a name that stands twice and a null",
        all(r.headers == tuple(s.record.headers) for s, r in found),
    )
    stage.check(
        "timestamps are those acknowledged, and of two types: given, and the broker's",
        all(r.timestamp == s.written.timestamp for s, r in found)
        and all(right_time(s, r, own) for s, r in found),
    )
    # The one partition that surely changed its leader; on more brokers, others need not.
    moved = [(s, r) for s, r in found if r.topic != own and r.partition == 0]
    first, second = (
        {-1 if r.leader_epoch is None else r.leader_epoch for s, r in moved if s.leadership == n}
        for n in (1, 2)
    )
    stage.check(
        "the leader epoch tells before from after the broker's return",
        -1 < max(first, default=-1) < min(second, default=-1),
    )


def right_time(sent: Sent, record: Record, own: str) -> bool:
    if record.topic == own:
        return (
            record.timestamp_type is TimestampType.LOG_APPEND_TIME
            and record.timestamp != sent.record.timestamp
        )
    return (
        record.timestamp_type is TimestampType.CREATE_TIME
        and record.timestamp == sent.record.timestamp
    )
