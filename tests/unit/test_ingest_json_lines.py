"""Every line of a chunk comes out once: as a row with its fields, or as a bad one with a reason."""

import io
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.spark.ingest import chunks, json_lines
from headrace.spark.ingest.chunks import plan_chunks
from headrace.spark.ingest.json_lines import JsonField, json_batches, judge
from headrace.spark.ingest.rows import MAX_ROW_BYTES, SHOWN_BYTES, TAKEN_BEFORE

pa = pytest.importorskip("pyarrow")

FIELDS = (
    JsonField("id", "whole"),
    JsonField("name", "text"),
    JsonField("price", "number"),
    JsonField("new", "truth"),
)
NAMES = [name for name, _ in FIELDS]
GOOD = b'{"id":1,"name":"a","price":2.5,"new":true}'
ROW = [1, "a", 2.5, True]
NULLS = [None] * 4

# Values of every kind, right and wrong; texts full of what confuses those who count quotes.
TEXTS = st.text('a"\\é\n\u2028,:{}[]', max_size=6)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.lists(TEXTS, max_size=2)
    | st.dictionaries(TEXTS, TEXTS, max_size=2)
)
RIGHT = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | TEXTS,
        "price": st.none() | st.integers(-(2**64), 2**64) | st.floats(-1e300, 1e300),
        "new": st.none() | st.booleans(),
    },
)
PAIRS = st.lists(st.tuples(st.sampled_from([*NAMES, "more", 'na"me']), VALUES), max_size=6)


def as_object(pairs):
    """JSON of pairs, of which two may have the same name."""
    inside = ", ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in pairs)
    return f"{{{inside}}}"


DUMPED = RIGHT.map(lambda row: json.dumps(row).encode()) | RIGHT.map(
    lambda row: json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
)
LINE = (
    DUMPED
    | PAIRS.map(as_object).map(str.encode)
    | st.sampled_from([GOOD, b"", b"\r", b" ", b"{", b"[1]", b"null", b'"', b"\xff", GOOD[:-9]])
    | st.binary(max_size=20).filter(lambda raw: b"\n" not in raw)
)
CONTENT = st.tuples(st.lists(LINE, max_size=12), st.sampled_from([b"\n", b"\r\n"])).map(
    lambda parts: parts[1].join(parts[0])
)


def table(data, first_line=1, *, mid_line=False):
    """All rows by line: number, raw, reason, values."""
    found = []
    for batch in json_batches(data, first_line, FIELDS, mid_line=mid_line):
        assert batch.schema.names == ["line", "raw", "reason", "c0", "c1", "c2", "c3"]
        assert batch.schema.types[3:] == [pa.int64(), pa.string(), pa.float64(), pa.bool_()]
        assert batch.num_rows
        batch.validate(full=True)
        for line, raw, reason, *values in zip(*map(list, batch.to_pydict().values()), strict=True):
            assert reason is None or values == NULLS
            found.append((line, raw, reason, values))
    return sorted(found, key=lambda row: row[0])


def reasons(*lines):
    return [reason for _, _, reason, _ in table(b"\n".join(lines))]


def is_good(raw):
    """Whether a line is a row, by the rules and by Python's own parser."""
    kinds = {"id": int, "name": str, "price": (int, float), "new": bool}
    try:
        pairs = json.loads(raw.decode(), object_pairs_hook=tuple, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    if not isinstance(pairs, tuple) or len(dict(pairs)) != len(pairs):
        return False
    for name, value in pairs:
        if name not in kinds:
            return False
        right = isinstance(value, kinds[name]) and (name == "new") == isinstance(value, bool)
        if value is not None and not right:
            return False
        if name == "id" and value is not None and not -(2**63) <= value < 2**63:
            return False
    return True


def refuse(constant):
    raise ValueError(f"{constant} is no JSON")


# --- any content ---


@given(CONTENT, st.integers(1, 80))
@example(GOOD + b"\n" + GOOD + b"\n", 1000)
@example(b'{"name":"\\\\","name":""}', 1000)
@example(b'{"name":"\\"","id":1}\n{"name":"a\\\\\\""}', 1000)
def test_every_line_is_in_one_row_and_every_row_is_right(content, size):
    """However the file is cut into chunks."""
    left = dict(enumerate((line.removesuffix(b"\r") for line in content.split(b"\n")), 1))
    for chunk in plan_chunks(io.BytesIO(content), (), size, row_is_line=True):
        assert not chunk.mid_line
        part = content[chunk.extent.start : chunk.extent.end]
        for number, raw, reason, values in table(part, chunk.first_line):
            assert left.pop(number) == raw != b""
            assert (reason is None) == is_good(raw), reason
            if reason is None:
                assert values == expected_values(raw)
    assert not any(left.values()), "lines without a row"


def expected_values(raw):
    found = json.loads(raw)
    price = found.get("price")
    found["price"] = None if price is None else float(price)
    return [found.get(name) for name in NAMES]


@given(st.lists(LINE.filter(lambda raw: raw.strip(b"\r")), min_size=1, max_size=6))
@example([rb'{"name":"\\"}'])
@example([rb'{"name":"\""}', GOOD])
def test_the_fast_way_is_taken_when_every_line_is_good_and_only_then(lines):
    fast = json_lines._columns_if_all_good(lines, FIELDS)
    objects = [judge(raw, dict(FIELDS)) for raw in lines]
    assert (fast is None) == any(isinstance(found, str) for found in objects)
    if fast is not None:
        values = [list(row) for row in zip(*(c.to_pylist() for c in fast), strict=True)]
        assert values == [expected_values(raw) for raw in lines]


@given(st.lists(DUMPED, max_size=20))
def test_what_pythons_json_writes_is_read_as_it_was(lines):
    assert table(b"\n".join(lines)) == [
        (number, raw, None, expected_values(raw)) for number, raw in enumerate(lines, 1)
    ]


# --- one thing at a time ---


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", "is no JSON: unexpected end of data at position 1"),
        (GOOD[:20], "is no JSON: unexpected end of data at position 20"),
        (b"{'id':1}", "is no JSON: unexpected character"),
        (b'{"id":1,}', "is no JSON: "),
        (b'{"price":NaN}', "is no JSON: "),
        (b'{"price":1e999}', "is no JSON: number is infinity when parsed as double at position 9"),
        (b'{"name":"\\ud800"}', "is no JSON: "),
        (GOOD + GOOD, "is no JSON: unexpected content after document at position 42"),
        (GOOD + b"," + GOOD, "is no JSON: unexpected content after document at position 42"),
        (b"\xef\xbb\xbf" + GOOD, "is no JSON: UTF-8 byte order mark (BOM) is not supported"),
        (b" ", "is no JSON: "),
        (b"[" * 5000, "is no JSON: depth limit exceeded"),
        (b'{"name":"\xfc"}', "is not UTF-8: byte 0xfc at position 9"),
        (b"[1]", "is no object but a list"),
        (b'"id"', "is no object but a text"),
        (b"12", "is no object but a number"),
        (b"1.5", "is no object but a number"),
        (b"true", "is no object but a truth value"),
        (b"null", "is no object but null"),
        (b'{"id":1,"size":2,"colour":3}', "has unknown fields: colour, size"),
        (b'{"ID":1}', "has unknown fields: ID"),
        (b'{"id":"1"}', 'id is no whole number: "1"'),
        (b'{"id":1.0}', "id is no whole number: 1.0"),
        (b'{"id":true}', "id is no whole number: true"),
        (b'{"id":9223372036854775808}', "id is no whole number: 9223372036854775808"),
        (b'{"id":-9223372036854775809}', "id is no whole number: -9.22337203685477"),
        (b'{"id":%s}' % (b"9" * 40), "id is no whole number: 1e+40"),
        (b'{"name":5}', "name is no text: 5"),
        (b'{"name":["a"]}', 'name is no text: ["a"]'),
        (b'{"name":{"first":"a"}}', 'name is no text: {"first":"a"}'),
        (b'{"price":"2.5"}', 'price is no number: "2.5"'),
        (b'{"price":false}', "price is no number: false"),
        (b'{"new":1}', "new is no true or false: 1"),
        (b'{"new":"true"}', 'new is no true or false: "true"'),
        (b'{"id":1,"id":1}', "has a field twice: id"),
        (b'{"name":"a","id":1,"name":"b"}', "has a field twice: name"),
        (b'{"name":"\\"","na\\u006de":"\\\\"}', "has a field twice: name"),
        (b'{"id":null,"id":null}', "has a field twice: id"),
        (b'{"id":%s,"id":1}' % (b"9" * 200), "has a field twice: id"),
        (b'{"id":' + b"[" * 1000 + b"]" * 1000 + b',"id":1}', "has a field twice"),
    ],
)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_what_is_wrong_with_a_line(raw, reason, line_end):
    first, (number, found, told, values), last = table(
        GOOD + line_end + raw + line_end + GOOD + line_end
    )
    assert (first[0], first[3], last[0], last[3]) == (1, ROW, 3, ROW)
    assert (number, found, values) == (2, raw, NULLS)
    assert told.startswith(reason)


def test_reasons_are_short():
    long = b"x" * 5000
    lines = (
        b'{"id":"%s"}' % long,
        b'{"%s":1}' % long,
        b'{"%s":1,"%s":1}' % (long, long),
    )
    assert all(len(reason) < 150 for reason in reasons(*lines))


@pytest.mark.parametrize(
    ("raw", "values"),
    [
        (b"{}", NULLS),
        (b'{"id":null,"name":null}', NULLS),
        (b'{"name":""}', [None, "", None, None]),
        (b' { "new" : false , "id" : 7 }\t', [7, None, None, False]),
        (b'{"id":9007199254740993}', [2**53 + 1, None, None, None]),
        (b'{"id":9223372036854775807}', [2**63 - 1, None, None, None]),
        (b'{"id":-9223372036854775808}', [-(2**63), None, None, None]),
        (b'{"price":5}', [None, None, 5.0, None]),
        (b'{"price":9007199254740993}', [None, None, 2.0**53, None]),
        (b'{"name":"\\"\\\\\\" \\u0022 \\n"}', [None, '"\\" " \n', None, None]),
        (b'{"na\\u006de":"a"}', [None, "a", None, None]),
        ('{"name":"\N{LINE SEPARATOR}é"}'.encode(), [None, "\N{LINE SEPARATOR}é", None, None]),
    ],
)
@pytest.mark.parametrize("beside", [(), (b"[]",)])
def test_lines_that_are_odd_but_good(raw, values, beside):
    """Alone they are taken the fast way, beside a bad line one by one."""
    assert table(b"\n".join((raw, *beside)))[0] == (1, raw, None, values)


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n", b"\n\r\n\n", b"\r"])
def test_empty_lines_are_no_rows(content):
    assert table(content) == []
    assert [row[0] for row in table(content + GOOD)] == [content.count(b"\n") + 1]


def test_the_largest_line_is_good_and_a_larger_one_is_cut():
    largest = b'{"name":"' + b"x" * (MAX_ROW_BYTES - 11) + b'"}'
    larger = b'{"name":"x' + largest[9:]
    (_, raw, reason, _), too_large = table(largest + b"\n" + larger)
    assert (raw, reason) == (largest, None)
    told = f"has {MAX_ROW_BYTES + 1:,} bytes, more than {MAX_ROW_BYTES:,}"
    assert too_large == (2, larger[:SHOWN_BYTES], told, NULLS)


def test_the_rest_of_a_line_that_was_taken_before_is_one_bad_row():
    assert table(b"x\n" + GOOD, first_line=7, mid_line=True) == [
        (7, b"x", TAKEN_BEFORE, NULLS),
        (8, GOOD, None, ROW),
    ]
    assert table(GOOD, mid_line=True)[0][2] == TAKEN_BEFORE


@pytest.mark.parametrize("rest", [b"\n", b"\r\n"])
def test_a_line_that_lacked_its_line_end_only_has_no_rest(rest):
    assert table(rest + GOOD, first_line=7, mid_line=True) == [(8, GOOD, None, ROW)]


def test_batches_are_bounded_and_an_odd_line_slows_its_own_batch_only(monkeypatch):
    monkeypatch.setattr(json_lines, "BATCH_LINES", 3)
    judged = []
    monkeypatch.setattr(
        json_lines, "judge", lambda raw, kinds: judged.append(raw) or judge(raw, kinds)
    )
    content = b"\n".join([GOOD] * 7 + [b"{}x"] + [GOOD] * 4)
    batches = list(json_batches(content, 1, FIELDS))
    assert [batch.num_rows for batch in batches] == [3, 3, 2, 3, 1]
    assert judged == [GOOD, b"{}x", GOOD]


# --- chunks ---


def test_quotes_do_not_keep_a_chunk_of_json_lines_from_ending(monkeypatch):
    """An odd number of quotes in each line: CSV's rules would look for pairs of them."""
    monkeypatch.setattr(chunks, "SEARCH_BYTES", 4000)
    line = rb'{"name":"5\" wide"}' + b"\n"
    planned = plan_chunks(io.BytesIO(line * 500), (), 100, row_is_line=True)
    lengths = {chunk.extent.end - chunk.extent.start for chunk in planned}
    assert lengths == {6 * len(line), (500 % 6) * len(line)}


def test_chunks_of_json_lines_do_not_look_at_quotes(monkeypatch):
    def looked(*_seen):
        raise AssertionError("quotes were counted")

    monkeypatch.setattr(chunks, "_may_be_within_row", looked)
    monkeypatch.setattr(chunks, "_end_of_pairs", looked)
    assert len(plan_chunks(io.BytesIO((GOOD + b"\n") * 50), (), 200, row_is_line=True)) > 5
