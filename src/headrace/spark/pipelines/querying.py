"""A streaming query over topics: what it reads, who hears of it, and its life until the end."""

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import orjson

from headrace.clients import Admin, Connection
from headrace.errors import HeadraceError, TopicExists, TopicNotFound
from headrace.model import Deadline, Latest, TopicPartition
from headrace.observe import Progress
from headrace.observe.signals import stopping_on_signals
from headrace.spark.interrupts import cancelled_by_ctrl_c
from headrace.spark.reading import committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

_EARLIEST = -2  # as Spark writes it
MAY_EXCEED = 0.1
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_UNTIL_STOPPED = 0.05
SECONDS_BETWEEN_TRIES = 5.0
SECONDS_BETWEEN_WORDS = 60.0


# --- topics ---


def partitions_of(admin: Admin, names: Sequence[str]) -> dict[str, int]:
    """How many partitions each topic has; those that do not exist are all named."""
    found, missing = {}, []
    for name in names:
        try:
            found[name] = len(admin.topic(name).partitions)
        except TopicNotFound as error:
            missing.append((name, error))
    if len(missing) == 1:
        raise missing[0][1]
    if missing:
        gone = [name for name, _ in missing]
        raise TopicNotFound(
            f"there are no topics {', '.join(gone)}",
            hint=" && ".join(f"headrace topic create {name}" for name in gone),
        )
    return found


def ensure_dead_topic(admin: Admin, name: str, partitions: int) -> str:
    with contextlib.suppress(TopicExists):
        admin.create_topic(name, partitions, None, {})
    return name


def records_left(admin: Admin, names: Sequence[str], ends: Mapping[str, Mapping[str, int]]) -> int:
    """How many are to come; markers of transactions are counted as records."""
    places = [
        TopicPartition(name, number)
        for name, count in partitions_of(admin, names).items()
        for number in range(count)
    ]
    offsets = admin.offsets(places, Latest())
    read = {at: ends.get(at.topic, {}).get(str(at.partition), 0) for at in places}
    return sum(max(0, end - read[at]) for at, end in offsets.items())


def batch_limit(left: int, limit: int, partitions: int) -> int:
    """How many records a batch may take, if so many are left and about `limit` are wanted.

    Every batch costs seconds, however small it is: they are of one size, and no last one is left
    with a few records. Spark rounds down for each partition.

    >>> batch_limit(1_000_005, 1_000_000, 5), batch_limit(1_500_000, 1_000_000, 5)
    (1000010, 750005)
    """
    batches = max(1, math.ceil(left / (limit * (1 + MAY_EXCEED))))
    return limit if left == 0 else math.ceil(left / batches) + partitions


def starting_after(
    admin: Admin, names: Sequence[str], ends: Mapping[str, Mapping[str, int]]
) -> str:
    """Where to start, for Spark: where earlier batches end, at the beginning of what is new."""
    if not ends:
        return "earliest"
    offsets = {
        name: {str(n): ends.get(name, {}).get(str(n), _EARLIEST) for n in range(count)}
        for name, count in partitions_of(admin, names).items()
    }
    return orjson.dumps(offsets).decode()


def committed_records(
    spark: "SparkSession",
    connection: Connection,
    names: Sequence[str],
    group: str,
    *,
    realtime: bool = False,
) -> "DataStreamReader":
    """All that was committed to these topics."""
    reader = spark.readStream.format("kafka").option("subscribe", ",".join(names))
    reader = reader.options(**committed(connection, known_ranges=not realtime))
    return reader.option("groupIdPrefix", group)


# --- the query's life ---


def triggered(writer: "DataStreamWriter", every: float | None) -> "DataStreamWriter":
    """Once for all that is there now, or every so many seconds."""
    if every is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{every} seconds")


@contextlib.contextmanager
def heard_by(spark: "SparkSession", listener: "StreamingQueryListener") -> Iterator[None]:
    """The listener hears of all batches: Spark tells it a moment after each."""
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # what it would hear is done, and the next run tells
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
            spark.streams.removeListener(listener)


class Patience:
    """Waits for whoever is away and may come back, until somebody stops the query. It says so when
    it begins, and every minute."""

    def __init__(self, progress: Progress, stop: threading.Event) -> None:
        self._progress, self._stop = progress, stop
        self._silent = Deadline(0)

    def __call__(self, error: HeadraceError) -> bool:
        """Whether to ask again, after a while."""
        if self._silent.expired:
            self._progress.warn(f"{error}; asking again every {SECONDS_BETWEEN_TRIES:.0f} s")
            self._silent = Deadline(SECONDS_BETWEEN_WORDS)
        return not self._stop.wait(SECONDS_BETWEEN_TRIES)


def wait_for_end(
    query: "StreamingQuery",
    stop: threading.Event,
    *,
    once: bool,
    may_stop: Callable[[], bool] = lambda: True,
) -> None:
    """Until the query ends, by itself or because somebody wants it to.

    A signal from now on ends the query in order.
    """
    with cancelled_by_ctrl_c(query.stop) if once else stopping_on_signals(stop.set):
        while not query.awaitTermination(_pause(stop)):  # type: ignore[arg-type]
            if stop.is_set() and may_stop():
                query.stop()


def _pause(stop: threading.Event) -> float:
    return SECONDS_UNTIL_STOPPED if stop.is_set() else SECONDS_BETWEEN_LOOKS
