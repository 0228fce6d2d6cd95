"""A pytest plugin for your own tests: a real cluster, a topic per test, real faults.

Installed with Headrace, it is there by itself:

    def test_orders(kafka_cluster, kafka_topic):
        with hr.Producer(kafka_cluster.bootstrap) as producer:
            producer.send(kafka_topic, b"order")

| fixture | gives |
| --- | --- |
| `kafka_cluster` | a `LocalCluster` for the whole session; `--kafka-brokers N` (default 1) |
| `kafka_topic` | a new topic for this test, gone after it |
| `make_topic` | a function that makes more of them: `make_topic(partitions=5)` |
| `kafka_faults` | kill, stop, pause brokers; after the test all of them serve again |
"""

from headrace.testing.faults import Faults

__all__ = ["Faults"]
