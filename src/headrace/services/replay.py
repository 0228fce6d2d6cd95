"""A bounded range of a topic through a pipeline: what it comes to, and its execution.

`--from` is included, `--to` is excluded. Both become offsets of each partition once, within what
the topic has; a replay that goes on keeps the offsets that it began with.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.clients import Admin, Connection
from headrace.clients.counting import count_records
from headrace.errors import BadInput
from headrace.model import (
    AtOffset,
    AtTime,
    Earliest,
    Latest,
    Position,
    TopicPartition,
    parse_position,
)
from headrace.observe import Progress, Silent
from headrace.services.delta_tables import Snapshot, has_table
from headrace.spark.pipelines import Pipeline
from headrace.spark.pipelines.accounts import Replay, Standing
from headrace.spark.pipelines.cutting import continued
from headrace.spark.pipelines.definition import DEAD_LETTERS
from headrace.spark.pipelines.fields import ValueKind, value_as

if TYPE_CHECKING:
    from headrace.spark.pipelines.batch import BatchDone
    from headrace.spark.pipelines.runner import StreamResult

_BY_PARTITION = re.compile(r"\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18})*", re.ASCII)

# One position for all partitions, or offsets of some.
Bound = Position | dict[int, int]
Span = tuple[int, int]  # the end is excluded


def parse_bound(text: str) -> Bound:
    """A position as `consume --from` takes it, or offsets by partition.

    >>> parse_bound("0:100,1:250")
    {0: 100, 1: 250}
    >>> parse_bound("earliest")
    Earliest()
    """
    if not _BY_PARTITION.fullmatch(text):
        return parse_position(text)
    pairs = [each.split(":") for each in text.split(",")]
    found = {int(partition): int(offset) for partition, offset in pairs}
    if len(found) < len(pairs):
        raise BadInput(f"{text!r} names a partition twice", hint="give each one offset")
    return found


def of_topic(
    pipeline: Pipeline, topic: str, value: ValueKind | None = None, *, alone: bool = True
) -> Pipeline:
    """The same pipeline from this topic; not `alone`, with its others if it is one of them.
    `value` is another kind of values."""
    names = pipeline.source.names
    others = () if alone or topic not in names else tuple(n for n in names if n != topic)
    source = replace(pipeline.source, name=topic, also=others)
    if value is not None:
        source = replace(source, value=value_as(source.value, value))
    return replace(pipeline, source=source)


# --- resolving ---


@dataclass(frozen=True)
class Kept:
    """What a partition has now, and where a range would begin and end in it."""

    earliest: int
    end: int
    begin_wanted: int
    end_wanted: int

    @property
    def span(self) -> Span:
        begin = min(max(self.begin_wanted, self.earliest), self.end)
        return begin, max(begin, min(self.end_wanted, self.end))


@dataclass(frozen=True)
class Resolved:
    """Offsets by partition, and what is worth knowing of them."""

    spans: Mapping[int, Span]
    notes: tuple[str, ...] = ()


def resolve(admin: Admin, topic: str, begin: Bound, end: Bound) -> Resolved:
    """Positions to offsets, within what the topic still has and what is committed."""
    known = [partition.id for partition in admin.topic(topic).partitions]
    numbers = _named(topic, known, begin, end)
    places = [TopicPartition(topic, number) for number in numbers]
    earliest = admin.offsets(places, Earliest())
    ends = admin.offsets(places, Latest(), committed=True)
    begins_wanted, ends_wanted = (_offsets(admin, places, bound) for bound in (begin, end))
    found = {
        at.partition: Kept(earliest[at], ends[at], begins_wanted[at], ends_wanted[at])
        for at in places
    }
    notes = [note for p, kept in found.items() for note in _notes(f"{topic}[{p}]", kept, begin)]
    return Resolved({p: kept.span for p, kept in found.items()}, tuple(notes))


def _named(topic: str, known: list[int], *bounds: Bound) -> list[int]:
    """The partitions that are meant: all, or those that a bound names."""
    named = [set(bound) for bound in bounds if isinstance(bound, dict)]
    for unknown in sorted(set[int]().union(*named) - set(known)):
        raise BadInput(
            f"topic {topic} has no partition {unknown}",
            hint=f"its partitions are {known[0]} to {known[-1]}",
        )
    for lonely in sorted(set[int]().union(*named) - set(known).intersection(*named)):
        raise BadInput(
            f"partition {lonely} is in one of --from and --to only",
            hint="name the same partitions in both, or give one of them a single position",
        )
    return sorted(set(known).intersection(*named))


def _offsets(
    admin: Admin, places: list[TopicPartition], bound: Bound
) -> Mapping[TopicPartition, int]:
    if isinstance(bound, dict):
        return {at: bound[at.partition] for at in places}
    if isinstance(bound, AtOffset):
        return dict.fromkeys(places, bound.offset)
    return admin.offsets(places, bound, committed=True)


def _notes(where: str, kept: Kept, begin: Bound) -> Iterator[str]:
    gone = min(kept.earliest, kept.end_wanted)
    if kept.begin_wanted < gone:
        yield f"offsets {kept.begin_wanted} to {gone - 1} of {where} were removed by retention"
    elif isinstance(begin, AtTime) and kept.begin_wanted == kept.earliest > 0:
        yield (
            f"offsets before {kept.earliest} of {where} were removed by retention: some of them "
            "may have been of that time"
        )
    if kept.end_wanted > kept.end:
        yield f"{where} ends at {kept.end}, not at {kept.end_wanted}"


# --- the plan ---


@dataclass(frozen=True)
class Wish:
    """What was asked for."""

    topic: str
    begin: str
    end: str
    pipeline: Pipeline
    lake: str


@dataclass(frozen=True)
class Plan:
    """What a replay comes to; `done` are records that the lake has from an earlier run of it."""

    wish: Wish
    replay: Replay
    records: Mapping[int, int]
    done: int = 0
    notes: tuple[str, ...] = ()

    @property
    def spans(self) -> dict[int, Span]:
        return {int(p): span for p, span in self.replay.ranges[self.wish.topic].items()}

    @property
    def is_empty(self) -> bool:
        return not any(begin < end for begin, end in self.spans.values())

    @property
    def total(self) -> int:
        return sum(self.records.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.wish.topic,
            "pipeline": self.wish.pipeline.name,
            "lake": self.wish.lake,
            "ranges": [
                {"partition": p, "from": begin, "to": end, "records": self.records[p]}
                for p, (begin, end) in sorted(self.spans.items())
            ],
            "records": self.total,
            "done": self.done,
            "notes": list(self.notes),
        }


def plan_replay(wish: Wish, connection: Connection, progress: Progress | None = None) -> Plan:
    """Count what a replay would read. Starts no Spark, and writes nothing."""
    admin = Admin(connection)
    found = resolve(admin, wish.topic, parse_bound(wish.begin), parse_bound(wish.end))
    ranges = {wish.topic: {str(p): span for p, span in found.spans.items()}}
    wanted = Replay((wish.begin, wish.end), ranges)
    standing = _begun(wish)
    replay = continued(wanted, standing, wish.lake)
    notes = found.notes
    if replay != wanted:
        notes = (f"{wish.lake} was begun by the same replay: its range counts",)
    spans = {int(p): span for p, span in replay.ranges[wish.topic].items()}
    counts = count(connection, wish.topic, spans, progress or Silent())
    return Plan(wish, replay, counts, min(_done(wish), sum(counts.values())), notes)


def count(
    connection: Connection, topic: str, spans: Mapping[int, Span], progress: Progress
) -> dict[int, int]:
    """Records of each partition's range, as far as the topic still has them."""
    at = {p: TopicPartition(topic, p) for p in spans}
    earliest = Admin(connection).offsets(at.values(), Earliest())
    ranges = {at[p]: (max(begin, earliest[at[p]]), end) for p, (begin, end) in spans.items()}
    offsets = sum(max(0, end - begin) for begin, end in ranges.values())
    progress.begin(f"counting {topic}", offsets, "records")
    try:
        counts = count_records(connection, ranges, progress.advance)
    finally:
        progress.end()
    return {place.partition: found for place, found in counts.items()}


def _begun(wish: Wish) -> Standing | None:
    """What the lake's tables say, if it is a folder of this machine; Spark asks again."""
    names = (*(table.name for table in wish.pipeline.tables), DEAD_LETTERS)
    return next((found for name in names if (found := _said(wish, name)) is not None), None)


def _done(wish: Wish) -> int:
    """Records that are behind the table of rows; others may be ahead of it, by a batch that was cut
    short and comes again."""
    standing = _said(wish, wish.pipeline.rows.name)
    return 0 if standing is None else standing.counts.rows_in


def _said(wish: Wish, table: str) -> Standing | None:
    """What the pipeline last said in a table; where it was mended before any batch was done, the
    commit says nothing of what it was begun for."""
    path = Path(wish.lake) / table
    if "://" in wish.lake or not has_table(path):
        return None
    own = (info for info in Snapshot(path).infos() if info["pipeline"] == wish.pipeline.name)
    standings = (Standing.from_json(info["so_far"]) for info in own)
    return next((each for each in standings if each.ranges or each.replay), None)


# --- doing it ---


@dataclass(frozen=True)
class Doing:
    """How it is done."""

    records_per_batch: int
    master: str | None = None
    on_batch: "Callable[[BatchDone], None] | None" = field(default=None, compare=False)


def execute_replay(
    plan: Plan, doing: Doing, connection: Connection, progress: Progress | None = None
) -> "StreamResult":
    """Run the plan on Spark; what an earlier run has done is not done again."""
    from headrace.spark.pipelines.replaying import ReplayOptions, replay
    from headrace.spark.pipelines.runner import StreamResult

    if plan.is_empty:
        return StreamResult()
    options = ReplayOptions(
        plan.wish.pipeline,
        plan.wish.lake,
        plan.replay,
        plan.total,
        doing.records_per_batch,
        doing.master,
    )
    return replay(options, connection, progress, on_batch=doing.on_batch)
