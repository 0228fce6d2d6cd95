"""Lines become records; a line that cannot be sent stops the run without losing those before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clients import Connection
from headrace.clients.deliveries import Outgoing
from headrace.errors import BadInput, KafkaFailure
from headrace.services import produce
from headrace.services.produce import parse_text, parser, produce_lines


class Recorder:
    """A producer that needs no broker: it notes what it is given, and refuses `refused`."""

    def __init__(self, connection: Connection) -> None:
        self.records: list[tuple] = []
        self.acknowledged = 0
        self.failures: list[object] = []
        Recorder.last = self

    @property
    def failed(self) -> int:
        return len(self.failures)

    def send(self, topic: str, value: bytes | None, *rest: object) -> None:
        if value == b"refused":
            raise KafkaFailure("too large", hint="smaller", code="MSG_SIZE_TOO_LARGE")
        self.records.append((topic, value, *rest))

    def flush(self) -> int:
        self.acknowledged = len(self.records)
        return 0


@pytest.fixture
def send(monkeypatch):
    monkeypatch.setattr(produce, "Producer", Recorder)

    def send_all(lines: list[bytes], kind: str = "text", separator: str | None = None):
        return produce_lines(Connection("nowhere"), lines, parser("t", kind, separator, False))

    return send_all


@given(line=st.binary())
def test_without_a_separator_the_whole_line_is_the_value(line):
    assert parse_text(line, "t", None) == Outgoing("t", line)


@given(key=st.binary(), value=st.binary(), separator=st.binary(min_size=1, max_size=3))
def test_the_first_separator_parts_key_and_value(key, value, separator):
    line = key + separator + value
    record = parse_text(line, "t", separator)
    assert record.key is not None
    assert record.value is not None
    assert separator not in record.key
    assert record.key + separator + record.value == line


def test_a_value_may_hold_the_separator_and_both_may_be_empty():
    assert parse_text(b"k:v:w", "t", b":") == Outgoing("t", b"v:w", b"k")
    assert parse_text(b":", "t", b":") == Outgoing("t", b"", b"")


def test_a_line_without_the_separator_is_bad_input():
    with pytest.raises(BadInput, match="it has no 'ä'") as caught:
        parse_text(b"line", "t", "ä".encode())
    assert "--key-separator" in caught.value.hint


def test_every_line_is_sent_without_its_end_of_line(send):
    result = send([b"a\n", b"b\r\n", b"\n", b"c"])
    assert [record[1] for record in Recorder.last.records] == [b"a", b"b", b"", b"c"]
    assert (result.sent, result.failed, result.error) == (4, 0, None)


def test_the_options_choose_how_a_line_is_read(send):
    send([b"k=v\n"], separator="=")
    assert Recorder.last.records[0][1:3] == (b"v", b"k")
    send([b'{"value": "v", "key": "k"}\n'], kind="ndjson")
    assert Recorder.last.records[0][1:3] == (b"v", b"k")


def test_a_line_that_cannot_be_read_is_told_by_its_number_and_those_before_are_sent(send):
    with pytest.raises(BadInput, match=r"line 3: .*\(2 records before it were sent\)") as caught:
        send([b"a=1", b"b=2", b"c", b"d=4"], separator="=")
    assert caught.value.facts["line"] == 3
    assert [record[1] for record in Recorder.last.records] == [b"1", b"2"]


def test_a_line_that_cannot_be_sent_is_told_by_its_number_and_those_before_are_sent(send):
    with pytest.raises(KafkaFailure, match=r"line 2: too large \(1 records before it") as caught:
        send([b"a", b"refused", b"c"])
    assert caught.value.facts == {"code": "MSG_SIZE_TOO_LARGE", "line": 2}
    assert Recorder.last.acknowledged == 1


def test_records_without_an_acknowledgement_count_as_failed(send, monkeypatch):
    monkeypatch.setattr(Recorder, "flush", lambda self: 2)
    result = send([b"a", b"b"])
    assert result.failed == 2
    assert "2 records had no acknowledgement" in result.error
