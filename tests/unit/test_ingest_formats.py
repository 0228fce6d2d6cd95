"""What a file is, as told or by its name; and what cannot be asked for is said at once."""

import functools

import pytest

from headrace.clients import Connection
from headrace.errors import BadInput, ConfigError
from headrace.spark.ingest.formats import check_value, format_of, json_fields
from headrace.spark.ingest.json_lines import JsonField
from headrace.spark.ingest.schema import CLICKSTREAM, Column, RowSchema

pytest.importorskip("pyspark")

from headrace.spark.ingest import files
from headrace.spark.ingest.chunks import Extent, plan_chunks
from headrace.spark.ingest.files import plan_file
from headrace.spark.ingest.limits import limits_of
from headrace.spark.ingest.options import IngestOptions, check_options
from headrace.spark.ingest.source import ChunkToRead
from headrace.spark.running import translate_failure

NOWHERE = Connection("127.0.0.1:1", "http://127.0.0.1:1")
NO_TIME = RowSchema("plain", (Column("a", "a"),))


@pytest.mark.parametrize(
    ("path", "format"),
    [
        *(("a.jsonl", "jsonl"), ("a.ndjson", "jsonl"), ("a.json", "jsonl"), ("a.JSONL", "jsonl")),
        *(("a.jsonl.gz", "jsonl"), ("/b.csv/a.json.GZ", "jsonl")),
        *(("a.csv", "csv"), ("a", "csv"), ("a.txt", "csv"), ("a.csv.gz", "csv"), ("a.gz", "csv")),
        *(("json", "csv"), (".json", "csv"), ("b.json/a", "csv"), ("a.json.bak", "csv")),
    ],
)
def test_a_file_is_what_its_suffix_says_unless_told(path, format):
    assert format_of(path) == format
    assert format_of(path, "csv") == "csv"
    assert format_of(path, "jsonl") == "jsonl"


def test_lines_of_json_cannot_be_sent_as_csv():
    with pytest.raises(BadInput, match=r"--value csv .* b\.jsonl is jsonl \(by its suffix\)") as by:
        check_value("csv", ["a.csv", "b.jsonl"], None)
    assert "--value json or avro" in by.value.hint
    assert "--format csv" in by.value.hint
    with pytest.raises(BadInput, match=r"a\.csv is jsonl \(by --format\)"):
        check_value("csv", ["a.csv"], "jsonl")
    check_value("csv", ["a.csv", "b.jsonl"], "csv")
    check_value("json", ["b.jsonl"], None)
    check_value("avro", ["b.jsonl"], None)


def test_what_each_column_is_in_json():
    types = ("string", "long", "int", "double", "float", "boolean", "time", "date", "enum")
    kinds = ("text", "whole", "whole", "number", "number", "truth", "text", "text", "text")
    schema = RowSchema("all", tuple(Column(f"c_{kind}", "x", kind) for kind in types))
    assert json_fields(schema) == [
        JsonField(f"c_{name}", kind) for name, kind in zip(types, kinds, strict=True)
    ]
    counted = Column("at", "at", "time", format="micros", unit="micros")
    assert json_fields(RowSchema("one", (counted,))) == [JsonField("at", "whole")]


def test_a_header_is_csvs_alone(tmp_path):
    """A file of JSON lines has rows from its first line on, whatever stands there."""
    file = tmp_path / "f"
    file.write_text(",".join(CLICKSTREAM.names) + "\n")
    assert plan_file(str(file), "csv", (), CLICKSTREAM).header
    assert not plan_file(str(file), "jsonl", (), CLICKSTREAM).header


def test_quotes_matter_to_the_chunks_of_csv_alone(tmp_path, monkeypatch):
    """Line ends within quotes: a chunk of CSV ends after the row, one of JSON lines anywhere."""
    monkeypatch.setattr(files, "plan_chunks", functools.partial(plan_chunks, size=1))
    (tmp_path / "f").write_bytes(b'a,"b\nc"\n' + b"d,e\n" * 20)
    ends = {
        format: plan_file(str(tmp_path / "f"), format, (), CLICKSTREAM).chunks[0].extent.end
        for format in ("csv", "jsonl")
    }
    assert ends["csv"] > len(b'a,"b\nc"\n')
    assert ends["jsonl"] == len(b'a,"b\n')


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_an_error_about_a_chunk_says_how_its_file_was_read(format):
    piece = str(Extent(0, 1000, "ab"))
    chunk = ChunkToRead("/data/f.json", piece, 0, 1000, 1, 5, False, 0, 0, format)
    told = Exception(f"headrace.errors.BadInput: of piece {piece} more than 10% is bad\n at x")
    failure = translate_failure(told, [chunk])
    assert failure.message == (
        f"of /data/f.json (bytes 0 to 1,000, read as {format}) more than 10% is bad"
    )
    assert isinstance(failure, BadInput)


# --- options ---

limits = functools.partial(limits_of, event_time=True, now=10_000)


def check(connection=NOWHERE, schema=CLICKSTREAM, files=("a.csv",), **options):
    check_options(IngestOptions(list(files), "t", schema, **options), files, connection)


def test_options_that_make_sense_need_no_broker_and_no_registry_to_be_checked():
    check(value="avro", event_time=True, key="user_id", format="jsonl")


def test_the_events_time_needs_a_time():
    with pytest.raises(BadInput, match="--event-time needs a time, and schema 'plain' names none"):
        check(schema=NO_TIME, event_time=True)


def test_sparks_own_sink_cannot_give_the_events_time():
    with pytest.raises(BadInput, match="--event-time needs exactly-once"):
        check(event_time=True, guarantee="at-least-once")


def test_a_topic_says_which_times_its_records_may_have():
    given = {"message.timestamp.before.max.ms": "500", "message.timestamp.after.max.ms": "100"}
    assert limits("t", given).times == (9_750, 10_100)  # with room for the way there
    endless = dict.fromkeys(given, str(2**63 - 1))
    assert limits("t", endless).times == (1, 2**63 - 1)
    with pytest.raises(BadInput, match="topic 't' gives records its own time"):
        limits("t", given | {"message.timestamp.type": "LogAppendTime"})


def test_a_topic_says_how_large_its_records_may_be():
    assert limits("t", {"max.message.bytes": "1048588"}).most_bytes == 900_000
    assert limits("t", {"max.message.bytes": "50000"}).most_bytes == 49_000
    with pytest.raises(BadInput, match="topic 't' takes records of 900 bytes only"):
        limits("t", {"max.message.bytes": "900"})


def test_avro_needs_a_registry():
    with pytest.raises(ConfigError, match="there is no schema registry") as caught:
        check(Connection("127.0.0.1:1"), value="avro")
    assert "headrace up --registry" in caught.value.hint
    check(Connection("127.0.0.1:1"), value="json")


def test_avro_needs_fields_that_spark_can_tell_apart():
    twins = RowSchema("twins", (Column("a", "id"), Column("b", "Id")))
    with pytest.raises(ConfigError, match="the fields id and Id differ only in upper and lower"):
        check(schema=twins, value="avro")
    check(schema=twins, value="json")


def test_jsonl_as_csv_and_an_unknown_key_are_refused():
    with pytest.raises(BadInput, match="--value csv"):
        check(files=["a.jsonl"], value="csv")
    with pytest.raises(BadInput, match="no column 'colour'"):
        check(key="colour")
