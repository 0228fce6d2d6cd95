"""CreateTime keeps the time that was given, LogAppendTime sets the broker's; order is by offset.

The same records go to two topics, with times of 2019 that jump back and forth. One topic stores
them as given, the other replaces each by the moment of its arrival. Both keep the order in which
records were sent. A search by time finds the first offset whose record has that time or a later
one. Where times jump, records before the asked time may still stand behind that offset.
"""

import contextlib
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from headrace.clients import Acknowledged, Producer, Reader
from headrace.errors import DeliveryFailed
from headrace.labs.stage import Stage
from headrace.model import AtTime, Record, TimestampType, TopicPartition

WAVES = 3
RECORDS_PER_WAVE = 100
RECORDS_PER_BATCH = 7  # small batches: searches end inside of them and between them
SEARCHES = 50
SHOWN = 5
SEED = 7
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
IN_2019 = 1_569_888_000_000
CREATE = {"message.timestamp.type": "CreateTime"}
APPEND = {"message.timestamp.type": "LogAppendTime"}
# Retention goes by timestamps: without this the records of 2019 would be deleted at once.
KEEP = {"retention.ms": "-1"}


def run(stage: Stage) -> None:
    create = stage.topic("create_time", configs=KEEP | CREATE)
    append = stage.topic("append_time", configs=KEEP | APPEND)
    given = times_of_2019()
    stage.say(f"sending {len(given)} records of 2019 to two topics, in {WAVES} waves")
    began = now_ms()
    told = send_waves(stage, [create, append], given)
    ended = now_ms()
    created, appended = stage.records(create), stage.records(append)

    table = [
        {
            "offset": number,
            "record": (created[number].value or b"").decode(),
            "time given": shown(given[number]),
            "stored with CreateTime": shown(created[number].timestamp),
            "stored with LogAppendTime": shown(appended[number].timestamp),
        }
        for number in range(SHOWN)
    ]
    stage.fact("the first records of both topics", table)
    judge_stored(stage, given, created, appended, (began, ended))
    stage.check(
        "acknowledgements tell the time that is stored",
        [[a.timestamp for a in topic] for topic in told]
        == [[r.timestamp for r in topic] for topic in (created, appended)],
    )
    judge_searches(stage, created, appended)
    judge_readers(stage, created, appended)
    judge_now_and_later(stage)


def times_of_2019() -> list[int]:
    """A minute apart, and moved by up to half an hour: out of order, but not without a trend."""
    dice = random.Random(SEED)
    moves = range(-30 * MINUTE_MS, 30 * MINUTE_MS)
    return [IN_2019 + n * MINUTE_MS + dice.choice(moves) for n in range(WAVES * RECORDS_PER_WAVE)]


def send_waves(
    stage: Stage, topics: Sequence[str], given: Sequence[int]
) -> list[list[Acknowledged]]:
    """Send all to each topic; between waves the clock moves on, so arrival times differ."""
    told: list[list[Acknowledged]] = [[] for _ in topics]
    settings = {"batch.num.messages": RECORDS_PER_BATCH}
    with Producer(stage.connection, settings) as producer:
        for begin in range(0, len(given), RECORDS_PER_WAVE):
            wave = range(begin, begin + RECORDS_PER_WAVE)
            for topic, written in zip(topics, told, strict=True):
                sent = [producer.send(topic, f"r-{n}", timestamp=given[n]) for n in wave]
                written.extend(delivery.result() for delivery in sent)
            let_time_pass(stage)
    return told


def let_time_pass(stage: Stage) -> None:
    settled = now_ms()
    stage.wait_until(lambda: now_ms() > settled + 1, "the clock moves on", every=0.002)


def judge_stored(
    stage: Stage,
    given: Sequence[int],
    created: Sequence[Record],
    appended: Sequence[Record],
    between: tuple[int, int],
) -> None:
    arrival = [record.timestamp for record in appended]
    began, ended = between
    stage.check(
        "CreateTime stores the time that was given",
        [(r.timestamp, r.timestamp_type) for r in created]
        == [(timestamp, TimestampType.CREATE_TIME) for timestamp in given],
    )
    stage.check(
        "LogAppendTime replaces it by the time of arrival, which never falls",
        {r.timestamp_type for r in appended} == {TimestampType.LOG_APPEND_TIME}
        and arrival == sorted(arrival)
        # A minute to spare: the brokers' clock need not be ours.
        and began - MINUTE_MS <= arrival[0]
        and arrival[-1] <= ended + MINUTE_MS,
    )
    in_order = [(number, f"r-{number}".encode()) for number in range(len(given))]
    stage.check(
        "in both topics, order by offset is the order of sending",
        all([(r.offset, r.value) for r in topic] == in_order for topic in (created, appended)),
    )


def judge_searches(stage: Stage, created: Sequence[Record], appended: Sequence[Record]) -> None:
    """Ask for times around those stored, before all and after all; compare with what is there."""
    dice = random.Random(SEED)
    table = []
    for name, records in (("CreateTime", created), ("LogAppendTime", appended)):
        times = sorted({record.timestamp for record in records})
        some = dice.sample(times, min(SEARCHES, len(times)))
        asked = [0, IN_2019, times[-1] + 1, *(t + move for t in some for move in (-1, 0, 1))]
        right = [search(stage, records[0].topic, t) == first_at(records, t) for t in asked]
        jumps = sum(len(older_behind(records, t)) > 0 for t in asked)
        table.append(
            {
                "topic": name,
                "searches": len(asked),
                "right": sum(right),
                "with older records behind": jumps,
            }
        )
        stage.check(
            f"{name}: every search finds the first offset of that time or later", all(right)
        )
    stage.fact("searches by time, against all records read", table)
    stage.check(
        "with CreateTime, older records stand behind what was found; with LogAppendTime never",
        int(str(table[0]["with older records behind"])) > 0
        and table[1]["with older records behind"] == 0,
    )


def judge_readers(stage: Stage, created: Sequence[Record], appended: Sequence[Record]) -> None:
    """The same through a reader that begins at a time."""
    second_wave = appended[RECORDS_PER_WAVE].timestamp
    questions = [
        ("CreateTime", created, IN_2019 + 2 * HOUR_MS),
        ("CreateTime", created, IN_2019 + 24 * HOUR_MS),
        ("LogAppendTime", appended, IN_2019 + 2 * HOUR_MS),
        ("LogAppendTime", appended, second_wave),
    ]
    table, right = [], []
    for name, records, asked in questions:
        with Reader(records[0].topic, connection=stage.connection, start=AtTime(asked)) as reader:
            read = [record for batch in reader.batches() for record in batch]
        right.append(read == list(records[first_at(records, asked) :]))
        table.append(
            {
                "topic": name,
                "read from": shown(asked),
                "first offset": read[0].offset if read else None,
                "its time": shown(read[0].timestamp) if read else None,
                "records read": len(read),
            }
        )
    stage.fact("readers that begin at a time", table)
    stage.check("each reader begins there and reads all that follows", all(right))
    stage.check(
        "with LogAppendTime the second wave is found by when it arrived",
        table[3]["first offset"] == RECORDS_PER_WAVE,
    )


def judge_now_and_later(stage: Stage) -> None:
    """No time given, and one that lies two hours ahead, which Kafka takes for a mistake."""
    create = stage.topic("create_now", configs=CREATE)
    append = stage.topic("append_now", configs=APPEND)
    began = now_ms()
    later = began + 2 * HOUR_MS
    refused = []
    for topic in (create, append):
        # One producer each: leaving it tells of the refusal once more.
        with contextlib.suppress(DeliveryFailed), Producer(stage.connection) as producer:
            producer.send(topic, "no time given").result()
            try:
                producer.send(topic, "two hours ahead", timestamp=later).result()
            except DeliveryFailed as error:
                refused.append((topic, error.facts.get("code")))
    ended = now_ms()
    created, appended = stage.records(create), stage.records(append)
    stage.fact("a time two hours ahead, with CreateTime", str(dict(refused).get(create)))
    stage.check(
        "a record without a time gets this producer's clock with CreateTime",
        [r.value for r in created] == [b"no time given"] and began <= created[0].timestamp <= ended,
    )
    stage.check(
        "a time two hours ahead is refused with CreateTime, and replaced with LogAppendTime",
        refused == [(create, "INVALID_TIMESTAMP")]
        and [r.value for r in appended] == [b"no time given", b"two hours ahead"]
        and appended[1].timestamp < later - HOUR_MS,
    )


def search(stage: Stage, topic: str, timestamp: int) -> int:
    partition = TopicPartition(topic, 0)
    return stage.admin.offsets([partition], AtTime(timestamp))[partition]


def first_at(records: Sequence[Record], timestamp: int) -> int:
    """What a search should find; the end if there is nothing so young."""
    return next((r.offset for r in records if r.timestamp >= timestamp), len(records))


def older_behind(records: Sequence[Record], timestamp: int) -> list[Record]:
    behind = records[first_at(records, timestamp) :]
    return [record for record in behind if record.timestamp < timestamp]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def shown(timestamp: int) -> str:
    moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    return moment.isoformat(" ", "milliseconds").removesuffix("+00:00")
