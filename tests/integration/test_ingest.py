"""`ingest` on a real cluster: every row of a file once, whatever happens to file or process."""

import codecs
import dataclasses
import gzip
import itertools
import re
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from headrace.errors import BadInput, OperationFailed, TopicNotFound
from headrace.services.clickstream import rows
from support.ingest import (
    assert_exact,
    event,
    line_columns,
    lines,
    records,
    write_file,
)

pytest.importorskip("pyspark")

from headrace.spark.ingest import job
from headrace.spark.ingest.rows import SHOWN_BYTES
from headrace.spark.ingest.schema import CLICKSTREAM, find_schema

REASONS = {
    "too_few_columns": "has 7 columns, not 9",
    "too_many_columns": "has 10 columns, not 9",
    "bad_product_id": "product_id is no whole number: 12x4",
    "bad_price": "price is no number: abc",
    "bad_time": "event_time is no time: 2019-13-45 25:61:00 UTC",
    "invalid_utf8": "is not UTF-8: byte 0xfc",
    "oversized": "has 1,2",
    "quoted_newline": "has a line end within quotes",
    "truncated": "has ",
}


# --- what arrives ---


def test_good_rows_become_events_and_bad_ones_dead_letters_with_their_place(
    send, kafka_cluster, topic, tmp_path
):
    """All kinds of bad rows; ids beyond 2**53 to the last digit; run again, nothing is sent."""
    made = list(rows(2_000, 7, 0.01))
    file = write_file(tmp_path / "all.csv", [raw for raw, _ in made])
    first = send(file)
    good = [raw for raw, kind in made if kind is None]
    assert any(int(line_columns(raw)[3]) % 2**10 for raw in good)  # no double holds such an id
    assert_exact(kafka_cluster, topic, good)
    assert (first.files, first.rows_sent, first.rows_dead) == (1, len(good), 2_000 - len(good))
    assert (first.rows_read, first.rows_skipped) == (2_000, 0)
    assert_dead_letters(records(kafka_cluster, f"{topic}.dead"), file, made)
    again = send(file)
    assert (again.rows_sent, again.rows_dead, again.rows_skipped) == (0, 0, 2_000)
    assert len(records(kafka_cluster, topic)) == len(good)
    assert len(records(kafka_cluster, f"{topic}.dead")) == 2_000 - len(good)


def assert_dead_letters(dead, file, made):
    found = {}
    for record in dead:
        named = dict(record.headers)
        assert named["headrace-file"].decode() == str(file)
        assert record.key is None
        found[int(named["headrace-line"])] = record.value, named["headrace-reason"].decode()
    expected = bad_rows_by_line(made)
    assert len(dead) == len(expected)
    assert {kind for _, kind in expected.values()} == set(REASONS)
    for line, (raw, kind) in expected.items():
        value, reason = found[line]
        assert value == (raw[:SHOWN_BYTES] if kind == "oversized" else raw)
        assert reason.startswith(REASONS[kind])


def bad_rows_by_line(made):
    """Lines are counted from 1, the header is the first one."""
    starts = itertools.accumulate((raw.count(b"\n") for raw, _ in made), initial=2)
    return {
        line: (raw.removesuffix(b"\n"), kind)
        for line, (raw, kind) in zip(starts, made, strict=False)
        if kind is not None
    }


def test_lines_as_they_are_with_the_events_time_and_another_key(
    send, kafka_cluster, topic, tmp_path
):
    """Recent times: brokers remove what is older than a week by its timestamp."""
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    some = [
        b"%s UTC," % str((start + timedelta(seconds=n)).replace(tzinfo=None)).encode()
        + raw.split(b",", 1)[1]
        for n, raw in enumerate(lines(50))
    ]
    send(write_file(tmp_path / "f.csv", some), value="csv", event_time=True, key="product_id")
    found = records(kafka_cluster, topic)
    assert Counter((r.timestamp, r.key, r.value) for r in found) == Counter(
        (event(raw)["eventTime"], raw.split(b",")[2], raw.rstrip(b"\n")) for raw in some
    )


def test_without_a_key_the_rows_have_none(send, kafka_cluster, topic, tmp_path):
    file = write_file(tmp_path / "f.csv", lines(20))
    send(file, schema=dataclasses.replace(CLICKSTREAM, key=None))
    assert [record.key for record in records(kafka_cluster, topic)] == [None] * 20


def test_sparks_own_sink_sends_all_and_is_remembered(send, kafka_cluster, topic, tmp_path):
    file = write_file(tmp_path / "f.csv", some := lines(500))
    assert send(file, guarantee="at-least-once").rows_sent == 500
    assert_exact(kafka_cluster, topic, some)
    assert send(file).rows_skipped == 500


def test_files_with_a_header_without_and_with_nothing(send, kafka_cluster, topic, tmp_path):
    write_file(tmp_path / "bare.csv", some := lines(20), header=b"")
    write_file(tmp_path / "empty.csv", [], header=b"")
    write_file(tmp_path / "header.csv", [])
    write_file(tmp_path / "with.csv", more := lines(20, seed=1))
    result = send(tmp_path)
    assert (result.files, result.rows_sent, result.rows_dead) == (4, 40, 0)
    assert_exact(kafka_cluster, topic, some + more)
    write_file(tmp_path / "header.csv", late := lines(5, seed=2))
    assert send(tmp_path).rows_sent == 5
    assert_exact(kafka_cluster, topic, some + more + late)


# --- what is known already ---


def test_a_file_is_known_by_its_content_whatever_its_name(
    send, kafka_cluster, topic, tmp_path, small_chunks
):
    """Two equal files in one run, then a renamed one, a copy and a gzip of it."""
    folder = tmp_path / "in"
    folder.mkdir()
    file = write_file(folder / "a.csv", some := lines(1_000))
    shutil.copy(file, folder / "b.csv")
    first = send(folder)
    assert (first.rows_sent, first.rows_skipped) == (1_000, 1_000)
    file.rename(folder / "renamed.csv")
    (folder / "c.csv.gz").write_bytes(gzip.compress((folder / "b.csv").read_bytes()))
    again = send(folder / "*.csv", folder / "c.csv.gz", folder / "b.csv")
    assert (again.files, again.rows_sent, again.rows_skipped) == (3, 0, 3_000)
    assert_exact(kafka_cluster, topic, some)


def test_a_file_and_its_longer_copy_in_one_run_share_what_is_equal(
    send, kafka_cluster, topic, tmp_path
):
    some = lines(300)
    write_file(tmp_path / "a-longer.csv", some)
    write_file(tmp_path / "shorter.csv", some[:200])
    result = send(tmp_path)
    assert (result.rows_sent, result.rows_skipped) == (300, 200)
    assert_exact(kafka_cluster, topic, some)
    (tmp_path / "shorter.csv").unlink()
    assert send(tmp_path).rows_skipped == 300


def test_of_a_grown_file_only_what_is_new_is_sent(
    send, kafka_cluster, topic, tmp_path, small_chunks
):
    file = write_file(tmp_path / "f.csv", some := lines(1_000))
    send(file)
    write_file(file, some + (more := lines(500, seed=1)))
    grown = send(file)
    assert (grown.rows_sent, grown.rows_skipped) == (500, 1_000)
    assert_exact(kafka_cluster, topic, some + more)


def test_a_line_taken_before_it_was_complete_is_not_lost(send, kafka_cluster, topic, tmp_path):
    """Both halves are dead letters that say so; the lines around them are events."""
    some, half = lines(20), 60
    file = write_file(tmp_path / "f.csv", [*some[:10], some[10][:half]])
    assert send(file).rows_dead == 1
    write_file(file, some)
    grown = send(file)
    assert (grown.rows_sent, grown.rows_dead) == (9, 1)
    assert_exact(kafka_cluster, topic, some[:10] + some[11:])
    dead = {
        dict(record.headers)["headrace-reason"].decode(): record.value
        for record in records(kafka_cluster, f"{topic}.dead")
    }
    rest = dead.pop("continues a line that was taken before it was complete")
    (beginning,) = dead.values()
    assert beginning + rest == some[10].rstrip(b"\n")


def test_a_changed_or_truncated_file_is_refused_by_name(send, kafka_cluster, topic, tmp_path):
    some, others = lines(200), lines(200, seed=1)
    file = write_file(tmp_path / "f.csv", some)
    send(file)
    for changed in ([others[0], *some[1:]], some[:-1], others):
        write_file(file, changed)
        with pytest.raises(BadInput, match=re.escape(f"{file} has changed")):
            send(file)
    assert_exact(kafka_cluster, topic, some)
    assert send(file, changed_is_new=True).rows_sent == 200
    assert_exact(kafka_cluster, topic, some + others)


def test_beginnings_are_shared_by_content_however_it_is_packed(
    send, kafka_cluster, topic, tmp_path
):
    """The short file is the larger one on disk; the long one has two members, so that its end
    speaks of the second."""
    some = lines(300)
    (tmp_path / "short.csv.gz").write_bytes(gzip.compress(b"".join(some[:200]), 0))
    members = (b"".join(some[:290]), b"".join(some[290:]))
    (tmp_path / "long.csv.gz").write_bytes(b"".join(map(gzip.compress, members)))
    result = send(tmp_path)
    assert (result.rows_sent, result.rows_skipped) == (300, 200)
    assert_exact(kafka_cluster, topic, some)


def test_a_topic_that_was_deleted_and_made_again_gets_the_rows_again(
    send, admin, kafka_cluster, topic, tmp_path
):
    file = write_file(tmp_path / "f.csv", some := lines(50))
    assert send(file).rows_sent == 50
    make_again(admin, topic)
    assert send(file).rows_sent == 50
    assert send(file).rows_skipped == 50
    assert_exact(kafka_cluster, topic, some)


def make_again(admin, topic):
    admin.delete_topic(topic)
    admin.create_topic(topic, 3)


# --- what is refused ---


def test_a_topic_made_again_while_it_is_filled_is_no_success(
    send, admin, topic, tmp_path, monkeypatch
):
    original = job._Ingest._send

    def meanwhile(self, *rest):
        original(self, *rest)
        make_again(admin, topic)

    monkeypatch.setattr(job._Ingest, "_send", meanwhile)
    with pytest.raises(OperationFailed, match="was deleted and made again while rows were sent"):
        send(write_file(tmp_path / "f.csv", lines(10)))


def test_a_file_replaced_after_it_was_planned_sends_nothing_under_the_old_name(
    send, kafka_cluster, topic, tmp_path, monkeypatch
):
    some = lines(20)
    file = write_file(tmp_path / "f.csv", some)
    original = job._Ingest._send

    def replaced(self, *rest):
        write_file(file, some[::-1])
        original(self, *rest)

    monkeypatch.setattr(job._Ingest, "_send", replaced)
    with pytest.raises(OperationFailed, match=r"f\.csv was changed between planning and reading"):
        send(file)
    assert records(kafka_cluster, topic) == []
    monkeypatch.setattr(job._Ingest, "_send", original)
    with pytest.raises(BadInput, match=r"f\.csv has changed since"):
        send(file)
    assert send(file, changed_is_new=True).rows_sent == 20


def test_a_file_with_too_many_bad_rows_leaves_nothing_and_may_be_mended(
    send, kafka_cluster, topic, tmp_path
):
    file = write_file(tmp_path / "f.csv", [raw for raw, _ in rows(100, 0, 0.2)])
    with pytest.raises(BadInput, match="more than 10%"):
        send(file)
    assert records(kafka_cluster, topic) == []
    assert records(kafka_cluster, f"{topic}.dead") == []
    write_file(file, some := lines(100))
    send(file)
    assert_exact(kafka_cluster, topic, some)


def test_what_does_not_exist_is_refused_before_anything_starts(headrace, admin, topic, tmp_path):
    file = write_file(tmp_path / "f.csv", lines(1))
    for wrong, what in (
        ((str(tmp_path / "none.csv"), "--topic", topic), "none.csv"),
        ((str(file), "--topic", "nowhere"), "nowhere"),
        ((str(file), "--topic", topic, "--schema", "unheard"), "unheard"),
        ((str(file), "--topic", topic, "--key", "colour"), "colour"),
    ):
        done = headrace("ingest", *wrong, status=2)
        assert what in done.error
    with pytest.raises(BadInput):
        find_schema("unheard")
    with pytest.raises(TopicNotFound):
        admin.topic(f"{topic}.dead")


# --- files that are odd ---


def test_a_file_that_grows_while_one_run_sends_it_and_another_begins(
    send, kafka_cluster, topic, tmp_path, monkeypatch
):
    made = lines(60)
    file = write_file(tmp_path / "grows.csv", made[:40])
    original = job._Ingest._send

    def overtaken(self, *rest):
        monkeypatch.setattr(job._Ingest, "_send", original)
        with file.open("ab") as end:
            end.writelines(made[40:])
        assert send(file).rows_sent == 60
        return original(self, *rest)

    monkeypatch.setattr(job._Ingest, "_send", overtaken)
    send(file)
    assert_exact(kafka_cluster, topic, made)


def test_a_copy_that_is_changed_later_is_refused(send, tmp_path):
    made = lines(10)
    send(write_file(tmp_path / "a.csv", made))
    copy = write_file(tmp_path / "b.csv", made)
    assert send(copy).rows_skipped == 10
    write_file(copy, [made[1], *made[1:]])
    with pytest.raises(BadInput, match=r"b\.csv has changed since it was sent"):
        send(copy)


def test_a_spreadsheets_mark_at_the_beginning_is_no_part_of_a_value(
    send, kafka_cluster, topic, tmp_path
):
    made = lines(5)
    headed = write_file(tmp_path / "headed.csv", made[:3])
    headed.write_bytes(codecs.BOM_UTF8 + headed.read_bytes())
    bare = tmp_path / "bare.csv"
    bare.write_bytes(codecs.BOM_UTF8 + b"".join(made[3:]))
    sent = send(headed, bare)
    assert (sent.rows_sent, sent.rows_dead) == (5, 0)
    assert_exact(kafka_cluster, topic, made)


@pytest.mark.parametrize("price", [b"NaN", b"Infinity", b"1e400", b"1d", b"5F", b"0x1p3"])
def test_what_only_spark_takes_for_a_number_is_a_dead_letter(
    price, send, kafka_cluster, topic, tmp_path
):
    columns = lines(1)[0].split(b",")
    columns[6] = price
    sent = send(write_file(tmp_path / "f.csv", [b",".join(columns)]))
    assert (sent.rows_sent, sent.rows_dead) == (0, 1)
    (dead,) = records(kafka_cluster, f"{topic}.dead")
    assert dict(dead.headers)["headrace-reason"] == b"price is no number: " + price


def test_a_damaged_archive_is_named(send, tmp_path):
    packed = bytearray(gzip.compress(b"".join(lines(200))))
    packed[40:60] = bytes(20)
    (tmp_path / "f.csv.gz").write_bytes(packed)
    with pytest.raises(OperationFailed, match=r"f\.csv\.gz cannot be read"):
        send(tmp_path / "f.csv.gz")
