"""One micro-batch: decoded once, counted, freed of duplicates, and written to every table.

The order is a protocol; DESIGN.md has it, and what happens when it is cut short.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from headrace.clients import Connection
from headrace.errors import BadInput, OperationFailed
from headrace.spark.columns import HEADER
from headrace.spark.pipelines.accounts import Counts, Standing, in_utc
from headrace.spark.pipelines.checkpoints import Checkpoint
from headrace.spark.pipelines.decoding import RAW, REASON, decode, unmet
from headrace.spark.pipelines.definition import (
    DEAD_LETTERS,
    KAFKA_COLUMNS,
    RESCUED,
    ROW_ID,
    Lookup,
    Pipeline,
    Totals,
    seconds,
)
from headrace.spark.pipelines.deriving import Span, write_derived
from headrace.spark.pipelines.evolving import with_new_columns
from headrace.spark.pipelines.lake import Commit, Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HASH = "_hash"


@dataclass(frozen=True)
class BatchDone:
    """What became of a batch, for whoever watches."""

    batch: int
    counts: Counts
    seconds: float


@dataclass(frozen=True)
class _Facts:
    """What one pass over the decoded batch finds."""

    rows: int
    dead: int
    oldest: datetime | None
    newest: datetime | None
    unmet: dict[str, int]

    @property
    def span(self) -> Span | None:
        if self.oldest is None or self.newest is None:
            return None
        return self.oldest, self.newest


class Batches:
    """Runs the batches of one query, one after the other."""

    def __init__(
        self,
        pipeline: Pipeline,
        lake: Lake,
        checkpoint: Checkpoint,
        connection: Connection,
        dead_topic: str,
        topic_id: Callable[[], str],
        done: Callable[[BatchDone], None],
    ) -> None:
        self._pipeline, self._lake, self._checkpoint = pipeline, lake, checkpoint
        self._connection, self._dead_topic = connection, dead_topic
        self._topic_id, self._done = topic_id, done
        self._lookups: dict[Lookup, tuple[float, DataFrame]] = {}
        self._maybe_again = checkpoint.has_open_batch
        self.standing = standing_of(pipeline, lake)

    def run(self, records: "DataFrame", batch: int) -> None:
        """What Spark calls for each micro-batch; again for the same one after a crash."""
        started = time.monotonic()
        self.check_topic()
        query = self._checkpoint.query
        if query is None:
            raise OperationFailed("the query has no checkpoint", hint="this is a defect")
        if self._has(self._pipeline.rows.name, Commit(query, batch, {})):
            return
        rows = decode(records, self._pipeline, self._lookup).persist()
        try:
            counts = self._write(rows, query, batch)
        finally:
            rows.unpersist()
        self._maybe_again = False
        self._done(BatchDone(batch, counts, time.monotonic() - started))

    def _has(self, table: str, commit: Commit) -> bool:
        return self._maybe_again and self._lake.has_batch(table, commit)

    def check_topic(self) -> None:
        """Offsets mean nothing in a topic that was made again under its old name."""
        found = self._topic_id()
        if self.standing.topic_id not in (None, found):
            raise BadInput(
                f"topic {self._pipeline.source.name} was deleted and made again: what pipeline "
                f"{self._pipeline.name} has read of it is gone",
                hint="give it another --lake, or delete this one, to begin anew",
            )
        self.standing = replace(self.standing, topic_id=found)

    def _write(self, rows: "DataFrame", query: str, batch: int) -> Counts:
        facts = self._facts(rows)
        self._refuse_unmet(facts)
        good = rows.where(F.col(REASON).isNull())
        fresh, duplicates = self._without_duplicates(good, facts)
        late = self._late(fresh, facts)
        counts = Counts(
            facts.rows,
            facts.rows - facts.dead - duplicates,
            facts.dead,
            duplicates,
            {name: found.count() for name, found in late.items()},
            facts.unmet,
        )
        ranges = self._checkpoint.ranges(batch)
        after = self.standing.after(counts, ranges, facts.newest)
        info = {
            "pipeline": self._pipeline.name,
            "batch": batch,
            "ranges": ranges,
            **counts.to_json(),
            "so_far": after.to_json(),
        }
        commit = Commit(query, batch, info)
        if facts.dead:
            self._write_dead(rows.where(F.col(REASON).isNotNull()), commit)
        self._write_derived(fresh, late, facts.span, commit)
        self._lake.append(self._pipeline.rows.name, self._rows(fresh), commit)
        self.standing = after
        return counts

    # --- looking ---

    def _facts(self, rows: "DataFrame") -> _Facts:
        good = F.col(REASON).isNull()
        moment = F.lit(None).cast("timestamp")
        if self._pipeline.time is not None:
            moment = F.when(good, F.col(self._pipeline.time))
        flags = {
            expectation.name: F.count_if(F.col(f"`{unmet(number)}`"))
            for number, expectation in enumerate(self._pipeline.expectations)
            if expectation.action != "drop"
        }
        found = rows.agg(
            F.count("*"), F.count(REASON), F.min(moment), F.max(moment), *flags.values()
        ).collect()[0]
        counts = {name: count for name, count in zip(flags, found[4:], strict=True) if count}
        return _Facts(found[0], found[1], in_utc(found[2]), in_utc(found[3]), counts)

    def _refuse_unmet(self, facts: _Facts) -> None:
        for expectation in self._pipeline.expectations:
            if expectation.action == "fail" and (count := facts.unmet.get(expectation.name)):
                raise BadInput(
                    f"{count:,} rows do not meet {expectation.name!r} ({expectation.condition}): "
                    "nothing of this batch is written",
                    hint="mend the data, or let the expectation drop such rows",
                )

    def _without_duplicates(self, good: "DataFrame", facts: _Facts) -> "tuple[DataFrame, int]":
        """Rows that are not in the table yet, each once; and how many were taken out."""
        hashes = good.select(F.xxhash64(ROW_ID).alias(_HASH))
        present = self._present(facts)
        found = hashes.groupBy(_HASH).count().where("count > 1").limit(1).count()
        if not found and present is not None:
            old = present.select(F.xxhash64(ROW_ID).alias(_HASH))
            found = hashes.join(old, _HASH, "left_semi").limit(1).count()
        if not found:
            return good, 0
        first = Window.partitionBy(ROW_ID).orderBy(*KAFKA_COLUMNS[:3])
        fresh = good.withColumn("_number", F.row_number().over(first)).where("_number = 1")
        fresh = fresh.drop("_number")
        if present is not None:
            fresh = fresh.join(present, ROW_ID, "left_anti")
        fresh = fresh.persist()  # the table that it is compared with changes at the end
        return fresh, facts.rows - facts.dead - fresh.count()

    def _present(self, facts: _Facts) -> "DataFrame | None":
        """Ids in the table that a duplicate of this batch could have: of the same time."""
        name, moment = self._pipeline.rows.name, self._pipeline.time
        if not self._lake.has(name):
            return None
        table = self._lake.read(name)
        if moment is not None and moment in table.columns and facts.span is not None:
            oldest, newest = facts.span
            near = F.col(moment).between(F.lit(oldest), F.lit(newest))
            table = table.where(near | F.col(moment).isNull())
        return table.select(ROW_ID)

    def _late(self, fresh: "DataFrame", facts: _Facts) -> "dict[str, DataFrame]":
        """Rows too late for a table, by its name."""
        late: dict[str, DataFrame] = {}
        for table in self._pipeline.derived:
            limit = self._limit(table)
            if limit is not None and facts.oldest is not None and facts.oldest < limit:
                late[table.name] = fresh.where(F.col(str(self._pipeline.time)) < F.lit(limit))
        return late

    def _limit(self, table: Any) -> datetime | None:
        if not isinstance(table, Totals) or table.late is None or self.standing.newest is None:
            return None
        return self.standing.newest - timedelta(seconds=seconds(table.late))

    def _lookup(self, lookup: Lookup) -> "DataFrame":
        at, table = self._lookups.get(lookup, (0.0, None))
        if table is None or time.monotonic() - at > seconds(lookup.refresh):
            if table is not None:
                table.unpersist()
            table = self._lake.read_lookup(lookup).persist()
            self._lookups[lookup] = (time.monotonic(), table)
        return table

    # --- writing ---

    def _write_dead(self, dead: "DataFrame", commit: Commit) -> None:
        self._send_dead(dead, commit)
        if not self._has(DEAD_LETTERS, commit):
            columns = [*KAFKA_COLUMNS, ROW_ID, REASON]
            raw = [F.col(name).alias(name.removeprefix("raw_")) for name in RAW]
            table = dead.select(F.lit(self._pipeline.name).alias("pipeline"), *columns, *raw)
            self._lake.append(DEAD_LETTERS, table, commit)

    def _send_dead(self, dead: "DataFrame", commit: Commit) -> None:
        """To the dead letters' topic, exactly once: one piece for each batch."""
        headers = {
            "headrace-topic": F.col("kafka_topic"),
            "headrace-partition": F.col("kafka_partition").cast("string"),
            "headrace-offset": F.col("kafka_offset").cast("string"),
            "headrace-reason": F.col(REASON),
            "headrace-row": F.col(ROW_ID),
        }
        records = dead.coalesce(1).select(
            F.col(RAW[0]).alias("key"),
            F.col(RAW[1]).alias("value"),
            *(text.cast("binary").alias(HEADER + name) for name, text in headers.items()),
        )
        writer = records.write.format("headrace").option("topic", self._dead_topic)
        writer = writer.option("job", f"pipeline-{commit.query}").option("batch", commit.batch)
        writer.option("bootstrap", self._connection.bootstrap).mode("append").save()

    def _write_derived(
        self, fresh: "DataFrame", late: "dict[str, DataFrame]", span: Span | None, commit: Commit
    ) -> None:
        moment = self._pipeline.time or ""
        for table in self._pipeline.derived:
            rows = fresh
            if isinstance(table, Totals) and table.name in late:
                limit = self._limit(table)
                rows = fresh.where(F.col(moment) >= F.lit(limit))
                if not self._has(table.late_name, commit):
                    self._lake.append(table.late_name, self._rows(late[table.name]), commit)
            if not self._has(table.name, commit):
                write_derived(table, rows, moment, span, self._lake, commit)

    def _rows(self, fresh: "DataFrame") -> "DataFrame":
        value = self._pipeline.source.value
        if value.drift == "evolve":
            fresh = with_new_columns(fresh, self._pipeline.columns)
        kept = self._pipeline.rows.columns
        if not kept:
            own = {REASON, *RAW, *KAFKA_COLUMNS, ROW_ID, RESCUED}
            kept = tuple(c for c in fresh.columns if c not in own and not c.startswith("unmet:"))
        extra = [] if value.drift == "freeze" else [RESCUED]
        return fresh.select(*kept, ROW_ID, *KAFKA_COLUMNS, *extra)


def standing_of(pipeline: Pipeline, lake: Lake) -> Standing:
    """What the table of rows says, from the last batch that counts."""
    info = lake.last_info(pipeline.rows.name)
    if info is None:
        return Standing()
    if info.get("pipeline") != pipeline.name:
        raise BadInput(
            f"{lake.path(pipeline.rows.name)} belongs to pipeline {info.get('pipeline')!r}",
            hint=f"give pipeline {pipeline.name!r} a folder of its own with --lake",
        )
    return Standing.from_json(info["so_far"])
