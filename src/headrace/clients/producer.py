"""The producer: safe by default, tuned by profile, nothing dropped silently."""

import contextlib
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as Client

from headrace.clients.admin import SECONDS_TO_SPREAD
from headrace.clients.connection import Connection, resolve
from headrace.clients.deliveries import (
    Acknowledged,
    Delivery,
    DetailedDelivery,
    FailedRecord,
    Outgoing,
    Then,
    as_bytes,
)
from headrace.clients.failures import translate
from headrace.clients.interceptors import Interceptor, Interceptors
from headrace.clients.many import MANY_BYTES, Many, ManySender, Pair
from headrace.clients.partitioners import Partitioner, ToPartition
from headrace.clients.serving import Server
from headrace.clients.statistics import LatencySample, ProducerCounters, WireStatistics
from headrace.config.producer_settings import ProducerProfile, producer_settings
from headrace.errors import (
    BadInput,
    BufferFull,
    ConfigError,
    DeliveryFailed,
    KafkaFailure,
    TopicNotFound,
)
from headrace.model import Deadline, Header

if TYPE_CHECKING:
    from headrace.serde import Serde

logger = logging.getLogger("headrace.producer")

FLUSH_SECONDS = 60.0
BLOCK_SECONDS = 60.0
SECONDS_TO_MEET = 2.0
SECONDS_TO_TRUST_METADATA = 30.0
CHUNK_RECORDS = 2_000  # as many as stay in the processor's cache
SERVE_EVERY = 100
LATENCIES_OF_ALL = 1_000
LATENCY_EVERY = 100
MAX_FAILURES_KEPT = 1_000
ANY_PARTITION = -1
_new = object.__new__


class Producer:
    """Sends records to one cluster. May be used by many threads at once.

    >>> with Producer(profile="durable") as producer:                # doctest: +SKIP
    ...     producer.send("audit", b"paid", key=b"order-7").result()
    Acknowledged(topic='audit', partition=0, offset=0, timestamp=1570000000000)

    `profile` is durable (the default), throughput, latency or exactly-once; `settings` are any of
    librdkafka's, over the profile's. `key` and `value` are serdes; without one, bytes, text and
    None are taken. `partitioner` and `interceptors` see every record. A full buffer blocks for up
    to `block` seconds. Leaving the `with` block waits for all that is on its way; a record that
    could not be written raises.
    """

    def __init__(
        self,
        connection: Connection | str | None = None,
        settings: dict[str, Any] | None = None,
        *,
        profile: ProducerProfile = "durable",
        key: "Serde[Any] | None" = None,
        value: "Serde[Any] | None" = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[Interceptor] = (),
        block: float = BLOCK_SECONDS,
        transactional_id: str | None = None,
    ) -> None:
        own = producer_settings(profile, settings or {}, transactional_id)
        if partitioner is not None and "partitioner" in (settings or {}):
            raise ConfigError(
                "partitioner is given both as a setting and as an argument",
                hint="leave one of them out",
            )
        if isinstance(connection, str):
            connection = Connection(connection)
        self.connection = connection or resolve()
        self.interceptors = Interceptors(interceptors)
        self._untold: deque[tuple[object, FailedRecord]] = deque(maxlen=MAX_FAILURES_KEPT)
        self._telling = threading.Lock()
        self._key, self._value = key, value
        self._partitioner = partitioner
        # Nothing looks at a record between `send` and librdkafka.
        self._plain = key is None and value is None and partitioner is None and not interceptors
        self._block = block
        self._wants_offsets = str(own.get("acks", "all")) != "0"  # with acks=0 nobody tells any
        self._acknowledged = self._failed = 0
        self._sends = itertools.count(1)  # the one counter that many threads may share
        self._latency = LatencySample()
        self._next_latency = 1
        self._wire = WireStatistics()
        self._partition_counts: dict[str, tuple[int, float]] = {}
        self._max_messages = int(own.get("queue.buffering.max.messages", 100_000))
        self._max_kbytes = int(own.get("queue.buffering.max.kbytes", 2 * MANY_BYTES // 1024))
        self._many = ManySender(self, self._max_messages)
        self._server = Server()
        self._client = self._make_client(own)
        self._hand_over = self._client.produce
        self._transactional = "transactional.id" in own
        self._meet(transactional="transactional.id" in own)
        self._server.start(self._client)

    # --- sending ---

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp: int | None = None,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> Delivery:
        """Hand a record over and return its delivery, to be awaited or not.

        Raises before anything is sent if the record cannot be right: a value the serde does not
        take, a partition the topic does not have, more bytes than a record may have.
        """
        if self._plain and not headers and partition is None and timestamp is None:
            delivery = _new(Delivery)  # not Delivery(...): its __init__ would cost a twentieth
            delivery._producer = self
            delivery._then = None if on_delivery is None else [on_delivery]
            delivery._outcome = None
            try:
                self._hand_over(topic, value, key, ANY_PARTITION, delivery)
            except (BufferError, KafkaException, TypeError) as error:
                self._try_again(Outgoing(topic, value, key), delivery, error)
        else:
            delivery = self._send_with_care(
                Outgoing(topic, value, key, headers, partition, timestamp), on_delivery
            )
        if not next(self._sends) % SERVE_EVERY:
            self._server.serve_if_free()
        return delivery

    def send_many(self, topic: str, records: Iterable[Any], *, chunk: int = CHUNK_RECORDS) -> Many:
        """The fast path over whole batches: values, `(key, value)` pairs, or `Outgoing` records.

        Returns once all are handed over, in order; `result()` waits until all are written.
        Records with headers, partition or timestamp take the slower way, one by one, and so do all
        with interceptors or a partitioner.
        """
        one_by_one = bool(self.interceptors) or self._partitioner is not None
        return self._many.send(topic, records, chunk, one_by_one=one_by_one)

    def flush(self, timeout: float = FLUSH_SECONDS) -> int:
        """Send now what lingers and wait for it; returns how many records are still pending."""
        deadline = Deadline(timeout)
        while self.pending and not deadline.expired:
            self._server.flush(deadline.remaining(at_most=0.1))
        return self.pending

    def close(self, timeout: float = FLUSH_SECONDS) -> None:
        """Wait for what is on its way, and raise if a record is not known to be written."""
        pending = self.flush(timeout)
        self._server.stop()
        if failures := self.failures:
            raise DeliveryFailed(
                f"{self._failed:,} of {self.sent:,} records were not written, "
                f"the first: {failures[0].reason}",
                hint="they are in `producer.failures`, to be sent again",
                record=failures[0].record,
            )
        if pending:
            raise KafkaFailure(
                f"{pending:,} records had no acknowledgement within {timeout:g} s",
                hint="they may still be written; look with `headrace status`",
                pending=pending,
            )

    @contextlib.contextmanager
    def transaction(self, timeout: float = FLUSH_SECONDS) -> Iterator[Self]:
        """Records sent inside become visible together; an exception takes them all back.

        For profile exactly-once. If this raises KafkaFailure the outcome may be in doubt: make
        the producer anew with the same transactional id, which settles it one way or the other.
        """
        if not self._transactional:
            raise ConfigError(
                "this producer has no transactional id",
                hint="make it with profile='exactly-once', transactional_id='...'",
            )
        self._in_doubt(self._client.begin_transaction)
        try:
            yield self
        except BaseException:
            self._in_doubt(self._client.abort_transaction, timeout)
            raise
        self._in_doubt(self._client.commit_transaction, timeout)

    @property
    def failures(self) -> list[FailedRecord]:
        """Records that were not written and nobody was told of, the last thousand at most.

        Told is who waited with `result()` or `await`, or gave `on_delivery`.
        """
        return [failed for _source, failed in tuple(self._untold)]

    @property
    def acknowledged(self) -> int:
        return self._acknowledged

    @property
    def failed(self) -> int:
        return self._failed

    @property
    def sent(self) -> int:
        alone = int(repr(self._sends).removeprefix("count(").removesuffix(")")) - 1
        return alone + self._many.sent

    @property
    def pending(self) -> int:
        return max(0, self.sent - self._acknowledged - self._failed)

    def counters(self, *, fresh: bool = False) -> ProducerCounters:
        """What this producer has done; `fresh` waits for the next statistics (about 2 s)."""
        if fresh:
            self._wire.wait_for_next(10)
        wire = self._wire
        return ProducerCounters(
            sent=self.sent,
            acknowledged=self._acknowledged,
            failed=self._failed,
            pending=self.pending,
            latency_p50_ms=self._latency.percentile(50),
            latency_p95_ms=self._latency.percentile(95),
            latency_p99_ms=self._latency.percentile(99),
            latency_max_ms=self._latency.maximum,
            bytes=wire.bytes,
            batches=wire.batches,
            records_per_batch=round(wire.batched_records / wire.batches, 1)
            if wire.batches
            else None,
            bytes_on_the_wire=wire.bytes_on_the_wire,
            request_latency_ms=wire.request_latency_ms,
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
            self._server.stop()

    # --- making the client ---

    def _make_client(self, own: dict[str, Any]) -> Client:
        limits = {
            "queue.buffering.max.kbytes": self._max_kbytes,
            "stats_cb": self._wire.update,
        }
        try:
            return Client(self.connection.client_settings() | limits | own)
        except (KafkaException, ValueError, TypeError) as error:
            raise ConfigError(
                f"librdkafka refuses the producer's settings: {_text(error)}",
                hint="check the name and the value of the setting",
            ) from error

    def _meet(self, *, transactional: bool) -> None:
        """One question to the cluster now, and the first record does not wait.

        An idempotent producer asks for its id when it knows a broker, else half a second later.
        """
        with contextlib.suppress(KafkaException):
            self._client.list_topics("__consumer_offsets", timeout=SECONDS_TO_MEET)
        if transactional:
            self._in_doubt(self._client.init_transactions, FLUSH_SECONDS)

    # --- one record ---

    def _encode_pairs(self, topic: str, pairs: Sequence[Pair]) -> Sequence[Pair]:
        if self._value is None and self._key is None:
            return pairs
        encoded = (self._encode(topic, value, key) for key, value in pairs)
        return [(key, value) for value, key in encoded]

    def _encode(self, topic: str, value: Any, key: Any) -> tuple[Any, Any]:
        from headrace.serde import Field

        if self._value is not None:
            value = self._value.encode(value, Field(topic, "value"))
        if self._key is not None:
            key = self._key.encode(key, Field(topic, "key"))
        return value, key

    def _send_with_care(
        self, record: Outgoing, on_delivery: Callable[[Delivery], None] | None
    ) -> Delivery:
        """The way of a record that serdes, interceptors or a partitioner look at."""
        value, key = record.value, record.key
        if self._value is not None or self._key is not None:
            value, key = self._encode(record.topic, value, key)
        record = record._replace(value=as_bytes(value), key=as_bytes(key))
        then: list[Then] = []
        if self.interceptors:
            record = self.interceptors.before_send(record)
            then.append(self.interceptors.on_outcome)
        if record.partition is not None or self._partitioner is not None:
            record = self._place(record)
        if on_delivery is not None:
            then.append(on_delivery)
        delivery = DetailedDelivery(self, then or None, record)
        try:
            self._produce(record, delivery)
        except (BufferError, KafkaException, TypeError) as error:
            self._try_again(record, delivery, error)
        return delivery

    def _produce(self, record: Outgoing, delivery: Delivery) -> None:
        more: dict[str, Any] = {}
        if record.headers:
            more["headers"] = list(record.headers)
        if record.partition is not None:
            more["partition"] = record.partition
        if record.timestamp is not None:
            more["timestamp"] = record.timestamp
        self._client.produce(record.topic, record.value, record.key, on_delivery=delivery, **more)

    def _try_again(self, record: Outgoing, delivery: Delivery, refused: Exception) -> None:
        """Wait for room in the buffer; any other refusal is final."""
        record = record._replace(value=as_bytes(record.value), key=as_bytes(record.key))
        if not isinstance(refused, BufferError):
            raise self._refusal(record, refused) from refused
        started = time.monotonic()
        deadline = Deadline(self._block)
        while not deadline.expired:
            self._server.serve(deadline.remaining(at_most=0.01))
            with contextlib.suppress(BufferError):
                return self._produce(record, delivery)
        raise self._buffer_full(time.monotonic() - started, record=record)

    def _buffer_full(self, seconds: float, **facts: Any) -> BufferFull:
        pending = self.pending
        return BufferFull(
            f"the send buffer has been full for {seconds:.1f} s: {pending:,} records wait, "
            f"{self._max_messages:,} or {self._max_kbytes:,} KB is the most",
            hint="is the cluster reachable and fast enough? `headrace status` tells; "
            "the record is still yours",
            pending=pending,
            **facts,
        )

    def _refusal(self, record: Outgoing, error: Exception) -> Exception:
        if not isinstance(error, KafkaException):
            return BadInput(
                f"a record to {record.topic} has parts of the wrong type: {error}",
                hint="key and value are bytes, text or None, unless the producer has serdes for "
                "them: Producer(value=hr.Json()); headers are (name, bytes) pairs",
                record=record,
            )
        if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
            size = len(record.value or b"") + len(record.key or b"")
            return BadInput(
                f"a record of {size:,} bytes is larger than a record may be",
                hint="raise message.max.bytes here and max.message.bytes on the topic, "
                "or send less",
                record=record,
            )
        return translate(error, f"writing to {record.topic}")

    # --- partitions ---

    def _place(self, record: Outgoing) -> Outgoing:
        """Ask the partitioner, and refuse a partition that the topic does not have."""
        count = self._partition_count(record.topic)
        partition = record.partition
        if partition is None:
            assert self._partitioner is not None
            partition = self._partitioner(
                ToPartition(record.topic, record.key, record.value, record.headers, count)
            )
        if not 0 <= partition < count:
            count = self._partition_count(record.topic, anew=True)  # it may have grown
        if not 0 <= partition < count:
            raise BadInput(
                f"topic {record.topic} has no partition {partition}",
                hint=f"its partitions are 0 to {count - 1}",
                record=record,
            )
        return record._replace(partition=partition)

    def _partition_count(self, topic: str, *, anew: bool = False) -> int:
        count, until = self._partition_counts.get(topic, (0, 0.0))
        now = time.monotonic()
        if anew or now > until:
            count = self._ask_partition_count(topic)
            self._partition_counts[topic] = (count, now + SECONDS_TO_TRUST_METADATA)
        return count

    def _ask_partition_count(self, topic: str) -> int:
        """How many partitions the cluster says; some brokers may not know a new topic yet."""
        for _ in Deadline(SECONDS_TO_SPREAD).polls(every=0.1):
            try:
                found = self._client.list_topics(topic, timeout=10).topics[topic]
            except KafkaException as error:
                raise translate(error, f"looking at topic {topic}") from error
            if found.error is None:
                return len(found.partitions)
        raise TopicNotFound(
            f"there is no topic {topic}", hint=f"make it: headrace topic create {topic}"
        )

    # --- outcomes: called by whoever serves, one thread at a time ---

    def _note_failure(self, delivery: Delivery) -> None:
        self._failed += 1
        if not delivery.caller_listens and (failed := delivery.failed_record):
            self._remember(delivery, [failed])

    def _remember(self, source: object, failed: Sequence[FailedRecord]) -> None:
        """Failures to raise when the producer is closed, unless the caller is told before."""
        if failed:
            with self._telling:
                self._untold.extend((source, one) for one in failed if not one.taken_back)

    def _was_told(self, source: object) -> None:
        with self._telling:
            kept = [entry for entry in self._untold if entry[0] is not source]
            self._untold.clear()
            self._untold.extend(kept)

    def _note_latency(self, message: Any) -> None:
        """Every record's latency at first, then a sample: asking costs a tenth of sending."""
        self._latency.add(message.latency() or 0.0)
        every = 1 if self._acknowledged < LATENCIES_OF_ALL else LATENCY_EVERY
        self._next_latency = self._acknowledged + every

    def _chunk_settled(self, count: int, failed: int, message: Any) -> None:
        self._acknowledged += count - failed
        self._failed += failed
        if message is not None:
            self._latency.add(message.latency() or 0.0)

    def _call_back(self, callback: Then, delivery: Delivery) -> None:
        """A user's callback that raises must not stop the thread that serves all others."""
        try:
            callback(delivery)
        except Exception:
            logger.exception("the on_delivery callback of a record to %s", delivery.record.topic)

    def _in_doubt(self, step: Callable[..., Any], *arguments: Any) -> None:
        try:
            step(*arguments)
        except KafkaException as error:
            raise KafkaFailure(
                f"the transaction's {step.__name__.replace('_', ' ')} failed: {_text(error)}",
                hint="make the producer anew with the same transactional id, and send again what "
                "is not in the topic",
            ) from error


def _text(error: Exception) -> str:
    inner = error.args[0] if error.args else error
    return inner.str() if isinstance(inner, KafkaError) else str(inner)


__all__ = ["Acknowledged", "Delivery", "Many", "Outgoing", "Producer"]
