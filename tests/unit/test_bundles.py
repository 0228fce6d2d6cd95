"""The desk of a batch handler: bundles of the right size, in time, in order, and of the right keys.

Whatever the schedule: no bundle is too large, or of two partitions; no two bundles with the same
key run at once; every record runs once and in its order; nothing waits for ever.
"""

import math
import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.errors import ConfigError
from headrace.parallel.batching import Batch
from headrace.parallel.engine.bundles import BundleDesk
from headrace.parallel.engine.rate import RateLimit
from headrace.parallel.state import LIMIT, Assignment, decode
from support.desks import PLENTY, A, B, fill, opened
from support.examples import examples


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def make_desk(clock, batch, order="key", *, concurrency=4, partitions=(A,), rate=None):
    return opened(BundleDesk(order, concurrency, PLENTY, rate, batch, clock), partitions)


def contents(bundles):
    return [[task[1] for task in tasks] for _, tasks, _ in bundles]


# --- size and time ---


def test_a_bundle_is_ready_when_it_is_full(clock):
    desk = make_desk(clock, Batch(size=3, wait=1), "none")
    fill(desk, A, range(7))
    assert contents(desk.take(9)) == [[0, 1, 2], [3, 4, 5]]
    fill(desk, A, [7, 8])
    assert contents(desk.take(9)) == [[6, 7, 8]]


def test_a_bundle_is_ready_when_it_has_waited_long_enough(clock):
    desk = make_desk(clock, Batch(size=10, wait=0.5), "none")
    fill(desk, A, [0])
    clock.now += 0.4
    fill(desk, A, [1])
    assert desk.ripen(clock.now) == pytest.approx(100.5)
    assert desk.take(9) == []
    clock.now += 0.1
    assert desk.ripen(clock.now) is None
    assert contents(desk.take(9)) == [[0, 1]]


def test_each_bundle_waits_from_its_own_first_record_on(clock):
    desk = make_desk(clock, Batch(size=2, wait=0.5), "none")
    fill(desk, A, [0, 1])
    clock.now += 0.3
    fill(desk, A, [2])
    assert desk.ripen(100.5) == pytest.approx(100.8)
    assert contents(desk.take(9)) == [[0, 1]]
    desk.ripen(100.8)
    assert contents(desk.take(9)) == [[2]]


def test_without_a_wait_whatever_is_there_is_ready_at_once(clock):
    desk = make_desk(clock, Batch(size=10, wait=0), "key")
    fill(desk, A, range(4), "aaba")
    assert contents(desk.take(9)) == [[0, 1, 2, 3]]


def test_a_bundle_is_of_one_partition(clock):
    desk = make_desk(clock, Batch(size=4, wait=1), "none", partitions=(A, B))
    fill(desk, A, range(3))
    fill(desk, B, range(4))
    assert [(unit[0].partition, len(unit[1])) for unit in desk.take(9)] == [(B, 4)]


def test_a_batch_of_nothing_is_refused():
    for size, wait in ((0, 1), (1, -1)):
        with pytest.raises(ConfigError, match=f"size={size}, wait={wait}"):
            Batch(size=size, wait=wait)


# --- keys and order ---


def test_by_key_a_bundle_takes_what_waits_behind_its_records_in_the_partitions_order(clock):
    desk = make_desk(clock, Batch(size=6, wait=1), "key")
    fill(desk, A, range(6), "abaabb")
    assert contents(desk.take(9)) == [[0, 1, 2, 3, 4, 5]]


def test_the_next_bundle_with_a_key_starts_after_the_last_one(clock):
    desk = make_desk(clock, Batch(size=2, wait=0), "key")
    fill(desk, A, range(4), "aaaa")
    first = desk.take(9)
    assert contents(first) == [[0, 1]]
    assert desk.take(9) == []
    desk.done(first, 1.0)
    assert contents(desk.take(9)) == [[2, 3]]


def test_with_same_key_every_bundle_is_of_one_key(clock):
    desk = make_desk(clock, Batch(size=3, wait=1, same_key=True), "key")
    fill(desk, A, range(7), "abababa")
    bundles = desk.take(9)
    assert contents(bundles) == [[0, 2, 4], [1, 3, 5]]
    assert desk.take(9) == []
    desk.done(bundles, 1.0)
    desk.ripen(clock.now + 1)
    assert contents(desk.take(9)) == [[6]]


def test_with_same_key_records_that_come_later_join_the_open_bundle_of_their_key(clock):
    desk = make_desk(clock, Batch(size=3, wait=1, same_key=True), "key")
    fill(desk, A, range(2), "ab")
    fill(desk, A, range(2, 4), "aa")
    assert contents(desk.take(9)) == [[0, 2, 3]]
    desk.ripen(clock.now + 1)
    assert contents(desk.take(9)) == [[1]]


def test_records_without_a_key_share_bundles_that_run_at_once(clock):
    desk = make_desk(clock, Batch(size=2, wait=1, same_key=True), "key")
    fill(desk, A, range(4))
    assert contents(desk.take(9)) == [[0, 1], [2, 3]]


def test_by_partition_one_bundle_runs_at_a_time_in_order(clock):
    desk = make_desk(clock, Batch(size=2, wait=0), "partition")
    fill(desk, A, range(5), "abcde")
    for expected in ([0, 1], [2, 3], [4]):
        bundles = desk.take(9)
        assert contents(bundles) == [expected]
        desk.done(bundles, 1.0)
    assert (desk.unfinished, desk.works[A].bytes) == (0, 0)


def test_without_order_bundles_of_one_key_may_run_at_once(clock):
    desk = make_desk(clock, Batch(size=2, wait=0), "none")
    fill(desk, A, range(4), "aaaa")
    assert contents(desk.take(9)) == [[0, 1], [2, 3]]


# --- counting ---


def test_a_bundle_counts_as_all_its_records(clock):
    desk = make_desk(clock, Batch(size=3, wait=0), "none")
    fill(desk, A, range(6), size=10)
    bundles = desk.take(1)
    work = desk.works[A]
    assert (desk.taken, desk.unfinished, work.bytes) == (3, 6, 60)
    desk.done(bundles, 2.0)
    assert (desk.taken, desk.unfinished, work.bytes, desk.finished) == (0, 3, 30, 3)
    assert work.assignment.commit() == (3, "")
    desk.give_back(desk.take(1))
    assert desk.taken == 0
    desk.abandon(desk.take(1))
    assert (desk.taken, desk.unfinished, desk.take(1)) == (0, 3, [])


def test_a_rate_is_of_records_however_they_are_bundled(clock):
    desk = make_desk(clock, Batch(size=5, wait=0), "none", rate=RateLimit(100, now=0.0))
    fill(desk, A, range(100))
    assert sum(map(len, contents(desk.take(99, now=0.0)))) == 10
    assert desk.take(99, now=0.0) == []
    assert desk.ripen(0.0) == pytest.approx(0.01)
    handled = sum(len(tasks) for ms in range(500) for _, tasks, _ in desk.take(99, now=ms / 1000))
    assert 45 <= handled <= 55


def test_a_share_of_the_workers_is_counted_in_bundles(clock):
    desk = make_desk(clock, Batch(size=50, wait=0), "none", concurrency=4, partitions=(A, B))
    fill(desk, A, range(500))
    desk.take(1)
    fill(desk, B, range(500))
    taken = [desk.take(1)[0] for _ in range(2)]  # A holds one worker of four, not fifty
    assert [unit[0].partition for unit in taken] == [A, B]
    desk.done(taken[1:], 1.0)
    assert [unit[0].partition for unit in desk.take(1)] == [B]


def test_to_finish_a_bundle_costs_nothing_for_all_the_open_ones(clock, monkeypatch):
    desk = make_desk(clock, Batch(size=2, wait=1, same_key=True), "key")
    fill(desk, A, range(1002), [*range(1000), 0, 0])
    looked_at = []
    monkeypatch.setattr(BundleDesk, "_fill", lambda desk, bundle: looked_at.append(bundle.group))
    desk.done(desk.take(1), 1.0)
    assert looked_at == [0]


# --- the end of an assignment ---


@pytest.mark.parametrize("end", ["stop", "revoke"])
def test_open_bundles_are_forgotten_with_their_partition(clock, end):
    desk = make_desk(clock, Batch(size=10, wait=1), "none", partitions=(A, B))
    fill(desk, A, range(3))
    fill(desk, B, range(2))
    getattr(desk, end)([A])
    desk.ripen(clock.now + 1)
    assert [(unit[0].partition, len(unit[1])) for unit in desk.take(9)] == [(B, 2)]


@pytest.mark.parametrize("end", ["stop", "revoke"])
def test_ready_bundles_are_forgotten_with_their_partition(clock, end):
    desk = make_desk(clock, Batch(size=1, wait=1), "none")
    fill(desk, A, range(3))
    getattr(desk, end)(iter([A]))
    assert (desk.take(9), desk.available) == ([], 0)


def test_a_partition_that_comes_back_gets_bundles_of_its_own(clock):
    desk = make_desk(clock, Batch(size=3, wait=1), "key")
    fill(desk, A, range(2), "ab")
    (gone,) = desk.revoke([A])
    work = desk.assign(A, 0, (), now=0.0)
    fill(desk, A, range(3), "abc")
    (bundle,) = desk.take(9)
    assert bundle[0] is work is not gone
    assert contents([bundle]) == [[0, 1, 2]]


def test_a_bundle_that_ends_late_is_counted_and_changes_nothing(clock):
    desk = make_desk(clock, Batch(size=2, wait=0), "key")
    fill(desk, A, range(3), "aaa")
    late = desk.take(9)
    desk.revoke([A])
    work = desk.assign(A, 0, (), now=0.0)
    desk.done(late, 1.0)
    assert (desk.late, desk.finished, work.taken, desk.take(9)) == (2, 0, 0, [])


def test_what_the_commits_map_has_no_room_for_is_in_no_bundle_until_it_has(clock):
    near = 24_512
    desk = make_desk(clock, Batch(size=1000, wait=0), "none")
    fill(desk, A, range(near + 100))
    bundles = desk.take(99)
    assert sum(map(len, contents(bundles))) == near
    desk.done(bundles[:1], 1.0)
    assert sum(map(len, contents(desk.take(999)))) == 100


# --- any schedule ---

KEYS = [None, *range(5)]
SEEDS = st.integers(0, 1 << 32)
PARTS = st.sampled_from([0.1, 0.5, 1])
HOW_OFTEN = {"add": 8, "take": 8, "finish": 8, "time": 6, "commit": 3, "give_back": 1}
HOW_OFTEN |= {"stop": 1, "revoke": 1}
STEPS = [step for step, times in HOW_OFTEN.items() for _ in range(times)]


class World(RuleBasedStateMachine):
    """Two partitions; records are (offset, key, message)."""

    @initialize(
        seed=SEEDS,
        order=st.sampled_from(["key", "partition", "none"]),
        size=st.integers(1, 7),
        wait=st.sampled_from([0, 1.0]),
        same_key=st.booleans(),
        gap=st.sampled_from([1, 50]),
        limit=st.sampled_from([24, LIMIT]),
    )
    def begin(self, seed, order, size, wait, same_key, gap, limit):
        noise = random.Random(seed)
        self.order, self.limit = order, limit
        self.batch = Batch(size, wait, same_key and order != "partition")
        self.clock = Clock()
        self.desk = make_desk(self.clock, self.batch, order, partitions=())
        self.logs = {
            p: [
                (n * gap, noise.choice(KEYS), bytes(noise.randint(0, 9)))
                for n in range(noise.randint(1, 100))
            ]
            for p in (A, B)
        }
        self.committed = dict.fromkeys(self.logs, (0, ""))
        self.handled = {p: set() for p in self.logs}
        self.hands, self.works = [], {}
        self.coming, self.polled, self.out, self.done = {}, {}, {}, {}
        for partition in self.logs:
            self.assign(partition)

    def assign(self, partition):
        offset, metadata = self.committed[partition]
        runs = decode(offset, metadata)
        work = self.desk.assign(partition, offset, runs, 0.0, (offset, metadata))
        number = work.assignment.number
        work.assignment = Assignment(number, self.order, offset, runs, self.limit)
        self.works[partition] = work
        log = self.logs[partition]
        self.done[partition] = {o for o, _, _ in log if o < offset or any(o in run for run in runs)}
        self.out[partition] = set(self.done[partition])
        self.coming[partition] = [record for record in log if record[0] >= offset]
        self.polled[partition] = []

    def is_ours(self, unit):
        return self.works[unit[0].partition] is unit[0]

    def shard(self, task):
        """What must not run twice at once; None if nothing forbids it."""
        if self.order == "partition":
            return task[0]
        return (task[0], task[2]) if self.order == "key" and task[2] is not None else None

    @rule(what=st.sampled_from(STEPS), seed=SEEDS, part=PARTS)
    def step(self, what, seed, part):
        getattr(self, what)(seed, part)

    def draw(self, seed, part):
        hands = random.Random(seed).sample(self.hands, len(self.hands))
        count = math.ceil(len(hands) * part)
        self.hands = hands[count:]
        return hands[:count]

    def add(self, seed, part):
        partition = (A, B)[seed % 2]
        count = math.ceil(part * 20)
        batch = self.coming[partition][:count]
        if batch:
            self.desk.add(partition, *map(list, zip(*batch, strict=True)))
            if not self.works[partition].assignment.stopped:
                self.coming[partition] = self.coming[partition][count:]
                self.polled[partition] += batch

    def time(self, seed, part):
        self.clock.now += part
        due = self.desk.ripen(self.clock.now)
        assert due is None or due > self.clock.now

    def take(self, seed, part):
        bundles = self.desk.take(math.ceil(part * 10))
        assert len(bundles) <= math.ceil(part * 10)
        for bundle in bundles:
            self.check(bundle)
            self.hands.append(bundle)

    def check(self, bundle):
        work, tasks, _ = bundle
        assert self.is_ours(bundle)
        assert not work.assignment.stopped
        assert 1 <= len(tasks) <= self.batch.size
        assert all(task[0] is work for task in tasks)
        offsets = [task[1] for task in tasks]
        assert offsets == sorted(offsets)
        if self.batch.same_key:
            assert len({task[2] for task in tasks}) == 1
        at_work = {self.shard(task) for other in self.hands for task in other[1]} - {None}
        assert at_work.isdisjoint(self.shard(task) for task in tasks), "two bundles of one key"
        self.check_order(work.partition, tasks)

    def check_order(self, partition, tasks):
        out = self.out[partition]
        for task in tasks:
            assert task[1] not in out, "handed out twice in one assignment"
            shard = self.shard(task)
            for offset, key, _ in self.polled[partition]:
                if (
                    shard is not None
                    and offset < task[1]
                    and self.shard((task[0], 0, key)) == shard
                ):
                    assert offset in out, "out of order"
            out.add(task[1])

    def finish(self, seed, part):
        bundles = self.draw(seed, part)
        self.desk.done(bundles, 1.0)
        for bundle in bundles:
            offsets = {task[1] for task in bundle[1]}
            self.handled[bundle[0].partition] |= offsets
            if self.is_ours(bundle):
                self.done[bundle[0].partition] |= offsets

    def give_back(self, seed, part):
        bundles = self.draw(seed, part)
        for bundle in bundles:
            if self.is_ours(bundle):
                self.out[bundle[0].partition] -= {task[1] for task in bundle[1]}
        self.desk.give_back(bundles)

    def commit(self, seed, part):
        for work, offset, metadata in self.desk.committable(self.works.values(), confirmed=False):
            work.sent = self.committed[work.partition] = (offset, metadata)
            runs = decode(offset, metadata)
            said = {
                o
                for o, _, _ in self.logs[work.partition]
                if o < offset or any(o in run for run in runs)
            }
            assert said == self.done[work.partition], "a commit names exactly what is finished"

    def stop(self, seed, part):
        self.desk.stop([(A, B)[seed % 2]])

    def revoke(self, seed, part):
        partition = (A, B)[seed % 2]
        self.desk.revoke([partition])
        self.assign(partition)

    @invariant()
    def counters_agree(self):
        for partition, work in self.works.items():
            unfinished = [r for r in self.polled[partition] if r[0] not in self.done[partition]]
            assert work.taken == sum(len(unit[1]) for unit in self.hands if unit[0] is work)
            assert work.units == sum(unit[0] is work for unit in self.hands)
            assert work.bytes == sum(len(message) for _, _, message in unfinished)
            assert work.unfinished == len(unfinished)

    def teardown(self):
        """Left alone, everything is handled, and committed without a map."""
        if not hasattr(self, "logs"):
            return
        for partition, work in list(self.works.items()):
            if work.assignment.stopped:
                self.revoke((A, B).index(partition), 1)
        idle = 0
        while any(self.coming.values()) or any(work.unfinished for work in self.works.values()):
            self.add(0, 1)
            self.add(1, 1)
            self.time(0, 1)
            self.take(0, 1)
            idle = 0 if self.hands else idle + 1
            assert idle < 20, "something is unfinished, and nothing may run"
            self.finish(0, 1)
        self.finish(0, 1)
        self.commit(0, 1)
        for partition, log in self.logs.items():
            assert self.handled[partition] == {offset for offset, _, _ in log}
            assert self.committed[partition] == (log[-1][0] + 1, "")
        assert (self.desk.taken, self.desk.available, self.desk.ripen(1e9)) == (0, 0, None)


World.TestCase.settings = examples(200, stateful_step_count=50)
TestAnySchedule = World.TestCase
