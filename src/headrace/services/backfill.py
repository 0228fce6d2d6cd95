"""Backfill: what a pipeline has read of a topic and its tables lack, found as `reconcile` finds it.

Finding needs no Spark and writes nothing; putting back does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.clients import Admin, Connection, Reader
from headrace.model import AtOffset
from headrace.observe import Progress, Silent
from headrace.services.delta_tables import (
    as_if_forgotten,
    forget_lost_files,
    has_table,
    lost_files,
)
from headrace.services.reconcile_places import Run, Walk
from headrace.services.reconcile_sources import (
    COMMITTED,
    ReconcileOptions,
    Tables,
    find_tables,
    refuse_other_topic,
    row_id_of,
)
from headrace.services.replay import Span, Wish, parse_bound, resolve
from headrace.spark.pipelines.checkpoints import Ranges
from headrace.spark.pipelines.definition import DEAD_LETTERS

if TYPE_CHECKING:
    from headrace.spark.pipelines.backfilling import PutBack


@dataclass(frozen=True)
class BackfillPlan:
    """Records that are in no table, as runs of a partition; and files of tables that are gone."""

    wish: Wish
    runs: Sequence[Run]
    lost: Mapping[str, Sequence[str]]
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return sum(run.size for run in self.runs)

    @property
    def is_empty(self) -> bool:
        return not self.runs and not self.lost

    @property
    def hull(self) -> Ranges:
        """From the first to the last of each partition."""
        found: dict[str, Span] = {}
        for run in self.runs:
            begin, end = found.get(str(run.partition), (run.first, run.last + 1))
            found[str(run.partition)] = min(begin, run.first), max(end, run.last + 1)
        return {self.wish.topic: found}

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.wish.topic,
            "pipeline": self.wish.pipeline.name,
            "lake": self.wish.lake,
            "ranges": [
                {"partition": p, "from": first, "to": last + 1, "records": size}
                for p, first, last, size in self.runs
            ],
            "records": self.total,
            "lost_files": {table: list(files) for table, files in self.lost.items()},
            "notes": list(self.notes),
        }


def plan_backfill(
    wish: Wish, connection: Connection, progress: Progress | None = None
) -> BackfillPlan:
    """Find what is missing. Reads only."""
    admin = Admin(connection)
    admin.topic(wish.topic)
    lost = _lost(wish)
    with as_if_forgotten(wish.lake, lost) as lake:
        name, rows = wish.pipeline.name, wish.pipeline.rows.name
        found = find_tables(ReconcileOptions(wish.topic, lake, name, table=rows))
        refuse_other_topic(admin, wish.topic, found.standing)
        spans, notes = _spans(admin, wish, found)
        runs = _missing(connection, wish.topic, found, spans, progress or Silent())
    return BackfillPlan(wish, runs, lost, tuple(notes))


def execute_backfill(
    plan: BackfillPlan,
    connection: Connection,
    progress: Progress | None = None,
    *,
    master: str | None = None,
) -> "PutBack":
    """Put back what the plan found. Files that are gone are taken out of their table's log first:
    nothing could read it else."""
    from headrace.spark.pipelines.backfilling import BackfillOptions, PutBack, backfill
    from headrace.spark.pipelines.holding import held

    with held(plan.wish.lake, plan.wish.pipeline.name):
        for table in plan.lost:
            forget_lost_files(Path(plan.wish.lake) / table)
    if not plan.runs:
        return PutBack()
    options = BackfillOptions(plan.wish.pipeline, plan.wish.lake, plan.hull, master)
    return backfill(options, connection, progress)


def _lost(wish: Wish) -> dict[str, list[str]]:
    names = (wish.pipeline.rows.name, DEAD_LETTERS)
    paths = [path for name in names if has_table(path := Path(wish.lake) / name)]
    return {path.name: files for path in paths if (files := lost_files(path))}


def _spans(admin: Admin, wish: Wish, found: Tables) -> tuple[dict[int, Span], list[str]]:
    """What the pipeline has read of what was asked for, and what of it the topic still has."""
    asked = resolve(admin, wish.topic, parse_bound(wish.begin), parse_bound(wish.end))
    everything = resolve(admin, wish.topic, parse_bound("earliest"), parse_bound("latest"))
    spans, notes = {}, []
    read = found.standing.ranges.get(wish.topic, {})
    for number, (begin, end) in asked.spans.items():
        first, last = read.get(str(number), (begin, begin))
        spans[number] = max(begin, first), min(end, last)
        kept = everything.spans[number][0]
        if kept > first:
            notes.append(
                f"offsets {first} to {kept - 1} of {wish.topic}[{number}] were removed by "
                "retention: what is missing of them cannot be put back"
            )
    return spans, notes


def _missing(
    connection: Connection,
    topic: str,
    found: Tables,
    spans: Mapping[int, Span],
    progress: Progress,
) -> Sequence[Run]:
    begins, ends = ({p: span[side] for p, span in spans.items()} for side in (0, 1))
    walk = Walk(found.places(topic), begins, ends)
    offsets = sum(max(0, end - begin) for begin, end in spans.values())
    progress.begin(f"comparing {topic} with {found.rows.name}", offsets, "records")
    for partition, (begin, end) in spans.items():
        if begin < end:
            _walk(walk, _reader(connection, topic, partition, begin), end, progress)
    progress.end()
    return walk.end(found.known_rows, {}).missing


def _reader(connection: Connection, topic: str, partition: int, begin: int) -> Reader:
    return Reader(
        topic,
        connection=connection,
        partition=partition,
        start=AtOffset(begin),
        settings=dict(COMMITTED),
    )


def _walk(walk: Walk, opened: Reader, end: int, progress: Progress) -> None:
    with opened as reader:
        for batch in reader.batches(10_000):
            for record in batch:
                walk.take(record.partition, record.offset, row_id_of(record))
            progress.advance(len(batch))
            if batch[-1].offset >= end - 1:
                return
