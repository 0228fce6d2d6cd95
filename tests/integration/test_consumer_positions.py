"""Where a consumer reads, on a real cluster: its start, seeking, patterns, assigned partitions."""

import pytest
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

import headrace as hr
from headrace.errors import BadInput, NoPosition, TopicNotFound
from headrace.model import Latest, TopicPartition
from headrace.observe.events import PositionGone
from support.consuming import of_kind
from support.handled import send_numbers
from support.waiting import eventually


def delete_before(bootstrap, topic, offset):
    client = AdminClient({"bootstrap.servers": bootstrap})
    futures = client.delete_records([ClientPartition(topic, 0, offset)])
    for future in futures.values():
        future.result(30)


def test_a_group_without_offsets_begins_where_it_is_told(app, bootstrap, kafka_topic, make_group):
    send_numbers(bootstrap, kafka_topic, 10, keys=10)
    found = {}
    for start in ("earliest", "6", "2100-01-01T00:00:00Z"):
        own, seen = hr.App(bootstrap), []

        @own.consumer(kafka_topic, group=make_group(), start=start)
        def handle(value: bytes, seen=seen) -> None:
            seen.append(int(value))

        with own.running() as running:
            running.wait_until_joined()
            eventually(lambda r=running: r.status()[0].lag == 0, "it is at the end")
        found[start] = sorted(seen)
    assert found == {
        "earliest": list(range(10)),
        "6": [6, 7, 8, 9],
        "2100-01-01T00:00:00Z": [],
    }


def test_none_is_an_error_that_says_what_to_do(app, bootstrap, kafka_topic, make_group):
    @app.consumer(kafka_topic, group=make_group(), start="none")
    def handle(_value: bytes) -> None:
        pass

    with pytest.raises(NoPosition, match=rf"{kafka_topic}\[0\]") as caught:
        app.run()
    assert "group reset" in caught.value.hint


def test_latest_is_the_moment_of_the_first_assignment(app, bootstrap, kafka_topic, make_group):
    """What comes between a first, idle run and the second is not skipped."""
    group, handled = make_group(), []
    send_numbers(bootstrap, kafka_topic, 5, keys=1)

    @app.consumer(kafka_topic, group=group, start="latest")
    def handle(value: bytes) -> None:
        handled.append(int(value))

    with app.running() as running:
        running.wait_until_joined()
    send_numbers(bootstrap, kafka_topic, 5, keys=1, first=5)
    with app.running():
        eventually(lambda: len(handled) == 5, "what came meanwhile is handled")
    assert handled == [5, 6, 7, 8, 9]


def test_an_offset_that_is_gone_is_reported_and_the_start_counts_again(
    app, bootstrap, kafka_topic, make_group, admin, events
):
    group, handled = make_group(), []
    send_numbers(bootstrap, kafka_topic, 10, keys=1)
    partition = TopicPartition(kafka_topic, 0)
    admin.set_committed(group, {partition: 3})
    delete_before(bootstrap, kafka_topic, 7)

    @app.consumer(kafka_topic, group=group)
    def handle(value: bytes) -> None:
        handled.append(int(value))

    with app.running():
        eventually(lambda: len(handled) == 3, "what is left is handled")
    assert handled == [7, 8, 9]
    gone = of_kind(events, PositionGone)
    assert [(event.partition, event.wanted, event.resumed_at) for event in gone] == [
        (partition, 3, 7)
    ]


def test_seeking_back_replays_while_running(app, bootstrap, make_topic, make_group, admin):
    topic, group, handled = make_topic(2), make_group(), []
    send_numbers(bootstrap, topic, 200, keys=20)

    @app.consumer(topic, group=group, concurrency=5)
    def handle(value: bytes) -> None:
        handled.append(int(value))

    with app.running() as running:
        eventually(lambda: len(handled) == 200, "all records are handled")
        running.seek("earliest")
        eventually(lambda: len(handled) == 400, "all records are handled again")
        running.seek(Latest())
        send_numbers(bootstrap, topic, 10, keys=20, first=200)
        eventually(lambda: len(handled) == 410, "new records are handled")
        with pytest.raises(BadInput, match="does not have"):
            running.seek("earliest", [TopicPartition(topic, 7)])
    assert sorted(handled) == sorted([*range(200), *range(210)])
    assert sum(admin.committed(group).values()) == 210


def test_assigned_partitions_are_read_without_the_group(app, bootstrap, make_topic, make_group):
    topic, places = make_topic(3), []
    send_numbers(bootstrap, topic, 300, keys=30)

    @app.consumer(topic, group=make_group(), partitions=[1])
    def handle(_value: bytes, record: hr.Record) -> None:
        places.append(record.partition)

    with app.running() as running:
        running.wait_until_joined()
        eventually(lambda: places and running.status()[0].lag == 0, "it is at the end")
    assert set(places) == {1}


def test_an_assignment_function_shares_partitions_among_a_fixed_number(
    bootstrap, make_topic, make_group
):
    topic, group = make_topic(5), make_group()
    send_numbers(bootstrap, topic, 500, keys=50)
    seen: dict[int, set[int]] = {0: set(), 1: set()}
    numbers: list[int] = []
    started = []
    for instance in (0, 1):
        app = hr.App(bootstrap)

        @app.consumer(
            topic, group=group, assignment=lambda i, n, every: [p for p in every if p[1] % n == i]
        )
        def handle(value: bytes, record: hr.Record, instance=instance) -> None:
            seen[instance].add(record.partition)
            numbers.append(int(value))

        started.append(app.start(instance=instance, instances=2))
    try:
        eventually(lambda: len(numbers) == 500, "all records are handled")
    finally:
        for running in started:
            running.stop()
        for running in started:
            running.join()
    assert seen == {0: {0, 2, 4}, 1: {1, 3}}
    assert sorted(numbers) == list(range(500))


def test_a_pattern_finds_its_topics(app, bootstrap, make_topic, make_group):
    one, other, numbers = make_topic(1), make_topic(1), []
    stem = one.rsplit("-", 1)[0]
    send_numbers(bootstrap, one, 5, keys=1)
    send_numbers(bootstrap, other, 5, keys=1, first=5)

    @app.consumer(f"^{stem}-.*", group=make_group())
    def handle(value: bytes) -> None:
        numbers.append(int(value))

    with app.running():
        eventually(lambda: len(numbers) == 10, "both topics are handled")
    assert sorted(numbers) == list(range(10))


def test_a_missing_topic_is_an_error_at_the_start(app, make_group):
    @app.consumer("no-such-topic", group=make_group())
    def handle(_value: bytes) -> None:
        pass

    with pytest.raises(TopicNotFound, match="no-such-topic"):
        app.run()
