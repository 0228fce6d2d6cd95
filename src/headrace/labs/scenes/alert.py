"""Operators read Critical alerts first, no failure goes uncounted, each stage's last state stays.

Alerts go to a compacted topic with the stage as key: Critical ones to partition 0, the others by
the key's hash to the other partitions. Compaction works within a partition, so when a stage goes
from Critical to something else, or back, its old state is taken away by a tombstone; else it
would stand there for ever. An alert that the broker refuses comes back to its sender. A pipeline on
Spark keeps the last state of each stage in a table: it must say the same as the compacted topic.
"""

import random
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from headrace.clients import Delivery, Outgoing, Producer, Reader, ToPartition
from headrace.clients.partitioners import murmur2_partition
from headrace.labs.factory_story import LEVELS, Alert, Tables, has_spark
from headrace.labs.stage import Stage
from headrace.model import Record
from headrace.serde import Field, Json

PARTITIONS = 3
ALERTS = 120
STAGES = tuple(f"stage-{number}" for number in range(1, 9))
TALKATIVE = "stage-9"
MOST_BYTES = 2_000
MINUTE_MS = 60_000
TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    # Only closed segments are compacted. The alerts are an hour old and within some minutes of
    # each other, so they share a segment; the first record of now closes it.
    "segment.ms": str(30 * MINUTE_MS),
    "max.message.bytes": str(MOST_BYTES),
}
# The broker's limit is for a batch: what it refuses, it refuses together. So batches stay below.
PRODUCER_SETTINGS = {"batch.size": MOST_BYTES // 2, "compression.type": "none"}
MARKER = "end of shift"


class Stored(NamedTuple):
    """What stands in the topic: an alert, or a tombstone where its stage had one."""

    partition: int
    stage: str
    alert: Alert | None


SERDE = Json(Alert)


def critical_apart(record: ToPartition) -> int:
    """Critical on partition 0, every other level by the hash of its stage on the others."""
    if orjson.loads(record.value or b"{}").get("alertLevel") == "Critical":
        return 0
    return 1 + murmur2_partition(record.key, record.partitions - 1)


@dataclass
class Outcomes:
    """The callback of every send: counts what was written, and keeps what was not."""

    written: int = 0
    failed: list[Outgoing] = field(default_factory=list)

    def __call__(self, delivery: Delivery) -> None:
        if delivery.failed:
            self.failed.append(delivery.record)
        else:
            self.written += 1


class Panel:
    """Sends alerts so that each stage has one state, on whichever partition."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.outcomes = Outcomes()
        self.tombstones = 0
        self._producer = producer
        self._topic = topic
        self._homes: dict[str, tuple[bool, int]] = {}  # was it Critical, and on which partition

    def show(self, alert: Alert) -> None:
        delivery = self._send(alert, alert)
        critical = alert.alertLevel == "Critical"
        was_critical, old = self._homes.get(alert.stageId, (None, None))
        if critical == was_critical:
            return
        # The new state must stand before the old one goes. Two states for a moment do no harm,
        # the newer one counts; none at all would be a loss.
        self._homes[alert.stageId] = (critical, delivery.result().partition)
        if old is not None:
            self._send(None, alert, old)
            self.tombstones += 1

    def _send(self, value: Alert | None, alert: Alert, partition: int | None = None) -> Delivery:
        return self._producer.send(
            self._topic, value, alert.stageId, (), partition, alert.time, self.outcomes
        )


def run(stage: Stage) -> None:
    topic = stage.topic("kinaction_alert", PARTITIONS, configs=TOPIC_SETTINGS)
    alerts = make_alerts()
    with Producer(
        stage.connection, PRODUCER_SETTINGS, value=SERDE, partitioner=critical_apart
    ) as producer:
        panel = Panel(producer, topic)
        stage.say(f"sending {len(alerts)} alerts, one of them longer than the topic takes")
        for alert in alerts:
            panel.show(alert)
        producer.flush()
        before = critical_first(stage, topic)
        judge_reading(stage, alerts, before)
        judge_failure(stage, alerts, panel, before)

        stage.say("sending what came back again, in fewer words")
        refused = list(filter(None, map(decoded, panel.outcomes.failed)))
        later = alerts[-1].time + 1_000
        shortened = [replace(a, alertMessage=a.alertMessage[:15], time=later) for a in refused]
        for alert in shortened:
            panel.show(alert)

    table = states_on_spark(stage, topic) if has_spark(stage) else None
    stage.say("closing the segments and waiting for the broker's cleaner")
    stage.fact("seconds until compacted", round(compact(stage, topic), 1))
    after = critical_first(stage, topic)
    judge_states(stage, [*alerts, *shortened], before, after)
    if table is not None:
        judge_table(stage, table, panel, after)


def make_alerts() -> list[Alert]:
    """The same alerts each time, a second apart; the talkative stage's second one is too long for
    the topic."""
    dice = random.Random(7)
    levels = dice.choices(tuple(LEVELS), tuple(LEVELS.values()), k=ALERTS)
    alerts = [
        Alert(n, dice.choice(STAGES), level, f"call {n}", 0) for n, level in enumerate(levels)
    ]
    alerts.insert(ALERTS // 3, Alert(ALERTS, TALKATIVE, "Minor", "oil is low", 0))
    alerts.insert(ALERTS // 2, Alert(ALERTS + 1, TALKATIVE, "Minor", "oil is very low" * 200, 0))
    begin = time.time_ns() // 1_000_000 - 60 * MINUTE_MS
    return [replace(alert, time=begin + 1_000 * n) for n, alert in enumerate(alerts)]


def critical_first(stage: Stage, topic: str) -> list[Stored]:
    """As operators read: all of partition 0, then the other partitions."""
    found: list[Stored] = []
    for partition in range(PARTITIONS):
        with Reader(topic, connection=stage.connection, partition=partition) as reader:
            for record in (record for batch in reader.batches() for record in batch):
                key = (record.key or b"").decode()
                if key != MARKER:
                    found.append(Stored(partition, key, decoded(record)))
    return found


def decoded(record: Record | Outgoing) -> Alert | None:
    return SERDE.decode(record.value, Field(record.topic))


def alerts_in(found: list[Stored]) -> list[Alert]:
    return [stored.alert for stored in found if stored.alert is not None]


def compact(stage: Stage, topic: str) -> float:
    """Close each partition's segment with one more record, and wait for the broker's cleaner."""
    with Producer(stage.connection) as producer:
        for partition in range(PARTITIONS):
            producer.send(topic, "", key=MARKER, partition=partition)
    # Left alone, a broker's cleaner looks around every 15 s.
    return stage.wait_until(
        lambda: not repeated(critical_first(stage, topic)), "the topic is compacted", 120
    )


def repeated(found: list[Stored]) -> list[tuple[int, str]]:
    """Stages that stand more than once on a partition."""
    seen = Counter((stored.partition, stored.stage) for stored in found)
    return [place for place, count in seen.items() if count > 1]


def judge_reading(stage: Stage, alerts: list[Alert], before: list[Stored]) -> None:
    critical = [alert for alert in alerts if alert.alertLevel == "Critical"]
    stage.check(
        f"operators see all {len(critical)} Critical alerts before any other",
        alerts_in(before)[: len(critical)] == critical != [],
    )
    others = {(s.stage, s.partition) for s in before if s.alert and s.alert not in critical}
    stage.check(
        "the others are spread over the other partitions, each stage on one",
        set(dict(others).values()) == {1, 2} and len(others) == len(dict(others)),
    )


def judge_failure(stage: Stage, alerts: list[Alert], panel: Panel, before: list[Stored]) -> None:
    written, failed = panel.outcomes.written, panel.outcomes.failed
    stage.fact("handed over", f"{len(alerts)} alerts, {panel.tombstones} tombstones")
    stage.fact("the callback counted", f"{written} written, {len(failed)} failed")
    too_long = max(alerts, key=lambda alert: len(alert.alertMessage))
    in_hand = [decoded(record) for record in failed]
    stage.check("the alert that is too long came back whole, and no other", in_hand == [too_long])
    stage.check(
        "all others are in the topic, as many as the callback counted",
        {alert.alertId for alert in alerts_in(before)}
        == {alert.alertId for alert in alerts} - {too_long.alertId}
        and len(before) == written == len(alerts) + panel.tombstones - len(failed),
    )


def judge_states(
    stage: Stage, shown: list[Alert], before: list[Stored], after: list[Stored]
) -> None:
    written = Counter(alert.stageId for alert in alerts_in(before))
    states = [(partition, alert) for partition, _, alert in after if alert is not None]
    table = [
        asdict(alert) | {"partition": partition, "alerts before": written[alert.stageId]}
        for partition, alert in states
    ]
    stage.fact("the last states, as operators read them", table)
    left = f"{len(states)} states and {len(after) - len(states)} tombstones"
    stage.fact("compaction", f"of {len(before)} records {left} are left")
    stage.check(
        "compaction left one record of each stage on a partition, where many were",
        not repeated(after) and len(repeated(before)) > len(STAGES),
    )
    last = {alert.stageId: alert for alert in shown}
    stage.check(
        "each stage's last state is there, once, and no earlier one",
        sorted(alert.stageId for _, alert in states) == sorted(last)
        and all(alert == last[alert.stageId] for _, alert in states),
    )


def states_on_spark(stage: Stage, topic: str) -> tuple[list[dict[str, Any]], int]:
    """The table of last states, Critical first, and how many records were no alerts."""
    stage.say("the last state of each stage, on Spark")
    with tempfile.TemporaryDirectory(prefix="headrace-lab-") as lake:
        tables = Tables(stage, Path(lake), {"alert": topic})
        done = tables.update()
        rows = tables.rows("stages", "stage_id, alert_id, alert_level, alert_message")
    return sorted(
        rows, key=lambda r: (r["alert_level"] != "Critical", r["stage_id"])
    ), done.rows_dead


def judge_table(
    stage: Stage, table: tuple[list[dict[str, Any]], int], panel: Panel, after: list[Stored]
) -> None:
    rows, dead = table
    states = [
        (partition > 0, alert.stageId, alert.alertId, alert.alertLevel, alert.alertMessage)
        for partition, _, alert in after
        if alert is not None
    ]
    stage.check(
        "Spark's table of stages says the same as the compacted topic, Critical first",
        [tuple(row.values()) for row in rows] == [state[1:] for state in sorted(states)],
    )
    stage.check("the tombstones are its dead letters, and nothing else", dead == panel.tombstones)
