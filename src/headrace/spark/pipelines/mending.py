"""Tables in step with the table of rows, before a pipeline goes on.

The table of rows is the truth. A derived table that is ahead of it (a batch was cut short, and its
checkpoint is lost), behind it, new, or defined in another way is made anew from the rows. What
late rows and dead letters are beyond it is deleted: it comes again.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812

from headrace.errors import BadInput, ConfigError
from headrace.observe import Progress
from headrace.spark.pipelines.accounts import Standing, joined
from headrace.spark.pipelines.checkpoints import Ranges
from headrace.spark.pipelines.decoding import decoding_of, types_of
from headrace.spark.pipelines.definition import DEAD_LETTERS, Derived, Pipeline, Totals
from headrace.spark.pipelines.deriving import derive, sums_that_fit
from headrace.spark.pipelines.fields import KAFKA_COLUMNS, RESERVED
from headrace.spark.pipelines.lake import Commit, Lake, fingerprint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def standing_of(pipeline: Pipeline, lake: Lake) -> Standing:
    """What the table of rows says, from the last batch that counts."""
    info = _info(pipeline, lake, pipeline.rows.name)
    if info is None:
        return Standing()
    standing = Standing.from_json(info["so_far"])
    # The newest time of another column says nothing about which row is late.
    return standing if _same_time(info, pipeline) else replace(standing, newest=None)


def mend(pipeline: Pipeline, lake: Lake, open_batch: Ranges | None, progress: Progress) -> Standing:
    """Bring every table in step; returns where the pipeline stands."""
    standing = standing_of(pipeline, lake)
    pending: Ranges | None = None
    if open_batch is not None and standing.follows(open_batch):
        pending = joined(standing.ranges, open_batch)
    infos = {table.name: _info(pipeline, lake, table.name) for table in pipeline.derived}
    sides = {name: lake.last_info(name, pipeline.name) for name in _side_tables(pipeline)}
    steps = _Steps(standing, pending, decoding_of(pipeline))
    wrong = [t for t in pipeline.derived if not _in_step(pipeline, t, infos[t.name], steps)]
    beyond = [name for name, info in sides.items() if _is_beyond(info, steps)]
    known = [info["so_far"]["generation"] for info in (*infos.values(), *sides.values()) if info]
    generation = max([standing.generation, *known])
    # Delta has seen batches that are to come again: they come under another name.
    standing = replace(standing, generation=generation + bool(wrong or beyond))
    for table in wrong:
        progress.step(f"making table {table.name} anew from {pipeline.rows.name}")
        _remake(table, pipeline, lake, standing)
    for name in beyond:
        owner = f"pipeline = '{pipeline.name}' AND " if name == DEAD_LETTERS else ""
        condition = f"{owner}NOT ({_not_beyond(standing)})"
        lake.delete(name, condition, _commit(pipeline, standing))
    return standing


def _side_tables(pipeline: Pipeline) -> list[str]:
    late = [t.late_name for t in pipeline.derived if isinstance(t, Totals) and t.late]
    return [*late, DEAD_LETTERS]


class _Steps(NamedTuple):
    """Where tables may stand: where the rows do, or one batch ahead, which is to be run again. If
    it would come to other verdicts then, what was written of it must not stay."""

    standing: Standing
    pending: Ranges | None
    decoding: str

    def has_pending(self, info: dict[str, Any], ranges: Ranges) -> bool:
        return ranges == self.pending and info.get("decoding") == self.decoding


def _is_beyond(info: dict[str, Any] | None, steps: _Steps) -> bool:
    if info is None:
        return False
    theirs = Standing.from_json(info["so_far"]).ranges
    return not steps.standing.includes(theirs) and not steps.has_pending(info, theirs)


def _commit(pipeline: Pipeline, standing: Standing) -> Commit:
    info = {"pipeline": pipeline.name, "time": pipeline.time, "so_far": standing.to_json()}
    return Commit(pipeline.name, standing.position, info)


def _info(pipeline: Pipeline, lake: Lake, table: str) -> dict[str, Any] | None:
    """What a table's last commit says, if there is the table. Somebody else's is refused: it must
    not be made anew."""
    info = lake.last_info(table)
    if info is None:
        whose = "is a table, but no pipeline's" if lake.has(table) else None
    else:
        owner = info["pipeline"]
        whose = f"belongs to pipeline {owner!r}" if owner != pipeline.name else None
    if whose is not None:
        raise BadInput(
            f"{lake.path(table)} {whose}",
            hint=f"give pipeline {pipeline.name!r} a folder of its own with --lake",
        )
    return info


def _same_time(info: dict[str, Any], pipeline: Pipeline) -> bool:
    """Whether a commit was made by the time that the pipeline goes by. One that does not tell is
    believed."""
    return bool(info.get("time", pipeline.time) == pipeline.time)


def _in_step(
    pipeline: Pipeline, table: Derived, info: dict[str, Any] | None, steps: _Steps
) -> bool:
    standing = steps.standing
    if info is None:
        return not standing.ranges
    if info["definition"] != fingerprint(table) or not _same_time(info, pipeline):
        return False
    theirs = Standing.from_json(info["so_far"])
    # Rows that were put back into the table of rows are of a generation that others must follow.
    if theirs.generation < standing.generation:
        return False
    return theirs.ranges == standing.ranges or steps.has_pending(info, theirs.ranges)


def _remake(table: Derived, pipeline: Pipeline, lake: Lake, standing: Standing) -> None:
    commit = _commit(pipeline, standing).of(table)
    if not lake.has(pipeline.rows.name):
        lake.overwrite(table.name, lake.read(table.name).limit(0), commit)
        return
    rows = lake.read(pipeline.rows.name)
    if isinstance(table, Totals) and table.late and lake.has(table.late_name):
        place = list(KAFKA_COLUMNS[:3])
        rows = rows.join(lake.read(table.late_name).select(*place), place, "left_anti")
    with sums_that_fit(table):
        lake.overwrite(table.name, made_of_rows(table, pipeline, rows, lake), commit)


def made_of_rows(table: Derived, pipeline: Pipeline, rows: "DataFrame", lake: Lake) -> "DataFrame":
    """A derived table, of the table of rows: which may lack a column that it needs."""
    try:
        return derive(table, _with_new_columns(pipeline, rows, lake), pipeline.time or "")
    except AnalysisException as error:
        raise ConfigError(
            f"table {table.name} cannot be made from {pipeline.rows.name}: {error}".splitlines()[0],
            hint="the table of rows must keep the columns that it needs: Rows(columns=...)",
        ) from error


def _with_new_columns(pipeline: Pipeline, rows: "DataFrame", lake: Lake) -> "DataFrame":
    """Columns that the pipeline has got since are null in older rows; the table has them from the
    next batch on."""
    there = {name.lower() for name in rows.columns}
    kept = pipeline.rows.columns or [n for n in pipeline.columns if n not in RESERVED]
    new = [name for name in kept if name.lower() not in there]
    if not new:
        return rows
    types = types_of(pipeline, lake.read_lookup, rows.sparkSession)
    return rows.withColumns({name: F.lit(None).cast(types[name].dataType) for name in new})


def _not_beyond(standing: Standing) -> str:
    """SQL: the row's record is one that the table of rows has behind it."""
    places = [
        f"(kafka_topic = '{topic}' AND kafka_partition = {partition} AND kafka_offset < {end})"
        for topic, ends in standing.ends.items()
        for partition, end in ends.items()
    ]
    return " OR ".join(places) or "false"
