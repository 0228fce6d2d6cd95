"""`headrace produce`: what it sends, what it refuses, what it tells."""

import json

from headrace.clients import Reader
from headrace.local import LocalCluster
from headrace.model import Record
from support.cli import Cli


def read(cluster: LocalCluster, topic: str) -> list[Record]:
    with Reader(topic, connection=cluster.bootstrap) as reader:
        return [record for batch in reader.batches() for record in batch]


def read_values(cluster: LocalCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in read(cluster, topic)]


def test_a_line_of_text_is_a_value(
    headrace: Cli, kafka_cluster: LocalCluster, kafka_topic: str
) -> None:
    """Any bytes up to the newline, empty lines too; the last line needs no newline."""
    lines = [b"one", b"", b"\xff\x00 not UTF-8", "späße \U0001f40e".encode(), b"last"]
    result = headrace("produce", kafka_topic, "-o", "json", stdin=b"\n".join(lines))
    assert (result.json["sent"], result.json["failed"]) == (5, 0)
    assert result.stderr == ""
    assert read_values(kafka_cluster, kafka_topic) == lines


def test_nothing_on_stdin_sends_nothing(headrace: Cli, kafka_topic: str) -> None:
    """No lines is no error."""
    result = headrace.json("produce", kafka_topic)
    assert (result["sent"], result["failed"]) == (0, 0)


def test_a_key_stands_before_the_separator(
    headrace: Cli, kafka_cluster: LocalCluster, kafka_topic: str
) -> None:
    """The first separator of the line counts; empty keys and values are empty, not null."""
    headrace("produce", kafka_topic, "--key-separator", "::", stdin="k::v::w\n::v\nk::\n")
    found = [(r.key, r.value) for r in read(kafka_cluster, kafka_topic)]
    assert found == [(b"k", b"v::w"), (b"", b"v"), (b"k", b"")]


def test_a_bad_ndjson_line_is_named_and_the_earlier_ones_are_sent(
    headrace: Cli, kafka_cluster: LocalCluster, kafka_topic: str
) -> None:
    """Line 3 is broken: exit 2 names it, lines 1 and 2 are written, line 4 is not."""
    lines = '{"value": "1"}\n{"value": "2"}\n{"value": \n{"value": "4"}\n'
    refused = headrace.refused(2, "produce", kafka_topic, "--input", "ndjson", stdin=lines)
    assert refused.error.startswith("line 3: ")
    assert "2 records before it were sent" in refused.error
    assert read_values(kafka_cluster, kafka_topic) == [b"1", b"2"]


def test_every_kind_of_bad_ndjson_is_refused(
    headrace: Cli, kafka_cluster: LocalCluster, kafka_topic: str
) -> None:
    """Each complaint names what is wrong with the line, and nothing of it is sent."""
    bad = {
        "[1]": "not an object",
        '{"key": "k"}': 'no "value"',
        '{"value": 7}': '"value" must be text',
        '{"value": {"base64": "***"}}': "no base64",
        '{"value": "v", "wert": 1}': "unknown field 'wert'",
        '{"value": "v", "timestamp": "noon"}': '"timestamp" must be a whole number',
        '{"value": "v", "headers": {"a": "b"}}': '"headers" must be a list',
    }
    for line, complaint in bad.items():
        refused = headrace.refused(2, "produce", kafka_topic, "--input", "ndjson", stdin=line)
        assert complaint in refused.error
    assert read_values(kafka_cluster, kafka_topic) == []


def test_a_line_without_the_separator_is_named(
    headrace: Cli, kafka_cluster: LocalCluster, kafka_topic: str
) -> None:
    """As with ndjson: the number of the line, and what came before it is written."""
    command = ("produce", kafka_topic, "--key-separator", "=")
    refused = headrace.refused(2, *command, stdin="a=1\nb\nc=3\n")
    assert refused.error.startswith("line 2: ")
    assert read_values(kafka_cluster, kafka_topic) == [b"1"]


def test_a_record_too_large_is_named_and_the_earlier_ones_are_sent(
    headrace: Cli, kafka_cluster: LocalCluster, kafka_topic: str
) -> None:
    """Two megabytes in line 3 are refused; the two small lines before it are not lost."""
    large = "x" * 2_000_000
    refused = headrace.refused(2, "produce", kafka_topic, stdin=f"1\n2\n{large}\n4\n")
    assert refused.error.startswith("line 3: ")
    assert large[:100] not in refused.stderr
    assert read_values(kafka_cluster, kafka_topic) == [b"1", b"2"]


def test_options_in_conflict_are_bad_input(headrace: Cli, kafka_topic: str) -> None:
    """An option that would be ignored is refused instead."""
    for options in (
        ("--input", "ndjson", "--key-separator", "="),
        ("--input", "text", "--keep-partitions"),
        ("--key-separator", ""),
        ("--input", "xml"),
    ):
        assert options[0] in headrace.refused(2, "produce", kafka_topic, *options).stderr


def test_a_partition_that_is_not_there_is_told(
    headrace: Cli, kafka_cluster: LocalCluster, kafka_topic: str
) -> None:
    """--keep-partitions into a smaller topic: no silent change of place, no exit 0."""
    lines = "".join(json.dumps({"value": str(p), "partition": p}) + "\n" for p in (0, 5))
    command = ("produce", kafka_topic, "--input", "ndjson", "--keep-partitions")
    refused = headrace.refused(2, *command, stdin=lines)
    assert refused.error.startswith("line 2: ")
    assert read_values(kafka_cluster, kafka_topic) == [b"0"]
