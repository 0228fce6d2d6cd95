"""Alerts of a stage stay together, and the trend of each stage over time is exact.

The key of an alert is the alert itself: a serde takes the stage id out of it, so that nobody has to
name the key, and all alerts of a stage are on one partition, in their order. A pipeline on Spark
counts alerts by stage and level in windows of ten minutes, a new one every five. It reads the topic
in two goes, in the middle of windows; what it counted is worked out once more without Spark.
"""

import random
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from headrace.clients import Producer
from headrace.labs.factory_story import LEVELS, Alert, Tables, has_spark
from headrace.labs.stage import Stage
from headrace.model import Record
from headrace.serde import Field, Json, Serde

PARTITIONS = 3
ALERTS = 600
STAGES = tuple(f"stage-{number}" for number in range(1, 7))
WORSE = "stage-3"  # has more alerts from hour to hour
MINUTE_MS = 60_000
LENGTH_MS, STEP_MS = 10 * MINUTE_MS, 5 * MINUTE_MS
SPAN_MS = 120 * MINUTE_MS
VALUE = Json(Alert)

Window = tuple[str, str, int]  # stage, level, begin


class StageOf(Serde[Alert | str]):
    """A key that is made of an alert: its stage. What is read back is the stage's id."""

    def dump(self, value: Alert | str, field: Field) -> bytes:
        return (value.stageId if isinstance(value, Alert) else value).encode()

    def load(self, data: bytes, field: Field) -> str:
        return data.decode()


def run(stage: Stage) -> None:
    topic = stage.topic("kinaction_alerttrend", PARTITIONS)
    alerts = make_alerts()
    half = ALERTS // 2
    with tempfile.TemporaryDirectory(prefix="headrace-lab-") as lake:
        tables = Tables(stage, Path(lake), {"trend": topic}) if has_spark(stage) else None
        for part in (alerts[:half], alerts[half:]):
            stage.say(f"sending {len(part)} alerts; the serde finds their keys")
            send(stage, topic, part)
            if tables is not None:
                stage.say("counting them on Spark")
                tables.update()
        judge_keys(stage, stage.records(topic), alerts)
        if tables is not None:
            judge_trend(stage, tables, alerts)


def make_alerts() -> list[Alert]:
    """Of two hours, in their order; one stage has more and more of them."""
    dice = random.Random(11)
    begin = (time.time_ns() // 1_000_000 - SPAN_MS) // LENGTH_MS * LENGTH_MS
    moments = sorted(dice.randrange(SPAN_MS) for _ in range(ALERTS))
    alerts = []
    for number, moment in enumerate(moments):
        worse = dice.random() < moment / SPAN_MS
        stage_id = WORSE if worse else dice.choice(STAGES)
        (level,) = dice.choices(tuple(LEVELS), tuple(LEVELS.values()))
        alerts.append(Alert(number, stage_id, level, f"call {number}", begin + moment))
    return alerts


def send(stage: Stage, topic: str, alerts: list[Alert]) -> None:
    with Producer(stage.connection, key=StageOf(), value=VALUE) as producer:
        for alert in alerts:
            producer.send(topic, alert, key=alert, timestamp=alert.time)


def judge_keys(stage: Stage, found: list[Record], alerts: list[Alert]) -> None:
    read = [(record, VALUE.decode(record.value, Field(record.topic))) for record in found]
    keys = StageOf()
    stage.check(
        "each record's key is the stage of the alert in it",
        all(keys.decode(r.key, Field(r.topic, "key")) == a.stageId for r, a in read if a),
    )
    homes = {(alert.stageId, record.partition) for record, alert in read if alert}
    stage.check("each stage is on one partition", len(homes) == len(dict(homes)) == len(STAGES))
    by_stage = {
        name: [alert for _, alert in read if alert and alert.stageId == name] for name in STAGES
    }
    stage.check(
        "and there in the order in which it was sent",
        all(of == [a for a in alerts if a.stageId == name] for name, of in by_stage.items()),
    )


def judge_trend(stage: Stage, tables: Tables, alerts: list[Alert]) -> None:
    rows = tables.rows("trend", "stage_id, alert_level, window_start, alerts")
    found = {
        (r["stage_id"], r["alert_level"], milliseconds(r["window_start"])): r["alerts"]
        for r in rows
    }
    expected = windows_of(alerts)
    stage.fact("windows", len(found))
    stage.fact("alerts every half hour", by_half_hours(found))
    stage.check("the trend is what a count without Spark comes to", found == expected != {})
    stage.check("no window is there twice", len(rows) == len(found))
    every = [row["alert_id"] for row in tables.rows("alerts", "alert_id")]
    stage.check(
        "every alert is in the table of alerts, once", sorted(every) == list(range(len(alerts)))
    )


def windows_of(alerts: list[Alert]) -> Counter[Window]:
    """Each alert counts in every window that it is in."""
    counts: Counter[Window] = Counter()
    for alert in alerts:
        last = alert.time // STEP_MS * STEP_MS
        for begin in range(last, alert.time - LENGTH_MS, -STEP_MS):
            counts[alert.stageId, alert.alertLevel, begin] += 1
    return counts


def by_half_hours(found: dict[Window, int]) -> list[dict[str, object]]:
    """Of windows that do not overlap: every second one."""
    begins = sorted({begin for *_, begin in found if begin % LENGTH_MS == 0})
    table = []
    for name in STAGES:
        row: dict[str, object] = {"stage": name}
        for half in range(begins[0], begins[-1] + 1, 3 * LENGTH_MS):
            shown = datetime.fromtimestamp(half / 1000, UTC).strftime("%H:%M")
            row[shown] = sum(
                count
                for (of, _, begin), count in found.items()
                if of == name and begin % LENGTH_MS == 0 and half <= begin < half + 3 * LENGTH_MS
            )
        table.append(row)
    return table


def milliseconds(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)
