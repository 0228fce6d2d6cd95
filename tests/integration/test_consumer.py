"""The parallel consumer on a real cluster: each record once, in order, in batches, committed."""

import asyncio
import os
import secrets
import threading
import time
from collections import defaultdict

import pytest

import headrace as hr
from headrace.model import TopicPartition
from support.handled import send_numbers
from support.waiting import eventually


@pytest.mark.parametrize("executor", ["thread", "async"])
@pytest.mark.parametrize("order", ["key", "partition", "none"])
def test_every_record_is_handled_once_in_the_order_asked_for(
    app, bootstrap, make_topic, make_group, executor, order
):
    topic, group = make_topic(3), make_group()
    send_numbers(bootstrap, topic, 3000, keys=20)
    seen, places = defaultdict(list), []

    def note(value, record):
        seen[record.key if order == "key" else record.partition].append(int(value))
        places.append(record.where)

    options = {"group": group, "order": order, "concurrency": 50}
    if executor == "async":

        @app.consumer(topic, **options)
        async def handle(value: bytes, record: hr.Record) -> None:
            if int(value) % 7 == 0:
                await asyncio.sleep(0.001)
            note(value, record)
    else:

        @app.consumer(topic, **options)
        def handle(value: bytes, record: hr.Record) -> None:
            if int(value) % 7 == 0:
                time.sleep(0.001)
            note(value, record)

    with app.running():
        eventually(lambda: len(places) >= 3000, "all records are handled")
    assert len(places) == len(set(places)) == 3000
    if order != "none":
        assert all(numbers == sorted(numbers) for numbers in seen.values())
    # Handled and committed: the next run has nothing to do.
    with app.running() as again:
        again.wait_until_joined()
        eventually(lambda: again.status()[0].lag == 0, "the group is at the end")
    assert len(places) == 3000


def test_far_more_handlers_run_at_once_than_there_are_partitions(
    app, bootstrap, kafka_topic, make_group
):
    send_numbers(bootstrap, kafka_topic, 500, keys=500)
    together = threading.Barrier(100, timeout=20)

    @app.consumer(kafka_topic, group=make_group(), concurrency=100)
    def handle(_value: bytes) -> None:
        together.wait()  # breaks, and fails the consumer, unless a hundred come

    with app.running() as running:
        eventually(lambda: running.status()[0].handled == 500, "all records are handled")
        assert running.status()[0].failed == 0


def test_a_restart_repeats_nothing_though_a_record_in_the_middle_is_unfinished(
    app, bootstrap, kafka_topic, make_group, admin
):
    """The commit names what is finished beyond the stuck record."""
    group = make_group()
    send_numbers(bootstrap, kafka_topic, 1000, keys=1000)
    handled, stuck = [], threading.Event()

    @app.consumer(kafka_topic, group=group, concurrency=20, drain=0.2)
    def handle(value: bytes) -> None:
        if value == b"100" and not stuck.is_set():
            stuck.wait(120)
        handled.append(int(value))

    with app.running() as running:
        eventually(lambda: len(handled) == 999, "all others are handled")
    offset = admin.committed(group)[TopicPartition(kafka_topic, 0)]
    assert offset <= 100
    stuck.set()
    eventually(lambda: len(handled) == 1000, "the late one ends, too late to count")
    assert running.status()[0].late == 1
    with app.running() as again:
        eventually(lambda: again.status()[0].handled == 1, "the one is handled again")
        eventually(lambda: again.status()[0].lag == 0, "the group is at the end")
    assert sorted(handled) == sorted([*range(1000), 100])


@pytest.mark.parametrize(
    "offsets",
    ["gap-safe", hr.PerRecord(), hr.PerBatch(100), hr.PerBatch(100, sync=False)],
    ids=["gap-safe", "per-record", "per-batch", "per-batch-async"],
)
def test_each_strategy_handles_all_and_commits_all(
    app, bootstrap, make_topic, make_group, admin, offsets
):
    topic, group = make_topic(2), make_group()
    send_numbers(bootstrap, topic, 600, keys=30)
    handled = []

    @app.consumer(topic, group=group, offsets=offsets, concurrency=10)
    def handle(value: bytes) -> None:
        handled.append(int(value))

    with app.running():
        eventually(lambda: len(handled) == 600, "all records are handled")
    assert sorted(handled) == list(range(600))
    assert sum(admin.committed(group).values()) == 600


def test_per_record_commits_before_the_next_of_its_key_starts(
    app, bootstrap, kafka_topic, make_group, admin
):
    group, seen = make_group(), []
    send_numbers(bootstrap, kafka_topic, 20, keys=1)

    @app.consumer(kafka_topic, group=group, offsets="per-record", concurrency=8)
    def handle(value: bytes, record: hr.Record) -> None:
        if record.offset:
            seen.append(admin.committed(group).get(TopicPartition(kafka_topic, 0)))

    with app.running() as running:
        eventually(lambda: running.status()[0].handled == 20, "all records are handled")
    assert seen == list(range(1, 20))


def test_per_batch_tells_of_its_commits(app, bootstrap, kafka_topic, make_group):
    told = []
    send_numbers(bootstrap, kafka_topic, 250, keys=5)
    strategy = hr.PerBatch(100, sync=False, on_commit=lambda offsets, error: told.append(offsets))

    @app.consumer(kafka_topic, group=make_group(), offsets=strategy, concurrency=4)
    def handle(_value: bytes) -> None:
        pass

    partition = TopicPartition(kafka_topic, 0)
    with app.running():
        eventually(lambda: told and told[-1].get(partition) == 250, "the last batch is committed")
    assert [offsets[partition] for offsets in told][-3:] == sorted(
        offsets[partition] for offsets in told
    )[-3:]


@pytest.mark.parametrize("same_key", [False, True])
def test_a_batch_handler_gets_lists_in_order(app, bootstrap, make_topic, make_group, same_key):
    topic, batches = make_topic(2), []
    send_numbers(bootstrap, topic, 1000, keys=4)

    @app.consumer(
        topic,
        group=make_group(),
        batch=hr.Batch(size=50, wait=0.05, same_key=same_key),
        concurrency=4,
    )
    def handle(values: list[bytes], records: list[hr.Record]) -> None:
        batches.append(
            [(record.key, int(value)) for value, record in zip(values, records, strict=False)]
        )

    with app.running() as running:
        eventually(lambda: running.status()[0].handled == 1000, "all records are handled")
    assert max(map(len, batches)) == 50
    assert sum(map(len, batches)) == 1000
    by_key = defaultdict(list)
    for batch in batches:
        if same_key:
            assert len({key for key, _ in batch}) == 1
        for key, number in batch:
            by_key[key].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_a_small_batch_comes_after_its_wait(app, bootstrap, kafka_topic, make_group):
    batches = []

    @app.consumer(kafka_topic, group=make_group(), batch=hr.Batch(size=1000, wait=0.1))
    async def handle(values: list[bytes]) -> None:
        batches.append(values)

    with app.running() as running:
        running.wait_until_joined()
        send_numbers(bootstrap, kafka_topic, 3, keys=1)
        eventually(lambda: running.status()[0].handled == 3, "the three are handled")
    assert sum(map(len, batches)) == 3


def test_a_record_larger_than_a_fetch_is_handled(app, bootstrap, make_topic, make_group):
    topic, handled = make_topic(1, configs={"max.message.bytes": "3000000"}), []
    with hr.Producer(bootstrap, {"message.max.bytes": 3_000_000}) as producer:
        for value in (b"before", os.urandom(2_000_000), b"after"):
            producer.send(topic, value).result()

    @app.consumer(topic, group=make_group())
    def handle(value: bytes) -> None:
        handled.append(len(value))

    with app.running():
        eventually(lambda: len(handled) == 3, "all are handled")
    assert sorted(handled) == [5, 6, 2_000_000]


def test_records_of_aborted_transactions_are_not_handled(app, bootstrap, kafka_topic, make_group):
    handled = []
    with hr.Producer(
        bootstrap, profile="exactly-once", transactional_id=secrets.token_hex(4)
    ) as producer:
        for number in range(10):
            try:
                with producer.transaction():
                    producer.send(kafka_topic, str(number))
                    if number % 2:
                        raise LookupError
            except LookupError:
                continue

    @app.consumer(kafka_topic, group=make_group())
    def handle(value: bytes) -> None:
        handled.append(int(value))

    with app.running():
        eventually(lambda: len(handled) >= 5, "what was committed is handled")
    assert sorted(handled) == [0, 2, 4, 6, 8]


def test_handlers_may_run_in_processes(app, bootstrap, kafka_topic, make_group, tmp_path):
    from support import process_handler

    send_numbers(bootstrap, kafka_topic, 50, keys=10)
    app.consumer(
        kafka_topic, group=make_group(), executor="process", concurrency=2, on_error="skip"
    )(process_handler.handle)
    with app.running() as running:
        eventually(lambda: running.status()[0].handled == 50, "all are dealt with", 60)
        status = running.status()[0]
    assert status.failed == 2  # one raised, one killed its process
    assert status.last_error is not None


def test_the_app_can_serve_on_a_loop_of_its_own_choosing(app, bootstrap, kafka_topic, make_group):
    send_numbers(bootstrap, kafka_topic, 20, keys=20)
    loops, handled = set(), []

    @app.consumer(kafka_topic, group=make_group())
    async def handle(value: bytes) -> None:
        loops.add(asyncio.get_running_loop())
        handled.append(value)
        if len(handled) == 20:
            app.stop()

    async def main() -> asyncio.AbstractEventLoop:
        await asyncio.wait_for(app.serve(), 60)
        return asyncio.get_running_loop()

    assert {asyncio.run(main())} == loops
