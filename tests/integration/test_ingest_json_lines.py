"""`ingest` of JSON lines on a real cluster: each line once, as an event or as a dead letter."""

import gzip
import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from headrace.errors import BadInput
from support.ingest import (
    assert_exact,
    dead_letters,
    event,
    json_line,
    lines,
    records,
    write_file,
)

pytest.importorskip("pyspark")

from headrace.spark.ingest.rows import MAX_ROW_BYTES, SHOWN_BYTES, TAKEN_BEFORE
from headrace.spark.ingest.schema import Column, RowSchema


def write_lines(path, some_lines):
    return write_file(path, map(json_line, some_lines), header=b"")


def spoilt(line, **changes):
    """A line of JSON with other fields; those that become `...` are left out."""
    row = {**json.loads(json_line(line)), **changes}
    return json.dumps({name: value for name, value in row.items() if value is not ...}).encode()


def bad_lines(line):
    """Every kind of bad line, and what its reason begins with."""
    good = json_line(line).rstrip(b"\n")
    return [
        (spoilt(line, product_id="12"), 'product_id is no whole number: "12"'),
        (spoilt(line, product_id=12.0), "product_id is no whole number: 12.0"),
        (spoilt(line, product_id=2**64), "product_id is no whole number: 1.8446744073709552e+19"),
        (spoilt(line, price="cheap"), 'price is no number: "cheap"'),
        (spoilt(line, brand=5), "brand is no text: 5"),
        (spoilt(line, brand=["a"]), 'brand is no text: ["a"]'),
        (spoilt(line, event_time="2019-13-45 25:61:00 UTC"), "event_time is no time: 2019-13-45"),
        (spoilt(line, event_time=1_570_000_000_000), "event_time is no text: 1570000000000"),
        (spoilt(line, event_type="look"), "event_type is no known value: look"),
        (spoilt(line, event_type=""), "event_type is no known value: "),
        (spoilt(line, user_id=...), "user_id is missing or null"),
        (spoilt(line, user_id=None), "user_id is missing or null"),
        (spoilt(line, colour="red"), "has unknown fields: colour"),
        (good[:-1] + b',"price":1}', "has a field twice: price"),
        (b"[%s]" % good, "is no object but a list"),
        (good[: len(good) // 2], "is no JSON: "),
        (good + good, "is no JSON: unexpected content after document"),
        (good.replace(b'"view"', b'"\xfc"'), "is not UTF-8: byte 0xfc"),
        (spoilt(line, brand="x" * MAX_ROW_BYTES), "has 900,"),
    ]


def test_lines_become_events_and_bad_ones_dead_letters_with_their_place(
    send, kafka_cluster, topic, tmp_path
):
    """All kinds of bad lines; ids beyond 2**53 to the last digit; run again, nothing is sent."""
    some = lines(500, seed=7)
    assert any(event(raw)["categoryId"] % 2**10 for raw in some)  # no double holds such an id
    view = next(raw for raw in some if b"view" in raw)
    bad = bad_lines(view)
    good = [json_line(raw).rstrip(b"\n") for raw in some]
    mixed = [raw for pair in zip(good, (raw for raw, _ in bad), strict=False) for raw in pair]
    file = tmp_path / "all.jsonl"
    file.write_bytes(b"\n".join(mixed + good[len(bad) :]) + b"\n")
    first = send(file)
    assert (first.rows_read, first.rows_sent, first.rows_dead) == (500 + len(bad), 500, len(bad))
    assert_exact(kafka_cluster, topic, some)
    found = dead_letters(kafka_cluster, topic)
    assert sorted(found) == [2 * n + 2 for n in range(len(bad))]
    for place, (raw, reason) in enumerate(bad):
        name, value, told = found[2 * place + 2]
        assert (name, value) == (str(file), raw if len(raw) <= MAX_ROW_BYTES else raw[:SHOWN_BYTES])
        assert told.startswith(reason)
    again = send(file)
    assert (again.rows_sent, again.rows_dead, again.rows_skipped) == (0, 0, first.rows_read)
    assert len(records(kafka_cluster, topic)) == 500


def test_of_a_grown_file_only_what_is_new_is_sent_whatever_it_is_called(
    send, kafka_cluster, topic, tmp_path, small_chunks
):
    """Several chunks; then longer, then compressed under another name."""
    file = write_lines(tmp_path / "f.jsonl", some := lines(1_000))
    assert send(file).rows_sent == 1_000
    write_lines(file, some + (more := lines(500, seed=1)))
    grown = send(file)
    assert (grown.rows_sent, grown.rows_skipped) == (500, 1_000)
    packed = tmp_path / "g.ndjson.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert send(packed).rows_skipped == 1_500
    assert_exact(kafka_cluster, topic, some + more)


def test_a_line_taken_before_it_was_complete_is_not_lost(send, kafka_cluster, topic, tmp_path):
    """Both halves are dead letters that say so; the lines around them are events."""
    some = lines(20)
    whole = b"".join(map(json_line, some))
    end = len(b"".join(map(json_line, some[:10]))) + 60
    file = tmp_path / "f.jsonl"
    file.write_bytes(whole[:end])
    assert send(file).rows_dead == 1
    file.write_bytes(whole)
    grown = send(file)
    assert (grown.rows_sent, grown.rows_dead) == (9, 1)
    assert_exact(kafka_cluster, topic, some[:10] + some[11:])
    dead = records(kafka_cluster, f"{topic}.dead")
    told = {dict(record.headers)["headrace-reason"].decode(): record.value for record in dead}
    rest = told.pop(TAKEN_BEFORE)
    (reason,) = told
    assert reason.startswith("is no JSON: ")
    assert told[reason] + rest == json_line(some[10]).rstrip(b"\n")


def test_csv_and_json_lines_in_one_folder_each_by_its_suffix(send, kafka_cluster, topic, tmp_path):
    write_file(tmp_path / "a.csv", one := lines(30))
    write_lines(tmp_path / "b.json", two := lines(30, seed=1))
    packed = gzip.compress(b"".join(map(json_line, three := lines(30, seed=2))))
    (tmp_path / "c.ndjson.gz").write_bytes(packed)
    result = send(tmp_path)
    assert (result.files, result.rows_sent, result.rows_dead) == (3, 90, 0)
    assert_exact(kafka_cluster, topic, one + two + three)


def test_a_file_read_as_what_it_is_not_is_refused_and_the_error_says_how_it_was_read(
    send, kafka_cluster, topic, tmp_path
):
    file = write_lines(tmp_path / "f.txt", some := lines(20))
    with pytest.raises(BadInput, match=re.escape(f"{file} (bytes 0 to ")) as caught:
        send(file)
    assert "read as csv" in caught.value.message
    assert records(kafka_cluster, topic) == records(kafka_cluster, f"{topic}.dead") == []
    assert send(file, format="jsonl").rows_sent == 20
    assert_exact(kafka_cluster, topic, some)


def test_every_type_with_the_events_time_as_a_count_and_another_key(
    send, kafka_cluster, topic, tmp_path
):
    """Empty text stays text, a field that is missing is null; times are counted in microseconds."""
    at = datetime.now(UTC) - timedelta(hours=1)  # brokers remove what is older than a week
    micros = int(at.timestamp()) * 1_000_000 + 123_456
    schema = RowSchema(
        "all",
        (
            Column("at", "seenAt", "time", format="micros", unit="micros", required=True),
            Column("id", "id", "long"),
            Column("small", "small", "int"),
            Column("ratio", "ratio", "float"),
            Column("new", "isNew", "boolean"),
            Column("day", "day", "date", format="yyyy-MM-dd"),
            Column("note", "note", required=True),
        ),
        time="at",
    )
    good = [
        {"at": micros, "id": 2**60 + 1, "small": -5, "ratio": 0.5, "new": False},
        {"at": micros + 1000, "day": "2024-02-29", "new": True, "id": 7},
    ]
    bad = [
        ({"small": 2**31}, "small is no whole number of 32 bits: 2147483648"),
        ({"ratio": 1e39}, "ratio is no number of 32 bits: 1.0E39"),
        ({"new": "yes"}, 'new is no true or false: "yes"'),
        ({"day": "2023-02-29"}, "day is no date: 2023-02-29"),
        ({"note": None}, "note is missing or null"),
    ]
    rows = [{"note": ""} | row for row in (*good, *({"at": 1} | row for row, _ in bad))]
    file = tmp_path / "f.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    send(file, schema=schema, key="id", event_time=True, max_bad=1)
    nothing = {column.field: None for column in schema.columns}
    found = sorted(records(kafka_cluster, topic), key=lambda record: record.timestamp)
    assert [json.loads(record.value) for record in found] == [
        nothing
        | {"seenAt": micros, "id": 2**60 + 1, "small": -5, "ratio": 0.5, "isNew": False}
        | {"note": ""},
        nothing
        | {"seenAt": micros + 1000, "day": "2024-02-29", "isNew": True, "id": 7, "note": ""},
    ]
    assert [(r.key, r.timestamp) for r in found] == [
        (str(2**60 + 1).encode(), micros // 1000),
        (b"7", micros // 1000 + 1),
    ]
    dead = dead_letters(kafka_cluster, topic)
    assert [dead[line][2] for line in sorted(dead)] == [reason for _, reason in bad]
