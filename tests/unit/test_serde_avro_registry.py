"""Avro with a registry: the wire format, schemas that change, ids that are asked for once."""

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import (
    ConfigError,
    DecodeFailed,
    IncompatibleSchema,
    RegistryUnreachable,
    SchemaNotFound,
)
from headrace.serde import Avro, Field, Registry
from support.decoding import decode_or_refuse
from support.fake_registry import FakeRegistry

AT = Field("alerts", "value", 2, 9)


def record(*fields, name="Alert"):
    return {"type": "record", "name": name, "fields": list(fields)}


ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": "string", "default": "none"}
OLD = record(ID)
NEW = record(ID, NOTE)


@pytest.fixture
def fake():
    server = FakeRegistry()
    yield server
    server.stop()


@pytest.fixture
def registry(fake):
    return Registry(fake.url, timeout=30)


def test_the_wire_format_is_a_zero_the_id_and_the_body(fake, registry):
    fake.add("string")
    data = Avro(OLD, registry).encode({"id": 1}, AT)
    assert data == b"\x00" + b"\x00\x00\x00\x02" + b"\x02"
    assert Avro(OLD, registry).decode(data, AT) == {"id": 1}
    assert fake.versions == {"alerts-value": [2]}


def test_a_schema_is_registered_and_fetched_once(fake, registry):
    serde = Avro(OLD, registry)
    data = [serde.encode({"id": n}, AT) for n in range(50)]
    asked = len(fake.requests)
    assert [serde.decode(each, AT)["id"] for each in data] == list(range(50))
    assert asked <= 2
    assert len(fake.requests) <= asked + 1
    other = Avro(OLD, registry)
    other.decode(other.encode({"id": 1}, AT), AT)
    assert len(fake.requests) <= asked + 1  # the registry remembers, too


def test_a_writers_schema_is_parsed_once(fake, registry, monkeypatch):
    asked = []
    parse = registry.avro_schema
    monkeypatch.setattr(registry, "avro_schema", lambda n: asked.append(n) or parse(n))
    data = Avro(NEW, registry).encode({"id": 1}, AT)
    reader = Avro(OLD, registry)
    assert [reader.decode(data, AT) for _ in range(5)] == [{"id": 1}] * 5
    assert asked == [1]


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("topic", "alerts-key"),
        ("record", "Alert"),
        ("topic-record", "alerts-Alert"),
        (lambda field, record: f"{field.part}/{record}", "key/Alert"),
    ],
)
def test_the_subject_is_named_by_the_strategy(fake, registry, strategy, subject):
    serde = Avro(OLD, registry, subject=strategy)
    serde.encode({"id": 1}, Field("alerts", "key"))
    assert list(fake.versions) == [subject] == [serde.subject(Field("alerts", "key"))]


def test_an_unknown_strategy_is_refused_at_once(registry):
    with pytest.raises(ConfigError, match="subject='topics'"):
        Avro(OLD, registry, subject="topics")


def test_without_auto_register_only_registered_schemas_are_used(fake, registry):
    serde = Avro(OLD, registry, auto_register=False)
    with pytest.raises(SchemaNotFound):
        serde.encode({"id": 1}, AT)
    assert fake.versions == {}
    number = registry.register("alerts-value", OLD).id
    assert serde.encode({"id": 1}, AT) == b"\x00" + number.to_bytes(4, "big") + b"\x02"


# --- evolution ---


def test_a_new_reader_fills_what_old_records_lack(registry):
    old, new = Avro(OLD, registry), Avro(NEW, registry)
    assert new.decode(old.encode({"id": 1}, AT), AT) == {"id": 1, "note": "none"}


def test_an_old_reader_ignores_what_new_records_add(registry):
    old, new = Avro(OLD, registry), Avro(NEW, registry)
    assert old.decode(new.encode({"id": 1, "note": "x"}, AT), AT) == {"id": 1}


@dataclass
class Alert:
    id: int
    tags: list[str]
    at: datetime
    __avro_schema__: ClassVar = record(
        ID,
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {
            "name": "at",
            "type": {"type": "long", "logicalType": "timestamp-millis"},
            "default": 1000,
        },
    )


def test_defaults_are_whole_values_and_each_record_has_its_own(registry):
    data = Avro(OLD, registry).encode({"id": 1}, AT)
    moment = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    reader = Avro(Alert, registry)
    first, second = reader.decode(data, AT), reader.decode(data, AT)
    assert first == second == Alert(1, [], moment)
    assert first.tags is not second.tags
    plain = Avro(Alert.__avro_schema__, registry)
    assert plain.decode(data, AT) == {"id": 1, "tags": [], "at": moment}
    assert plain.decode(data, AT)["tags"] is not plain.decode(data, AT)["tags"]


def test_a_field_that_becomes_optional_reads_both_ways(registry):
    inner = {"type": "record", "name": "Inner", "fields": [ID]}
    strict = Avro(record({"name": "f", "type": inner}), registry)
    loose = Avro(
        record(
            {"name": "f", "type": ["null", inner]}, {"name": "l", "type": "bytes", "default": ""}
        ),
        registry,
    )
    value = {"f": {"id": 1}}
    assert loose.decode(strict.encode(value, AT), AT) == {"f": {"id": 1}, "l": b""}
    assert strict.decode(loose.encode(value, AT), AT) == value


def test_a_writers_schema_that_does_not_resolve_is_a_decoding_error(registry):
    text = Avro(record({"name": "id", "type": "string"}), registry, subject="record")
    with pytest.raises(DecodeFailed, match="does not resolve to this one"):
        Avro(OLD, registry).decode(text.encode({"id": "x"}, AT), AT)


def test_a_refused_schema_is_told_with_reasons_and_not_remembered(fake, registry):
    Avro(OLD, registry).encode({"id": 1}, AT)
    fake.objections = ["the field note has no default"]
    changed = Avro(NEW, registry)
    with pytest.raises(IncompatibleSchema, match="the field note has no default"):
        changed.encode({"id": 1}, AT)
    fake.objections = []
    assert changed.encode({"id": 1}, AT)


def test_types_of_other_subjects_are_found(fake, registry):
    inner = {"type": "record", "name": "n.Inner", "fields": [ID]}
    fake.versions["inner"] = [fake.add(inner)]
    middle = {
        "type": "record",
        "name": "n.Middle",
        "fields": [{"name": "i", "type": "n.Inner"}],
    }
    to_inner = {"name": "n.Inner", "subject": "inner", "version": 1}
    fake.versions["middle"] = [fake.add(middle, references=[to_inner])]
    outer = record({"name": "m", "type": "n.Middle"}, {"name": "i", "type": "n.Inner"})
    number = fake.add(
        outer, references=[to_inner, {"name": "n.Middle", "subject": "middle", "version": 1}]
    )
    whole = record(
        {"name": "m", "type": {**middle, "fields": [{"name": "i", "type": inner}]}},
        {"name": "i", "type": "n.Inner"},
    )
    data = b"\x00" + number.to_bytes(4, "big") + b"\x02\x04"
    assert Avro(whole, registry).decode(data, AT) == {"m": {"i": {"id": 1}}, "i": {"id": 2}}


# --- bytes that are wrong ---


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "too short for the wire format"),
        (b"\x00\x00\x00\x00", "too short for the wire format"),
        (b'{"id": 1}', "the first byte is 0x7b, the wire format begins with 0x00"),
        (b"\x00\x00\x00\x27\x0f\x02", "the registry knows no schema with the id 9999"),
        (b"\x00\xff\xff\xff\xff\x02", "the registry knows no schema with the id -1"),
        (b"\x00\x00\x00\x00\x01", "the body ends too early"),
        (b"\x00\x00\x00\x00\x01\x02\x02", "1 bytes are left after the value"),
        (b"\x00\x00\x00\x00\x02\x02", "schema 2 is of type PROTOBUF, not Avro"),
        (b"\x00\x00\x00\x00\x03\x02", "schema 3 is no Avro schema"),
        (b"\x00\x00\x00\x00\x04\x02", "an array's items take no bytes"),
    ],
)
def test_a_record_that_is_no_record_says_why(fake, registry, data, complaint):
    fake.add(OLD)
    fake.add('syntax = "proto3";', "PROTOBUF")
    fake.add("nonsense")
    fake.add({"type": "array", "items": "null"})
    with pytest.raises(DecodeFailed, match=complaint) as caught:
        Avro(OLD, registry).decode(data, AT)
    facts = caught.value.facts
    assert (facts["topic"], facts["part"], facts["partition"], facts["offset"]) == (
        *("alerts", "value"),
        *(2, 9),
    )
    assert facts["first_bytes"] == data[:16].hex(" ")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.binary(max_size=30) | st.binary(max_size=30).map(lambda b: b"\0\0\0\0\1" + b))
def test_any_bytes_are_a_value_or_a_decoding_error(fake, registry, data):
    if not fake.schemas:
        fake.add(NEW)
    decode_or_refuse(Avro(OLD, registry), data, AT)


# --- a registry that is away ---


def test_an_unreachable_registry_is_told_and_used_again_when_it_is_back(fake, registry):
    data = Avro(OLD, registry).encode({"id": 1}, AT)
    late = Avro(OLD, Registry(fake.url, timeout=1))
    fake.stop()
    for call in (lambda: late.decode(data, AT), lambda: late.encode({"id": 1}, AT)):
        with pytest.raises(RegistryUnreachable, match="no answer from the registry") as caught:
            call()
        assert caught.value.retryable
    fake.start()
    assert late.decode(data, AT) == {"id": 1}
    assert late.encode({"id": 1}, AT) == data


def test_what_is_known_is_used_though_the_registry_is_away(fake, registry):
    serde = Avro(OLD, registry)
    data = serde.encode({"id": 1}, AT)
    serde.decode(data, AT)
    fake.stop()
    assert serde.encode({"id": 1}, AT) == data
    assert serde.decode(data, AT) == {"id": 1}


def test_a_schema_that_comes_late_is_found(fake, registry):
    serde = Avro(OLD, registry)
    data = b"\x00\x00\x00\x00\x01\x02"
    with pytest.raises(DecodeFailed):
        serde.decode(data, AT)
    fake.add(OLD)
    assert serde.decode(data, AT) == {"id": 1}


def test_a_serde_with_its_registry_crosses_processes(fake):
    registry = Registry(fake.url, auth=("ada", "hunter2"))
    serde = pickle.loads(pickle.dumps(Avro(OLD, registry, subject="record")))
    serde.encode({"id": 1}, AT)
    assert list(fake.versions) == ["Alert"]
    assert repr(serde) == f"Avro(Alert, Registry('{fake.url}', user='ada'))"
