"""Rows of a table as records: every column may be missing or null, and slices are rows as well."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.spark.batches import Batch, add_digests
from headrace.spark.columns import COLUMNS, check_columns, pieces_of

pa = pytest.importorskip("pyarrow")
t = pytest.importorskip("pyspark.sql.types")

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS = pa.list_(HEADER)
NOON = datetime(2019, 10, 1, 12, 0, 0, 123_999, UTC)
NOON_MS = 1_569_931_200_123


class KafkaRow(NamedTuple):
    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    timestamp: int
    headers: list | None


def rows_of(batch, topic):
    return [KafkaRow(*row) for row in Batch.of(batch, topic)]


def batch_of(**columns):
    return pa.record_batch(columns)


def rows(**columns):
    return list(rows_of(batch_of(**columns), "t"))


# --- columns ---


def test_a_value_is_enough():
    assert rows(value=[b"a", b"b"]) == [
        KafkaRow("t", b"a", None, -1, 0, None),
        KafkaRow("t", b"b", None, -1, 0, None),
    ]


def test_every_column_present():
    headers = pa.array([[{"key": "h", "value": b"1"}]], HEADERS)
    found = rows(
        piece=["p"],
        timestamp=pa.array([NOON_MS]),
        partition=pa.array([3], pa.int32()),
        topic=["other"],
        headers=headers,
        value=[b"v"],
        key=[b"k"],
    )
    assert found == [KafkaRow("other", b"v", b"k", 3, NOON_MS, [("h", b"1")])]


def test_every_column_null():
    kinds = {
        "key": pa.binary(),
        "value": pa.string(),
        "headers": HEADERS,
        "topic": pa.string(),
        "partition": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    nulls = {name: pa.nulls(2, kind) for name, kind in kinds.items()}
    assert rows(**nulls) == [KafkaRow("t", None, None, -1, 0, None)] * 2


def test_text_becomes_utf8():
    (row,) = rows(key=["é"], value=["{}"])
    assert (row.key, row.value) == ("é".encode(), b"{}")


def test_the_topic_of_a_row_comes_before_the_option():
    assert [row.topic for row in rows(value=[b""] * 3, topic=["a", None, "b"])] == ["a", "t", "b"]


def test_a_row_without_any_topic_is_refused():
    with pytest.raises(BadInput, match="column 'topic' is null in a row") as caught:
        list(rows_of(batch_of(value=[b""] * 2, topic=["a", None]), None))
    assert "option('topic', NAME)" in caught.value.hint


def test_no_rows():
    headers = pa.array([], HEADERS)
    moments = pa.array([], pa.timestamp("us", "UTC"))
    assert rows(value=pa.array([], pa.binary()), headers=headers, timestamp=moments) == []


# --- headers in columns of their own ---


def test_a_column_for_one_header():
    found = rows(value=[b""] * 2, **{"header:id": [b"7", b"8"]})
    assert [row.headers for row in found] == [[("id", b"7")], [("id", b"8")]]


@given(
    st.lists(
        st.tuples(*[st.none() | st.binary(max_size=3)] * 2, st.lists(st.binary(max_size=3))),
        max_size=20,
    )
)
def test_headers_of_all_columns_in_their_order_and_none_where_null(cells):
    one, two, listed = zip(*cells, strict=True) if cells else ((), (), ())
    arrays = [[{"key": "l", "value": value} for value in values] for values in listed]
    batch = pa.record_batch(
        {
            "value": pa.array([b""] * len(cells), pa.binary()),
            "header:one": pa.array(one, pa.binary()),
            "headers": pa.array(arrays, HEADERS),
            "header:two": pa.array(two, pa.binary()),
        }
    )
    expected = [
        [("l", value) for value in values]
        + [(name, value) for name, value in (("one", a), ("two", b)) if value is not None]
        for a, b, values in cells
    ]
    assert [row.headers or [] for row in rows_of(batch, "t")] == expected


# --- timestamps ---


@pytest.mark.parametrize(
    "moments",
    [
        pa.array([NOON], pa.timestamp("us", "UTC")),
        pa.array([NOON], pa.timestamp("us", "Asia/Tokyo")),
        pa.array([NOON.astimezone(timezone(timedelta(hours=9)))], pa.timestamp("us", "UTC")),
        pa.array([NOON_MS * 10**6 + 999_999], pa.timestamp("ns", "UTC")),
        pa.array([NOON_MS], pa.timestamp("ms", "UTC")),
        pa.array([NOON_MS], pa.int64()),
    ],
)
def test_a_timestamp_is_in_milliseconds_and_never_later_than_it_was(moments):
    assert [row.timestamp for row in rows(value=[b""], timestamp=moments)] == [NOON_MS]


@given(st.datetimes(datetime(1970, 1, 2), datetime(2262, 1, 1), timezones=st.just(UTC)))
def test_any_timestamp_is_exact(moment):
    moments = pa.array([moment], pa.timestamp("us", "UTC"))
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    assert rows(value=[b""], timestamp=moments)[0].timestamp == since // timedelta(milliseconds=1)


def test_a_timestamp_of_seconds_is_in_milliseconds():
    moments = pa.array([NOON_MS // 1000], pa.timestamp("s", "UTC"))
    assert rows(value=[b""], timestamp=moments)[0].timestamp == NOON_MS // 1000 * 1000


# --- headers ---


def headers_of(batch):
    return [row.headers for row in rows_of(batch, "t")]


def test_headers_of_every_kind():
    headers = [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
        [],
        [{"key": "", "value": b""}],
    ]
    assert headers_of(batch_of(value=[b""] * 4, headers=pa.array(headers, HEADERS))) == [
        [("a", b"1"), ("a", None)],
        None,
        None,
        [("", b"")],
    ]


def test_a_null_list_over_content_has_no_headers():
    values = pa.array([{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}], HEADER)
    offsets, nulls = pa.array([0, 1, 2], pa.int32()), pa.array([True, False])
    headers = pa.ListArray.from_arrays(offsets, values, mask=nulls)
    assert headers_of(batch_of(value=[b""] * 2, headers=headers)) == [None, [("b", b"2")]]


def test_headers_are_taken_by_name_whatever_their_order_and_type():
    kind = pa.list_(pa.struct([("value", pa.string()), ("key", pa.string())]))
    headers = pa.array([[{"key": "a", "value": "é"}]], kind)
    assert headers_of(batch_of(value=[b""], headers=headers)) == [[("a", "é".encode())]]


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"1"}])
def test_a_header_without_a_name_is_refused(header):
    headers = pa.array([[{"key": "a", "value": b"1"}, header]], HEADERS)
    with pytest.raises(BadInput, match="a header in column 'headers' has no name") as caught:
        headers_of(batch_of(value=[b""], headers=headers))
    assert caught.value.hint


# --- slices and pieces ---

SOME_HEADERS = st.none() | st.lists(
    st.tuples(st.sampled_from("abc"), st.none() | st.binary(max_size=3)), max_size=3
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["p", "q", "r"]),
        st.none() | st.text(max_size=3),
        st.none() | st.binary(max_size=3),
        st.none() | st.integers(0, 9),
        st.none() | st.integers(1, 2**40),
        SOME_HEADERS,
    ),
    max_size=12,
)


def as_batch(drawn):
    pieces, keys, values, partitions, timestamps, headers = (
        zip(*drawn, strict=True) if drawn else ((),) * 6
    )
    structs = [
        None if given is None else [{"key": key, "value": value} for key, value in given]
        for given in headers
    ]
    return batch_of(
        piece=pa.array(pieces, pa.string()),
        key=pa.array(keys, pa.string()),
        value=pa.array(values, pa.binary()),
        partition=pa.array(partitions, pa.int32()),
        timestamp=pa.array(timestamps, pa.int64()),
        headers=pa.array(structs, HEADERS),
    )


def as_row(drawn):
    _, key, value, partition, timestamp, headers = drawn
    return KafkaRow(
        "t",
        value,
        None if key is None else key.encode(),
        -1 if partition is None else partition,
        timestamp or 0,
        headers or None,
    )


@given(ROWS, st.data())
def test_a_slice_has_the_rows_of_its_place(drawn, data):
    start = data.draw(st.integers(0, len(drawn)))
    end = data.draw(st.integers(start, len(drawn)))
    batch = as_batch(drawn).slice(start, end - start)
    assert list(rows_of(batch, "t")) == [as_row(row) for row in drawn[start:end]]


@given(ROWS, st.integers(0, 12))
def test_pieces_are_runs_of_rows_that_make_up_the_batch(drawn, start):
    drawn, batch = drawn[start:], as_batch(drawn).slice(start)
    found = pieces_of(batch)
    assert all(one[0] != next_one[0] for one, next_one in pairwise(found))
    together = [(name, row) for name, part in found for row in rows_of(part, "t")]
    assert together == [(row[0], as_row(row)) for row in drawn]


def test_a_row_without_a_piece_is_refused():
    with pytest.raises(BadInput, match="column 'piece' is null in a row") as caught:
        pieces_of(batch_of(value=[b""] * 3, piece=["p", None, "p"]))
    assert caught.value.hint == "give every row a piece"


# --- digests ---


def digest(rows):
    return Batch(*(list(column) for column in zip(*rows, strict=True))).digest if rows else 0


@given(ROWS, st.data())
def test_a_digest_depends_neither_on_the_order_nor_on_the_batches(drawn, data):
    rows = [as_row(row) for row in drawn]
    at = data.draw(st.integers(0, len(rows)))
    assert digest(rows) == digest(data.draw(st.permutations(rows))) < 2**64
    assert digest(rows) == add_digests(digest(rows[:at]), digest(rows[at:]))


@pytest.mark.parametrize("field", ["topic", "key", "value"])
def test_a_digest_depends_on_topic_key_and_value(field):
    row = KafkaRow("a", b"a", b"a", -1, 0, None)
    other = row._replace(**{field: "b" if field == "topic" else b"b"})
    assert digest([row]) != digest([other])


# --- check_columns ---


def table(**columns):
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


def headers_type(**fields):
    return t.ArrayType(table(**fields))


GOOD = {
    "key": [t.BinaryType(), t.StringType()],
    "value": [t.BinaryType(), t.StringType()],
    "headers": [
        headers_type(key=t.StringType(), value=t.BinaryType()),
        headers_type(value=t.StringType(), key=t.StringType()),
    ],
    "topic": [t.StringType()],
    "partition": [t.IntegerType(), t.LongType()],
    "timestamp": [t.TimestampType(), t.LongType()],
    "piece": [t.StringType()],
}


def test_every_column_is_known():
    assert tuple(GOOD) == COLUMNS


@pytest.mark.parametrize(
    ("name", "kind"), [(n, kind) for n, kinds in GOOD.items() for kind in kinds]
)
def test_columns_that_fit(name, kind):
    check_columns(table(**{"value": t.BinaryType(), name: kind}), "t")


def test_a_column_for_a_header_fits_and_has_a_name():
    check_columns(table(**{"value": t.BinaryType(), "header:id": t.StringType()}), "t")
    with pytest.raises(BadInput, match="column 'header:' means nothing"):
        check_columns(table(**{"value": t.BinaryType(), "header:": t.StringType()}), "t")
    with pytest.raises(BadInput, match="column 'header:id' is bigint, not binary or string"):
        check_columns(table(**{"value": t.BinaryType(), "header:id": t.LongType()}), "t")


def test_a_column_of_topics_is_as_good_as_the_option():
    check_columns(table(value=t.BinaryType(), topic=t.StringType()), None)


@pytest.mark.parametrize(
    ("columns", "message", "hint"),
    [
        ({}, "there is no column 'value'", "alias('value')"),
        ({"key": t.StringType()}, "there is no column 'value'", "alias('value')"),
        (
            {"value": t.StringType(), "user": t.StringType()},
            "column 'user' means nothing to Kafka",
            "the columns are key, value, headers, topic, partition, timestamp, piece",
        ),
        ({"value": t.LongType()}, "column 'value' is bigint, not binary or string", "'value'"),
        ({"key": t.DoubleType()}, "column 'key' is double, not binary or string", "'key'"),
        ({"topic": t.BinaryType()}, "column 'topic' is binary, not string", "'topic'"),
        (
            {"partition": t.StringType()},
            "column 'partition' is string, not integer or long",
            "'partition'",
        ),
        (
            {"timestamp": t.TimestampNTZType()},
            "column 'timestamp' is timestamp_ntz, not timestamp or long",
            "'timestamp'",
        ),
        ({"piece": t.IntegerType()}, "column 'piece' is int, not string", "'piece'"),
        (
            {"headers": t.MapType(t.StringType(), t.BinaryType())},
            "column 'headers' is map<string,binary>, not array",
            "'headers'",
        ),
        (
            {"headers": t.ArrayType(t.StringType())},
            "column 'headers' is array<string>, not an array of headers",
            "struct",
        ),
        (
            {"headers": headers_type(name=t.StringType(), value=t.BinaryType())},
            "column 'headers' is array<struct<name:string,value:binary>>, not an array of headers",
            "alias('key')",
        ),
        (
            {"headers": headers_type(key=t.BinaryType(), value=t.BinaryType())},
            "column 'headers' is array<struct<key:binary,value:binary>>, not an array of headers",
            "alias('key')",
        ),
        (
            {"headers": headers_type(key=t.StringType(), value=t.LongType())},
            "column 'headers' is array<struct<key:string,value:bigint>>, not an array of headers",
            "cast('binary')",
        ),
    ],
)
def test_columns_that_are_refused(columns, message, hint):
    with pytest.raises(BadInput) as caught:
        check_columns(table(**columns), "t")
    assert caught.value.message == message
    assert hint in caught.value.hint


def test_a_table_without_a_topic_is_refused():
    with pytest.raises(BadInput, match="no topic is given") as caught:
        check_columns(table(value=t.BinaryType()), None)
    assert "option('topic', NAME)" in caught.value.hint
