"""Kinds of values, as data: what is refused, what is swapped, and how an Avro schema is read."""

import json

import pytest

from headrace.errors import ConfigError
from headrace.serde.schemas import load_schema
from headrace.spark.ingest.schema import CLICKSTREAM as ROWS
from headrace.spark.pipelines import CLICKSTREAM, Avro, Csv, Field, Json
from headrace.spark.pipelines.avro_schemas import defaults_of, layout_of
from headrace.spark.pipelines.fields import value_as

PAGE, N = Field("page"), Field("n", "long")


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Csv(), "a value without fields"),
        (lambda: Csv(PAGE, PAGE), "two fields called 'page'"),
        (lambda: Csv(PAGE, drift="evolve"), "drift is 'evolve'"),
        (lambda: Csv(PAGE, separator=""), "the separator is ''"),
        (lambda: Csv(PAGE, separator="||"), "the separator is '||'"),
        (lambda: Csv(PAGE, separator='"'), "the separator is"),
        (lambda: Csv(PAGE, separator="\n"), "the separator is"),
        (lambda: Avro(), "a value without fields"),
        (lambda: Avro(PAGE, drift="ignore"), "drift is 'ignore'"),
        (lambda: value_as(Json(PAGE, drift="evolve"), "csv"), "drift is 'evolve'"),
    ],
)
def test_wrong_values_are_refused(make, complaint):
    with pytest.raises(ConfigError) as caught:
        make()
    assert complaint in caught.value.message
    assert caught.value.hint


def test_a_row_with_too_many_fields_is_a_dead_letter_unless_said_otherwise():
    assert (Csv(PAGE).drift, Avro(PAGE).drift, Json(PAGE).drift) == ("freeze", "rescue", "rescue")


def test_values_of_another_kind_have_the_same_fields():
    value = Csv(PAGE, N, separator="|", drift="freeze")
    assert value_as(value, "csv") is value
    assert value_as(value, "avro") == Avro(PAGE, N, drift="freeze")
    assert value_as(Json(PAGE, N), "csv") == Csv(PAGE, N, drift="rescue")


def test_the_clickstream_has_its_fields_in_the_order_of_the_files():
    """Else `stream --value csv` would mix up what `ingest --value csv` sends."""
    names = [field.field for field in CLICKSTREAM.source.value.fields]
    assert names == [column.field for column in ROWS.columns]


KIND = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
CLICK = {
    "type": "record",
    "name": "shop.Click",
    "fields": [
        {"name": "first", "type": KIND},
        {"name": "page", "type": ["null", "shop.Kind"], "default": None},
        {"name": "Page", "type": "shop.Kind"},
    ],
}


def names_and_types(text):
    return [(field["name"], field["type"]) for field in json.loads(text)["fields"]]


def test_a_schema_is_read_as_declared_fields_others_and_the_mark():
    """A name is defined where it first stands, wherever the writer defined it."""
    layout = layout_of(load_schema(CLICK), Avro(Field("n"), PAGE))
    assert (layout.found, layout.unknown) == ({"page": "f1"}, {"first": "u0", "Page": "u1"})
    (page, first, other, mark) = names_and_types(layout.reader)
    assert (page[0], page[1][1]["symbols"]) == ("f1", ["A", "B"])
    assert (first, other) == (("u0", "shop.Kind"), ("u1", "shop.Kind"))
    assert names_and_types(layout.writer)[-1] == mark
    assert [name for name, _ in names_and_types(layout.writer)[:3]] == ["first", "page", "Page"]


def test_schemas_that_no_record_can_be_read_of_have_a_reason():
    loop = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    assert "contains itself" in layout_of(load_schema(loop), Avro(PAGE))
    assert "not a record" in layout_of(load_schema("long"), Avro(PAGE))
    frozen = layout_of(load_schema(CLICK), Avro(PAGE, drift="freeze"))
    assert frozen == "has unknown fields: first, Page"


def test_only_fields_with_a_default_have_one():
    found = defaults_of(load_schema(CLICK), ["page", "first", "nope"])
    assert found.found == {"page": "d0"}
    assert names_and_types(found.writer) == []
    assert defaults_of(load_schema(CLICK), ["first"]) is None
