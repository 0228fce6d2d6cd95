"""Writes one piece to Kafka, exactly once. The protocol is in DESIGN.md, by the same numbers."""

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Producer

from headrace.clients.failures import translate
from headrace.errors import BadInput, PieceChanged
from headrace.spark.batches import Batch, add_digests
from headrace.spark.collector import collector_paused
from headrace.spark.ledger import LEDGER_TOPIC, WRITER_HEADER, Entry, Ledger, entry_key

PART_BYTES = 256 << 20
PART_SECONDS = 120.0
AHEAD_BYTES = 32 << 20
# Twice what a part may take and then some; brokers allow 15 minutes unless told otherwise.
TRANSACTION_SECONDS = 600.0
SECONDS_TO_COMMIT = 120.0
SECONDS_TO_OPEN = 120.0
SECONDS_TO_MEET = 5.0
COMMIT_ATTEMPTS = 3
FEW_ROWS = 10  # never too many for the limited topic, unless it may have none


@dataclass(frozen=True)
class Target:
    """Where pieces of one job go."""

    settings: Mapping[str, Any]
    job: str
    ledger_partitions: int
    part_bytes: int = PART_BYTES
    part_seconds: float = PART_SECONDS
    ahead_bytes: int = AHEAD_BYTES  # what may be read while the producer is opened
    limit: tuple[str, float] | None = None  # a topic, and the greatest share of rows it may get
    trust_ledger: bool = False  # what was sent stays sent, whatever it would be now

    def ledger(self) -> Ledger:
        plain = {k: v for k, v in self.settings.items() if k in _SHARED or k.startswith(SECURITY)}
        return Ledger(plain, self.job, self.ledger_partitions)


# What a consumer needs of a producer's settings.
_SHARED = ("bootstrap.servers", "client.id", "reconnect.backoff.max.ms")
SECURITY = ("security.", "sasl.", "ssl.", "enable.ssl.")


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
    batches: Iterable[Batch],
    *,
    transactional_id: str,
    outdated: Callable[[Iterable[str]], list[str]] = lambda _entries: [],
) -> Done:
    """Send a piece unless the ledger says that it was sent. `outdated` picks, of the job's entries,
    those that can be removed with it."""
    with ThreadPoolExecutor(1) as beside, collector_paused():
        opening = beside.submit(_open, target, transactional_id)
        source = iter(batches)
        ahead = _read_ahead(source, opening, target.ahead_bytes)
        producer, ledger = opening.result()
        try:
            forget = outdated(ledger.entries)
            writing = _Writing(target, producer, transactional_id, ledger, piece, forget)
            return writing.run(itertools.chain(ahead, source))
        except KafkaException as error:
            raise translate(error, f"writing piece {piece} of {target.job}") from error
        finally:
            with contextlib.suppress(KafkaException):
                producer.purge()


def _read_ahead(batches: Iterator[Batch], opening: "Future[Any]", limit: int) -> list[Batch]:
    """What comes while the producer is opened: half a second that Spark need not wait."""
    ahead: list[Batch] = []
    size = 0
    while size < limit and not opening.done():
        batch = next(batches, None)
        if batch is None:
            break
        ahead.append(batch)
        size += batch.size
    return ahead


def _open(target: Target, transactional_id: str) -> tuple[Producer, Ledger]:
    """The producer, which fences earlier attempts, and then what they have left in the ledger."""
    own = {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": int(TRANSACTION_SECONDS * 1000),
    }
    try:
        producer = Producer(dict(target.settings) | own)
        with contextlib.suppress(KafkaException):
            # Before it knows a broker it would ask for its id in vain, and again in half a second.
            producer.list_topics(LEDGER_TOPIC, timeout=SECONDS_TO_MEET)
        producer.init_transactions(SECONDS_TO_OPEN)
    except KafkaException as error:
        raise translate(error, f"opening transactional id {transactional_id}") from error
    ledger = target.ledger()
    ledger.catch_up()
    return producer, ledger


class _Writing:
    """One attempt at one piece."""

    def __init__(
        self,
        target: Target,
        producer: Producer,
        writer: str,
        ledger: Ledger,
        piece: str,
        forget: list[str],
    ) -> None:
        self._target, self._producer, self._ledger = target, producer, ledger
        self._piece, self._known, self._forget = piece, ledger.entries.get(piece), forget
        self._headers = [(WRITER_HEADER, writer)]
        self._rows = 0
        self._digest = 0
        self._per_topic: Counter[str] = Counter()

    def run(self, batches: Iterator[Batch]) -> Done:
        if self._known is not None and self._known.complete and self._target.trust_ledger:
            for _ in batches:  # Spark must be rid of them
                pass
            return Done(self._piece, self._known.rows, self._known.per_topic, sent_before=True)
        if self._known is not None:
            batches = self._skip_what_is_done(batches, self._known)
            if self._known.complete:
                return Done(self._piece, self._rows, self._known.per_topic, sent_before=True)
        complete = False
        while not complete:
            complete = self._write_part(batches)
        return Done(self._piece, self._rows, dict(self._per_topic), sent_before=False)

    def _skip_what_is_done(self, batches: Iterator[Batch], known: Entry) -> Iterator[Batch]:
        """Count and digest the rows that an earlier attempt sent: they must be the same."""
        rest: Iterator[Batch] = iter(())
        for batch in batches:
            left = known.rows - self._rows
            if known.complete or len(batch) <= left:
                self._count(batch)
            else:
                self._count(batch.part(0, left))
                rest = iter([batch.part(left)])
                break
        if (self._rows, self._digest) != (known.rows, known.digest):
            raise PieceChanged(
                f"piece {self._piece} of {self._target.job} has changed since it was sent: it had "
                f"{known.rows:,} rows, now there are {self._rows:,}, or others",
                hint="a piece must hold the same rows in every attempt: keep the number of "
                "partitions, or write the batch to files first and send those",
                piece=self._piece,
            )
        return itertools.chain(rest, batches)

    def _write_part(self, batches: Iterator[Batch]) -> bool:
        """One transaction; True if the piece is complete with it."""
        self._producer.begin_transaction()
        try:
            complete = self._send_rows(batches)
            self._send_entry(complete)
        except BaseException:
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(SECONDS_TO_COMMIT)
            raise
        self._commit()
        return complete

    def _send_rows(self, batches: Iterator[Batch]) -> bool:
        """Send until the piece or the part is full; True if the piece ended."""
        until = time.monotonic() + self._target.part_seconds
        size = 0
        for batch in batches:
            self._count(batch)
            self._check_limit()
            self._send_batch(batch)
            size += batch.size
            if size > self._target.part_bytes or time.monotonic() > until:
                return False
        return True

    def _send_batch(self, batch: Batch) -> None:
        produce = self._producer.produce
        for topic, value, key, partition, timestamp, headers in batch:
            while True:
                try:
                    # By position, without a callback: the commit fails if a record was not written.
                    produce(topic, value, key, partition, None, None, timestamp, headers)
                    break
                except BufferError:
                    self._wait_for_room()
        self._producer.poll(0)

    def _wait_for_room(self) -> None:
        """Until there is some; if there never is, the transaction's time runs out and it fails."""
        self._producer.poll(0.005)

    def _check_limit(self) -> None:
        if self._target.limit is None:
            return
        topic, share = self._target.limit
        rows, theirs = self._rows, self._per_topic[topic]
        if theirs > share * rows and (theirs > FEW_ROWS or not share):
            raise BadInput(
                f"{theirs:,} of the first {rows:,} rows of piece {self._piece} are for {topic}, "
                f"more than {share:.0%}: nothing more of it is sent",
                hint="look at the input; a higher limit lets it pass",
            )

    def _count(self, batch: Batch) -> None:
        self._rows += len(batch)
        self._digest = add_digests(self._digest, batch.digest)
        self._per_topic += batch.per_topic

    def _send_entry(self, complete: bool) -> None:
        """The last record of a transaction: the ledger has it open for a moment only."""
        entry = Entry(self._rows, self._digest, complete, dict(self._per_topic))
        key = entry_key(self._target.job, self._piece)
        place = (self._ledger.topic, self._ledger.partition)
        self._produce_entry(place, key, entry.to_bytes())
        for name in self._forget if complete else ():
            self._produce_entry(place, entry_key(self._target.job, name), None)

    def _produce_entry(self, place: tuple[str, int], key: bytes, value: bytes | None) -> None:
        self._producer.flush(SECONDS_TO_COMMIT)
        topic, partition = place
        self._producer.produce(topic, value, key, partition, headers=self._headers)

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
