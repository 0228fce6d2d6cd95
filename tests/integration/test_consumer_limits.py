"""A consumer that cannot keep up, on a real cluster: back-pressure, rate limits, stalls."""

import threading
import time

import pytest

import headrace as hr
from headrace.model import TopicPartition
from headrace.observe.events import Stalled
from support.consuming import of_kind
from support.handled import send_numbers
from support.waiting import eventually


def test_a_slow_partition_is_paused_and_the_others_flow(app, bootstrap, make_topic, make_group):
    topic, others, release = make_topic(2), [], threading.Event()
    pairs = [(0, n) for n in range(5000)] + [(1, n) for n in range(3000)]
    with hr.Producer(bootstrap) as producer:
        for partition, number in pairs:
            producer.send(topic, str(number), key=f"k{number}", partition=partition)

    @app.consumer(topic, group=make_group(), concurrency=8, buffer_records=200)
    def handle(value: bytes, record: hr.Record) -> None:
        if record.partition == 0:
            release.wait(60)
        else:
            others.append(int(value))

    with app.running() as running:
        eventually(lambda: len(others) == 3000, "the other partition is handled")
        paused = lambda: [each.partition for each in running.status()[0].paused]  # noqa: E731
        eventually(lambda: paused() == [0], "the slow one is paused, and it alone")
        assert running.status()[0].waiting < 500  # a share of 100, and what one poll adds
        release.set()
        eventually(lambda: running.status()[0].handled == 8000, "the slow one is handled too")


def test_a_partition_that_was_paused_flows_after_it_was_moved(
    app, bootstrap, kafka_topic, make_group
):
    """librdkafka remembers the pause; the consumer must not."""
    send_numbers(bootstrap, kafka_topic, 3000, keys=3000)
    gate, handled = threading.Event(), []

    @app.consumer(kafka_topic, group=make_group(), concurrency=4, buffer_records=200)
    def handle(value: bytes) -> None:
        gate.wait(30)
        handled.append(int(value))

    with app.running() as running:
        eventually(lambda: running.status()[0].paused, "the partition is paused")
        threading.Timer(0.3, gate.set).start()
        running.seek("10")  # waits for the handlers
        wanted = set(range(10, 3000))
        eventually(lambda: wanted <= set(handled), "all records are handled")
    assert wanted <= set(handled) <= {*range(10), *wanted}


def test_a_stalled_partition_is_reported_with_what_it_waits_for(
    app, bootstrap, kafka_topic, make_group, events
):
    send_numbers(bootstrap, kafka_topic, 2, keys=1)
    over = threading.Event()

    @app.consumer(kafka_topic, group=make_group(), stall_after=0.5, drain=5)
    def handle(_value: bytes) -> None:
        over.wait(30)

    with app.running():
        stalled = eventually(lambda: of_kind(events, Stalled), "the stall is reported")[0]
        over.set()
    assert stalled.offset == 0
    assert "handle" in stalled.waits_for
    assert f"{kafka_topic}[0]@0" in stalled.waits_for


@pytest.mark.parametrize("offsets", ["gap-safe", "per-batch", "per-record"])
def test_markers_of_transactions_behind_the_last_record_are_no_stall_and_no_lag(
    app, bootstrap, kafka_topic, make_group, events, admin, offsets
):
    group, handled = make_group(), []
    writing = hr.Producer(bootstrap, profile="exactly-once", transactional_id=kafka_topic)
    with writing as producer:
        for _ in range(2):
            with producer.transaction():
                producer.send(kafka_topic, b"x")

    @app.consumer(kafka_topic, group=group, stall_after=20, offsets=offsets)
    def handle(value: bytes) -> None:
        handled.append(value)

    with app.running() as running:
        eventually(lambda: len(handled) == 2, "both are handled")
        eventually(lambda: running.status()[0].lag == 0, "there is no lag")
        place = TopicPartition(kafka_topic, 0)
        eventually(lambda: admin.committed(group).get(place) == 4, "the markers are passed")
    assert of_kind(events, Stalled) == []


def test_a_rate_limit_is_kept(app, bootstrap, make_topic, make_group):
    topic, times = make_topic(2), []
    send_numbers(bootstrap, topic, 300, keys=300)

    @app.consumer(topic, group=make_group(), rate=200, concurrency=50)
    async def handle(_value: bytes) -> None:
        times.append(time.monotonic())

    with app.running():
        eventually(lambda: len(times) == 300, "all records are handled")
    # 300 at 200 a second take 1.4 s, less the tenth of a second's worth that may start at once;
    # without a limit, hundredths. The first handler may come late, by what a busy machine takes.
    assert times[-1] - times[0] >= 1.0
