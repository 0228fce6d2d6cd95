"""A topic forgets whole old segments; who fell behind misses them, and nobody else is hurt.

A record's age is counted from its timestamp, so yesterday's records need no waiting: they are
sent with yesterday's time. Two groups read. One is quick and has everything; the other stops
early. Then the topic is told, while it works, to keep one minute only. Segments in which even the
newest record is older go, from the log and from the disk, whoever has not read them. A segment
that holds one young record stays, with the old ones in it.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

from headrace.clients import Producer, Reader
from headrace.labs.stage import Stage
from headrace.model import Earliest, Record, TopicPartition

NEEDS_FAULTS = True
YESTERDAY = 600
TODAY = 200
READ_BY_THE_SLOW = 100
RECORD_BYTES = 10_000
KEEP_MS = 60_000
DAY_MS = 24 * 60 * 60 * 1000
SETTINGS = {
    "retention.ms": "-1",
    "segment.bytes": str(1 << 20),  # the smallest that Kafka 4 takes
    "file.delete.delay.ms": "100",
}


@dataclass(frozen=True)
class Segment:
    """A segment's first offset and its size on disk."""

    begin: int
    bytes: int


@dataclass
class Visits:
    """The offsets that a group read before the topic forgot, and after."""

    first: list[int]
    later: list[int] = field(default_factory=list)

    @property
    def missed(self) -> int:
        return YESTERDAY + TODAY - len(set(self.first + self.later))

    def row(self, group: str) -> dict[str, object]:
        return {
            "group": group,
            "read before": len(self.first),
            "went on at": self.later[0] if self.later else None,
            "read after": len(self.later),
            "missed": self.missed,
        }


def run(stage: Stage) -> None:
    topic = stage.topic("short_memory", 1, configs=SETTINGS)
    slow_group, fast_group = stage.group("slow"), stage.group("fast")
    leader = stage.admin.topic(topic).partitions[0].leader or 1
    folder = stage.cluster.data_folder(leader) / f"{topic}-0"

    stage.say(f"sending {YESTERDAY} records of yesterday")
    send(stage, topic, YESTERDAY, age_ms=DAY_MS)
    slow = Visits(read(stage, topic, slow_group, at_most=READ_BY_THE_SLOW))
    fast = Visits(read(stage, topic, fast_group))
    stage.say(f"sending {TODAY} records of today")
    send(stage, topic, TODAY, age_ms=0)
    before = segments(folder)

    stage.say(f"telling the topic to keep {KEEP_MS // 1000} s only")
    stage.admin.set_configs(topic, {"retention.ms": str(KEEP_MS)})
    waited = stage.wait_until(lambda: earliest(stage, topic) > 0, "the earliest offset moves", 30)
    begin = earliest(stage, topic)
    stage.wait_until(lambda: not files_before(folder, begin), "old files are off the disk", 30)
    after = segments(folder)

    slow.later = read(stage, topic, slow_group)
    fast.later = read(stage, topic, fast_group)
    stage.fact("earliest offset before", before[0].begin)
    stage.fact("earliest offset after", begin)
    stage.fact("seconds until it moved", round(waited, 1))
    tell_segments(stage, before, after)
    judge_segments(stage, begin, before, after)
    judge_groups(stage, begin, slow, fast)


def send(stage: Stage, topic: str, count: int, age_ms: int) -> None:
    timestamp = time.time_ns() // 1_000_000 - age_ms
    # Small plain batches: a segment is closed between batches, and its size is what was sent.
    settings = {"batch.size": 100_000, "compression.type": "none"}
    with Producer(stage.connection, settings) as producer:
        for _ in range(count):
            producer.send(topic, bytes(RECORD_BYTES), timestamp=timestamp)


def read(stage: Stage, topic: str, group: str, at_most: int | None = None) -> list[int]:
    """Read on as this group, to the end or so many records, and commit; which offsets it read."""
    records: list[Record] = []
    with Reader(topic, connection=stage.connection, group=group) as reader:
        for batch in reader.batches():
            records += batch
            if at_most is not None and len(records) >= at_most:
                break
        records = records[:at_most]
        reader.commit(records)
    return [record.offset for record in records]


def earliest(stage: Stage, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    return stage.admin.offsets([partition], Earliest())[partition]


def segments(folder: Path) -> list[Segment]:
    """The segments on disk, oldest first."""
    return [Segment(int(file.stem), file.stat().st_size) for file in sorted(folder.glob("*.log"))]


def files_before(folder: Path, offset: int) -> list[str]:
    """Files of segments that begin before this offset, those already marked as deleted too."""
    named = (file.name for file in folder.glob("*.*") if file.name[:20].isdigit())
    return [name for name in named if int(name[:20]) < offset]


def tell_segments(stage: Stage, before: list[Segment], after: list[Segment]) -> None:
    kept = {segment.begin for segment in after}
    ends = [segment.begin for segment in before[1:]] + [YESTERDAY + TODAY]
    table = [
        {
            "segment": f"{segment.begin:020}.log",
            "bytes": segment.bytes,
            "yesterday's": max(0, min(end, YESTERDAY) - segment.begin),
            "today's": max(0, end - max(segment.begin, YESTERDAY)),
            "on disk after": segment.begin in kept,
        }
        for segment, end in zip(before, ends, strict=True)
    ]
    stage.fact("segments", table)


def judge_segments(stage: Stage, begin: int, before: list[Segment], after: list[Segment]) -> None:
    begins = [segment.begin for segment in before]
    # The newest segment that begins with yesterday's records may hold some of today's as well.
    youngest = max(offset for offset in begins if offset <= YESTERDAY)
    stage.check("the log stood in several segments", len(before) > 3)
    stage.check("the earliest offset moved to the first segment of today", begin == youngest > 0)
    stage.check(
        "the files of old segments are gone, the others are there",
        [segment.begin for segment in after] == [b for b in begins if b >= youngest],
    )


def judge_groups(stage: Stage, begin: int, slow: Visits, fast: Visits) -> None:
    end = YESTERDAY + TODAY
    stopped = slow.first[-1] + 1
    stage.fact("groups", [fast.row("fast"), slow.row("slow")])
    stage.check("the fast group has every record", fast.first + fast.later == list(range(end)))
    stage.check(
        f"the slow group had stopped at {stopped} and goes on at the new earliest offset",
        slow.later[:1] == [begin] and begin > stopped,
    )
    stage.check(
        f"it missed the {slow.missed} records that were forgotten, and no other",
        slow.later == list(range(begin, end)) and slow.missed == begin - stopped,
    )
