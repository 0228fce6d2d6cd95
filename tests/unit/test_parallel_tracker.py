"""What a tracker commits is finished, all that is finished is in the commit, and it always fits."""

import random
import tracemalloc
from bisect import bisect_left
from itertools import compress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.parallel.state import LIMIT, Commit, Tracker, decode, encode
from headrace.parallel.state.codec import room
from support.examples import examples

SPAN = room() * 8
GAPS = st.integers(1, 3) | st.integers(1, 2000)


def said_to_be_finished(commit, offset):
    return offset < commit.offset or any(offset in run for run in commit.finished)


def spread(first, gaps):
    offsets = []
    for gap in gaps:
        first += gap
        offsets.append(first)
    return offsets


def to_handle(tracker, offsets):
    wanted = tracker.new(offsets)
    return list(offsets) if wanted is None else list(compress(offsets, wanted))


def startable(tracker, offsets):
    """How many of these ascending offsets may start, from the first on."""
    if not offsets or tracker.may_start(offsets[-1]):
        return len(offsets)
    return bisect_left(offsets, True, key=lambda offset: not tracker.may_start(offset))


# --- what is committed ---


@given(st.lists(GAPS, max_size=20), st.integers(0, 60), st.data())
def test_the_end_of_a_partition_passes_gaps_and_nothing_else(gaps, beyond, data):
    """Markers of transactions behind the last record: the commit is there when all is finished."""
    tracker = Tracker(0)
    offsets = spread(-1, gaps)
    tracker.new(offsets)
    finished = data.draw(st.sets(st.sampled_from(offsets))) if offsets else set()
    tracker.finish(finished)
    before = tracker.committable()
    end = tracker.end + beyond
    tracker.pass_over(end)
    tracker.pass_over(end // 2)  # of an earlier fetch
    left = [offset for offset in offsets if offset not in finished]
    assert tracker.committable() == (before if left else Commit(end, ()))
    tracker.new([end])
    tracker.finish(left)
    assert tracker.committable() == Commit(end, ())


def test_the_end_of_a_partition_may_be_within_or_behind_what_was_finished_before():
    for end, offset in ((102, 102), (104, 110), (112, 112)):
        tracker = Tracker(100, (range(103, 110),))
        tracker.pass_over(end)
        assert tracker.committable().offset == offset


def test_nothing_polled_commits_the_position():
    assert Tracker(42).committable() == Commit(42, ())


def test_all_finished_commits_one_past_the_last():
    tracker = Tracker(0)
    tracker.new([3, 4, 9])
    tracker.finish([9, 3, 4])
    assert tracker.committable() == Commit(10, ())


def test_the_commit_stops_at_the_lowest_unfinished_and_names_what_is_beyond():
    tracker = Tracker(0)
    tracker.new(range(10))
    tracker.finish([0, 1, 3, 4, 7])
    assert tracker.committable() == Commit(2, (range(3, 5), range(7, 8)))


def test_a_gap_is_no_reason_to_part_a_run_and_none_to_begin_one():
    tracker = Tracker(0)
    tracker.new([10, 20, 30, 40, 50])
    assert tracker.committable() == Commit(10, ())
    tracker.finish([20, 30])
    assert tracker.committable() == Commit(10, (range(11, 31),))


POLLS = st.lists(st.lists(GAPS, min_size=1, max_size=12), min_size=1, max_size=6)


@given(POLLS, st.data())
@examples(200)
def test_a_commit_names_exactly_what_is_finished(polls, data):
    tracker, polled, done = Tracker(100), [], set()
    for gaps in polls:
        offsets = spread(polled[-1] if polled else 99, gaps)
        assert tracker.new(offsets) is None
        polled += offsets
        left = sorted(set(polled) - done)
        now = data.draw(st.lists(st.sampled_from(left), unique=True)) if left else []
        tracker.finish(now)
        done.update(now)
        commit = tracker.committable()
        assert {each for each in polled if said_to_be_finished(commit, each)} == done
        assert not said_to_be_finished(commit, polled[-1] + 1)
        left = sorted(set(polled) - done)
        assert commit.offset == (left[0] if left else polled[-1] + 1)
        assert tracker.oldest == (left[0] if left else None)
        assert (tracker.registered, tracker.finished) == (len(polled), len(done))
        assert tracker.unfinished == len(left)


# --- what was finished before ---


@given(POLLS, POLLS, st.data())
@examples(200)
def test_what_was_finished_before_is_neither_handed_out_nor_forgotten(polls, again, data):
    """Restart in mid-way, poll the same offsets in other batches, commit after each batch."""
    offsets = spread(0, [gap for gaps in polls for gap in gaps])
    done = data.draw(st.sets(st.sampled_from(offsets)))
    first = Tracker(0)
    first.new(offsets)
    first.finish(done)
    commit = first.committable()
    tracker = Tracker(*commit)
    done = set(done)
    left = [each for each in offsets if each >= commit.offset]
    while left:
        size = len(again.pop()) if again else len(left)
        batch, left = left[:size], left[size:]
        todo = to_handle(tracker, batch)
        assert todo == [each for each in batch if each not in done]
        assert all(tracker.may_start(each) for each in todo)
        now = data.draw(st.sets(st.sampled_from(todo))) if todo else set()
        tracker.finish(now)
        done |= now
        between = tracker.committable()
        assert {each for each in offsets if said_to_be_finished(between, each)} == done
        assert decode(between.offset, encode(*between)) == between.finished


def test_records_that_vanished_meanwhile_leave_nothing_behind():
    tracker = Tracker(0, (range(5, 10), range(20, 30), range(40, 41)))
    assert to_handle(tracker, [0, 7, 35, 50]) == [0, 35, 50]
    tracker.finish([0])
    assert tracker.committable() == Commit(35, ())
    tracker.finish([50, 35])
    assert tracker.committable() == Commit(51, ())


def test_the_commit_passes_what_was_finished_before_as_soon_as_nothing_is_left_before_it():
    tracker = Tracker(0, (range(1, 10), range(20, 30)))
    tracker.new([0])
    tracker.finish([0])
    assert tracker.committable() == Commit(10, (range(20, 30),))
    tracker.new([1, 2])
    assert tracker.committable() == Commit(10, (range(20, 30),))


# --- bugs of the caller ---


@pytest.mark.parametrize("wrong", [[5], [0, 0], [1], [2, 99], [-1]])
def test_an_offset_that_is_unknown_or_finished_twice_raises(wrong):
    tracker = Tracker(0)
    tracker.new([0, 1, 2])
    tracker.finish([1])
    with pytest.raises(ValueError, match="not registered, or finished before"):
        tracker.finish(wrong)
    assert tracker.registered == tracker.finished + tracker.unfinished
    assert not said_to_be_finished(tracker.committable(), 5)
    assert not said_to_be_finished(tracker.committable(), 99)


@pytest.mark.parametrize("wrong", [[2, 3], [0], [7, 7, 8]])
@pytest.mark.parametrize("finished", [[], [0, 1, 2]])
def test_an_offset_that_is_polled_twice_raises(wrong, finished):
    tracker = Tracker(0)
    tracker.new([0, 1, 2])
    tracker.finish(finished)
    with pytest.raises(ValueError, match=r"polled before|not ascending"):
        tracker.new(wrong)


def test_an_empty_batch_is_nothing():
    tracker = Tracker(5)
    assert tracker.new([]) is None
    tracker.finish([])
    assert startable(tracker, []) == 0
    assert tracker.committable() == Commit(5, ())


# --- room for the map ---


def test_a_stuck_record_does_not_stop_the_others():
    """One in a hundred is stuck, a hundred are at work: ninety thousand records flow."""
    tracker = Tracker(0)
    for start in range(0, 90_000, 100):
        batch = range(start, start + 100)
        tracker.new(batch)
        assert startable(tracker, batch) == 100
        tracker.finish(batch[1:])
    assert len(encode(*tracker.committable())) <= LIMIT


def test_the_map_takes_no_memory_for_what_is_finished():
    tracker = Tracker(0)
    tracker.new([0])
    tracemalloc.start()
    for start in range(1, 1_000_000, 1000):
        tracker.new(range(start, start + 1000))
        assert tracker.may_start(start + 999)
        tracker.finish(range(start, start + 1000))
    for start in range(2_000_000, 2_020_000, 2):  # with gaps, one by one
        tracker.new([start])
        assert tracker.may_start(start)
        tracker.finish([start])
    assert tracemalloc.get_traced_memory()[0] < 200_000
    tracemalloc.stop()
    assert tracker.committable() == Commit(0, (range(1, 2_019_999),))


def test_far_ahead_with_many_unfinished_has_to_wait():
    tracker = Tracker(0)
    tracker.new(range(40_000))
    assert startable(tracker, range(40_000)) == SPAN
    assert not tracker.may_start(SPAN)
    tracker.finish(range(1, 20_000))  # the lowest is still there
    assert not tracker.may_start(SPAN)
    tracker.finish([0])
    assert tracker.may_start(SPAN)
    assert startable(tracker, range(SPAN, 40_000)) == 40_000 - SPAN


PATTERNS = {
    "every second": lambda started, noise: started[1::2],
    "every third left": lambda started, noise: [e for i, e in enumerate(started) if i % 3],
    "random": lambda started, noise: noise.sample(started, len(started) // 2),
    "most": lambda started, noise: noise.sample(started, len(started) * 19 // 20),
    "few": lambda started, noise: noise.sample(started, len(started) // 20),
    "all but the first": lambda started, noise: started[1:],
    "the last": lambda started, noise: started[-1:],
}


@pytest.mark.parametrize("widest", [1, 3, 50, 1 << 20, 1 << 40])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_whatever_may_start_may_finish_in_any_pattern(pattern, widest):
    """The real limit: start all that may, finish some of it, again and again; it always fits."""
    noise = random.Random(f"{pattern} {widest}")
    tracker, waiting, started = Tracker(0), [], []
    polled = 0
    for _ in range(12):
        batch = spread(polled, [noise.randint(1, widest) for _ in range(4000)])
        polled = batch[-1]
        tracker.new(batch)
        waiting += batch
        count = startable(tracker, waiting)
        assert count or not waiting or started
        started += waiting[:count]
        del waiting[:count]
        now = [each for each in PATTERNS[pattern](started, noise) if each != started[0]]
        tracker.finish(now)
        started = sorted(set(started) - set(now))
        offset, finished = tracker.committable()
        assert decode(offset, encode(offset, finished)) == finished
    assert waiting or pattern in ("most", "all but the first")


@given(st.integers(24, 80), st.lists(GAPS, min_size=1, max_size=300), st.integers(0))
@example(24, [1] * 300, 1)
@examples(200)
def test_may_start_keeps_within_small_limits_too(limit, gaps, seed):
    tracker, started, waiting = Tracker(0, limit=limit), [], spread(0, gaps)
    noise = random.Random(seed)
    tracker.new(waiting)
    while waiting or started:
        noise.shuffle(waiting)  # by key, starts come in any order
        may = [each for each in waiting[: noise.randint(1, 50)] if tracker.may_start(each)]
        started += may
        waiting = [each for each in waiting if each not in may]
        lowest = min(started + waiting)
        assert lowest in started or tracker.may_start(lowest)
        noise.shuffle(started)
        count = noise.randint(0, len(started))
        tracker.finish(started[:count])
        del started[:count]
        encode(*tracker.committable(), limit)  # raises if it does not fit


@given(st.integers(24, 60), st.lists(GAPS, min_size=1, max_size=200))
def test_may_start_says_the_same_in_whatever_order_it_is_asked(limit, gaps):
    offsets = spread(0, gaps)
    one, other = Tracker(0, limit=limit), Tracker(0, limit=limit)
    one.new(offsets)
    other.new(offsets)
    count = startable(one, offsets)
    assert [other.may_start(each) for each in offsets] == [
        index < count for index in range(len(offsets))
    ]
