"""A piece is written exactly once: under crashes, rivals, lost outcomes and changed rows."""

import itertools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.clients import Connection
from headrace.errors import BadInput, HeadraceError, KafkaFailure
from headrace.spark import ledger as ledger_module
from headrace.spark.batches import ANY_PARTITION, NOW, Batch
from headrace.spark.ledger import WRITER_HEADER, Entry, Ledger, ensure_ledger, entry_key
from headrace.spark.pieces import Target, write_piece

COUNTER = itertools.count()


@pytest.fixture
def target(kafka_cluster):
    return make_target(kafka_cluster.bootstrap, f"job-{os.getpid()}-{next(COUNTER)}")


def make_target(bootstrap, job, *, ahead_bytes=0, **limits):
    """By default nothing is read before the transaction begins: what fails, fails within it."""
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0}
    return Target(
        settings, job, ensure_ledger(Connection(bootstrap)), ahead_bytes=ahead_bytes, **limits
    )


def batch(topic, values, keys):
    count = len(values)
    columns = [topic] * count, values, keys, [ANY_PARTITION] * count, [NOW] * count, [None] * count
    return Batch(*columns)


def rows(topic, count, start=0, at_once=300):
    for first in range(start, start + count, at_once):
        numbers = range(first, min(first + at_once, start + count))
        yield batch(topic, [b"%d" % n for n in numbers], [b"k%d" % (n % 7) for n in numbers])


def write(target, rows, piece="0", **more):
    return write_piece(target, piece, rows, transactional_id=f"{target.job}/{piece}", **more)


def numbers(cluster, topic):
    """What a reader of committed records sees."""
    settings = {"isolation.level": "read_committed"}
    with hr.Reader(topic, connection=cluster.bootstrap, settings=settings) as reader:
        return sorted(int(r.value) for batch in reader.batches() for r in batch)


def test_a_piece_is_sent_once_however_often_it_is_written(kafka_cluster, target, make_topic):
    topic = make_topic(3)
    first = write(target, rows(topic, 1_000))
    again = write(target, rows(topic, 1_000))
    in_other_order = write(target, reversed(list(rows(topic, 1_000))))
    assert (first.sent_before, again.sent_before, in_other_order.sent_before) == (False, True, True)
    assert first.rows == again.rows == 1_000
    assert first.per_topic == again.per_topic == {topic: 1_000}
    assert numbers(kafka_cluster, topic) == list(range(1_000))


@pytest.mark.parametrize(
    ("bad", "good", "share", "too_many"),
    [(11, 89, 0.1, True), (10, 10, 0.1, False), (11, 99, 0.1, False), (1, 99, 0.0, True)],
)
def test_a_limited_topic_gets_its_share_and_a_few_in_any_case(
    kafka_cluster, target, make_topic, bad, good, share, too_many
):
    topic, dead = make_topic(1), make_topic(1)
    target = make_target(kafka_cluster.bootstrap, target.job, limit=(dead, share))
    table = [*rows(topic, good), *rows(dead, bad)]
    if too_many:
        with pytest.raises(BadInput, match=f"{bad} of the first {bad + good} rows"):
            write(target, table)
    else:
        write(target, table)
    assert len(numbers(kafka_cluster, dead)) == (0 if too_many else bad)


def test_pieces_and_jobs_do_not_mistake_each_other(kafka_cluster, target, make_topic):
    topic = make_topic(1)
    other = make_target(kafka_cluster.bootstrap, target.job + "-other")
    assert not write(target, rows(topic, 10), "0").sent_before
    assert not write(target, rows(topic, 10, 10), "1").sent_before
    assert not write(other, rows(topic, 10, 20), "0").sent_before
    assert numbers(kafka_cluster, topic) == list(range(30))


@pytest.mark.parametrize("changed", [999, 1_001, 0])
def test_a_piece_with_another_number_of_rows_is_refused(kafka_cluster, target, make_topic, changed):
    topic = make_topic(1)
    write(target, rows(topic, 1_000))
    with pytest.raises(BadInput, match="has changed"):
        write(target, rows(topic, changed))
    assert numbers(kafka_cluster, topic) == list(range(1_000))


def test_what_is_read_while_the_producer_is_opened_is_sent(kafka_cluster, make_topic):
    topic = make_topic(3)
    target = make_target(kafka_cluster.bootstrap, f"ahead-{os.getpid()}", ahead_bytes=1 << 20)
    assert write(target, rows(topic, 10_000)).rows == 10_000
    assert numbers(kafka_cluster, topic) == list(range(10_000))
    assert write(target, rows(topic, 10_000)).sent_before


def test_a_piece_with_other_rows_is_refused(kafka_cluster, target, make_topic):
    topic = make_topic(1)
    write(target, rows(topic, 1_000))
    with pytest.raises(BadInput, match="has changed"):
        write(target, rows(topic, 1_000, start=1))
    assert numbers(kafka_cluster, topic) == list(range(1_000))


def test_an_attempt_that_fails_half_way_leaves_nothing(kafka_cluster, target, make_topic):
    topic = make_topic(3)

    def failing():
        yield from rows(topic, 500)
        raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError):
        write(target, failing())
    assert numbers(kafka_cluster, topic) == []
    write(target, rows(topic, 1_000))
    assert numbers(kafka_cluster, topic) == list(range(1_000))


def test_a_twin_fences_the_first_attempt_whose_rows_never_show(kafka_cluster, target, make_topic):
    topic = make_topic(3)
    half_way, go_on = threading.Event(), threading.Event()
    outcome = []

    def slow():
        yield from rows(topic, 500)
        half_way.set()
        assert go_on.wait(60)
        yield from rows(topic, 500, start=500)

    def first_attempt():
        try:
            outcome.append(write(target, slow()))
        except HeadraceError as error:
            outcome.append(error)

    first = threading.Thread(target=first_attempt)
    first.start()
    assert half_way.wait(60)
    assert not write(target, rows(topic, 1_000)).sent_before
    go_on.set()
    first.join(60)
    assert isinstance(outcome[0], KafkaFailure)
    assert numbers(kafka_cluster, topic) == list(range(1_000))


CRASHING = """
import os, signal, sys
from headrace.spark import pieces
from test_pieces import make_target, rows, write

bootstrap, job, topic, moment = sys.argv[1:]
target = make_target(bootstrap, job, part_bytes=4_000 if moment == "between" else 1 << 30)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def dying(count):
    yield from rows(topic, count)
    die()

commits = []
commit = pieces._Writing._commit

def commit_and_die(self):
    commit(self)
    commits.append(1)
    if moment == "after" or len(commits) == 2:
        die()

if moment != "before":
    pieces._Writing._commit = commit_and_die
write(target, dying(7_000) if moment == "before" else rows(topic, 10_000))
"""


@pytest.mark.parametrize("moment", ["before", "after", "between"])
def test_a_killed_attempt_is_continued_without_loss_or_repetition(
    kafka_cluster, target, make_topic, moment
):
    """SIGKILL before the commit, after it, and between the parts of a long piece."""
    topic = make_topic(3)
    arguments = (kafka_cluster.bootstrap, target.job, topic, moment)
    died = subprocess.run(
        [sys.executable, "-c", CRASHING, *arguments],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
        check=False,
        capture_output=True,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    seen = len(numbers(kafka_cluster, topic))
    assert (seen > 0, seen < 10_000) == {
        "before": (False, True),
        "after": (True, False),
        "between": (True, True),
    }[moment]
    done = write(target, rows(topic, 10_000))
    assert done.sent_before == (moment == "after")
    assert done.rows == 10_000
    assert numbers(kafka_cluster, topic) == list(range(10_000))


def test_a_half_sent_piece_whose_beginning_has_changed_is_refused(kafka_cluster, make_topic):
    topic = make_topic(1)
    job = f"changed-{os.getpid()}"
    target = make_target(kafka_cluster.bootstrap, job, part_bytes=1)

    def failing():
        yield from rows(topic, 3_100)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write(target, failing())
    sent = numbers(kafka_cluster, topic)
    assert sent == list(range(3_100))
    with pytest.raises(BadInput, match="has changed"):
        write(target, rows(topic, 5_000, start=1))
    assert numbers(kafka_cluster, topic) == sent
    write(target, rows(topic, 5_000, at_once=700))  # cut into other batches this time
    assert numbers(kafka_cluster, topic) == list(range(5_000))


def begin_with(target, name, key, value, headers=None):
    """A transaction that has written to the ledger, and is still open."""
    producer = Producer(dict(target.settings) | {"transactional.id": f"{target.job}/{name}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    ledger = target.ledger()
    producer.produce(ledger.topic, value, key, ledger.partition, headers=headers)
    producer.flush(30)
    return producer


def test_an_entry_behind_an_open_transaction_is_waited_for(kafka_cluster, target, monkeypatch):
    """Else a finished piece would look unsent as long as another task's transaction is open."""
    entry = Entry(5, 7, True, {})
    other = begin_with(target, "other", entry_key("another job", "0"), b"")
    begin_with(target, "0", entry_key(target.job, "0"), entry.to_bytes()).commit_transaction(30)
    monkeypatch.setattr(ledger_module, "SECONDS_TO_SETTLE", 1.0)
    with pytest.raises(KafkaFailure, match="open transaction"):
        target.ledger().catch_up()
    monkeypatch.setattr(ledger_module, "SECONDS_TO_SETTLE", 60.0)
    reading = target.ledger()
    reader = threading.Thread(target=reading.catch_up)
    reader.start()
    other.abort_transaction(30)
    reader.join(60)
    assert reading.entries == {"0": entry}


def test_a_transaction_whose_writer_is_gone_is_settled(kafka_cluster, target, monkeypatch):
    """What its driver's death left open for the next ten minutes hides nothing from the next."""
    entry = Entry(5, 7, True, {})
    dead = begin_with(
        *(target, "dead", entry_key(target.job, "dead"), entry.to_bytes()),
        headers=[(WRITER_HEADER, f"{target.job}/dead")],
    )
    begin_with(target, "0", entry_key(target.job, "0"), entry.to_bytes()).commit_transaction(30)
    monkeypatch.setattr(ledger_module, "SECONDS_TO_COMMIT", 0.5)
    ledger = target.ledger()
    ledger.catch_up()
    assert ledger.entries == {"0": entry}
    with pytest.raises(KafkaException):  # it cannot come back
        dead.commit_transaction(30)


def test_every_entry_names_its_writer(kafka_cluster, target, make_topic):
    write(target, rows(make_topic(1), 1))
    ledger = target.ledger()
    with hr.Reader(ledger.topic, connection=kafka_cluster.bootstrap) as reader:
        headers = {
            r.key: dict(r.headers)[WRITER_HEADER]
            for batch in reader.batches()
            for r in batch
            if r.partition == ledger.partition and WRITER_HEADER in dict(r.headers)
        }
    assert headers[entry_key(target.job, "0")] == f"{target.job}/0".encode()


def test_an_entry_that_is_forgotten_goes_with_the_transaction(kafka_cluster, target, make_topic):
    topic = make_topic(1)
    write(target, rows(topic, 1), "1/0")
    write(target, rows(topic, 1), "2/0")
    write(target, rows(topic, 1), "3/0", outdated=lambda names: sorted(names)[:-1])
    ledger = target.ledger()
    ledger.catch_up()
    assert set(ledger.entries) == {"2/0", "3/0"}
    ledger.catch_up()  # again is harmless, and has nothing to read
    assert set(ledger.entries) == {"2/0", "3/0"}


def test_a_row_that_no_broker_takes_fails_the_piece(kafka_cluster, target, make_topic):
    topic = make_topic(1, configs={"max.message.bytes": "1000"})
    huge = batch(topic, [os.urandom(5_000)], [None])
    with pytest.raises(HeadraceError, match="piece 0"):
        write(target, [*rows(topic, 10), huge])
    assert numbers(kafka_cluster, topic) == []


def test_a_cluster_that_is_not_there_is_a_clear_error(target):
    nobody = Target({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, "j", 8)
    monkey = pytest.MonkeyPatch()
    monkey.setattr("headrace.spark.pieces.SECONDS_TO_OPEN", 1.0)
    with pytest.raises(HeadraceError, match="transactional id"):
        write(nobody, [])
    monkey.undo()


@given(st.text(), st.text(max_size=20))
def test_a_job_of_any_name_finds_its_own_entries(job, piece):
    ledger = Ledger({}, job, 8)
    ledger._note(entry_key(job, piece), Entry(1, 2, True, {"t": 1}).to_bytes())
    ledger._note(entry_key(job + "x", piece), Entry(9, 9, True, {}).to_bytes())
    assert ledger.entries == {piece: Entry(1, 2, True, {"t": 1})}
    ledger._note(entry_key(job, piece), None)
    assert ledger.entries == {}
