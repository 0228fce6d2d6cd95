"""Writes one piece to Kafka, exactly once. The protocol is in DESIGN.md, by the same numbers."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Producer

from headrace.clients.failures import translate
from headrace.errors import BadInput, KafkaFailure
from headrace.model import Deadline
from headrace.spark.ledger import Entry, Ledger, entry_key
from headrace.spark.rows import KafkaRow, add_digest, digest_of

SERVE_EVERY = 2_000
PART_BYTES = 256 << 20
PART_SECONDS = 120.0
# Twice what a part may take and then some; brokers allow 15 minutes unless told otherwise.
TRANSACTION_SECONDS = 600.0
SECONDS_TO_COMMIT = 120.0
SECONDS_TO_OPEN = 120.0
COMMIT_ATTEMPTS = 3


@dataclass(frozen=True)
class Target:
    """Where pieces of one job go."""

    settings: Mapping[str, Any]
    job: str
    ledger_partitions: int
    part_bytes: int = PART_BYTES
    part_seconds: float = PART_SECONDS
    limit: tuple[str, float] | None = None  # a topic, and the greatest share of rows it may get

    def ledger(self) -> Ledger:
        plain = {k: v for k, v in self.settings.items() if k in _SHARED or k.startswith(_SECURITY)}
        return Ledger(plain, self.job, self.ledger_partitions)


# What a consumer needs of a producer's settings.
_SHARED = ("bootstrap.servers", "client.id", "reconnect.backoff.max.ms")
_SECURITY = ("security.", "sasl.", "ssl.")


@dataclass
class Done:
    """What became of a piece."""

    piece: str
    rows: int
    per_topic: Mapping[str, int]
    sent_before: bool


def write_piece(
    target: Target,
    piece: str,
    rows: Iterable[KafkaRow],
    *,
    transactional_id: str,
    forget: str | None = None,
) -> Done:
    """Send a piece unless the ledger says that it was sent; `forget` removes an older entry."""
    producer = _open(target, transactional_id)
    ledger = target.ledger()
    ledger.catch_up()
    writing = _Writing(target, producer, ledger, piece, ledger.entries.get(piece), forget)
    try:
        return writing.run(iter(rows))
    except KafkaException as error:
        raise translate(error, f"writing piece {piece} of {target.job}") from error
    finally:
        with contextlib.suppress(KafkaException):
            producer.purge()


def _open(target: Target, transactional_id: str) -> Producer:
    own = {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": int(TRANSACTION_SECONDS * 1000),
    }
    try:
        producer = Producer(dict(target.settings) | own)
        producer.init_transactions(SECONDS_TO_OPEN)
    except KafkaException as error:
        raise translate(error, f"opening transactional id {transactional_id}") from error
    return producer


class _Writing:
    """One attempt at one piece."""

    def __init__(
        self,
        target: Target,
        producer: Producer,
        ledger: Ledger,
        piece: str,
        known: Entry | None,
        forget: str | None,
    ) -> None:
        self._target, self._producer, self._ledger = target, producer, ledger
        self._piece, self._known, self._forget = piece, known, forget
        self._rows = 0
        self._digest = 0
        self._per_topic: Counter[str] = Counter()

    def run(self, rows: Iterator[KafkaRow]) -> Done:
        if self._known is not None:
            self._skip_what_is_done(rows, self._known)
            if self._known.complete:
                return Done(self._piece, self._rows, self._known.per_topic, sent_before=True)
        complete = False
        while not complete:
            complete = self._write_part(rows)
        return Done(self._piece, self._rows, dict(self._per_topic), sent_before=False)

    def _skip_what_is_done(self, rows: Iterator[KafkaRow], known: Entry) -> None:
        """Count and digest the rows that an earlier attempt sent: they must be the same."""
        for row in rows:
            self._count(row)
            if self._rows == known.rows and not known.complete:
                break
        if (self._rows, self._digest) != (known.rows, known.digest):
            raise BadInput(
                f"piece {self._piece} of {self._target.job} has changed since it was sent: it had "
                f"{known.rows:,} rows, now there are {self._rows:,}, or others",
                hint="a piece must hold the same rows in every attempt: keep the number of "
                "partitions, or write the batch to files first and send those",
                piece=self._piece,
            )

    def _write_part(self, rows: Iterator[KafkaRow]) -> bool:
        """One transaction; True if the piece is complete with it."""
        self._producer.begin_transaction()
        try:
            complete = self._send_rows(rows)
            self._send_entry(complete)
        except BaseException:
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(SECONDS_TO_COMMIT)
            raise
        self._commit()
        return complete

    def _send_rows(self, rows: Iterator[KafkaRow]) -> bool:
        """Send until the piece or the part is full; True if the piece ended."""
        produce, poll = self._producer.produce, self._producer.poll
        until = time.monotonic() + self._target.part_seconds
        size = 0
        for row in rows:
            self._count(row)
            topic, value, key, partition, timestamp, headers = row
            try:
                # By position, with no callback: the commit fails if a record could not be written.
                produce(topic, value, key, partition, None, None, timestamp, headers)
            except BufferError:
                self._produce_when_there_is_room(row)
            size += len(row.value or b"") + len(row.key or b"")
            if not self._rows % SERVE_EVERY:
                poll(0)
                self._check_limit()
                if size > self._target.part_bytes or time.monotonic() > until:
                    return False
        self._check_limit()
        return True

    def _check_limit(self) -> None:
        if self._target.limit is None:
            return
        topic, share = self._target.limit
        if self._per_topic[topic] > share * self._rows:
            raise BadInput(
                f"{self._per_topic[topic]:,} of the first {self._rows:,} rows of piece "
                f"{self._piece} are for {topic}, more than {share:.0%}: nothing of it is sent",
                hint="look at the input; a higher limit lets it pass",
            )

    def _count(self, row: KafkaRow) -> None:
        self._rows += 1
        self._digest = add_digest(self._digest, digest_of(row))
        self._per_topic[row.topic] += 1

    def _produce_when_there_is_room(self, row: KafkaRow) -> None:
        topic, value, key, partition, timestamp, headers = row
        deadline = Deadline(TRANSACTION_SECONDS)
        while not deadline.expired:
            self._producer.poll(0.05)
            with contextlib.suppress(BufferError):
                self._producer.produce(topic, value, key, partition, None, None, timestamp, headers)
                return
        raise KafkaFailure(
            f"the send buffer has been full for {TRANSACTION_SECONDS:.0f} s",
            hint="is the cluster reachable and fast enough?",
        )

    def _send_entry(self, complete: bool) -> None:
        """The last record of a transaction: the ledger has it open for a moment only."""
        entry = Entry(self._rows, self._digest, complete, dict(self._per_topic))
        key = entry_key(self._target.job, self._piece)
        place = (self._ledger.topic, self._ledger.partition)
        self._produce_entry(place, key, entry.to_bytes())
        if complete and self._forget is not None:
            self._produce_entry(place, entry_key(self._target.job, self._forget), None)

    def _produce_entry(self, place: tuple[str, int], key: bytes, value: bytes | None) -> None:
        self._producer.flush(SECONDS_TO_COMMIT)
        topic, partition = place
        self._producer.produce(topic, value, key, partition)

    def _commit(self) -> None:
        """Commit; when the outcome is unknown, fail: the next attempt settles it."""
        for attempt in range(COMMIT_ATTEMPTS):
            try:
                self._producer.commit_transaction(SECONDS_TO_COMMIT)
                return
            except KafkaException as error:
                cause = error.args[0]
                if cause.txn_requires_abort():
                    with contextlib.suppress(KafkaException):
                        self._producer.abort_transaction(SECONDS_TO_COMMIT)
                    raise
                if not cause.retriable() or attempt == COMMIT_ATTEMPTS - 1:
                    raise
