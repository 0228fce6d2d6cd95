"""Faults of a consumer and its cluster, each a real one, judged by the ledger of what was handled.

The numbers are those of the promises: nothing lost, repeats within bounds, order within each key.
Each fault ends with brokers that serve and replicas that are in sync (`LocalCluster.start`): the
next test starts with a healthy cluster.
"""

import signal
import threading
import time

import psutil
import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.observe.events import Revoked
from support.churn import churn
from support.handled import interrupt, judge_handled, send_numbers
from support.waiting import eventually


def stable_with(admin, group, count):
    try:
        found = admin.group(group)
    except HeadraceError:  # its coordinator is another one now, or not yet
        return False
    return found.state == "stable" and len(found.members) == count


def test_a_member_killed_in_mid_batch_loses_nothing_and_repeats_little(kafka_cluster, members):
    """SIGKILL with fifty handlers at work, by key: what had finished since the last commit is
    repeated, nothing else; a key goes on where it was."""
    count, workers, moment = 8000, 50, 2
    send_numbers(kafka_cluster.bootstrap, members.topic, count, keys=200)
    options = {"concurrency": workers, "work_ms": 50, "settings": {"session.timeout.ms": 6000}}
    first = members.start(member="first", **options)
    eventually(lambda: len(members.finished()) > count / 2, "half is handled")
    first.kill()
    before = members.lines()
    members.start(member="second", **options)
    eventually(members.have_finished(count), "all is handled", 90)
    result = judge_handled(members.lines(), set(range(count)))
    assert result.lost == set()
    assert result.swapped == []
    assert result.overlapping == []
    # Commits come every second, and are on their way for a moment.
    ended = [line for line in before if line.kind == "e"]
    last = max(line.at for line in ended)
    recent = sum(line.at > last - (1 + moment) * 1e9 for line in ended)
    assert result.repeated <= recent


def test_an_orderly_restart_repeats_nothing(kafka_cluster, members):
    count = 6000
    send_numbers(kafka_cluster.bootstrap, members.topic, count, keys=100)
    for _ in range(3):
        before = len(members.finished())
        process = members.start(concurrency=20, work_ms=100)
        eventually(lambda b=before: len(members.finished()) > b + 300, "it is at work")
        assert interrupt(process) == 0, members.logs()
    members.start(concurrency=20)
    eventually(members.have_finished(count), "all is handled")
    result = judge_handled(members.lines(), set(range(count)))
    assert (result.lost, result.repeated, result.swapped, result.overlapping) == (set(), 0, [], [])


@pytest.mark.long(40)
def test_members_that_come_and_go_never_share_a_key(kafka_cluster, members, dice):
    """Orderly leaves and SIGKILLs at random; a short version of the chaos test."""
    result = churn(kafka_cluster, members, dice, seconds=25)
    assert result.lost == set()
    assert result.swapped == []
    assert result.overlapping == []


@pytest.mark.parametrize("executor", ["thread", pytest.param("async", marks=pytest.mark.long(15))])
def test_a_handler_slower_than_the_poll_interval_is_not_thrown_out(
    kafka_cluster, kafka_topic, make_group, executor
):
    send_numbers(kafka_cluster.bootstrap, kafka_topic, 3, keys=1)
    events, handled = [], []
    app = hr.App(kafka_cluster.bootstrap, on_event=events.append)
    options = {
        "group": make_group(),
        "settings": {"max.poll.interval.ms": 6000, "session.timeout.ms": 6000},
    }
    if executor == "async":
        import asyncio

        @app.consumer(kafka_topic, **options)
        async def handle(value: bytes) -> None:
            await asyncio.sleep(8 if value == b"0" else 0)
            handled.append(int(value))
    else:

        @app.consumer(kafka_topic, **options)
        def handle(value: bytes) -> None:
            time.sleep(8 if value == b"0" else 0)
            handled.append(int(value))

    with app.running():
        eventually(lambda: len(handled) == 3, "all is handled", 40)
        assert not [event for event in events if isinstance(event, Revoked)]
    assert handled == [0, 1, 2]


@pytest.mark.long(40)
def test_a_broker_that_stands_still_costs_nothing_but_time(kafka_cluster, members, kafka_faults):
    """SIGSTOP for longer than its session, then SIGCONT."""
    count = 3000
    send_numbers(kafka_cluster.bootstrap, members.topic, count, keys=100)
    members.start(concurrency=10, work_ms=10)
    eventually(lambda: len(members.finished()) > 200, "it is at work")
    kafka_faults.pause(2)
    time.sleep(12)  # the fault itself: longer than the session of a broker
    kafka_faults.start(2)
    eventually(members.have_finished(count), "all is handled", 90)
    result = judge_handled(members.lines(), set(range(count)))
    assert (result.lost, result.swapped, result.overlapping) == (set(), [], [])


@pytest.mark.long(40)
def test_the_group_lives_through_a_rolling_restart(kafka_cluster, members, kafka_faults, admin):
    count = 6000
    send_numbers(kafka_cluster.bootstrap, members.topic, count, keys=100)
    processes = [members.start(concurrency=10, work_ms=10) for _ in range(2)]
    eventually(lambda: len(members.finished()) > 200, "they are at work")
    for broker in (1, 2, 3):
        kafka_faults.stop(broker)
        kafka_faults.start(broker)
    eventually(
        lambda: stable_with(admin, members.group, 2),
        "the group is stable",
    )
    eventually(members.have_finished(count), "all is handled", 90)
    assert all(process.poll() is None for process in processes), members.logs()
    result = judge_handled(members.lines(), set(range(count)))
    assert (result.lost, result.swapped, result.overlapping) == (set(), [], [])


@pytest.mark.long(40)
def test_a_backlog_of_slow_work_takes_bounded_memory(kafka_cluster, make_topic, make_group):
    """A backlog far larger than the buffer: what is held at hand stays within it."""
    topic = make_topic(5)
    value = b"x" * 200
    with hr.Producer(kafka_cluster.bootstrap, profile="throughput") as producer:
        pairs = [(f"k{n % 1000}".encode(), value) for n in range(200_000)]
        producer.send_many(topic, pairs).result(60)
    del pairs
    app = hr.App(kafka_cluster.bootstrap)
    gate = threading.Semaphore(0)

    @app.consumer(topic, group=make_group(), concurrency=100, buffer_records=10_000, drain=5)
    def handle(_value: bytes) -> None:
        gate.acquire(timeout=0.005)

    process = psutil.Process()
    with app.running() as running:
        eventually(lambda: running.status()[0].handled > 2_000, "it is at work", 60)
        eventually(lambda: running.status()[0].paused, "partitions are paused")
        start, most = process.memory_info().rss, 0
        handled = running.status()[0].handled

        def watch() -> bool:
            nonlocal most
            status = running.status()[0]
            most = max(most, status.waiting + status.in_flight)
            return status.handled > handled + 40_000

        eventually(watch, "a good part is handled", 60)
        grown = process.memory_info().rss - start
        app.stop()
    assert most <= 12_500 + 1_000  # a quarter for those that have hardly anything, and a poll
    assert grown < 50e6, f"grew by {grown / 1e6:.0f} MB"


def test_a_second_signal_ends_a_member_at_once_and_nothing_is_lost(kafka_cluster, members):
    send_numbers(kafka_cluster.bootstrap, members.topic, 20, keys=20)
    process = members.start(concurrency=20, work_ms=60_000, drain=60)
    eventually(lambda: len(members.lines()) == 20, "all handlers run")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    assert process.wait(timeout=30) == 0, members.logs()
    assert time.monotonic() - started < 20
    members.start(concurrency=20)
    eventually(members.have_finished(20), "the next one handles them")


def test_heal_brings_back_whatever_was_hurt(kafka_cluster, kafka_faults):
    """One broker paused, one stopped: after `heal` all three serve."""
    kafka_faults.pause(1)
    kafka_faults.stop(2)
    states = {b.id: b.state.value for b in kafka_cluster.status().brokers}
    assert states == {1: "paused", 2: "stopped", 3: "running"}
    kafka_faults.heal()
    assert kafka_cluster.status().healthy
