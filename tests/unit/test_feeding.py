"""What comes from the client reaches the desk in order, and never for an earlier assignment."""

import pytest

from headrace.model import TopicPartition
from headrace.parallel.commit import GapSafe, PerBatch, PerRecord
from headrace.parallel.engine.desk import Desk, Limits
from headrace.parallel.engine.feeding import make_feeder

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Message:
    def __init__(self, partition, offset, size=1, *, is_end=False):
        self.place, self.number, self.size = partition, offset, size
        self.is_end = is_end

    def topic(self):
        return self.place.topic

    def partition(self):
        return self.place.partition

    def __len__(self):
        return self.size


class Client:
    """Gives what it is told to, and lets things happen during a poll."""

    def __init__(self):
        self.polls, self.meanwhile, self.log = [], None, []
        self.paused = self.resumed = 0

    def poll(self, most, _seconds):
        if self.meanwhile is not None:
            self.meanwhile()
        return self.polls.pop(0)[:most] if self.polls else []

    def without_ends(self, messages):
        ends = {message.place: message.number for message in messages if message.is_end}
        return [message for message in messages if not message.is_end], ends

    def runs(self, messages):
        for message in messages:
            yield message.place, [message.number], [None], [message]

    def tell_troubles(self, messages):
        self.log.append(("troubles", [message.number for message in messages]))

    def pause(self, _partitions):
        self.paused += 1

    def resume(self, _partitions):
        self.resumed += 1


class Crew:
    def wake(self):
        pass


class Committer:
    def batch_finished(self):
        return True

    def records_finished(self):
        return False


@pytest.fixture
def client():
    return Client()


def make(client, strategy, room=None):
    room = room or Limits(1000, 1 << 30)
    desk = Desk("none", 4, room)
    for partition in (A, B):
        desk.assign(partition, 0, (), now=0.0)
    return desk, make_feeder(strategy, client, desk, Crew(), Committer(), room)


def finish_all(desk):
    with desk.lock:
        desk.done(desk.take(1000), 1.0)


def test_a_batch_waits_until_the_one_before_is_finished(client):
    desk, feeder = make(client, PerBatch(2))
    client.polls = [[Message(A, n) for n in range(4)]]
    feeder.turn(0.0)
    feeder.turn(0.0)
    assert desk.unfinished == 2
    feeder.turn(0.0)
    assert desk.unfinished == 2
    finish_all(desk)
    feeder.turn(0.0)
    assert (desk.unfinished, desk.finished) == (2, 2)


def test_what_is_taken_away_during_a_poll_does_not_come_back(client):
    """The callback of a rebalance runs inside the poll."""
    desk, feeder = make(client, PerBatch(1))
    client.polls = [[Message(A, 0), Message(B, 0)]]
    feeder.turn(0.0)
    client.meanwhile = lambda: feeder.forget([B])
    client.polls = [[Message(A, 1)]]
    feeder.turn(0.0)
    client.meanwhile = None
    for _ in range(4):
        finish_all(desk)
        feeder.turn(0.0)
    finish_all(desk)
    assert desk.works[A].position == 2
    assert desk.works[B].position == 0


@pytest.mark.parametrize("strategy", [PerBatch(1), PerRecord(), GapSafe()])
def test_what_a_poll_brings_of_a_partition_that_it_takes_away_and_gives_back_is_read_again(
    client, strategy
):
    """It may be of the time before, and then the records between would be lost."""
    desk, feeder = make(client, strategy)

    def rebalance():
        desk.revoke([B])
        feeder.forget([B])
        desk.assign(B, 3, (), now=0.0)

    client.meanwhile = rebalance
    client.polls = [[Message(B, 7), Message(A, 0), Message(B, 8, is_end=True)]]
    feeder.turn(0.0)
    client.meanwhile = None
    feeder.turn(0.0)
    assert (desk.works[A].position, desk.works[B].position) == (1, 3)
    assert feeder.left_out == {B}
    assert feeder.ends() == {}


def test_what_a_poll_brings_of_a_partition_that_it_takes_away_is_gone(client):
    """Given back by a later poll, the partition begins where its next owner would."""
    desk, feeder = make(client, PerBatch(1))

    def taken_away():
        desk.revoke([B])
        feeder.forget([B])

    client.meanwhile = taken_away
    client.polls = [[Message(B, 7)]]
    feeder.turn(0.0)
    client.meanwhile = None
    desk.assign(B, 3, (), now=0.0)
    feeder.turn(0.0)
    assert desk.works[B].position == 3
    assert feeder.left_out == set()


@pytest.mark.parametrize("strategy", [PerBatch(2), GapSafe()])
def test_the_end_of_a_partition_counts_when_all_before_it_was_handed_in(client, strategy):
    desk, feeder = make(client, strategy)
    client.polls = [[Message(A, 0), Message(A, 1), Message(A, 3, is_end=True)]]
    feeder.turn(0.0)
    while desk.works[A].position < 2:
        assert feeder.ends() == {}
        finish_all(desk)
        feeder.turn(0.0)
    assert feeder.ends() == {A: 3}
    assert feeder.ends() == {}


def test_the_end_of_a_partition_that_was_sought_elsewhere_is_forgotten(client):
    _desk, feeder = make(client, GapSafe())
    client.polls = [[Message(A, 3, is_end=True), Message(B, 4, is_end=True)]]
    feeder.turn(0.0)
    feeder.forget([A])
    assert feeder.ends() == {B: 4}


def test_troubles_are_told_after_the_records_that_came_before_them(client):
    desk, feeder = make(client, GapSafe())
    client.tell_troubles = lambda _messages: client.log.append(desk.unfinished)
    client.polls = [[Message(A, 0), Message(A, 1)]]
    feeder.turn(0.0)
    assert client.log == [2]


def test_large_records_that_wait_come_to_a_pause(client):
    desk, feeder = make(client, PerBatch(100), Limits(1000, 10))
    client.polls = [[Message(A, n, size=5) for n in range(3)], [Message(A, 3, size=5)]]
    feeder.turn(0.0)
    feeder.turn(0.0)  # the first three are handed in, one waits
    assert client.paused == 0
    client.polls = [[Message(A, 4, size=5)]]
    feeder.turn(0.0)
    feeder.turn(0.0)
    assert (client.paused, feeder.holds_back) == (1, True)
    finish_all(desk)
    feeder.turn(0.0)
    assert (client.resumed, feeder.holds_back) == (1, False)
