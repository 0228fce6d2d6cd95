"""Puts back what a pipeline has read and its tables lack: rows deleted by hand, files lost.

1. Records of the ranges are decoded again; those whose place is in the table of rows or among the
   dead letters, and duplicates, are left out.
2. Bad ones are appended to the dead letters (not to their topic, where they were sent).
3. Good ones are appended to the table of rows. The commit says where the pipeline stands, as the
   one before it did, but in the next generation.
4. Derived tables are of an older generation then: mending makes them anew from the rows.

Cut short after 2, the next run finds them in their place. Cut short after 3, whatever runs next on
these tables does 4.
"""

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.clients import Admin, Connection
from headrace.errors import BadInput
from headrace.observe import Progress, Silent
from headrace.spark.pipelines.accounts import Standing
from headrace.spark.pipelines.batch import Batches
from headrace.spark.pipelines.checkpoints import Checkpoint, Ranges
from headrace.spark.pipelines.cutting import Cuts
from headrace.spark.pipelines.decoding import REASON, reader_of
from headrace.spark.pipelines.definition import DEAD_LETTERS, Pipeline
from headrace.spark.pipelines.fields import KAFKA_COLUMNS
from headrace.spark.pipelines.holding import CHECKPOINTS
from headrace.spark.pipelines.lake import Commit, Lake
from headrace.spark.pipelines.mending import made_of_rows, mend
from headrace.spark.pipelines.replaying import read_ranges, tables_held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLACE = KAFKA_COLUMNS[:3]


@dataclass(frozen=True)
class BackfillOptions:
    """From which ranges what is missing is put back, and into whose tables."""

    pipeline: Pipeline
    lake: str
    ranges: Ranges
    master: str | None = None


@dataclass(frozen=True)
class PutBack:
    """What a run has put back."""

    rows: int = 0
    dead: int = 0


def backfill(
    options: BackfillOptions, connection: Connection, progress: Progress | None = None
) -> PutBack:
    """Put back what is missing; again, there is nothing to do."""
    told = progress or Silent()
    with tables_held(options, connection, told) as spark:
        return _run(spark, options, connection, told)


def _run(
    spark: "SparkSession", options: BackfillOptions, connection: Connection, progress: Progress
) -> PutBack:
    pipeline, lake = options.pipeline, Lake(spark, options.lake)
    _refuse_open(pipeline, Checkpoint(spark, f"{lake.folder}/{CHECKPOINTS}/{pipeline.name}"), lake)
    standing = mend(pipeline, lake, None, progress)
    for table in pipeline.derived:  # what 4. could not do is refused before anything is written
        made_of_rows(table, pipeline, lake.read(pipeline.rows.name), lake)
    lacking = _Lacking(pipeline, lake, standing, connection)
    found = lacking.put_back(read_ranges(spark, connection, options.ranges), progress)
    if found.rows:
        mend(pipeline, lake, None, progress)  # 4.
    return found


def _refuse_open(pipeline: Pipeline, checkpoint: Checkpoint, lake: Lake) -> None:
    """A stream that was stopped in a batch knows what it has sent of it, until tables change."""
    info = lake.last_info(pipeline.rows.name, pipeline.name)
    standing = Standing() if info is None else Standing.from_json(info["so_far"])
    open_batch = checkpoint.open_batch
    if open_batch is not None and not standing.includes(open_batch):
        raise BadInput(
            f"pipeline {pipeline.name} was stopped in the middle of a batch",
            hint="let it finish first: headrace stream ... --once",
        )


class _Lacking(Batches):
    """Decodes records as batches do, and writes what tables lack of them."""

    def __init__(
        self, pipeline: Pipeline, lake: Lake, standing: Standing, connection: Connection
    ) -> None:
        nothing, topic_id = Cuts({}, {}, 1), Admin(connection).topic_id
        super().__init__(
            *(pipeline, lake, nothing, standing, None, topic_id, lambda _done: None),
            reader_of(pipeline.source, connection),
        )
        self.check_topic()

    def put_back(self, records: "DataFrame", progress: Progress) -> PutBack:
        try:
            lonely, facts = self._look_at(lambda: self._without_known(self._decoded(records)))  # 1.
            self._refuse_unmet(facts)
            fresh, duplicates = self._without_duplicates(
                lonely.where(F.col(REASON).isNull()), facts
            )
            found = PutBack(facts.rows - facts.dead - duplicates, facts.dead)
            progress.step(f"putting back {found.rows:,} rows and {found.dead:,} dead letters")
            commit = self._next(found)
            if found.dead:
                bad = lonely.where(F.col(REASON).isNotNull())
                self._append_dead(bad, found.dead, commit)  # 2.
            if found.rows:
                self._append_rows(fresh, found.rows, commit)  # 3.
            return found
        finally:
            self._kept.release()

    def _without_known(self, rows: "DataFrame") -> "DataFrame":
        """Records whose place is in no table."""
        known = self._lake.read(self._pipeline.rows.name).select(*_PLACE)
        if self._lake.has(DEAD_LETTERS):
            dead = self._lake.read(DEAD_LETTERS).where(F.col("pipeline") == self._pipeline.name)
            known = known.unionByName(dead.select(*_PLACE))
        return rows.join(known, list(_PLACE), "left_anti")

    def _next(self, found: PutBack) -> Commit:
        """Of a name that Delta has never seen: it would pass over a second one."""
        after = replace(self.standing, generation=self.standing.generation + 1)
        info = {
            "pipeline": self._pipeline.name,
            "time": self._pipeline.time,
            "put_back": vars(found),
            "so_far": after.to_json(),
        }
        app = f"headrace/{self._pipeline.name}/backfill/{uuid.uuid4().hex}"
        return Commit(app, after.position, info)
