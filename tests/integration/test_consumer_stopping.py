"""How a consumer ends, on a real cluster: what runs is waited for, unless it is asked twice."""

import threading
import time

from support.handled import send_numbers
from support.waiting import eventually


def test_an_app_told_to_stop_before_it_runs_ends_at_once(app, kafka_topic, make_group):
    @app.consumer(kafka_topic, group=make_group())
    def handle(_value: bytes) -> None:
        pass

    app.stop()
    app.run()
    with app.running() as running:
        running.wait_until_joined()
        assert running.alive


def test_an_app_that_was_stopped_runs_again(app, bootstrap, kafka_topic, make_group):
    handled = []

    @app.consumer(kafka_topic, group=make_group(), start="earliest")
    def handle(value: bytes) -> None:
        handled.append(value)
        if len(handled) == 3:
            app.stop()

    with app.running() as running:
        running.wait_until_joined()
        app.stop()
    app.stop()  # nothing runs any more
    send_numbers(bootstrap, kafka_topic, 3, keys=1)
    app.run()
    assert len(handled) == 3


def test_stopping_drains_what_runs_and_leaves_the_group_at_once(
    app, bootstrap, kafka_topic, make_group, admin
):
    group, started, ended = make_group(), [], []
    send_numbers(bootstrap, kafka_topic, 100, keys=100)

    @app.consumer(kafka_topic, group=group, concurrency=10)
    def handle(value: bytes) -> None:
        started.append(int(value))
        time.sleep(0.3)
        ended.append(int(value))

    with app.running() as running:
        eventually(lambda: len(started) >= 10, "ten handlers run")
        app.stop()
        assert running.join(20)
    assert sorted(started) == sorted(ended)
    assert len(ended) < 100
    assert admin.groups([group])[0].members == ()
    with app.running() as running:
        eventually(lambda: len(ended) == 100, "the rest is handled")
    assert sorted(ended) == list(range(100))


def test_leaving_the_block_after_a_stop_does_not_hurry_handlers(
    app, bootstrap, kafka_topic, make_group
):
    send_numbers(bootstrap, kafka_topic, 5, keys=5)
    begun, ended = [], []

    @app.consumer(kafka_topic, group=make_group(), concurrency=5)
    def handle(value: bytes) -> None:
        begun.append(value)
        time.sleep(1)
        ended.append(value)

    with app.running():
        eventually(lambda: len(begun) == 5, "handlers run")
        app.stop()
    assert len(ended) == 5


def test_asked_twice_it_does_not_wait_for_handlers(app, bootstrap, kafka_topic, make_group):
    send_numbers(bootstrap, kafka_topic, 1, keys=1)
    begun, over = threading.Event(), threading.Event()

    @app.consumer(kafka_topic, group=make_group(), drain=60)
    def handle(_value: bytes) -> None:
        begun.set()
        over.wait(60)

    running = app.start()
    assert begun.wait(30)
    app.stop()
    assert not running.join(0.5)
    app.stop()
    assert running.join(20)
    over.set()
    running.raise_error()
