"""Do the rows add up? What balances, what does not, and which records are named."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import Record, TimestampType
from headrace.services import reconcile_sources
from headrace.services.reconcile import (
    MOST_RANGES,
    Files,
    Partition,
    PassedOver,
    Source,
    Table,
    Topic,
    Unsent,
    gaps,
    judge,
)
from headrace.services.reconcile_chunks import chunks_of_files
from headrace.services.reconcile_places import Lonely, Run, Seen, Walk, runs
from headrace.services.reconcile_sources import (
    ReconcileOptions,
    Tables,
    _lines_of,
    files_of,
    find_tables,
    row_id_of,
)
from headrace.spark.ingest.chunks import HASH_DIGITS
from headrace.spark.ledger import Entry
from headrace.spark.pipelines.accounts import Counts, Standing

COUNTS = Counts(rows_in=100, rows_out=90, rows_dead=6, duplicates=4, late={"revenue": 2})
PARTITION = Partition(0, earliest=0, latest=120, begin=0, end=120)
TOPIC = Topic("clicks", [PARTITION])
TABLE = Table("events", rows=90, dead=6, counts=COUNTS)
FILES = Files(rows=110, dead=10)


def judge_one(topic, table, files=None, seen=None):
    return judge(table, Source(topic, files, seen))


def test_what_adds_up_is_balanced_without_a_word():
    account = judge_one(TOPIC, TABLE, FILES)
    assert account.balanced
    assert account.findings == ()
    shown = account.to_json()
    assert shown["file_rows"] == 110
    assert shown["kafka_rows"] == 100
    assert (shown["dead_rows"], shown["file_dead_rows"], shown["pipeline_dead_rows"]) == (16, 10, 6)
    assert (shown["table_rows"], shown["duplicates"], shown["missing"]) == (90, 4, 0)
    assert (shown["unread"], shown["late"], shown["findings"]) == (0, {"revenue": 2}, [])
    assert shown["balanced"] is True


def test_without_files_only_the_second_equation_counts():
    account = judge_one(TOPIC, TABLE)
    assert account.balanced
    assert (account.file_rows, account.file_dead_rows, account.dead_rows) == (None, None, 6)


def table(**changes):
    return Table(**{**vars(TABLE), **changes})


def partition(**changes):
    return Topic("clicks", [Partition(**{**vars(PARTITION), **changes})])


BROKEN = {
    "deleted rows": (TOPIC, table(rows=87), FILES, 3, "somebody has deleted", "events", 3),
    "added rows": (TOPIC, table(rows=92), FILES, 0, "somebody has added", "events", 2),
    "deleted letters": (TOPIC, table(dead=5), FILES, 1, "deleted some", "dead_letters", 1),
    "added letters": (TOPIC, table(dead=7), FILES, 0, "added some", "dead_letters", 1),
    "a batch that lost rows": (
        *(TOPIC, table(counts=Counts(100, 90, 6, 1)), FILES),
        *(3, "100 records came in", "events", 3),
    ),
    "fewer records than rows": (
        *(TOPIC, TABLE, Files(rows=115, dead=10)),
        *(5, "ingest has sent 105 rows, 100 were ever", "clicks", 5),
    ),
    "more records than rows": (
        *(TOPIC, TABLE, Files(rows=105, dead=10)),
        *(0, "somebody else writes", "clicks", 5),
    ),
    "unread": (
        *(partition(latest=130, unread=7), TABLE, Files(rows=117, dead=10)),
        *(0, "has not read yet", "clicks[0]", 7),
    ),
    "a gap between batches": (
        *(Topic("clicks", [PARTITION], [PassedOver(0, 50, 59, 8)]), TABLE, None),
        *(8, "passed over", "clicks[0]", 8),
    ),
    "removed unread": (
        *(partition(earliest=125, latest=130), TABLE, None),
        *(0, "before the table has read", "clicks[0]", None),
    ),
    "a file that was not sent": (
        *(TOPIC, TABLE, Files(110, 10, unsent=(Unsent("/a.csv", 0, 99),))),
        *(0, "never sent to their end", "/a.csv", None),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_thing_that_is_wrong_is_said_where_it_is(case):
    topic, found, files, missing, what, where, count = BROKEN[case]
    account = judge_one(topic, found, files)
    assert not account.balanced
    assert account.missing == missing
    (finding,) = account.findings
    assert what in finding.what
    assert (finding.where, finding.count) == (where, count)
    assert finding.hint


def two_topics(first, second):
    """Of a table that is made of both."""
    other = Topic("views", [Partition(0, 0, 30, 0, 30)])
    return judge(TABLE, Source(TOPIC, *first), Source(other, *second))


def test_topics_of_one_table_are_added_up():
    account = two_topics([Files(rows=60, dead=5)], [Files(rows=50, dead=5)])
    assert account.balanced
    assert account.to_json()["topics"] == ["clicks", "views"]
    assert (account.file_rows, account.file_dead_rows, account.kafka_rows) == (110, 10, 100)
    short = two_topics([Files(rows=60, dead=5)], [Files(rows=52, dead=5)])
    (finding,) = short.findings
    assert (short.balanced, short.missing, finding.where) == (False, 2, "clicks, views")


def test_topics_with_and_without_files_cannot_be_told_apart_by_counts():
    account = two_topics([Files(rows=60, dead=5)], [None])
    (note,) = account.findings
    assert (account.balanced, note.hint) == (True, "--full tells them apart")
    assert not two_topics([Files(rows=160, dead=5)], [None]).balanced


@pytest.mark.parametrize(
    ("ids", "ranges"), [({"a": "1", "b": "2"}, ("a",)), ({}, ("a", "b")), ({"a": "1"}, ("a", "b"))]
)
def test_a_table_is_made_of_all_topics_that_its_last_commit_names(ids, ranges):
    standing = Standing(ranges={name: {"0": (0, 1)} for name in ranges}, topic_ids=ids)
    assert Tables("p", None, None, standing).topics == ("a", "b")


def test_what_is_missing_is_named_in_its_own_topic():
    nothing, one = Seen(70, 4), Seen(30, 0, missing=[Run(0, 7, 7, 1)])
    account = two_topics([None, nothing], [None, one])
    (finding,) = account.findings
    assert (account.missing, finding.where, finding.first) == (1, "views[0]", 7)
    assert "--topic views --missing" in finding.hint


def test_unread_and_passed_over_records_are_named_by_offset():
    (unread,) = judge_one(partition(latest=130, unread=7), TABLE).findings
    assert (unread.first, unread.last) == (120, 129)
    passed = Topic("clicks", [PARTITION], [PassedOver(0, 50, 59, None)])
    (finding,) = judge_one(passed, TABLE).findings
    assert (finding.first, finding.last, finding.count) == (50, 59, None)


def test_what_retention_took_after_it_was_read_does_not_matter():
    account = judge_one(partition(earliest=40), TABLE, FILES)
    assert account.balanced
    (finding,) = account.findings
    assert (finding.fails, finding.first, finding.last) == (False, 0, 39)
    account = judge_one(partition(earliest=40, begin=40), TABLE, FILES)
    assert account.balanced
    assert "gone before" in account.findings[0].what


def test_rows_sent_at_least_once_may_be_in_the_topic_twice():
    account = judge_one(TOPIC, TABLE, Files(rows=105, dead=10, exact=False))
    assert account.balanced
    assert account.findings[0].count == 5
    assert not judge_one(TOPIC, TABLE, Files(rows=115, dead=10, exact=False)).balanced


def test_other_jobs_that_write_into_the_topic_are_named():
    topic = Topic("clicks", [PARTITION], jobs={"squares": 5})
    (finding,) = judge_one(topic, TABLE, Files(rows=105, dead=10)).findings
    assert "squares (5)" in finding.hint


counts = st.integers(0, 50)


@given(counts, counts, counts, counts)
def test_whatever_adds_up_balances_and_one_more_of_anything_does_not(
    rows, dead, duplicates, file_dead
):
    read = rows + dead + duplicates
    numbers = {
        "file_rows": read + file_dead,
        "file_dead": file_dead,
        "rows_in": read,
        "rows_out": rows,
        "rows_dead": dead,
        "duplicates": duplicates,
        "rows": rows,
        "dead": dead,
        "unread": 0,
    }
    account = judged(numbers)
    assert account.balanced
    assert (account.missing, account.extra, account.kafka_rows) == (0, 0, read)
    for name in numbers:
        assert not judged(numbers | {name: numbers[name] + 1}).balanced, name


@given(
    st.fixed_dictionaries(
        dict.fromkeys(
            ("rows_in", "rows_out", "rows_dead", "duplicates", "rows", "dead", "unread"), counts
        )
    )
)
def test_every_record_is_somewhere(numbers):
    account = judged({"file_rows": 0, "file_dead": 0, **numbers})
    in_tables = account.table_rows + account.pipeline_dead_rows + account.duplicates
    assert account.kafka_rows == in_tables + account.unread + account.missing - account.extra


def judged(n):
    found = Counts(n["rows_in"], n["rows_out"], n["rows_dead"], n["duplicates"])
    topic = Topic("clicks", [Partition(0, 0, 999, 0, 900, n["unread"])])
    files = Files(n["file_rows"], n["file_dead"])
    return judge_one(topic, Table("events", n["rows"], n["dead"], found), files)


def test_gaps_are_between_batches_and_not_around_new_partitions():
    assert gaps([]) == []
    assert gaps([{"0": (7, 9)}, {"0": (9, 9), "1": (3, 4)}, {"0": (9, 12), "1": (5, 6)}]) == [
        (1, 4, 4)
    ]


# --- record by record ---


@st.composite
def worlds(draw):
    """Records of two partitions and what became of each; offsets have gaps, ids come again."""
    records, fates, used = [], [], set()
    for number in (0, 1):
        offset = draw(st.integers(0, 5))
        for _ in range(draw(st.integers(0, 25))):
            row = f"{draw(st.integers(0, 15)):016x}:{draw(st.integers(1, 3))}"
            fate = draw(st.sampled_from(("row", "dead", "missing")))
            fate = "duplicate" if row in used and fate != "dead" else fate
            if fate in ("row", "missing"):
                used.add(row)
            records.append((number, offset, row))
            fates.append(fate)
            offset += draw(st.integers(1, 3))
    return records, fates


@given(worlds())
def test_a_walk_finds_exactly_what_is_missing(world):
    records, fates = world
    kept = [r for r, fate in zip(records, fates, strict=True) if fate in ("row", "dead")]
    in_table = {r[2] for r, fate in zip(records, fates, strict=True) if fate == "row"}
    missing = [r for r, fate in zip(records, fates, strict=True) if fate == "missing"]
    seen = walked(records, kept, in_table)
    assert seen.missing_count == len(missing)
    assert seen.duplicates == fates.count("duplicate")
    assert seen.records == len(records)
    assert (seen.twice, seen.unexplained) == ([], [])
    for number, offset, _ in missing:
        assert any(r.partition == number and r.first <= offset <= r.last for r in seen.missing)
    wrong = {r[:2] for r in records} - {r[:2] for r in missing}
    covered = sum(
        r.first <= offset <= r.last for n, offset in wrong for r in seen.missing if r.partition == n
    )
    assert covered == 0
    assert sum(each.size for each in seen.missing_lines) == len(missing)


def walked(records, kept, in_table, ends=10_000, **options):
    places = {n: sorted(offset for p, offset, _ in kept if p == n) for n in (0, 1)}
    walk = Walk(places, {}, {0: ends, 1: ends}, **options)
    for record in records:
        walk.take(*record)
    return walk.end(lambda ids: ids & in_table, {"00000000000000aa": "/a.csv"})


def test_rows_that_are_there_twice_or_without_a_record_are_named():
    records = [(0, offset, f"x:{offset}") for offset in range(5)]
    seen = walked(records, [*records, records[2], (0, 7, ""), (0, 8, "")], set())
    assert seen.twice == [Run(0, 2, 2, 1)]
    assert seen.unexplained == [Run(0, 7, 8, 2)]
    account = judge_one(TOPIC, TABLE, FILES, seen)
    assert [finding.fails for finding in account.findings] == [True, False]


def test_records_beyond_what_the_table_has_read_are_not_missing():
    records = [(0, offset, f"x:{offset}") for offset in range(5)]
    seen = walked(records, records[:3], set(), ends=3)
    assert (seen.records, seen.missing) == (3, [])


def test_records_of_no_file_and_rows_that_are_no_records_are_named():
    row = "00000000000000aa"
    records = [(0, 0, f"{row}:2"), (0, 1, "by hand"), (0, 2, f"{row}:3")]
    seen = walked(records, records, set(), chunks={row})
    assert seen.foreign == [Run(0, 1, 1, 1)]
    files = Files(rows=113, dead=10, chunks={row: 3}, paths={row: "/a.csv"})
    findings = judge_one(TOPIC, TABLE, files, seen).findings
    named = {(f.where, f.first, f.count) for f in findings}
    assert {("clicks[0]", 1, 1), ("/a.csv", None, 1)} <= named


def test_missing_records_are_named_by_line_of_their_file_too():
    row = "00000000000000aa"
    records = [(0, offset, f"{row}:{offset + 2}") for offset in range(6)]
    seen = walked(records, [records[0], records[4]], set())
    assert seen.missing == [Run(0, 1, 3, 3), Run(0, 5, 5, 1)]
    account = judge_one(TOPIC, TABLE, FILES, seen)
    assert account.missing == 4
    assert not account.balanced
    assert ("/a.csv", 3, 5) in {(f.where, f.first, f.last) for f in account.findings}


def test_markers_between_records_do_not_break_a_run():
    assert runs([Lonely(0, 0, 1, ""), Lonely(0, 1, 9, ""), Lonely(1, 2, 10, "")]) == [
        Run(0, 1, 9, 2),
        Run(1, 10, 10, 1),
    ]


def test_many_ranges_are_summed_up():
    missing = [Run(0, at * 2, at * 2, 1) for at in range(MOST_RANGES + 5)]
    findings = judge_one(TOPIC, TABLE, FILES, Seen(100, 4, missing)).findings
    assert len(findings) == MOST_RANGES + 1
    assert (findings[-1].where, findings[-1].count) == ("5 more ranges", 5)


# --- the ledger ---


def piece(content, start, end, rows=10, dead=0, complete=True, digest=1):
    per_topic = {"clicks": rows - dead, "clicks.dead": dead}
    return {f"{content * 32}-{start}-{end}": Entry(rows, digest, complete, per_topic)}


def file(path, size, content):
    return {f"file:{path}": Entry(0, 0, True, {}, {"size": size, "content": content * 32})}


def test_the_dead_letters_topic_is_that_of_ingest():
    pytest.importorskip("pyspark")
    from headrace.spark.ingest.options import IngestOptions
    from headrace.spark.ingest.schema import CLICKSTREAM

    assert IngestOptions([], "clicks", CLICKSTREAM).dead_topic == "clicks.dead"


def test_the_ledger_adds_up_pieces_and_knows_their_files():
    entries = {
        **file("/a.csv", 200, "b"),
        **piece("a", 0, 120, rows=12, dead=2),
        **piece("b", 120, 200, rows=8),
        **file("/b.csv", 90, "c"),
        **piece("c", 0, 90),
    }
    found = files_of(entries, "clicks", "clicks.dead", {})
    assert (found.rows, found.dead, found.sent, found.exact) == (30, 2, 28, True)
    assert found.chunks == {"a" * 16: 10, "b" * 16: 8, "c" * 16: 10}
    assert found.paths == {"a" * 16: "/a.csv", "b" * 16: "/a.csv", "c" * 16: "/b.csv"}
    assert found.unsent == ()


@pytest.mark.parametrize(
    ("entries", "last"),
    [
        ({}, 199),
        (piece("b", 120, 200), 119),
        ({**piece("a", 0, 120, complete=False), **piece("b", 120, 200)}, 119),
        ({**piece("a", 0, 120), **piece("b", 120, 200, complete=False)}, 199),
    ],
)
def test_a_file_that_was_not_sent_to_its_end_is_named(entries, last):
    _, unsent = chunks_of_files({**file("/a.csv", 200, "b"), **entries})
    assert unsent == [Unsent("/a.csv", 0, last)]


# Chunks of the second file end where those of the first do.
TWINS = {
    **file("/a.csv", 200, "b"),
    **file("/b.csv", 200, "d"),
    **piece("b", 100, 200),
    **piece("c", 0, 100),
    **piece("d", 100, 200),
}


def test_a_chunk_of_another_file_does_not_stand_for_one_that_was_not_sent():
    paths, unsent = chunks_of_files(TWINS)
    assert unsent == [Unsent(path, 0, 99, sure=False) for path in ("/a.csv", "/b.csv")]
    assert paths == {"b" * 16: "/a.csv", "d" * 16: "/b.csv"}
    account = judge_one(TOPIC, TABLE, Files(rows=110, dead=10, unsent=tuple(unsent)))
    assert not account.balanced
    paths, unsent = chunks_of_files({**TWINS, **piece("a", 0, 100)})
    assert unsent == []


def test_the_file_itself_tells_whether_the_chunk_is_its_own(tmp_path):
    pytest.importorskip("pyspark")
    ours, other = tmp_path / "ours.csv", tmp_path / "other.csv"
    ours.write_bytes(b"x" * 100 + b"1" * 100)
    other.write_bytes(b"y" * 100 + b"2" * 100)
    sent = hashlib.sha256(b"x" * 100).hexdigest()[:HASH_DIGITS]
    entries = {
        **file(str(ours), 200, "b"),
        **file(str(other), 200, "d"),
        **piece("b", 100, 200),
        **piece("d", 100, 200),
        f"{sent}-0-100": Entry(1, 1, True, {"clicks": 1}),
    }
    paths, unsent = chunks_of_files(entries)
    assert unsent == [Unsent(str(other), 0, 99, sure=False)]
    assert paths[sent[:16]] == str(ours)


def test_a_file_that_begins_with_another_has_its_chunks():
    entries = {
        **file("/day.csv", 100, "a"),
        **file("/days.csv", 200, "b"),
        **piece("a", 0, 100),
        **piece("b", 100, 200),
    }
    assert chunks_of_files(entries)[1] == []
    del entries[f"{'a' * 32}-0-100"]
    assert {unsent.path for unsent in chunks_of_files(entries)[1]} == {"/day.csv", "/days.csv"}


def test_chunks_are_followed_though_it_is_open_whose_is_whose():
    """Of three chunks each, the first of one is lacking."""
    entries = {
        **file("/a.csv", 300, "c"),
        **file("/b.csv", 300, "f"),
        **piece("b", 100, 200),
        **piece("c", 200, 300),
        **piece("d", 0, 100),
        **piece("e", 100, 200),
        **piece("f", 200, 300),
    }
    unsent = chunks_of_files(entries)[1]
    assert unsent == [Unsent(path, 0, 99, sure=False) for path in ("/a.csv", "/b.csv")]


def test_blank_lines_of_dead_letters_are_no_lines():
    assert [_lines_of(value) for value in (b"one", b'"a\n\r\n\nb"', b"")] == [1, 2, 1]


def test_rows_sent_at_least_once_are_told_apart_by_the_dead_letters_that_are_there():
    """One of the two has a line end within quotes: twelve lines, eleven rows, nine good ones."""
    entries = piece("a", 0, 120, rows=12, digest=0)
    found = files_of(entries, "clicks", "clicks.dead", letters={"a:3": 2, "a:7": 1})
    assert (found.rows, found.dead, found.sent, found.exact) == (11, 2, 9, False)


@pytest.mark.parametrize(
    ("given", "row_id"),
    [(b"f00:7", "f00:7"), (b"\xff\x00\x01", "FF0001"), (None, "clicks:0:42")],
)
def test_a_row_has_the_id_that_the_pipeline_gives_it(given, row_id):
    headers = (("other", b"x"), ("headrace-row", given))
    kind = TimestampType.CREATE_TIME
    assert row_id_of(Record("clicks", 0, 42, 0, kind, None, b"v", headers)) == row_id


# --- the tables ---


def write(path, standing, **columns):
    """A commit of pipeline p."""
    pa = pytest.importorskip("pyarrow")
    deltalake = pytest.importorskip("deltalake")

    info = json.dumps({"pipeline": "p", "so_far": standing.to_json()})
    said = deltalake.CommitProperties(custom_metadata={"userMetadata": info})
    deltalake.write_deltalake(path, pa.table(columns), mode="append", commit_properties=said)


def test_dead_letters_are_those_of_after_the_rows(tmp_path, monkeypatch):
    """A batch that comes in between has written them first: it must not look as if it had not."""
    standing = Standing(ranges={"clicks": {"0": (0, 1)}}, topic_ids={"clicks": "id"})
    place = {"kafka_topic": ["clicks"], "kafka_partition": [0], "kafka_offset": [0]}
    write(tmp_path / "dead_letters", Standing(), pipeline=["p"], **place)
    write(tmp_path / "events", standing, row_id=["x"], **place)

    def batch_meanwhile(*arguments, choose=reconcile_sources._the_one):
        write(tmp_path / "dead_letters", standing, pipeline=["p"], **place)
        return choose(*arguments)

    monkeypatch.setattr(reconcile_sources, "_the_one", batch_meanwhile)
    found = find_tables(ReconcileOptions("clicks", str(tmp_path)))
    assert (found.rows.name, found.dead_count()) == ("events", 2)
