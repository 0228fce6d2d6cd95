"""Avro through a real schema registry and a real broker: evolution, refusals, a registry that dies.

One cluster of one broker, with the registry beside it, for the whole file.
"""

import importlib.util
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from headrace.clients import Admin, Producer, Reader
from headrace.errors import (
    DecodeFailed,
    IncompatibleSchema,
    RegistryUnreachable,
    SchemaNotFound,
)
from headrace.local import LocalCluster
from headrace.serde import Avro, Field, Registry, Serde
from support.cli import Cli
from support.processes import is_alive
from support.waiting import eventually

STATUS = {
    "type": "enum",
    "name": "AlertStatus",
    "doc": "How bad it is.",
    "symbols": ["Critical", "Major", "Minor", "Warning"],
}
SENSOR = {"name": "sensor_id", "type": "long", "doc": "The sensor that spoke."}
TIME = {"name": "time", "type": "long", "doc": "When, in milliseconds since 1970 (UTC)."}


def alert(*fields: dict[str, Any]) -> dict[str, Any]:
    """The schema `Alert` of the e-bike factory, with more fields on demand."""
    return {
        "type": "record",
        "name": "Alert",
        "namespace": "org.kafkainaction",
        "doc": "What a sensor of an e-bike reports.",
        "fields": [SENSOR, TIME, {"name": "status", "type": STATUS}, *fields],
    }


OLD = alert()
NEW = alert({"name": "recovery", "type": "string", "default": "call a mechanic"})
BROKEN = alert({"name": "recovery", "type": "string"})
VALUE = {"sensor_id": 2**60, "time": 1_570_000_000_123, "status": "Critical"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(1, registry=True) as running:
        yield running


@pytest.fixture
def registry(cluster: LocalCluster) -> Registry:
    assert cluster.registry is not None
    return Registry(cluster.registry)


@pytest.fixture
def topic(cluster: LocalCluster) -> Iterator[str]:
    name = f"alerts-{secrets.token_hex(3)}"
    admin = Admin(cluster.bootstrap)
    admin.create_topic(name)
    yield name
    admin.delete_topic(name)


@pytest.fixture
def headrace(cluster: LocalCluster, tmp_path: Path) -> Cli:
    assert cluster.registry is not None
    variables = {"HEADRACE_BOOTSTRAP": cluster.bootstrap, "HEADRACE_REGISTRY": cluster.registry}
    return Cli(tmp_path, variables)


def send(cluster: LocalCluster, topic: str, serde: Serde[Any], *values: Any) -> None:
    with Producer(cluster.bootstrap) as producer:
        for value in values:
            producer.send(topic, serde.encode(value, Field(topic)))


def read(cluster: LocalCluster, topic: str, serde: Serde[Any]) -> list[Any]:
    with Reader(topic, connection=cluster.bootstrap) as reader:
        return [
            serde.decode(each.value, Field(topic, "value", each.partition, each.offset))
            for batch in reader.batches()
            for each in batch
        ]


def test_records_go_through_the_broker_with_the_id_of_their_schema(
    cluster: LocalCluster, registry: Registry, topic: str
) -> None:
    """What is written with a registry is read back, a tombstone included."""
    serde = Avro(OLD, registry)
    send(cluster, topic, serde, VALUE, None)
    assert read(cluster, topic, Avro(OLD, Registry(registry.url))) == [VALUE, None]
    stored = registry.get(f"{topic}-value")
    assert (stored.version, json.loads(stored.text)) == (1, OLD)
    data = serde.encode(VALUE, Field(topic))
    assert data is not None
    assert data[:5] == b"\x00" + stored.id.to_bytes(4, "big")


def test_old_and_new_readers_and_writers_mix(
    cluster: LocalCluster, registry: Registry, topic: str
) -> None:
    """A field added with a default: new readers read old data, old readers read new data."""
    old, new = Avro(OLD, registry), Avro(NEW, registry)
    send(cluster, topic, old, VALUE)
    registry.set_compatibility("FULL", f"{topic}-value")
    send(cluster, topic, new, VALUE | {"recovery": "stop"})
    assert registry.versions(f"{topic}-value") == [1, 2]
    assert read(cluster, topic, Avro(NEW, Registry(registry.url))) == [
        VALUE | {"recovery": "call a mechanic"},
        VALUE | {"recovery": "stop"},
    ]
    assert read(cluster, topic, Avro(OLD, Registry(registry.url))) == [VALUE, VALUE]


def test_an_incompatible_change_is_refused_with_reasons(registry: Registry, topic: str) -> None:
    """A field without a default breaks readers of old data: nothing is registered, or written."""
    subject = f"{topic}-value"
    registry.register(subject, OLD)
    registry.set_compatibility("BACKWARD", subject)
    verdict = registry.check(subject, BROKEN)
    assert not verdict.compatible
    assert any("recovery" in reason for reason in verdict.reasons)
    assert registry.check(subject, NEW).compatible
    assert registry.check(f"{subject}-new", BROKEN).new
    for call in (
        lambda: registry.register(subject, BROKEN),
        lambda: Avro(BROKEN, registry).encode(VALUE | {"recovery": ""}, Field(topic)),
    ):
        with pytest.raises(IncompatibleSchema) as caught:
            call()
        assert any("recovery" in reason for reason in caught.value.facts["reasons"])
    assert registry.versions(subject) == [1]


def test_an_independent_reader_reads_what_is_written_here(registry: Registry, topic: str) -> None:
    """confluent-kafka's own Avro deserializer takes our bytes, and we take its serializer's."""
    client = SchemaRegistryClient({"url": registry.url, "timeout": 20})
    by_topic = {"subject.name.strategy.type": "TOPIC"}  # the default asks for associations
    context = SerializationContext(topic, MessageField.VALUE)
    serde = Avro(NEW, registry)
    value = VALUE | {"recovery": "stop"}
    ours = serde.encode(value, Field(topic))
    assert AvroDeserializer(client, conf=by_topic)(ours, context) == value
    theirs = AvroSerializer(client, json.dumps(NEW), conf=by_topic)(value, context)
    assert serde.decode(theirs, Field(topic)) == value


def test_classes_written_from_the_schema_carry_the_records(
    cluster: LocalCluster, registry: Registry, topic: str, headrace: Cli, tmp_path: Path
) -> None:
    """`headrace schema classes` writes what `Avro(Alert)` sends and gives back."""
    (tmp_path / "alert.avsc").write_text(json.dumps(NEW))
    headrace("schema", "classes", "alert.avsc", "--out", "alerts.py")
    classes = load(tmp_path / "alerts.py")
    serde = Avro(classes.Alert, registry)
    value = classes.Alert(sensor_id=1, time=2, status=classes.AlertStatus.Major)
    send(cluster, topic, serde, value)
    assert read(cluster, topic, serde) == [value]
    assert read(cluster, topic, Avro(OLD, registry)) == [
        {"sensor_id": 1, "time": 2, "status": "Major"}
    ]


def test_what_the_registry_does_not_know_is_told(registry: Registry, topic: str) -> None:
    """Unknown subjects, versions and ids; an unknown id in a record names the record."""
    registry.register(f"{topic}-value", OLD)
    for call in (
        lambda: registry.get("nosuch"),
        lambda: registry.get(f"{topic}-value", 99),
        lambda: registry.schema(2**31 - 1),
        lambda: registry.lookup(f"{topic}-value", NEW),
    ):
        with pytest.raises(SchemaNotFound):
            call()
    with pytest.raises(DecodeFailed, match="knows no schema with the id 2147483647") as caught:
        Avro(OLD, registry).decode(b"\x00\x7f\xff\xff\xff\x02", Field(topic, "value", 0, 7))
    assert caught.value.facts["offset"] == 7
    assert caught.value.facts["first_bytes"] == "00 7f ff ff ff 02"


def test_the_command_line_lists_gets_registers_and_checks(
    headrace: Cli, registry: Registry, topic: str, tmp_path: Path
) -> None:
    """`headrace schema` on the real registry; an incompatible schema is exit 1, with reasons."""
    for name, schema in (("old", OLD), ("new", NEW), ("broken", BROKEN)):
        (tmp_path / f"{name}.avsc").write_text(json.dumps(schema))
    subject = f"{topic}-value"
    assert headrace.json("schema", "register", subject, "old.avsc")["version"] == 1
    registry.set_compatibility("BACKWARD", subject)
    assert headrace.json("schema", "check", subject, "new.avsc")["compatible"] is True
    refused = headrace("schema", "check", subject, "broken.avsc", "-o", "json", status=1)
    assert refused.json["compatible"] is False
    assert any("recovery" in reason for reason in refused.json["reasons"])
    assert "recovery" in headrace.refused(1, "schema", "register", subject, "broken.avsc").error
    assert headrace.json("schema", "register", subject, "new.avsc")["version"] == 2
    assert headrace.json("schema", "get", subject)["schema"] == NEW
    assert headrace.json("schema", "get", subject, "--version", "1")["schema"] == OLD
    assert {"subject": subject, "versions": [1, 2]} in headrace.json("schema", "list")
    headrace.refused(1, "schema", "get", "nosuch")


def test_a_registry_that_is_killed_is_told_and_used_again_when_it_is_back(
    cluster: LocalCluster, registry: Registry, topic: str
) -> None:
    """SIGKILL: a clear error within seconds, what is known goes on, and then recovery by itself."""
    known = Avro(OLD, registry)
    data = known.encode(VALUE, Field(topic))
    assert known.decode(data, Field(topic)) == VALUE
    fresh = Avro(OLD, Registry(registry.url))
    kill_registry(cluster)
    began = time.monotonic()
    for call in (
        lambda: fresh.decode(data, Field(topic, "value", 0, 1)),
        lambda: fresh.encode(VALUE, Field(topic)),
        lambda: Avro(NEW, registry).encode(VALUE, Field(topic)),
        registry.subjects,
    ):
        with pytest.raises(RegistryUnreachable, match=registry.url) as caught:
            call()
        assert caught.value.retryable
    assert time.monotonic() - began < 20
    assert known.decode(data, Field(topic)) == VALUE
    assert known.encode(VALUE, Field(topic)) == data

    cluster.up()
    assert fresh.decode(data, Field(topic)) == VALUE
    assert fresh.encode(VALUE, Field(topic)) == data
    assert f"{topic}-value" in registry.subjects()


def kill_registry(cluster: LocalCluster) -> None:
    (server,) = [each for each in cluster.status().services if each.node == "registry"]
    assert server.pid is not None
    process = psutil.Process(server.pid)
    os.kill(server.pid, signal.SIGKILL)
    eventually(lambda: not is_alive(process), "the registry is gone")


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
