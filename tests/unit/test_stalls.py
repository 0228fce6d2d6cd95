"""A partition that stands still is reported with what it waits for; an idle one is not."""

from headrace.model import TopicPartition
from headrace.parallel.batching import Batch
from headrace.parallel.engine.bundles import BundleDesk
from headrace.parallel.engine.crew import Running
from headrace.parallel.engine.desk import Desk, Limits
from headrace.parallel.engine.stalls import find_stalls, offsets_of

A, B = (TopicPartition("clicks", number) for number in range(2))
PLENTY = Limits(1_000_000, 1 << 30)
NEAR = 24_512  # so many offsets a commit's map has surely room for


def make_desk(order="key", partitions=(A,)):
    desk = Desk(order, 4, PLENTY)
    for partition in partitions:
        desk.assign(partition, 0, (), now=100.0)
    return desk


def fill(desk, partition, count, keys=None):
    desk.add(partition, range(count), keys or [None] * count, [b"x"] * count)


def look(desk, *, now, running=(), after=60):
    return find_stalls(desk, running, after, now, "score")


def test_a_running_handler_is_named_with_its_record_and_how_long_it_has_run():
    desk = make_desk()
    fill(desk, A, 3)
    running = [Running(unit, 105.0) for unit in desk.take(9)]
    (stall,) = look(desk, running=running, now=170.0)
    assert stall == (A, 0, 70.0, "score has been running on clicks[0]@0 for 65 s")


def test_the_lowest_unfinished_record_is_the_one_that_is_looked_at():
    desk = make_desk()
    fill(desk, A, 3)
    units = desk.take(9)
    desk.done(units[:1], 110.0)
    (stall,) = look(desk, running=[Running(units[1], 120.0)], now=180.0)
    assert (stall.offset, stall.seconds) == (1, 70.0)
    assert "running on clicks[0]@1 for 60 s" in stall.waits_for


def test_a_record_that_no_worker_has_taken_waits_for_one():
    desk = make_desk()
    fill(desk, A, 3)
    (stall,) = look(desk, now=170.0)
    assert stall.offset == 0
    assert "clicks[0]@0 waits for a free worker" in stall.waits_for


def test_a_record_that_is_taken_and_not_started_waits_for_its_turn():
    desk = make_desk()
    fill(desk, A, 2)
    desk.take(9)
    (stall,) = look(desk, now=170.0)
    assert stall.waits_for == "clicks[0]@0 waits for its turn"


def test_a_record_that_is_held_back_waits_for_room_in_the_commits_map():
    desk = make_desk("none")
    fill(desk, A, NEAR + 1)
    with desk.lock:
        units = desk.take(NEAR + 1)
        desk.mark(units, 100.0)  # finished, and what they held up is not released yet
    (stall,) = look(desk, now=170.0)
    assert stall.waits_for == f"clicks[0]@{NEAR} waits for room in the commit's map"


def test_records_that_the_broker_has_and_does_not_send_are_a_stall():
    desk = make_desk()
    fill(desk, A, 2)
    desk.done(desk.take(9), 100.0)
    desk.works[A].end = 5
    (stall,) = look(desk, now=170.0)
    assert stall == (A, 2, 70.0, "the broker sends no records")


def test_nothing_to_do_is_no_stall_and_the_wait_begins_when_something_comes():
    desk = make_desk()
    assert look(desk, now=1000.0) == []
    desk.works[A].end = 0
    assert look(desk, now=2000.0) == []
    assert look(desk, now=2050.0) == []
    fill(desk, A, 1)
    assert look(desk, now=2109.0) == []
    (stall,) = look(desk, now=2110.0)
    assert stall.seconds == 60.0


def test_progress_is_no_stall():
    desk = make_desk()
    fill(desk, A, 2)
    desk.done(desk.take(1), 150.0)
    assert look(desk, now=209.0) == []
    assert len(look(desk, now=210.0)) == 1


def test_each_partition_is_looked_at_for_itself():
    desk = make_desk(partitions=(A, B))
    fill(desk, A, 1)
    fill(desk, B, 1)
    running = [Running(unit, 100.0) for unit in desk.take(9)]
    desk.done([running[1].unit], 165.0)
    assert [stall.partition for stall in look(desk, running=running, now=170.0)] == [A]


def test_a_handler_of_an_earlier_assignment_is_not_taken_for_one_of_this():
    desk = make_desk()
    fill(desk, A, 1)
    late = [Running(unit, 100.0) for unit in desk.take(1)]
    desk.revoke([A])
    desk.assign(A, 0, (), now=100.0)
    fill(desk, A, 1)
    (stall,) = look(desk, running=late, now=170.0)
    assert "waits for a free worker" in stall.waits_for


def test_a_bundle_that_runs_or_waits_is_known_by_any_of_its_records():
    desk = BundleDesk("none", 4, PLENTY, None, Batch(size=3, wait=0), lambda: 0.0)
    desk.assign(A, 0, (), now=100.0)
    fill(desk, A, 6)
    (bundle,) = desk.take(1)
    assert offsets_of(bundle) == [0, 1, 2]
    (stall,) = look(desk, running=[Running(bundle, 110.0)], now=170.0)
    assert "running on clicks[0]@0 for 60 s" in stall.waits_for
    desk.done([bundle], 170.0)
    (stall,) = look(desk, now=230.0)
    assert "clicks[0]@3 waits for a free worker" in stall.waits_for
