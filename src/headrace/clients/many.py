"""Many records at once: whole chunks to librdkafka, one callback for each chunk."""

import functools
import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from headrace.clients.deliveries import (
    WAIT_SECONDS,
    Delivery,
    DetailedDelivery,
    FailedRecord,
    Outgoing,
    Unplaced,
    as_bytes,
    record_of,
)
from headrace.clients.failures import translate
from headrace.errors import BufferFull, DeliveryFailed, KafkaFailure
from headrace.model import Deadline

if TYPE_CHECKING:
    from headrace.clients.producer import Producer

# What send_many lets wait in librdkafka's queue; its own limit is twice as high, so that a chunk
# is taken whole and stays in order.
MANY_BYTES = 128 << 20
Pair = tuple[Any, Any]
Form = dict[str, Any]
SAMPLE = 20
FLUSH_SECONDS = 0.1


class Many:
    """The fate of all records of one `send_many`."""

    def __init__(self, producer: "Producer", topic: str) -> None:
        self.topic = topic
        self._producer = producer
        self.sent = 0
        self.failed: list[FailedRecord] = []
        self._settled = 0
        self._complete = False

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
            # Nothing more will come to fill a batch: what lingers goes now.
            self._producer._server.flush(deadline.remaining(at_most=FLUSH_SECONDS))
        if not self.done:
            raise KafkaFailure(
                f"{self.sent - self._settled:,} of {self.sent:,} records to {self.topic} had no "
                f"acknowledgement within {timeout:g} s",
                hint="they may still be written; wait longer, or look with `headrace status`",
            )
        if self.failed:
            self._producer._was_told(self)
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

    def _one_settled(self, delivery: Delivery) -> None:
        failed = delivery.failed_record
        self._chunk_settled(1, [failed] if failed else [])

    def _chunk_settled(self, count: int, failed: Sequence[FailedRecord]) -> None:
        self.failed.extend(failed)
        self._producer._remember(self, failed)
        self._settled += count


class Chunk:
    """The callback shared by all records of one call of produce_batch.

    Only the thread that serves the producer changes it, so it needs no lock: what the sending
    thread has to tell (a record that was not even taken) is handed over to that thread.
    """

    __slots__ = ("_failed", "_followed", "_left", "_many", "_sender", "count", "size")

    def __init__(self, sender: "ManySender", many: Many, count: int, size: int) -> None:
        self._sender = sender
        self._many = many
        self._left = count
        self._failed: list[FailedRecord] = []
        self._followed = 0
        self.count = count
        self.size = size

    def settle(self, error: KafkaError | None, message: Any) -> None:
        """librdkafka's callback. A bound method: calling an object takes a detour."""
        if error is None and message.offset() is None and self._sender.producer._wants_offsets:
            error = Unplaced(message).error()
        if error is not None:
            self.refused(record_of(message), error)
            return
        self._left -= 1
        if not self._left:
            self._finish(message)

    def refused(self, record: Outgoing, error: KafkaError) -> None:
        """One record that was not written, or not even taken."""
        self._failed.append(FailedRecord.by(error, record))
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
        self._sender.chunk_settled(self.size)
        self._sender.producer._chunk_settled(own, len(self._failed), message)
        self._many._chunk_settled(own, self._failed)


class ManySender:
    """Hands chunks to librdkafka whole, as there is room for them."""

    def __init__(self, producer: "Producer", max_records: int) -> None:
        self.producer = producer
        self.sent = 0
        self._max_records = max_records
        self._bytes = 0
        self._room = threading.Lock()

    def send(self, topic: str, records: Iterable[Any], chunk: int, *, one_by_one: bool) -> Many:
        many = Many(self.producer, topic)
        forms: list[Form] = []
        source = iter(records)
        chunk = max(1, min(chunk, self._max_records))  # a chunk must fit whole
        while part := list(itertools.islice(source, chunk)):
            pairs = None if one_by_one else pairs_of(part)
            if pairs is None or not self._send_chunk(topic, pairs, forms, many):
                self._send_each(topic, part, many)
        many._close()
        return many

    def chunk_settled(self, size: int) -> None:
        with self._room:
            self._bytes -= size

    def _give_room_back(self, count: int, size: int) -> None:
        with self._room:
            self._bytes -= size
            self.sent -= count

    def _send_each(self, topic: str, part: Sequence[Any], many: Many) -> None:
        for record in part:
            if isinstance(record, Outgoing):
                outgoing = record._replace(topic=topic)
            elif type(record) is tuple and len(record) == 2:
                outgoing = Outgoing(topic, record[1], record[0])
            else:
                outgoing = Outgoing(topic, record)
            self.producer.send(*outgoing, on_delivery=many._one_settled)
            many.sent += 1

    def _send_chunk(self, topic: str, pairs: Sequence[Pair], forms: list[Form], many: Many) -> bool:
        """Hand a chunk over whole; False if not all of it is pairs that librdkafka takes."""
        try:
            pairs = self.producer._encode_pairs(topic, pairs)
            batch = _filled_in(forms, pairs)
        except ValueError:  # a tuple that is no pair
            return False
        size = _about_bytes(pairs)
        self._wait_for_room(len(pairs), size, many)
        chunk = Chunk(self, many, len(pairs), size)
        try:
            taken = self.producer._client.produce_batch(topic, batch, on_delivery=chunk.settle)
        except TypeError:  # it looks at all records before it takes the first
            self._give_room_back(len(pairs), size)
            return False
        except KafkaException as error:  # of the topic, and so of all of them
            self._give_room_back(len(pairs), size)
            raise translate(error, f"writing to {topic}") from error
        many.sent += len(batch)
        if taken < len(batch):
            self._settle_refused(topic, batch, chunk)
            forms.clear()  # the refused ones keep their errors
        self.producer._server.serve_if_free()
        return True

    def _wait_for_room(self, count: int, size: int, many: Many) -> None:
        started = time.monotonic()
        while not self._take_room(count, size):
            waited = time.monotonic() - started
            if waited > self.producer._block:
                raise self.producer._buffer_full(waited, handed_over=many.sent)
            self.producer._server.serve(0.01)

    def _take_room(self, count: int, size: int) -> bool:
        with self._room:
            fits = self._bytes + size <= MANY_BYTES or not self._bytes
            if not fits or len(self.producer._client) + count > self._max_records:
                return False
            self._bytes += size
            self.sent += count
            return True

    def _settle_refused(self, topic: str, batch: list[Form], chunk: Chunk) -> None:
        """Records that produce_batch did not take: those without room are sent one by one."""
        full: BufferFull | None = None
        for message in batch:
            error = message.get("_error")
            if error is None:
                continue
            record = Outgoing(topic, as_bytes(message["value"]), as_bytes(message["key"]))
            if error.code() == KafkaError._QUEUE_FULL and full is None:
                full = self._send_alone(record, chunk)
                if full is None:
                    continue
            self.producer._server.later(functools.partial(chunk.refused, record, error))
        if full is not None:
            raise full

    def _send_alone(self, record: Outgoing, chunk: Chunk) -> BufferFull | None:
        delivery = DetailedDelivery(self.producer, [chunk.follow], record)
        try:
            self.producer._try_again(record, delivery, BufferError())
        except BufferFull as full:
            return full
        return None


def pairs_of(part: Sequence[Any]) -> Sequence[Pair] | None:
    """Keys and values, if these records are nothing else and all of one kind; else None.

    >>> pairs_of([(b"k", b"v")]), pairs_of([b"v", "w"])
    ([(b'k', b'v')], [(None, b'v'), (None, 'w')])
    """
    kinds = set(map(type, part))
    if kinds == {Outgoing}:
        if any(r.headers or r.partition is not None or r.timestamp is not None for r in part):
            return None  # produce_batch takes no headers, and no report repeats the others
        return [(record.key, record.value) for record in part]
    if kinds == {tuple}:
        return part
    if tuple in kinds or Outgoing in kinds:
        return None
    return [(None, value) for value in part]


def _filled_in(forms: list[Form], pairs: Sequence[Pair]) -> list[Form]:
    """Records as produce_batch takes them. The forms are used again: making one costs 45 ns more.

    >>> forms = []
    >>> _filled_in(forms, [(b"a", b"1"), (b"b", b"2")]) is forms
    True
    >>> _filled_in(forms, [(b"c", b"3")])
    [{'key': b'c', 'value': b'3'}]
    """
    forms.extend({} for _ in range(len(pairs) - len(forms)))
    batch = forms if len(forms) == len(pairs) else forms[: len(pairs)]
    for form, (key, value) in zip(batch, pairs, strict=True):
        form["key"] = key
        form["value"] = value
    return batch


def _about_bytes(pairs: Sequence[Pair]) -> int:
    """The size of a chunk, from a sample: librdkafka has the last word on what fits."""
    sample = pairs[:: max(1, len(pairs) // SAMPLE)]
    sizes = (len(part) for pair in sample for part in pair if isinstance(part, bytes | str))
    return sum(sizes) * len(pairs) // len(sample)
