"""Commits: what is not confirmed is sent again, and nothing is called committed that is not."""

from itertools import count

import pytest

from headrace.clients.consumer import OffsetCommit
from headrace.errors import ConfigError, KafkaFailure
from headrace.model import TopicPartition
from headrace.observe.events import CommitFailed
from headrace.parallel.commit import Auto, GapSafe, PerBatch, PerRecord, strategy_named
from headrace.parallel.engine import committing
from headrace.parallel.engine.committing import Committer
from headrace.parallel.engine.desk import Desk, Limits
from headrace.parallel.state import decode

A, B = (TopicPartition("clicks", number) for number in range(2))
AWAY = KafkaFailure("no answer from the cluster", code="_TRANSPORT")
THROWN_OUT = KafkaFailure("unknown member", code="UNKNOWN_MEMBER_ID")
MOVED_ON = KafkaFailure("illegal generation", code="ILLEGAL_GENERATION")


class Client:
    """A client's `commit`: what it was given, and what it answers."""

    def __init__(self):
        self.sent, self.waited = [], []
        self.errors = []  # of the next commits; None is none
        self.always = None

    def commit(self, commits, *, wait):
        (self.waited if wait else self.sent).append(list(commits))
        error = self.errors.pop(0) if self.errors else self.always
        if error is not None:
            raise error


class Rig:
    def __init__(self, strategy, order="key"):
        self.client, self.told = Client(), []
        self.desk = Desk(order, 4, Limits(1_000_000, 1 << 30))
        if isinstance(strategy, PerRecord):
            self.desk.unreleased = []
        self.committer = Committer(self.client, self.desk, strategy, "shop", self.told.append)
        self.work = self.desk.assign(A, 0, (), now=0.0, committed=(0, ""))
        self.clock = count(1e12, 1000)

    def add(self, keys, partition=A):
        start = self.desk.works[partition].position
        offsets = range(start, start + len(keys))
        self.desk.add(partition, offsets, list(keys), [b"x"] * len(keys))

    def handle(self, most=99, *, skip=0):
        """Take and finish, all but the first ones."""
        with self.desk.lock:
            units = self.desk.take(most)
            self.desk.done(units[skip:], 1.0)
        return [unit[1] for unit in units[skip:]]

    def tick(self):
        self.committer.tick(next(self.clock))


@pytest.fixture
def make_rig(monkeypatch):
    monkeypatch.setattr(committing, "SECONDS_BETWEEN_TRIES", 0.001)
    return Rig


# --- in the background ---


def test_what_is_finished_is_sent_with_its_map_once(make_rig):
    rig = make_rig(GapSafe(), order="none")
    rig.add("abcd")
    rig.handle(skip=1)
    rig.tick()
    ((commit,),) = rig.client.sent
    assert (commit.partition, commit.offset) == (A, 0)
    assert decode(commit.offset, commit.metadata) == (range(1, 4),)
    rig.tick()
    assert len(rig.client.sent) == 1


def test_nothing_is_sent_before_the_interval_has_passed(make_rig):
    rig = make_rig(GapSafe(interval=10))
    rig.committer.tick(1e12)
    rig.add("a")
    rig.handle()
    rig.committer.tick(1e12 + 9)
    assert rig.client.sent == []
    rig.committer.tick(1e12 + 10)
    assert rig.client.sent == [[OffsetCommit(A, 1)]]


def test_a_commit_that_cannot_be_sent_is_told_and_sent_again(make_rig):
    rig = make_rig(GapSafe())
    rig.add("a")
    rig.handle()
    rig.client.errors = [AWAY]
    rig.tick()
    assert rig.told == [CommitFailed("shop", (A,), AWAY.message)]
    rig.tick()
    assert rig.client.sent == [[OffsetCommit(A, 1)]] * 2
    rig.committer.answered([A], None)
    assert rig.work.confirmed == (1, "")


def test_a_commit_that_is_answered_with_an_error_is_told_and_sent_again(make_rig):
    rig = make_rig(GapSafe())
    rig.add("a")
    rig.handle()
    rig.tick()
    rig.committer.answered([A], AWAY)
    assert rig.told == [CommitFailed("shop", (A,), AWAY.message)]
    rig.tick()
    assert rig.client.sent == [[OffsetCommit(A, 1)]] * 2


def test_a_group_that_has_just_moved_on_is_no_news_and_the_commit_is_sent_again(make_rig):
    rig = make_rig(GapSafe())
    rig.add("a")
    rig.handle()
    rig.tick()
    rig.committer.answered([A], MOVED_ON)
    assert rig.told == []
    rig.tick()
    assert len(rig.client.sent) == 2


def test_a_commit_is_confirmed_by_its_own_answer_and_not_by_an_earlier_one(make_rig):
    rig = make_rig(GapSafe())
    rig.add("ab")
    for _ in range(2):
        rig.handle(1)
        rig.tick()
    rig.committer.answered([A], None)
    assert rig.work.confirmed != (2, "")
    assert rig.committer.last([rig.work])
    assert rig.client.waited == [[OffsetCommit(A, 2)]]


def test_an_answer_for_an_earlier_assignment_confirms_nothing_of_the_new_one(make_rig):
    rig = make_rig(GapSafe())
    rig.add("a")
    rig.handle()
    rig.tick()
    rig.desk.revoke([A])
    work = rig.desk.assign(A, 5, (), now=0.0)
    rig.committer.pin()
    rig.committer.answered([A], None)  # of the first commit
    assert work.confirmed is None
    rig.committer.answered([A], None)
    assert work.confirmed == (5, "")
    rig.add("ab")
    for _ in range(2):
        rig.handle(1)
        rig.tick()
    rig.committer.answered([A], None)
    assert work.confirmed != (7, "")


def test_an_answer_for_a_partition_that_has_gone_is_no_matter(make_rig):
    rig = make_rig(GapSafe())
    rig.add("a")
    rig.handle()
    rig.tick()
    rig.desk.revoke([A])
    rig.committer.answered([A, B], None)
    assert A not in rig.desk.works


def test_where_a_partition_begins_is_committed(make_rig):
    rig = make_rig(GapSafe())
    rig.desk.assign(B, 42, (), now=0.0)
    rig.committer.pin()
    assert rig.client.sent == [[OffsetCommit(B, 42)]]


def test_auto_commits_what_was_handed_out_and_no_map(make_rig):
    rig = make_rig(Auto(), order="none")
    rig.add("abcd")
    rig.handle(2, skip=1)
    rig.tick()
    assert rig.client.sent == [[OffsetCommit(A, 4, "")]]
    rig.tick()
    assert len(rig.client.sent) == 1


def test_at_a_hand_over_auto_commits_only_what_is_finished(make_rig):
    rig = make_rig(Auto(), order="none")
    rig.add("abcd")
    rig.tick()
    rig.handle(1)
    rig.handle(3, skip=1)
    assert rig.committer.last([rig.work])
    assert rig.client.waited == [[OffsetCommit(A, 1, "")]]


# --- waiting for the answer ---


def test_the_last_commit_is_tried_until_it_works(make_rig):
    rig = make_rig(GapSafe())
    rig.add("a")
    rig.handle()
    rig.client.errors = [AWAY, AWAY]
    assert rig.committer.last([rig.work])
    assert rig.client.waited == [[OffsetCommit(A, 1)]] * 3
    assert rig.work.confirmed == (1, "")
    assert rig.told == []


def test_the_last_commit_names_what_was_sent_and_not_confirmed(make_rig):
    rig = make_rig(GapSafe())
    rig.add("a")
    rig.handle()
    rig.tick()
    assert rig.committer.last([rig.work])
    assert rig.client.waited == [[OffsetCommit(A, 1)]]
    assert rig.committer.last([rig.work])
    assert len(rig.client.waited) == 1


def test_the_last_commit_of_several_partitions_is_one_request(make_rig):
    rig = make_rig(GapSafe())
    other = rig.desk.assign(B, 0, (), now=0.0, committed=(0, ""))
    rig.add("a")
    rig.add("a", B)
    rig.handle()
    assert rig.committer.last([rig.work, other])
    assert rig.client.waited == [[OffsetCommit(A, 1), OffsetCommit(B, 1)]]


def test_at_the_deadline_the_last_commit_is_told_of(make_rig):
    rig = make_rig(GapSafe())
    rig.add("a")
    rig.handle()
    rig.client.always = AWAY
    assert not rig.committer.last([rig.work], seconds=0.01)
    assert rig.told == [CommitFailed("shop", (A,), AWAY.message)]
    assert len(rig.client.waited) > 1
    assert rig.work.confirmed == (0, "")


def test_who_was_thrown_out_of_the_group_gives_up_at_once(make_rig):
    rig = make_rig(GapSafe())
    rig.add("a")
    rig.handle()
    rig.client.always = THROWN_OUT
    assert rig.committer.last([rig.work])
    assert len(rig.client.waited) == 1
    assert rig.told == [CommitFailed("shop", (A,), THROWN_OUT.message)]


def test_with_an_illegal_generation_the_last_commit_gives_up_if_nobody_polls(make_rig):
    rig = make_rig(GapSafe())
    rig.add("a")
    rig.handle()
    rig.client.always = MOVED_ON
    assert not rig.committer.last([rig.work])
    assert len(rig.client.waited) == 1
    assert rig.told == [CommitFailed("shop", (A,), MOVED_ON.message)]


def test_with_an_illegal_generation_the_last_commit_is_tried_again_after_a_poll(make_rig):
    rig = make_rig(GapSafe())
    rig.add("a")
    rig.handle()
    rig.client.errors = [MOVED_ON]
    served = []
    assert rig.committer.last([rig.work], lambda: served.append(1))
    assert (len(rig.client.waited), served, rig.told) == (2, [1], [])


def test_a_revoked_partition_is_not_committed(make_rig):
    rig = make_rig(GapSafe())
    rig.add("a")
    rig.handle()
    rig.desk.revoke([A])
    assert rig.committer.last([rig.work])
    assert rig.client.waited == []


def test_a_forged_map_that_cannot_be_written_again_leaves_the_bare_offset(make_rig):
    rig = make_rig(GapSafe())
    forged = tuple(range(start, start + 1) for start in range(1 << 20, 1 << 40, 1 << 26))
    rig.desk.assign(B, 7, forged, now=0.0)
    rig.desk.add(B, [7, 8], [b"k", b"k"], [b"x", b"y"])
    rig.handle(1)
    rig.tick()
    assert OffsetCommit(B, 8, "") in rig.client.sent[0]


# --- each record ---


def test_the_next_of_a_key_starts_after_the_commit(make_rig):
    rig = make_rig(PerRecord())
    rig.add("aab")
    assert rig.handle() == [0, 2]
    assert rig.handle() == []
    assert rig.committer.records_finished()
    ((commit,),) = rig.client.waited
    assert (commit.offset, decode(commit.offset, commit.metadata)) == (1, (range(2, 3),))
    assert rig.handle() == [1]


def test_with_nothing_finished_no_record_is_committed(make_rig):
    rig = make_rig(PerRecord())
    rig.add("a")
    assert not rig.committer.records_finished()
    assert rig.client.waited == []


@pytest.mark.parametrize("error", [AWAY, MOVED_ON])
def test_while_the_commit_fails_the_next_of_a_key_waits(make_rig, monkeypatch, error):
    monkeypatch.setattr(Committer.last, "__defaults__", (None, 0.01))
    rig = make_rig(PerRecord())
    rig.add("aa")
    rig.handle()
    rig.client.always = error
    assert not rig.committer.records_finished()
    assert rig.handle() == []
    rig.client.always = None
    assert rig.committer.records_finished()
    assert rig.handle() == [1]


def test_a_rebalance_under_way_does_not_hold_the_pump_and_is_no_news(make_rig):
    rig = make_rig(PerRecord())
    rig.add("aa")
    rig.handle()
    rig.client.errors = [MOVED_ON]
    assert not rig.committer.records_finished()
    assert (len(rig.client.waited), rig.told) == (1, [])


def test_records_of_a_partition_that_has_gone_are_let_go_without_a_commit(make_rig):
    rig = make_rig(PerRecord())
    rig.add("aa")
    rig.handle()
    rig.desk.revoke([A])
    assert rig.committer.records_finished()
    assert rig.client.waited == []
    assert rig.handle() == []


# --- each batch ---


def test_a_batch_is_committed_and_waited_for(make_rig):
    rig = make_rig(PerBatch())
    rig.add("ab")
    rig.handle()
    assert rig.committer.batch_finished()
    assert (rig.client.waited, rig.client.sent) == ([[OffsetCommit(A, 2)]], [])


def test_after_a_batch_that_was_not_committed_the_next_may_not_start(make_rig, monkeypatch):
    monkeypatch.setattr(Committer.last, "__defaults__", (None, 0.01))
    rig = make_rig(PerBatch())
    rig.add("ab")
    rig.handle()
    rig.client.always = AWAY
    assert not rig.committer.batch_finished()


def test_without_sync_a_batch_is_sent_and_on_commit_hears_what_was_answered(make_rig):
    heard = []
    rig = make_rig(PerBatch(sync=False, on_commit=lambda *heard_: heard.append(heard_)))
    rig.add("ab")
    for error in (None, AWAY):
        rig.handle(1)
        assert rig.committer.batch_finished()
        before = len(heard)
        assert not rig.committer.batch_finished()  # two batches ahead of what is committed
        rig.committer.answered([A], error)
        assert len(heard) == before + 1
    assert heard == [({A: 1}, None), ({A: 2}, AWAY)]
    assert rig.client.waited == []


@pytest.mark.parametrize("strategy", [PerRecord(), PerBatch()])
def test_where_a_partition_begins_is_committed_again_if_that_failed(make_rig, strategy):
    rig = make_rig(strategy)
    rig.desk.works[A].sent = None  # as it is where the group has no offset
    rig.committer.pin()
    rig.committer.answered([A], AWAY)
    rig.tick()
    assert rig.client.sent == [[OffsetCommit(A, 0)]] * 2


def test_on_commit_is_for_commits_that_nobody_waits_for():
    with pytest.raises(ConfigError, match=r"sync=True.*on_commit"):
        PerBatch(sync=True, on_commit=print)


# --- strategies ---


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("gap-safe", GapSafe(1.0)),
        ("auto", Auto(5.0)),
        ("per-record", PerRecord()),
        ("per-batch", PerBatch(500)),
    ],
)
def test_a_strategy_has_a_name_and_says_what_it_guarantees(name, strategy):
    assert strategy_named(name) == strategy == strategy_named(strategy)
    assert strategy.guarantee in ("none", "at least once")
    assert strategy.remembers is (name != "auto")


def test_an_unknown_strategy_is_named_with_the_known_ones():
    with pytest.raises(ConfigError, match="'never'") as caught:
        strategy_named("never")
    for name in ("gap-safe", "auto", "per-record", "per-batch"):
        assert name in caught.value.hint


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: GapSafe(0), r"GapSafe\(interval=0\)"),
        (lambda: Auto(-1), r"Auto\(interval=-1\)"),
        (lambda: PerBatch(0), r"PerBatch\(size=0\)"),
    ],
)
def test_a_strategy_with_a_size_or_interval_of_nothing_is_refused(make, named):
    with pytest.raises(ConfigError, match=named):
        make()
