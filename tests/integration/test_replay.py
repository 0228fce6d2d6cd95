"""`replay`: a bounded range into tables of its own, once, whatever happens; and its dry run."""

import contextlib
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import orjson
import pytest
from confluent_kafka import Producer

import headrace as hr
from headrace.clients import Connection
from headrace.errors import BadInput, HeadraceError, OperationFailed
from headrace.services.replay import (
    Doing,
    Plan,
    Wish,
    execute_replay,
    of_topic,
    plan_replay,
)
from support.ingest import records
from support.lake import assert_tables, infos, some_events, table
from support.waiting import eventually

pytest.importorskip("pyspark")

from headrace.spark.pipelines import Expect, Field, Json, Pipeline, Rows, Sum, Topic, Totals
from headrace.spark.pipelines.accounts import Replay
from headrace.spark.pipelines.holding import held
from headrace.spark.pipelines.runner import StreamOptions, stream
from support.crash import dying_after_each_write

SECONDS = 180
# Retention goes by the records' own time: it must not be long past.
START_MS = int(time.time() - 3600) * 1000


@pytest.fixture
def topic(make_topic):
    return make_topic(3)


@pytest.fixture
def rig(kafka_cluster, topic, tmp_path):
    return Rig(kafka_cluster, topic, tmp_path / "lake")


CLICKS = Pipeline(
    "clicks",
    source=Topic("clicks", Json(Field("page", required=True), Field("n", "long"))),
    rows=Rows("clicks"),
    derived=(Totals("pages", {"page": "page"}, {"n": Sum("n", type="long")}),),
)


class Rig:
    """A topic of numbered clicks, and a lake to replay it into."""

    def __init__(self, cluster, topic, lake):
        self.cluster, self.topic, self.lake = cluster, topic, lake
        self.connection = Connection(cluster.bootstrap)

    def send(self, *values):
        with hr.Producer(self.cluster.bootstrap) as producer:
            for number, value in enumerate(values):
                producer.send(self.topic, value, partition=number % 3)

    def send_clicks(self, count):
        self.send(*(b'{"page": "%d", "n": %d}' % (n % 7, n) for n in range(count)))

    def replay(self, begin="earliest", end="latest", most=1_000_000, pipeline=CLICKS):
        wish = Wish(self.topic, begin, end, of_topic(pipeline, self.topic), str(self.lake))
        plan = plan_replay(wish, self.connection)
        return execute_replay(plan, Doing(most), self.connection)

    def stream(self):
        options = StreamOptions(CLICKS, str(self.lake), topic=self.topic, show_lag=False)
        return stream(options, self.connection)

    def assert_tables(self, begin, *ends):
        """They hold the records from one offset to another of each partition, each once."""
        found = {
            (record.partition, record.offset): orjson.loads(record.value)
            for record in records(self.cluster, self.topic)
            if begin <= record.offset < ends[record.partition] and record.value != b"bad"
        }
        rows = table(self.lake, "clicks")
        assert {
            (row["kafka_partition"], row["kafka_offset"]): {"page": row["page"], "n": row["n"]}
            for row in rows
        } == found
        assert len(rows) == len(found)
        pages = Counter()
        for click in found.values():
            pages[click["page"]] += click["n"]
        assert {row["page"]: row["n"] for row in table(self.lake, "pages")} == pages

    def read(self):
        """Up to where the tables say that they go, and how many records they have seen."""
        so_far = infos(self.lake, "clicks")[-1]["so_far"]
        return so_far["ranges"][self.topic], so_far["counts"]["rows_in"]

    @property
    def arguments(self):
        return ("replay", "clickstream", "--topic", self.topic, "--lake", str(self.lake))


def ranges(document):
    return [(r["partition"], r["from"], r["to"], r["records"]) for r in document["ranges"]]


# --- counting ---


def transaction(bootstrap, topic):
    """It may stay open for as long as a test takes."""
    patience = {"transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic} | patience)
    producer.init_transactions(30)
    return producer


def test_a_dry_run_counts_records_and_not_offsets_and_needs_no_lake(headrace, kafka_cluster, rig):
    """Markers take offsets, what was aborted is no record, and what is open is not there yet."""
    with hr.Producer(kafka_cluster.bootstrap) as producer:
        for second in range(10):
            moment = START_MS + second * 1000
            producer.send(rig.topic, str(second), partition=0, timestamp=moment)
    sender = transaction(kafka_cluster.bootstrap, rig.topic)
    for count, end in ((3, sender.commit_transaction), (2, sender.abort_transaction)) * 2:
        sender.begin_transaction()
        for _ in range(count):
            sender.produce(rig.topic, b"x", partition=1, timestamp=START_MS)
        sender.flush(30)
        end(30)
    sender.begin_transaction()
    sender.produce(rig.topic, b"x", partition=1, timestamp=START_MS)
    sender.flush(30)

    found = headrace.json(*rig.arguments, "--from", "earliest", "--to", "latest")
    assert ranges(found) == [(0, 0, 10, 10), (1, 0, 14, 6), (2, 0, 0, 0)]
    assert (found["records"], found["executed"], found["done"]) == (16, False, 0)

    begin = datetime.fromtimestamp(START_MS / 1000 + 3, UTC).isoformat()
    end = f"@{START_MS + 8000}"
    by_time = headrace.json(*rig.arguments, "--from", begin, "--to", end)
    assert ranges(by_time)[0] == (0, 3, 8, 5)
    # The end of a range may be a marker, or an offset in the middle of what was aborted.
    named = headrace.json(*rig.arguments, "--from", "1:1", "--to", "1:5")
    assert ranges(named) == [(1, 1, 5, 2)]

    drawn = headrace(*rig.arguments, "--from", "5", "--to", "100")
    assert "nothing was written; add --execute" in drawn.stderr
    assert f"{rig.topic}[0] ends at 10, not at 100" in drawn.stderr
    empty = headrace(*rig.arguments, "--from", "7", "--to", "7", "--execute")
    assert "nothing to do" in empty.stderr
    assert not rig.lake.exists()
    sender.abort_transaction(30)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("clickstream", "--from", "1"), "give --from and --to"),
        (("clickstream", "--from", "soon", "--to", "latest"), "'soon' is no position"),
        (("clickstream", "--from", "9:1", "--to", "latest"), "has no partition 9"),
        (("clickstream", "--from", "0:1", "--to", "1:5"), "in one of --from and --to only"),
        (("nope", "--from", "0", "--to", "9"), "there is no pipeline 'nope'"),
    ],
)
def test_what_is_wrong_is_said(headrace, topic, arguments, complaint):
    done = headrace.refused(2, "replay", *arguments, "--topic", topic, "--lake", "lake")
    assert complaint in done.error


# --- doing it ---


def test_a_range_equals_the_same_slice_of_records_whatever_run_dies(
    rig, spark, monkeypatch, headrace
):
    """Each attempt dies after one more table; `latest` is what it was when the first began."""
    rig.send_clicks(149)
    rig.send(b"bad", b"bad")
    attempts = 0
    with monkeypatch.context() as patch:
        written = dying_after_each_write(patch)
        while len(written) == attempts < 4:
            with contextlib.suppress(HeadraceError):
                rig.replay("20", most=50)
            rig.send_clicks(3)  # they come after the range
            attempts += 1
    assert written == ["pages", "clicks", "dead_letters", "pages"]
    rig.replay("20", most=50)
    rig.assert_tables(20, 51, 51, 49)
    assert rig.read() == ({"0": [20, 51], "1": [20, 51], "2": [20, 49]}, 91)
    assert [row["value"] for row in table(rig.lake, "dead_letters")] == [b"bad", b"bad"]
    # The stream sends dead letters to their topic, a replay does not.
    assert f"{rig.topic}.clicks.dead" not in hr.Admin(rig.cluster.bootstrap).topic_names()

    before = len(infos(rig.lake, "clicks"))
    assert rig.replay("20", most=7).batches == 0
    assert len(infos(rig.lake, "clicks")) == before
    with pytest.raises(BadInput, match="holds another replay"):
        rig.replay("21")
    with held(str(rig.lake), "clicks"), pytest.raises(OperationFailed, match="another command"):
        rig.replay("20")

    # A stream goes on where the replay ended.
    rig.stream()
    rig.assert_tables(20, 99, 99, 99)


def test_what_a_batch_refuses_is_said_as_it_was(rig, spark):
    rig.send_clicks(9)
    strict = replace(CLICKS, expectations=(Expect("few", "n < 5", "fail"),))
    with pytest.raises(BadInput, match="4 rows do not meet 'few'") as refused:
        rig.replay(pipeline=strict)
    assert "let the expectation drop" in refused.value.hint
    assert not (rig.lake / "clicks").exists()


def test_tables_of_a_stream_are_not_mixed_with_a_replay(rig, spark):
    rig.send_clicks(9)
    rig.stream()
    with pytest.raises(BadInput, match="made by `headrace stream`") as refused:
        rig.replay("0", "5")
    assert "another --lake" in refused.value.hint
    # Spark itself refuses too, if the lake is one that only it can read.
    wish = Wish(rig.topic, "0", "5", of_topic(CLICKS, rig.topic), str(rig.lake))
    plan = Plan(wish, Replay(("0", "5"), {rig.topic: {"0": (0, 5)}}), {0: 5})
    with pytest.raises(BadInput, match="made by `headrace stream`"):
        execute_replay(plan, Doing(10), rig.connection)


def send(rig, events):
    with hr.Producer(rig.cluster.bootstrap) as producer:
        for event in events:
            producer.send(rig.topic, event.to_json(), headers=[("headrace-row", event.row)])


@pytest.mark.long(60)
def test_a_replay_that_is_killed_is_finished_by_the_same_command(rig, headrace, tmp_path):
    events = some_events(300)
    send(rig, events)
    arguments = (*rig.arguments, "--from", "earliest", "--to", "latest", "--execute")
    arguments = (*arguments, "--records-per-batch", "30", "-o", "json")
    log = rig.lake / "sessions" / "_delta_log"
    with headrace.killed(*arguments):
        eventually(
            lambda: len(list(log.glob("*.json"))) >= 2, "a second batch", SECONDS, every=0.01
        )
    send(rig, some_events(10, seed=9))
    counted = headrace.json(*rig.arguments, "--from", "earliest", "--to", "latest")
    assert counted["records"] == 300
    assert 0 < counted["done"] < 300
    assert any("begun by the same replay" in note for note in counted["notes"])
    done = headrace(*arguments, seconds=SECONDS).json
    assert done["executed"]
    assert done["rows_in"] == 300 - counted["done"]
    assert_tables(rig.lake, events)
