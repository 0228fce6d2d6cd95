"""What comes from the client reaches the desk in order, and never for an earlier assignment."""

import pytest

from headrace.model import TopicPartition
from headrace.parallel.commit import GapSafe, PerBatch
from headrace.parallel.engine.desk import Desk, Limits
from headrace.parallel.engine.feeding import make_feeder

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Message:
    def __init__(self, partition, offset, size=1):
        self.place, self.number, self.size = partition, offset, size

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
