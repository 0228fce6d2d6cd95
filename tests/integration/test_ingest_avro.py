"""`ingest` with Avro values through a real registry: what others read is what the files hold.

One cluster of one broker, with the registry beside it, for the whole file.
"""

import json
import secrets
from collections import Counter
from datetime import UTC, date, datetime, timedelta

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from headrace.clients import Admin, Connection
from headrace.errors import IncompatibleSchema
from headrace.local import LocalCluster
from headrace.serde import Registry
from headrace.services.clickstream import rows
from support.cli import Cli
from support.ingest import dead_letters, event, json_line, lines, records, write_file

pytest.importorskip("pyspark")

from headrace.spark.ingest.job import ingest
from headrace.spark.ingest.options import IngestOptions
from headrace.spark.ingest.schema import CLICKSTREAM, RowSchema, find_schema

MICROS = {"type": "long", "logicalType": "timestamp-micros"}
STATUS = {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID"]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "doc": "What somebody bought.",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": MICROS},
        {"name": "status", "type": STATUS},
        {"name": "before", "type": ["null", "Status"], "default": None},
        {"name": "items", "type": "int"},
        {"name": "total", "type": ["double", "null"]},
        {"name": "weight", "type": ["null", "float"], "default": None},
        {"name": "gift", "type": "boolean"},
        {"name": "due", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "note", "type": "string"},
    ],
}
NOW = datetime.now(UTC).replace(microsecond=123_456) - timedelta(hours=1)
FULL = {
    "id": 2**60 + 1,
    "at": int(NOW.timestamp()) * 1_000_000 + 123_456,
    "status": "NEW",
    "before": "PAID",
    "items": -3,
    "total": 0.1,
    "weight": 0.5,
    "gift": True,
    "due": "2024-02-29",
    "note": 'é "quoted", \\ and more',
}
BARE = {**FULL, "id": 2, "before": None, "total": None, "weight": None, "due": None, "note": ""}
READ = {**FULL, "at": NOW, "due": date(2024, 2, 29)}
BAD = [
    ({**FULL, "status": "LOST"}, "status is no known value: LOST"),
    ({**FULL, "items": 2**31}, "items is no whole number of 32 bits: 2147483648"),
    ({**FULL, "note": None}, "note is missing or null"),
]


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(1, registry=True) as running:
        yield running


@pytest.fixture
def connection(cluster):
    return Connection(cluster.bootstrap, cluster.registry)


@pytest.fixture
def topic(cluster):
    name = f"orders-{secrets.token_hex(3)}"
    Admin(cluster.bootstrap).create_topic(name, 3)
    return name


@pytest.fixture
def send(spark, connection, topic):
    """Ingest a path into the topic, as Avro."""

    def run(path, schema, where=connection, **options):
        wanted = IngestOptions([str(path)], topic, schema, **{"value": "avro"} | options)
        return ingest(wanted, where)

    return run


@pytest.fixture
def order(tmp_path):
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    return find_schema(str(file))


def read_by_others(cluster, topic):
    """Each record's value, as confluent-kafka's own deserializer takes it."""
    registry = SchemaRegistryClient({"url": cluster.registry, "timeout": 20})
    # By the topic's name: the default asks for associations, which this registry does not have.
    by_topic = {"subject.name.strategy.type": "TOPIC"}
    deserialize = AvroDeserializer(registry, conf=by_topic)
    where = SerializationContext(topic, MessageField.VALUE)
    return [deserialize(record.value, where) for record in records(cluster, topic)]


def shown(value):
    return json.dumps(value, sort_keys=True, default=str)


def as_read(line):
    """An event of the clickstream as a reader of Avro has it."""
    found = event(line)
    moment = datetime.fromtimestamp(found["eventTime"] / 1000, UTC)
    return shown({**found, "eventTime": moment})


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_the_clickstream_is_read_back_by_confluents_own_deserializer(
    send, cluster, topic, tmp_path, format
):
    """Without a schema of its own, with bad rows; run again, nothing is sent or registered."""
    some = lines(300)
    file = write_file(tmp_path / "f.csv", [raw for raw, _ in rows(300, 0, 0.03)])
    if format == "jsonl":
        broken = [b"{\n"] * 9
        file = write_file(tmp_path / "f.jsonl", [*map(json_line, some), *broken], header=b"")
    good = some if format == "jsonl" else [raw for raw, kind in rows(300, 0, 0.03) if kind is None]
    first = send(file, CLICKSTREAM)
    assert (first.rows_sent, first.rows_dead) == (len(good), 9)
    assert Counter(map(shown, read_by_others(cluster, topic))) == Counter(map(as_read, good))
    assert len(dead_letters(cluster, topic)) == 9
    assert send(file, CLICKSTREAM).rows_skipped == first.rows_read
    assert Registry(cluster.registry).versions(f"{topic}-value") == [1]
    assert len(records(cluster, topic)) == len(good)


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_every_type_of_an_avro_schema_comes_back_as_it_was(
    send, order, cluster, topic, tmp_path, format
):
    """Nulls, symbols, microseconds, dates and ids beyond 2**53; what does not fit is dead."""
    some = [FULL, BARE, *(row for row, _ in BAD)]
    expected = [READ, {**BARE, "at": NOW}]
    if format == "jsonl":
        file, reasons = tmp_path / "f.jsonl", [reason for _, reason in BAD]
        file.write_text("".join(json.dumps(row) + "\n" for row in some))
    else:  # where an empty column is null, and so not allowed in a note
        some[1] = {**BARE, "note": "x"}
        expected[1]["note"] = "x"
        file, reasons = tmp_path / "f.csv", [*(told for _, told in BAD[:2]), "note is empty"]
        file.write_text("".join(csv_line(row) for row in some))
    send(file, order, event_time=True, key="id", max_bad=1)
    found = read_by_others(cluster, topic)
    assert sorted(map(shown, found)) == sorted(map(shown, expected))
    assert {type(value["weight"]) for value in found} == {float, type(None)}
    sent = records(cluster, topic)
    assert {record.key for record in sent} == {b"%d" % (2**60 + 1), b"2"}
    assert {record.timestamp for record in sent} == {FULL["at"] // 1000}
    stored = Registry(cluster.registry).get(f"{topic}-value")
    assert json.loads(stored.text) == ORDER
    assert {record.value[:5] for record in sent} == {b"\0" + stored.id.to_bytes(4, "big")}
    dead = dead_letters(cluster, topic)
    assert [dead[line][2] for line in sorted(dead)] == reasons


def csv_line(row):
    texts = ("" if value is None else str(value) for value in row.values())
    return ",".join('"' + text.replace('"', '""') + '"' for text in texts) + "\n"


def test_an_avro_schema_describes_rows_that_are_sent_as_json_too(
    send, order, cluster, topic, tmp_path
):
    file = tmp_path / "f.jsonl"
    file.write_text(json.dumps(FULL) + "\n")
    send(file, order, value="json")
    (record,) = records(cluster, topic)
    assert json.loads(record.value) == FULL


def test_a_schema_that_would_break_readers_is_refused_and_nothing_is_sent(
    send, connection, cluster, topic, tmp_path
):
    """And nothing is remembered of the file: with another schema it is sent."""
    Registry(cluster.registry).register(f"{topic}-value", ORDER)
    file = write_file(tmp_path / "f.csv", lines(5))
    with pytest.raises(IncompatibleSchema, match=f"{topic}-value"):
        send(file, CLICKSTREAM)
    assert records(cluster, topic) == []
    write_file(file, lines(5, seed=1))  # no "has changed": it was never sent
    assert send(file, CLICKSTREAM, value="json").rows_sent == 5


def test_at_least_once_sends_avro_too(send, cluster, topic, tmp_path):
    some = lines(20)
    send(write_file(tmp_path / "f.csv", some), CLICKSTREAM, guarantee="at-least-once")
    assert Counter(map(shown, read_by_others(cluster, topic))) == Counter(map(as_read, some))


def test_a_growing_schema_is_a_new_version_and_old_records_stay_readable(
    send, cluster, topic, tmp_path
):
    """A column that may be empty is added; a reader meets both kinds of records."""
    short = RowSchema("clicks", CLICKSTREAM.columns[:8])
    cut = [raw.rsplit(b",", 1)[0] + b"\n" for raw in lines(5)]
    send(write_file(tmp_path / "old.csv", cut, header=b""), short)
    longer = RowSchema("clicks", CLICKSTREAM.columns)
    send(write_file(tmp_path / "new.csv", lines(5, seed=1)), longer)
    found = read_by_others(cluster, topic)
    assert Counter("userSession" in value for value in found) == {True: 5, False: 5}
    assert Registry(cluster.registry).versions(f"{topic}-value") == [1, 2]


@pytest.mark.long(60)
def test_the_command_line_sends_avro_and_says_what_is_wrong_with_the_registry(
    cluster, topic, tmp_path
):
    """No registry is bad usage, an unreachable one a failure; nothing is sent either way."""
    file = write_file(tmp_path / "f.ndjson", map(json_line, lines(5)), header=b"")
    command = ("ingest", str(file), "--topic", topic, "--value", "avro")
    reachable = {"HEADRACE_BOOTSTRAP": cluster.bootstrap}
    done = Cli(tmp_path, reachable)(*command, status=2)
    assert "there is no schema registry" in done.error
    gone = reachable | {"HEADRACE_REGISTRY": "http://127.0.0.1:1"}
    done = Cli(tmp_path, gone)(*command, status=1)
    assert "no answer from the registry at http://127.0.0.1:1" in done.error
    done = Cli(tmp_path, reachable)(
        "ingest", str(file), "--topic", topic, "--value", "csv", status=2
    )
    assert f"{file} is jsonl" in done.error
    assert records(cluster, topic) == []
    there = reachable | {"HEADRACE_REGISTRY": cluster.registry}
    sent = Cli(tmp_path, there)(*command, "-o", "json").json
    assert (sent["rows_sent"], sent["rows_dead"]) == (5, 0)
    assert len(read_by_others(cluster, topic)) == 5
