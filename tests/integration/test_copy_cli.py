"""`consume -o ndjson | produce --input ndjson` copies a topic without loss."""

import random
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable

from confluent_kafka import Producer as Client

from headrace.clients import Reader
from headrace.local import LocalCluster
from headrace.model import Header, Record
from support.cli import Cli, together

MakeTopic = Callable[..., str]
NOW = int(time.time() * 1000)

# Keys and values that have broken somebody's copy before.
BYTES: list[bytes | None] = [
    None,
    b"",
    b"plain",
    b"null",
    b'{"base64": "bm90IGJ5dGVz"}',
    b"two\nlines\r\nand\ttabs\x00",
    b'"quoted" \\ back\\slash',
    "emoji \U0001f40e, NEL \x85, separators \u2028\u2029, BOM \ufeff".encode(),
    b"\xff\xfe\x00\x80 not UTF-8",
    b"half an emoji: " + "\U0001f40e".encode()[:2],
]
HEADERS: list[list[Header]] = [
    [],
    [("one", b"1")],
    [("twice", b"first"), ("other", b"x"), ("twice", b"second"), ("twice", b"first")],
    [("null", None), ("empty", b""), ("", b"no name"), ("ünï", b"\xff\x00")],
]


def awkward_records() -> list[tuple[bytes | None, bytes | None, list[Header]]]:
    """Every key with every value, headers in turn; half a megabyte of text and of noise."""
    pairs = [(key, value) for key in BYTES for value in BYTES]
    records = [(*pair, HEADERS[i % len(HEADERS)]) for i, pair in enumerate(pairs)]
    noise = random.Random(7).randbytes(500_000)
    return [*records, (b"large", b"x" * 500_000, []), (b"large", noise, HEADERS[2])]


def write_awkward(cluster: LocalCluster, topic: str, partitions: int) -> None:
    """Written with a plain client, so that the copy is not measured with its own yardstick."""
    client = Client({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number, (key, value, headers) in enumerate(awkward_records()):
        client.produce(
            topic,
            value=value,
            key=key,
            headers=headers,
            partition=number % partitions,
            timestamp=NOW - number * 1000,
        )
    assert client.flush(30) == 0


def read_all(cluster: LocalCluster, topic: str) -> list[Record]:
    with Reader(topic, connection=cluster.bootstrap) as reader:
        return [record for batch in reader.batches() for record in batch]


def copy(headrace: Cli, source: str, target: str, *options: str) -> dict[str, object]:
    """The two commands with a pipe between them."""
    consume = headrace.start("consume", source, "-o", "ndjson", stdin=subprocess.DEVNULL)
    assert consume.process.stdout is not None
    produce = headrace.start(
        *("produce", target, "--input", "ndjson", "-o", "json", *options),
        stdin=consume.process.stdout.fileno(),
    )
    consume.process.stdout.close()
    consume.process.stdout = None
    _, written = together(consume, produce)
    return dict(written.json)


def content(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.headers, record.timestamp, record.timestamp_type


def test_a_copy_has_every_record_with_all_it_holds(
    headrace: Cli, kafka_cluster: LocalCluster, make_topic: MakeTopic
) -> None:
    """Keys, values, headers, timestamps: null, empty, binary, large; each as often as before."""
    source, target = make_topic(partitions=2), make_topic(partitions=3)
    write_awkward(kafka_cluster, source, 2)
    originals = read_all(kafka_cluster, source)
    assert len(originals) == len(awkward_records())
    expected = Counter((k, v, tuple(h)) for k, v, h in awkward_records())
    assert Counter((r.key, r.value, r.headers) for r in originals) == expected

    result = copy(headrace, source, target)

    assert (result["sent"], result["failed"]) == (len(originals), 0)
    copies = read_all(kafka_cluster, target)
    assert Counter(map(content, copies)) == Counter(map(content, originals))


def test_a_copy_can_keep_partitions_and_order(
    headrace: Cli, kafka_cluster: LocalCluster, make_topic: MakeTopic
) -> None:
    """With --keep-partitions each partition is the same sequence as the original's."""
    source, target = make_topic(partitions=3), make_topic(partitions=3)
    write_awkward(kafka_cluster, source, 3)
    copy(headrace, source, target, "--keep-partitions")
    sequences: dict[str, dict[int, list[object]]] = {}
    for topic in (source, target):
        sequences[topic] = defaultdict(list)
        for record in read_all(kafka_cluster, topic):
            sequences[topic][record.partition].append(content(record))
    assert set(sequences[target]) == {0, 1, 2}
    assert sequences[target] == sequences[source]


def test_a_copy_keeps_the_order_within_a_key(
    headrace: Cli, kafka_cluster: LocalCluster, make_topic: MakeTopic
) -> None:
    """Ten thousand records of a hundred keys: each key's records stand in their old order."""
    source, target = make_topic(partitions=1), make_topic(partitions=3)
    client = Client({"bootstrap.servers": kafka_cluster.bootstrap, "linger.ms": 20})
    dice = random.Random(11)
    for number in range(10_000):
        client.produce(source, value=str(number), key=f"key-{dice.randrange(100)}")
    assert client.flush(30) == 0

    assert copy(headrace, source, target)["sent"] == 10_000

    by_key: dict[str, dict[bytes | None, list[bytes | None]]] = {}
    for topic in (source, target):
        by_key[topic] = defaultdict(list)
        for record in read_all(kafka_cluster, topic):
            by_key[topic][record.key].append(record.value)
    assert by_key[target] == by_key[source]
