"""Reading records in batches: by assigned partitions from a position, or as a member of a group."""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from headrace.clients.admin import Admin
from headrace.clients.connection import Connection, resolve
from headrace.clients.failures import translate
from headrace.errors import BadInput, KafkaFailure
from headrace.model import (
    AtOffset,
    Deadline,
    Earliest,
    Latest,
    Position,
    Record,
    TimestampType,
    TopicPartition,
)

BATCH = 1000
SECONDS_TO_JOIN = 60.0
_TIMESTAMP_TYPES = (TimestampType.NONE, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)


def to_record(message: Message) -> Record:
    """A client's message as a plain value."""
    kind, timestamp = message.timestamp()
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        timestamp,
        _TIMESTAMP_TYPES[kind],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.leader_epoch(),
    )


class Reader:
    """Reads a topic, to its end or on and on.

    >>> with Reader("clicks") as reader:                  # doctest: +SKIP
    ...     for batch in reader.batches():
    ...         print(len(batch))
    1000
    42

    Without a group it reads every partition (or one) from `start`, and leaves no trace. With a
    group it shares the partitions with the other members, begins where the group stopped (`start`
    counts where it has not yet been), and commits when `commit` is called.
    """

    def __init__(
        self,
        topic: str,
        *,
        connection: Connection | str | None = None,
        start: Position = Earliest(),  # noqa: B008 (a frozen value)
        partition: int | None = None,
        group: str | None = None,
        follow: bool = False,
        settings: dict[str, Any] | None = None,
    ) -> None:
        if isinstance(connection, str):
            connection = Connection(connection)
        self.connection = connection or resolve()
        self.topic = topic
        self._start = start
        self._follow = follow
        self._group = group
        self._admin = Admin(self.connection)
        self._partitions = self._choose_partitions(partition)
        if group is not None:
            _check_group_options(start, partition)
        self._ends: dict[int, int] = {}
        self._unfinished: set[int] = set()
        self._joined = False
        self._early: list[Message] = []
        self._consumer = self._make_consumer(settings or {})

    def batches(self, size: int = BATCH, *, empty: bool = False) -> Iterator[list[Record]]:
        """Records as they come. Ends at the end of the topic as it is now, unless following.

        With `empty`, an empty batch comes a few times a second while there is nothing to read,
        so that the caller can look after other things.
        """
        if self._group is None:
            self._assign()
        elif not self._joined:
            self._join()
        while self._follow or self._unfinished:
            messages = self._consume(size)
            batch = [record for message in messages if (record := self._accept(message))]
            if batch or empty:
                yield batch

    def commit(self, batch: Sequence[Record]) -> None:
        """Commit, as a group, that all records of this batch are done."""
        if not batch:
            return
        newest = {record.partition: record.offset for record in batch}
        offsets = [ClientPartition(self.topic, p, offset + 1) for p, offset in newest.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise translate(error, f"committing for group {self._group}") from error

    def close(self) -> None:
        """Leave the group at once, if there is one."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- inside ---

    def _choose_partitions(self, wanted: int | None) -> list[int]:
        known = [partition.id for partition in self._admin.topic(self.topic).partitions]
        if wanted is None:
            return known
        if wanted not in known:
            raise BadInput(
                f"topic {self.topic} has no partition {wanted}",
                hint=f"its partitions are {known[0]} to {known[-1]}",
                partition=wanted,
            )
        return [wanted]

    def _make_consumer(self, settings: dict[str, Any]) -> Consumer:
        reset = "latest" if isinstance(self._start, Latest) else "earliest"
        try:
            return Consumer(
                self.connection.client_settings()
                | {
                    "group.id": self._group or "headrace-reader",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": reset if self._group else "error",
                    "partition.assignment.strategy": "cooperative-sticky",
                }
                | settings
            )
        except (KafkaException, ValueError, TypeError) as error:
            raise translate(error, "making a consumer") from error

    def _assign(self) -> None:
        every = [TopicPartition(self.topic, partition) for partition in self._partitions]
        begins = self._begin_offsets(every)
        ends = self._admin.offsets(every, Latest())
        self._ends = {p.partition: end for p, end in ends.items()}
        self._unfinished = {p.partition for p in every if begins[p] < ends[p]}
        self._consumer.assign([ClientPartition(p.topic, p.partition, begins[p]) for p in every])

    def _begin_offsets(self, every: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not isinstance(self._start, AtOffset):
            return self._admin.offsets(every, self._start)
        earliest = self._admin.offsets(every, Earliest())
        latest = self._admin.offsets(every, Latest())
        wanted = self._start.offset
        if not any(earliest[p] <= wanted <= latest[p] for p in every):
            ranges = ", ".join(f"[{p.partition}] {earliest[p]} to {latest[p]}" for p in every)
            raise BadInput(
                f"no partition of {self.topic} has the offset {wanted}",
                hint=f"there is {ranges}",
                offset=wanted,
            )
        # A partition that begins later or ends earlier is read from there.
        return {p: min(max(wanted, earliest[p]), latest[p]) for p in every}

    def _join(self) -> None:
        """Become a member and wait until the group has given partitions, be it none."""

        def on_assign(_consumer: Consumer, partitions: list[ClientPartition]) -> None:
            self._joined = True
            self._unfinished |= {p.partition for p in partitions}

        def on_revoke(_consumer: Consumer, partitions: list[ClientPartition]) -> None:
            self._unfinished -= {p.partition for p in partitions}

        self._consumer.subscribe(
            [self.topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke
        )
        deadline = Deadline(SECONDS_TO_JOIN)
        while not self._joined and not deadline.expired:
            self._early.extend(self._poll(BATCH))
        if not self._joined:
            raise KafkaFailure(
                f"group {self._group} gave no partitions within {SECONDS_TO_JOIN:.0f} s",
                hint=f"look at it with `headrace group describe {self._group}`",
            )

    def _consume(self, size: int) -> list[Message]:
        if self._early:  # what came along with the assignment
            early, self._early = self._early[:size], self._early[size:]
            return early
        return self._poll(size)

    def _poll(self, size: int) -> list[Message]:
        try:
            return list(self._consumer.consume(size, timeout=0.2))
        except KafkaException as error:
            raise translate(error, f"reading {self.topic}") from error

    def _accept(self, message: Message) -> Record | None:
        """A record, or None for the end of a partition; other errors are raised."""
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._unfinished.discard(message.partition() or 0)
                return None
            if is_passing(error):
                return None
            raise translate(error, f"reading {self.topic}")
        record = to_record(message)
        if record.offset + 1 >= self._ends.get(record.partition, record.offset + 2):
            self._unfinished.discard(record.partition)
            if not self._follow and record.offset >= self._ends[record.partition]:
                return None  # written after this read began
        return record


# Brokers come and go; librdkafka reconnects by itself, and the caller's loop goes on.
_PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT})


def is_passing(error: KafkaError) -> bool:
    """Whether librdkafka goes on by itself after this error."""
    return error.retriable() or error.code() in _PASSING


def _check_group_options(start: Position, partition: int | None) -> None:
    if partition is not None:
        raise BadInput(
            "a group shares partitions by itself: --group and --partition exclude each other",
            hint="leave one of them out",
        )
    if not isinstance(start, Earliest | Latest):
        raise BadInput(
            "a group begins where it stopped: with --group, --from is earliest or latest",
            hint="move the group with `headrace group reset` instead",
        )
