"""`format("headrace-table")`: new and changed rows of a database table, as records.

>>> (spark.readStream.format("headrace-table")                         # doctest: +SKIP
...     .option("url", "sqlite:////data/shop.db").option("table", "invoices")
...     .option("mode", "incrementing").option("incrementing", "id")
...     .option("stage", "/data/lake/_checkpoints/invoices/staged").load())

The columns are those of Spark's Kafka source: `key` is the row's id as text, `value` the row as
JSON, `topic` the table, `offset` the number of the row since the beginning; header `headrace-row`
names the version of the row. Options: `url`, `password`, `table`, `columns` (a JSON list; else
all), `mode`, `incrementing`, `timestamp`, `delay` (seconds), `stage` (a folder for the rows of a
batch), `rowsPerBatch`.

**The same rows in every attempt.** `latestOffset` finds a batch's end by reading its rows, and
stages them (`staging.py`) before it returns: Spark writes the offset down after that, so that a
batch it knows of has its file. Tasks read the file, and never the database.
"""

import itertools
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import orjson
from pydantic import SecretStr
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.errors import BadInput, ConfigError
from headrace.spark.columns import ROW_HEADER
from headrace.spark.database.addresses import Address
from headrace.spark.database.moments import SECOND, span_of
from headrace.spark.database.positions import (
    Limits,
    Mode,
    Position,
    Row,
    Tracking,
    position_of,
)
from headrace.spark.database.reading import Database, looking
from headrace.spark.database.staging import Stage
from headrace.spark.database.table import TableToRead
from headrace.spark.database.values import to_json

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = (
    *("url", "password", "table", "columns", "mode", "incrementing", "timestamp", "delay"),
    *("stage", "rowsPerBatch"),
)
_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
_ROWS_IN_A_BATCH = 10_000  # of Arrow's


class TableSource(DataSource):
    """The data source behind `format("headrace-table")`."""

    @classmethod
    def name(cls) -> str:
        return "headrace-table"

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> "TableReader":  # noqa: N802
        return TableReader(read_options(self.options), Stage(_needed(self.options, "stage")))


class TableReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, where the database is asked; reads staged rows on executors."""

    def __init__(self, table: TableToRead, stage: Stage) -> None:
        self._table, self._stage = table, stage
        self._until: Limits | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows = self._table.rows_per_batch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now: waits until the youngest row counts, and goes no further."""
        with looking(self._table.address, self._table.table) as database:
            wait = _seconds_to_settle(database, self._table.tracking)
        time.sleep(wait)
        with looking(self._table.address, self._table.table) as database:
            self._until = _limits(database, self._table.tracking)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch, whose rows are staged then; `start` if there are none."""
        self._refuse_foreign(start)
        table, begin = self._table, position_of(start)
        with looking(table.address, table.table) as database:
            database.refuse_nulls(table.tracking)
            until = self._until or _limits(database, table.tracking)
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            limits = Limits(until.moment, until.id, rows)
            names = table.columns or tuple(column.name for column in database.columns)
            walk = _Walk(database.rows(names, table.tracking, begin, limits), begin, table)
            staged = self._stage.write(start.get("staged"), _records(walk, names, table))
        if staged is None:
            return start
        end = walk.position
        found = {"timestamp": end.timestamp, "id": end.id, "rows": end.rows}
        known = {name: value for name, value in found.items() if value is not None}
        return {**known, "of": table.title, "staged": staged}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(end["staged"])] if end != start else []

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return self._stage.read(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        if "staged" in end:
            self._stage.forget_before(end["staged"])

    def _refuse_foreign(self, start: Mapping[str, Any]) -> None:
        if start and start["of"] != self._table.title:
            raise BadInput(
                f"the checkpoint is of {start['of']}; now it is to go on with {self._table.title}",
                hint="take another lake",
            )


class _Walk:
    """Rows as they go by, and the position after the last one."""

    def __init__(self, rows: Iterable[Row], begin: Position, table: TableToRead) -> None:
        self._rows, self._table, self.position = rows, table, begin

    def __iter__(self) -> Iterator[tuple[Row, int]]:
        for number, row in enumerate(self._rows, self.position.rows):
            self.position = self._table.tracking.position(row, number + 1)
            yield row, number


def _records(
    rows: Iterable[tuple[Row, int]], names: Sequence[str], table: TableToRead
) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    iterator, now, token = iter(rows), datetime.now(UTC), secrets.token_hex(4)
    while some := list(itertools.islice(iterator, _ROWS_IN_A_BATCH)):
        count = len(some)
        keys = [None if row.id is None else str(row.id).encode() for row, _ in some]
        times = [_time(row, now) for row, _ in some]
        ids = [f"{table.table}:{_version(row, f'{token}-{number}')}" for row, number in some]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(keys, pa.binary()),
                pa.array([to_json(names, row.values) for row, _ in some], pa.binary()),
                pa.repeat(pa.scalar(table.table, pa.string()), count),
                pa.repeat(pa.scalar(0, pa.int32()), count),
                pa.array([number for _, number in some], pa.int64()),
                pa.array(times, pa.timestamp("us", "UTC")),
                _headers(ids),
            ],
            names=["key", "value", "topic", "partition", "offset", "timestamp", "headers"],
        )


def _version(row: Row, otherwise: str) -> str:
    """What names a version of a row, whoever reads it and when; without an id nothing does."""
    if row.id is None:
        return f"{otherwise}@{row.timestamp}"
    return str(row.id) if row.timestamp is None else f"{row.id}@{row.timestamp}"


def _headers(ids: Sequence[str]) -> "pa.ListArray":
    """One header for each row: its id, as `headrace ingest` sets it."""
    import pyarrow as pa

    count = len(ids)
    values = pa.array([text.encode() for text in ids], pa.binary())
    pairs = pa.StructArray.from_arrays([pa.repeat(ROW_HEADER, count), values], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(range(count + 1), pa.int32()), pairs)


def _time(row: Row, now: datetime) -> int:
    """When the row was changed, or read if it does not say."""
    if row.timestamp is None:
        return round(now.timestamp() * SECOND)
    return span_of(row.timestamp).begin


def _limits(database: Database, tracking: Tracking) -> Limits:
    """How far one may go by now."""
    if tracking.by_time:
        return Limits(moment=tracking.settled_by(database.now(tracking)))
    return Limits(id=database.newest_id(str(tracking.incrementing)))


def _seconds_to_settle(database: Database, tracking: Tracking) -> float:
    """How long until the youngest row counts; rows from the future are not waited for."""
    newest = database.newest(str(tracking.timestamp)) if tracking.by_time else None
    if newest is None:
        return 0.0
    span, now = span_of(database.raw(newest)), database.now(tracking)
    if span.begin > now:
        span = span._replace(begin=now, end=now + span.end - span.begin)
    return max(0.0, (span.end - tracking.settled_by(now)) / SECOND)


# --- options ---


def read_options(options: Mapping[str, str]) -> TableToRead:
    """The options of `format("headrace-table")`; Spark does not tell upper from lower case."""
    known = {name.lower() for name in OPTIONS}
    for name in options:
        if name.lower() not in known:
            raise ConfigError(
                f"option {name!r} means nothing to format('headrace-table')",
                hint=f"the options are {', '.join(OPTIONS)}",
            )
    address = Address.parse(_needed(options, "url"))
    if password := options.get("password"):
        address = Address(address.kind, address.url, SecretStr(password))
    try:
        delay = float(options.get("delay") or 0)
        rows = int(options["rowsPerBatch"]) if options.get("rowsPerBatch") else None
    except ValueError as error:
        raise ConfigError(
            f"delay and rowsPerBatch are numbers: {error}", hint="leave them out"
        ) from error
    tracking = Tracking(
        cast(Mode, options.get("mode") or "timestamp+incrementing"),
        options.get("incrementing"),
        options.get("timestamp"),
        delay,
    )
    columns = tuple(orjson.loads(options.get("columns") or "[]"))
    return TableToRead(address, _needed(options, "table"), tracking, columns, rows)


def _needed(options: Mapping[str, str], name: str) -> str:
    if not (found := options.get(name)):
        raise ConfigError(f"option {name!r} is missing", hint=f".option({name!r}, ...)")
    return found
