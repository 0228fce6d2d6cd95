"""The producer: safe by default, tuned by profile, nothing dropped silently."""

import contextlib
import functools
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
from headrace.clients.deliveries import Acknowledged, Chunk, Delivery, Many, Outgoing
from headrace.clients.failures import translate
from headrace.clients.interceptors import Interceptor, Interceptors
from headrace.clients.partitioners import Partitioner, ToPartition
from headrace.clients.serving import Server
from headrace.clients.statistics import LatencySample, ProducerCounters, WireStatistics
from headrace.config.producer_settings import ProducerProfile, producer_settings
from headrace.errors import BadInput, BufferFull, ConfigError, KafkaFailure, TopicNotFound
from headrace.model import Deadline, Header

if TYPE_CHECKING:
    from headrace.serde import Serde

logger = logging.getLogger("headrace.producer")

FLUSH_SECONDS = 60.0
BLOCK_SECONDS = 60.0
SECONDS_TO_MEET = 2.0
SECONDS_TO_TRUST_METADATA = 30.0
CHUNK_RECORDS = 2_000
SERVE_EVERY = 100
# What send_many lets wait in librdkafka's queue; its own limit is twice as high, so that a chunk
# is taken whole and stays in order.
MANY_BYTES = 64 << 20
MAX_FAILURES_KEPT = 1_000
# An aborted transaction takes its records back: wanted, and no failure to complain of.
_TAKEN_BACK = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


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
        self.failures: deque[Delivery] = deque(maxlen=MAX_FAILURES_KEPT)
        self._key, self._value = key, value
        self._partitioner = partitioner
        self._looks_at_records = bool(interceptors) or partitioner is not None
        self._block = block
        self._acknowledged = self._failed = self._unserved = 0
        self._latency = LatencySample()
        self._wire = WireStatistics()
        self._partition_counts: dict[str, tuple[int, float]] = {}
        self._max_messages = int(own.get("queue.buffering.max.messages", 100_000))
        self._many_bytes = 0
        self._room = threading.Lock()
        self._server = Server()
        self._client = self._make_client(own)
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
        if self._value is not None or self._key is not None:
            value, key = self._encode(topic, value, key)
        if type(value) is str:
            value = value.encode()
        if type(key) is str:
            key = key.encode()
        if self._looks_at_records or partition is not None:
            record = Outgoing(topic, value, key, headers, partition, timestamp)
            topic, value, key, headers, partition, timestamp = self._prepare(record)
        delivery = Delivery(self, (topic, value, key, headers, partition, timestamp), on_delivery)
        try:
            if not headers and partition is None and timestamp is None:
                self._client.produce(topic, value, key, on_delivery=delivery)
            else:
                self._produce(delivery)
        except BufferError:
            self._produce_when_there_is_room(delivery)
        except KafkaException as error:
            raise self._refusal(delivery.record, error) from error
        self._unserved += 1
        if self._unserved > SERVE_EVERY:
            self._unserved = 0
            self._server.serve_if_free()
        return delivery

    def send_many(self, topic: str, records: Iterable[Any], *, chunk: int = CHUNK_RECORDS) -> Many:
        """The fast path over whole batches: values, `(key, value)` pairs, or `Outgoing` records.

        Returns once all are handed over, in order; `result()` waits until all are written.
        Records with headers, interceptors and partitioners take the slower way, one by one.
        """
        many = Many(topic, self._server)
        one_by_one = bool(self.interceptors) or self._partitioner is not None
        source = iter(records)
        chunk = max(1, min(chunk, self._max_messages))  # a chunk must fit whole
        while part := list(itertools.islice(source, chunk)):
            batch = None if one_by_one else self._messages(topic, part)
            if batch is None:
                self._send_each(topic, part, many)
            else:
                self._send_chunk(topic, batch, many)
        many._close()
        return many

    def flush(self, timeout: float = FLUSH_SECONDS) -> int:
        """Send now what lingers and wait for it; returns how many records are still pending."""
        deadline = Deadline(timeout)
        while len(self._client) and not deadline.expired:
            self._server.flush(deadline.remaining(at_most=0.1))
        return len(self._client)

    def close(self, timeout: float = FLUSH_SECONDS) -> None:
        """Wait for what is on its way, and raise if a record is not known to be written."""
        pending = self.flush(timeout)
        self._server.stop()
        if self.failures:
            raise self.failures[0].failure()
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
    def acknowledged(self) -> int:
        return self._acknowledged

    @property
    def failed(self) -> int:
        return self._failed

    @property
    def sent(self) -> int:
        return self._acknowledged + self._failed + len(self._client)

    def counters(self, *, fresh: bool = False) -> ProducerCounters:
        """What this producer has done; `fresh` waits for the next statistics (about 2 s)."""
        if fresh:
            self._wire.wait_for_next(10)
        wire = self._wire
        return ProducerCounters(
            sent=self.sent,
            acknowledged=self._acknowledged,
            failed=self._failed,
            pending=len(self._client),
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
            "queue.buffering.max.kbytes": 2 * MANY_BYTES // 1024,
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

    def _encode(self, topic: str, value: Any, key: Any) -> tuple[Any, Any]:
        from headrace.serde import Field

        if self._value is not None:
            value = self._value.encode(value, Field(topic, "value"))
        if self._key is not None:
            key = self._key.encode(key, Field(topic, "key"))
        return value, key

    def _prepare(self, record: Outgoing) -> Outgoing:
        """What interceptors and partitioners make of a record."""
        if self.interceptors:
            record = self.interceptors.before_send(record)
        if record.partition is not None or self._partitioner is not None:
            record = self._place(record)
        return record

    def _produce(self, delivery: Delivery) -> None:
        record = delivery.record
        more: dict[str, Any] = {}
        if record.headers:
            more["headers"] = list(record.headers)
        if record.partition is not None:
            more["partition"] = record.partition
        if record.timestamp is not None:
            more["timestamp"] = record.timestamp
        self._client.produce(record.topic, record.value, record.key, on_delivery=delivery, **more)

    def _produce_when_there_is_room(self, delivery: Delivery) -> None:
        started = time.monotonic()
        deadline = Deadline(self._block)
        while not deadline.expired:
            self._server.serve(deadline.remaining(at_most=0.01))
            with contextlib.suppress(BufferError):
                return self._produce(delivery)
        raise self._buffer_full(time.monotonic() - started, record=delivery.record)

    def _buffer_full(self, seconds: float, **facts: Any) -> BufferFull:
        pending = len(self._client)
        return BufferFull(
            f"the send buffer has been full for {seconds:.1f} s: {pending:,} records wait, "
            f"{self._max_messages:,} is the most",
            hint="is the cluster reachable and fast enough? `headrace status` tells; "
            "the record is still yours",
            pending=pending,
            **facts,
        )

    def _refusal(self, record: Outgoing, error: KafkaException) -> Exception:
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

    # --- many records ---

    def _messages(self, topic: str, part: Sequence[Any]) -> list[dict[str, Any]] | None:
        """What produce_batch takes; None if it cannot take these records."""
        if self._value is not None or self._key is not None:
            return [self._message(topic, record) for record in part]
        first = part[0]
        if type(first) is tuple and len(first) == 2:
            return [{"key": key, "value": value} for key, value in part]
        if isinstance(first, Outgoing):
            if any(record.headers or record.partition is not None for record in part):
                return None
            return [
                {"key": r.key, "value": r.value}
                if r.timestamp is None
                else {"key": r.key, "value": r.value, "timestamp": r.timestamp}
                for r in part
            ]
        return [{"value": value} for value in part]

    def _message(self, topic: str, record: Any) -> dict[str, Any]:
        key, value = record if type(record) is tuple and len(record) == 2 else (None, record)
        value, key = self._encode(topic, value, key)
        return {"key": _bytes(key), "value": _bytes(value)}

    def _send_each(self, topic: str, part: Sequence[Any], many: Many) -> None:
        for record in part:
            many.sent += 1
            if isinstance(record, Outgoing):
                self.send(*record._replace(topic=topic), on_delivery=many._one_settled)
            elif type(record) is tuple and len(record) == 2:
                self.send(topic, record[1], record[0], on_delivery=many._one_settled)
            else:
                self.send(topic, record, on_delivery=many._one_settled)

    def _send_chunk(self, topic: str, batch: list[dict[str, Any]], many: Many) -> None:
        size = sum(len(m["value"] or b"") + len(m.get("key") or b"") for m in batch)
        self._wait_for_room(len(batch), size, many)
        chunk = Chunk(self, many, len(batch), size)
        many.sent += len(batch)
        taken = self._client.produce_batch(topic, batch, on_delivery=chunk)
        if taken < len(batch):
            self._settle_refused(topic, batch, chunk)
        self._server.serve_if_free()

    def _wait_for_room(self, count: int, size: int, many: Many) -> None:
        started = time.monotonic()
        while not self._take_room(count, size):
            waited = time.monotonic() - started
            if waited > self._block:
                raise self._buffer_full(waited, handed_over=many.sent)
            self._server.serve(0.01)

    def _take_room(self, count: int, size: int) -> bool:
        with self._room:
            fits = self._many_bytes + size <= MANY_BYTES or not self._many_bytes
            if not fits or len(self._client) + count > self._max_messages:
                return False
            self._many_bytes += size
            return True

    def _settle_refused(self, topic: str, batch: list[dict[str, Any]], chunk: Chunk) -> None:
        """Records that produce_batch did not take: those without room are sent one by one."""
        for message in batch:
            error = message.get("_error")
            if error is None:
                continue
            record = Outgoing(topic, _bytes(message["value"]), _bytes(message.get("key")))
            if error.code() == KafkaError._QUEUE_FULL:
                self._produce_when_there_is_room(Delivery(self, record, chunk.follow))
            else:
                self._server.later(functools.partial(chunk.refused, record, error))

    # --- outcomes: called by whoever serves, one thread at a time ---

    def _record_failure(self, delivery: Delivery, error: KafkaError) -> None:
        self._failed += 1
        if error.code() not in _TAKEN_BACK:
            self.failures.append(delivery)

    def _chunk_settled(self, size: int, count: int, failed: int, message: Any) -> None:
        self._acknowledged += count - failed
        self._failed += failed
        if message is not None:
            self._latency.add(message.latency() or 0.0)
        with self._room:
            self._many_bytes -= size

    def _call_back(self, callback: Callable[[Delivery], None], delivery: Delivery) -> None:
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


def _bytes(value: Any) -> Any:
    return value.encode() if type(value) is str else value


def _text(error: Exception) -> str:
    inner = error.args[0] if error.args else error
    return inner.str() if isinstance(inner, KafkaError) else str(inner)


__all__ = ["Acknowledged", "Delivery", "Many", "Outgoing", "Producer"]
