"""The lag of Spark's queries: what is read is committed to a group, and no query waits for that."""

import contextlib
import threading

import pytest

import headrace as hr
from headrace.clients import Admin, Connection
from headrace.errors import KafkaFailure
from headrace.model import Latest, TopicPartition
from headrace.spark.pipelines.lag import LagCommitter, LagListener
from headrace.spark.pipelines.querying import heard_by
from support.crash import dying_before
from support.lake import some_events, table
from support.pipelines import Rig, simple
from support.waiting import eventually
from support.warnings import Warnings

CLICK = (b'{"page": "a", "n": 1}', None)


@pytest.fixture
def rig(kafka_cluster, make_topic, tmp_path, spark):
    return Rig(kafka_cluster, make_topic(3), tmp_path / "lake")


def ends(admin, topic):
    return admin.offsets([TopicPartition(topic, number) for number in range(3)], Latest())


def test_each_batch_is_committed_while_the_pipeline_runs(rig, admin):
    told, stop = [], threading.Event()

    def look(batch):
        told.append(batch)
        wanted = 3 if len(told) == 1 else 4
        eventually(lambda: sum(admin.committed(rig.group).values()) == wanted, "its offsets")
        if len(told) == 1:
            rig.send_raw([CLICK])
        else:
            stop.set()

    rig.send_raw([CLICK] * 3)
    rig.run(simple(), look, stop, every=0.1)
    assert sum(told[0].offsets.values()) == 3
    assert told[1].offsets == admin.committed(rig.group) == ends(admin, rig.topic)


def test_a_driver_that_dies_before_it_commits_leaves_no_lag_behind(rig, admin, monkeypatch):
    """The tables know how far they are: the next run says so, though nothing is left to read."""
    rig.send_raw([CLICK] * 3)
    monkeypatch.setattr(LagCommitter, "note", lambda *_: None)
    rig.run(simple())
    monkeypatch.undo()
    assert rig.group not in admin.group_names()
    rig.run(simple())
    assert admin.committed(rig.group) == ends(admin, rig.topic)


def test_a_batch_that_fails_is_not_committed(rig, admin, monkeypatch):
    rig.send_raw([CLICK] * 3)
    rig.run(simple())
    rig.send_raw([CLICK] * 2)
    dying_before(monkeypatch, "clicks")
    with pytest.raises(hr.HeadraceError):
        rig.run(simple())
    assert sum(admin.committed(rig.group).values()) == 3


def test_a_group_that_cannot_be_written_stops_no_pipeline(rig, monkeypatch):
    def refuse(*_):
        raise KafkaFailure("no", hint="never mind")

    monkeypatch.setattr(Admin, "set_committed", refuse)
    rig.send_raw([CLICK] * 3)
    told = Warnings()
    assert rig.run(simple(), progress=told).rows_out == len(table(rig.lake, "clicks")) == 3
    assert told.warnings == [f"the lag of group {rig.group} is not up to date: no"]


def test_a_query_of_ones_own_shows_its_lag(kafka_cluster, make_topic, spark, admin, tmp_path):
    topic, connection = make_topic(3), Connection(kafka_cluster.bootstrap)
    rig = Rig(kafka_cluster, topic, tmp_path)
    rig.send(some_events(20))
    reader = spark.readStream.format("kafka").option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", connection.bootstrap)
    records = reader.option("startingOffsets", "earliest").load()

    def run(name):
        writer = records.writeStream.format("noop").queryName(name).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / name)).start().awaitTermination()

    listener = LagListener(rig.group, connection, query=f"{topic}-mine")
    with contextlib.closing(listener), heard_by(spark, listener):
        run(f"{topic}-other")
        run(f"{topic}-mine")
    assert admin.committed(rig.group) == ends(admin, topic)
    assert sum(ends(admin, topic).values()) == 20
