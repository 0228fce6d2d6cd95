"""The producer on a real cluster: partitions, buffers, interceptors, transactions, many records."""

import asyncio
import random
import threading

import pytest

import headrace as hr
from headrace.clients import Interceptor, RoundRobin
from headrace.clients.partitioners import murmur2_partition
from headrace.errors import (
    BadInput,
    BufferFull,
    ConfigError,
    DeliveryFailed,
    KafkaFailure,
    TopicNotFound,
)


def read(cluster, topic):
    with hr.Reader(topic, connection=cluster.bootstrap) as reader:
        return [record for batch in reader.batches() for record in batch]


def random_keys(count):
    """Text keys of many kinds: empty, ASCII, other scripts, beyond the basic plane."""
    dice = random.Random(11)
    alphabet = "abcXYZ019-_ äßñ漢字かな🚲𐍈"
    return ["", *("".join(dice.choices(alphabet, k=dice.randint(1, 40))) for _ in range(count))]


def test_keys_go_where_kafkas_own_java_client_sends_them(kafka_cluster, make_topic):
    partitions, keys = 61, random_keys(3000)
    java, ours = make_topic(partitions, 1), make_topic(partitions, 1)
    kafka_cluster.run_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", kafka_cluster.bootstrap, "--topic", java),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=\t"),
        stdin="".join(f"{key}\tv\n" for key in keys),
    )
    with hr.Producer(kafka_cluster.bootstrap) as producer:
        for key in keys:
            producer.send(ours, "v", key=key)
    expected = {record.key: record.partition for record in read(kafka_cluster, java)}
    assert len(expected) == len(set(keys))
    assert {record.key: record.partition for record in read(kafka_cluster, ours)} == expected
    assert {key: murmur2_partition(key, partitions) for key in expected} == expected


def test_an_unknown_partition_or_topic_is_an_error_before_sending(kafka_cluster, make_topic):
    topic = make_topic(3)
    with hr.Producer(kafka_cluster.bootstrap) as producer:
        with pytest.raises(BadInput, match="no partition 3"):
            producer.send(topic, "x", partition=3)
        with pytest.raises(TopicNotFound):
            producer.send("no-such-topic", "x", partition=0)
        assert producer.send(topic, "x", partition=2).result().partition == 2
    assert len(read(kafka_cluster, topic)) == 1


def test_a_partition_added_meanwhile_is_found(kafka_cluster, make_topic, admin):
    topic = make_topic(1)
    with hr.Producer(kafka_cluster.bootstrap) as producer:
        producer.send(topic, "x", partition=0).result()
        admin.add_partitions(topic, 2)
        assert producer.send(topic, "x", partition=1).result().partition == 1


def test_a_partitioner_of_ones_own_is_asked_and_checked(kafka_cluster, make_topic):
    topic = make_topic(3)
    with hr.Producer(kafka_cluster.bootstrap, partitioner=RoundRobin()) as producer:
        found = [producer.send(topic, "x", key="same").result().partition for _ in range(6)]
        assert found == [0, 1, 2, 0, 1, 2]
    with (
        hr.Producer(kafka_cluster.bootstrap, partitioner=lambda _record: 9) as producer,
        pytest.raises(BadInput, match="no partition 9"),
    ):
        producer.send(topic, "x")


def test_a_full_buffer_blocks_then_says_how_full_and_drops_nothing():
    producer = hr.Producer("127.0.0.1:1", {"queue.buffering.max.messages": 10}, block=0.2)
    for _ in range(10):
        producer.send("t", "x")
    with pytest.raises(BufferFull, match="10 records wait") as caught:
        producer.send("t", "the eleventh")
    assert caught.value.facts["record"].value == b"the eleventh"
    assert caught.value.facts["pending"] == 10
    with pytest.raises(BufferFull):
        producer.send_many("t", [b"x"] * 5)
    with pytest.raises(KafkaFailure, match="10 records had no"):
        producer.close(timeout=0)


def test_a_buffer_that_fills_again_and_again_loses_nothing(kafka_cluster, make_topic):
    topic = make_topic(1)
    values = [str(number).encode() for number in range(20_000)]
    with hr.Producer(kafka_cluster.bootstrap, {"queue.buffering.max.messages": 500}) as producer:
        for value in values[:5_000]:
            producer.send(topic, value)
        assert producer.send_many(topic, values[5_000:]).result() == 15_000
    assert [record.value for record in read(kafka_cluster, topic)] == values


def test_many_records_keep_their_order_keys_and_nulls(kafka_cluster, make_topic):
    topic = make_topic(1)
    pairs = [(b"k%d" % n, b"v%d" % n if n % 7 else None) for n in range(10_000)]
    with hr.Producer(kafka_cluster.bootstrap, profile="throughput") as producer:
        many = producer.send_many(topic, iter(pairs))
        assert many.result() == len(pairs)
        assert producer.acknowledged == len(pairs)
    assert [(r.key, r.value) for r in read(kafka_cluster, topic)] == pairs


def test_a_record_of_many_that_cannot_be_sent_comes_back_and_the_others_go(
    kafka_cluster, kafka_topic
):
    huge = b"x" * 3_000_000
    with hr.Producer(kafka_cluster.bootstrap) as producer:
        many = producer.send_many(kafka_topic, [b"a", huge, b"b"])
        with pytest.raises(DeliveryFailed, match="1 of 3") as caught:
            many.result()
        assert [failed.record.value for failed in caught.value.facts["failed"]] == [huge]
    assert [record.value for record in read(kafka_cluster, kafka_topic)] == [b"a", b"b"]


def test_a_record_that_is_too_large_is_refused_before_sending(kafka_cluster, kafka_topic):
    with (
        hr.Producer(kafka_cluster.bootstrap) as producer,
        pytest.raises(BadInput, match="3,000,000 bytes"),
    ):
        producer.send(kafka_topic, b"x" * 3_000_000)


def test_deliveries_can_be_awaited(kafka_cluster, kafka_topic):
    async def send_all(producer):
        return await asyncio.gather(*(producer.send(kafka_topic, str(n)) for n in range(200)))

    with hr.Producer(kafka_cluster.bootstrap) as producer:
        written = asyncio.run(send_all(producer))
    assert sorted(w.offset for w in written) == list(range(200))


def test_threads_share_a_producer_and_every_record_is_counted_once(kafka_cluster, make_topic):
    topic = make_topic(3)
    with hr.Producer(kafka_cluster.bootstrap) as producer:

        def work(name):
            for number in range(2_000):
                producer.send(topic, f"{name}-{number}", key=name)

        threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.flush() == 0
        assert (producer.acknowledged, producer.failed) == (8_000, 0)
    values = [record.value.decode() for record in read(kafka_cluster, topic)]
    assert len(values) == len(set(values)) == 8_000


def test_a_callback_that_raises_stops_nobody(kafka_cluster, kafka_topic):
    def broken(_delivery):
        raise ValueError("broken callback")

    with hr.Producer(kafka_cluster.bootstrap) as producer:
        producer.send(kafka_topic, "1", on_delivery=broken).result()
        producer.send(kafka_topic, "2").result()
        assert producer.acknowledged == 2


def test_interceptors_see_records_and_outcomes(kafka_cluster, kafka_topic):
    class Watch(Interceptor):
        def __init__(self):
            self.seen, self.outcomes = 0, 0

        def before_send(self, record):
            self.seen += 1
            return record._replace(headers=[("seen", b"1")])

        def on_outcome(self, delivery):
            self.outcomes += not delivery.failed

    watch = Watch()
    with hr.Producer(kafka_cluster.bootstrap, interceptors=[watch]) as producer:
        producer.send(kafka_topic, "a")
        producer.send_many(kafka_topic, [b"b", b"c"]).result()
    assert (watch.seen, watch.outcomes) == (3, 3)
    assert all(r.headers == (("seen", b"1"),) for r in read(kafka_cluster, kafka_topic))


def change_ones_mind(producer, topic):
    with producer.transaction():
        producer.send(topic, b"never")
        raise RuntimeError("changed my mind")


def test_a_transaction_is_seen_whole_or_not_at_all(kafka_cluster, kafka_topic):
    with hr.Producer(
        kafka_cluster.bootstrap, profile="exactly-once", transactional_id=kafka_topic
    ) as producer:
        with producer.transaction():
            producer.send_many(kafka_topic, [b"1", b"2"])
        with pytest.raises(RuntimeError, match="changed my mind"):
            change_ones_mind(producer, kafka_topic)
        with producer.transaction():
            producer.send(kafka_topic, b"3")
    assert [record.value for record in read(kafka_cluster, kafka_topic)] == [b"1", b"2", b"3"]


def test_settings_that_librdkafka_refuses_are_named(kafka_cluster):
    with pytest.raises(ConfigError, match="no\\.such\\.setting"):
        hr.Producer(kafka_cluster.bootstrap, {"no.such.setting": 1})
    with hr.Producer(kafka_cluster.bootstrap) as producer:
        transaction = producer.transaction()
        with pytest.raises(ConfigError, match="no transactional id"):
            transaction.__enter__()


def test_counters_tell_records_bytes_and_batches(kafka_cluster, kafka_topic):
    with hr.Producer(kafka_cluster.bootstrap, {"statistics.interval.ms": 100}) as producer:
        producer.send_many(kafka_topic, [b"x" * 100] * 5_000).result()
        counters = producer.counters(fresh=True)
    assert (counters.sent, counters.acknowledged, counters.pending) == (5_000, 5_000, 0)
    assert counters.bytes >= 500_000
    assert 0 < counters.batches < 5_000
    assert counters.bytes_on_the_wire < counters.bytes  # lz4
    assert counters.latency_p50_ms is not None
