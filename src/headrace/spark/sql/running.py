"""Runs a query over topics and tables: once, or on and on as records come.

Followed, a query is one of Spark's streaming queries. What only filters gives new rows. What adds
up gives its whole result after each batch (complete mode), or the rows that changed (update mode;
where Spark cannot sort in that mode, the whole result is compared with the one before).
"""

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from headrace.clients import Connection
from headrace.errors import BadInput, HeadraceError
from headrace.model import Earliest
from headrace.observe import Progress, Silent
from headrace.observe.signals import stopping_on_signals
from headrace.spark.interrupts import cancelled_by_ctrl_c
from headrace.spark.pipelines.definition import Pipeline
from headrace.spark.running import EachBatch
from headrace.spark.session import session
from headrace.spark.sql.failures import explained, failed
from headrace.spark.sql.names import Found, find, quoted, rewritten
from headrace.spark.sql.parsing import kind_of, nodes_of, parse
from headrace.spark.sql.tables import LakeTables, Start, Topics
from headrace.spark.sql.values import row_converter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_EARLIEST = Earliest()
SECONDS_BETWEEN_LOOKS = 1
_NAMING = threading.Lock()  # names of views are the session's, which threads share
_NUMBERS = ("ByteType", "ShortType", "IntegerType", "LongType", "FloatType", "DoubleType")
_NOT_IN_PYTHON = ("YearMonthIntervalType", "CalendarIntervalType")


@dataclass(frozen=True)
class SqlOptions:
    """A query. `lake` is a folder of Delta tables; `pipelines` say what is in the values of their
    topics; `start` is where topics are read from; followed, there is a batch `every` some
    seconds."""

    text: str
    lake: str | None = None
    start: Start = _EARLIEST
    pipelines: tuple[Pipeline, ...] = ()
    every: float = 1.0
    master: str | None = None


@dataclass(frozen=True)
class Column:
    """A column of a result."""

    name: str
    is_number: bool


@dataclass(frozen=True)
class Update:
    """What a batch changed: `rows` are new or have changed, or all rows if this is the `whole`
    result."""

    batch: int
    columns: tuple[Column, ...]
    rows: list[list[Any]]
    whole: bool


@dataclass(frozen=True)
class BatchRead:
    """A batch that is done."""

    batch: int
    records: int
    seconds: float


class Answer:
    """The result of a query that is asked once."""

    def __init__(self, table: "DataFrame") -> None:
        self._table = _convertible(table)
        self._convert = row_converter(self._table.schema)
        self.columns = _columns(self._table)

    def rows(self, limit: int | None = None) -> Iterator[list[Any]]:
        """All rows, or so many, with values that JSON can say."""
        table = self._table if limit is None else self._table.limit(limit)
        with _failures_told(), cancelled_by_ctrl_c(table.sparkSession.sparkContext.cancelAllJobs):
            # Some are few enough to fetch at once; all may be more than fit in memory.
            rows = table.collect() if limit is not None else table.toLocalIterator(True)
            for row in rows:
                yield self._convert(row)

    def count(self) -> int:
        with (
            _failures_told(),
            cancelled_by_ctrl_c(self._table.sparkSession.sparkContext.cancelAllJobs),
        ):
            return self._table.count()


def ask(
    options: SqlOptions, connect: Callable[[], Connection], progress: Progress | None = None
) -> Answer:
    """A query over what is there now."""
    spark = session("headrace-sql", master=options.master, progress=progress)
    return Answer(_Query(spark, options, connect).table(follow=False))


def follow(
    options: SqlOptions,
    connect: Callable[[], Connection],
    on_update: Callable[[Update], None],
    progress: Progress | None = None,
    *,
    whole: bool = True,
    on_batch: Callable[[BatchRead], None] = lambda _batch: None,
    stop: threading.Event | None = None,
) -> None:
    """A query that goes on until `stop` is set. Results that change are given whole, or only what
    changed in them."""
    stop = stop or threading.Event()
    spark = session("headrace-sql", master=options.master, progress=progress)
    table = _convertible(_Query(spark, options, connect).table(follow=True))
    updates = _Updates(table, on_update)
    each_batch = EachBatch(updates.take)
    with tempfile.TemporaryDirectory(
        prefix="headrace-sql-", ignore_cleanup_errors=True
    ) as checkpoint:
        query = _start(table, updates, each_batch, options, checkpoint, whole)
        (progress or Silent()).step("following; Ctrl-C ends it")
        try:
            _wait(query, stop, on_batch)
        except Exception as error:
            # A reader that went away is an error of ours, also if somebody stops the query.
            if isinstance(each_batch.failure, HeadraceError | OSError):
                raise each_batch.failure from None
            if not stop.is_set():
                raise failed(each_batch.failure or error) from error
        finally:
            query.stop()


class _Query:
    """A query with its names resolved."""

    def __init__(
        self, spark: "SparkSession", options: SqlOptions, connect: Callable[[], Connection]
    ) -> None:
        self._spark = spark
        self._text = options.text.strip().rstrip(";").rstrip()
        if not self._text:
            raise BadInput("the query is empty", hint="like 'SELECT count(*) FROM clicks'")
        self._start = options.start
        self._lake = LakeTables(spark, options.lake)
        self._topics = Topics(spark, connect, options.start, options.pipelines)

    def table(self, *, follow: bool) -> "DataFrame":
        from pyspark.errors import AnalysisException

        names = parse(self._spark, self._text)
        found = find(names, self._lake.names, lambda: self._topics.names)
        followed = _followed(found) if follow else set()
        words = {each.name: self._word(each) for each in found}
        try:
            views = {
                each.called: self._view(each, followed) for each in found if not each.name.past
            }
        except AnalysisException as error:
            raise explained(error) from error
        with _NAMING:
            for name, view in views.items():
                view.createOrReplaceTempView(quoted(name))
            try:
                return self._spark.sql(rewritten(self._text, words))
            except AnalysisException as error:
                raise explained(error) from error
            finally:
                for name in views:
                    self._spark.catalog.dropTempView(name)

    def _view(self, found: Found, followed: set[str]) -> "DataFrame":
        is_followed = found.called in followed
        if found.kind == "topic":
            read = self._topics.follow if is_followed else self._topics.read
            return read(found.called)
        if is_followed:
            return self._lake.follow(found.called, self._start)
        return self._lake.read(found.called)

    def _word(self, found: Found) -> str:
        if not found.name.past:
            return quoted(found.called)
        if found.kind == "topic":
            raise BadInput(
                f"topic {found.called} has no versions", hint="ask for a span of timestamp"
            )
        return f"delta.{quoted(self._lake.path(found.called))}"


def _followed(found: list[Found]) -> set[str]:
    """What is a stream in a followed query: topics, else the one table there is."""
    topics = {each.called for each in found if each.kind == "topic"}
    tables = {each.called for each in found if each.kind == "table" and not each.name.past}
    if topics:
        return topics
    if len(tables) == 1:
        return tables
    raise BadInput(
        "there is nothing to follow: the query has no topic"
        + (f", and several tables: {', '.join(sorted(tables))}" if tables else " and no table"),
        hint="ask without --follow, or follow a topic or one table",
    )


class _Updates:
    """Hands each batch's rows on."""

    def __init__(self, table: "DataFrame", on_update: Callable[[Update], None]) -> None:
        self._columns, self._convert = _columns(table), row_converter(table.schema)
        self._on_update = on_update
        self._before: set[bytes] = set()
        self.mode = "append"
        self.only_changes = False

    def take(self, rows: "DataFrame", batch: int) -> None:
        found = [self._convert(row) for row in rows.collect()]
        whole = self.mode == "complete"
        if whole and self.only_changes:
            found, whole = self._changed(found), False
        if found or whole:
            self._on_update(Update(batch, self._columns, found, whole))

    def _changed(self, rows: list[list[Any]]) -> list[list[Any]]:
        lines = [orjson.dumps(row) for row in rows]
        changed = [row for row, line in zip(rows, lines, strict=True) if line not in self._before]
        self._before = set(lines)
        return changed


def _start(
    table: "DataFrame",
    updates: _Updates,
    each_batch: EachBatch,
    options: SqlOptions,
    checkpoint: str,
    whole: bool,
) -> "StreamingQuery":
    from pyspark.errors import AnalysisException

    writer = table.writeStream.foreachBatch(each_batch)
    writer = writer.option("checkpointLocation", checkpoint)
    writer = writer.trigger(processingTime=f"{options.every} seconds")
    modes = ["append"]
    if _adds_up(table):
        modes = ["complete"] if whole else ["update", "complete"]
    updates.only_changes = not whole
    for mode in modes:
        updates.mode = mode
        try:
            return writer.outputMode(mode).start()
        except AnalysisException as error:
            refusal = error
    raise explained(refusal, hint="Spark cannot follow this; ask without --follow") from refusal


def _adds_up(table: "DataFrame") -> bool:
    """Whether later records change rows of the result."""
    plan = table._jdf.queryExecution().analyzed()
    return any(
        kind_of(node) in ("Aggregate", "Distinct") and node.isStreaming() for node in nodes_of(plan)
    )


def _wait(
    query: "StreamingQuery", stop: threading.Event, on_batch: Callable[[BatchRead], None]
) -> None:
    """A signal from now on ends the query in order."""
    told = -1
    with stopping_on_signals(stop.set):
        while not query.awaitTermination(SECONDS_BETWEEN_LOOKS):
            for progress in query.recentProgress:
                if progress["batchId"] > told and progress["numInputRows"]:
                    told = progress["batchId"]
                    on_batch(_batch_read(progress))
            if stop.is_set():
                query.stop()


def _batch_read(progress: Mapping[str, Any]) -> BatchRead:
    took = progress["durationMs"].get("triggerExecution", 0)
    return BatchRead(progress["batchId"], progress["numInputRows"], took / 1000)


def _columns(table: "DataFrame") -> tuple[Column, ...]:
    return tuple(
        Column(field.name, type(field.dataType).__name__ in (*_NUMBERS, "DecimalType"))
        for field in table.schema.fields
    )


def _convertible(table: "DataFrame") -> "DataFrame":
    """Spans of months have no value in Python: they become text."""
    kinds = [type(field.dataType).__name__ for field in table.schema.fields]
    if not any(kind in _NOT_IN_PYTHON for kind in kinds):
        return table
    from pyspark.sql import functions as F  # noqa: N812

    names = [f"c{number}" for number in range(len(kinds))]
    numbered = table.toDF(*names)
    columns = [
        F.col(name).cast("string") if kind in _NOT_IN_PYTHON else F.col(name)
        for name, kind in zip(names, kinds, strict=True)
    ]
    return numbered.select(*columns).toDF(*table.columns)


@contextlib.contextmanager
def _failures_told() -> Iterator[None]:
    """Spark's failures in one line."""
    try:
        yield
    except Exception as error:
        raise failed(error) from error
