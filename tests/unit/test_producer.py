"""What a producer does with records that it cannot deliver: nobody listens at its address."""

import pytest

import headrace as hr
from headrace.clients import Interceptor, Outgoing
from headrace.clients.many import Chunk, Many, pairs_of
from headrace.errors import BadInput, DeliveryFailed, KafkaFailure

NOBODY = "127.0.0.1:1"


class Watcher(Interceptor):
    def __init__(self):
        self.seen = []

    def on_outcome(self, delivery):
        self.seen.append(delivery.record)


@pytest.fixture
def hopeless(monkeypatch):
    """Producers whose records all time out soon."""
    monkeypatch.setattr("headrace.clients.producer.SECONDS_TO_MEET", 0.01)

    def make(**options):
        return hr.Producer(NOBODY, {"message.timeout.ms": 100}, **options)

    return make


def test_a_failed_delivery_carries_its_record(hopeless):
    producer = hopeless()
    delivery = producer.send("t", "lost?", key="k")
    with pytest.raises(BadInput, match="on its way"):
        _ = delivery.record
    with pytest.raises(DeliveryFailed) as caught:
        delivery.result(10)
    assert delivery.record == caught.value.facts["record"] == Outgoing("t", b"lost?", b"k")
    assert delivery.failed
    assert "timed out" in delivery.reason


def test_a_failed_record_keeps_what_no_report_repeats(hopeless):
    producer = hopeless()
    headers = [("region", b"us"), ("region", None)]
    delivery = producer.send("t", "v", headers=headers, timestamp=5)
    many = producer.send_many("t", [Outgoing("t", b"w", b"k", headers, None, 7)])
    with pytest.raises(DeliveryFailed):
        delivery.result(10)
    with pytest.raises(DeliveryFailed):
        many.result(10)
    assert delivery.record == Outgoing("t", b"v", None, headers, None, 5)
    assert many.failed[0].record == Outgoing("t", b"w", b"k", headers, None, 7)


@pytest.mark.parametrize(
    "send",
    [
        lambda producer: producer.send("t", "v"),
        lambda producer: producer.send("t", "v", headers=[("a", b"1")]),
        lambda producer: producer.send_many("t", [b"v"]),
    ],
    ids=["plain", "headers", "many"],
)
def test_closing_tells_of_failures_that_nobody_was_told_of(hopeless, send):
    for interceptors in ((), (Watcher(),)):
        producer = hopeless(interceptors=interceptors)
        send(producer)
        with pytest.raises(DeliveryFailed, match="1 of 1 records were not written"):
            producer.close()
        assert producer.failures[0].record.value == b"v"
        assert all(watcher.seen for watcher in interceptors)


def test_closing_is_silent_about_failures_that_the_caller_was_told_of(hopeless):
    told = []
    producer = hopeless()
    producer.send("t", "with a callback", on_delivery=lambda d: told.append(d.record.value))
    awaited = producer.send("t", "awaited", headers=[("a", b"1")])
    many = producer.send_many("t", [b"one", b"two"])
    for outcome in (awaited, many):
        with pytest.raises(DeliveryFailed):
            outcome.result(10)
    producer.close()
    assert told == [b"with a callback"]
    assert producer.failed == 4


@pytest.mark.parametrize(
    ("value", "more"),
    [(5, {}), ({"a": 1}, {}), (b"v", {"key": 1.5}), (b"v", {"headers": [("a", 5)]})],
)
def test_parts_of_the_wrong_type_are_bad_input(hopeless, value, more):
    with pytest.raises(BadInput, match="wrong type") as caught:
        hopeless().send("t", value, **more)
    assert "hr.Json()" in caught.value.hint


def test_a_topic_that_cannot_be_leaves_nothing_counted(hopeless):
    producer = hopeless()
    with pytest.raises(KafkaFailure, match="Invalid topic"):
        producer.send_many("t" * 600, [b"v"] * 3)
    assert producer.sent == 0
    producer.close()


def test_records_of_different_kinds_may_be_mixed(hopeless):
    producer = hopeless()
    many = producer.send_many("t", [b"v", ("k", "w"), Outgoing("t", b"x", b"l"), None])
    with pytest.raises(DeliveryFailed):
        many.result(10)
    assert [(f.record.key, f.record.value) for f in many.failed] == [
        (None, b"v"),
        (b"k", b"w"),
        (b"l", b"x"),
        (None, None),
    ]
    with pytest.raises(BadInput, match="wrong type"):
        producer.send_many("t", [(b"k", b"v", b"no pair")])
    with pytest.raises(BadInput, match="wrong type"):
        producer.send_many("t", [b"v", 5])
    assert producer.sent == 5  # and those before the bad one were handed over


def test_many_records_with_serdes_may_be_outgoing_records_too(hopeless):
    producer = hopeless(value=hr.Json(), key=hr.Text())
    many = producer.send_many("t", [Outgoing("t", {"a": 1}, "k")])
    with pytest.raises(DeliveryFailed):
        many.result(10)
    assert many.failed[0].record == Outgoing("t", b'{"a":1}', b"k")


def test_only_records_of_keys_and_values_go_in_chunks():
    assert pairs_of([(b"k", b"v"), ("k", None)]) == [(b"k", b"v"), ("k", None)]
    assert pairs_of([Outgoing("t", b"v", b"k")]) == [(b"k", b"v")]
    assert pairs_of([Outgoing("t", b"v", timestamp=1)]) is None
    assert pairs_of([Outgoing("t", b"v", partition=0)]) is None
    assert pairs_of([b"v", (b"k", b"v")]) is None


class Report:
    """A delivery report of librdkafka."""

    def __init__(self, value, offset):
        self._value, self._offset = value, offset

    def value(self):
        return self._value

    def offset(self):
        return self._offset

    def key(self):
        return None

    def topic(self):
        return "t"

    def latency(self):
        return 0.1

    def error(self):
        return None


def test_a_report_without_an_offset_is_a_failure(hopeless):
    """librdkafka counts records as written that a broker refused; no broker told their offset."""
    producer = hopeless()
    stored, refused = producer.send("t", "a"), producer.send("t", "b")
    stored(None, Report(b"a", 0))
    refused(None, Report(b"b", None))
    assert (stored.failed, refused.failed) == (False, True)
    assert "no broker said where" in refused.reason
    assert refused.record.value == b"b"
    assert (producer.acknowledged, producer.failed) == (1, 1)
    assert [failed.record.value for failed in producer.failures] == [b"b"]


def test_so_is_one_of_many(hopeless):
    producer = hopeless()
    many = Many(producer, "t")
    many.sent = 2
    chunk = Chunk(producer._many, many, 2, 2)
    chunk.settle(None, Report(b"a", 0))
    chunk.settle(None, Report(b"b", None))
    many._close()
    with pytest.raises(DeliveryFailed, match="1 of 2"):
        many.result(1)
    assert [failed.record.value for failed in many.failed] == [b"b"]


def test_with_acks_0_nobody_tells_an_offset(monkeypatch):
    monkeypatch.setattr("headrace.clients.producer.SECONDS_TO_MEET", 0.01)
    settings = {"acks": 0, "enable.idempotence": False, "message.timeout.ms": 100}
    producer = hr.Producer(NOBODY, settings)
    delivery = producer.send("t", "a")
    delivery(None, Report(b"a", None))
    assert not delivery.failed
