"""A record that cannot be handled, on a real cluster: what becomes of it and of the others."""

import asyncio
import functools

import pytest

import headrace as hr
from headrace.errors import HandlerFailed
from headrace.observe.events import RecordFailed
from headrace.serde.base import Field
from support.consuming import of_kind
from support.fake_registry import FakeRegistry
from support.handled import send_numbers
from support.waiting import eventually

ALERT = {
    "type": "record",
    "name": "Alert",
    "fields": [{"name": "sensor_id", "type": "long"}],
}


@pytest.fixture
def registry():
    server = FakeRegistry()
    yield server
    server.stop()


def send_alerts(bootstrap, topic, registry):
    """A good one, one of another magic byte, one of a schema nobody knows, a good one."""
    serde = hr.Avro(ALERT, registry=hr.Registry(registry.url))
    good = serde.encode({"sensor_id": 7}, Field(topic))
    with hr.Producer(bootstrap) as producer:
        for value in (good, b"\x07" + good[1:], b"\x00\x00\x00\x00\x63" + good[5:], good):
            producer.send(topic, value).result()
    return hr.Avro(ALERT, registry=hr.Registry(registry.url))


def test_a_failing_handler_stops_the_consumer_and_its_record_comes_again(
    app, bootstrap, kafka_topic, make_group, events
):
    group, handled, broken = make_group(), [], True
    send_numbers(bootstrap, kafka_topic, 100, keys=10)

    @app.consumer(kafka_topic, group=group, concurrency=4)
    def handle(value: bytes) -> None:
        if value == b"42" and broken:
            raise ValueError("no good")
        handled.append(int(value))

    with pytest.raises(HandlerFailed, match=rf"{kafka_topic}\[0\]@42.*no good") as caught:
        app.run()
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.hint
    assert [event.then for event in of_kind(events, RecordFailed)] == ["stop"]
    assert 52 not in handled  # the next of its key waits
    broken = False
    with app.running() as running:
        eventually(lambda: running.status()[0].lag == 0, "the group is at the end")
    assert sorted(handled) == list(range(100))


def behind_a_plain_wrapper(handler):
    @functools.wraps(handler)
    def call(value):
        return handler(value)

    return call


@pytest.mark.parametrize("kind", ["async", "generator"])
def test_a_handler_that_only_seems_to_be_plain_is_found_out_before_a_commit(
    app, bootstrap, kafka_topic, make_group, admin, kind
):
    """Even with "skip": calling it has done nothing, whatever the record."""
    group, handled = make_group(), []
    send_numbers(bootstrap, kafka_topic, 5, keys=1)

    async def later(value):
        handled.append(value)

    def one_by_one(value):
        yield handled.append(value)

    plain = behind_a_plain_wrapper({"async": later, "generator": one_by_one}[kind])
    app.consumer(kafka_topic, group=group, on_error="skip")(plain)
    with pytest.raises(HandlerFailed, match="so nothing was handled yet"):
        app.run()
    assert handled == []
    assert set(admin.committed(group).values()) <= {0}


@pytest.mark.parametrize("status", [401, 500])
def test_a_registry_that_refuses_us_is_no_reason_to_skip(
    app, bootstrap, kafka_topic, make_group, registry, status
):
    group, handled = make_group(), []
    serde = send_alerts(bootstrap, kafka_topic, registry)
    registry.fault = (status, {"error_code": status, "message": "not now"})

    @app.consumer(kafka_topic, group=group, value=serde, on_error="skip")
    def handle(value) -> None:
        handled.append(value)

    with pytest.raises(HandlerFailed, match=str(status)):
        app.run()
    assert handled == []


def test_bad_bytes_are_skipped_reported_and_harm_nobody(
    app, bootstrap, kafka_topic, make_group, events
):
    """Invalid JSON, an empty value, a null value, a null key, and a large record."""
    handled = []
    large = b'{"n": "' + b"x" * 900_000 + b'"}'
    with hr.Producer(bootstrap) as producer:
        for key, value in [
            ("a", b'{"n": 1}'),
            ("a", b"\x00\x00\xff"),
            ("a", b""),
            ("a", None),
            (None, b'{"n": 2}'),
            ("a", large),
            ("a", b'{"n": 3}'),
        ]:
            producer.send(kafka_topic, value, key=key).result()

    @app.consumer(kafka_topic, group=make_group(), on_error="skip")
    async def handle(value: dict | None) -> None:
        handled.append(value)

    with app.running() as running:
        eventually(lambda: running.status()[0].handled == 7, "all are dealt with")
        status = running.status()[0]
    assert status.failed == 2
    assert [event.where for event in of_kind(events, RecordFailed)] == [
        f"{kafka_topic}[0]@1",
        f"{kafka_topic}[0]@2",
    ]
    assert {"n": 1} in handled
    assert {"n": 2} in handled
    assert {"n": 3} in handled
    assert None in handled
    assert len(handled) == 5


def test_a_wrong_magic_byte_and_an_unknown_schema_are_skipped(
    app, bootstrap, kafka_topic, make_group, events, registry
):
    serde, handled = send_alerts(bootstrap, kafka_topic, registry), []

    @app.consumer(kafka_topic, group=make_group(), value=serde, on_error="skip")
    def handle(alert: dict) -> None:
        handled.append(alert["sensor_id"])

    with app.running() as running:
        eventually(lambda: running.status()[0].handled == 4, "all are dealt with")
    assert handled == [7, 7]
    assert sorted(event.where[-1] for event in of_kind(events, RecordFailed)) == ["1", "2"]


def test_a_registry_that_is_away_makes_no_record_bad(
    app, bootstrap, kafka_topic, make_group, registry
):
    """Skipping would drop good records: it stops, and they come again."""
    serde, group, handled = send_alerts(bootstrap, kafka_topic, registry), make_group(), []

    @app.consumer(kafka_topic, group=group, value=serde, on_error="skip")
    def handle(alert: dict) -> None:
        handled.append(alert["sensor_id"])

    registry.stop()
    with pytest.raises(HandlerFailed, match="registry"):
        app.run()
    assert handled == []
    registry.start()
    with app.running() as running:
        eventually(lambda: running.status()[0].lag == 0, "all are dealt with")
    assert handled == [7, 7]


def test_a_function_decides_about_each_failure(app, bootstrap, kafka_topic, make_group):
    send_numbers(bootstrap, kafka_topic, 10, keys=10)
    asked = []

    def decide(record: hr.Record, error: BaseException) -> str:
        asked.append((record.offset, str(error)))
        return "skip" if record.offset < 5 else "stop"

    @app.consumer(
        kafka_topic, group=make_group(), on_error=decide, concurrency=1, order="partition"
    )
    def handle(value: bytes) -> None:
        if int(value) in (3, 7):
            raise ValueError(f"number {value.decode()}")

    with pytest.raises(HandlerFailed, match="@7"):
        app.run()
    assert asked == [(3, "number 3"), (7, "number 7")]


def test_the_failure_of_one_consumer_stops_the_others(app, bootstrap, make_topic, make_group):
    good, bad = make_topic(1), make_topic(1)
    send_numbers(bootstrap, bad, 1, keys=1)

    @app.consumer(good, group=make_group())
    async def fine(_value: bytes) -> None:
        pass

    @app.consumer(bad, group=make_group())
    def broken(_value: bytes) -> None:
        raise ValueError("no good")

    with pytest.raises(HandlerFailed, match="no good"):
        asyncio.run(asyncio.wait_for(app.serve(), 60))
    assert [status.state for status in app.status()] == ["stopped", "failed"]


def test_an_on_error_that_wants_to_exit_only_stops_the_consumer(
    app, bootstrap, kafka_topic, make_group
):
    send_numbers(bootstrap, kafka_topic, 1, keys=1)

    def give_up(_record, _error):
        raise SystemExit(3)

    @app.consumer(kafka_topic, group=make_group(), on_error=give_up)
    async def handle(_value: bytes) -> None:
        raise ValueError("no good")

    with pytest.raises(HandlerFailed, match="no good"):
        app.run()
