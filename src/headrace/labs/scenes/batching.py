"""Batches grow with batch.size and linger.ms; a full buffer blocks, then raises, and loses nothing.

How records travel is read from the log on disk: a batch is stored as it was sent. Then the broker
is paused, so that nothing leaves the send buffer. Two producers run full: an impatient one gets
an error that hands the record back, a patient one waits. When the broker goes on, everything that
was accepted is stored, once.
"""

import contextlib
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.clients import Connection, Producer
from headrace.errors import BufferFull
from headrace.labs.segments import Batch, stored_batches
from headrace.labs.stage import Stage

NEEDS_FAULTS = True
RECORD_BYTES = 100
BURST = 5_000
TRICKLE = 300
PAUSE_SECONDS = 0.002  # between records that come bit by bit
SMALL, LARGE = 2_000, 1_000_000
BUFFER_KBYTES = 1_024
BIG_RECORD_BYTES = 10_240
FIT = BUFFER_KBYTES * 1024 // BIG_RECORD_BYTES
MORE_THAN_FIT = FIT + 50
IMPATIENT_SECONDS, PATIENT_SECONDS = 1.0, 60.0
FULL = re.compile(r"full for (?P<seconds>[\d.]+) s: (?P<records>\d+) records wait")


@dataclass(frozen=True)
class Sending:
    """Records sent in one way, and the batches that became of them."""

    topic: str
    pace: str
    linger_ms: int
    batch_size: int
    counted: int
    batches: Sequence[Batch] = ()

    @property
    def records(self) -> int:
        return sum(batch.records for batch in self.batches)

    def row(self) -> dict[str, object]:
        return {
            "sent": self.pace,
            "linger.ms": self.linger_ms,
            "batch.size": self.batch_size,
            "records": self.records,
            "batches stored": len(self.batches),
            "batches counted": self.counted,
            "records per batch": round(self.records / len(self.batches)),
            "largest batch (bytes)": max(batch.bytes for batch in self.batches),
        }


def run(stage: Stage) -> None:
    stage.say(f"sending {BURST:,} records at once, in small and in large batches")
    small = send(stage, "at once", linger_ms=50, batch_size=SMALL)
    large = send(stage, "at once", linger_ms=50, batch_size=LARGE)
    stage.say(f"sending {TRICKLE} records one after the other, without and with linger")
    hasty = send(stage, "bit by bit", linger_ms=0, batch_size=LARGE)
    patient = send(stage, "bit by bit", linger_ms=100, batch_size=LARGE)
    judge_batches(stage, [small, large, hasty, patient])
    fill_the_buffer(stage)


# --- batches ---


def send(stage: Stage, pace: str, *, linger_ms: int, batch_size: int) -> Sending:
    topic = stage.topic("batches", 1, 1)
    with Producer(stage.connection) as producer:
        producer.send(topic, "first").result()  # the partition is ready: no batch is sent twice
    settings = {
        "linger.ms": linger_ms,
        "batch.size": batch_size,
        "compression.type": "none",
        "statistics.interval.ms": 100,
    }
    with Producer(stage.connection, settings) as producer:
        for _ in range(BURST if pace == "at once" else TRICKLE):
            producer.send(topic, bytes(RECORD_BYTES))
            if pace != "at once":
                time.sleep(PAUSE_SECONDS)
        producer.flush()
        counted = producer.counters(fresh=True).batches
    return Sending(topic, pace, linger_ms, batch_size, counted)


def judge_batches(stage: Stage, sent: Sequence[Sending]) -> None:
    stage.say("opening the log segments with Kafka's own tool")
    found = stored_batches(stage, [way.topic for way in sent])
    # The first batch of each topic held the record that made it ready.
    ways = [replace(way, batches=found[way.topic][1:]) for way in sent]
    small, large, hasty, patient = ways
    stage.fact("batches", [way.row() for way in ways])
    stage.check(
        "every record is in the log, in each way",
        [way.records for way in ways] == [BURST, BURST, TRICKLE, TRICKLE],
    )
    stage.check(
        "no batch is larger than batch.size",
        all(batch.bytes <= way.batch_size for way in ways for batch in way.batches),
    )
    stage.check("a larger batch.size makes fewer batches", len(large.batches) < len(small.batches))
    stage.check("linger makes fewer batches", len(patient.batches) < len(hasty.batches))
    stage.check(
        "the producer counts as many batches as are stored",
        all(way.counted == len(way.batches) for way in ways),
    )


# --- the send buffer ---


class Sender:
    """Sends numbered records of 10 kB through a small buffer; knows how many were taken."""

    def __init__(self, connection: Connection, topic: str, name: str, block: float) -> None:
        settings = {"queue.buffering.max.kbytes": BUFFER_KBYTES, "compression.type": "none"}
        self.producer = Producer(connection, settings, block=block)
        self.topic, self.name, self.block = topic, name, block
        self.taken = 0
        self.longest = 0.0
        self.send_next()  # the way to the leader is known before the trouble begins
        self.producer.flush()

    def send_next(self) -> None:
        """Raises BufferFull when there was no room for long enough; nothing is taken then."""
        started = time.monotonic()
        try:
            self.producer.send(self.topic, numbered(self.taken), key=self.name)
        finally:
            self.longest = max(self.longest, time.monotonic() - started)
        self.taken += 1

    def send_all(self) -> bool:
        while self.taken < MORE_THAN_FIT:
            self.send_next()
        return True


def numbered(number: int) -> bytes:
    return str(number).encode().ljust(BIG_RECORD_BYTES)


def fill_the_buffer(stage: Stage) -> None:
    topic = stage.topic("buffer", 1, 1)
    impatient = Sender(stage.connection, topic, "impatient", IMPATIENT_SECONDS)
    patient = Sender(stage.connection, topic, "patient", PATIENT_SECONDS)
    waiting = threading.Thread(target=patient.send_all, name="patient")
    error: BufferFull | None = None
    with paused(stage, stage.admin.topic(topic).partitions[0].leader or 1):
        waiting.start()
        try:
            impatient.send_all()
        except BufferFull as full:
            error = full
        taken = impatient.taken - 1  # the first one was away before the pause
        stage.wait_until(lambda: patient.taken > taken, "the patient one is full as well")
        still_waits = waiting.is_alive()
    waiting.join()
    stage.say("sending the record that was refused again, and the rest")
    stage.wait_until(impatient.send_all, "there is room again")
    patient.producer.close()
    impatient.producer.close()
    stored = {sender.name: numbers(stage, topic, sender.name) for sender in (impatient, patient)}
    stage.fact("buffer", f"{BUFFER_KBYTES:,} kB, {FIT} records of {BIG_RECORD_BYTES:,} bytes fit")
    stage.fact("a full one says", error.message if error else "nothing")
    stage.fact("full buffer", [buffer_row(s, stored[s.name]) for s in (impatient, patient)])
    judge_error(stage, error, taken, impatient)
    stage.check("the patient one waited instead, and had no error", still_waits)
    stage.check(
        "with room again, all that was accepted is stored, once and in order",
        all(found == list(range(MORE_THAN_FIT)) for found in stored.values()),
    )


@contextlib.contextmanager
def paused(stage: Stage, broker: int) -> Iterator[None]:
    stage.say(f"pausing broker {broker}: nothing leaves the buffers")
    stage.cluster.pause(broker)
    try:
        yield
    finally:
        stage.cluster.resume(broker)


def numbers(stage: Stage, topic: str, name: str) -> list[int]:
    return [int(r.value or b"-1") for r in stage.records(topic) if r.key == name.encode()]


def buffer_row(sender: Sender, stored: list[int]) -> dict[str, object]:
    return {
        "producer": sender.name,
        "may block (s)": sender.block,
        "longest send (s)": round(sender.longest, 1),
        "accepted": sender.taken,
        "stored": len(stored),
        "repeated": len(stored) - len(set(stored)),
    }


def judge_error(stage: Stage, error: BufferFull | None, taken: int, sender: Sender) -> None:
    facts: dict[str, Any] = error.facts if error else {}
    said = FULL.search(error.message if error else "")
    stage.check(f"the buffer took {FIT} records, which fit, and no more", taken == FIT)
    stage.check(
        f"send blocked for {sender.block:g} s, then raised",
        error is not None and sender.longest >= sender.block,
    )
    stage.check(
        "the error says how full the buffer is, and for how long",
        said is not None
        and int(said["records"]) == facts["pending"] == taken
        and float(said["seconds"]) >= sender.block,
    )
    stage.check(
        "the refused record is still the caller's",
        error is not None and facts["record"].value == numbered(taken + 1),
    )
