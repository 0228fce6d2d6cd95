"""Records of one shard run one after the other, all others at once, and nothing is kept."""

import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.parallel.state import Shards
from support.examples import examples

KEYS = st.sampled_from([None, b"a", b"b", b"c", "", "partition"])
ORDERS = ("key", "partition", "none")


def test_by_key_the_first_of_each_key_is_ready():
    shards = Shards("key")
    assert shards.add("aabac", [1, 2, 3, 4, 5]) == [1, 3, 5]
    assert (shards.queued, shards.running) == (2, 3)
    assert shards.add("ad", [6, 7]) == [7]
    assert [shards.finish("a") for _ in range(4)] == [2, 4, 6, None]
    assert shards.add("a", [8]) == [8]


def test_by_partition_one_is_ready_at_a_time():
    shards = Shards("partition")
    assert shards.add([None, "b"], [1, 2]) == [1]
    assert shards.add(["c"], [3]) == []
    assert (shards.queued, shards.running) == (2, 1)
    assert [shards.finish(key) for key in (None, "b", "c")] == [2, 3, None]
    assert shards.running == 0


def test_without_order_all_are_ready():
    shards = Shards("none")
    assert shards.add("aab", [1, 2, 3]) == [1, 2, 3]
    assert (shards.queued, shards.running) == (0, 3)
    assert shards.finish_many("aa") == []
    assert shards.running == 1


def test_records_without_a_key_do_not_wait_for_each_other():
    shards = Shards("key")
    assert shards.add([None, None, ""], [1, 2, 3]) == [1, 2, 3]
    assert shards.running == 3
    assert shards.finish(None) is None
    assert shards.running == 2


def test_a_batch_of_one_key_is_one_turn():
    shards = Shards("key")
    assert shards.add("aaaab", [1, 2, 3, 4, 5]) == [1, 5]
    assert shards.take("a", 2) == [2, 3]
    assert (shards.queued, shards.running) == (1, 2)
    assert shards.finish("a") == 4
    assert shards.take("a", 9) == shards.take("b", 9) == shards.take(None, 9) == []
    assert shards.finish("a") is None


def test_a_batch_ends_before_the_first_record_that_may_not_run():
    shards = Shards("key")
    shards.add("aaaa", [1, 2, 3, 4])
    assert shards.take("a", 9, lambda record: record != 3) == [2]
    assert shards.finish("a") == 3


@pytest.mark.parametrize("order", ["key", "partition"])
def test_a_batch_of_a_partition_is_taken_by_any_key(order):
    shards = Shards(order)
    shards.add("aaa", [1, 2, 3])
    assert shards.take("a", 9) == [2, 3]


@pytest.mark.parametrize("order", ORDERS)
def test_finishing_what_does_not_run_raises(order):
    shards = Shards(order)
    for key in ("a", None):
        with pytest.raises(ValueError, match=r"nothing of the key|0 run"):
            shards.finish(key)


def test_keys_and_records_must_go_together():
    with pytest.raises(ValueError, match="zip"):
        Shards("key").add("ab", [1])


@pytest.mark.parametrize("order", ORDERS)
def test_after_clear_nothing_is_known(order):
    shards = Shards(order)
    shards.add(["a", "a", None, None], [1, 2, 3, 4])
    shards.clear()
    assert (shards.queued, shards.running) == (0, 0)
    assert shards.add(["a"], [5]) == [5]


def test_keys_that_were_seen_are_not_remembered():
    shards = Shards("key")
    for number in range(10_000):
        keys = [number, number, -number - 1]
        ready = shards.add(keys, keys)
        while ready:
            ready = shards.finish_many(ready)
    assert len(shards._queues) == shards.running == shards.queued == 0


@given(st.sampled_from(ORDERS), st.lists(st.lists(KEYS, max_size=8), max_size=12), st.integers(0))
@examples(300)
def test_each_shard_is_in_order_and_each_record_runs_once(order, batches, seed):
    """Against a model: for each shard the list of what was added, and one record that runs."""
    shards, noise = Shards(order), random.Random(seed)
    waiting, running, seen, added = defaultdict(list), [], [], 0

    def shard_of(key, number):
        if order == "partition":
            return "all"
        return number if order == "none" or key is None else ("key", key)

    def expect(records):
        for key, number in records:
            assert waiting[shard_of(key, number)].pop(0) == (key, number)
        seen.extend(records)
        running.extend(records)

    while batches or running:
        if batches:
            keys = batches.pop()
            records = [(key, added + index) for index, key in enumerate(keys)]
            added += len(keys)
            for record in records:
                waiting[shard_of(*record)].append(record)
            expect(shards.add(keys, records))
        count = noise.randint(0 if batches else 1, max(1, len(running)))
        noise.shuffle(running)
        done, running[:] = running[:count], running[count:]
        expect(shards.finish_many([key for key, _ in done]))
        at_work = [shard_of(*record) for record in running]
        assert len(set(at_work)) == len(at_work) == shards.running
        left = {shard: queue for shard, queue in waiting.items() if queue}
        assert set(left) <= set(at_work)  # whoever waits, waits for one that runs
        assert shards.queued == sum(map(len, left.values()))
    assert len(seen) == len(set(seen)) == added
