"""Positions, deadlines and records are plain values with a text form."""

import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.model import (
    AtOffset,
    AtTime,
    Deadline,
    Earliest,
    Latest,
    Record,
    TimestampType,
    TopicPartition,
    deadline,
    parse_position,
)

# --- positions ---


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Earliest()),
        ("latest", Latest()),
        ("0", AtOffset(0)),
        ("42", AtOffset(42)),
        ("@0", AtTime(0)),
        ("@1570000000000", AtTime(1_570_000_000_000)),
        ("2019-10-02T07:06:40Z", AtTime(1_570_000_000_000)),
        ("2019-10-02T09:06:40+02:00", AtTime(1_570_000_000_000)),
        ("2019-10-02 07:06:40.123", AtTime(1_570_000_000_123)),
        ("2019-10-02", AtTime(1_569_974_400_000)),
    ],
)
def test_a_position_is_read_from_its_text(text, position):
    assert parse_position(text) == position


@pytest.mark.parametrize(
    "text", ["", "@", "-1", "Earliest", "yesterday", "@-1", "1.5", "٣", "9" * 20]
)
def test_what_is_no_position_is_bad_input_that_says_what_would_be(text):
    with pytest.raises(BadInput) as caught:
        parse_position(text)
    assert caught.value.facts == {"position": text}
    assert "earliest" in caught.value.hint


@given(text=st.text() | st.from_regex(r"@?\d+") | st.datetimes().map(str))
@example(text="9" * 5000)
@example(text="@" + "9" * 20)
@example(text="0001-01-01T00:00:00+14:00")
@example(text="1969-12-31T23:59:59.999Z")
def test_any_text_is_a_position_kafka_can_take_or_bad_input(text):
    try:
        position = parse_position(text)
    except BadInput:
        return
    if isinstance(position, AtOffset):
        assert 0 <= position.offset < 1 << 63
    elif isinstance(position, AtTime):
        assert 0 <= position.timestamp < 1 << 63  # below zero has another meaning to Kafka
    else:
        assert text in ("earliest", "latest")


@given(milliseconds=st.integers(0, 253_402_300_799_999))
def test_a_time_is_exact_to_the_millisecond(milliseconds):
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    text = f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z".rjust(24, "0")
    assert parse_position(text) == AtTime(milliseconds)
    assert parse_position(f"@{milliseconds}") == AtTime(milliseconds)


# --- deadlines ---


class Clock:
    """Time that passes only when told to, or while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.naps: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(deadline, "time", clock)
    return clock


def test_a_deadline_expires_when_its_time_has_come(clock):
    until = Deadline(5, clock=clock.monotonic)
    assert (until.remaining(), until.expired) == (5, False)
    clock.now += 4
    assert (until.remaining(), until.expired) == (1, False)
    clock.now += 1
    assert (until.remaining(), until.expired) == (0, True)


def test_what_remains_is_never_negative_and_never_more_than_asked(clock):
    until = Deadline(5, clock=clock.monotonic)
    assert until.remaining(at_most=2) == 2
    clock.now += 4
    assert until.remaining(at_most=2) == 1
    clock.now += 100
    assert until.remaining() == until.remaining(at_most=2) == 0


def test_steps_that_share_a_deadline_do_not_add_up(clock):
    until = Deadline(5, clock=clock.monotonic)
    for _ in range(10):
        clock.sleep(until.remaining(at_most=2))
    assert clock.now == 1005


def test_polls_look_at_once_then_regularly_and_once_at_the_end(clock):
    looks = [clock.now for _ in Deadline(1, clock=clock.monotonic).polls(every=0.4)]
    assert looks == pytest.approx([1000, 1000.4, 1000.8, 1001])
    assert clock.naps == pytest.approx([0.4, 0.4, 0.2])


@pytest.mark.parametrize("seconds", [0, -1])
def test_even_without_time_polls_look_once(clock, seconds):
    assert len(list(Deadline(seconds, clock=clock.monotonic).polls())) == 1
    assert clock.naps == []


# --- records ---


def test_a_record_tells_where_it_stands():
    record = Record("clicks", 3, 42, 0, TimestampType.CREATE_TIME, None, b"v")
    assert record.where == "clicks[3]@42"
    assert (record.headers, record.leader_epoch) == ((), None)


def test_a_partition_is_written_as_topic_and_number():
    assert str(TopicPartition("clicks", 3)) == "clicks[3]"
    assert TopicPartition("clicks", 3) == ("clicks", 3)


def test_partitions_are_ordered_by_topic_then_number():
    mixed = [TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)]
    assert sorted(mixed) == [("a", 9), ("a", 10), ("b", 0)]


def test_a_record_cannot_be_changed_and_crosses_processes():
    record = Record("t", 0, 1, 2, TimestampType.LOG_APPEND_TIME, b"k", None, (("h", None),), 7)
    with pytest.raises(AttributeError):
        record.offset = 5
    assert pickle.loads(pickle.dumps(record)) == record
