"""Every codec shrinks large batches well, batches of one far less; all is read back identical.

What gets compressed is a batch, not a record. Click events in JSON repeat the same names and much
the same values from event to event, and a codec can make use of that only within a batch. The
same events are sent with each codec, one to a batch and a thousand to a batch; Kafka's own tool
says what then stands on the broker's disk. Times are told, not judged.
"""

import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson

from headrace.clients import Producer
from headrace.labs.segments import Batch, bytes_on_disk, stored_batches
from headrace.labs.stage import Stage

NEEDS_FAULTS = True
CODECS = ("gzip", "snappy", "lz4", "zstd")
ONE, MANY = 1, 1_000
EVENTS = {ONE: 1_000, MANY: 20_000}  # enough of each to be timed
# Usual shares of the plain size are 0.17 to 0.34 with large batches, 0.85 to 0.99 with one event.
LARGE_KEEPS_AT_MOST = 0.5
ONE_SAVES_AT_MOST = 0.5  # of what the same codec saves with large batches
NEARLY_ALL = 0.9  # a batch that would grow is sent as it is
FRAMING = 0.05  # what requests and connections add to large batches, at most
SEED = 7
KINDS, KIND_SHARES = ("view", "cart", "remove_from_cart", "purchase"), (93, 4, 1, 2)
VISITS = 800
CATEGORIES = (
    ("electronics.smartphone", ("samsung", "apple", "xiaomi", "huawei")),
    ("appliances.environment.water_heater", ("aqua", "ariston", "teploross")),
    ("furniture.living_room.sofa", (None,)),
    ("electronics.video.tv", ("haier", "lg", "sony")),
    (None, ("shiseido", "vitek", None)),
)
Event = tuple[bytes, bytes]


@dataclass(frozen=True)
class Sent:
    """Events sent once, with one codec and one size of batches."""

    codec: str
    batch_size: int
    topic: str
    seconds: float
    wire_bytes: int
    disk_bytes: int
    identical: bool

    def share_of(self, plain: "Sent") -> float:
        """What is left on disk of what the same events take uncompressed."""
        return self.disk_bytes / plain.disk_bytes

    def row(self, plain: "Sent", batches: Sequence[Batch]) -> dict[str, object]:
        return {
            "codec": self.codec,
            "events": sum(batch.records for batch in batches),
            "batches on disk": counted(batches),
            "bytes on the wire": self.wire_bytes,
            "bytes on disk": self.disk_bytes,
            "of plain": f"{self.share_of(plain):.0%}",
            "microseconds an event": round(self.seconds / EVENTS[self.batch_size] * 1e6),
        }


def run(stage: Stage) -> None:
    events = [(str(e["userid"]).encode(), orjson.dumps(e)) for e in clicks(max(EVENTS.values()))]
    send(stage, "none", MANY, events)  # the first one pays for warming up, and is not counted
    plain, packed = {}, []
    for size in (ONE, MANY):
        stage.say(f"sending {EVENTS[size]:,} events, up to {size:,} a batch, with each codec")
        plain[size] = send(stage, "none", size, events)
        packed += [send(stage, codec, size, events) for codec in CODECS]
    stage.say("opening the log segments with Kafka's own tool")
    stored = stored_batches(stage, [sent.topic for sent in [*plain.values(), *packed]])

    for size, title in ((ONE, "one event a batch"), (MANY, f"up to {MANY:,} events a batch")):
        shown = [plain[size], *(sent for sent in packed if sent.batch_size == size)]
        stage.fact(title, [sent.row(plain[size], stored[sent.topic]) for sent in shown])
    judge_disk(stage, plain, packed, stored)
    judge_sizes(stage, plain, packed)
    stage.check(
        "every event is read back identical and in order, with every codec",
        all(sent.identical for sent in [*plain.values(), *packed]),
    )


def send(stage: Stage, codec: str, size: int, events: Sequence[Event]) -> Sent:
    topic = stage.topic(f"clicks_{codec}_{size}", 1, 1)
    settings = {
        "compression.type": codec,
        "batch.num.messages": size,
        # Large batches wait until they are full; flushing sends the last one.
        "linger.ms": 0 if size == ONE else 1_000,
        "statistics.interval.ms": 100,
    }
    events = events[: EVENTS[size]]
    with Producer(stage.connection, settings) as producer:
        began = time.perf_counter()
        producer.send_many(topic, events)
        producer.flush()
        seconds = time.perf_counter() - began
        wire_bytes = producer.counters(fresh=True).bytes_on_the_wire
    identical = [(r.key, r.value) for r in stage.records(topic)] == events
    disk_bytes = bytes_on_disk(stage, topic)
    return Sent(codec, size, topic, seconds, wire_bytes, disk_bytes, identical)


def judge_disk(
    stage: Stage,
    plain: dict[int, Sent],
    packed: Sequence[Sent],
    stored: dict[str, list[Batch]],
) -> None:
    every = [*plain.values(), *packed]
    stage.check(
        "batches stand on disk in the codec asked for, all large ones and nearly all of one event",
        all(
            share_in(s.codec, stored[s.topic]) >= (NEARLY_ALL if s.batch_size == ONE else 1)
            for s in every
        ),
    )
    stage.check(
        "the tool finds every event, and every byte of the files belongs to a batch",
        all(
            sum(b.records for b in stored[s.topic]) == EVENTS[s.batch_size]
            and sum(b.bytes for b in stored[s.topic]) == s.disk_bytes
            for s in every
        ),
    )
    stage.check(
        "batches are as large as meant: one event, or hundreds",
        all(
            {b.records for b in stored[s.topic]} == {ONE}
            if s.batch_size == ONE
            else len(stored[s.topic]) < EVENTS[MANY] / 100
            for s in every
        ),
    )


def judge_sizes(stage: Stage, plain: dict[int, Sent], packed: Sequence[Sent]) -> None:
    saved = {(s.codec, s.batch_size): 1 - s.share_of(plain[s.batch_size]) for s in packed}
    stage.check(
        f"with large batches each codec leaves less than {LARGE_KEEPS_AT_MOST:.0%}",
        all(1 - saved[codec, MANY] < LARGE_KEEPS_AT_MOST for codec in CODECS),
    )
    stage.check(
        "with one event a batch each codec saves less than half as much",
        all(saved[codec, ONE] < ONE_SAVES_AT_MOST * saved[codec, MANY] for codec in CODECS),
    )
    large = [sent for sent in [*plain.values(), *packed] if sent.batch_size == MANY]
    stage.check(
        "large batches go over the wire as they stand on disk: the broker need not repack them",
        all(s.disk_bytes <= s.wire_bytes <= s.disk_bytes * (1 + FRAMING) for s in large),
    )


def share_in(codec: str, batches: Sequence[Batch]) -> float:
    return sum(batch.codec == codec for batch in batches) / max(len(batches), 1)


def counted(batches: Sequence[Batch]) -> str:
    """How many batches there are of each codec, as the tool names it."""
    codecs = Counter(batch.codec for batch in batches).most_common()
    return ", ".join(f"{count:,} {codec}" for codec, count in codecs)


def clicks(count: int) -> Iterator[dict[str, object]]:
    """Events of a shop in the shape of the real ones; the same for the same seed."""
    dice = random.Random(SEED)
    visits = [
        (dice.randrange(512_000_000, 557_000_000), uuid.UUID(int=dice.getrandbits(128), version=4))
        for _ in range(VISITS)
    ]
    event_time = 1_569_888_000_000
    for _ in range(count):
        event_time += 1_000 * dice.randrange(3)
        category = dice.randrange(len(CATEGORIES))
        code, brands = CATEGORIES[category]
        user, session = dice.choice(visits)
        yield {
            "eventTime": event_time,
            "eventType": dice.choices(KINDS, KIND_SHARES)[0],
            "productId": dice.randrange(1_000_000, 45_000_000),
            "categoryId": 2_053_013_552_326_770_905 + category * 7_919_191_919,
            "categoryCode": code,
            "brand": dice.choice(brands),
            "price": round(dice.uniform(1, 1_500), 2),
            "userid": user,
            "userSession": str(session),
        }
