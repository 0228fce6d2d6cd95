"""`headrace consume`: where it begins, where it ends, what it commits."""

import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer as Client

from headrace.clients import Admin, Producer
from headrace.local import LocalCluster
from headrace.model import Latest, TopicPartition
from support.cli import Cli, together

MakeTopic = Callable[..., str]
MakeGroup = Callable[[], str]
MINUTE = 60_000
RECORD_FIELDS = {
    *("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"),
}


def values(records: list[dict[str, object]]) -> list[object]:
    return [record["value"] for record in records]


@pytest.fixture
def minutes(admin: Admin, kafka_topic: str) -> tuple[str, int]:
    """A topic with the values 0 to 9, a minute apart, and the time of the first."""
    first = int(time.time() * 1000) // MINUTE * MINUTE - 60 * MINUTE
    with Producer(admin.connection) as producer:
        for number in range(10):
            producer.send(kafka_topic, str(number), timestamp=first + number * MINUTE)
    return kafka_topic, first


def test_every_output_has_the_fields_of_the_contract(headrace: Cli, kafka_topic: str) -> None:
    """`-o json` is one array, `-o ndjson` the same a line each; counts go to stderr."""
    headrace("produce", kafka_topic, "--key-separator", "=", stdin="one=1\ntwo=zwei=2\n")
    document = headrace("consume", kafka_topic, "-o", "json")
    lines = headrace("consume", kafka_topic, "-o", "ndjson")
    table = headrace("consume", kafka_topic)
    first, second = document.json
    assert first.keys() >= RECORD_FIELDS
    assert (first["topic"], first["partition"], first["offset"]) == (kafka_topic, 0, 0)
    assert (first["key"], first["value"], first["headers"]) == ("one", "1", [])
    assert (second["key"], second["value"]) == ("two", "zwei=2")
    assert first["timestamp_type"] == "create"
    assert abs(first["timestamp"] / 1000 - time.time()) < 60
    assert lines.lines == document.json
    assert "zwei=2" in table.stdout
    assert document.stderr == lines.stderr == table.stderr == "2 records\n"


def test_bytes_that_are_not_text_come_as_base64(
    headrace: Cli, admin: Admin, kafka_topic: str
) -> None:
    """What is not UTF-8 is told apart from text, in keys, values and headers."""
    with Producer(admin.connection) as producer:
        producer.send(kafka_topic, b"\xff\x00", key=b"\x80", headers=[("h", b"\xfe"), ("h", None)])
        producer.send(kafka_topic, None, key=b"")
    binary, tombstone = headrace.json("consume", kafka_topic)
    assert binary["value"] == {"base64": "/wA="}
    assert binary["key"] == {"base64": "gA=="}
    assert binary["headers"] == [
        {"key": "h", "value": {"base64": "/g=="}},
        {"key": "h", "value": None},
    ]
    assert (tombstone["key"], tombstone["value"]) == ("", None)


def test_it_begins_where_it_is_told(headrace: Cli, minutes: tuple[str, int]) -> None:
    """earliest, latest, an offset, epoch milliseconds, ISO 8601; a time means the next record."""
    topic, first = minutes
    fifth = datetime.fromtimestamp((first + 5 * MINUTE) / 1000, UTC)
    positions = {
        "earliest": 0,
        "latest": 10,
        "3": 3,
        "10": 10,
        f"@{first + 4 * MINUTE}": 4,
        f"@{first + 4 * MINUTE + 1}": 5,
        fifth.strftime("%Y-%m-%dT%H:%M:%SZ"): 5,
        fifth.strftime("%Y-%m-%d %H:%M:%S"): 5,
        f"@{first + 500 * MINUTE}": 10,
    }
    calls = [headrace.start("consume", topic, "-o", "ndjson", "--from", p) for p in positions]
    found = {p: values(done.lines) for p, done in zip(positions, together(*calls), strict=True)}
    assert found == {p: [str(n) for n in range(begin, 10)] for p, begin in positions.items()}


def test_one_partition_and_a_maximum(headrace: Cli, admin: Admin, make_topic: MakeTopic) -> None:
    """--partition reads that one only; -n stops after exactly so many."""
    topic = make_topic(partitions=3)
    with Producer(admin.connection) as producer:
        for number in range(30):
            producer.send(topic, str(number), partition=number % 3)
    one, few, many = together(
        headrace.start("consume", topic, "--partition", "1", "-o", "ndjson"),
        headrace.start("consume", topic, "-n", "7", "-o", "json"),
        headrace.start("consume", topic, "-n", "99", "-o", "ndjson"),
    )
    assert values(one.lines) == [str(n) for n in range(1, 30, 3)]
    assert {record["partition"] for record in one.lines} == {1}
    assert len(few.json) == 7
    assert sorted(int(v) for v in values(many.lines)) == list(range(30))


def test_a_group_commits_exactly_what_was_printed(
    headrace: Cli, admin: Admin, minutes: tuple[str, int], make_group: MakeGroup
) -> None:
    """With -n 2 the group stands after those two, and the next run goes on there."""
    topic, group = minutes[0], make_group()
    command = ("consume", topic, "--group", group, "-o", "ndjson")
    assert values(headrace(*command, "-n", "2").lines) == ["0", "1"]
    assert admin.committed(group) == {TopicPartition(topic, 0): 2}
    assert values(headrace(*command, "-n", "3").lines) == ["2", "3", "4"]
    assert values(headrace(*command).lines) == ["5", "6", "7", "8", "9"]
    assert headrace(*command).stdout == ""


def test_a_group_reads_many_partitions_once_each(
    headrace: Cli, admin: Admin, make_topic: MakeTopic, make_group: MakeGroup
) -> None:
    """Cut off in the middle of several partitions: together the runs print each record once."""
    topic, group = make_topic(partitions=3), make_group()
    with Producer(admin.connection) as producer:
        for number in range(60):
            producer.send(topic, str(number), partition=number % 3)
    command = ("consume", topic, "--group", group, "-o", "ndjson")
    first, rest = headrace(*command, "-n", "31").lines, headrace(*command).lines
    assert len(first) == 31
    assert sorted(int(v) for v in values(first + rest)) == list(range(60))


def test_a_new_group_can_begin_at_the_end(
    headrace: Cli, minutes: tuple[str, int], make_group: MakeGroup
) -> None:
    """`--group G --from latest` skips what is there, and ends."""
    done = headrace("consume", minutes[0], "--group", make_group(), "--from", "latest")
    assert done.stderr == "0 records\n"


def test_follow_sees_later_records_and_ends_on_ctrl_c(
    headrace: Cli, admin: Admin, kafka_topic: str
) -> None:
    """--follow prints a record as it comes; SIGINT ends it with exit 130 and no traceback."""
    with headrace.start("consume", kafka_topic, "--follow", "-o", "ndjson") as reader:
        with Producer(admin.connection) as producer:
            producer.send(kafka_topic, "now").result()
            assert reader.line()["value"] == "now"
            producer.send(kafka_topic, "later").result()
            assert reader.line()["value"] == "later"
        reader.process.send_signal(signal.SIGINT)
        assert reader.finish(status=130).stdout == ""


@pytest.mark.parametrize("output", ["table", "json", "ndjson"])
def test_a_reader_that_goes_away_is_no_error(
    headrace: Cli, admin: Admin, kafka_topic: str, output: str
) -> None:
    """`headrace consume ... | head -1` prints a line and ends quietly with exit 0."""
    with Producer(admin.connection) as producer:
        for _ in range(5_000):
            producer.send(kafka_topic, "x" * 200)
    with headrace.start("consume", kafka_topic, "-o", output) as reader:
        assert reader.process.stdout is not None
        assert reader.process.stdout.readline()
        reader.process.stdout.close()
        reader.process.stdout = None
        assert reader.finish(status=0).stderr == ""


def test_an_empty_topic_is_an_empty_result(
    headrace: Cli, kafka_topic: str, make_group: MakeGroup
) -> None:
    """Nothing to read: `[]`, no lines, the table's head alone; and the command ends."""
    document, lines, as_group = together(
        headrace.start("consume", kafka_topic, "-o", "json"),
        headrace.start("consume", kafka_topic, "-o", "ndjson"),
        headrace.start("consume", kafka_topic, "-o", "json", "--group", make_group()),
    )
    assert document.json == as_group.json == []
    assert lines.stdout == ""


def transactional(cluster: LocalCluster, name: str) -> Client:
    client = Client({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    client.init_transactions(30)
    return client


def test_aborted_transactions_are_not_shown_and_do_not_hold_up(
    headrace: Cli, kafka_cluster: LocalCluster, kafka_topic: str, make_group: MakeGroup
) -> None:
    """Markers and aborted records take offsets, yet a read to the end ends by itself."""
    client = transactional(kafka_cluster, kafka_topic)
    for number, kept in enumerate([True, False, True, False, False]):
        client.begin_transaction()
        client.produce(kafka_topic, value=f"{number}a")
        client.produce(kafka_topic, value=f"{number}b")
        client.flush()
        (client.commit_transaction if kept else client.abort_transaction)(30)
    (partition,) = headrace.json("topic", "describe", kafka_topic)["partitions"]
    assert partition["latest"] == 15
    everything, tail, as_group = together(
        headrace.start("consume", kafka_topic, "-o", "json"),
        headrace.start("consume", kafka_topic, "-o", "json", "--from", "9"),
        headrace.start("consume", kafka_topic, "-o", "json", "--group", make_group()),
    )
    assert values(everything.json) == ["0a", "0b", "2a", "2b"]
    assert values(as_group.json) == ["0a", "0b", "2a", "2b"]
    assert tail.json == []


def test_an_open_transaction_does_not_hold_up(
    headrace: Cli, kafka_cluster: LocalCluster, admin: Admin, kafka_topic: str
) -> None:
    """Records of a transaction still open are not shown, and the read ends before them."""
    with Producer(admin.connection) as producer:
        producer.send(kafka_topic, "before")
    client = transactional(kafka_cluster, kafka_topic)
    client.begin_transaction()
    client.produce(kafka_topic, value="undecided")
    client.flush()
    here = TopicPartition(kafka_topic, 0)
    assert admin.offsets([here], Latest()) == {here: 2}
    try:
        assert values(headrace.json("consume", kafka_topic)) == ["before"]
    finally:
        client.abort_transaction(30)


def test_what_cannot_be_read_is_bad_input(headrace: Cli, minutes: tuple[str, int]) -> None:
    """Wrong positions and options in conflict: exit 2, before anything is printed."""
    topic = minutes[0]
    complaints = {
        ("--from", "noon"): "'noon' is no position",
        ("--from", "11"): "has the offset 11",
        ("--partition", "4"): "no partition 4",
        ("-n", "0"): "-n must be 1 or more",
        ("--group", "g", "--partition", "0"): "--group and --partition",
        ("--group", "g", "--from", "3"): "with --group, --from is earliest or latest",
    }
    for options, complaint in complaints.items():
        assert complaint in headrace.refused(2, "consume", topic, "-o", "json", *options).error
