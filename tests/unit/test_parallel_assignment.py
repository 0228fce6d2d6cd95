"""A partition through polls, completions in any order, commits, crashes and rebalances.

Whatever the schedule: a commit says of each record whether it is finished, and is right; what was
finished and committed is never handed out again; nothing is skipped; records of a key run in
order and none twice in one assignment; the metadata always fit.
"""

import math
import random
from itertools import accumulate

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.parallel.state import LIMIT, Assignment, decode
from support.examples import examples

GAPS = {"none": [1], "some": [1, 1, 1, 2, 3], "many": [1, 2, 100, 1 << 40]}
KEYS = [None, *range(8)]
# Numbers that seed a random generator: one draw each, so that schedules become long.
SEEDS = st.integers(0, 1 << 32)
PARTS = st.sampled_from([0.1, 0.5, 0.9, 1])
# One rule for all: Hypothesis would leave out most of several in a schedule.
HOW_OFTEN = {"poll": 6, "start": 8, "complete": 8, "commit": 6}
HOW_OFTEN |= {"late": 1, "stop": 1, "revoke": 1, "crash": 1}
STEPS = [step for step, times in HOW_OFTEN.items() for _ in range(times)]


def draw_lots(things, seed, part):
    """Some of them in any order, and the rest."""
    things = random.Random(seed).sample(things, len(things))
    count = math.ceil(len(things) * part)
    return things[:count], things[count:]


def finish(assignment, offsets, keys):
    """Both halves of it; returns the records that may run next."""
    assignment.mark(offsets)
    return assignment.release(keys)


class World(RuleBasedStateMachine):
    """One partition, one group, one consumer at a time; records are (offset, key)."""

    @initialize(
        seed=SEEDS,
        size=st.integers(1, 300),
        gaps=st.sampled_from(sorted(GAPS)),
        order=st.sampled_from(["key", "partition", "none"]),
        limit=st.sampled_from([24, 28, 40, LIMIT]),
        position=st.sampled_from([0, 1000]),
    )
    def begin(self, seed, size, gaps, order, limit, position):
        noise = random.Random(seed)
        steps = [position, *noise.choices(GAPS[gaps], k=size - 1)]
        self.log = list(zip(accumulate(steps), noise.choices(KEYS, k=size), strict=True))
        self.order, self.limit = order, limit
        self.committed = (position, "")
        self.recorded = set()  # what the last commit says is finished
        self.handled = set()  # what any assignment finished
        self.number = 0
        self.gone = []  # assignments that ended, with what still ran
        self.assign()

    def assign(self):
        offset, metadata = self.committed
        assert len(metadata) <= self.limit
        self.number += 1
        self.assignment = Assignment(
            self.number, self.order, offset, decode(offset, metadata), self.limit
        )
        self.coming = [record for record in self.log if record[0] >= offset]
        self.polled, self.out = [], set()  # out: handed out in this assignment
        self.ready, self.running = [], []  # lists of turns, a turn is a list of records
        self.done = set(self.recorded)
        assert self.recorded >= {each for each, _ in self.log if each < offset}

    def hand_out(self, records):
        for offset, key in records:
            assert offset not in self.out, "handed out twice in one assignment"
            assert offset not in self.recorded, "finished and committed, yet handed out again"
            self.out.add(offset)
            self.is_next(offset, key, self.done)
        self.ready += [[record] for record in records]

    def is_next(self, offset, key, done):
        for earlier, other in self.polled:
            if earlier < offset and self.same_shard(key, other):
                assert earlier in done, "out of order"

    def same_shard(self, key, other):
        return self.order == "partition" or (
            self.order == "key" and key == other and key is not None
        )

    # --- what a consumer does ---

    @rule(what=st.sampled_from(STEPS), seed=SEEDS, part=PARTS)
    def step(self, what, seed, part):
        getattr(self, what)(seed, part)
        if self.assignment.stopped and what in ("poll", "start"):
            self.revoke(seed, part)

    def poll(self, seed, part):
        count = math.ceil(part * 40)
        batch, self.coming = self.coming[:count], self.coming[count:]
        if not self.assignment.stopped:
            self.polled += batch
        ready = self.assignment.poll([o for o, _ in batch], [key for _, key in batch], batch)
        self.hand_out(ready)

    def start(self, seed, part):
        """Some of the ready ones that may start, some of them with more of their shard."""
        may_start = self.assignment.tracker.may_start
        chosen, self.ready = draw_lots(self.ready, seed, part)
        for turn in chosen:
            offset, key = turn[0]
            if may_start(offset):
                self.running.append(turn)
                self.take_more(turn, key, seed % 4)
            else:
                self.ready.append(turn)

    def take_more(self, turn, key, more):
        may_start = self.assignment.tracker.may_start
        for offset, other in self.assignment.shards.take(key, more, lambda r: may_start(r[0])):
            assert offset not in self.out | self.recorded
            assert self.same_shard(key, other)
            self.is_next(offset, other, self.done | {each for each, _ in turn})
            self.out.add(offset)
            turn.append((offset, other))

    def complete(self, seed, part):
        turns, self.running = draw_lots(self.running, seed, part)
        self.finish(turns)

    def finish(self, turns):
        offsets = [offset for turn in turns for offset, _ in turn]
        self.done.update(offsets)
        self.handled.update(offsets)
        self.hand_out(finish(self.assignment, offsets, [turn[0][1] for turn in turns]))

    def commit(self, seed, part):
        """A failed record is one that never completes: no commit passes it, or says it is done."""
        offset, metadata = self.committed = self.assignment.commit()
        finished = decode(offset, metadata)
        said = {o for o, _ in self.log if o < offset or any(o in run for run in finished)}
        assert said == self.done, "a commit names exactly what is finished"
        self.recorded = said

    # --- what happens to it ---

    def stop(self, seed, part):
        """A rebalance begins: nothing starts any more, what runs may finish and be committed."""
        self.assignment.stop()
        self.ready = []

    def revoke(self, seed, part):
        """It ends, and the partition comes back: what still runs has become late."""
        self.assignment.revoke()
        self.gone.append((self.assignment, self.running))
        self.assign()

    def crash(self, seed, part):
        """Everything is forgotten but the last commit."""
        self.assign()

    def late(self, seed, part):
        """Handlers of earlier assignments come to their end; nobody knows."""
        before = self.facts()
        for ended, running in self.gone:
            offsets = [offset for turn in running for offset, _ in turn]
            unfinished = ended.tracker.unfinished
            assert not finish(ended, offsets, [turn[0][1] for turn in running])
            assert ended.tracker.unfinished == unfinished >= len(offsets)
        self.gone = []
        assert self.facts() == before

    def facts(self):
        tracker, shards = self.assignment.tracker, self.assignment.shards
        return tracker.committable(), tracker.unfinished, shards.queued, shards.running

    # --- what holds all the time ---

    @invariant()
    def numbers_agree(self):
        tracker, shards = self.assignment.tracker, self.assignment.shards
        unfinished = [offset for offset, _ in self.polled if offset not in self.done]
        assert tracker.unfinished == len(unfinished)
        assert tracker.oldest == (unfinished[0] if unfinished else None)
        if not self.assignment.stopped:
            assert shards.running == len(self.ready) + len(self.running)
            assert shards.queued == len(set(unfinished) - self.out)

    @invariant()
    def the_lowest_unfinished_may_always_start(self):
        oldest = self.assignment.tracker.oldest
        assert oldest is None or self.assignment.tracker.may_start(oldest)

    def teardown(self):
        """Left alone, a consumer comes to the end: all handled, and committed without a map."""
        if not hasattr(self, "log"):
            return
        if self.assignment.stopped:
            self.assign()
        while self.coming or self.ready or self.running:
            self.poll(0, 0.2)
            may_start = self.assignment.tracker.may_start
            starting = [turn for turn in self.ready if may_start(turn[0][0])]
            self.ready = [turn for turn in self.ready if turn not in starting]
            turns, self.running = self.running + starting, []
            assert turns or not self.ready
            self.finish(turns)
        self.commit(0, 1)
        assert self.handled == {offset for offset, _ in self.log}
        assert self.committed == (self.log[-1][0] + 1, "")


World.TestCase.settings = examples(200, stateful_step_count=50)
TestAnySchedule = World.TestCase


# --- one by one ---


def test_records_that_were_finished_before_are_left_out():
    assignment = Assignment(1, "key", 10, (range(11, 13),))
    assert assignment.poll([10, 11, 12, 13], "abcd", "wxyz") == ["w", "z"]


def test_after_stop_what_runs_still_counts_and_nothing_starts():
    assignment = Assignment(1, "key", 0)
    assert assignment.poll([0, 1, 2], "aab", "xyz") == ["x", "z"]
    assignment.stop()
    assert not finish(assignment, [0], "a")
    assert not assignment.poll([3], "c", "w")
    assert assignment.commit() == (1, "")
    assert assignment.shards.queued == 0


def test_after_revoke_completions_change_nothing_and_there_is_nothing_to_commit():
    assignment = Assignment(7, "none", 0)
    assignment.poll([0, 1], "ab", "xy")
    assignment.revoke()
    assert not finish(assignment, [0, 1], "ab")
    assert (assignment.tracker.unfinished, assignment.tracker.finished) == (2, 0)
    with pytest.raises(ValueError, match="assignment 7 is revoked"):
        assignment.commit()


def test_metadata_beyond_the_limit_of_this_assignment_raise():
    assignment = Assignment(1, "none", 0, limit=24)
    offsets = range(0, 1 << 40, 1 << 35)
    assignment.poll(offsets, offsets, offsets)
    assignment.mark(offsets[1::2])
    with pytest.raises(OverflowError, match="24 bytes"):
        assignment.commit()
