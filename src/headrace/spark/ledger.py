"""Which pieces of which jobs are in Kafka: a compacted topic, written with the rows themselves.

An entry's key is the job and the piece; its value says how many rows of the piece are done, and
their digest. Entries are written in the transaction of the rows, so an entry that a reader of
committed records sees is the truth.
"""

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.clients import Admin, Connection
from headrace.clients.failures import translate
from headrace.clients.partitioners import murmur2_partition
from headrace.errors import KafkaFailure, TopicExists, TopicNotFound
from headrace.model import Deadline

LEDGER_TOPIC = "headrace.ledger"
LEDGER_PARTITIONS = 8
# Every task reads its job's partition from the beginning, and Kafka compacts no segment that is
# still written to: by its defaults that would be all entries of a week.
LEDGER_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": str(4 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "60000",
}
FILE_ENTRY = "file:"  # and a path: an entry for what a file looked like when it was sent
WRITER_HEADER = "headrace-writer"  # of an entry: the transactional id that it was written under
SECONDS_TO_COMMIT = 10.0  # an entry is the last record of its transaction
SECONDS_TO_SETTLE = 120.0
SECONDS_TO_ANSWER = 30.0
ANSWER_SECONDS = 5.0
# While a partition changes its leader.
_PASSING = (
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
)
_BATCH = 1000


class Entry(NamedTuple):
    """How much of a piece is done. `rows` and `digest` are of what was sent so far."""

    rows: int
    digest: int
    complete: bool
    per_topic: Mapping[str, int]
    facts: Mapping[str, Any] = {}

    def to_bytes(self) -> bytes:
        return orjson.dumps(self._asdict())

    @classmethod
    def from_bytes(cls, data: bytes) -> "Entry":
        return cls(**orjson.loads(data))


def entry_key(job: str, piece: str) -> bytes:
    """The key of a piece's entry. A job's name may hold anything; the piece comes last.

    >>> entry_key("load/2019", "7")
    b'["load/2019","7"]'
    """
    return orjson.dumps([job, piece])


def ingest_job(topic: str, topic_id: str) -> str:
    """Ingest's job for a topic. A topic that was deleted and made again has nothing of the old one.

    >>> ingest_job("clicks", "4yFm2kXbTsq")
    'ingest/clicks/4yFm2kXbTsq'
    """
    return f"ingest/{topic}/{topic_id}"


def ledger_partition(job: str, count: int) -> int:
    """All entries of a job are in one partition."""
    return murmur2_partition(job.encode(), count)


def ensure_ledger(connection: Connection, topic: str = LEDGER_TOPIC) -> int:
    """Make the ledger's topic if there is none; returns how many partitions it has."""
    admin = Admin(connection)
    with contextlib.suppress(TopicNotFound):
        return len(admin.topic(topic).partitions)
    with contextlib.suppress(TopicExists):  # another job was faster
        admin.create_topic(topic, LEDGER_PARTITIONS, None, LEDGER_CONFIGS)
    return len(admin.topic(topic).partitions)


class Ledger:
    """Reads one job's entries, further and further."""

    def __init__(
        self, settings: Mapping[str, Any], job: str, partitions: int, topic: str = LEDGER_TOPIC
    ) -> None:
        self._job = job
        self._settings = dict(settings)
        self._place = TopicPartition(topic, ledger_partition(job, partitions), 0)
        self.topic = topic
        self.partition = self._place.partition
        self.entries: dict[str, Entry] = {}
        self._settled_to = -1  # where a reader of committed records last found the end

    def catch_up(self) -> None:
        """Read every entry that was written before this call, once its outcome is settled.

        A transaction that stays open has lost its writer (its driver or machine died): it is
        settled by taking over the writer's transactional id. Raises if even that does not help.
        """
        end = self._end()
        if self._place.offset >= end:
            return
        consumer = self._consumer("read_committed")
        try:
            consumer.assign([self._place])
            self._read_to(end, consumer)
        except KafkaException as error:
            raise translate(error, f"reading {self.topic}") from error
        finally:
            consumer.close()

    def _read_to(self, end: int, consumer: Consumer) -> None:
        deadline, patience = Deadline(SECONDS_TO_SETTLE), Deadline(SECONDS_TO_COMMIT)
        stuck_at = self._place.offset
        while self._place.offset < end:
            if deadline.expired:
                raise KafkaFailure(
                    f"an open transaction in {self.topic} has hidden what follows it for "
                    f"{SECONDS_TO_SETTLE:.0f} s",
                    hint="it ends by itself after its timeout; then run this again",
                )
            # It waits for a whole batch or for all of this time, though the end was reached.
            self._take(consumer.consume(_BATCH, timeout=deadline.remaining(at_most=0.02)))
            if self._place.offset > stuck_at:
                stuck_at, patience = self._place.offset, Deadline(SECONDS_TO_COMMIT)
                deadline = Deadline(SECONDS_TO_SETTLE)
            elif patience.expired and self._settled_to == stuck_at:
                self._settle(stuck_at)
                patience = Deadline(SECONDS_TO_COMMIT)

    def _settle(self, offset: int) -> None:
        """End the transaction whose entry stands there: the first that is not settled."""
        writer = self._writer_at(offset)
        if writer is None:
            return
        own = {"transactional.id": writer, "transaction.timeout.ms": 60_000}
        producer = Producer(self._settings | own | self._quiet())
        producer.init_transactions(SECONDS_TO_ANSWER)

    def _writer_at(self, offset: int) -> str | None:
        consumer = self._consumer("read_uncommitted")
        try:
            consumer.assign([TopicPartition(self.topic, self.partition, offset)])
            for message in consumer.consume(1, timeout=ANSWER_SECONDS):
                if message.error() is None and message.offset() == offset:
                    writer = dict(message.headers() or ()).get(WRITER_HEADER)
                    return None if writer is None else writer.decode()
            return None
        finally:
            consumer.close()

    def _end(self) -> int:
        """Where the partition ends now, with what is written but not yet committed."""
        consumer = self._consumer("read_uncommitted")
        deadline = Deadline(SECONDS_TO_ANSWER)
        try:
            while True:
                try:
                    _, end = consumer.get_watermark_offsets(self._place, timeout=ANSWER_SECONDS)
                    return int(end)
                except KafkaException as error:
                    if deadline.expired or error.args[0].code() not in _PASSING:
                        raise translate(error, f"reading {self.topic}") from error
                time.sleep(0.1)  # a new leader needs a moment
        finally:
            consumer.close()

    def _consumer(self, isolation: str) -> Consumer:
        own = {
            "group.id": "headrace-ledger",  # never joined: partitions are assigned by hand
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 50,
        }
        return Consumer(self._settings | own | self._quiet())

    def _quiet(self) -> dict[str, Any]:
        return {} if "logger" in self._settings else {"log_level": 0}

    def _take(self, messages: Iterable[Any]) -> None:
        for message in messages:
            error = message.error()
            if error is None:
                self._note(message.key(), message.value())
                self._place.offset = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                # The end of what is settled; markers of transactions count too.
                self._settled_to = message.offset()
                self._place.offset = max(self._place.offset, self._settled_to)
            elif not error.retriable():
                raise translate(error, f"reading {self.topic}")

    def _note(self, key: bytes | None, value: bytes | None) -> None:
        job, piece = orjson.loads(key or b"[null,null]")
        if job != self._job:
            return
        if value is None:
            self.entries.pop(piece, None)
        else:
            self.entries[piece] = Entry.from_bytes(value)
