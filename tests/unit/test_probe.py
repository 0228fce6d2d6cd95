"""Proof that a cluster serves: an answer that is slow is asked for again."""

import contextlib

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
