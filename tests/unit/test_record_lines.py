"""A record as a line of JSON and back, without loss; any other line is refused with a reason."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.clients.deliveries import Outgoing
from headrace.errors import BadInput
from headrace.model import Record, TimestampType
from headrace.services.record_lines import from_line, to_document, to_line

INT64 = 1 << 63
any_bytes = st.none() | st.binary() | st.text().map(str.encode)
names = st.text() | st.sampled_from(["id", "trace"])  # the same name twice is to be likely
headers = st.lists(st.tuples(names, any_bytes)).map(tuple)
records = st.builds(
    Record,
    topic=st.text(),
    partition=st.integers(0, (1 << 31) - 1),
    offset=st.integers(0, INT64 - 1),
    timestamp=st.integers(0, INT64 - 1),
    timestamp_type=st.sampled_from(TimestampType),
    key=any_bytes,
    value=any_bytes,
    headers=headers,
    leader_epoch=st.none() | st.integers(0, (1 << 31) - 1),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("base64"), inner),
    max_leaves=10,
)
fields = ["topic", "partition", "offset", "timestamp", "key", "value", "headers", "other"]
documents = st.dictionaries(st.sampled_from(fields), json_values)


def record(**changes) -> Record:
    plain = Record("t", 0, 42, 1_570_000_000_000, TimestampType.CREATE_TIME, b"k", b"v")
    return plain._replace(**changes)


def decode(document: object) -> Outgoing:
    return from_line(json.dumps(document).encode(), "t")


def decode_or_refuse(line: bytes) -> Outgoing | BadInput:
    try:
        return from_line(line, "t", keep_partition=True)
    except BadInput as error:
        return error


@given(record=records)
@example(record=record(key=None, value=None))
@example(record=record(key=b"", value=b""))
@example(record=record(value=b"\xff\x00", headers=(("h", None), ("h", b""), ("h", b"\xff"))))
@example(record=record(value=b'{"base64": "/w=="}'))
def test_a_record_written_as_a_line_is_read_back_without_loss(record):
    line = to_line(record)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert from_line(line, "copy", keep_partition=True) == Outgoing(
        topic="copy",
        value=record.value,
        key=record.key,
        headers=record.headers,
        partition=record.partition,
        timestamp=record.timestamp,
    )


@given(line=st.binary())
@example(line=b'{"value": {"base64": "\xc3\xa9"}}')
@example(line=b'{"value": "\\ud800"}')
@example(line=b'{"value": 1e999}')
@example(line=b"[" * 100_000)
def test_any_bytes_are_a_record_or_bad_input(line):
    outcome = decode_or_refuse(line)
    assert isinstance(outcome, Outgoing) or outcome.hint


@given(document=documents)
@example(document={"value": None, "partition": 1 << 31})
@example(document={"value": None, "partition": -1})
@example(document={"value": None, "timestamp": 1 << 63})
@example(document={"value": None, "headers": [{"key": "h", "value": {"base64": "ü"}}]})
def test_any_document_is_a_record_the_client_can_take_or_bad_input(document):
    decoded = decode_or_refuse(json.dumps(document).encode())
    if isinstance(decoded, BadInput):
        assert decoded.hint
        return
    assert decoded.value is None or isinstance(decoded.value, bytes)
    assert decoded.partition is None or 0 <= decoded.partition < 1 << 31
    assert decoded.timestamp is None or 0 <= decoded.timestamp < 1 << 63


def test_a_document_has_every_field_of_the_contract():
    assert to_document(record(headers=(("h", b"\xff"),), leader_epoch=3)) == {
        "topic": "t",
        "partition": 0,
        "offset": 42,
        "timestamp": 1_570_000_000_000,
        "timestamp_type": "create",
        "key": "k",
        "value": "v",
        "headers": [{"key": "h", "value": {"base64": "/w=="}}],
        "leader_epoch": 3,
    }


def test_text_stays_readable_and_only_other_bytes_are_base64():
    assert to_document(record(value="größe".encode()))["value"] == "größe"
    assert to_document(record(value=b"\x80"))["value"] == {"base64": "gA=="}
    assert to_document(record(value=b""))["value"] == ""
    assert to_document(record(value=None))["value"] is None


def test_a_value_is_enough():
    assert decode({"value": "v"}) == Outgoing("t", b"v")
    assert decode({"value": None}) == Outgoing("t", None)


def test_the_partition_is_kept_only_on_request():
    line = to_line(record(partition=3))
    assert from_line(line, "t").partition is None
    assert from_line(line, "t", keep_partition=True).partition == 3


def test_a_record_without_a_timestamp_gets_a_new_one():
    assert decode({"value": "v", "timestamp": -1}).timestamp is None


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], "list"),
        ("text", "str"),
        ({}, 'no "value"'),
        ({"key": "k"}, 'no "value"'),
        ({"value": "v", "colour": 1}, "unknown field 'colour'"),
        ({"value": 5}, '"value" must be text'),
        ({"value": {"base64": "?"}}, "no base64"),
        ({"value": {"base64": "é"}}, "no base64"),
        ({"value": {"base64": 5}}, '"value" must be text'),
        ({"value": {"base64": "", "more": 1}}, '"value" must be text'),
        ({"value": "v", "key": []}, '"key" must be text'),
        ({"value": "v", "headers": {"a": "b"}}, '"headers" must be a list'),
        ({"value": "v", "headers": [{"value": "b"}]}, '"headers" must be a list'),
        ({"value": "v", "headers": [{"key": "h", "value": 1}]}, "headers.h"),
        ({"value": "v", "timestamp": "now"}, '"timestamp" must be a whole number'),
        ({"value": "v", "timestamp": True}, '"timestamp" must be a whole number'),
        ({"value": "v", "timestamp": 1.5}, '"timestamp" must be a whole number'),
    ],
)
def test_a_bad_line_is_refused_with_its_reason(document, complaint):
    with pytest.raises(BadInput) as caught:
        decode(document)
    assert complaint in caught.value.message
