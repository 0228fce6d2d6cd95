"""Pipelines of Avro and CSV values, from a topic to tables, with a real registry.

One cluster of one broker, with the registry beside it, for the whole file.
"""

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal

import psutil
import pytest

import headrace as hr
from headrace.clients import Admin, Connection
from headrace.errors import HeadraceError, RegistryUnreachable
from headrace.local import LocalCluster
from headrace.serde import Registry
from headrace.serde.avro import wire_header
from headrace.spark.pipelines import CLICKSTREAM, Avro, Field, Pipeline, Rows, Topic
from headrace.spark.pipelines.runner import StreamOptions, stream
from support.cli import Cli
from support.ingest import lines, records, write_file
from support.lake import infos, table
from support.processes import kill
from support.waiting import eventually
from support.warnings import Warnings

pytest.importorskip("pyspark")

from headrace.spark.ingest.job import ingest
from headrace.spark.ingest.options import IngestOptions
from headrace.spark.ingest.schema import CLICKSTREAM as ROWS
from headrace.spark.pipelines import querying
from support.crash import dying_after_each_write
from support.streaming import reading


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(1, registry=True) as running:
        yield running


@pytest.fixture
def rig(cluster, tmp_path, spark):
    return Rig(cluster, tmp_path)


class Rig:
    """Topics with values, and the tables that a pipeline makes of them."""

    def __init__(self, cluster, folder):
        self.cluster, self.lake = cluster, folder / "lake"
        self.topic = self.new_topic()
        self.connection = Connection(cluster.bootstrap, cluster.registry)
        self.registry = Registry(cluster.registry)

    @property
    def dead_topic(self):
        return f"{self.topic}.clicks.dead"

    def new_topic(self):
        name = f"values-{secrets.token_hex(3)}"
        Admin(self.cluster.bootstrap).create_topic(name, 2)
        return name

    def send(self, schema, *values):
        serde = hr.Avro(schema, self.registry)
        with hr.Producer(self.cluster.bootstrap, value=serde) as producer:
            for value in values:
                producer.send(self.topic, value)

    def send_raw(self, *values):
        with hr.Producer(self.cluster.bootstrap) as producer:
            for value in values:
                producer.send(self.topic, value)

    def run(self, pipeline, connection=None, progress=None, stop=None, **options):
        wanted = StreamOptions(
            *(pipeline, str(self.lake)), **{"topic": self.topic, "group": self.topic} | options
        )
        return stream(wanted, connection or self.connection, progress, stop=stop)

    def rows(self, *names):
        return sorted(
            (tuple(row.get(name) for name in names) for row in table(self.lake, "clicks")), key=str
        )

    def reasons(self):
        return sorted(row["reason"] for row in table(self.lake, "dead_letters"))


def clicks(*fields, **more):
    return Pipeline("clicks", Topic("clicks", Avro(*fields, **more)), Rows("clicks"))


ODD = b'2019-10-01 00:00:00 UTC,view,1,2,"a ""b"", c",27" x 20",1.005,5,\n'
EMPTY = b'2019-10-01 00:00:01 UTC,view,1,2,"",,"3.10",5,"s"\n'


@pytest.mark.long(30)
def test_the_clickstream_is_the_same_from_json_avro_and_csv(rig, tmp_path):
    """Files through `ingest`, as values of each kind, to tables: quotes and empty columns too."""
    file = write_file(tmp_path / "f.csv", [*lines(200), ODD, EMPTY])
    found = {}
    for kind in ("json", "avro", "csv"):
        rig.topic, rig.lake = rig.new_topic(), tmp_path / kind
        sent = ingest(IngestOptions([str(file)], rig.topic, ROWS, value=kind), rig.connection)
        assert (sent.rows_sent, sent.rows_dead) == (202, 0)
        done = rig.run(replace(CLICKSTREAM, derived=()), value=kind)
        assert (done.rows_out, done.rows_dead) == (202, 0)
        own = [n for n in CLICKSTREAM.columns if not n.startswith("kafka_")]
        rows = [{name: row[name] for name in own} for row in table(rig.lake, "events")]
        found[kind] = sorted(rows, key=lambda row: row["row_id"])
    assert found["avro"] == found["json"]
    assert found["csv"] == found["json"]
    (odd,) = [row for row in found["csv"] if row["brand"] == '27" x 20"']
    assert (odd["category_code"], odd["price"]) == ('a "b", c', Decimal("1.01"))


def record(*fields, name="shop.Click"):
    return {"type": "record", "name": name, "fields": list(fields)}


PAGE, N = {"name": "page", "type": "string"}, {"name": "n", "type": ["null", "long"]}
COLOUR = {"name": "colour", "type": "string", "default": "red"}
SIZE = {"name": "size", "type": "double", "default": 0}


def test_records_of_several_schemas_are_read_in_one_batch(rig):
    """A field with a default is added, another one removed; one that is new becomes a column."""
    rig.send(record(PAGE, N), {"page": "a", "n": 1}, {"page": "b", "n": None})
    rig.send(record(PAGE, COLOUR, SIZE), {"page": "c", "colour": "blue", "size": 1.5})
    rig.send(record(COLOUR, SIZE), {"colour": "blue", "size": 2.5})
    fields = (Field("page", required=True), Field("n", "long"), Field("colour", required=True))
    done = rig.run(clicks(*fields, drift="evolve"))
    assert (done.batches, done.rows_in, done.rows_out) == (1, 4, 3)
    assert rig.rows("page", "n", "colour", "size") == [
        ("a", 1, "red", None),
        ("b", None, "red", None),
        ("c", None, "blue", "1.5"),
    ]
    assert rig.reasons() == ["page is missing or null"]


def test_avro_is_read_once_unless_a_schema_is_new_that_the_topic_does_not_name(rig, spark):
    old, new = record(PAGE), record(PAGE, N)
    rig.send(old, {"page": "a"}, {"page": "b"})
    with reading(spark) as read:
        rig.run(clicks(Field("page"), Field("n", "long")))
    assert read.records == 2
    number = rig.registry.register("another", new).id
    rig.send_raw(wire_header(number) + b"\x02c\x02\x0e", wire_header(2**31 - 1))
    with reading(spark) as read:
        done = rig.run(clicks(Field("page"), Field("n", "long")))
    assert (done.rows_in, done.rows_out, read.records) == (2, 1, 4)
    assert rig.rows("page", "n") == [("a", None), ("b", None), ("c", 7)]
    assert rig.reasons() == ["the registry knows no schema with the id 2147483647"]


def test_values_that_cannot_be_read_are_dead_letters_and_the_others_rows(rig):
    rig.send(record(PAGE, N), {"page": "a", "n": 1})
    (good,) = [each.value for each in records(rig.cluster, rig.topic)]
    bad = {
        b"\x01" + good[1:]: "the first byte is 0x01, Avro values begin with 0x00",
        good[:-1]: "the body ends too early, or is damaged",
        good[:3]: "too short for Avro: bytes 3",
        good + good: "something follows the record, or it is damaged",
        b"\0\x7f\0\0\1" + good[5:]: "the registry knows no schema with the id 2130706433",
    }
    rig.send_raw(*bad, good)
    spoilt = good.replace(b"\x02a", b"\x02\xff")  # Avro's strings are UTF-8, if nobody is careless
    bad[spoilt] = "page is no string: \ufffd"
    rig.send_raw(spoilt)
    done = rig.run(clicks(Field("page"), Field("n", "long")))
    assert (done.rows_out, done.rows_dead) == (2, len(bad))
    assert rig.rows("page", "n") == [("a", 1), ("a", 1)]
    dead = {each.value: dict(each.headers) for each in records(rig.cluster, rig.dead_topic)}
    assert {v: headers["headrace-reason"].decode() for v, headers in dead.items()} == bad
    assert rig.reasons() == sorted(bad.values())


@pytest.mark.long(20)
def test_without_its_registry_a_pipeline_stops_and_goes_on_when_it_is_back(rig):
    """Nothing of the batch is written meanwhile, dead letters neither."""
    pipeline = clicks(Field("page"))
    rig.send(record(PAGE), {"page": "a"})
    rig.run(pipeline)
    rig.send(record(PAGE), {"page": "b"})
    rig.send_raw(b"bad")
    gone = replace(rig.connection, registry="http://127.0.0.1:1")
    with pytest.raises(RegistryUnreachable, match=r"http://127\.0\.0\.1:1") as caught:
        rig.run(pipeline, gone)
    assert caught.value.hint
    assert rig.rows("page") == [("a",)]
    assert not (rig.lake / "dead_letters").exists()
    assert len(infos(rig.lake, "clicks")) == 1
    assert records(rig.cluster, rig.dead_topic) == []
    done = rig.run(pipeline)
    assert (done.rows_in, done.rows_out, done.rows_dead) == (2, 1, 1)
    assert rig.rows("page") == [("a",), ("b",)]
    assert len(records(rig.cluster, rig.dead_topic)) == 1


@pytest.mark.long(20)
def test_a_stream_waits_for_a_registry_that_was_killed_and_goes_on_by_itself(rig, monkeypatch):
    monkeypatch.setattr(querying, "SECONDS_BETWEEN_TRIES", 0.5)
    rig.send(record(PAGE), {"page": "a"})
    number = rig.registry.register(f"{rig.topic}-other", record(PAGE, N)).id
    told, stop = Warnings(), threading.Event()
    with ThreadPoolExecutor(1) as other:
        running = other.submit(
            *(rig.run, clicks(Field("page"), Field("n", "long"))),
            progress=told,
            stop=stop,
            every=0.2,
        )
        try:
            eventually((rig.lake / "clicks").exists, "a first batch", 120)
            (pid,) = [s.pid for s in rig.cluster.status().services if s.node == "registry"]
            kill([psutil.Process(pid)])
            rig.send_raw(wire_header(number) + b"\x02b\x02\x0e", b"bad")
            eventually(lambda: told.warnings, "it says that it waits", 120)
            assert not (rig.lake / "dead_letters").exists()
            rig.cluster.up()
            eventually((rig.lake / "dead_letters").exists, "it goes on", 120)
        finally:
            stop.set()
        running.result(120)
    assert all(rig.cluster.registry in warning for warning in told.warnings)
    rig.run(clicks(Field("page"), Field("n", "long")))  # if the batch was stopped half-way
    assert rig.rows("page", "n") == [("a", None), ("b", 7)]
    assert rig.reasons() == ["too short for Avro: bytes 3"]


@pytest.mark.long(20)
def test_a_schema_that_is_registered_between_two_attempts_at_a_batch(rig, monkeypatch):
    """Its record was a dead letter for the first and is a row for the second: not both."""
    pipeline = clicks(Field("page"), Field("n", "long"))
    first, second = (record(*f, name=f"N{secrets.token_hex(4)}") for f in ((PAGE,), (PAGE, N)))
    rig.send(first, {"page": "a"})
    number = rig.registry.get(f"{rig.topic}-value").id + 1  # what the next new schema will have
    rig.send_raw(wire_header(number) + b"\x02b\x02\x0e")
    dying_after_each_write(monkeypatch)
    with pytest.raises(HeadraceError):
        rig.run(pipeline)
    assert rig.reasons() == [f"the registry knows no schema with the id {number}"]
    monkeypatch.undo()
    assert rig.registry.register(f"{rig.topic}-other", second).id == number
    done = rig.run(pipeline)
    assert (done.rows_out, done.rows_dead) == (2, 0)
    assert rig.rows("page", "n") == [("a", None), ("b", 7)]
    assert rig.reasons() == []


@pytest.mark.usefixtures("spark")  # on the worker that has the registry
def test_the_command_line_says_that_avro_needs_a_registry(cluster, tmp_path):
    command = ("stream", "clickstream", "--lake", "lake", "--once", "--value", "avro")
    done = Cli(tmp_path, {"HEADRACE_BOOTSTRAP": cluster.bootstrap}).refused(2, *command)
    assert "there is no schema registry" in done.error
