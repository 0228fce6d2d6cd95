"""Proof that a cluster serves: a record written to each broker and read back, replicas in sync."""

import contextlib
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from headrace.errors import ServerDied
from headrace.model import Deadline

PROBE_PREFIX = "__headrace-probe-"


def _settings(bootstrap: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "headrace-probe",
        "reconnect.backoff.max.ms": 250,
        "log_level": 0,  # refused connections are expected while brokers start
        "error_cb": lambda _error: None,
    }


def wait_for_brokers(
    addresses: Mapping[int, str], deadline: Deadline, still_alive: Callable[[], None]
) -> None:
    """Return once each of these brokers has answered, and the cluster counts all of them.

    Each is asked at its own address: until its session ends, the others also count a broker that
    was killed. A broker that starts does not answer before the controller has let it in.
    """
    seen: set[int] = set()
    for broker, address in addresses.items():
        admin = AdminClient(_settings(address))
        answered = False
        for _ in deadline.polls(every=0.1):
            still_alive()
            with contextlib.suppress(KafkaException):
                seen = set(admin.list_topics(timeout=1).brokers)
                answered = True
            if answered and seen >= set(addresses):
                break
        else:
            raise ServerDied(
                f"after {deadline.seconds:.0f} s the cluster knows the brokers {sorted(seen)} of "
                f"{sorted(addresses)}" + ("" if answered else f", and broker {broker} is silent"),
                hint="read `headrace logs`, then run `headrace doctor`",
            )


def wait_until_in_sync(bootstrap: str, ids: Collection[int], deadline: Deadline) -> int:
    """Wait until these brokers are back in the ISR of every partition they hold a replica of.

    Returns how many replicas were still out of sync at the deadline. Every broker is asked, since
    each has a view of its own and clients ask any of them. Call `prove_serving` first: a broker
    that was paused answers with the metadata from before its pause, ISR included, until it has
    caught up with the controller.
    """
    admin = AdminClient(_settings(bootstrap))
    behind = len(ids)  # until the cluster has answered
    for _ in deadline.polls(every=0.1):
        with contextlib.suppress(KafkaException):
            seen = admin.list_topics(timeout=5)
            behind = out_of_sync(seen, ids) or max(
                (out_of_sync(view, ids) for view in _views(seen)), default=0
            )
            if not behind:
                break
    return behind


def _views(cluster: ClusterMetadata) -> Iterator[ClusterMetadata]:
    """What each broker says by itself; one that does not answer serves nobody."""
    for broker in cluster.brokers.values():
        with contextlib.suppress(KafkaException):
            yield AdminClient(_settings(f"{broker.host}:{broker.port}")).list_topics(timeout=1)


def out_of_sync(metadata: ClusterMetadata, ids: Collection[int]) -> int:
    """Count the replicas on these brokers that can rejoin the ISR, or lead, and have yet to.

    A partition without a leader whose in-sync replicas are on other brokers waits for those.
    """
    return sum(
        (broker in partition.isrs) is (partition.leader < 0)
        for topic in metadata.topics.values()
        for partition in topic.partitions.values()
        for broker in set(ids).intersection(partition.replicas)
    )


def prove_serving(bootstrap: str, ids: Sequence[int], deadline: Deadline) -> None:
    """Write one record to each broker and read them all back, through a topic made for it."""
    admin = AdminClient(_settings(bootstrap))
    last: Exception | None = None
    for _ in deadline.polls(every=0.2):
        try:
            with _probe_topic(admin, ids) as topic:
                _write_one_each(bootstrap, topic, len(ids), deadline)
                _read_one_each(bootstrap, topic, len(ids), deadline)
            return
        except (KafkaException, TimeoutError) as error:
            last = error
    raise ServerDied(
        f"the brokers run, but a record could not be written and read within "
        f"{deadline.seconds:.0f} s: {last}",
        hint="read `headrace logs`, then run `headrace doctor`",
    )


@contextlib.contextmanager
def _probe_topic(admin: AdminClient, ids: Sequence[int]) -> Iterator[str]:
    """A topic with one partition on each broker; gone afterwards."""
    topic = PROBE_PREFIX + secrets.token_hex(4)
    new = NewTopic(topic, len(ids), replica_assignment=[[broker] for broker in ids])
    try:
        admin.create_topics([new], operation_timeout=5)[topic].result(timeout=10)
        yield topic
    finally:
        # What came of it is known by now, and a slow answer to this changes nothing.
        with contextlib.suppress(KafkaException, TimeoutError):
            admin.delete_topics([topic], operation_timeout=5)[topic].result(timeout=10)


def _write_one_each(bootstrap: str, topic: str, count: int, deadline: Deadline) -> None:
    failures: list[object] = []
    timeout = max(1, int(deadline.remaining(at_most=10) * 1000))
    producer = Producer(_settings(bootstrap) | {"message.timeout.ms": timeout, "linger.ms": 0})
    for partition in range(count):
        producer.produce(
            topic,
            b"probe",
            partition=partition,
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
    producer.flush(timeout / 1000 + 1)
    if failures:
        raise KafkaException(failures[0])


def _read_one_each(bootstrap: str, topic: str, count: int, deadline: Deadline) -> None:
    consumer = Consumer(
        _settings(bootstrap)
        | {"group.id": "headrace-probe", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
        seen: set[int] = set()
        window = Deadline(deadline.remaining(at_most=10))
        while seen != set(range(count)) and not window.expired:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                seen.add(message.partition())
        if seen != set(range(count)):
            raise KafkaException(f"only partitions {sorted(seen)} of {count} could be read")
    finally:
        consumer.close()
