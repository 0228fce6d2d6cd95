"""The desk: who runs next, what is at hand, and what may be committed.

One by one here, in any schedule in `test_desk_schedules.py`.
"""

import threading
from collections import Counter

import pytest

from headrace.model import TopicPartition
from headrace.parallel.engine.rate import RateLimit
from headrace.parallel.state import decode
from support.desks import A, B, C, commit, fill, make_desk, offsets_of, places

# --- taking ---


def test_a_unit_carries_its_work_its_offset_its_key_and_its_message():
    desk = make_desk()
    desk.add(A, [7], [b"k"], [b"value"])
    assert desk.take(1) == [(desk.works[A], 7, b"k", b"value")]


def test_nothing_is_taken_from_an_empty_desk():
    assert make_desk().take(10) == []


def test_no_more_is_taken_than_asked_for():
    desk = make_desk()
    fill(desk, A, range(10))
    assert offsets_of(desk.take(3)) == [0, 1, 2]
    assert (desk.available, desk.taken, desk.unfinished) == (7, 3, 10)


def test_of_a_key_one_runs_and_the_next_follows_when_it_is_done():
    desk = make_desk("key")
    fill(desk, A, range(5), "aabab")
    first = desk.take(9)
    assert offsets_of(first) == [0, 2]
    assert desk.take(9) == []
    desk.done(first[:1], 1.0)
    assert offsets_of(desk.take(9)) == [1]


def test_by_partition_one_runs_at_a_time():
    desk = make_desk("partition")
    fill(desk, A, range(3), "abc")
    for offset in range(3):
        units = desk.take(9)
        assert offsets_of(units) == [offset]
        desk.done(units, 1.0)
    assert desk.take(9) == []


def test_partitions_are_taken_from_in_turn():
    desk = make_desk(concurrency=6, partitions=(A, B, C))
    for partition in (A, B, C):
        fill(desk, partition, range(100))
    assert Counter(partition for partition, _ in places(desk.take(6))) == {A: 2, B: 2, C: 2}


def test_a_partition_alone_may_have_all_the_workers():
    desk = make_desk(concurrency=4, partitions=(A, B))
    fill(desk, A, range(100))
    assert places(desk.take(4)) == [(A, 0), (A, 1), (A, 2), (A, 3)]


def test_a_slow_partition_does_not_starve_the_others():
    desk = make_desk(concurrency=4, partitions=(A, B))
    fill(desk, A, range(100))
    slow = desk.take(4)
    fill(desk, B, range(100))
    desk.done([slow.pop()], 1.0)
    for offset in range(20):  # the slow ones hold three workers, more than their half
        units = desk.take(1)
        assert places(units) == [(B, offset)]
        desk.done(units, 1.0)


def test_a_partition_with_its_share_goes_on_when_nobody_else_waits():
    desk = make_desk(concurrency=4, partitions=(A, B))
    fill(desk, A, range(100))
    fill(desk, B, range(1))
    assert Counter(partition for partition, _ in places(desk.take(10))) == {A: 9, B: 1}


def test_partitions_that_all_have_their_share_are_taken_from_all_the_same():
    desk = make_desk(concurrency=2, partitions=(A, B))
    fill(desk, A, range(10))
    fill(desk, B, range(10))
    taken = Counter(partition for partition, _ in places(desk.take(10)))
    assert taken.total() == 10
    assert min(taken[A], taken[B]) >= 3


def test_partitions_that_all_have_their_share_take_turns_from_one_take_to_the_next():
    desk = make_desk(concurrency=2, partitions=(A, B))
    fill(desk, A, range(10))
    fill(desk, B, range(10))
    desk.take(4)
    taken = Counter(partition for _ in range(6) for partition, _ in places(desk.take(1)))
    assert taken == {A: 3, B: 3}


def test_what_is_reserved_is_for_partitions_that_have_less_than_their_share():
    desk = make_desk(concurrency=8, partitions=(A, B))
    fill(desk, A, range(100))
    desk.take(7)
    assert desk.take(1, reserved=1) == []
    assert places(desk.take(3, reserved=1)) == [(A, 7), (A, 8)]
    fill(desk, B, range(1))
    assert places(desk.take(1, reserved=1)) == [(B, 0)]


def test_of_a_few_workers_none_is_reserved():
    desk = make_desk(concurrency=7, partitions=(A, B))
    fill(desk, A, range(100))
    desk.take(6)
    assert places(desk.take(1, reserved=1)) == [(A, 6)]


def test_nothing_is_reserved_if_there_is_nobody_else():
    desk = make_desk(concurrency=4)
    fill(desk, A, range(100))
    assert len(desk.take(4)) == 4
    assert places(desk.take(1, reserved=1)) == [(A, 4)]
    desk.revoke([A])
    assert desk.take(1, reserved=1) == []


def test_the_rate_limits_what_is_taken_and_says_when_to_look_again():
    desk = make_desk(rate=RateLimit(100, now=0.0))
    assert desk.ripen(0.0) is None
    fill(desk, A, range(100))
    assert len(desk.take(50, now=0.0)) == 10
    assert desk.take(50, now=0.0) == []
    assert desk.ripen(0.0) == pytest.approx(0.01)
    assert len(desk.take(50, now=0.0501)) == 5


# --- giving back, failing ---


def test_what_is_given_back_runs_first_and_in_its_order():
    desk = make_desk()
    fill(desk, A, range(6))
    units = desk.take(3)
    desk.give_back(reversed(units))
    assert desk.taken == 0
    assert offsets_of(desk.take(9)) == [0, 1, 2, 3, 4, 5]


def test_what_is_given_back_of_a_stopped_partition_is_forgotten():
    desk = make_desk()
    fill(desk, A, range(3))
    units = desk.take(2)
    desk.stop([A])
    desk.give_back(units)
    assert (desk.taken, desk.available, desk.take(9)) == (0, 0, [])
    assert commit(desk, A) == (0, "")


def test_a_record_that_is_abandoned_stays_unfinished_and_holds_its_key_back():
    desk = make_desk("key")
    fill(desk, A, range(4), "aaba")
    failed, good = desk.take(9)
    desk.abandon([failed])
    desk.done([good], 1.0)
    assert desk.take(9) == []
    assert (desk.taken, desk.unfinished) == (0, 3)
    offset, metadata = commit(desk, A)
    assert (offset, decode(offset, metadata)) == (0, (range(2, 3),))


# --- done, in two halves ---


def test_what_is_done_counts_and_frees_its_bytes():
    desk = make_desk()
    fill(desk, A, range(3), size=10)
    work = desk.works[A]
    assert work.bytes == 30
    desk.done(desk.take(2), now=5.0)
    assert (work.bytes, work.taken, work.progress_at, desk.finished) == (10, 0, 5.0, 2)


def test_what_is_marked_may_be_committed_and_its_successor_waits_for_the_release():
    desk = make_desk("key")
    fill(desk, A, range(2), "aa")
    units = desk.take(1)
    desk.mark(units, 1.0)
    assert commit(desk, A) == (1, "")
    assert desk.take(1) == []
    desk.release(units)
    assert offsets_of(desk.take(1)) == [1]


def test_with_unreleased_ones_kept_done_releases_nothing():
    desk = make_desk("key")
    desk.unreleased = []
    fill(desk, A, range(2), "aa")
    units = desk.take(1)
    desk.done(units, 1.0)
    assert desk.unreleased == units
    assert desk.take(1) == []
    assert commit(desk, A) == (1, "")


def test_units_of_several_partitions_are_done_together():
    desk = make_desk("key", partitions=(A, B))
    fill(desk, A, range(4), "aabb")
    fill(desk, B, range(2), "aa")
    by_offset = sorted(desk.take(9), key=lambda unit: unit[1])
    desk.done(by_offset, 1.0)  # of A, of B, of A again
    assert sorted(places(desk.take(9))) == [(A, 1), (A, 3), (B, 1)]


# --- partitions come and go ---


def test_records_for_no_assignment_are_dropped():
    desk = make_desk()
    fill(desk, B, range(3))
    desk.stop([A])
    fill(desk, A, range(2))
    assert (desk.unfinished, desk.available, desk.works[A].position) == (0, 0, 0)


def test_records_of_an_earlier_fetch_are_dropped_and_the_new_ones_among_them_are_not():
    desk = make_desk()
    fill(desk, A, range(5))
    fill(desk, A, range(3, 8), size=100)
    fill(desk, A, range(2))
    assert desk.unfinished == 8
    assert offsets_of(desk.take(99)) == list(range(8))
    assert desk.works[A].bytes == 5 + 300


def test_records_before_the_position_of_the_assignment_are_dropped():
    desk = make_desk(partitions=())
    desk.assign(A, 10, (), now=0.0)
    fill(desk, A, [8, 9, 10, 11])
    assert offsets_of(desk.take(9)) == [10, 11]
    assert desk.unfinished == 2


def test_records_that_the_commit_remembered_are_left_out_and_weigh_nothing():
    desk = make_desk(partitions=())
    desk.assign(A, 10, (range(11, 13),), now=0.0)
    fill(desk, A, range(10, 15), size=7)
    assert desk.works[A].bytes == 21
    units = desk.take(9)
    assert offsets_of(units) == [10, 13, 14]
    desk.done(units, 1.0)
    assert desk.works[A].bytes == 0


def test_of_a_stopped_partition_nothing_starts_and_what_runs_still_counts():
    desk = make_desk("key", partitions=(A, B))
    fill(desk, A, range(4), "aabc")
    fill(desk, B, range(1))
    running = [unit for unit in desk.take(1) if unit[0] is desk.works[A]]
    assert offsets_of(running) == [0]
    desk.stop([A, TopicPartition("unknown", 0)])
    assert places(desk.take(9)) == [(B, 0)]
    desk.done(running, 1.0)
    assert commit(desk, A) == (1, "")
    assert desk.works[A].taken == 0
    assert desk.take(9) == []


def test_a_completion_after_the_end_is_counted_and_changes_nothing():
    desk = make_desk("key")
    fill(desk, A, range(3), "aab")
    late = desk.take(9)
    (gone,) = desk.revoke([A])
    work = desk.assign(A, 0, (), now=0.0)
    fill(desk, A, range(3), "aab")
    before = (commit(desk, A), work.bytes, work.taken, desk.available, desk.finished)
    desk.done(late, 9.0)
    assert (commit(desk, A), work.bytes, work.taken, desk.available, desk.finished) == before
    assert (desk.late, gone.taken, work.progress_at) == (2, 0, 0.0)
    assert places(desk.take(9)) == [(A, 0), (A, 2)]


def test_what_comes_back_of_a_revoked_partition_goes_nowhere():
    desk = make_desk()
    fill(desk, A, range(3))
    units = desk.take(2)
    desk.revoke([A])
    desk.give_back(units[:1])
    desk.abandon(units[1:])
    assert (desk.take(9), desk.works, units[0][0].taken) == ([], {}, 0)


def test_revoking_what_is_not_ours_is_no_matter():
    desk = make_desk()
    assert [work.partition for work in desk.revoke([A, B])] == [A]
    assert desk.revoke([A]) == []


# --- what may be committed ---


def test_a_commit_is_due_when_it_differs_from_the_last_one_sent_or_confirmed():
    desk = make_desk(partitions=())
    work = desk.assign(A, 0, (), now=0.0, committed=(0, ""))
    assert desk.committable([work], confirmed=False) == []
    fill(desk, A, range(3))
    desk.done(desk.take(1), 1.0)
    assert desk.committable([work], confirmed=False) == [(work, 1, "")]
    work.sent = (1, "")
    assert desk.committable([work], confirmed=False) == []
    assert desk.committable([work], confirmed=True) == [(work, 1, "")]
    work.confirmed = (1, "")
    assert desk.committable([work], confirmed=True) == []


def test_a_partition_without_a_committed_offset_is_committed_where_it_begins():
    desk = make_desk(partitions=())
    work = desk.assign(A, 42, (), now=0.0)
    assert desk.committable([work], confirmed=False) == [(work, 42, "")]


def test_a_revoked_partition_has_nothing_to_commit():
    desk = make_desk()
    works = desk.revoke([A])
    assert desk.committable(works, confirmed=True) == []


def test_a_map_that_cannot_be_written_again_is_left_out_of_the_commit():
    desk = make_desk(partitions=())
    forged = tuple(range(start, start + 1) for start in range(1 << 20, 1 << 40, 1 << 26))
    work = desk.assign(A, 7, forged, now=0.0)
    fill(desk, A, [7, 8])
    assert desk.committable([work], confirmed=False) == [(work, 7, "")]


def test_what_was_handed_out_is_the_position_finished_or_not():
    desk = make_desk()
    fill(desk, A, range(5))
    work = desk.works[A]
    assert desk.handed_out() == [(work, 5, "")]
    work.sent = (5, "")
    assert desk.handed_out() == []


# --- waiting for news ---


def test_who_waits_for_a_condition_hears_of_it_when_it_holds():
    desk = make_desk()
    fill(desk, A, range(2))
    units = desk.take(2)

    def finish():
        for unit in units:
            with desk.lock:
                desk.done([unit], 1.0)

    helper = threading.Thread(target=finish)
    helper.start()
    assert desk.wait_for(lambda: not desk.unfinished, 10)
    desk.lock.release()
    helper.join()


def test_who_waits_is_woken_when_the_condition_holds_and_not_before(monkeypatch):
    desk = make_desk()
    fill(desk, A, range(2))
    first, second = desk.take(2)
    woken = []
    monkeypatch.setattr(desk.news, "notify_all", lambda: woken.append(desk.unfinished))

    def wait(condition, seconds):
        desk.done([first], 1.0)
        desk.done([second], 1.0)
        return condition()

    monkeypatch.setattr(desk.news, "wait_for", wait)
    assert desk.wait_for(lambda: not desk.unfinished, 10)
    assert woken == [0]


def test_who_waits_in_vain_is_told_so():
    desk = make_desk()
    fill(desk, A, range(1))
    assert not desk.wait_for(lambda: not desk.unfinished, 0.01)


# --- one for one ---


def test_a_swap_finishes_a_task_and_starts_the_one_behind_it():
    desk = make_desk(order="key", partitions=(A, B))
    fill(desk, A, range(3), keys=["k", "k", "k"])
    (first,) = desk.take(10)
    (second,) = desk.swap(first, 1.0)
    assert second[1] == 1
    assert (desk.finished, desk.taken, desk.works[A].bytes) == (1, 1, 2)
    (third,) = desk.swap(second, 2.0)
    assert list(desk.swap(third, 3.0)) == []
    assert (desk.finished, desk.taken, desk.works[A].bytes, desk.unfinished) == (3, 0, 0, 0)


def test_a_swap_takes_another_if_some_wait():
    desk = make_desk(order="key", partitions=(A, B))
    fill(desk, A, range(2), keys=["k", "k"])
    (first,) = desk.take(1)
    fill(desk, B, range(1), keys=["l"])
    assert desk.crowded
    assert places(desk.swap(first, 1.0)) == [(B, 0)]
    assert places(desk.take(1)) == [(A, 1)]


def test_a_swap_of_a_stopped_partition_counts_and_starts_nothing():
    desk = make_desk(order="key")
    fill(desk, A, range(2), keys=["k", "k"])
    (first,) = desk.take(1)
    desk.stop([A])
    assert list(desk.swap(first, 1.0)) == []
    assert (desk.finished, desk.taken) == (1, 0)
