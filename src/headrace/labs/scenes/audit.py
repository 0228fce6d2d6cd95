"""Audit events sent one by one survive the leader's death: none lost, none twice, all in order.

An audit log forgives no loss and asks for no speed, nor are its events grouped: they have no key,
and each travels alone. All in-sync copies must have an event before the next one is sent
(acks=all, one request in flight, each send awaited), and a request is tried again three times.
Where each event was written is logged. In the middle the leader is killed with SIGKILL; later it
comes back. Then the topic is read and held against the log.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

import orjson

from headrace.clients import Acknowledged, Producer
from headrace.errors import DeliveryFailed
from headrace.labs.stage import Stage
from headrace.model import Record

BROKERS = 3
NEEDS_FAULTS = True
QUARTER = 150
CERTAINLY_DEAD = QUARTER // 5
TRIES_BY_HAND = 5
SETTINGS = {
    "acks": "all",
    "retries": 3,
    "max.in.flight": 1,
    "linger.ms": 0,
    # The waits double: 2 s, 4 s, 8 s. To wait for a leader costs no retry, but to be turned away
    # does (not the leader any more, too few copies), and a change of leadership takes some
    # seconds. librdkafka's own waits (0.1 s, 0.2 s, 0.4 s) would not outlast it.
    "retry.backoff.ms": 2_000,
    "retry.backoff.max.ms": 8_000,
    "delivery.timeout.ms": 60_000,
}


@dataclass(frozen=True)
class Entry:
    """A line of the log: which event was written where, and how long that took."""

    event: int
    written: Acknowledged
    seconds: float

    def row(self) -> dict[str, object]:
        moment = datetime.fromtimestamp(self.written.timestamp / 1000, UTC)
        return {
            "event": self.event,
            "topic": self.written.topic,
            "offset": self.written.offset,
            "timestamp (UTC)": moment.isoformat(" ", "milliseconds").removesuffix("+00:00"),
            "ms to acknowledge": round(self.seconds * 1000),
        }


@dataclass
class Auditor:
    """Sends events one after the other and logs where each was written."""

    stage: Stage
    producer: Producer
    topic: str
    log: list[Entry] = field(default_factory=list)
    sent_again: list[int] = field(default_factory=list)

    def write(self, count: int) -> None:
        begin = len(self.log)
        for event in range(begin, begin + count):
            self.log.append(self._written(event))

    def _written(self, event: int) -> Entry:
        value = event_bytes(event)
        for _ in range(TRIES_BY_HAND):
            delivery = self.producer.send(self.topic, value)
            try:
                return Entry(event, delivery.result(90), delivery.latency or 0.0)
            except DeliveryFailed as error:
                # Never silent, and nothing is lost: the error brings the record back.
                self.stage.say(f"event {event} is sent again: {error.message}")
                self.sent_again.append(event)
                value = error.facts["record"].value
        raise delivery.failure()


def run(stage: Stage) -> None:
    topic = stage.topic("kinaction_audit", 1, 3, {"min.insync.replicas": "2"})
    with Producer(stage.connection, SETTINGS) as producer:
        auditor = Auditor(stage, producer, topic)
        timeline = lose_and_regain_the_leader(stage, auditor)
        requests = producer.counters(fresh=True).batches
    stored = stage.records(topic)
    stage.fact("settings", ", ".join(f"{name}={value}" for name, value in SETTINGS.items()))
    stage.fact("timeline", timeline)
    tell(stage, auditor, stored, requests)
    judge_fault(stage, timeline, stored)
    judge_records(stage, auditor, stored, requests)


def lose_and_regain_the_leader(stage: Stage, auditor: Auditor) -> list[dict[str, object]]:
    """A quarter of the events before the leader's death, two from then on, one on its return."""
    topic = auditor.topic
    auditor.write(QUARTER)
    timeline = [look(stage, topic, "before")]
    leader = stage.admin.topic(topic).partitions[0].leader or 1
    with ThreadPoolExecutor(1) as elsewhere:
        try:
            stage.say(f"killing broker {leader}, the leader, while events are sent")
            killing = elsewhere.submit(stage.cluster.kill, leader)
            auditor.write(CERTAINLY_DEAD)
            killing.result()
            auditor.write(2 * QUARTER - CERTAINLY_DEAD)
            stage.wait_until(lambda: in_sync(stage, topic) == 2, "in-sync copies shrink to 2")
            timeline.append(look(stage, topic, f"broker {leader} is dead"))
        finally:
            stage.say(f"starting broker {leader} again while events are sent")
            starting = elsewhere.submit(stage.cluster.start, leader)
        auditor.write(QUARTER // 2)
        starting.result()
    stage.wait_until(lambda: in_sync(stage, topic) == 3, "in-sync copies are 3 again")
    auditor.write(QUARTER - QUARTER // 2)
    timeline.append(look(stage, topic, f"broker {leader} is back"))
    return timeline


def look(stage: Stage, topic: str, when: str) -> dict[str, object]:
    partition = stage.admin.topic(topic).partitions[0]
    return {"when": when, "leader": partition.leader, "in sync": len(partition.isr)}


def in_sync(stage: Stage, topic: str) -> int:
    return len(stage.admin.topic(topic).partitions[0].isr)


def event_bytes(event: int) -> bytes:
    return orjson.dumps({"event": event, "what": f"operator {event % 7} opened a work order"})


def event_of(record: Record) -> int:
    return int(orjson.loads(record.value or b"{}").get("event", -1))


def tell(stage: Stage, auditor: Auditor, stored: list[Record], requests: int) -> None:
    log = auditor.log
    slowest = max(log, key=lambda entry: entry.seconds)
    chosen = {entry.event: entry for entry in (*log[:3], slowest, log[-1])}
    stage.fact(
        "the log: the first three, the slowest, the last", [e.row() for e in chosen.values()]
    )
    stage.fact("acknowledged", len(log))
    stage.fact("requests with events", requests)
    stage.fact("sent again by hand", len(auditor.sent_again))
    stage.fact("read back", len(stored))


def judge_fault(stage: Stage, timeline: list[dict[str, object]], stored: list[Record]) -> None:
    leaders = [row["leader"] for row in timeline]
    stage.check("in-sync copies went 3, 2, 3", [row["in sync"] for row in timeline] == [3, 2, 3])
    # Each record carries the number of the leadership that it was written under.
    stage.check(
        "another leader took over, and the log holds events of both",
        leaders[1] not in (None, leaders[0]) and len({r.leader_epoch for r in stored}) >= 2,
    )


def judge_records(stage: Stage, auditor: Auditor, stored: list[Record], requests: int) -> None:
    events = [event_of(record) for record in stored]
    times = Counter(events)
    at = {(record.partition, record.offset): record for record in stored}
    misplaced = [entry.event for entry in auditor.log if not stands_as_logged(entry, at)]
    # A send that failed for good may have been written all the same: who sends again by hand may
    # write twice. The retries of an idempotent producer do not.
    twice = {event for event, count in times.items() if count > 1} - set(auditor.sent_again)
    stage.check("no acknowledged event is lost", all(times[entry.event] for entry in auditor.log))
    stage.check("no event stands twice", not twice)
    stage.check("the events stand in the order in which they were sent", events == sorted(events))
    stage.check(
        "at each logged offset stands that very event, with the logged timestamp", not misplaced
    )
    stage.check("no event shared a request with another", requests >= len(auditor.log))


def stands_as_logged(entry: Entry, at: dict[tuple[int, int], Record]) -> bool:
    record = at.get((entry.written.partition, entry.written.offset))
    return (
        record is not None
        and record.value == event_bytes(entry.event)
        and record.timestamp == entry.written.timestamp
    )
