"""What a topic does not take is a dead letter: a broker would refuse it with all beside it."""

import dataclasses
import re
from datetime import UTC, datetime, timedelta

import pytest

from headrace.errors import BadInput
from support.ingest import dead_letters, event, json_line, lines, records, write_file

pytest.importorskip("pyspark")

from headrace.spark.ingest.schema import CLICKSTREAM


def test_a_time_that_the_topic_does_not_take_is_a_dead_letter(send, kafka_cluster, topic, tmp_path):
    """A broker would refuse it with all that stands beside it, and 1970 would become now."""
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    moments = [
        *(now - timedelta(hours=1), now + timedelta(minutes=50), now + timedelta(hours=2)),
        *(datetime(1970, 1, 1), datetime(1969, 12, 31)),
    ]
    some = [
        b"%s UTC,%s" % (str(moment).encode(), raw.split(b",", 1)[1])
        for moment, raw in zip(moments, lines(5), strict=True)
    ]
    result = send(write_file(tmp_path / "f.csv", some), event_time=True, max_bad=1)
    assert (result.rows_sent, result.rows_dead) == (2, 3)
    assert {record.timestamp for record in records(kafka_cluster, topic)} == {
        event(raw)["eventTime"] for raw in some[:2]
    }
    reasons = [reason for _, _, reason in dead_letters(kafka_cluster, topic).values()]
    causes = ["later than the topic takes", *["not after 1970"] * 2]
    assert sorted(reasons) == sorted(
        f"event_time cannot be a record's time, it is {cause}: {moment} UTC"
        for cause, moment in zip(causes, moments[2:], strict=True)
    )


def test_a_topic_with_limits_of_its_own_gets_what_it_takes(
    send, admin, kafka_cluster, topic, tmp_path
):
    """Small records, in small batches, each with a key: one that is not so harms no other."""
    admin.set_configs(topic, {"max.message.bytes": "20000", "cleanup.policy": "compact"})
    good = [raw for raw in lines(1_000) if raw.split(b",")[5]]
    large, nameless = (raw.split(b",") for raw in good[:2])
    large[4], nameless[5] = b"c" * 20_000, b""
    some = [b",".join(large), b",".join(nameless), *good]
    file = write_file(tmp_path / "f.jsonl", map(json_line, some), header=b"")
    result = send(file, key="brand", max_bad=1)
    assert (result.rows_sent, result.rows_dead) == (len(good), 2)
    reasons = {line: reason for line, (_, _, reason) in dead_letters(kafka_cluster, topic).items()}
    assert re.fullmatch(r"has 2\d{4} bytes as json with its key, too many", reasons[1])
    assert reasons[2] == "has no key, and the topic is compacted"
    with pytest.raises(BadInput, match="is compacted, so that every record needs a key"):
        send(file, schema=dataclasses.replace(CLICKSTREAM, key=None))


@pytest.mark.parametrize("value", ["csv", "json"])
def test_a_row_that_is_too_large_with_its_key_is_a_dead_letter(
    send, kafka_cluster, topic, tmp_path, value
):
    """Each of them alone would do."""
    columns = lines(1)[0].split(b",")
    columns[5] = b"b" * 480_000
    file = write_file(tmp_path / "f.csv", [b",".join(columns), *lines(3)])
    result = send(file, key="brand", value=value)
    assert (result.rows_sent, result.rows_dead) == (3, 1)
    ((_, raw, reason),) = dead_letters(kafka_cluster, topic).values()
    assert raw == b",".join(columns).rstrip(b"\n")
    assert re.fullmatch(f"has 960\\d{{3}} bytes as {value} with its key, too many", reason)
