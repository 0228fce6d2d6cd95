"""Avro without a registry: values come back, misfits are named, no bytes do harm."""

import enum
import json
import math
import pickle
import time as clock
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import BadInput, DecodeFailed, EncodeFailed
from headrace.serde import Avro, Field
from support.avro import EVERYTHING, EVERYTHING_DEFAULTS, schemas_with_values
from support.decoding import decode_or_refuse

AT = Field("alerts", "value", 2, 9)
ALERT = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "sensor_id", "type": "long"},
        {"name": "time", "type": "long"},
        {
            "name": "status",
            "type": {"type": "enum", "name": "Status", "symbols": ["Critical", "Major"]},
        },
    ],
}
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"], "default": None}],
}
alike = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def one(type_, **more):
    return Avro({"type": "record", "name": "R", "fields": [{"name": "f", "type": type_, **more}]})


# --- what goes in comes out ---


@alike
@given(schemas_with_values())
def test_any_value_of_any_schema_comes_back(pair):
    schema, value = pair
    serde = Avro(schema)
    assert serde.decode(serde.encode(value, AT), AT) == value


@alike
@given(schemas_with_values(), st.binary(max_size=60))
def test_any_bytes_are_a_value_or_a_decoding_error(pair, data):
    decode_or_refuse(Avro(pair[0]), data, AT)


@given(st.binary(max_size=200))
def test_any_bytes_are_harmless_to_every_kind_of_type(data):
    for serde in (Avro(EVERYTHING), Avro(NODE), Avro(ALERT)):
        decode_or_refuse(serde, data, AT)


def test_a_body_is_the_bytes_of_the_specification():
    value = {"sensor_id": 1, "time": -1, "status": "Major"}
    assert Avro(ALERT).encode(value, AT) == b"\x02\x01\x02"
    assert one(["null", "string"]).encode({"f": "ab"}, AT) == b"\x02\x04ab"


def test_a_field_left_out_has_its_default():
    serde = Avro(EVERYTHING)
    back = serde.decode(serde.encode({"id": 7}, AT), AT)
    assert back == {"id": 7, **EVERYTHING_DEFAULTS}


def test_a_default_may_contain_its_own_record_but_not_for_ever():
    def tree(default):
        kids = {"name": "kids", "type": {"type": "array", "items": "Tree"}, "default": default}
        return {"type": "record", "name": "Tree", "fields": [{"name": "x", "type": "int"}, kids]}

    serde = Avro(tree([{"x": 1, "kids": []}]))
    back = serde.decode(serde.encode({"x": 0}, AT), AT)
    assert back == {"x": 0, "kids": [{"x": 1, "kids": []}]}
    with pytest.raises(BadInput, match=r"the default of Tree\.kids does not fit"):
        Avro(tree([{"x": 1}]))


def test_unions_keep_what_they_are_given():
    union = one(["null", "float", "double", "int", "long", "string", "boolean"])
    for value in (None, 0.1, 5, 2**40, "5", True, math.inf):
        back = union.decode(union.encode({"f": value}, AT), AT)["f"]
        assert back == value
        assert type(back) is type(value)


def test_a_dict_in_a_union_of_records_goes_where_its_fields_fit():
    def record(name, field):
        return {"type": "record", "name": name, "fields": [{"name": field, "type": "int"}]}

    union = one([record("A", "x"), record("B", "y"), {"type": "map", "values": "string"}])
    assert union.encode({"f": {"x": 1}}, AT)[:1] == b"\x00"
    assert union.encode({"f": {"y": 1}}, AT)[:1] == b"\x02"
    assert union.encode({"f": {"y": "z"}}, AT)[:1] == b"\x04"


def test_moments_of_any_zone_are_the_same_moment():
    serde = one({"type": "long", "logicalType": "timestamp-millis"})
    east = datetime(2020, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))
    back = serde.decode(serde.encode({"f": east}, AT), AT)["f"]
    assert back == east == datetime(2020, 1, 1, tzinfo=UTC)


# --- schemas ---


def test_a_schema_comes_from_a_file_a_dict_text_or_a_class(tmp_path):
    path = tmp_path / "alert.avsc"
    path.write_text(json.dumps(ALERT))
    value = {"sensor_id": 1, "time": 2, "status": "Major"}
    found = {Avro(given).encode(value, AT) for given in (ALERT, json.dumps(ALERT), path, str(path))}
    assert found == {b"\x02\x04\x02"}
    assert Avro(Alert).schema.source == Alert.__avro_schema__
    assert Avro("string").encode("ab", AT) == b"\x04ab"


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("nosuch.avsc", "cannot be read"),
        ("{", "this text is no Avro schema: not valid JSON"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "nosuch"}]}, "nosuch"),
        ({"type": "record", "fields": []}, '"name" is a required field'),
        ({"type": "enum", "name": "E", "symbols": ["a-b"]}, "symbol"),
        ({"name": "R"}, "no Avro schema"),
        ([], None),
        (5, "no Avro schema"),
        (["int", "int"], "a union has int more than once"),
        (["int", ["string"]], "a union stands directly in a union"),
        ({"type": "array", "items": "null"}, "an array's items take no bytes"),
        (
            {"type": "array", "items": {"type": "record", "name": "R", "fields": []}},
            "an array's items take no bytes",
        ),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2},
            "the field a more than once",
        ),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "a", "type": "int", "default": ""}],
            },
            "must match schema type",
        ),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "a", "type": ["null", "int"], "default": "x"}],
            },
            "must match a schema in union",
        ),
        (int, "int has no __avro_schema__"),
        (type("Plain", (), {"__avro_schema__": "string"}), "Plain is no dataclass"),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [
                    {
                        "name": "a",
                        "type": {"type": "long", "logicalType": "timestamp-millis"},
                        "default": 2**60,
                    }
                ],
            },
            "the default of R.a does not fit",
        ),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "a", "type": "bytes", "default": "\u1234"}],
            },
            "the default of R.a does not fit",
        ),
    ],
)
def test_what_is_no_schema_is_bad_input(schema, complaint):
    if complaint is None:
        Avro(schema)
        return
    with pytest.raises(BadInput, match=complaint) as caught:
        Avro(schema)
    assert caught.value.hint


# --- misfits ---


@pytest.mark.parametrize(
    ("type_", "value", "complaint"),
    [
        ("long", 1.5, "f: a whole number is needed, not float"),
        ("int", 2**31, "f: the number does not fit 32 bits"),
        ("long", 2**63, "f: the number does not fit 64 bits"),
        ("int", True, "f: a whole number is needed, not bool"),
        ("boolean", 1, "f: a bool is needed, not int"),
        ("null", 5, "f: None is needed, not int"),
        ("string", b"x", "f: text is needed, not bytes"),
        ("string", "\ud800", "f: not valid Unicode"),
        ("bytes", "x", "f: bytes is needed, not str"),
        ("float", 1e300, "f: the number does not fit a float of 32 bits"),
        ("double", "x", "f: a number is needed, not str"),
        ("double", 10**400, "f: the number does not fit a double"),
        ({"type": "array", "items": "int"}, [1, "x"], r"f\[1\]: a whole number is needed, not str"),
        ({"type": "array", "items": "int"}, "12", "f: a list is needed, not str"),
        ({"type": "map", "values": "int"}, {"k": None}, r"f\['k'\]: a whole number"),
        ({"type": "map", "values": "int"}, {1: 2}, "f: text as a key is needed, not int"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "f: 'B' is no symbol of E"),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab", "f: 3 bytes are needed, not 2"),
        (["null", "int"], "x", "f: null or int is needed, not str"),
        ({"type": "int", "logicalType": "date"}, datetime(2020, 1, 1), "a date is needed, not d"),
        ({"type": "int", "logicalType": "time-millis"}, 5, "f: a time is needed, not int"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            5,
            "f: a datetime is needed, not int",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(2020, 1, 1),
            "f: the datetime has no time zone",
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            datetime(2020, 1, 1, tzinfo=UTC),
            "f: a local timestamp has no time zone",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            Decimal("123.456"),
            "precision",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            1.5,
            "f: a Decimal is needed, not float",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            Decimal("NaN"),
            "f: NaN is no number",
        ),
        ({"type": "string", "logicalType": "uuid"}, "nope", "f: a UUID is needed, not str"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_place(type_, value, complaint):
    with pytest.raises(EncodeFailed, match=complaint) as caught:
        one(type_).encode({"f": value}, AT)
    assert caught.value.facts["topic"] == "alerts"


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"sensor_id": 1, "time": 2}, "status: is missing and has no default"),
        ({"sensor_id": 1, "time": 2, "status": "Major", "tim": 3}, "Alert has no field tim"),
        ([1, 2], "a dict or a dataclass"),
        ("x", "a dict or a dataclass"),
    ],
)
def test_a_record_must_have_its_fields_and_no_others(value, complaint):
    with pytest.raises(EncodeFailed, match=complaint):
        Avro(ALERT).encode(value, AT)


def test_the_place_of_a_misfit_is_the_whole_path():
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
    serde = one({"type": "array", "items": {"type": "map", "values": ["null", inner]}})
    with pytest.raises(EncodeFailed, match=r"f\[1\]\['k'\]\.x: a whole number is needed"):
        serde.encode({"f": [{}, {"k": {"x": "no"}}]}, AT)


# --- bytes that are wrong ---


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "the body ends too early"),
        (b"\x02", "the body ends too early"),
        (b"\x02\x04", "the body ends too early"),
        (b"\x02\x04\x02x", "1 bytes are left after the value"),
        (b"\x02\x04\x7e", "the body ends too early, or is damaged"),
        (b"\x80" * 20, "the body ends too early, or is damaged"),
    ],
)
def test_a_damaged_body_says_what_is_wrong(data, complaint):
    with pytest.raises(DecodeFailed, match=complaint) as caught:
        Avro(ALERT).decode(data, AT)
    assert caught.value.facts["first_bytes"] == data[:16].hex(" ")
    assert (caught.value.facts["partition"], caught.value.facts["offset"]) == (2, 9)


def test_bytes_that_nest_without_end_do_not_end_the_process():
    with pytest.raises(DecodeFailed, match="nested too deeply"):
        Avro(NODE).decode(b"\x02" * 1_000_000 + b"\x00", AT)
    back = Avro(NODE).decode(b"\x02" * 50 + b"\x00", AT)
    assert Avro(NODE).encode(back, AT) == b"\x02" * 50 + b"\x00"


def test_a_value_that_nests_without_end_does_not_end_the_process():
    value = None
    for _ in range(100_000):
        value = {"next": value}
    with pytest.raises(EncodeFailed, match="nested too deeply"):
        Avro(NODE).encode(value, AT)


def test_a_length_that_is_a_lie_is_found_out_at_once():
    began = clock.monotonic()
    for type_ in ("string", "bytes", {"type": "array", "items": "int"}):
        with pytest.raises(DecodeFailed):
            one(type_).decode(b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", AT)
    assert clock.monotonic() - began < 2


# --- classes of one's own ---


class Level(enum.Enum):
    CRITICAL = "Critical"
    MAJOR = "Major"


@dataclass
class Alert:
    """Written by hand: its names are its own."""

    sensor_id: int
    time: int
    status: Level
    __avro_schema__: ClassVar = {
        **ALERT,
        "fields": [
            *ALERT["fields"][:2],
            {
                "name": "status",
                "type": {"type": "enum", "name": "Level", "symbols": ["Critical", "Major"]},
            },
        ],
    }


def test_a_dataclass_with_a_schema_goes_in_and_comes_out():
    serde = Avro(Alert)
    alert = Alert(1, 2, Level.MAJOR)
    assert serde.decode(serde.encode(alert, AT), AT) == alert
    as_dict = {"sensor_id": 1, "time": 2, "status": "Major"}
    assert serde.encode(as_dict, AT) == serde.encode(alert, AT)
    assert Avro(ALERT).encode(alert, AT) == serde.encode(alert, AT)


def test_a_serde_crosses_processes():
    for serde in (Avro(Alert), Avro(EVERYTHING)):
        copy = pickle.loads(pickle.dumps(serde))
        assert copy.schema.text == serde.schema.text
    assert pickle.loads(pickle.dumps(Avro(Alert))).decode(b"\x02\x04\x02", AT) == Alert(
        1, 2, Level.MAJOR
    )


def test_annotations_that_cannot_be_read_are_told_when_the_serde_is_made():
    @dataclass
    class Lost:
        x: "Nowhere"  # noqa: F821
        __avro_schema__: ClassVar = {"type": "record", "name": "Lost", "fields": []}

    with pytest.raises(BadInput, match="annotations of Lost cannot be read"):
        Avro(Lost)


def test_dates_are_dates():
    serde = one({"type": "int", "logicalType": "date"})
    assert serde.decode(serde.encode({"f": date(1969, 7, 20)}, AT), AT) == {"f": date(1969, 7, 20)}
