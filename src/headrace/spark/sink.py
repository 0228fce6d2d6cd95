"""`format("headrace")`: a table's rows to Kafka, each exactly once.

>>> (events.writeStream.format("headrace")                         # doctest: +SKIP
...     .option("topic", "clicks").option("checkpointLocation", path).start())

Columns: key, value, headers, topic, partition, timestamp, piece, and `header:NAME` for a header
that is null where a row has none; only value is needed. Options:
`topic` for rows without one; `job`, the name under which a batch that failed is run again;
`batch`, the number of this batch in a job of many: entries of older ones are forgotten;
`pieces`, a JSON list with the name of each partition's piece, in place of column piece;
`trustLedger`, true if a piece that was sent need not be compared with what it would be now: what
it is made of is the same, but lookups or definitions may have changed since;
`bootstrap` and `kafka.*` for the cluster, else the one that Headrace would take anyway;
`limitTopic` and `limitShare`, the greatest share of a piece's rows so far that may go to a topic
(of dead letters): a piece with more, and with more than ten such rows, fails and is not written on.
"""

import itertools
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headrace.clients import Connection, resolve
from headrace.config.producer_settings import producer_settings
from headrace.errors import BadInput, ConfigError
from headrace.spark.batches import Batch
from headrace.spark.columns import check_columns, pieces_of
from headrace.spark.ledger import ensure_ledger
from headrace.spark.pieces import SECURITY, Done, Target, write_piece

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = (
    *("topic", "job", "pieces", "batch", "bootstrap", "profile"),
    *("partbytes", "partseconds", "limittopic", "limitshare", "trustledger"),
)
_OF_SPARK = ("checkpointlocation", "path", "queryname")
_KAFKA = "kafka."
# Every part of a piece ends with a flush, so nothing waits for a batch to fill but while there are
# more rows to fill it with: batches are as large as a broker takes them. What waits is kept small:
# records that are still in the processor's cache are sent faster.
TUNED = {
    "linger.ms": 200,
    "batch.size": 1_000_000,
    "batch.num.messages": 20_000,
    "queue.buffering.max.messages": 500_000,
    "message.max.bytes": 10 << 20,  # brokers and topics decide what is too large
    "queue.buffering.max.kbytes": 16 << 10,  # what a task's memory may have ahead of the brokers
}


@dataclass
class PiecesDone(WriterCommitMessage):
    """What one task did, for the driver."""

    pieces: list[Done]


class KafkaSink(DataSource):
    """The data source behind `format("headrace")`."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise BadInput("a topic cannot be overwritten", hint="write with .mode('append')")
        job = self.options.get("job") or f"batch-{uuid.uuid4()}"
        return BatchWriter(self._plan(schema, job), _batch(self.options))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        return StreamWriter(self._plan(schema, self.options.get("job") or ""))

    def _plan(self, schema: StructType, job: str) -> "Plan":
        topic = self.options.get("topic")
        check_columns(schema, topic)
        connection = _connection(self.options)
        target = Target(
            settings=_settings(connection, self.options),
            job=job,
            ledger_partitions=ensure_ledger(connection),
            trust_ledger=self.options.get("trustLedger") == "true",
            **_limits(self.options),
        )
        in_pieces = "piece" in schema.fieldNames()
        return Plan(target, topic, in_pieces, _pieces(self.options, in_pieces))


@dataclass(frozen=True)
class Plan:
    """What a task needs to know."""

    target: Target
    topic: str | None
    in_pieces: bool
    pieces: Sequence[str] = ()

    def write(self, batches: Iterable["pa.RecordBatch"], place: "Place") -> PiecesDone:
        if self.in_pieces:
            return PiecesDone([self._write(*piece, place) for piece in _cut(batches)])
        return PiecesDone([self._write(self._name(place.partition), batches, place)])

    def _name(self, partition: int) -> str:
        if not self.pieces:
            return str(partition)
        if partition >= len(self.pieces):
            raise BadInput(
                f"partition {partition} has no piece: option 'pieces' names {len(self.pieces)}",
                hint="give a name for each partition of the table, in their order",
            )
        return self.pieces[partition]

    def _write(self, name: str, batches: Iterable["pa.RecordBatch"], place: "Place") -> Done:
        target = place.target(self.target)
        return write_piece(
            target,
            place.entry(name),
            (Batch.of(batch, self.topic) for batch in batches),
            transactional_id=f"headrace/{target.job}/{name}",
            outdated=lambda entries: place.outdated(name, entries),
        )


@dataclass(frozen=True)
class Place:
    """Where in a job a task is: its partition, and the micro-batch of a streaming query."""

    partition: int
    query: str | None = None
    batch: int | None = None

    @classmethod
    def here(cls) -> "Place":
        context = TaskContext.get()
        if context is None:
            raise ConfigError("this is not a Spark task", hint="write with format('headrace')")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return cls(
            context.partitionId(),
            context.getLocalProperty("sql.streaming.queryId"),
            None if batch is None else int(batch),
        )

    def target(self, target: Target) -> Target:
        """A streaming query is known to its tasks only, by the id in its checkpoint."""
        if target.job:
            return target
        return Target(**{**vars(target), "job": f"query-{self.query}"})

    def entry(self, piece: str) -> str:
        return piece if self.batch is None else f"{self.batch}/{piece}"

    def outdated(self, piece: str, entries: Iterable[str]) -> list[str]:
        """Entries that nobody will ask for: the last two batches stay, Spark may run one again.

        Numbers of batches may have gaps, where a batch had no such piece.
        """
        if self.batch is None:
            return []
        numbers = [
            int(number)
            for number, _, name in (entry.partition("/") for entry in entries)
            if name == piece and number.isdecimal() and int(number) < self.batch
        ]
        return [f"{number}/{piece}" for number in sorted(numbers)[:-1]]


class BatchWriter(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, plan: Plan, batch: int | None = None) -> None:
        self._plan, self._batch = plan, batch

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> PiecesDone:
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        return self._plan.write(iterator, Place(partition, batch=self._batch))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> PiecesDone:
        return self._plan.write(iterator, Place.here())


def _cut(
    batches: Iterable["pa.RecordBatch"],
) -> Iterator[tuple[str, Iterator["pa.RecordBatch"]]]:
    """Runs of batches that belong to one piece."""
    cut = (part for batch in batches for part in pieces_of(batch))
    for piece, parts in itertools.groupby(cut, key=lambda part: part[0]):
        yield piece, (batch for _piece, batch in parts)


def _connection(options: Mapping[str, str]) -> Connection:
    known = {*OPTIONS, *_OF_SPARK}
    for name in options:
        if name.lower() not in known and not name.lower().startswith(_KAFKA):
            raise ConfigError(
                f"option {name!r} means nothing to format('headrace')",
                hint=f"the options are {', '.join(OPTIONS)} and kafka.*",
            )
    if bootstrap := options.get("bootstrap"):
        security = {k: v for k, v in _kafka_settings(options).items() if k.startswith(SECURITY)}
        return Connection(bootstrap, settings=security)
    return resolve(options.get("profile"), os.environ)


def _batch(options: Mapping[str, str]) -> int | None:
    given = options.get("batch")
    if given is None:
        return None
    if not given.isdecimal():
        raise ConfigError(f"option 'batch' is {given!r}", hint="give a whole number")
    if options.get("job") is None:
        raise ConfigError("option 'batch' without option 'job'", hint="name the job")
    return int(given)


def _pieces(options: Mapping[str, str], in_pieces: bool) -> list[str]:
    if not (given := options.get("pieces")):
        return []
    if in_pieces:
        raise ConfigError(
            "pieces are named both by column 'piece' and by option 'pieces'", hint="leave one out"
        )
    try:
        names = orjson.loads(given)
    except orjson.JSONDecodeError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(
            f"option 'pieces' is no list of names: {given[:60]}", hint='["first", "second"]'
        )
    if len(set(names)) < len(names):
        raise ConfigError("option 'pieces' has a name twice", hint="each partition has its own")
    return names


def _kafka_settings(options: Mapping[str, str]) -> dict[str, str]:
    return {
        name[len(_KAFKA) :]: value
        for name, value in options.items()
        if name.lower().startswith(_KAFKA)
    }


def _settings(connection: Connection, options: Mapping[str, str]) -> dict[str, Any]:
    settings = producer_settings("exactly-once", TUNED | _kafka_settings(options), "per piece")
    for name in ("transactional.id", "transaction.timeout.ms", "statistics.interval.ms"):
        settings.pop(name, None)
    shared = connection.client_settings()
    shared.pop("logger")  # cannot travel to another process
    # Nobody listens for records that were written; one that was not makes the commit fail.
    return shared | settings | {"log_level": 0, "delivery.report.only.error": True}


def _limits(options: Mapping[str, str]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    try:
        if given := options.get("partBytes"):
            limits["part_bytes"] = int(given)
        if given := options.get("partSeconds"):
            limits["part_seconds"] = float(given)
        if given := options.get("limitTopic"):
            limits["limit"] = (given, float(options.get("limitShare", "1")))
    except ValueError as error:
        raise ConfigError(
            f"partBytes, partSeconds and limitShare are numbers: {error}", hint="leave them out"
        ) from error
    return limits
