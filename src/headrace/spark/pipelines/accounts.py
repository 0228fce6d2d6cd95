"""What happened to records: of one batch, and since the beginning. Plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from headrace.model import TopicPartition
from headrace.spark.pipelines.checkpoints import Offsets, Ranges


@dataclass(frozen=True)
class Counts:
    """Every record that came in is a row, a dead letter or a duplicate.

    `late` counts rows by table: they are among `rows_out`. `unmet` counts by expectation, before
    duplicates are removed.
    """

    rows_in: int = 0
    rows_out: int = 0
    rows_dead: int = 0
    duplicates: int = 0
    late: Mapping[str, int] = field(default_factory=dict)
    unmet: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.rows_in + other.rows_in,
            self.rows_out + other.rows_out,
            self.rows_dead + other.rows_dead,
            self.duplicates + other.duplicates,
            _added(self.late, other.late),
            _added(self.unmet, other.unmet),
        )

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "late": dict(self.late), "unmet": dict(self.unmet)}


@dataclass(frozen=True)
class Replay:
    """A bounded range: as it was asked for (from, to), and the offsets that it came to."""

    asked: tuple[str, str]
    ranges: Ranges

    def to_json(self) -> dict[str, Any]:
        return {"asked": self.asked, "ranges": self.ranges}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Replay":
        begin, end = document["asked"]
        return cls((begin, end), _ranges(document["ranges"]))


@dataclass(frozen=True)
class Standing:
    """Where a pipeline stands: what its table of rows knows after a batch."""

    counts: Counts = Counts()
    ranges: Ranges = field(default_factory=dict)
    newest: datetime | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    generation: int = 0  # how often tables had to be made anew
    replay: Replay | None = None  # what the tables were begun for, if not for a stream

    @property
    def position(self) -> int:
        """A number that grows with every batch."""
        return sum(end for places in self.ranges.values() for _, end in places.values())

    def after(self, counts: Counts, ranges: Ranges, newest: datetime | None) -> "Standing":
        """The standing after one more batch."""
        times = [time for time in (self.newest, newest) if time is not None]
        return replace(
            self,
            counts=self.counts + counts,
            ranges=joined(self.ranges, ranges),
            newest=max(times, default=None),
        )

    @property
    def ends(self) -> Offsets:
        """Where the next batch begins."""
        return ends_of(self.ranges)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The same, by partition."""
        return {
            TopicPartition(topic, int(partition)): end
            for topic, places in self.ranges.items()
            for partition, (_, end) in places.items()
        }

    def follows(self, ranges: Ranges) -> bool:
        """Whether these ranges begin where this ends; partitions may be new."""
        return all(
            self.ends.get(topic, {}).get(partition, begin) == begin
            for topic, places in ranges.items()
            for partition, (begin, _) in places.items()
        )

    def includes(self, ranges: Ranges) -> bool:
        """Whether all of these ranges are behind it."""
        return all(
            end <= self.ends.get(topic, {}).get(partition, 0)
            for topic, places in ranges.items()
            for partition, (_, end) in places.items()
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "counts": self.counts.to_json(),
            "ranges": self.ranges,
            "newest": None if self.newest is None else self.newest.isoformat(),
            "topic_ids": self.topic_ids,
            "generation": self.generation,
            "replay": None if self.replay is None else self.replay.to_json(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Standing":
        newest, replay = document["newest"], document.get("replay")
        return cls(
            Counts(**document["counts"]),
            _ranges(document["ranges"]),
            None if newest is None else datetime.fromisoformat(newest),
            _topic_ids(document),
            document["generation"],
            None if replay is None else Replay.from_json(replay),
        )


def joined(before: Ranges, after: Ranges) -> Ranges:
    """From the beginning of one to the end of the other.

    >>> joined({"clicks": {"0": (0, 5)}}, {"clicks": {"0": (5, 9), "1": (0, 2)}})
    {'clicks': {'0': (0, 9), '1': (0, 2)}}
    """
    merged = {topic: dict(places) for topic, places in before.items()}
    for topic, places in after.items():
        known = merged.setdefault(topic, {})
        for partition, (begin, end) in places.items():
            known[partition] = (known.get(partition, (begin, end))[0], end)
    return merged


def ends_of(ranges: Ranges) -> Offsets:
    """Where the next batch begins.

    >>> ends_of({"clicks": {"0": (3, 7)}})
    {'clicks': {'0': 7}}
    """
    return {
        topic: {partition: end for partition, (_, end) in places.items()}
        for topic, places in ranges.items()
    }


def _ranges(document: Mapping[str, Any]) -> Ranges:
    return {
        topic: {p: (begin, end) for p, (begin, end) in places.items()}
        for topic, places in document.items()
    }


def _topic_ids(document: Mapping[str, Any]) -> dict[str, str]:
    """The id of each topic; commits of old have one only, of their one topic."""
    if (ids := document.get("topic_ids")) is not None:
        return dict(ids)
    found = document["topic_id"]
    return {} if found is None else dict.fromkeys(document["ranges"], found)


def in_utc(time: datetime | None) -> datetime | None:
    """A time as PySpark gives it, which is without a zone and in this machine's."""
    return None if time is None else time.astimezone(UTC)


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
