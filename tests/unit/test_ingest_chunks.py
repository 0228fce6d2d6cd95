"""Chunks cover a file, end between rows, and are known by what they hold and nothing else."""

import gzip
import hashlib
import io
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from headrace.spark.ingest import chunks
from headrace.spark.ingest.chunks import HASH_DIGITS, ROW_LINES, End, Extent, plan_chunks
from headrace.spark.ingest.files import has_rows, plan_file, to_read
from headrace.spark.ingest.json_lines import json_batches
from headrace.spark.ingest.schema import CLICKSTREAM

LOOK_AHEAD = 80  # more than any row below has
PIECES = (b"a", b"bc,d", b"\n", b"\r\n", b'"', b'"x"', b"\xff", "ß".encode(), b"y" * 25 + b"\n")
CONTENT = st.lists(st.sampled_from(PIECES), max_size=120).map(b"".join)
SOME_CONTENT = CONTENT.filter(bool)
SIZES = st.integers(1, 80)
# Rows as a spreadsheet writes them: without quotes, with, and with line ends within quotes.
TEXT = st.text("abc ,é", max_size=4)
QUOTED = TEXT.map(lambda text: f'"{text}"')
LINES_IN_QUOTES = st.lists(TEXT, min_size=2, max_size=ROW_LINES).map(
    lambda lines: '"' + "\n".join(lines) + '"'
)
ROW = st.tuples(TEXT | QUOTED | LINES_IN_QUOTES, st.just("z")).map(lambda row: ",".join(row) + "\n")
ROWS = st.lists(ROW.map(str.encode), max_size=40)


@pytest.fixture(autouse=True)
def a_short_look_ahead(monkeypatch):
    monkeypatch.setattr(chunks, "SEARCH_BYTES", LOOK_AHEAD)


def plan(content, known=(), size=30):
    return plan_chunks(io.BytesIO(content), known, size)


def extents(planned):
    return [chunk.extent for chunk in planned]


def fingerprint(content):
    return hashlib.sha256(content).hexdigest()[:HASH_DIGITS]


class InPortions(io.BytesIO):
    """Gives fewer bytes than it is asked for, as files that are unpacked do."""

    def read(self, size=-1, /):
        return super().read(min(size, 3))


@given(CONTENT, SIZES)
def test_chunks_cover_the_content_without_a_gap(content, size):
    planned = extents(plan(content, size=size))
    edges = [0, *(extent.end for extent in planned)]
    assert [(extent.start, extent.end) for extent in planned] == list(pairwise(edges))
    assert edges[-1] == len(content)
    assert all(0 < end - start <= size + LOOK_AHEAD for start, end in pairwise(edges))


@given(CONTENT, SIZES)
def test_a_chunk_ends_after_a_line_unless_the_line_has_no_end_in_sight(content, size):
    for extent in extents(plan(content, size=size))[:-1]:
        part = content[extent.start : extent.end]
        endless = b"\n" not in part and len(part) == size + LOOK_AHEAD
        assert part.endswith(b"\n") or endless


@given(CONTENT, SIZES)
def test_lines_are_numbered_as_an_editor_does(content, size):
    for chunk in plan(content, size=size):
        before, part = content[: chunk.extent.start], content[chunk.extent.start : chunk.extent.end]
        assert chunk.first_line == before.count(b"\n") + 1
        assert chunk.lines == len(part.removesuffix(b"\n").split(b"\n"))
        assert chunk.mid_line == (before != b"" and not before.endswith(b"\n"))


@given(CONTENT | st.text("a\r\n", max_size=50).map(str.encode), SIZES)
@example(b"a\n\r", 30)
def test_blank_lines_are_counted_as_readers_leave_them_out(content, size):
    for chunk in plan(content, size=size):
        part = content[chunk.extent.start : chunk.extent.end]
        rows = sum(batch.num_rows for batch in json_batches(part, 1, (), mid_line=chunk.mid_line))
        assert chunk.lines - chunk.blank == rows


def test_a_chunk_to_read_has_as_many_lines_as_rows(tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes(f"{','.join(CLICKSTREAM.names)}\n\n1\n\r\n2\n".encode())
    planned = plan_file(str(file), "csv", (), CLICKSTREAM)
    (chunk,) = planned.chunks
    assert to_read(planned, chunk).lines - to_read(planned, chunk).skip_lines == 2
    file.write_bytes(b"\n\n")
    blank = plan_file(str(file), "csv", (), CLICKSTREAM)
    assert not has_rows(blank, *blank.chunks)


@given(CONTENT, SIZES)
def test_a_chunk_is_named_for_all_content_up_to_its_end(content, size):
    for extent in extents(plan(content, size=size)):
        assert extent.content == fingerprint(content[: extent.end])


@given(CONTENT, SIZES)
def test_the_plan_depends_on_content_alone(content, size):
    planned = plan(content, size=size)
    assert plan_chunks(InPortions(content), (), size) == planned
    with gzip.open(io.BytesIO(gzip.compress(content))) as file:
        assert plan_chunks(file, (), size) == planned


@given(CONTENT, SIZES)
def test_what_was_sent_is_done(content, size):
    sent = plan(content, size=size)
    again = plan(content, extents(sent), size)
    assert extents(again) == extents(sent)
    assert all(chunk.done for chunk in again)
    assert not any(chunk.done for chunk in sent)


@given(SOME_CONTENT, SOME_CONTENT, SIZES)
@example(b"half a li", b"ne\nand more\n", 30)
def test_a_file_that_grew_is_sent_from_where_it_ended(content, more, size):
    sent = plan(content, size=size)
    grown = plan(content + more, extents(sent), size)
    assert extents(grown)[: len(sent)] == extents(sent)
    assert [chunk.done for chunk in grown] == [n < len(sent) for n in range(len(grown))]
    first_new = grown[len(sent)]
    assert first_new.mid_line == (not content.endswith(b"\n"))
    assert first_new.first_line == content.count(b"\n") + 1


@given(SOME_CONTENT, SIZES, st.data())
def test_a_changed_byte_changes_its_chunk_and_all_after_it(content, size, data):
    sent = plan(content, size=size)
    place = data.draw(st.integers(0, len(content) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[place]))
    changed = content[:place] + bytes([other]) + content[place + 1 :]
    before = [extent for extent in extents(sent) if extent.end <= place]
    again = plan(changed, extents(sent), size)
    assert [chunk.extent for chunk in again if chunk.done] == before


@given(SOME_CONTENT, SOME_CONTENT, SIZES)
def test_equal_offsets_of_other_content_are_no_match(content, other, size):
    length = min(len(content), len(other))
    content, other = content[:length], other[:length]
    assume(content != other)
    sent = extents(plan(other, size=size))
    for chunk in plan(content, sent, size):
        assert chunk.done == (other[: chunk.extent.end] == content[: chunk.extent.end])


@given(ROWS, SIZES)
def test_no_chunk_ends_within_a_row(rows, size):
    ends = {0}
    for row in rows:
        ends.add(max(ends) + len(row))
    assert {extent.end for extent in extents(plan(b"".join(rows), size=size))} <= ends


def test_rows_that_are_all_quoted_do_not_delay_the_end():
    row = b'"a","b"\n'
    assert {extent.end - extent.start for extent in extents(plan(row * 50, size=30))} == {32, 16}


def test_a_row_of_several_lines_is_left_behind_by_as_many_lines_as_a_row_may_have():
    content = b'a,"b\nc"\n' + b"d\n" * 50
    first = content[: plan(content, size=1)[0].extent.end]
    assert first == b'a,"b\nc"\n' + b"d\n" * ROW_LINES


def test_where_odd_quotes_never_cease_a_chunk_ends_where_they_make_pairs():
    row = b'a,"b\nc"\n'
    assert all(extent.end % len(row) == 0 for extent in extents(plan(row * 50, size=30)))


def test_a_lone_quote_does_not_keep_a_chunk_from_ending():
    content = b'a,"b\n' + b"d,e\n" * ROW_LINES + b'"' + b'"\nd,"f' * 40
    assert len(plan(content, size=30)) > 2


def test_a_line_that_reaches_beyond_the_look_ahead_is_left_to_the_next_chunk():
    short, long = b"a,b\n", b"x" * (30 + LOOK_AHEAD - 1) + b"\n"
    planned = plan(short * 3 + long + short * 30)
    assert [extent.end for extent in extents(planned)][:2] == [12, 12 + len(long)]
    assert not any(chunk.mid_line for chunk in planned)


def test_an_endless_line_is_cut_anywhere_and_its_chunks_say_so():
    content = b"x" * (3 * (30 + LOOK_AHEAD)) + b"\na\n"
    planned = plan(content)
    assert [chunk.mid_line for chunk in planned] == [False, True, True, True]
    assert [chunk.first_line for chunk in planned] == [1, 1, 1, 1]


@given(SOME_CONTENT, SIZES, st.integers(81, 400))
def test_chunks_sent_when_chunks_were_larger_are_done(content, size, larger):
    sent = plan(content, size=larger)
    again = plan(content + b"more\n", extents(sent), size)
    assert extents(again)[: len(sent)] == extents(sent)
    assert [chunk.done for chunk in again] == [n < len(sent) for n in range(len(again))]


def test_of_several_chunks_that_begin_alike_the_longest_is_taken():
    content = b"abc\n" * 5
    sent = [Extent(0, end, fingerprint(content[:end])) for end in (4, 12, 8)]
    assert [(chunk.extent.end, chunk.done) for chunk in plan(content, sent)] == [
        (12, True),
        (20, False),
    ]


def test_names_that_make_no_sense_are_no_match():
    empty = Extent(0, 0, fingerprint(b""))
    backwards = Extent(4, 0, fingerprint(b""))
    assert [chunk.done for chunk in plan(b"abc\n" * 3, [empty, backwards], 4)] == [False, False]


def test_an_empty_file_has_no_chunks():
    assert plan(b"") == []


def test_many_files_sent_before_do_not_make_planning_slow(monkeypatch):
    hashed = []
    hash_on = chunks._hash_on

    def count(digest, data, start, end):
        hashed.append(end - start)
        return hash_on(digest, data, start, end)

    monkeypatch.setattr(chunks, "_hash_on", count)
    content = b"abc\n" * 500
    others = [Extent(0, end, "ab") for end in range(1, 2001)]
    assert len(plan(content, others, 4000)) == 1
    assert sum(hashed) <= 2 * len(content)


def test_no_more_is_held_than_a_chunk_and_the_look_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "SEARCH_BYTES", 1 << 18)
    monkeypatch.setattr(chunks, "READ_BYTES", 1 << 18)
    path = tmp_path / "rows"
    path.write_bytes(b"some,row\n" * (1 << 20))
    with path.open("rb") as file:
        tracemalloc.start()
        try:
            planned = plan_chunks(file, (), 2 << 20)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert len(planned) == 5
    assert peak < 1.5 * ((2 << 20) + (1 << 18))


@given(
    st.builds(
        Extent,
        st.integers(0, 10**17),
        st.integers(0, 10**17),
        st.text("0123456789abcdef", min_size=1, max_size=32),
    )
)
def test_an_extent_is_its_name_and_back(extent):
    assert Extent.parse(str(extent)) == extent


@given(st.text(max_size=20))
def test_any_name_is_an_extent_or_none(name):
    found = Extent.parse(name)
    assert found is None or str(found) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", "ab12", "ab12-0", "ab12-0-1-2", "-0-1", "ab12-0-", "ab12--1", "ab12-x-1"),
        *("ab12-0-\N{SUPERSCRIPT TWO}", "ab12-00-1", "ab12-0-1\n", "AB12-0-1"),
        *("file:part-0-100", "3/ab12-0-1", "ab12-0-" + "9" * 5000),
    ],
)
def test_names_of_other_things_are_no_extents(name):
    assert Extent.parse(name) is None


@given(CONTENT, CONTENT, CONTENT, SIZES)
def test_a_file_that_grows_while_it_is_sent_has_the_same_chunks_and_more(first, more, last, size):
    """Nothing of it is done yet, and it grows twice: whoever planned before planned the same."""

    def planned(content, ends):
        return extents(plan_chunks(io.BytesIO(content), (), size, ends=ends))

    def end_of(content):
        return End(len(content), fingerprint(content))

    before = planned(first, [])
    between = planned(first + more, [end_of(first)])
    after = planned(first + more + last, [end_of(first), end_of(first + more)])
    assert between[: len(before)] == before
    assert after[: len(between)] == between
    other = End(len(first), fingerprint(b"other" + first))
    assert planned(first + more, [other]) == planned(first + more, [])
