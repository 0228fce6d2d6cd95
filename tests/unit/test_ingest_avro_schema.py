"""Avro schemas become columns and columns Avro schemas; what a column cannot be is named."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.errors import BadInput, ConfigError
from headrace.serde import Avro, Field, Registry
from headrace.serde.schemas import load_schema
from headrace.spark.ingest.avro_schema import avro_of
from headrace.spark.ingest.schema import CLICKSTREAM, Column, RowSchema, find_schema
from support.fake_registry import FakeRegistry

pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

from headrace.clients import Connection
from headrace.errors import IncompatibleSchema, RegistryUnreachable
from headrace.spark.ingest.registration import register

STATUS = {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID"]}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DATE = {"type": "int", "logicalType": "date"}

EVENT = {
    "eventTime": datetime(2019, 10, 1, tzinfo=UTC),
    "eventType": "view",
    "productId": 1,
    "categoryId": 2,
    "categoryCode": None,
    "brand": None,
    "price": 1.5,
    "userid": 3,
    "userSession": None,
}


def field(type_, name="a", **more):
    return {"name": name, "type": type_, **more}


def order(*fields):
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": list(fields)}


def write(schema):
    path = Path("order.avsc")
    path.write_text(json.dumps(schema), "utf-8")
    return str(path)


def columns(*fields):
    return find_schema(write(order(*fields))).columns


# --- from Avro ---


def test_every_type_that_a_column_can_be():
    names = ("string", "long", "int", "double", "float", "boolean")
    found = columns(
        *(field(name, f"{name}s") for name in names),
        field(STATUS, "status"),
        field(["null", "Status"], "before"),
        field({"type": "long"}, "plain"),
        field({"type": "long", "logicalType": "unheard"}, "odd"),
    )
    assert found == (
        *(Column(f"{name}s", f"{name}s", name, required=True) for name in names),
        Column("status", "status", "enum", required=True, values=("NEW", "PAID")),
        Column("before", "before", "enum", values=("NEW", "PAID")),
        Column("plain", "plain", "long", required=True),
        Column("odd", "odd", "long", required=True),
    )


@pytest.mark.parametrize("union", [["null", "long"], ["long", "null"]])
def test_what_may_be_null_is_not_required(union):
    assert columns(field(union, default=None if union[0] == "null" else 1)) == (
        Column("a", "a", "long"),
    )


@pytest.mark.parametrize(
    ("type_", "more", "column"),
    [
        (MILLIS, {}, Column("a", "a", "time", True, "millis")),
        (MICROS, {}, Column("a", "a", "time", True, "micros", unit="micros")),
        (MILLIS, {"format": "yyyy"}, Column("a", "a", "time", True, "yyyy")),
        (MICROS, {"format": "yyyy"}, Column("a", "a", "time", True, "yyyy", unit="micros")),
        (["null", MILLIS], {}, Column("a", "a", "time", False, "millis")),
        (DATE, {}, Column("a", "a", "date", True, "yyyy-MM-dd")),
        (DATE, {"format": "dd.MM.yyyy"}, Column("a", "a", "date", True, "dd.MM.yyyy")),
    ],
)
def test_times_and_dates(type_, more, column):
    assert columns(field(type_, **more)) == (column,)


def test_the_only_time_is_the_records_and_of_two_none_is():
    assert find_schema(write(order(field(MILLIS, "at"), field("long", "id")))).time == "at"
    assert find_schema(write(order(field(MILLIS, "at"), field(MICROS, "seen")))).time is None
    assert find_schema(write(order(field("long", "id")))).time is None


@pytest.mark.parametrize(
    ("type_", "shown"),
    [
        ("bytes", "is bytes"),
        ("null", "is null"),
        ({"type": "array", "items": "long"}, "is of type array"),
        ({"type": "map", "values": "long"}, "is of type map"),
        ({"type": "fixed", "name": "F", "size": 4}, "is of type fixed"),
        ({"type": "record", "name": "In", "fields": []}, "is of type record"),
        (["null", {"type": "array", "items": "long"}], "is of type array"),
        (["null", "long", "string"], "is a union of null, long, string"),
        (["long"], "is a union of long"),
        (["long", "string"], "is a union of long, string"),
        ({"type": "string", "logicalType": "uuid"}, "is uuid"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, "is decimal"),
        ({"type": "int", "logicalType": "time-millis"}, "is time-millis"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "is local-timestamp-millis"),
    ],
)
def test_what_a_column_cannot_be_is_refused_by_name(type_, shown):
    with pytest.raises(ConfigError) as caught:
        columns(field("long", "id"), field(type_, "items"))
    assert caught.value.message == f"order.avsc, field items {shown}, which a column cannot be"
    assert "change items" in caught.value.hint
    assert "TOML" in caught.value.hint


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("long", "order.avsc is long, not a record"),
        (STATUS, "order.avsc is of type enum, not a record"),
        ([order(), "null"], "order.avsc is a union of record, null, not a record"),
        (order(), "order.avsc has no fields"),
        (order(field("long", format="yyyy")), "field a has format 'yyyy', but is long"),
        (order(field(MILLIS, format=5)), "field a has format 5, but is time"),
        (order(field(MILLIS, format="micros")), "field a has format 'micros', but counts millis"),
        (order(field(DATE, format="millis")), "field a has format 'millis', but is a date"),
    ],
)
def test_what_is_no_row(schema, message):
    with pytest.raises(ConfigError) as caught:
        find_schema(write(schema))
    assert message in caught.value.message
    assert caught.value.hint


def test_a_file_that_is_no_avro_schema():
    Path("order.avsc").write_text("{")
    with pytest.raises(BadInput, match=r"order\.avsc is no Avro schema: not valid JSON"):
        find_schema("order.avsc")
    with pytest.raises(BadInput, match=r"the type shop\.lng is not defined"):
        find_schema(write(order(field("lng"))))


# --- to Avro ---


def test_the_schema_given_is_the_schema_used():
    given = order(field(["null", MILLIS], "at", doc="When."), field("long", "id"))
    assert avro_of(find_schema(write(given))).source == given


def test_the_clickstream_as_avro():
    schema = avro_of(CLICKSTREAM).source
    assert (schema["type"], schema["name"]) == ("record", "clickstream")
    types = {each["name"]: each["type"] for each in schema["fields"]}
    assert list(types) == [column.field for column in CLICKSTREAM.columns]
    assert types["eventTime"] == MILLIS
    assert types["productId"] == "long"
    assert types["price"] == "double"
    assert types["brand"] == ["null", "string"]
    assert types["eventType"]["symbols"] == ["view", "cart", "remove_from_cart", "purchase"]


def test_every_column_type_has_an_avro_type_and_comes_back_from_it():
    """Written to a file, the schema gives the same columns again, under the events' names."""
    kinds = ("string", "long", "int", "double", "float", "boolean")
    made = RowSchema(
        "2019 orders",
        (
            *(Column(f"file_{kind}", f"{kind}s", kind) for kind in kinds),
            Column("at", "at", "time", format="micros", unit="micros"),
            Column("on", "on", "date", required=True, format="yyyy-MM-dd"),
            Column("status", "status", "enum", values=("a", "b")),
        ),
    )
    schema = avro_of(made)
    assert schema.name == "_2019_orders"
    again = find_schema(write(schema.source)).columns
    assert [(c.field, c.type, c.required, c.unit, c.values) for c in again] == [
        (c.field, c.type, c.required, c.unit, c.values) for c in made.columns
    ]


def test_an_enum_whose_values_are_no_names_is_text():
    column = Column("size", "size", "enum", required=True, values=("XL", "extra large"))
    assert avro_of(RowSchema("s", (column,))).source["fields"][0]["type"] == "string"


# --- the registry ---


@pytest.fixture
def registry():
    running = FakeRegistry()
    yield running
    running.stop()


def test_a_schema_is_registered_once_for_the_topics_values(registry):
    registry.add('"string"')  # so that the id is not the version
    connection = Connection("127.0.0.1:1", registry.url)
    first, again = (register(CLICKSTREAM, "clicks", connection) for _ in range(2))
    assert first == again
    assert first.header == b"\x00\x00\x00\x00\x02"
    assert registry.versions == {"clicks-value": [2]}
    assert load_schema(first.text).source == avro_of(CLICKSTREAM).source
    body = Avro(first.text).encode(EVENT, Field("clicks"))
    assert Avro(first.text, Registry(registry.url)).encode(EVENT, Field("clicks")) == (
        first.header + body
    )


def test_a_registry_that_is_gone_or_objects_is_told(registry):
    connection = Connection("127.0.0.1:1", registry.url)
    register(CLICKSTREAM, "clicks", connection)
    registry.objections.append("a field is gone")
    other = RowSchema("clickstream", CLICKSTREAM.columns[:2])
    with pytest.raises(IncompatibleSchema, match="clicks-value"):
        register(other, "clicks", connection)
    registry.stop()
    with pytest.raises(RegistryUnreachable, match="clicks-value"):
        register(other, "clicks", connection)
