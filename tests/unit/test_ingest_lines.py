"""Every line of a chunk comes out once, in a row with its columns or in a bad one with a reason."""

import csv
import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.services.clickstream import HEADER, KINDS, OVERSIZED_BYTES, rows
from headrace.spark.ingest import chunks, lines
from headrace.spark.ingest.chunks import ROW_LINES, plan_chunks
from headrace.spark.ingest.lines import Split, lines_of, split
from headrace.spark.ingest.rows import MAX_ROW_BYTES, SHOWN_BYTES

pytest.importorskip("pyarrow")

WIDTH = 2
ONE_CHUNK = 1 << 40
STRAY_RETURN = "has a carriage return that ends no line"
IN_QUOTES = "has a line end within quotes"
PIECES = (
    *(b"a", b"b,c", b",", b"\n", b"\r\n", b"\r", b'"', b'""', b'"d"', b'"e,f"', b" ", b"\0"),
    *(
        "é\N{LINE SEPARATOR}".encode(),
        b"\x0b\x0c\x1c",
        b"\xff",
        b"g,h\n",
        b'"i",j\n',
        b'k,"l\nm"\n',
    ),
)
CONTENT = st.lists(st.sampled_from(PIECES), max_size=60).map(b"".join)
# Rows that the csv module would write, with any line end.
FIELD = st.text('ab ,"é', max_size=4)
RECORD = st.lists(FIELD, min_size=WIDTH, max_size=WIDTH).filter(any)


@pytest.fixture(autouse=True)
def a_long_look_ahead(monkeypatch):
    """So that chunks may be small and rows large."""
    monkeypatch.setattr(chunks, "SEARCH_BYTES", 2 * OVERSIZED_BYTES)


def table(data, width=WIDTH, first_line=1, *, mid_line=False):
    """All rows by line: number, raw, reason, columns."""
    found = []
    for batch in split(data, first_line, width, mid_line=mid_line).batches(width):
        assert batch.schema.names == ["line", "raw", "reason", *(f"c{n}" for n in range(width))]
        assert batch.num_rows
        batch.validate(full=True)
        for line, raw, reason, *columns in zip(*map(list, batch.to_pydict().values()), strict=True):
            assert (reason is None) == (None not in columns)
            assert reason is None or set(columns) == {None}
            found.append((line, raw, reason, columns))
    return sorted(found, key=lambda row: row[0])


def in_chunks(content, width, size):
    """The same of a whole file, chunk by chunk."""
    found = []
    for chunk in plan_chunks(io.BytesIO(content), (), size):
        data = content[chunk.extent.start : chunk.extent.end]
        found += table(data, width, chunk.first_line, mid_line=chunk.mid_line)
    return found


def is_good(line, width=WIDTH):
    """Whether a line is a row of its own, by the rules and not by the code."""
    try:
        text = line.decode()
        columns = next(csv.reader([text], strict=True))
    except (UnicodeDecodeError, csv.Error):
        return False
    return len(columns) == width and text.count('"') % 2 == 0 and not text.endswith("\r")


# --- the generated clickstream ---


def expected(row, kind):
    """What the reason of a generated row begins with; None for a good one."""
    columns = row.count(b",") + 1
    return {
        "too_few_columns": "has 7 columns, not 9",
        "too_many_columns": "has 10 columns, not 9",
        "invalid_utf8": "is not UTF-8: byte 0xfc at position ",
        "oversized": f"has {len(row) - 1:,} bytes, more than {MAX_ROW_BYTES:,}",
        "quoted_newline": IN_QUOTES,
        "truncated": f"has {columns} columns, not 9",
    }.get(kind)  # a wrong number or time is found later, when columns get types


def assert_generated(generated, found, first_line=1):
    number = first_line
    assert len(found) == len(generated)
    for (row, kind), (line, raw, reason, columns) in zip(generated, found, strict=True):
        text, beginning = row.removesuffix(b"\n"), expected(row, kind)
        assert line == number
        assert raw == (text[:SHOWN_BYTES] if kind == "oversized" else text)
        if beginning is None:
            assert reason is None
            assert columns == text.decode().split(",")
        else:
            assert reason.startswith(beginning)
        number += row.count(b"\n")


@pytest.mark.parametrize("size", [1, 700, 40_000, ONE_CHUNK])
@pytest.mark.parametrize("seed", [0, 1, -2])
def test_every_generated_row_comes_out_once(seed, size):
    generated = list(rows(300, seed, 0.1))
    assert {kind for _, kind in generated} == {None, *KINDS}
    assert_generated(generated, in_chunks(b"".join(row for row, _ in generated), 9, size))


@given(st.integers(0, 60), st.integers(-(2**63), 2**63 - 1), st.integers(1, 3000))
def test_every_row_of_any_seed_comes_out_once(count, seed, size):
    generated = list(rows(count, seed, 0.1))
    assert_generated(generated, in_chunks(b"".join(row for row, _ in generated), 9, size))


def test_generated_rows_with_windows_line_ends():
    generated = list(rows(300, 3, 0.1))
    content = b"".join(row for row, kind in generated if kind != "oversized")
    unix, windows = table(content, 9), table(content.replace(b"\n", b"\r\n"), 9)
    assert [row[0] for row in windows] == [row[0] for row in unix]
    for (_, raw, reason, columns), (_, *other) in zip(unix, windows, strict=True):
        assert [raw.replace(b"\n", b"\r\n"), reason, columns] == other


def test_a_header_is_a_row_like_others_here():
    assert table(HEADER, 9) == [(1, HEADER[:-1], None, HEADER.decode()[:-1].split(","))]


@pytest.mark.parametrize("before", range(0, 800, 90))
def test_an_oversized_row_is_one_bad_row_wherever_a_chunk_would_end(before, monkeypatch):
    monkeypatch.setattr(chunks, "SEARCH_BYTES", 1 << 20)
    good = b"a," + b"b" * 997 + b"\n"
    content = good * before + b"x" * OVERSIZED_BYTES + b"\n" + good * 800
    found = in_chunks(content, WIDTH, 500_000)
    bad = [(line, len(raw)) for line, raw, reason, _ in found if reason]
    assert bad == [(before + 1, SHOWN_BYTES)]
    assert len(found) == before + 1 + 800


# --- any content ---


@given(CONTENT, st.integers(1, 60))
@example(b'x,y"\nz"\n', 1000)
@example(b'"a",b\r\r\nc\rd,e\n', 1000)
def test_every_line_is_in_one_row_and_every_row_is_right(content, size):
    left = dict(enumerate((line.removesuffix(b"\r") for line in content.split(b"\n")), 1))
    for number, raw, reason, columns in in_chunks(content, WIDTH, size):
        assert raw
        several = raw.replace(b"\r\n", b"\n").split(b"\n")
        for place, line in enumerate(several, number):
            assert left.pop(place) == line
        if len(several) > 1:
            assert reason == IN_QUOTES
            assert 2 <= len(several) <= ROW_LINES
        elif reason is None:
            assert is_good(raw)
            assert columns == next(csv.reader([raw.decode()], strict=True))
        else:
            assert not is_good(raw), reason
    assert not any(left.values()), "lines without a row"


@given(st.binary(max_size=300), st.booleans())
def test_no_content_at_all_raises(content, mid_line):
    found = table(content, mid_line=mid_line)
    assert sum(raw.count(b"\n") + 1 for _, raw, _, _ in found) <= content.count(b"\n") + 1


@given(st.lists(RECORD, max_size=20), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.data())
def test_what_the_csv_module_writes_is_read_as_it_was(records, line_end, ends, data):
    quoting = data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=line_end, quoting=quoting).writerows(records)
    content = out.getvalue().encode()
    found = in_chunks(content if ends else content.removesuffix(line_end.encode()), WIDTH, 20)
    assert [(line, reason, columns) for line, _, reason, columns in found] == [
        (number, None, record) for number, record in enumerate(records, 1)
    ]


# --- one thing at a time ---


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"a", "has 1 columns, not 2"),
        (b"a,b,c", "has 3 columns, not 2"),
        (b'"a",b,c', "has 3 columns, not 2"),
        (b'a,"b', "has a quote that does not end"),
        (b'a,b"', "has a quote that does not end"),
        (b'"a"x,b', "has wrong quotes: ',' expected after '\"'"),
        (b'a"b,"c', "has wrong quotes: unexpected end of data"),
        (b"a,\xff", "is not UTF-8: byte 0xff at position 2"),
        (b'"a",\xff', "is not UTF-8: byte 0xff at position 4"),
        (b"a\rb,c", STRAY_RETURN),
        (b"\ra,b", STRAY_RETURN),
        (b'"a"\r,b', STRAY_RETURN),
        (b'"a",b\rc', STRAY_RETURN),
    ],
)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_what_is_wrong_with_a_row(raw, reason, line_end):
    good = b"d,e" + line_end
    assert table(good + raw + line_end + good) == [
        (1, b"d,e", None, ["d", "e"]),
        (2, raw, reason, [None, None]),
        (3, b"d,e", None, ["d", "e"]),
    ]


@pytest.mark.parametrize("raw", [b"a,b\r", b'"a",b\r', b"\r", b"a,b\r\r"])
@pytest.mark.parametrize("line_end", [b"\r\n", b"\r"])
def test_one_carriage_return_belongs_to_the_line_end_and_no_more(raw, line_end):
    assert table(raw + line_end) == [(1, raw, STRAY_RETURN, [None, None])]


@pytest.mark.parametrize(
    ("raw", "columns"),
    [
        (b"a,", ["a", ""]),
        (b",", ["", ""]),
        (b'"",""', ["", ""]),
        (b'"a,b","c""d"', ["a,b", 'c"d']),
        (b'a, "b"', ["a", ' "b"']),
        (b'"a\rb",c', ["a\rb", "c"]),
        (b"\0,\0", ["\0", "\0"]),
        ("\N{LINE SEPARATOR},é".encode(), ["\N{LINE SEPARATOR}", "é"]),
        (b"a,\x0b\x0c\x1c", ["a", "\x0b\x0c\x1c"]),
    ],
)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b""])
def test_rows_that_are_odd_but_good(raw, columns, line_end):
    assert table(raw + line_end) == [(1, raw, None, columns)]


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n", b"\n\r\n\n", b"\r"])
def test_blank_lines_are_no_rows(content):
    assert table(content) == []
    assert [row[0] for row in table(content + b"a,b\n")] == [content.count(b"\n") + 1]


@pytest.mark.parametrize("span", range(2, ROW_LINES + 1))
def test_a_row_of_several_lines_is_one_bad_row_with_all_of_them(span):
    raw = b'a,"b' + b"\n" * (span - 1) + b'c"'
    found = table(b"d,e\n" + raw + b"\nf,g\n", first_line=11)
    assert [row[:3] for row in found] == [
        (11, b"d,e", None),
        (12, raw, IN_QUOTES),
        (12 + span, b"f,g", None),
    ]


def test_a_row_of_more_lines_than_a_row_may_have_is_bad_line_by_line():
    content = b'a,"b\n' + b"c,d\n" * (ROW_LINES - 1) + b'e"\n'
    reasons = [reason for _, _, reason, _ in table(content)]
    assert reasons[0] == reasons[-1] == "has a quote that does not end"
    assert reasons[1:-1] == [None] * (ROW_LINES - 1)


def test_two_lone_quotes_do_not_swallow_the_good_rows_between_them():
    found = table(b'a,5" wide\nb,c\nd,7" wide\n')
    assert [(line, columns) for line, _, reason, columns in found if not reason] == [
        (2, ["b", "c"])
    ]


def test_the_rest_of_a_line_that_was_taken_before_is_one_bad_row():
    reason = "continues a line that was taken before it was complete"
    assert table(b"b,c\nd,e\n", first_line=7, mid_line=True) == [
        (7, b"b,c", reason, [None, None]),
        (8, b"d,e", None, ["d", "e"]),
    ]
    assert table(b'b"\n"c",d\n', mid_line=True)[0] == (1, b'b"', reason, [None, None])


@pytest.mark.parametrize("rest", [b"\n", b"\r\n"])
def test_a_line_that_lacked_its_line_end_only_has_no_rest(rest):
    assert table(rest + b"d,e\n", first_line=7, mid_line=True) == [(8, b"d,e", None, ["d", "e"])]


@pytest.mark.parametrize("quote", [b"", b'"'])
def test_the_largest_row_is_good_and_a_larger_one_is_cut(quote):
    largest = b"a," + quote + b"x" * (MAX_ROW_BYTES - 2 - 2 * len(quote)) + quote
    larger = largest[:2] + b"y," + largest[2:]
    (_, raw, reason, columns), too_large = table(largest + b"\n" + larger)
    assert (raw, reason, columns[0]) == (largest, None, "a")
    assert too_large[:3] == (
        2,
        larger[:SHOWN_BYTES],
        f"has {MAX_ROW_BYTES + 2:,} bytes, more than {MAX_ROW_BYTES:,}",
    )


@pytest.mark.parametrize(
    "content", [b'a,"' + b"x" * MAX_ROW_BYTES + b'\ny"', b'a,b"' + b"x" * MAX_ROW_BYTES]
)
@pytest.mark.parametrize("mid_line", [False, True])
def test_any_bad_row_is_cut_when_it_is_too_large(content, mid_line):
    assert {len(raw) for _, raw, _, _ in table(content, mid_line=mid_line)} <= {SHOWN_BYTES, 2}


def test_batches_are_bounded(monkeypatch):
    monkeypatch.setattr(lines, "BATCH_LINES", 3)
    content = b'a,b\n"c",d\ne\n' * 7
    assert max(batch.num_rows for batch in split(content, 1, WIDTH).batches(WIDTH)) == 3
    assert [row[0] for row in table(content)] == list(range(1, 22))


def test_a_batch_without_good_rows_is_left_out():
    assert [batch.num_rows for batch in split(b"a\n\xff\n", 1, WIDTH).batches(WIDTH)] == [2]


def test_lines_of_tells_rows_from_lines():
    found = list(lines_of(b'a,b\n\nc,"d\ne"\nf', 5, mid_line=False, width=2))
    assert [(line.number, line.raw) for line in found] == [(5, b"a,b"), (7, b'c,"d\ne"'), (9, b"f")]


@given(
    st.lists(
        st.sampled_from([b"a,b", b'"a",b', b'a,"b', b'b",c', b'"', b"", b'"",""']), max_size=25
    )
)
def test_quotes_are_looked_at_alone_and_all_comes_out_the_same(lines):
    """Lines between those with quotes are taken whole; row by row must come to the same."""
    data = b"\n".join(lines)
    expected = Split([], [], [])
    for line in lines_of(data, 7, mid_line=False, width=2):
        expected.take(line, 2)
    assert split(data, 7, 2) == expected
