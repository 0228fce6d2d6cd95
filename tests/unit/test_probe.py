"""Proof that a cluster serves: slow answers are retried, and replicas are in sync at the end."""

import contextlib
from types import SimpleNamespace

import pytest

from headrace.errors import ServerDied
from headrace.local import probe
from headrace.model import Deadline

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def answers(monkeypatch):
    """What making the topic comes to, one after the other; then all is well."""
    failures = []

    @contextlib.contextmanager
    def make(_admin, _ids):
        if failures:
            raise failures.pop(0)
        yield "topic"

    monkeypatch.setattr(probe, "_probe_topic", make)
    monkeypatch.setattr(probe, "_write_one_each", lambda *_: None)
    monkeypatch.setattr(probe, "_read_one_each", lambda *_: None)
    return failures


def test_an_answer_that_does_not_come_in_time_is_asked_for_again(answers):
    answers += [TimeoutError(), probe.KafkaException("not yet")]
    probe.prove_serving(NOWHERE, [1], Deadline(60))
    assert answers == []


def test_when_time_is_over_the_cluster_does_not_serve(answers):
    answers += [TimeoutError("slow")] * 100
    with pytest.raises(ServerDied, match="could not be written and read within 1 s: slow"):
        probe.prove_serving(NOWHERE, [1], Deadline(1))


def metadata(*partitions):
    """Cluster metadata with one topic; a partition is (leader, replicas, in-sync replicas)."""
    found = {
        number: SimpleNamespace(leader=leader, replicas=replicas, isrs=isrs)
        for number, (leader, replicas, isrs) in enumerate(partitions)
    }
    brokers = {1: SimpleNamespace(host="127.0.0.1", port=1)}
    return SimpleNamespace(topics={"topic": SimpleNamespace(partitions=found)}, brokers=brokers)


@pytest.mark.parametrize(
    ("leader", "isr", "behind"),
    [
        (1, [1, 2, 3], 0),
        (1, [1, 3], 1),  # 2 has yet to catch up
        (1, [1, 2], 0),  # 3 is out of sync, and not asked about
        (-1, [2], 1),  # 2 will lead
        (-1, [3], 0),  # nobody can catch up until 3 is back
    ],
)
def test_a_replica_is_out_of_sync_while_it_can_rejoin_and_has_not(leader, isr, behind):
    seen = metadata((leader, [1, 2, 3], isr), (3, [3], [3]))
    assert probe.out_of_sync(seen, [2]) == behind


@pytest.fixture
def views(monkeypatch):
    """What the cluster says, one answer after the other; the last one stays."""
    given = []

    def list_topics(timeout):
        answer = given.pop(0) if len(given) > 1 else given[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(
        probe, "AdminClient", lambda _settings: SimpleNamespace(list_topics=list_topics)
    )
    return given


def test_the_wait_ends_when_the_last_replica_is_in_sync(views):
    views += [
        metadata((1, [1, 2], [1]), (1, [1, 2], [1])),
        probe.KafkaException("not now"),
        metadata((1, [1, 2], [1, 2]), (1, [1, 2], [1])),
        metadata((1, [1, 2], [1, 2]), (1, [1, 2], [1, 2])),  # one broker says so,
        metadata((1, [1, 2], [1, 2]), (1, [1, 2], [1])),  # another has not heard of it yet
        metadata((1, [1, 2], [1, 2]), (1, [1, 2], [1, 2])),
    ]
    assert probe.wait_until_in_sync(NOWHERE, [1, 2], Deadline(60)) == 0
    assert len(views) == 1


def test_replicas_still_out_of_sync_at_the_deadline_are_counted(views):
    views.append(metadata((1, [1, 2], [1]), (1, [1, 2], [1])))
    assert probe.wait_until_in_sync(NOWHERE, [2], Deadline(0.3)) == 2


@pytest.fixture
def brokers(monkeypatch):
    """What each address says the cluster's brokers are; those left out do not answer."""
    answers = {}

    def connect(settings):
        def list_topics(timeout):
            if settings["bootstrap.servers"] not in answers:
                raise probe.KafkaException("silent")
            return SimpleNamespace(brokers=answers[settings["bootstrap.servers"]])

        return SimpleNamespace(list_topics=list_topics)

    monkeypatch.setattr(probe, "AdminClient", connect)
    return answers


def test_brokers_that_answer_and_are_counted_are_there(brokers):
    brokers |= {"one": {1, 2, 3}, "two": {1, 2, 3}}
    probe.wait_for_brokers({1: "one", 2: "two"}, Deadline(60), lambda: None)


def test_a_killed_broker_that_the_others_still_count_is_not_there(brokers):
    brokers |= {"one": {1, 2, 3}}
    with pytest.raises(ServerDied, match=r"the brokers \[1, 2, 3\] of \[1, 2\], and broker 2 is"):
        probe.wait_for_brokers({1: "one", 2: "two"}, Deadline(0.3), lambda: None)


def test_a_broker_that_the_cluster_does_not_count_is_not_there(brokers):
    brokers |= {"two": {1, 3}}
    with pytest.raises(ServerDied, match=r"the brokers \[1, 3\] of \[2\]$"):
        probe.wait_for_brokers({2: "two"}, Deadline(0.3), lambda: None)
