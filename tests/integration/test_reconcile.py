"""`reconcile`: what adds up is said to add up, and what was really broken is found and named."""

import contextlib
import functools

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import headrace as hr
from headrace.clients import Connection
from headrace.errors import BadInput, TopicNotFound
from headrace.services.clickstream import rows
from headrace.services.reconcile_sources import ReconcileOptions, reconcile
from support.ingest import lines, records, write_file
from support.lake import table

pytest.importorskip("pyspark")

from headrace.spark.ingest import files
from headrace.spark.ingest.chunks import plan_chunks
from headrace.spark.ingest.job import ingest
from headrace.spark.ingest.options import IngestOptions
from headrace.spark.ingest.schema import CLICKSTREAM as SCHEMA
from headrace.spark.pipelines import CLICKSTREAM, Field, Json, Pipeline, Rows, Topic
from headrace.spark.pipelines.runner import StreamOptions, stream

ROWS, BAD = 3_000, 0.01
EVENTS = Pipeline("only_rows", CLICKSTREAM.source, Rows("events"))


def plain(name):
    """A pipeline with a table of rows and nothing else."""
    return Pipeline(name, Topic("numbers", Json(Field("n", "long", required=True))), Rows(name))


class Rig:
    """Files, a topic, pipelines and their tables."""

    def __init__(self, cluster, topic, lake, spark):
        self.cluster, self.topic, self.lake, self._spark = cluster, topic, lake, spark
        self._connection = Connection(cluster.bootstrap)

    def ingest(self, path, **options):
        wanted = IngestOptions([str(path)], self.topic, SCHEMA, **options)
        return ingest(wanted, self._connection)

    def stream(self, pipeline):
        return stream(StreamOptions(pipeline, str(self.lake), topic=self.topic), self._connection)

    def send(self, *values, partition=0):
        """Values with their row ids."""
        with hr.Producer(self.cluster.bootstrap) as producer:
            for value, row in values:
                headers = None if row is None else [("headrace-row", row)]
                producer.send(self.topic, value, headers=headers, partition=partition)

    def send_and_abort(self, value, partition=0):
        """A record that no reader of committed records ever sees."""
        producer = Producer(
            {"bootstrap.servers": self.cluster.bootstrap, "transactional.id": self.topic}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(self.topic, value, partition=partition)
        producer.flush(30)
        producer.abort_transaction(30)

    def sql(self, statement, name="events"):
        self._spark.sql(statement.format(f"delta.`{self.lake / name}`"))

    def remove_before(self, offset, partition=0):
        """What retention does, at once."""
        client = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        for done in client.delete_records([TopicPartition(self.topic, partition, offset)]).values():
            done.result()

    def reconcile(self, full=False, **options):
        wanted = ReconcileOptions(self.topic, str(self.lake), full=full, **options)
        return reconcile(wanted, self._connection)

    @property
    def arguments(self):
        return ("reconcile", "--topic", self.topic, "--lake", str(self.lake))


@pytest.fixture
def rig(kafka_cluster, make_topic, tmp_path, spark, admin):
    name = make_topic(3)
    yield Rig(kafka_cluster, name, tmp_path / "lake", spark)
    known = set(admin.topic_names())
    for topic in {each for each in known if each.startswith(f"{name}.")}:
        with contextlib.suppress(TopicNotFound):
            admin.delete_topic(topic)


def found(account, text):
    """Findings whose text has this."""
    return [finding for finding in account.findings if text in finding.what]


def test_from_a_file_to_tables_every_row_is_accounted_for_and_what_breaks_it_is_named(
    rig, headrace, tmp_path
):
    file = write_file(tmp_path / "shop.csv", [raw for raw, _ in rows(ROWS, 7, BAD)])
    sent = rig.ingest(file)
    assert sent.rows_dead > 0
    rig.stream(EVENTS)
    whole = headrace.json(*rig.arguments)
    assert whole["balanced"], whole
    assert (whole["file_rows"], whole["file_dead_rows"]) == (ROWS, sent.rows_dead)
    assert (whole["kafka_rows"], whole["table_rows"]) == (sent.rows_sent, sent.rows_sent)
    assert (whole["dead_rows"], whole["duplicates"], whole["missing"]) == (sent.rows_dead, 0, 0)
    assert (whole["unread"], whole["findings"]) == (0, [])
    assert headrace.json(*rig.arguments, "--full") == whole

    check_deleted_rows_are_named(rig, headrace, file)
    # What the hint says brings them back.
    rig.sql("RESTORE {0} TO VERSION AS OF 0")
    assert rig.reconcile(full=True).balanced

    check_a_record_by_hand_is_named(rig, sent)


def check_deleted_rows_are_named(rig, headrace, file):
    """How many, and by --full which."""
    before = {row["row_id"]: row for row in table(rig.lake, "events")}
    rig.sql("DELETE FROM {0} WHERE kafka_partition = 1 AND kafka_offset BETWEEN 20 AND 29")
    rig.sql("DELETE FROM {0} WHERE kafka_partition = 2 AND kafka_offset = 5")
    left = {row["row_id"] for row in table(rig.lake, "events")}
    gone = [row for name, row in before.items() if name not in left]
    assert len(gone) == 11
    drawn = headrace(*rig.arguments, status=1)
    assert "PROBLEM" in drawn.stdout
    assert "not balanced" in drawn.stdout
    assert "--full names them" in drawn.hint
    account = rig.reconcile()
    assert (account.missing, account.balanced) == (11, False)
    account = rig.reconcile(full=True)
    assert account.missing == 11
    nowhere = found(account, "neither rows nor dead letters")
    assert [(f.where, f.first, f.last, f.count) for f in nowhere] == [
        (f"{rig.topic}[1]", 20, 29, 10),
        (f"{rig.topic}[2]", 5, 5, 1),
    ]
    by_file = found(account, "by file")
    named = {line for f in by_file for line in range(f.first, f.last + 1)}
    assert named == {int(row["row_id"].split(":")[1]) for row in gone}
    assert {f.where for f in by_file} == {str(file)}


def check_a_record_by_hand_is_named(rig, sent):
    """Not read yet, then a dead letter; it never came from a file."""
    rig.send((b"by hand", None), partition=2)
    (by_hand,) = [r for r in records(rig.cluster, rig.topic) if r.value == b"by hand"]
    account = rig.reconcile()
    assert (account.unread, account.missing, account.balanced) == (1, 0, False)
    (unread,) = found(account, "not read yet")
    assert (unread.where, unread.first, unread.count) == (f"{rig.topic}[2]", by_hand.offset, 1)
    assert rig.stream(EVENTS).rows_dead == 1
    account = rig.reconcile(full=True)
    assert (account.unread, account.pipeline_dead_rows, account.missing) == (0, 1, 0)
    assert account.kafka_rows == sent.rows_sent + 1
    assert [f.count for f in found(account, "somebody else writes")] == [1]
    (foreign,) = found(account, "these are the records")
    assert (foreign.where, foreign.first) == (f"{rig.topic}[2]", by_hand.offset)

    # Its dead letter removed.
    rig.sql("DELETE FROM {0} WHERE kafka_partition = 2", "dead_letters")
    account = rig.reconcile(full=True)
    assert (account.pipeline_dead_rows, account.missing) == (0, 1)
    assert [f.where for f in found(account, "somebody has deleted")] == ["dead_letters"]
    (nowhere,) = found(account, "neither rows nor dead letters")
    assert (nowhere.first, nowhere.last) == (by_hand.offset, by_hand.offset)


@pytest.mark.long(30)
def test_records_that_came_from_elsewhere_with_duplicates_retention_and_rows_by_hand(
    rig, headrace, admin
):
    numbers = [(b'{"n": %d}' % n, f"id:{n}") for n in range(40)]
    rig.send(*numbers, *numbers[:5], (b"no number", None))
    rig.stream(plain("numbers"))
    rig.send(*numbers[5:8], partition=1)
    rig.stream(plain("numbers"))
    for full in (False, True):
        account = rig.reconcile(full)
        assert account.balanced, account
        assert (account.file_rows, account.kafka_rows, account.table_rows) == (None, 49, 40)
        assert (account.duplicates, account.pipeline_dead_rows, account.missing) == (8, 1, 0)

    # What was never committed is not waiting to be read.
    rig.send_and_abort(numbers[0][0], partition=2)
    assert rig.reconcile().balanced

    # Retention after the table has read: a note. Rows deleted there are still counted.
    rig.remove_before(10)
    account = rig.reconcile(full=True)
    assert account.balanced
    assert [(f.first, f.last) for f in account.findings] == [(0, 9)]
    rig.sql("ALTER TABLE {0} SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)", "numbers")
    rig.sql("DELETE FROM {0} WHERE kafka_offset IN (3, 12)", "numbers")
    account = rig.reconcile(full=True)
    assert (account.table_rows, account.missing) == (38, 2)
    # The record of one is gone, but the topic has its row once more.
    assert [(f.first, f.last) for f in found(account, "neither rows")] == [(12, 12), (43, 43)]

    # Rows added by hand.
    rig.sql("INSERT INTO {0} SELECT * FROM {0} WHERE n BETWEEN 20 AND 23", "numbers")
    account = rig.reconcile(full=True)
    assert [f.count for f in found(account, "somebody has added")] == [2]
    assert [(f.first, f.last, f.count) for f in found(account, "more than once")] == [(20, 23, 4)]

    # Two pipelines of one topic must be told apart.
    rig.stream(plain("others"))
    assert "numbers (by numbers), others (by others)" in headrace.refused(2, *rig.arguments).error
    account = rig.reconcile(pipeline="others")
    assert (account.kafka_rows, account.table_rows, account.balanced) == (39, 38, True)

    # Retention before the table has read.
    rig.send(*numbers)
    rig.remove_before(80)
    account = rig.reconcile(pipeline="others")
    assert not account.balanced
    assert [(f.first, f.last) for f in found(account, "before the table has read")] == [(46, 79)]

    admin.delete_topic(rig.topic)
    admin.create_topic(rig.topic, 3)
    done = headrace.refused(2, *rig.arguments, "--pipeline", "others")
    assert "made again" in done.error


@pytest.mark.long(30)
def test_rows_sent_at_least_once_and_a_file_that_was_not_sent_to_its_end(
    rig, tmp_path, monkeypatch
):
    rig.ingest(
        write_file(tmp_path / "first.csv", [raw for raw, _ in rows(500, 3, 0.02)]),
        guarantee="at-least-once",
    )
    dead = len(records(rig.cluster, f"{rig.topic}.dead"))
    assert dead > 0
    rig.stream(CLICKSTREAM)
    account = rig.reconcile(full=True)
    assert account.balanced, account
    assert (account.file_rows, account.file_dead_rows) == (500, dead)

    monkeypatch.setattr(files, "plan_chunks", functools.partial(plan_chunks, size=32 << 10))
    cut = write_file(tmp_path / "cut.csv", [*lines(600, 4), *[b"bad\n"] * 20])
    with pytest.raises(BadInput):
        rig.ingest(cut, max_bad=0.0)
    rig.stream(CLICKSTREAM)
    account = rig.reconcile()
    assert not account.balanced
    (unsent,) = found(account, "never sent")
    assert (unsent.where, unsent.last) == (str(cut), cut.stat().st_size - 1)


def test_what_cannot_be_compared_is_refused(rig, headrace, tmp_path):
    refused = functools.partial(headrace.refused, 2, "reconcile")
    done = refused("--topic", "no-such-topic", "--lake", str(tmp_path))
    assert "there is no topic no-such-topic" in done.error
    assert "no folder" in refused("--topic", rig.topic, "--lake", str(tmp_path / "no")).error
    assert "no table" in refused("--topic", rig.topic, "--lake", str(tmp_path)).error
