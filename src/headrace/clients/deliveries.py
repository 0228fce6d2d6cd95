"""What became of a record on its way.

A delivery is librdkafka's callback itself: the hot path makes one small object a record, and no
lock, future or task. What somebody waits with is made when somebody waits. The record's bytes are
librdkafka's until its report gives them back, so that they are in memory once.

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
from headrace.clients.serving import ATTENTION_SECONDS
from headrace.errors import BadInput, DeliveryFailed, KafkaFailure
from headrace.model import Deadline, Header

if TYPE_CHECKING:
    from headrace.clients.producer import Producer

WAIT_SECONDS = 60.0
_WAITING = threading.Lock()
_TAKEN_BACK = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


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

    __slots__ = ("_outcome", "_producer", "_then")

    def __init__(self, producer: "Producer", then: "list[Then] | None") -> None:
        self._producer = producer
        self._then = then
        self._outcome: Any = None  # librdkafka's report: a message, with an error if it failed

    @property
    def record(self) -> Outgoing:
        """What was sent, from the report: until there is one, only librdkafka holds the record."""
        if self._outcome is None:
            raise BadInput("the record is on its way", hint="wait with .result() or on_delivery=")
        return record_of(self._outcome)

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        """librdkafka's callback, on the thread that serves the producer."""
        producer = self._producer
        if error is None and message.offset() is None and producer._wants_offsets:
            message = Unplaced(message)
            error = message.error()
        self._outcome = message
        if error is None:
            producer._acknowledged = count = producer._acknowledged + 1
            if count >= producer._next_latency:
                producer._note_latency(message)
        else:
            producer._note_failure(self)
        if self._then is not None:
            for action in self._then:
                producer._call_back(action, self)

    @property
    def caller_listens(self) -> bool:
        """Somebody gave `on_delivery`, or waits: a failure is theirs to deal with."""
        return self._then is not None

    @property
    def done(self) -> bool:
        return self._outcome is not None

    @property
    def failed(self) -> bool:
        return self._outcome is not None and self._outcome.error() is not None

    @property
    def reason(self) -> str | None:
        """Why it failed, if it did."""
        failed = self.failed_record
        return failed.reason if failed else None

    @property
    def latency(self) -> float | None:
        """Seconds from `send` to the acknowledgement, as librdkafka measured them."""
        return self._outcome.latency() if self.done and not self.failed else None

    def result(self, timeout: float = WAIT_SECONDS) -> Acknowledged:
        """Wait for the acknowledgement; raises DeliveryFailed, or KafkaFailure when none came."""
        if not self.done:
            self._wait(timeout)
        if self.failed:
            self._producer._was_told(self)
            raise self.failure()
        message = self._outcome
        if message is None:
            raise KafkaFailure(
                f"no acknowledgement within {timeout:g} s",
                hint="the record may still be written; wait longer, or look with `headrace status`",
            )
        return Acknowledged(
            message.topic(), message.partition(), message.offset(), message.timestamp()[1]
        )

    @property
    def failed_record(self) -> "FailedRecord | None":
        """The record and why it failed, if it did."""
        error = self._outcome.error() if self.done else None
        return FailedRecord.by(error, self.record) if error is not None else None

    def failure(self) -> DeliveryFailed:
        """The error of a failed delivery."""
        return failure_of(self.record, self._outcome.error())

    def __await__(self) -> Generator[Any, None, Acknowledged]:
        if not self.done:
            loop = asyncio.get_running_loop()
            ready = loop.create_future()

            def settle() -> None:
                if not ready.done():
                    ready.set_result(None)

            self._wake_with(lambda _self: loop.call_soon_threadsafe(settle))
            self._producer._server.attend()
            if not self.done:
                yield from ready
        return self.result(0)

    def _wait(self, timeout: float) -> None:
        event = threading.Event()
        self._wake_with(lambda _self: event.set())
        deadline = Deadline(timeout)
        while not self.done and not deadline.expired:
            self._producer._server.attend()
            event.wait(deadline.remaining(at_most=ATTENTION_SECONDS / 2))

    def _wake_with(self, wake: "Then") -> None:
        with _WAITING:  # two threads may begin to wait at once; those who only send take no lock
            self._then = [*(self._then or ()), wake]


Then = Callable[[Delivery], object]


class DetailedDelivery(Delivery):
    """The delivery of a record with headers, partition or timestamp, which no report repeats."""

    __slots__ = ("_record",)

    def __init__(self, producer: "Producer", then: list[Then] | None, record: Outgoing) -> None:
        super().__init__(producer, then)
        self._record = record

    @property
    def record(self) -> Outgoing:
        return self._record

    @property
    def caller_listens(self) -> bool:
        return bool(self._then) and self._then != [self._producer.interceptors.on_outcome]


class Unplaced:
    """A report of success that does not say where: the record may not be stored.

    When a broker refuses the first batches of a new idempotent producer and then takes a later
    one, librdkafka counts the refused ones as written. They are not. No broker has told their
    offset, and by that they are known.
    """

    def __init__(self, message: Any) -> None:
        self._message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._INCONSISTENT, "counted as written, but no broker said where")


class FailedRecord(NamedTuple):
    """A record that was not written, and why."""

    record: Outgoing
    reason: str
    taken_back: bool = False  # by an aborted transaction: wanted, and nothing to complain of

    @classmethod
    def by(cls, error: KafkaError, record: Outgoing) -> "FailedRecord":
        return cls(record, failure_of(record, error).message, error.code() in _TAKEN_BACK)


def as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def record_of(message: Any) -> Outgoing:
    return Outgoing(message.topic(), message.value(), message.key())


def failure_of(record: Outgoing, error: KafkaError) -> DeliveryFailed:
    cause = translate(error, f"writing to {record.topic}")
    return DeliveryFailed(cause.message, hint=cause.hint, record=record, **cause.facts)
