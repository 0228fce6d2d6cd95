"""The desk's bounds: back-pressure by partition, and the commit's map."""

import random

from headrace.parallel.engine.desk import Limits
from support.desks import A, B, C, commit, fill, make_desk, offsets_of, places

# --- back-pressure ---


def test_a_partition_is_overfull_at_its_share_of_the_records_and_relieved_at_half():
    desk = make_desk(limits=Limits(20, 1 << 30), partitions=(A, B))
    work = desk.works[A]
    fill(desk, A, range(9))
    assert desk.overfull() == []
    fill(desk, A, [9])
    assert desk.overfull() == [work]
    work.paused = True
    assert (desk.overfull(), desk.relieved()) == ([], [])
    desk.done(desk.take(4), 1.0)
    assert desk.relieved() == []
    desk.done(desk.take(1), 1.0)
    assert desk.relieved() == [work]


def test_a_partition_is_overfull_at_its_share_of_the_bytes_and_relieved_at_half():
    desk = make_desk(limits=Limits(1000, 200), partitions=(A, B))
    work = desk.works[A]
    fill(desk, A, [0], size=99)
    assert desk.overfull() == []
    fill(desk, A, [1], size=1)
    assert desk.overfull() == [work]
    work.paused = True
    fill(desk, A, [2], size=50)
    assert desk.relieved() == []
    desk.done(desk.take(1), 1.0)
    assert desk.relieved() == []
    desk.done(desk.take(1), 1.0)
    assert desk.relieved() == [work]


def test_while_half_of_the_room_is_free_a_partition_may_have_more_than_its_share():
    desk = make_desk(limits=Limits(40, 1 << 30), partitions=(A, B, C))
    fill(desk, A, range(19))
    assert desk.overfull() == []
    fill(desk, A, [19])
    assert desk.overfull() == [desk.works[A]]


def test_with_no_room_left_only_those_with_hardly_anything_go_on():
    desk = make_desk(limits=Limits(30, 1 << 30), partitions=(A, B, C))
    fill(desk, A, range(25))
    desk.works[A].paused = True
    fill(desk, B, range(3))
    fill(desk, C, range(2))
    assert desk.overfull() == [desk.works[B]]
    desk.works[B].paused = True
    assert desk.relieved() == []
    desk.done([unit for unit in desk.take(30) if unit[0].partition == B], 1.0)
    assert desk.relieved() == [desk.works[B]]


def test_a_share_is_never_nothing():
    desk = make_desk(limits=Limits(1, 1), partitions=(A, B, C))
    assert desk.overfull() == []
    fill(desk, A, [0])
    assert desk.overfull() == [desk.works[A]]


# --- the commit's map has no room ---

NEAR = 24_512  # so many offsets a commit's map has surely room for


def test_what_the_commits_map_has_no_room_for_is_held_until_earlier_ones_finish():
    desk = make_desk()
    fill(desk, A, range(NEAR + 100))
    units = desk.take(NEAR + 100)
    assert offsets_of(units) == list(range(NEAR))
    assert (len(desk.works[A].held), desk.available) == (100, 0)
    desk.done(units[1:], 1.0)  # all but the lowest: few are unfinished, so all may start
    assert offsets_of(desk.take(NEAR)) == list(range(NEAR, NEAR + 100))


def test_the_lowest_unfinished_record_always_gets_to_run():
    desk = make_desk()
    fill(desk, A, range(0, 4_000_000, 1_000))
    handled = []
    while units := desk.take(50):
        handled += offsets_of(units)
        desk.done(random.Random(len(handled)).sample(units, len(units)), 1.0)
    assert sorted(handled) == list(range(0, 4_000_000, 1_000))
    assert commit(desk, A) == (3_999_001, "")


def test_held_records_hold_no_other_partition():
    desk = make_desk(partitions=(A, B))
    fill(desk, A, range(NEAR + 10))
    desk.take(NEAR + 10)
    fill(desk, B, range(3))
    assert places(desk.take(9)) == [(B, 0), (B, 1), (B, 2)]


def test_held_records_are_forgotten_when_their_partition_is_stopped():
    desk = make_desk()
    fill(desk, A, range(NEAR + 10))
    units = desk.take(NEAR + 10)
    desk.stop([A])
    desk.done(units, 1.0)
    assert desk.take(9) == []
    assert commit(desk, A) == (NEAR, "")
