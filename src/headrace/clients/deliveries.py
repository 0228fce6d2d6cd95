"""What became of records on their way: one by one, and by the batch.

These objects are librdkafka's delivery callbacks themselves: the hot path makes one small object
a record (or one a chunk) and no lock, future or task. What somebody waits with is made when
somebody waits.

Between the waiter and the callback there is a race, harmless because each does its two steps in
opposite order: the waiter leaves its wake-up call, then looks at the outcome; the callback leaves
the outcome, then looks for wake-up calls. One of them sees the other.
"""

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError

from headrace.clients.failures import translate
from headrace.clients.serving import ATTENTION_SECONDS, Server
from headrace.errors import DeliveryFailed, KafkaFailure
from headrace.model import Deadline, Header

if TYPE_CHECKING:
    from headrace.clients.producer import Producer

WAIT_SECONDS = 60.0
LATENCY_EVERY = 16


class Outgoing(NamedTuple):
    """A record on its way: bytes, as they are handed to librdkafka."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = ()
    partition: int | None = None
    timestamp: int | None = None


class Acknowledged(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Delivery:
    """The fate of one record: pending, acknowledged, or failed with the record in hand.

    >>> delivery = producer.send("audit", b"paid")        # doctest: +SKIP
    >>> delivery.result()                                 # doctest: +SKIP
    Acknowledged(topic='audit', partition=0, offset=0, timestamp=1570000000000)
    >>> await delivery                                    # doctest: +SKIP
    """

    __slots__ = ("_fields", "_on_delivery", "_outcome", "_producer", "_wakers")

    def __init__(
        self,
        producer: "Producer",
        fields: tuple[str, bytes | None, bytes | None, Sequence[Header], int | None, int | None],
        on_delivery: "Callable[[Delivery], None] | None",
    ) -> None:
        self._producer = producer
        self._fields = fields
        self._on_delivery = on_delivery
        self._outcome: Any = None  # librdkafka's message, or its error
        self._wakers: list[Callable[[], object]] | None = None

    @property
    def record(self) -> Outgoing:
        """What was sent. Made when it is asked for: most deliveries never are."""
        return Outgoing(*self._fields)

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        """librdkafka's callback, on the thread that serves the producer."""
        producer = self._producer
        if error is None:
            self._outcome = message
            producer._acknowledged += 1
            if not producer._acknowledged % LATENCY_EVERY:
                producer._latency.add(message.latency() or 0.0)
        else:
            self._outcome = error
            producer._record_failure(self, error)
        if producer._looks_at_records:
            producer.interceptors.on_outcome(self)
        if self._on_delivery is not None:
            producer._call_back(self._on_delivery, self)
        if self._wakers is not None:
            for wake in self._wakers:
                wake()

    @property
    def done(self) -> bool:
        return self._outcome is not None

    @property
    def failed(self) -> bool:
        return isinstance(self._outcome, KafkaError)

    @property
    def reason(self) -> str | None:
        """Why it failed, if it did."""
        return self.failure().message if self.failed else None

    @property
    def latency(self) -> float | None:
        """Seconds from `send` to the acknowledgement, as librdkafka measured them."""
        return self._outcome.latency() if self.done and not self.failed else None

    def result(self, timeout: float = WAIT_SECONDS) -> Acknowledged:
        """Wait for the acknowledgement; raises DeliveryFailed, or KafkaFailure when none came."""
        if not self.done:
            self._wait(timeout)
        if self.failed:
            raise self.failure()
        message = self._outcome
        if message is None:
            raise KafkaFailure(
                f"no acknowledgement from {self.record.topic} within {timeout:g} s",
                hint="the record may still be written; wait longer, or look with `headrace status`",
                record=self.record,
            )
        return Acknowledged(
            message.topic(), message.partition(), message.offset(), message.timestamp()[1]
        )

    def failure(self) -> DeliveryFailed:
        """The error of a failed delivery."""
        assert isinstance(self._outcome, KafkaError)
        return _failure(self.record, self._outcome)

    def __await__(self) -> Generator[Any, None, Acknowledged]:
        if not self.done:
            loop = asyncio.get_running_loop()
            ready = loop.create_future()

            def settle() -> None:
                if not ready.done():
                    ready.set_result(None)

            self._wake_with(lambda: loop.call_soon_threadsafe(settle))
            self._producer._server.attend()
            if not self.done:
                yield from ready
        return self.result(0)

    def _wait(self, timeout: float) -> None:
        event = threading.Event()
        self._wake_with(event.set)
        deadline = Deadline(timeout)
        while not self.done and not deadline.expired:
            self._producer._server.attend()
            event.wait(deadline.remaining(at_most=ATTENTION_SECONDS / 2))

    def _wake_with(self, wake: Callable[[], object]) -> None:
        if self._wakers is None:
            self._wakers = []
        self._wakers.append(wake)


class FailedRecord(NamedTuple):
    """A record of a batch that was not written, and why."""

    record: Outgoing
    reason: str


class Many:
    """The fate of all records of one `send_many`."""

    def __init__(self, topic: str, server: Server) -> None:
        self.topic = topic
        self._server = server
        self.sent = 0
        self.failed: list[FailedRecord] = []
        self._settled = 0
        self._complete = False
        self._done = threading.Event()

    @property
    def done(self) -> bool:
        return self._complete and self._settled == self.sent

    @property
    def acknowledged(self) -> int:
        return self._settled - len(self.failed)

    def result(self, timeout: float = WAIT_SECONDS) -> int:
        """Wait for all; returns how many were written, or raises with the failed ones in hand."""
        deadline = Deadline(timeout)
        while not self.done and not deadline.expired:
            self._server.attend()
            self._done.wait(deadline.remaining(at_most=ATTENTION_SECONDS / 2))
        if not self.done:
            raise KafkaFailure(
                f"{self.sent - self._settled:,} of {self.sent:,} records to {self.topic} had no "
                f"acknowledgement within {timeout:g} s",
                hint="they may still be written; wait longer, or look with `headrace status`",
            )
        if self.failed:
            raise DeliveryFailed(
                f"{len(self.failed):,} of {self.sent:,} records were not written to {self.topic}, "
                f"the first: {self.failed[0].reason}",
                hint="they are in `error.facts['failed']`, to be sent again",
                failed=self.failed,
            )
        return self.sent

    def _close(self) -> None:
        """No more records will come."""
        self._complete = True
        if self.done:
            self._done.set()

    def _one_settled(self, delivery: Delivery) -> None:
        failed = [FailedRecord(delivery.record, delivery.reason)] if delivery.reason else []
        self._chunk_settled(1, failed)

    def _chunk_settled(self, count: int, failed: Sequence[FailedRecord]) -> None:
        self.failed.extend(failed)
        self._settled += count
        if self.done:
            self._done.set()


class Chunk:
    """The callback shared by all records of one call of produce_batch.

    Only the thread that serves the producer changes it, so it needs no lock: what the sending
    thread has to tell (a record that was not even taken) is handed over to that thread.
    """

    __slots__ = ("_failed", "_followed", "_left", "_many", "_producer", "count", "size")

    def __init__(self, producer: "Producer", many: Many, count: int, size: int) -> None:
        self._producer = producer
        self._many = many
        self._left = count
        self._failed: list[FailedRecord] = []
        self._followed = 0
        self.count = count
        self.size = size

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            partition = message.partition()
            record = Outgoing(
                message.topic(),
                message.value(),
                message.key(),
                partition=partition if partition >= 0 else None,
                timestamp=message.timestamp()[1],
            )
            self.refused(record, error)
            return
        self._left -= 1
        if not self._left:
            self._finish(message)

    def refused(self, record: Outgoing, error: KafkaError) -> None:
        """One record that was not written, or not even taken."""
        self._failed.append(FailedRecord(record, _failure(record, error).message))
        self._left -= 1
        if not self._left:
            self._finish(None)

    def follow(self, delivery: Delivery) -> None:
        """One record that went its own way after all; the producer has counted it already."""
        self._followed += 1
        self._left -= 1
        self._many._one_settled(delivery)
        if not self._left:
            self._finish(None)

    def _finish(self, message: Any) -> None:
        own = self.count - self._followed
        self._producer._chunk_settled(self.size, own, len(self._failed), message)
        self._many._chunk_settled(own, self._failed)


def _failure(record: Outgoing, error: KafkaError) -> DeliveryFailed:
    cause = translate(error, f"writing to {record.topic}")
    return DeliveryFailed(cause.message, hint=cause.hint, record=record, **cause.facts)
