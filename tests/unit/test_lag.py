"""Offsets are committed by a thread of its own: nobody waits, and only the newest count."""

import logging
import threading

import pytest

pytest.importorskip("pyspark")

from headrace.errors import KafkaFailure
from headrace.model import TopicPartition
from headrace.observe import Silent
from headrace.spark.pipelines.lag import LagCommitter, lag_shown
from support.warnings import Warnings

ONE, TWO = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


class SlowAdmin:
    """Takes as long as a test wants, and fails as often."""

    def __init__(self, failures=0):
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self.failures, self.committed = failures, []

    def set_committed(self, group, offsets):
        self.asked.set()
        assert self.may_answer.wait(60)
        if self.failures:
            self.failures -= 1
            raise KafkaFailure(f"{group} cannot be moved", hint="try again")
        self.committed.append((group, dict(offsets)))


def test_nobody_waits_for_a_commit_and_only_the_newest_offsets_count():
    admin = SlowAdmin()
    committer = LagCommitter("g", admin)
    committer.note({ONE: 1})
    assert admin.asked.wait(60)
    for offset in range(2, 100):
        committer.note({ONE: offset})  # would hang if it waited
    committer.note({TWO: 5})
    assert admin.committed == []
    admin.may_answer.set()
    committer.close()
    assert admin.committed == [("g", {ONE: 1}), ("g", {ONE: 99, TWO: 5})]


def note_three_times(admin, note):
    """Each is committed, or is not, before the next."""
    for offset in (1, 2, 3):
        admin.asked.clear()
        note({ONE: offset})
        assert admin.asked.wait(60)


def test_a_commit_that_fails_is_told_once_and_the_next_one_is_made():
    admin, told = SlowAdmin(failures=2), Warnings()
    admin.may_answer.set()
    with lag_shown("g", admin, told) as note:
        note_three_times(admin, note)
    assert admin.committed == [("g", {ONE: 3})]
    assert told.warnings == ["the lag of group g is not up to date: g cannot be moved"]


def test_a_listener_tells_the_log_of_a_commit_that_fails(caplog):
    admin = SlowAdmin(failures=1)
    admin.may_answer.set()
    with caplog.at_level(logging.WARNING, "headrace.spark"):
        committer = LagCommitter("g", admin)
        committer.note({ONE: 1})
        committer.close()
    assert "the lag of group g is not up to date" in caplog.text


def test_without_a_group_nothing_is_committed():
    admin = SlowAdmin()
    with lag_shown(None, admin, Silent()) as note:
        note({ONE: 1})
    assert not admin.asked.is_set()


def test_no_offsets_are_no_commit():
    admin = SlowAdmin()
    with lag_shown("g", admin, Silent()) as note:
        note({})
    assert not admin.asked.is_set()
