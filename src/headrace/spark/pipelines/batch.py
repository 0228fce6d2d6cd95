"""One micro-batch: decoded once, counted, freed of duplicates, and written to every table.

The order is a protocol; DESIGN.md has it, and what happens when it is cut short.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from headrace.errors import BadInput, HeadraceError, PieceChanged
from headrace.model import TopicPartition
from headrace.observe import Progress, Silent
from headrace.spark.pipelines.accounts import Counts, Standing
from headrace.spark.pipelines.checkpoints import Ranges
from headrace.spark.pipelines.dead_letters import DeadLetters
from headrace.spark.pipelines.decoding import RAW, REASON, STRANGE, decode, decoding_of
from headrace.spark.pipelines.definition import DEAD_LETTERS, Pipeline, Totals, seconds
from headrace.spark.pipelines.deriving import Span, sums_that_fit, write_derived
from headrace.spark.pipelines.evolving import with_new_columns
from headrace.spark.pipelines.facts import Facts, facts_of
from headrace.spark.pipelines.fields import KAFKA_COLUMNS, RESCUED, ROW_ID
from headrace.spark.pipelines.keeping import Kept
from headrace.spark.pipelines.lake import Commit, Lake, fingerprint
from headrace.spark.pipelines.lookups import Lookups
from headrace.spark.pipelines.mending import mend
from headrace.spark.pipelines.values import Reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")
_HASH, _NUMBER = "headrace:hash", "headrace:number"  # no name of a user's has a colon
ROWS_PER_FILE = 250_000
ROWS_WORTH_A_FILE = 20_000


@dataclass(frozen=True)
class BatchDone:
    """What became of a batch, for whoever watches."""

    batch: int
    counts: Counts
    seconds: float
    newest: datetime | None = None  # of its records, by Kafka's clock
    ended: datetime = field(default_factory=lambda: datetime.now(UTC))
    tables: Mapping[str, int] = field(default_factory=dict)  # their bytes after it
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)  # where the next one begins

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.counts.rows_in / self.seconds if self.seconds else 0.0

    @property
    def delay(self) -> float | None:
        """How old its newest record was at its end, in seconds."""
        return None if self.newest is None else (self.ended - self.newest).total_seconds()

    @property
    def state(self) -> int | None:
        """The bytes of all tables, which are all the state that a pipeline has."""
        return sum(self.tables.values()) if self.tables else None


class Batching(Protocol):
    """How records are cut into batches: Spark's checkpoint knows it of a stream, and `Cuts` of a
    replay. `open_batch` may have been begun by an earlier run."""

    @property
    def open_batch(self) -> Ranges | None: ...

    def ranges(self, batch: int) -> Ranges: ...


def files_for(rows: int, cores: int) -> int:
    """How many files so many rows are written to: few, but work for all cores, as much for each.

    >>> files_for(1_000, 2), files_for(600_000, 2), files_for(600_000, 16)
    (1, 4, 16)
    """
    at_once = min(cores, math.ceil(rows / ROWS_WORTH_A_FILE))
    files = max(1, at_once, math.ceil(rows / ROWS_PER_FILE))
    return files if files < cores else math.ceil(files / cores) * cores


class Batches:
    """Runs the batches of one query, one after the other. Without `dead_letters`, bad records are
    written to their table only. `patience` is told who is away and may come back, a registry or a
    broker; after a while it says whether to ask again."""

    def __init__(
        self,
        pipeline: Pipeline,
        lake: Lake,
        batching: Batching,
        standing: Standing,
        dead_letters: DeadLetters | None,
        topic_id: Callable[[str], str],
        done: Callable[[BatchDone], None],
        read: Reader | None = None,
        progress: Progress | None = None,
        patience: Callable[[HeadraceError], bool] | None = None,
    ) -> None:
        self._read, self._progress, self._patience = read, progress or Silent(), patience
        self._pipeline, self._lake, self._batching = pipeline, lake, batching
        self._dead_letters, self._topic_id, self._done = dead_letters, topic_id, done
        self._lookups = Lookups(lake, self._progress)
        self._kept = Kept()
        self._sizes: dict[str, int] = {}
        self._maybe_again = batching.open_batch is not None
        self._written: dict[str, dict[str, Any]] = {}
        self.standing = standing

    def run(self, records: "DataFrame", batch: int) -> None:
        """One micro-batch; again the same one after a crash."""
        started = time.monotonic()
        self._patiently(self.check_topic)
        ranges = self._batching.ranges(batch)
        if self.standing.includes(ranges):
            return
        if not self.standing.follows(ranges):
            raise BadInput(
                f"the checkpoint and the tables in {self._lake.folder} do not agree: batch "
                f"{batch} is {ranges}, the tables end at {self.standing.ends}",
                hint=f"delete _checkpoints/{self._pipeline.name} there: the next run goes on where "
                "the tables end",
            )
        try:
            rows, facts = self._look_at(lambda: self._decoded(records))
            counts = self._write(rows, facts, batch, ranges)
        finally:
            self._kept.release()
        self._maybe_again = False
        seconds_taken = time.monotonic() - started
        self._note_sizes()
        tables, offsets = dict(self._sizes), self.standing.offsets
        self._done(
            BatchDone(batch, counts, seconds_taken, facts.written, tables=tables, offsets=offsets)
        )

    def _note_sizes(self) -> None:
        """Delta may not know the size of a table that somebody compacts: the last one counts."""
        for name in self._pipeline.table_names:
            if (size := self._lake.known_bytes(name)) is not None:
                self._sizes[name] = size

    def _decoded(self, records: "DataFrame") -> "DataFrame":
        return decode(records, self._pipeline, self._lookups, self._read)

    def check_topic(self) -> None:
        """Offsets mean nothing in another topic, or one that was made again under its name."""
        names = self._pipeline.source.names
        if gone := [name for name in self.standing.ranges if name not in names]:
            raise BadInput(
                f"the tables in {self._lake.folder} come from topic {', '.join(gone)}, not from "
                f"{', '.join(names)}",
                hint="give each topic a folder of its own with --lake",
            )
        found = {name: self._topic_id(name) for name in names}
        refuse_made_again(self._pipeline.name, self.standing.topic_ids, found)
        self.standing = replace(self.standing, topic_ids=found)

    def _write(self, rows: "DataFrame", facts: Facts, batch: int, ranges: Ranges) -> Counts:
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

        def planned() -> tuple[Standing, Commit]:
            after = self.standing.after(counts, ranges, facts.trusted)
            return after, self._commit(batch, ranges, counts, after, self._verdict(facts))

        after, commit = planned()
        self._written = self._earlier_attempt(after)
        if any(commit.differs(info) for info in self._written.values()):
            self._undo_earlier_attempt()
            after, commit = planned()
        if facts.dead:
            dead = rows.where(F.col(REASON).isNotNull())
            try:
                self._write_dead(dead, facts.dead, commit)
            except PieceChanged:  # it had sent them, and no table says so
                self._undo_earlier_attempt()
                after, commit = planned()
                self._write_dead(dead, facts.dead, commit)
        self._write_derived(fresh, late, facts.span, commit)
        self._append_rows(fresh, counts.rows_out, commit)
        self.standing = after
        return counts

    def _verdict(self, facts: Facts) -> str:
        """What decides what becomes of the records, beside them and the pipeline's definition."""
        read = "" if self._read is None else self._read.context
        return fingerprint((facts.verdicts, self._lookups.content, read))

    def _earlier_attempt(self, after: Standing) -> dict[str, dict[str, Any]]:
        """The tables that an earlier attempt at this batch has written, and what it said there."""
        if not self._maybe_again:
            return {}
        names = self._pipeline.table_names
        infos = {name: self._lake.last_info(name, self._pipeline.name) for name in names}
        return {
            name: info
            for name, info in infos.items()
            if info is not None and Standing.from_json(info["so_far"]).ranges == after.ranges
        }

    def _undo_earlier_attempt(self) -> None:
        """What it wrote would not go with what is to come: a lookup has changed since, or the
        registry knows more. All is as if it had not been, but for the topic of dead letters: they
        are sent once more, as Delta takes the batch once more, under the next generation's name.
        """
        self._progress.step("a batch that was cut short is judged in another way: it begins anew")
        mended = mend(self._pipeline, self._lake, None, self._progress)
        generation = max(mended.generation, self.standing.generation + 1)
        self.standing = replace(self.standing, generation=generation)
        self._written = {}

    def _commit(
        self, batch: int, ranges: Ranges, counts: Counts, after: Standing, verdict: str
    ) -> Commit:
        info = {
            "pipeline": self._pipeline.name,
            "batch": batch,
            "ranges": ranges,
            "decoding": decoding_of(self._pipeline),
            "time": self._pipeline.time,
            "verdict": verdict,
            **counts.to_json(),
            "so_far": after.to_json(),
        }
        app = f"headrace/{self._pipeline.name}/{after.generation}"
        return Commit(app, after.position, info)

    # --- looking ---

    def _look_at(self, decoded: "Callable[[], DataFrame]") -> "tuple[DataFrame, Facts]":
        """Rows that are kept, and what is in them. Kafka is read once, unless there are schemas in
        them that no batch had before."""
        rows = self._kept.keep(decoded())
        facts = facts_of(rows, self._pipeline)
        if facts.strange and self._learn(rows):
            self._kept.release()
            rows = self._kept.keep(decoded())
            facts = facts_of(rows, self._pipeline)
        return rows, facts

    def _learn(self, rows: "DataFrame") -> bool:
        if self._read is None:
            return False
        found = rows.where(F.col(STRANGE).isNotNull()).select(STRANGE).distinct().collect()
        schemas, learn = [row[0] for row in found], self._read.learn
        return self._patiently(lambda: learn(schemas, rows.sparkSession))

    def _patiently(self, ask: Callable[[], T]) -> T:
        """The answer; nothing of the batch is written before it."""
        while True:
            try:
                return ask()
            except HeadraceError as error:
                if self._patience is None or not error.retryable or not self._patience(error):
                    raise

    def _refuse_unmet(self, facts: Facts) -> None:
        for expectation in self._pipeline.expectations:
            if expectation.action == "fail" and (count := facts.unmet.get(expectation.name)):
                raise BadInput(
                    f"{count:,} rows do not meet {expectation.name!r} ({expectation.condition}): "
                    "nothing of this batch is written",
                    hint="mend the data, or let the expectation drop such rows",
                )

    def _without_duplicates(self, good: "DataFrame", facts: Facts) -> "tuple[DataFrame, int]":
        """Rows that are not in the table yet, each once; and how many were taken out."""
        same = self._same()
        hashes = good.select(F.xxhash64(*same).alias(_HASH))
        present = self._present(facts)
        # To stop at the first one (a limit) would have Spark make and compile new code every time.
        most = hashes.groupBy(_HASH).count().agg(F.max("count")).collect()[0][0] or 0
        known = 0
        if most <= 1 and present is not None:
            old = present.select(F.xxhash64(*same).alias(_HASH))
            known = hashes.join(old, _HASH, "left_semi").count()
        if most <= 1 and not known:
            return good, 0
        first = Window.partitionBy(*same).orderBy(*KAFKA_COLUMNS[:3])
        fresh = good.withColumn(_NUMBER, F.row_number().over(first))
        fresh = fresh.where(F.col(_NUMBER) == 1).drop(_NUMBER)
        if present is not None:
            known_rows = [fresh[name].eqNullSafe(present[name]) for name in same]
            fresh = fresh.join(present, known_rows, "left_anti")
        fresh = self._kept.keep(fresh)  # the table that it is compared with changes at the end
        return fresh, facts.rows - facts.dead - fresh.count()

    def _same(self) -> list[str]:
        """The columns in which a duplicate is like its row."""
        time, kept = self._pipeline.time, self._pipeline.rows.columns
        timed = time is not None and self._pipeline.time_is_given and (not kept or time in kept)
        return [ROW_ID, str(time)] if timed else [ROW_ID]

    def _present(self, facts: Facts) -> "DataFrame | None":
        """Rows in the table that a row of this batch could be a duplicate of: of the same time."""
        if not self._lake.has(self._pipeline.rows.name):
            return None
        table, (_, *time) = self._lake.read(self._pipeline.rows.name), self._same()
        if not {*time} <= {*table.columns}:  # a field that is new: no row has it
            return table.select(ROW_ID, *(F.lit(None).cast("timestamp").alias(n) for n in time))
        if time and facts.span is not None:
            (moment,), (oldest, newest) = time, facts.span
            near = F.col(moment).between(F.lit(oldest), F.lit(newest))
            table = table.where(near | F.col(moment).isNull())
        return table.select(ROW_ID, *time)

    def _late(self, fresh: "DataFrame", facts: Facts) -> "dict[str, DataFrame]":
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

    # --- writing ---

    def _write_dead(self, dead: "DataFrame", count: int, commit: Commit) -> None:
        if DEAD_LETTERS in self._written:  # and so their topic has them
            return
        if self._dead_letters is not None:
            self._dead_letters.send(dead, commit)
        self._append_dead(dead, count, commit)

    def _append_dead(self, dead: "DataFrame", count: int, commit: Commit) -> None:
        raw = [F.col(name).alias(name.removeprefix("headrace:")) for name in (REASON, *RAW)]
        pipeline = F.lit(self._pipeline.name).alias("pipeline")
        rows = dead.select(pipeline, *KAFKA_COLUMNS, ROW_ID, *raw)
        self._append_few(DEAD_LETTERS, rows, count, commit)

    def _write_derived(
        self, fresh: "DataFrame", late: "dict[str, DataFrame]", span: Span | None, commit: Commit
    ) -> None:
        moment = self._pipeline.time or ""
        for table in self._pipeline.derived:
            rows = fresh
            if isinstance(table, Totals) and table.name in late:
                limit = self._limit(table)
                rows = fresh.where(F.coalesce(F.col(moment) >= F.lit(limit), F.lit(True)))
                if table.late_name not in self._written:
                    late_rows = self._rows(late[table.name])
                    count = commit.info["late"][table.name]
                    self._append_few(table.late_name, late_rows, count, commit)
            if table.name not in self._written:
                with sums_that_fit(table):
                    write_derived(table, rows, moment, span, self._lake, commit.of(table))

    def _append_rows(self, fresh: "DataFrame", count: int, commit: Commit) -> None:
        table, files = self._pipeline.rows, self._files(fresh, count)
        self._lake.append(table.name, self._rows(fresh).coalesce(files), commit.of(table))

    def _append_few(self, table: str, rows: "DataFrame", count: int, commit: Commit) -> None:
        """Few among many: they are found where the many are, and brought together then."""
        self._lake.append(table, rows.repartition(self._files(rows, count)), commit)

    def _files(self, rows: "DataFrame", count: int) -> int:
        return files_for(count, rows.sparkSession.sparkContext.defaultParallelism)

    def _rows(self, fresh: "DataFrame") -> "DataFrame":
        value = self._pipeline.source.value
        kept = list(self._pipeline.rows.columns)
        if not kept:
            ours = {*KAFKA_COLUMNS, ROW_ID, RESCUED}
            kept = [name for name in fresh.columns if name not in ours and ":" not in name]
        if value.drift == "evolve":
            fresh, new = with_new_columns(fresh, *self._evolved())
            kept += new
        extra = [] if value.drift == "freeze" else [RESCUED]
        return fresh.select(*kept, ROW_ID, *KAFKA_COLUMNS, *extra)

    def _evolved(self) -> tuple[list[str], list[str]]:
        """Columns that no new field can have, and those that fields of earlier batches got: texts
        that nobody declared. What is no text was declared once, and is not any more."""
        taken: list[str] = [*self._pipeline.columns]
        known: list[str] = []
        if self._lake.has(self._pipeline.rows.name):
            declared = {name.lower() for name in taken}
            for name, kind in self._lake.read(self._pipeline.rows.name).dtypes:
                if name.lower() not in declared:
                    (known if kind == "string" else taken).append(name)
        return taken, known


def refuse_made_again(pipeline: str, known: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Topics by name, with their ids: those that are known, and those that are there."""
    for name, topic_id in found.items():
        if known.get(name, topic_id) != topic_id:
            raise BadInput(
                f"topic {name} was deleted and made again: what pipeline {pipeline} has read of it "
                "is gone",
                hint="give it another --lake, or delete this one, to begin anew",
            )
