"""Crews on a desk, without Kafka: each unit once, in order, never too many at once, none left."""

import asyncio
import random
import sys
import threading
from collections import Counter, defaultdict

import pytest

from headrace.model import TopicPartition
from headrace.parallel.engine import threads
from headrace.parallel.engine.crew import FAST_CHUNK, Pace
from headrace.parallel.engine.desk import Desk, Limits
from headrace.parallel.engine.loop import LoopCrew
from headrace.parallel.engine.threads import ThreadCrew
from support.waiting import eventually

A, B = (TopicPartition("clicks", number) for number in range(2))
PLENTY = Limits(1_000_000, 1 << 30)
FAST = 500  # after so many fast handlers a crew takes more than its workers can start at once


def place(unit):
    return unit[0].partition, unit[1]


class Rig:
    """A desk, a crew, and what its handlers did.

    `behave(unit)` is the handler; if it returns an event, the handler goes on when that is set.
    """

    def __init__(self, kind, behave, order, concurrency, skip, partitions):
        self.desk = Desk(order, concurrency, PLENTY)
        for partition in partitions:
            self.desk.assign(partition, 0, (), now=0.0)
        self.behave, self.skip = behave, skip
        self.lock = threading.Lock()
        self.handled, self.failures = [], []
        self.at_work, self.most_at_work = Counter(), 0
        self.loop = None
        if kind == "threads":
            self.crew = ThreadCrew(self.desk, self.call, self.failed, concurrency, "rig")
        else:
            self.loop = asyncio.new_event_loop()
            self.thread = threading.Thread(target=self.loop.run_forever)
            self.thread.start()
            self.crew = LoopCrew(self.desk, self.acall, self.failed, concurrency, self.loop)

    def call(self, unit):
        self.enter(unit)
        try:
            gate = self.behave(unit)
            if gate is not None:
                assert gate.wait(30)
        finally:
            self.leave(unit)

    async def acall(self, unit):
        self.enter(unit)
        try:
            gate = self.behave(unit)
            while gate is not None and not gate.is_set():
                await asyncio.sleep(0.001)
        finally:
            self.leave(unit)

    def enter(self, unit):
        with self.lock:
            self.at_work[place(unit)] += 1
            self.most_at_work = max(self.most_at_work, self.at_work.total())

    def leave(self, unit):
        with self.lock:
            self.at_work[place(unit)] -= 1
            self.handled.append(place(unit))

    def failed(self, unit, error):
        self.failures.append((place(unit), error))
        return self.skip

    def feed(self, partition, offsets, keys=None):
        offsets = list(offsets)
        keys = [None] * len(offsets) if keys is None else list(keys)
        with self.desk.lock:
            self.desk.add(partition, offsets, keys, [b"x"] * len(offsets))
        self.crew.wake()

    @property
    def now_at_work(self):
        with self.lock:
            return set((+self.at_work).elements())

    def locked(self, look):
        with self.desk.lock:
            return look(self.desk)

    def wait(self, condition, what="a condition"):
        return eventually(condition, what, seconds=20, every=0.002)

    def wait_until_done(self):
        self.wait(lambda: self.locked(lambda desk: not desk.unfinished), "all is done")

    def withdraw_until(self, condition, what):
        def look():
            self.crew.withdraw()
            return condition()

        self.wait(look, what)

    def close(self):
        self.crew.close()
        if self.loop is not None:
            self.wait(lambda: not asyncio.all_tasks(self.loop), "the workers end")
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(20)
            self.loop.close()


@pytest.fixture(params=["threads", "loop"])
def kind(request):
    return request.param


@pytest.fixture
def make_rig(kind):
    rigs, gates = [], []

    def make(behave=lambda unit: None, order="none", concurrency=4, skip=True, partitions=(A,)):
        rigs.append(Rig(kind, behave, order, concurrency, skip, partitions))
        return rigs[-1]

    def gate():
        gates.append(threading.Event())
        return gates[-1]

    make.gate = gate
    yield make
    for event in gates:
        event.set()
    for rig in rigs:
        rig.close()
    eventually(lambda: not rig_threads(), "no thread is left", seconds=20, every=0.002)


def rig_threads():
    return [thread for thread in threading.enumerate() if thread.name == "headrace-rig"]


def all_of(*counts):
    return [(p, o) for p, count in zip((A, B), counts, strict=False) for o in range(count)]


# --- threads and coroutines ---


def test_everything_is_handled_once(make_rig):
    rig = make_rig(partitions=(A, B))
    for start in range(0, 3000, 300):
        rig.feed(A, range(start, start + 300))
        rig.feed(B, range(start, start + 300))
    rig.wait_until_done()
    assert sorted(rig.handled) == all_of(3000, 3000)
    assert rig.locked(lambda desk: (desk.taken, desk.finished, desk.late)) == (0, 6000, 0)


def test_records_of_a_key_are_handled_in_order_and_never_at_once(make_rig):
    noise = random.Random(7)
    keys = [noise.choice("abcdefgh") for _ in range(2000)]
    seen, at_work, clashes = defaultdict(list), Counter(), []

    def behave(unit):
        key = unit[2]
        at_work[key] += 1
        if at_work[key] > 1:
            clashes.append(unit[1])
        seen[key].append(unit[1])
        at_work[key] -= 1

    rig = make_rig(behave, order="key")
    for start in range(0, 2000, 100):
        rig.feed(A, range(start, start + 100), keys[start : start + 100])
    rig.wait_until_done()
    assert not clashes
    for key, offsets in seen.items():
        assert offsets == [offset for offset, other in enumerate(keys) if other == key]


def test_all_workers_are_used_and_never_more(make_rig):
    gate = make_rig.gate()
    rig = make_rig(lambda unit: gate if unit[1] >= FAST else None, concurrency=5)
    rig.feed(A, range(FAST))
    rig.wait_until_done()
    rig.feed(A, range(FAST, FAST + 40))
    rig.withdraw_until(lambda: len(rig.now_at_work) == 5, "five are at work")
    assert {place(unit) for unit, _ in rig.crew.running()} == rig.now_at_work
    gate.set()
    rig.wait_until_done()
    assert rig.most_at_work == 5
    assert sorted(rig.handled) == all_of(FAST + 40)


def test_a_slow_record_of_one_key_holds_nobody_else(make_rig):
    gate = make_rig.gate()
    rig = make_rig(lambda unit: gate if unit[1] == 0 else None, order="key", concurrency=2)
    rig.feed(A, range(200), ["slow" if offset % 50 == 0 else "fast" for offset in range(200)])
    rig.withdraw_until(lambda: len(rig.handled) == 196, "all but the slow key is handled")
    assert rig.now_at_work == {(A, 0)}
    gate.set()
    rig.wait_until_done()


def test_what_comes_while_all_are_idle_is_handled(make_rig):
    rig = make_rig()
    for offset in range(20):
        rig.feed(A, [offset])
        rig.wait_until_done()
    assert rig.handled == all_of(20)


def test_a_failure_that_is_skipped_counts_as_finished_and_its_key_goes_on(make_rig):
    def behave(unit):
        if unit[1] % 3 == 0:
            raise ValueError(unit[1])

    rig = make_rig(behave, order="key", skip=True)
    rig.feed(A, range(30), "a" * 30)
    rig.wait_until_done()
    assert [where for where, _ in rig.failures] == [(A, offset) for offset in range(0, 30, 3)]
    assert [error.args for _, error in rig.failures] == [(offset,) for offset in range(0, 30, 3)]
    assert rig.handled == all_of(30)


def test_a_failure_that_stops_stays_unfinished_and_holds_its_key_back(make_rig):
    def behave(unit):
        if unit[1] == 1:
            raise ValueError

    rig = make_rig(behave, order="key", skip=False)
    rig.feed(A, range(6), "aaabbb")
    rig.wait(lambda: rig.locked(lambda desk: (desk.taken, desk.unfinished)) == (0, 2))
    assert sorted(rig.handled) == [(A, 0), (A, 1), (A, 3), (A, 4), (A, 5)]
    assert rig.locked(lambda desk: desk.works[A].assignment.tracker.oldest) == 1


def test_of_a_stopped_partition_only_what_runs_is_finished_and_the_rest_is_given_back(make_rig):
    gate = make_rig.gate()
    rig = make_rig(lambda unit: gate if unit[1] >= FAST else None, concurrency=2)
    rig.feed(A, range(FAST))
    rig.wait_until_done()
    rig.feed(A, range(FAST, FAST + 50))
    rig.withdraw_until(lambda: len(rig.now_at_work) == 2, "two are at work")
    rig.locked(lambda desk: desk.stop([A]))
    rig.withdraw_until(lambda: rig.locked(lambda desk: desk.taken) == 2, "the rest is given back")
    running = rig.now_at_work
    gate.set()
    rig.wait(lambda: rig.locked(lambda desk: desk.taken) == 0)
    assert set(rig.handled[FAST:]) == running
    assert rig.locked(lambda desk: desk.finished) == FAST + 2


def test_what_was_taken_and_not_started_does_not_start_when_its_partition_has_stopped(
    make_rig, kind
):
    gate = make_rig.gate()
    rig = make_rig(lambda unit: gate if unit[1] == 200 else None, concurrency=1)
    if kind == "threads":
        rig.crew._pace = SteadyPace(50, fast=False)
    rig.feed(A, range(300))  # fast ones at first: then coroutines take more than one at a time
    rig.wait(lambda: rig.now_at_work == {(A, 200)})
    rig.locked(lambda desk: desk.stop([A]))
    gate.set()
    rig.wait(lambda: rig.locked(lambda desk: desk.taken) == 0)
    assert rig.handled == all_of(201)


def test_what_ends_after_its_partition_has_gone_is_late(make_rig):
    gate = make_rig.gate()
    rig = make_rig(lambda unit: gate, concurrency=1, partitions=(A, B))
    rig.feed(A, [0])
    rig.wait(lambda: rig.now_at_work)
    rig.locked(lambda desk: desk.revoke([A]))
    gate.set()
    rig.wait(lambda: rig.locked(lambda desk: desk.late) == 1)
    rig.feed(B, [0])
    rig.wait_until_done()
    assert rig.handled == [(A, 0), (B, 0)]


def test_after_close_nothing_is_taken_and_what_runs_still_counts(make_rig):
    gate = make_rig.gate()
    rig = make_rig(lambda unit: gate, concurrency=2)
    for offset in range(20):
        rig.feed(A, [offset])
    rig.withdraw_until(lambda: len(rig.now_at_work) == 2, "two are at work")
    rig.crew.close()
    rig.locked(lambda desk: desk.stop([A]))
    gate.set()
    rig.wait(lambda: rig.locked(lambda desk: desk.taken) == 0)
    assert rig.locked(lambda desk: desk.finished) == len(rig.handled) == 2
    assert rig.locked(lambda desk: desk.take(1)) == []


# --- threads: chunks ---


only_threads = pytest.mark.parametrize("kind", ["threads"], indirect=True)


@pytest.fixture
def make_thread_rig(make_rig):
    def make(chunk, *arguments, fast=False, **named):
        rig = make_rig(*arguments, **named)
        rig.crew._pace = SteadyPace(chunk, fast)
        return rig

    make.gate = make_rig.gate
    return make


class SteadyPace(Pace):
    """Chunks of one size."""

    def __init__(self, chunk, fast):
        super().__init__()
        self.chunk, self.fast = chunk, fast

    def note(self, count, seconds):
        pass


@only_threads
@pytest.mark.parametrize("fast", [False, True])
def test_a_chunk_behind_a_slow_handler_is_given_to_others(make_thread_rig, fast):
    gate = make_thread_rig.gate()
    rig = make_thread_rig(50, lambda unit: gate if unit[1] == 0 else None, concurrency=2, fast=fast)
    rig.feed(A, range(50))
    rig.wait(lambda: rig.now_at_work)
    rig.withdraw_until(lambda: len(rig.handled) == 49, "the others are handled")
    assert rig.now_at_work == {(A, 0)}
    gate.set()
    rig.wait_until_done()
    assert sorted(rig.handled) == all_of(50)


@only_threads
def test_a_fresh_chunk_is_left_alone(make_thread_rig, monkeypatch):
    monkeypatch.setattr(threads, "SECONDS_BEFORE_WITHDRAWAL", 60)
    gate = make_thread_rig.gate()
    rig = make_thread_rig(50, lambda unit: gate if unit[1] == 0 else None, concurrency=2)
    rig.feed(A, range(50))
    rig.wait(lambda: rig.now_at_work)
    rig.crew.withdraw()
    assert rig.locked(lambda desk: (desk.taken, desk.available)) == (50, 0)


@only_threads
def test_what_lies_behind_another_partitions_handler_is_given_back_when_its_own_stops(
    make_thread_rig, monkeypatch
):
    monkeypatch.setattr(threads, "SECONDS_BEFORE_WITHDRAWAL", 60)
    gate = make_thread_rig.gate()
    rig = make_thread_rig(
        8,
        lambda unit: gate if place(unit) == (A, 0) else None,
        concurrency=1,
        partitions=(A, B),
    )
    with rig.desk.lock:
        rig.desk.add(A, [0], [None], [b"x"])
        rig.desk.add(B, range(4), [None] * 4, [b"x"] * 4)
    rig.crew.wake()
    rig.wait(lambda: rig.now_at_work == {(A, 0)})
    assert rig.locked(lambda desk: desk.works[B].taken) == 4
    rig.locked(lambda desk: desk.stop([B]))
    rig.crew.withdraw()
    assert rig.locked(lambda desk: desk.works[B].taken) == 0


@only_threads
def test_what_is_finished_is_reported_though_a_slow_handler_follows_in_its_chunk(
    make_thread_rig, monkeypatch
):
    monkeypatch.setattr(threads, "SECONDS_BEFORE_WITHDRAWAL", 60)
    gate = make_thread_rig.gate()
    rig = make_thread_rig(
        8,
        lambda unit: gate if place(unit) == (B, 0) else None,
        concurrency=1,
        partitions=(A, B),
    )
    with rig.desk.lock:
        rig.desk.add(A, [0], [None], [b"x"])
        rig.desk.add(B, [0], [None], [b"x"])
    rig.crew.wake()
    rig.wait(lambda: rig.now_at_work == {(B, 0)})
    rig.locked(lambda desk: desk.stop([A]))
    rig.crew.withdraw()
    assert rig.locked(lambda desk: (desk.works[A].taken, desk.finished)) == (0, 1)


@only_threads
def test_withdrawing_while_a_worker_goes_on_with_its_chunk_loses_and_repeats_nothing(
    make_thread_rig, monkeypatch
):
    monkeypatch.setattr(threads, "SECONDS_BEFORE_WITHDRAWAL", -1)
    kept = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        rig = make_thread_rig(128, concurrency=3)
        for start in range(0, 6000, 500):
            rig.feed(A, range(start, start + 500))
            rig.crew.withdraw()
        rig.withdraw_until(lambda: rig.locked(lambda desk: not desk.unfinished), "all is done")
    finally:
        sys.setswitchinterval(kept)
    assert sorted(rig.handled) == all_of(6000)
    assert rig.locked(lambda desk: desk.taken) == 0


def test_fast_handlers_get_large_chunks_and_slow_ones_single_records():
    pace = Pace()
    for _ in range(50):
        pace.note(100, 0.00001)
    assert pace.chunk == FAST_CHUNK
    for _ in range(50):
        pace.note(1, 0.5)
    assert pace.chunk == 1
