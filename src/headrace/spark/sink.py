"""`format("headrace")`: a table's rows to Kafka, each exactly once.

>>> (events.writeStream.format("headrace")                         # doctest: +SKIP
...     .option("topic", "clicks").option("checkpointLocation", path).start())

Columns: key, value, headers, topic, partition, timestamp, piece; only value is needed. Options:
`topic` for rows without one; `job`, the name under which a batch that failed is run again;
`bootstrap` and `kafka.*` for the cluster, else the one that Headrace would take anyway;
`limitTopic` and `limitShare`, the greatest share of a piece's rows that may go to a topic (of dead
letters): a piece with more is not written, and fails.
"""

import itertools
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headrace.clients import Connection, resolve
from headrace.config.producer_settings import PROFILES, producer_settings
from headrace.errors import BadInput, ConfigError
from headrace.spark.batches import Batch
from headrace.spark.columns import check_columns, pieces_of
from headrace.spark.ledger import ensure_ledger
from headrace.spark.pieces import Done, Target, write_piece

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = (
    *("topic", "job", "bootstrap", "profile"),
    *("partbytes", "partseconds", "limittopic", "limitshare"),
)
_OF_SPARK = ("checkpointlocation", "path", "queryname")
_KAFKA = "kafka."


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
        return BatchWriter(self._plan(schema, job))

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
            **_limits(self.options),
        )
        return Plan(target, topic, "piece" in schema.fieldNames())


@dataclass(frozen=True)
class Plan:
    """What a task needs to know."""

    target: Target
    topic: str | None
    in_pieces: bool

    def write(self, batches: Iterable["pa.RecordBatch"], place: "Place") -> PiecesDone:
        if self.in_pieces:
            return PiecesDone([self._write(*piece, place) for piece in _cut(batches)])
        return PiecesDone([self._write(None, batches, place)])

    def _write(
        self, piece: str | None, batches: Iterable["pa.RecordBatch"], place: "Place"
    ) -> Done:
        target = place.target(self.target)
        name = str(place.partition) if piece is None else piece
        return write_piece(
            target,
            place.entry(name),
            (Batch.of(batch, self.topic) for batch in batches),
            transactional_id=f"headrace/{target.job}/{name}",
            forget=place.outdated_entry(name),
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

    def outdated_entry(self, piece: str) -> str | None:
        """The last two micro-batches stay: Spark may run the last one again."""
        if self.batch is None or self.batch < 2:
            return None
        return f"{self.batch - 2}/{piece}"


class BatchWriter(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> PiecesDone:
        context = TaskContext.get()
        return self._plan.write(iterator, Place(context.partitionId() if context else 0))


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
        return Connection(bootstrap)
    return resolve(options.get("profile"), os.environ)


def _settings(connection: Connection, options: Mapping[str, str]) -> dict[str, Any]:
    own = {
        name[len(_KAFKA) :]: value
        for name, value in options.items()
        if name.lower().startswith(_KAFKA)
    }
    tuned = {
        name: PROFILES["throughput"][name]
        for name in (
            "linger.ms",
            "batch.size",
            "batch.num.messages",
            "queue.buffering.max.messages",
        )
    }
    settings = producer_settings("exactly-once", tuned | own, "per piece")
    for name in ("transactional.id", "transaction.timeout.ms", "statistics.interval.ms"):
        settings.pop(name, None)
    shared = connection.client_settings()
    shared.pop("logger")  # cannot travel to another process
    return shared | settings | {"log_level": 0}


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
