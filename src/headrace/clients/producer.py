"""A thin, typed producer. Safe by default: idempotent, acks=all, nothing dropped silently."""

import contextlib
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as Client

from headrace.clients.connection import Connection, resolve
from headrace.clients.failures import translate
from headrace.errors import DeliveryFailed, KafkaFailure
from headrace.model import Deadline, Header

BLOCK_SECONDS = 60.0
FLUSH_SECONDS = 60.0
SECONDS_TO_MEET = 2.0


class Outgoing(NamedTuple):
    """A record on its way: what was given to `send`."""

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
    """The fate of one record: pending, acknowledged, or failed with the record in hand."""

    __slots__ = ("_acknowledged", "_client", "_error", "record")

    def __init__(self, client: Client, record: Outgoing) -> None:
        self.record = record
        self._client = client
        self._acknowledged: Acknowledged | None = None
        self._error: KafkaError | None = None

    @property
    def done(self) -> bool:
        return self._acknowledged is not None or self._error is not None

    @property
    def failed(self) -> bool:
        return self._error is not None

    @property
    def reason(self) -> str | None:
        """Why it failed, if it did."""
        return None if self._error is None else self.failure().message

    def result(self, timeout: float = FLUSH_SECONDS) -> Acknowledged:
        """Wait for the acknowledgement; raises DeliveryFailed, or KafkaFailure when none came."""
        deadline = Deadline(timeout)
        while not self.done and not deadline.expired:
            self._client.poll(deadline.remaining(at_most=0.1))
        if self._error is not None:
            raise self.failure()
        if self._acknowledged is None:
            raise KafkaFailure(
                f"no acknowledgement from {self.record.topic} within {timeout:.0f} s",
                hint="the record may still be written; wait longer, or look with `headrace status`",
                record=self.record,
            )
        return self._acknowledged

    def failure(self) -> DeliveryFailed:
        """The error of a failed delivery."""
        assert self._error is not None
        cause = translate(self._error, f"writing to {self.record.topic}")
        return DeliveryFailed(cause.message, hint=cause.hint, record=self.record, **cause.facts)

    def _settle(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._error = error
        else:
            self._acknowledged = Acknowledged(
                message.topic(), message.partition(), message.offset(), message.timestamp()[1]
            )


class Producer:
    """Sends records to one cluster.

    >>> with Producer() as producer:                                # doctest: +SKIP
    ...     producer.send("audit", b"paid", key=b"order-7").result()
    Acknowledged(topic='audit', partition=0, offset=0, timestamp=1570000000000)

    Leaving the block waits for all that is on its way; a record that could not be written raises.
    """

    def __init__(
        self, connection: Connection | str | None = None, settings: dict[str, Any] | None = None
    ) -> None:
        if isinstance(connection, str):
            connection = Connection(connection)
        self.connection = connection or resolve()
        safe = {
            "enable.idempotence": True,  # which implies acks=all
            "linger.ms": 5,
            "compression.type": "lz4",
            "allow.auto.create.topics": False,
            "partitioner": "murmur2_random",  # a key goes where the Java client sends it
        }
        try:
            self._client = Client(self.connection.client_settings() | safe | (settings or {}))
        except (KafkaException, ValueError, TypeError) as error:
            raise translate(error, "making a producer") from error
        # An idempotent producer asks for its id when it knows a broker, else half a second later:
        # one question to the cluster now, and the first record does not wait.
        with contextlib.suppress(KafkaException):
            self._client.list_topics("__consumer_offsets", timeout=SECONDS_TO_MEET)
        self.sent = 0
        self.acknowledged = 0
        self.failures: list[Delivery] = []

    def send(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp: int | None = None,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> Delivery:
        """Hand a record over; a full buffer blocks for up to a minute, then raises."""
        record = Outgoing(topic, _bytes(value), _bytes(key), headers, partition, timestamp)
        delivery = Delivery(self._client, record)

        def settled(error: KafkaError | None, message: Any) -> None:
            delivery._settle(error, message)
            if error is None:
                self.acknowledged += 1
            else:
                self.failures.append(delivery)
            if on_delivery is not None:
                on_delivery(delivery)

        self._produce(record, settled)
        self.sent += 1
        self._client.poll(0)
        return delivery

    def flush(self, timeout: float = FLUSH_SECONDS) -> int:
        """Wait for what is on its way; returns how many records are still pending."""
        return int(self._client.flush(timeout))

    def close(self, timeout: float = FLUSH_SECONDS) -> None:
        """Wait for what is on its way, and raise if a record is not known to be written."""
        pending = self.flush(timeout)
        if self.failures:
            raise self.failures[0].failure()
        if pending:
            raise KafkaFailure(
                f"{pending} records had no acknowledgement within {timeout:.0f} s",
                hint="they may still be written; look with `headrace status`",
                pending=pending,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.flush()

    def _produce(self, record: Outgoing, settled: Callable[..., None]) -> None:
        started = time.monotonic()
        while True:
            try:
                self._client.produce(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers) or None,
                    partition=-1 if record.partition is None else record.partition,
                    timestamp=record.timestamp or 0,
                    on_delivery=settled,
                )
                return
            except BufferError as error:
                waited = time.monotonic() - started
                if waited > BLOCK_SECONDS:
                    raise KafkaFailure(
                        f"the send buffer has been full for {waited:.0f} s "
                        f"({len(self._client):,} records wait)",
                        hint="is the cluster reachable? `headrace status` tells",
                        record=record,
                    ) from error
                self._client.poll(0.05)
            except KafkaException as error:
                raise translate(error, f"writing to {record.topic}") from error


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
