"""A schema is the clickstream's, or a TOML file in which every mistake is named with its place."""

from pathlib import Path

import pytest

from headrace.errors import BadInput, ConfigError
from headrace.services.clickstream import HEADER
from headrace.spark.ingest.schema import (
    BUILT_IN,
    CLICKSTREAM,
    Column,
    RowSchema,
    find_schema,
    schema_from_toml,
)

ORDERS = """
key = "customer"
time = "orderedAt"

[[columns]]
name = "customer"
type = "long"
required = true

[[columns]]
name = "ordered"
field = "orderedAt"
type = "time"
format = "yyyy-MM-dd"

[[columns]]
name = "status"
type = "enum"
values = ["new", "paid"]

[[columns]]
name = "note"
"""


def write(text):
    path = Path("orders.toml")
    path.write_text(text, "utf-8")
    return path


# --- built in ---


def test_the_clickstream_has_the_columns_of_the_generator():
    assert ",".join(CLICKSTREAM.names) + "\n" == HEADER.decode()
    assert CLICKSTREAM.column(CLICKSTREAM.key).type == "long"
    assert CLICKSTREAM.column(CLICKSTREAM.time).type == "time"
    assert BUILT_IN["clickstream"] is find_schema("clickstream") is CLICKSTREAM


def test_a_column_is_found_by_its_name_or_its_field():
    assert CLICKSTREAM.column("user_id") is CLICKSTREAM.column("userid")
    with pytest.raises(BadInput, match="schema 'clickstream' has no column 'user'") as caught:
        CLICKSTREAM.column("user")
    assert "user_id" in caught.value.hint


def test_a_name_comes_before_a_field_that_is_the_same():
    schema = RowSchema("swapped", (Column("a", "b"), Column("b", "a")))
    assert (schema.column("a").field, schema.column("b").field) == ("b", "a")


# --- files ---


def test_a_file_with_every_setting():
    schema = find_schema(str(write(ORDERS)))
    assert schema == RowSchema(
        "orders",
        (
            Column("customer", "customer", "long", required=True),
            Column("ordered", "orderedAt", "time", format="yyyy-MM-dd"),
            Column("status", "status", "enum", values=("new", "paid")),
            Column("note", "note"),
        ),
        key="customer",
        time="orderedAt",
    )
    assert schema.names == ("customer", "ordered", "status", "note")


def test_key_and_time_may_be_left_out():
    schema = schema_from_toml(write('[[columns]]\nname = "only"'))
    assert (schema.key, schema.time, schema.names) == (None, None, ("only",))


def test_a_time_has_the_clickstreams_format_unless_told():
    schema = schema_from_toml(write('[[columns]]\nname = "at"\ntype = "time"'))
    assert schema.columns[0].format == CLICKSTREAM.columns[0].format


@pytest.mark.parametrize(
    ("format", "unit", "counted"),
    [("millis", "millis", True), ("micros", "micros", True), ("yyyy-MM-dd", "millis", False)],
)
def test_a_time_may_be_a_count_since_1970(format, unit, counted):
    schema = schema_from_toml(
        write(f'[[columns]]\nname = "at"\ntype = "time"\nformat = "{format}"')
    )
    (column,) = schema.columns
    assert (column.unit, column.is_counted_time) == (unit, counted)


def test_a_date_is_written_as_people_do_unless_told():
    schema = schema_from_toml(write('[[columns]]\nname = "on"\ntype = "date"'))
    assert schema.columns[0].format == "yyyy-MM-dd"
    dotted = '[[columns]]\nname = "on"\ntype = "date"\nformat = "dd.MM.yyyy"'
    assert schema_from_toml(write(dotted)).columns[0].format == "dd.MM.yyyy"


@pytest.mark.parametrize("name", ["click", "", "missing.toml", "."])
def test_a_schema_that_is_not_there(name):
    with pytest.raises(BadInput, match="there is no schema") as caught:
        find_schema(name)
    assert repr(name) in caught.value.message
    assert "clickstream" in caught.value.hint
    assert "TOML file" in caught.value.hint
    assert ".avsc" in caught.value.hint


@pytest.mark.parametrize("content", [b"[[columns]", b"\xff\xfe", b'name = "\x00"'])
def test_a_file_that_is_not_toml(content):
    Path("orders.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"orders\.toml cannot be read: ") as caught:
        find_schema("orders.toml")
    assert caught.value.hint == "it must be TOML"


def test_a_file_that_cannot_be_read():
    with pytest.raises(ConfigError, match=r"gone\.toml cannot be read: "):
        schema_from_toml(Path("gone.toml"))


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "orders.toml has no [[columns]]", "give each a name and a type"),
        ("columns = []", "orders.toml has no [[columns]]", "give each a name and a type"),
        ("columns = 5", "orders.toml has no [[columns]]", "give each a name and a type"),
        (
            f'keys = "note"\ntopic = "t"\n{ORDERS}',
            "orders.toml has unknown settings: keys, topic",
            "there are key, time, columns",
        ),
        (
            ORDERS.replace('key = "customer"', 'key = "client"'),
            "orders.toml has key = 'client', which is no column",
            "its columns are customer, ordered, status, note",
        ),
        (
            ORDERS.replace('key = "customer"', "key = 5"),
            "orders.toml has key = 5, which is no column",
            "its columns are customer, ordered, status, note",
        ),
        (
            ORDERS.replace('time = "orderedAt"', 'time = "at"'),
            "orders.toml has time = 'at', which is no column",
            "its columns are customer, ordered, status, note",
        ),
        (
            ORDERS.replace('time = "orderedAt"', 'time = "note"'),
            "orders.toml has time = 'note', a column of type string",
            'name one with type = "time"',
        ),
        (
            ORDERS.replace('"note"', '"status"'),
            "orders.toml has 'status' twice",
            "give each column its own name",
        ),
        (
            ORDERS.replace('"note"', '"note"\nfield = "orderedAt"'),
            "orders.toml has 'orderedAt' twice",
            "give each column its own name",
        ),
    ],
)
def test_what_is_wrong_with_a_file(text, message, hint):
    assert_refused(text, message, hint)


@pytest.mark.parametrize(
    ("settings", "message", "hint"),
    [
        ('type = "long"', "has no name", '[[columns]] name = "price"'),
        ("name = 5", "(5) has name = 5", 'name = "price"'),
        ('name = "a b"', "(a b) is named 'a b'", "letters, digits and _ only"),
        ('name = ""', "() is named ''", "letters, digits and _ only"),
        ('name = "a"\nfield = "b-c"', "(a) is named 'b-c'", "letters, digits and _ only"),
        ('name = "a"\nfield = 5', "(a) has field = 5", 'field = "unitPrice"'),
        (
            'name = "a"\nnull = true\ndefault = 1',
            "(a) has unknown settings: default, null",
            "there are name, field, type, required, format, values",
        ),
        (
            'name = "a"\ntype = "decimal"',
            "(a) has type 'decimal'",
            "types are string, long, int, double, float, boolean, time, date, enum",
        ),
        ('name = "a"\ntype = ["long"]', "(a) has type = ['long']", 'type = "double"'),
        ('name = "a"\nrequired = "no"', "(a) has required = 'no'", "required = true"),
        ('name = "a"\nrequired = 1', "(a) has required = 1", "required = true"),
        ('name = "a"\ntype = "time"\nformat = 5', "(a) has format = 5", 'format = "yyyy-MM-dd"'),
        (
            'name = "a"\nformat = "yyyy"',
            "(a) has format, but is of type string",
            'type = "time"',
        ),
        (
            'name = "a"\ntype = "long"\nvalues = ["1"]',
            "(a) has values, but is of type long",
            'type = "enum"',
        ),
        (
            'name = "a"\ntype = "date"\nformat = "millis"',
            "(a) has format 'millis', but is a date",
            'format = "yyyy-MM-dd", or type = "time"',
        ),
        ('name = "a"\ntype = "enum"', "(a) is an enum without values", 'values = ["a", "b"]'),
        (
            'name = "a"\ntype = "enum"\nvalues = []',
            "(a) is an enum without values",
            'values = ["a", "b"]',
        ),
        (
            'name = "a"\ntype = "enum"\nvalues = "new"',
            "(a) has values = 'new'",
            'values = ["a", "b"]',
        ),
        (
            'name = "a"\ntype = "enum"\nvalues = ["new", 5]',
            "(a) has values that are no text: ['new', 5]",
            'values = ["a", "b"]; an empty column is null',
        ),
        (
            'name = "a"\ntype = "enum"\nvalues = [""]',
            "(a) has values that are no text: ['']",
            'values = ["a", "b"]; an empty column is null',
        ),
    ],
)
def test_what_is_wrong_with_a_column(settings, message, hint):
    assert_refused(f"{ORDERS}\n[[columns]]\n{settings}", f"orders.toml, column 5 {message}", hint)


def test_a_column_that_is_no_table():
    assert_refused(
        'columns = ["a"]', "orders.toml, column 1 has no name", '[[columns]] name = "price"'
    )


def assert_refused(text, message, hint):
    with pytest.raises(ConfigError) as caught:
        schema_from_toml(write(text))
    assert (caught.value.message, caught.value.hint) == (message, hint)
