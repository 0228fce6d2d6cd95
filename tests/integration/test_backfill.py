"""`replay --missing`: what tables have lost is put back from the topic, and everything adds up."""

import contextlib

import pytest
from deltalake import DeltaTable

import headrace as hr
from headrace.clients import Connection
from headrace.errors import HeadraceError
from headrace.services.backfill import execute_backfill, plan_backfill
from headrace.services.reconcile_sources import ReconcileOptions, reconcile
from headrace.services.replay import Wish, of_topic
from support.lake import assert_tables, infos, some_events, table

pytest.importorskip("pyspark")

from headrace.spark.pipelines import CLICKSTREAM
from headrace.spark.pipelines.lake import Lake
from headrace.spark.pipelines.runner import StreamOptions, stream
from support.crash import Crash


class Rig:
    """A topic, a pipeline and its tables."""

    def __init__(self, cluster, topic, lake):
        self.topic, self.lake = topic, lake
        self.cluster, self.connection = cluster, Connection(cluster.bootstrap)

    def send(self, events, *, again=(), bad=()):
        """Events by turns to each partition, some again to the last, and bad ones to another."""
        placed = [(event, number % 3) for number, event in enumerate(events)]
        with hr.Producer(self.cluster.bootstrap) as producer:
            for event, partition in [*placed, *((event, 2) for event in again)]:
                headers = [("headrace-row", event.row)]
                producer.send(self.topic, event.to_json(), headers=headers, partition=partition)
            for value in bad:
                producer.send(self.topic, value, partition=1)

    def stream(self):
        options = StreamOptions(CLICKSTREAM, str(self.lake), topic=self.topic, show_lag=False)
        return stream(options, self.connection)

    def plan(self, begin="earliest", end="latest"):
        pipeline = of_topic(CLICKSTREAM, self.topic)
        return plan_backfill(
            Wish(self.topic, begin, end, pipeline, str(self.lake)), self.connection
        )

    @property
    def missing(self):
        """The command, but for what it is to do."""
        return (
            *("replay", "clickstream", "--missing"),
            *("--topic", self.topic, "--lake", str(self.lake)),
        )

    def put_back(self, **bounds):
        return execute_backfill(self.plan(**bounds), self.connection)

    def delete(self, condition, name="events"):
        return DeltaTable(str(self.lake / name)).delete(condition)["num_deleted_rows"]

    def balance(self):
        return reconcile(ReconcileOptions(self.topic, str(self.lake), full=True), self.connection)


@pytest.fixture
def rig(kafka_cluster, make_topic, tmp_path, spark, admin):
    name = make_topic(3)
    yield Rig(kafka_cluster, name, tmp_path / "lake")
    admin.delete_topic(f"{name}.clickstream.dead")


def test_deleted_rows_and_dead_letters_are_put_back_and_everything_balances(rig):
    events = some_events(60)
    rig.send(events, bad=[b"bad"])
    rig.stream()
    assert rig.delete("kafka_partition = 0 AND kafka_offset BETWEEN 5 AND 9") == 5
    assert rig.delete("kafka_partition = 1", "dead_letters") == 1
    assert rig.balance().missing == 6
    done = rig.put_back()
    assert (done.rows, done.dead) == (5, 1)
    assert_tables(rig.lake, events)
    assert [row["value"] for row in table(rig.lake, "dead_letters")] == [b"bad"]
    assert rig.balance().balanced
    assert rig.plan().is_empty


@pytest.mark.long(120)
def test_deleted_rows_lost_files_and_dead_letters_are_put_back(rig, headrace, monkeypatch):
    events = some_events(200)
    rig.send(events[:120], again=events[:15], bad=[b"bad"])
    rig.stream()
    rig.send(events[100:], bad=[b"worse"])
    rig.stream()
    assert rig.balance().balanced
    ranges = infos(rig.lake, "events")[-1]["so_far"]["ranges"]
    nothing = headrace(*rig.missing, "--execute", "-o", "json")
    assert (nothing.json["ranges"], nothing.json["rows"]) == ([], 0)
    assert "nothing is missing" in nothing.stderr

    delete_some_and_put_back_a_part(rig, headrace)
    die_before_the_other_tables(rig, monkeypatch)
    assert len(table(rig.lake, "events")) == len(events)
    assert rig.stream().batches == 0
    assert_tables(rig.lake, events)
    rig.delete("kafka_partition = 2 AND kafka_offset = 1")
    assert rig.put_back().rows == 1
    assert_tables(rig.lake, events)
    account = rig.balance()
    assert account.balanced, account
    assert infos(rig.lake, "events")[-1]["so_far"]["ranges"] == ranges
    assert sorted(row["value"] for row in table(rig.lake, "dead_letters")) == [b"bad", b"worse"]
    assert rig.plan().is_empty

    lose_a_file_and_put_back_its_rows(rig, headrace)
    assert_tables(rig.lake, events)
    assert rig.balance().balanced

    # The stream goes on.
    more = some_events(30, seed=1)
    rig.send(more)
    assert rig.stream().rows_in == 30
    assert_tables(rig.lake, [*events, *more])
    assert rig.balance().balanced


def delete_some_and_put_back_a_part(rig, headrace):
    """Some rows of one partition, all of another's beginning, and the dead letters."""
    gone = rig.delete("kafka_partition = 0 AND kafka_offset BETWEEN 5 AND 9")
    assert gone == 5
    rig.delete("kafka_partition = 2 AND kafka_offset < 3")
    assert rig.delete("kafka_partition = 1", "dead_letters") == 2
    found = headrace.json(*rig.missing, "--from", "0:0,2:0", "--to", "latest")
    assert [(r["partition"], r["from"], r["to"], r["records"]) for r in found["ranges"]] == [
        (0, 5, 10, 5),
        (2, 0, 3, 3),
    ]
    assert (found["records"], found["executed"]) == (8, False)
    part = rig.put_back(begin="0:0", end="0:7")
    assert (part.rows, part.dead) == (2, 0)
    assert rig.balance().missing == 8


def die_before_the_other_tables(rig, monkeypatch):
    """It dies after the rows are written: the stream that comes next makes the others anew."""
    original = Lake.overwrite

    def die(self, *_rest):
        raise Crash

    monkeypatch.setattr(Lake, "overwrite", die)
    with contextlib.suppress(HeadraceError):
        rig.put_back()
    monkeypatch.setattr(Lake, "overwrite", original)


def lose_a_file_and_put_back_its_rows(rig, headrace):
    """A file of the table is gone: its rows are found all the same."""
    file = next(path for path in sorted((rig.lake / "events").glob("*.parquet")) if is_live(path))
    file.unlink()
    plan = rig.plan()
    assert plan.lost == {"events": [file.name]}
    assert plan.total > 0
    done = headrace.json(*rig.missing, "--execute")
    assert done["rows"] == done["records"] == plan.total


def is_live(path):
    return any(uri.endswith(path.name) for uri in DeltaTable(str(path.parent)).file_uris())
