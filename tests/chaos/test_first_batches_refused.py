"""A new producer's first batches are refused, later ones taken: what is acknowledged is stored.

librdkafka counts the refused ones as written (see DESIGN.md). About every second round does so.
"""

import pytest

import headrace as hr
from headrace.model import Deadline

pytestmark = pytest.mark.chaos

ROUNDS = 14
RECORDS = 20
ONE_BY_ONE = {
    "batch.num.messages": 1,
    "linger.ms": 0,
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 1,
    "statistics.interval.ms": 100,
}


def wait_for(condition, what):
    for _ in Deadline(60).polls(every=0.05):
        if condition():
            return
    raise AssertionError(what)


@pytest.fixture
def admin_of_two():
    """A cluster of three brokers, one of them dead, and topics that insist on three copies."""
    with hr.LocalCluster(3) as cluster:
        admin = hr.Admin(cluster.bootstrap)
        topics = [f"refused-{number}" for number in range(ROUNDS)]
        for topic in topics:
            admin.create_topic(topic, 1, 3, {"min.insync.replicas": "3"})
        cluster.kill(3)
        wait_for(
            lambda: not any(3 in p.isr for t in admin.topics(topics) for p in t.partitions),
            "the dead broker's copies are out of sync",
        )
        yield cluster, admin, topics


def send_in_trouble(cluster, admin, topic, many):
    """Records that are refused at first; the numbers of those that were acknowledged."""
    producer = hr.Producer(cluster.bootstrap, ONE_BY_ONE)
    failed = []
    if many:
        sent = producer.send_many(topic, [str(number) for number in range(RECORDS)])
    else:
        for number in range(RECORDS):
            producer.send(
                topic, str(number), on_delivery=lambda d: failed.append(d) if d.failed else None
            )
    wait_for(lambda: producer.counters().batches > 2 * RECORDS, "all were refused")
    admin.set_configs(topic, {"min.insync.replicas": "2"})
    assert producer.flush(60) == 0
    outcome = sent.failed if many else failed
    return set(range(RECORDS)) - {int(each.record.value) for each in outcome}


def test_what_is_acknowledged_is_stored_though_first_batches_were_refused(admin_of_two):
    cluster, admin, topics = admin_of_two
    refused = 0
    for number, topic in enumerate(topics):
        acknowledged = send_in_trouble(cluster, admin, topic, many=bool(number % 2))
        with hr.Reader(topic, connection=cluster.bootstrap) as reader:
            stored = {int(r.value) for batch in reader.batches() for r in batch}
        assert acknowledged <= stored, topic
        refused += RECORDS - len(acknowledged)
    assert refused, "no round had the trouble that is meant"
