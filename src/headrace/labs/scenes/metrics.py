"""The figures that a running client tells of itself agree with what is found outside of it.

A producer works at two paces. While it does, it tells its send rate, average batch size,
compression rate and request latency. Afterwards the same is found without it: the records read
back, the batches that Kafka's own tool counts in the broker's log, the size of that file. For the
latency there is no file to look into, so the broker is held still for a second.

A consumer tells its lag, its consumed rate and its poll rate. Its handlers are held back until a
backlog has grown, and let go again: the lag it tells is the one that the brokers know of. At a
steady pace it consumes what is sent. And records that come one by one come in a poll each.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import orjson

from headrace.clients import Producer
from headrace.clients.statistics import ProducerCounters
from headrace.labs.consuming import Load
from headrace.labs.segments import Batch, bytes_on_disk, stored_batches
from headrace.labs.stage import Stage
from headrace.labs.story import events
from headrace.model import Deadline, Latest, TopicPartition
from headrace.parallel import App, GapSafe
from headrace.parallel.engine.running import RunningApp
from headrace.parallel.engine.status import ConsumerStatus

NEEDS_FAULTS = True
PACES = {"slow": 500, "fast": 5_000}
SAMPLES_PER_PACE = 4
AT_ONCE = 20_000  # large batches, beside which the headers of requests hardly count
RISE = 1.5  # the paces are ten times apart; a busy machine may not keep up with the fast one
HOLD_SECONDS = 1.0
TOLERANCE = 0.1
CONSUMED_PARTITIONS = 3
BACKLOG = 2_000
CONSUMED_PACE = 500
LOOKS = 8
SECONDS_BETWEEN_LOOKS = 0.5
ONE_BY_ONE = 20
RATE_BAND = (0.5, 2.0)
SETTINGS = {"statistics.interval.ms": 200, "linger.ms": 50, "compression.type": "zstd"}


@dataclass(frozen=True)
class Sample:
    """What the producer told at one moment, and what this lab's own clock said then."""

    pace: str
    counters: ProducerCounters
    clock: float = field(default_factory=time.perf_counter)

    def row(self, earlier: "Sample") -> dict[str, object]:
        rates = self.counters.since(earlier.counters)
        return {
            "pace": self.pace,
            "records a second": round(rates.records_per_second or 0),
            "bytes a batch": round(rates.bytes_per_batch or 0),
            "compression rate": rates.compression_rate,
            "request latency ms": rates.request_latency_ms,
        }


def run(stage: Stage) -> None:
    watch_producer(stage)
    watch_consumer(stage)


def sending_events(producer: Producer, topic: str) -> Callable[[int], object]:
    """For a `Load`: sends events of a shop, one by one."""
    stream = events(sys.maxsize)

    def send(_number: int) -> None:
        event = next(stream)
        producer.send(topic, orjson.dumps(event), key=str(event["userid"]))

    return send


# --- the producer ---


def watch_producer(stage: Stage) -> None:
    topic = stage.topic("measured", 1, 1)
    with Producer(stage.connection, SETTINGS) as producer:
        samples = sample(stage, producer, topic)
        judge_send_rate(stage, topic, samples)
        stage.say(f"sending {AT_ONCE:,} records at once")
        producer.send_many(topic, [orjson.dumps(event) for event in events(AT_ONCE)]).result()
        judge_totals(stage, topic, samples[0].counters, producer.counters(fresh=True))
        judge_latency(stage, producer, topic)


def sample(stage: Stage, producer: Producer, topic: str) -> list[Sample]:
    """Look at a producer while it works: before, at each pace, and after."""
    samples = [Sample("none", producer.counters(fresh=True))]
    with Load(sending_events(producer, topic), PACES["slow"]) as load:
        for name, pace in PACES.items():
            stage.say(f"sending {pace:,} records a second")
            load.pace = pace
            samples += [
                Sample(name, producer.counters(fresh=True)) for _ in range(SAMPLES_PER_PACE)
            ]
    producer.flush()
    return [*samples, Sample("none", producer.counters(fresh=True))]


def judge_send_rate(stage: Stage, topic: str, samples: Sequence[Sample]) -> None:
    """Rates told while it ran, times the seconds of our own clock, make the records stored."""
    stage.fact("while it ran", [later.row(earlier) for earlier, later in pairwise(samples[:-1])])
    told = sum(
        (later.counters.since(earlier.counters).records_per_second or 0)
        * (later.clock - earlier.clock)
        for earlier, later in pairwise(samples)
    )
    stored = len(stage.records(topic))
    stage.fact("records by send rates and the clock", round(told))
    stage.fact("records stored", stored)
    stage.check(
        f"send rate: rates by seconds are within {TOLERANCE:.0%} of the records stored",
        abs(told / stored - 1) < TOLERANCE,
    )
    before, slow, fast = (samples[n * SAMPLES_PER_PACE].counters for n in range(3))
    stage.check(
        "send rate: it rises when the pace does",
        (fast.since(slow).records_per_second or 0)
        > RISE * (slow.since(before).records_per_second or 0),
    )


def judge_totals(
    stage: Stage, topic: str, before: ProducerCounters, told: ProducerCounters
) -> None:
    """All that the producer told, beside what the broker has."""
    records = stage.records(topic)
    batches = stored_batches(stage, [topic])[topic]
    stored_bytes = sum(len(r.key or b"") + len(r.value or b"") for r in records)
    rates = told.since(before)
    rate_told = rates.compression_rate or 0.0
    rate_found = bytes_on_disk(stage, topic) / stored_bytes
    figures = [
        ("records", told.acknowledged, len(records), "the topic, read back"),
        ("bytes of keys and values", told.bytes, stored_bytes, "the topic, read back"),
        ("batches", told.batches, len(batches), "Kafka's tool on the log"),
        ("records a batch", told.records_per_batch, per(batches, len(records)), "both"),
        ("bytes a batch", rates.bytes_per_batch, per(batches, stored_bytes), "both"),
        ("compression rate", round(rate_told, 3), round(rate_found, 3), "the log's size"),
    ]
    names = ("figure", "told by the producer", "found outside", "found in")
    stage.fact("in the end", [dict(zip(names, figure, strict=True)) for figure in figures])
    for name, own, outside, _where in figures[:-1]:
        stage.check(f"{name}: the producer tells what is found outside", own == outside != 0)
    stage.check(
        f"compression rate: within {TOLERANCE:.0%} of bytes on disk by bytes given",
        abs(rate_told / rate_found - 1) < TOLERANCE and rate_found < 1,
    )


def judge_latency(stage: Stage, producer: Producer, topic: str) -> None:
    """A request that a broker answers a second late must be told as such."""
    slow = HOLD_SECONDS * 1000 / 2  # half to spare: the request leaves after the linger
    stage.wait_until(lambda: latency_now(producer, topic) < slow, "requests are answered quickly")
    usual = producer.counters().request_latency_ms or 0.0
    leader = stage.admin.topic(topic).partitions[0].leader or 1
    stage.say(f"holding broker {leader} still for {HOLD_SECONDS:g} s with a request on its way")
    began = time.perf_counter()
    stage.cluster.pause(leader)
    try:
        delivery = producer.send(topic, "held up")
        time.sleep(HOLD_SECONDS)  # the fault itself, not a wait for something
    finally:
        stage.cluster.resume(leader)
    delivery.result()
    longest = (time.perf_counter() - began) * 1000
    told = highest_latency(producer, enough=slow)
    stage.fact("request latency in ms, before", round(usual, 1))
    stage.fact("request latency in ms, broker held still", round(told, 1))
    stage.check(
        "request latency: a broker held still shows, and no more than our clock saw",
        slow <= told <= longest,
    )


def latency_now(producer: Producer, topic: str) -> float:
    producer.send(topic, "as usual").result()
    return producer.counters(fresh=True).request_latency_ms or 0.0


def highest_latency(producer: Producer, enough: float) -> float:
    """The highest latency told until it is enough; later requests are quick and push it out."""
    highest = 0.0
    for _ in Deadline(5).polls(every=0.05):
        highest = max(highest, producer.counters().request_latency_ms or 0.0)
        if highest >= enough:
            break
    return highest


def per(batches: Sequence[Batch], total: int) -> float:
    return round(total / max(len(batches), 1), 1)


# --- the consumer ---


@dataclass(frozen=True)
class Look:
    """What a running consumer told at one moment, by this lab's own clock."""

    when: str
    status: ConsumerStatus
    clock: float = field(default_factory=time.perf_counter)

    def row(self, earlier: "Look") -> dict[str, object]:
        return {
            "when": self.when,
            "lag": self.status.lag,
            "consumed a second": round(self.rate(earlier, "handled")),
            "polls a second": round(self.rate(earlier, "polls"), 1),
            "records a poll": round(self.records_a_poll(earlier), 1),
        }

    def rate(self, earlier: "Look", counter: str) -> float:
        grown = getattr(self.status, counter) - getattr(earlier.status, counter)
        return float(grown / (self.clock - earlier.clock))

    def records_a_poll(self, earlier: "Look") -> float:
        polls = self.status.polls - earlier.status.polls
        return (self.status.polled - earlier.status.polled) / polls if polls else 0.0


class Gate:
    """A handler that can be held back; counts what it has done."""

    def __init__(self) -> None:
        self.handled = 0
        self.open = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, _value: bytes) -> None:
        self.open.wait()
        with self._lock:
            self.handled += 1


def watch_consumer(stage: Stage) -> None:
    topic, group = stage.topic("consumed", CONSUMED_PARTITIONS), stage.group("consumer")
    gate, app = Gate(), App(stage.connection)
    app.consumer(topic, group=group, name="watched", offsets=GapSafe(interval=0.2))(gate)
    with Producer(stage.connection) as producer, app.running() as running:
        try:
            looks = [look(running, "before")]
            looks += judge_lag(stage, running, producer, topic, group, gate)
        finally:
            gate.open.set()  # handlers that are held back would hold the end back as well
        looks += judge_consumed_rate(stage, running, producer, topic, gate)
        judge_polls(stage, running, producer, topic)
        stage.fact("the consumer, while it ran", [b.row(a) for a, b in pairwise(looks)])


def look(running: RunningApp, when: str) -> Look:
    return Look(when, running.status()[0])


def judge_lag(
    stage: Stage, running: RunningApp, producer: Producer, topic: str, group: str, gate: Gate
) -> list[Look]:
    stage.say(f"{BACKLOG:,} records come while the consumer's handlers are held back")
    producer.send_many(topic, [(str(n), str(n)) for n in range(BACKLOG)]).result()
    stage.wait_until(lambda: running.status()[0].lag == BACKLOG, "the lag is told")
    held_back = look(running, "handlers held back")
    outside = lag_outside(stage, topic, group)
    gate.open.set()
    stage.wait_until(lambda: running.status()[0].lag == 0, "the backlog is worked off")
    stage.wait_until(lambda: lag_outside(stage, topic, group) == 0, "it is committed")
    worked_off = look(running, "worked off")
    stage.fact("largest lag, told and found", [held_back.status.lag, outside])
    stage.check(
        "largest lag: the consumer tells what log ends and committed offsets say",
        held_back.status.lag == outside == BACKLOG,
    )
    stage.check("lag: none is left when all is handled", worked_off.status.lag == 0)
    return [held_back, worked_off]


def lag_outside(stage: Stage, topic: str, group: str) -> int:
    partitions = [TopicPartition(topic, number) for number in range(CONSUMED_PARTITIONS)]
    committed = stage.admin.committed(group)
    ends = stage.admin.offsets(partitions, Latest())
    return sum(end - committed.get(partition, 0) for partition, end in ends.items())


def judge_consumed_rate(
    stage: Stage, running: RunningApp, producer: Producer, topic: str, gate: Gate
) -> list[Look]:
    stage.say(f"consuming while {CONSUMED_PACE} records a second are sent")
    before, sent_before, looks = gate.handled, producer.acknowledged, [look(running, "begin")]
    with Load(sending_events(producer, topic), CONSUMED_PACE):
        for _ in range(LOOKS):
            time.sleep(SECONDS_BETWEEN_LOOKS)
            looks.append(look(running, f"{CONSUMED_PACE} a second"))
    producer.flush()
    sent = producer.acknowledged - sent_before
    wait_until_handled(stage, running, looks[0].status.handled + sent)
    looks.append(look(running, "end"))
    low, high = RATE_BAND
    rates = sorted(b.rate(a, "handled") for a, b in pairwise(looks[:-1]))
    told = looks[-1].status.handled - looks[0].status.handled
    stage.fact("consumed: told, counted by the handler, sent", [told, gate.handled - before, sent])
    stage.check(
        "consumed: the consumer tells what its handler counted, and that is what was sent",
        told == gate.handled - before == sent,
    )
    stage.check(
        f"consumed rate: its median is {low:g} to {high:g} times the pace of sending",
        low * CONSUMED_PACE <= rates[len(rates) // 2] <= high * CONSUMED_PACE,
    )
    return looks[1:-1]


def wait_until_handled(stage: Stage, running: RunningApp, count: int) -> None:
    stage.wait_until(
        lambda: running.status()[0].handled >= count, f"{count} are handled", every=0.01
    )


def judge_polls(stage: Stage, running: RunningApp, producer: Producer, topic: str) -> None:
    """Each record is sent when the one before it was handled, so each needs a poll."""
    before = running.status()[0]
    for number in range(1, ONE_BY_ONE + 1):
        producer.send(topic, "one").result()
        wait_until_handled(stage, running, before.handled + number)
    after = running.status()[0]
    polls, polled = after.polls - before.polls, after.polled - before.polled
    stage.fact("records sent one by one, and the polls they came in", [ONE_BY_ONE, polls])
    stage.check("polls: records that come one by one come in a poll each", polls == ONE_BY_ONE)
    stage.check("polls: as many records came as were sent", polled == ONE_BY_ONE)
