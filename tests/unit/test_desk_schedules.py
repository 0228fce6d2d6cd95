"""The desk in any schedule of polls, completions, commits, crashes and rebalances.

Records of a shard run in order and none twice in one assignment; a commit names exactly what is
finished; what is not finished is offered again after a crash; every counter returns to zero.
"""

import math
import random
from collections import Counter
from itertools import accumulate

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.model import TopicPartition
from headrace.parallel.engine.desk import Desk, Limits
from headrace.parallel.state import LIMIT, Assignment, decode
from support.examples import examples

PLENTY = Limits(1_000_000, 1 << 30)
KEYS = [None, *range(6)]
GAPS = {"none": [1], "some": [1, 1, 2, 3], "many": [1, 2, 100, 1 << 40]}
SEEDS = st.integers(0, 1 << 32)
PARTS = st.sampled_from([0.1, 0.5, 0.9, 1])
HOW_OFTEN = {"add": 8, "take": 10, "finish": 8, "release": 4, "commit": 5, "give_back": 2}
HOW_OFTEN |= {"abandon": 1, "stop": 1, "revoke": 1, "crash": 1}
STEPS = [step for step, times in HOW_OFTEN.items() for _ in range(times)]


class Assigned:
    """What the test knows of one assignment."""

    def __init__(self, work, coming, recorded):
        self.work = work
        self.coming = coming
        self.polled = []
        self.recorded = frozenset(recorded)  # finished and committed before it
        self.done = set(recorded)
        self.released = set(recorded)
        self.out = set()  # in a crew's hands, finished or abandoned
        self.abandoned = 0


class World(RuleBasedStateMachine):
    """A group's partitions, one consumer at a time; records are (offset, key, message)."""

    @initialize(
        seed=SEEDS,
        partitions=st.integers(1, 4),
        gaps=st.sampled_from(sorted(GAPS)),
        order=st.sampled_from(["key", "partition", "none"]),
        limit=st.sampled_from([24, 40, LIMIT]),
        per_record=st.booleans(),
    )
    def begin(self, seed, partitions, gaps, order, limit, per_record):
        noise = random.Random(seed)
        self.order, self.limit, self.per_record = order, limit, per_record
        self.logs = {
            TopicPartition("t", n): self.make_log(noise, GAPS[gaps]) for n in range(partitions)
        }
        self.committed = {p: (log[0][0], "") for p, log in self.logs.items()}
        self.recorded = {p: set() for p in self.logs}
        self.handled = {p: set() for p in self.logs}
        self.crash(0, 1)

    def make_log(self, noise, gaps):
        size = noise.randint(1, 120)
        offsets = accumulate([noise.choice([0, 1000]), *noise.choices(gaps, k=size - 1)])
        return [(o, noise.choice(KEYS), bytes(noise.randint(0, 20))) for o in offsets]

    def assign(self, partition):
        offset, metadata = self.committed[partition]
        assert len(metadata) <= self.limit
        finished = decode(offset, metadata)
        work = self.desk.assign(partition, offset, finished, 0.0, (offset, metadata))
        number = work.assignment.number
        work.assignment = Assignment(number, self.order, offset, finished, self.limit)
        log = self.logs[partition]
        assert self.recorded[partition] >= {o for o, _, _ in log if o < offset}
        coming = [record for record in log if record[0] >= offset]
        self.now[partition] = Assigned(work, coming, self.recorded[partition])

    def mine(self, unit):
        """What the test knows of a unit's assignment; None if that has ended."""
        known = self.now.get(unit[0].partition)
        return known if known is not None and known.work is unit[0] else None

    def same_shard(self, key, other):
        return self.order == "partition" or (
            self.order == "key" and key == other and key is not None
        )

    # --- what a consumer does ---

    @rule(what=st.sampled_from(STEPS), seed=SEEDS, part=PARTS)
    def step(self, what, seed, part):
        getattr(self, what)(seed, part)

    def one(self, seed):
        return random.Random(seed).choice(sorted(self.logs))

    def draw(self, seed, part):
        """Some of what the crew has, in any order; the rest it keeps."""
        hands = random.Random(seed).sample(self.hands, len(self.hands))
        count = math.ceil(len(hands) * part)
        self.hands = hands[count:]
        return hands[:count]

    def add(self, seed, part):
        partition = self.one(seed)
        known = self.now[partition]
        again = known.polled[-(seed % 4) :] if seed % 4 else []
        fresh = known.coming[: math.ceil(part * 40)]
        batch = again + fresh
        if not batch:
            return
        before = self.desk.unfinished
        self.desk.add(partition, *map(list, zip(*batch, strict=True)))
        if known.work.assignment.stopped:
            assert self.desk.unfinished == before
            return
        assert self.desk.unfinished - before == len({o for o, _, _ in fresh} - known.recorded)
        known.coming = known.coming[len(fresh) :]
        known.polled += fresh

    def take(self, seed, part):
        most = math.ceil(part * 30)
        units = self.desk.take(most, reserved=seed % 2)
        assert len(units) <= most
        for unit in units:
            self.check_start(unit)
        self.hands += units

    def check_start(self, unit):
        work, offset, key, message = unit
        known = self.mine(unit)
        assert known is not None, "of a partition that is somebody else's"
        assert not work.assignment.stopped
        assert (offset, key, message) in known.polled
        assert offset not in known.out, "handed out twice in one assignment"
        assert offset not in known.recorded, "finished and committed, yet handed out again"
        known.out.add(offset)
        for earlier, other, _ in known.polled:
            if earlier < offset and self.same_shard(key, other):
                assert earlier in known.released, "out of order"

    def finish(self, seed, part):
        units = self.draw(seed, part)
        before = self.desk.finished, self.desk.late
        self.desk.done(units, 1.0)
        late = 0
        for unit in units:
            self.handled[unit[0].partition].add(unit[1])
            if known := self.mine(unit):
                known.done.add(unit[1])
            late += known is None
        assert (self.desk.finished, self.desk.late) == (
            before[0] + len(units) - late,
            before[1] + late,
        )
        if not self.per_record:
            self.note_released(units)

    def note_released(self, units):
        for unit in units:
            if known := self.mine(unit):
                known.released.add(unit[1])

    def release(self, seed, part):
        if self.per_record:
            units, self.desk.unreleased = self.desk.unreleased, []
            self.note_released(units)
            self.desk.release(units)

    def give_back(self, seed, part):
        units = self.draw(seed, part / 4)
        for unit in units:
            if known := self.mine(unit):
                known.out.discard(unit[1])
        self.desk.give_back(units)

    def abandon(self, seed, part):
        units = self.draw(seed, part / 10)
        for unit in units:
            if known := self.mine(unit):
                known.abandoned += 1
        self.desk.abandon(units)

    def commit(self, seed, part):
        """Some are refused, and then tried again by the next."""
        works = list(self.desk.works.values())
        found = self.desk.committable(works, confirmed=False)
        for work, offset, metadata in found:
            if seed % 5 == 0:
                work.sent = None
                continue
            work.sent = (offset, metadata)
            self.committed[work.partition] = (offset, metadata)
            finished = decode(offset, metadata)
            self.recorded[work.partition] = {
                o
                for o, _, _ in self.logs[work.partition]
                if o < offset or any(o in run for run in finished)
            }
        for known in self.now.values():
            if known.work.sent is not None:
                said = self.recorded[known.work.partition]
                assert said == known.done, "a commit names exactly what is finished"

    # --- what happens to it ---

    def stop(self, seed, part):
        self.desk.stop([self.one(seed)])

    def revoke(self, seed, part):
        """It ends, and the partition comes back: what still runs has become late."""
        partition = self.one(seed)
        (work,) = self.desk.revoke([partition])
        assert work is self.now[partition].work
        self.assign(partition)

    def crash(self, seed, part):
        """Everything is forgotten but the last commits."""
        self.desk = Desk(self.order, 8, PLENTY)
        self.desk.lock.acquire()  # everything is called under it
        self.desk.unreleased = [] if self.per_record else None
        self.hands, self.now = [], {}
        for partition in self.logs:
            self.assign(partition)

    # --- what holds all the time ---

    @invariant()
    def counters_agree(self):
        in_hand = Counter(unit[0] for unit in self.hands)
        for known in self.now.values():
            unfinished = [r for r in known.polled if r[0] not in known.done]
            assert known.work.taken == known.work.units == in_hand[known.work]
            assert known.work.bytes == sum(len(message) for _, _, message in unfinished)
            assert known.work.unfinished == len(unfinished)

    def teardown(self):
        """Left alone, a consumer comes to the end: all handled, and committed without a map."""
        if not hasattr(self, "logs"):
            return
        for partition, known in list(self.now.items()):
            if known.abandoned or known.work.assignment.stopped:
                self.desk.revoke([partition])
                self.assign(partition)
        while any(known.coming or known.work.unfinished for known in self.now.values()):
            before = sum(len(handled) for handled in self.handled.values())
            moved = len(self.hands) + len(self.desk.unreleased or ())
            for partition in sorted(self.logs):
                known = self.now[partition]
                if known.coming:
                    batch, known.coming = known.coming[:20], known.coming[20:]
                    known.polled += batch
                    self.desk.add(partition, *map(list, zip(*batch, strict=True)))
                    moved += 1
            self.take(0, 1)
            moved += len(self.hands)
            self.finish(before, 1)
            self.release(0, 1)
            assert moved, "something is unfinished, and nothing may run"
        self.finish(0, 1)
        self.commit(1, 1)
        for partition, log in self.logs.items():
            assert self.handled[partition] == {offset for offset, _, _ in log}, "lost"
            assert self.committed[partition] == (log[-1][0] + 1, "")
        works = self.desk.works.values()
        assert [(work.taken, work.bytes, work.unfinished) for work in works] == [(0, 0, 0)] * len(
            self.logs
        )
        assert (self.desk.taken, self.desk.available, self.desk.take(1)) == (0, 0, [])


World.TestCase.settings = examples(200, stateful_step_count=50)
TestAnySchedule = World.TestCase
