"""A wrong formula is put right by handling the records again: the raw data were never lost.

Three days of web clicks, each count times 1.543. The factor turns out to be wrong from the second
day on. The consumer runs all the while: it seeks to the time when that day began, and computes
what follows again, and nothing else. A single partition is sent back to an offset in the same
way. Then the formula changes for all days: the group is stopped, reset to the beginning, and
computes everything again. On Spark the same two days are replayed into tables, once with each
factor. What was sent stands in the topic as it did before.
"""

import threading
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal

import orjson

from headrace.clients import Producer
from headrace.errors import GroupIsLive
from headrace.labs.replay_story import replay_on_spark
from headrace.labs.stage import Stage
from headrace.model import AtOffset, Earliest, Record, TopicPartition
from headrace.parallel import App
from headrace.services.groups import execute_reset, plan_reset

PARTITIONS = 3
DAYS = ("2024-05-01", "2024-05-02", "2024-05-03")
CLICKS_PER_DAY = 300  # records, a hundred in each partition
RECORDS = CLICKS_PER_DAY * len(DAYS)
PER_PARTITION = RECORDS // PARTITIONS
MINUTE_MS = 60_000
WRONG, RIGHT, NEWEST = Decimal("1.543"), Decimal("1.345"), Decimal("1.354")
LAST = 10  # records of one partition, for a seek to an offset

Place = tuple[int, int]  # partition and offset


class Results:
    """What the handler computes: the latest result for each record, and how often it was asked."""

    def __init__(self) -> None:
        self.factor = WRONG
        self.by_place: dict[Place, Decimal] = {}
        self.times: Counter[Place] = Counter()
        self._noting = threading.Lock()

    def compute(self, event: dict[str, int], record: Record) -> None:
        place = (record.partition, record.offset)
        with self._noting:
            self.by_place[place] = event["clicks"] * self.factor
            self.times[place] += 1

    def handled(self) -> int:
        return self.times.total()


def run(stage: Stage) -> None:
    # Kept for ever: retention goes by the records' own time, and these days are long past.
    topic = stage.topic("clicks", PARTITIONS, configs={"retention.ms": "-1"})
    group = stage.group("revenue")
    send(stage, topic)
    raw = stage.records(topic)
    results = Results()
    app = App(stage.connection)
    app.consumer(topic, group=group)(results.compute)
    rows = []
    with app.running() as running:
        stage.wait_until(lambda: results.handled() >= RECORDS, "all clicks are computed")
        rows.append(row(results, raw, f"all, times {WRONG}"))

        stage.say(f"the factor was wrong from {DAYS[1]} on: seeking there")
        results.factor = RIGHT
        running.seek(f"{DAYS[1]}T00:00:00Z")
        wanted = RECORDS + 2 * CLICKS_PER_DAY
        stage.wait_until(lambda: results.handled() >= wanted, "two days are computed again")
        rows.append(row(results, raw, f"from {DAYS[1]}, times {RIGHT}"))
        judge_days(stage, results, raw)

        stage.say(f"seeking to an offset: the last {LAST} of one partition")
        running.seek(AtOffset(PER_PARTITION - LAST), [TopicPartition(topic, 0)])
        stage.wait_until(lambda: results.handled() >= wanted + LAST, "they are computed again")
        rows.append(row(results, raw, f"the last {LAST} of partition 0"))
        refused = is_refused(stage, topic, group)
    judge_offset(stage, results, raw)
    judge_reset(stage, topic, group, raw, rows, refused)
    judge_tables(stage, topic, raw)


def judge_days(stage: Stage, results: Results, raw: list[Record]) -> None:
    """The first day as it was, the others with the right factor."""
    stage.check(
        "after the seek to a time, that day and the next have the right factor, the first the old",
        results.by_place
        == {place(r): clicks(r) * (WRONG if day(r) == DAYS[0] else RIGHT) for r in raw},
    )
    stage.check(
        "what came before that time was not handled again",
        all(results.times[place(r)] == (1 if day(r) == DAYS[0] else 2) for r in raw),
    )


def judge_offset(stage: Stage, results: Results, raw: list[Record]) -> None:
    again = {place(r) for r in raw if r.partition == 0 and r.offset >= PER_PARTITION - LAST}
    thrice = {at for at, times in results.times.items() if times == 3}
    stage.check(f"the seek to an offset handled its {LAST} again, and only them", thrice == again)


def judge_reset(
    stage: Stage,
    topic: str,
    group: str,
    raw: list[Record],
    rows: list[dict[str, object]],
    refused: bool,
) -> None:
    """The group is stopped, sent back, and computes everything with the newest factor."""
    stage.say("resetting the stopped group to the beginning")
    changes = plan_reset(stage.admin, group, topic, Earliest(), None)
    execute_reset(stage.admin, group, changes)
    results = Results()
    results.factor = NEWEST
    app = App(stage.connection)
    app.consumer(topic, group=group)(results.compute)
    with app.running():
        stage.wait_until(lambda: results.handled() >= RECORDS, "everything is computed again")
    rows.append(row(results, raw, f"all, times {NEWEST}"))
    stage.fact("clicks times the factor, by day", rows)
    stage.fact("records in the topic, before and after", [len(raw), len(stage.records(topic))])
    stage.check("a group that runs cannot be reset", refused)
    stage.check(
        "stopped, every partition went from its end to its beginning",
        [(c.before, c.after) for c in changes] == [(PER_PARTITION, 0)] * PARTITIONS,
    )
    stage.check(
        "after the reset every record was computed with the newest factor, once",
        results.by_place == {place(r): clicks(r) * NEWEST for r in raw}
        and set(results.times.values()) == {1},
    )


def judge_tables(stage: Stage, topic: str, raw: list[Record]) -> None:
    """The days that were wrong, on Spark: a table with each factor, from the same records."""
    wrong_days = [r for r in raw if day(r) != DAYS[0]]
    begin = f"{DAYS[1]}T00:00:00Z"
    for name, factor in (("wrong", WRONG), ("right", RIGHT)):
        found = replay_on_spark(stage, topic, begin, factor)
        if found is None:
            break
        stage.fact(f"replayed on Spark with the {name} factor", found.days)
        stage.check(
            f"the dry run counted {len(wrong_days)} records and wrote nothing; the replay read "
            f"them once, and run again none ({name} factor)",
            found.counts == (len(wrong_days), 0, len(wrong_days), 0),
        )
        stage.check(
            f"the table with the {name} factor is what Python computes, row by row",
            found.rows == {place(r): clicks(r) * factor for r in wrong_days},
        )
        sums = dict.fromkeys(DAYS[1:], Decimal(0))
        for record in wrong_days:
            sums[day(record)] += clicks(record) * factor
        stage.check(f"and so are its sums by day ({name} factor)", found.days == sums)
    stage.check("the raw data are what they were, to the byte", stage.records(topic) == raw)


def is_refused(stage: Stage, topic: str, group: str) -> bool:
    try:
        plan_reset(stage.admin, group, topic, Earliest(), None)
    except GroupIsLive:
        return True
    return False


# --- the clicks ---


def send(stage: Stage, topic: str) -> None:
    """A record a minute from each day's beginning, spread over the partitions by turns."""
    stage.say(f"sending {RECORDS} counts of clicks of {len(DAYS)} days")
    with Producer(stage.connection) as producer:
        for number in range(RECORDS):
            begin = datetime.fromisoformat(DAYS[number // CLICKS_PER_DAY]).replace(tzinfo=UTC)
            producer.send(
                topic,
                orjson.dumps({"clicks": 1 + number % 7}),
                timestamp=int(begin.timestamp() * 1000) + number % CLICKS_PER_DAY * MINUTE_MS,
                partition=number % PARTITIONS,
            )


def place(record: Record) -> Place:
    return record.partition, record.offset


def clicks(record: Record) -> int:
    return int(orjson.loads(record.value or b"")["clicks"])


def day(record: Record) -> str:
    return datetime.fromtimestamp(record.timestamp / 1000, UTC).strftime("%Y-%m-%d")


def row(results: Results, raw: list[Record], what: str) -> dict[str, object]:
    sums = dict.fromkeys(DAYS, Decimal(0))
    for record in raw:
        sums[day(record)] += results.by_place[place(record)]
    return {"computed": what, "handled so far": results.handled(), **sums}
