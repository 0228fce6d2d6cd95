"""A chunk of JSON lines as rows: an object a line, its fields as columns with their types.

`judge` has the rules, for one line. A batch in which nothing is wrong is taken whole, by the
column, which is several times as fast: it is taken so only if `judge` would find nothing.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import orjson

from headrace.spark.ingest.rows import (
    BATCH_LINES,
    MAX_ROW_BYTES,
    TAKEN_BEFORE,
    Bad,
    bad_batches,
    batch_of,
    not_utf8,
    too_large,
)

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["text", "whole", "number", "truth"]
SHOWN_CHARACTERS = 100
_LEAST, _MOST = -(2**63), 2**63 - 1
_TYPES: dict[Kind, frozenset[type]] = {
    "text": frozenset({str}),
    "whole": frozenset({int}),  # beyond 64 bits the parser gives a float
    "number": frozenset({int, float}),
    "truth": frozenset({bool}),
}
_NOUNS: dict[Kind, str] = {
    "text": "text",
    "whole": "whole number",
    "number": "number",
    "truth": "true or false",
}
_VALUES = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "a truth value"}


class JsonField(NamedTuple):
    """A field that the lines may have, and the kind of its values."""

    name: str
    kind: Kind


def json_batches(
    data: bytes, first_line: int, fields: Sequence[JsonField], *, mid_line: bool = False
) -> "Iterator[pa.RecordBatch]":
    """All lines of a chunk but the empty ones: columns line, raw, reason and the fields', c0 to cN.

    A bad line has a reason, and nulls. A field that is missing is null.
    """
    lines = data.split(b"\n")
    if b"\r" in data:
        lines = [line.removesuffix(b"\r") for line in lines]
    rows = [(number, raw) for number, raw in enumerate(lines, first_line) if raw]
    bad: list[Bad] = []
    if mid_line and lines[0]:
        bad.append(Bad(*rows.pop(0), TAKEN_BEFORE))
    for start in range(0, len(rows), BATCH_LINES):
        batch = _batch(rows[start : start + BATCH_LINES], fields, bad)
        if batch.num_rows:
            yield batch
    yield from bad_batches(bad, [_arrow_type(field.kind) for field in fields], BATCH_LINES)


def judge(raw: bytes, kinds: Mapping[str, Kind]) -> dict[str, Any] | str:
    """The object of a line, or what is wrong with it; `kinds` are those of the fields."""
    if len(raw) > MAX_ROW_BYTES:
        return too_large(raw)
    try:
        raw.decode()
        found = orjson.loads(raw)
    except UnicodeDecodeError as error:
        return not_utf8(error)
    except orjson.JSONDecodeError as error:
        return f"is no JSON: {error.msg} at position {error.pos}"
    if not isinstance(found, dict):
        return f"is no object but {_VALUES.get(type(found), 'null')}"
    if not found.keys() <= kinds.keys():
        unknown = ", ".join(sorted(found.keys() - kinds.keys()))
        return f"has unknown fields: {unknown}"[:SHOWN_CHARACTERS]
    texts = 0
    for name, value in found.items():
        if value is not None and not _fits(value, kinds[name]):
            return f"{name} is no {_NOUNS[kinds[name]]}: {_shown(value)}"
        texts += type(value) is str
    # Only now is the object known to be flat, so that its quotes can be counted.
    if _quotes(raw) != 2 * (len(found) + texts):
        return f"has a field twice{_named(raw)}"
    return found


def _fits(value: Any, kind: Kind) -> bool:
    return type(value) in _TYPES[kind] and (kind != "whole" or _LEAST <= value <= _MOST)


def _quotes(raw: bytes) -> int:
    """How many quotes begin or end a text; those within texts are escaped."""
    if b"\\" in raw:
        raw = raw.replace(rb"\\", b"").replace(rb"\"", b"")
    return raw.count(b'"')


def _named(raw: bytes) -> str:
    """The fields that a line has more than once. The parser keeps only the last of each."""
    try:
        pairs = json.loads(raw, object_pairs_hook=list, parse_int=str, parse_float=str)
    except RecursionError:  # the value that was not kept is nested deeply
        return ""
    twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    return f": {', '.join(twice)}"[:SHOWN_CHARACTERS]


def _shown(value: Any) -> str:
    return orjson.dumps(value).decode()[:SHOWN_CHARACTERS]


def _batch(
    rows: Sequence[tuple[int, bytes]], fields: Sequence[JsonField], bad: list[Bad]
) -> "pa.RecordBatch":
    """The good rows of a batch; the others are added to the bad ones."""
    columns = _columns_if_all_good([raw for _, raw in rows], fields)
    if columns is None:
        rows, objects = _good_ones(rows, fields, bad)
        columns = [_array([found.get(name) for found in objects], kind) for name, kind in fields]
    numbers, raws = [number for number, _ in rows], [raw for _, raw in rows]
    return batch_of(numbers, raws, None, columns)


def _good_ones(
    rows: Sequence[tuple[int, bytes]], fields: Sequence[JsonField], bad: list[Bad]
) -> tuple[list[tuple[int, bytes]], list[dict[str, Any]]]:
    good, objects, kinds = [], [], dict(fields)
    for number, raw in rows:
        found = judge(raw, kinds)
        if isinstance(found, str):
            bad.append(Bad(number, raw, found))
        else:
            good.append((number, raw))
            objects.append(found)
    return good, objects


def _columns_if_all_good(
    raws: Sequence[bytes], fields: Sequence[JsonField]
) -> "list[pa.Array] | None":
    """The columns of a batch without a bad line, else None. Every rule of `judge` is here."""
    if max(map(len, raws)) > MAX_ROW_BYTES:
        return None
    try:
        objects = list(map(orjson.loads, raws))  # refuses what is not UTF-8
    except orjson.JSONDecodeError:
        return None
    if set(map(type, objects)) != {dict}:
        return None
    if not set().union(*objects) <= {field.name for field in fields}:
        return None
    columns = []
    for name, kind in fields:
        values = [found.get(name) for found in objects]
        if not set(map(type, values)) <= _TYPES[kind] | {type(None)}:
            return None
        try:
            columns.append(_array(values, kind))
        except OverflowError:  # of 64 bits
            return None
    texts = [column for column, (_, kind) in zip(columns, fields, strict=True) if kind == "text"]
    return None if _any_twice(raws, objects, texts) else columns


def _any_twice(
    raws: Sequence[bytes], objects: Sequence[dict[str, Any]], texts: "Sequence[pa.Array]"
) -> bool:
    """Whether an object has a field twice: more quotes than its fields and texts take."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lines = pa.array(raws, pa.binary())
    for escaped in ("\\\\", '\\"'):  # as in _quotes
        lines = pc.replace_substring(lines, escaped, "")
    expected = pa.array(map(len, objects), pa.int64())
    for text in texts:
        expected = pc.add(expected, text.is_valid().cast(pa.int64()))
    quotes = pc.count_substring(lines, '"').cast(pa.int64())
    return not pc.all(pc.equal(quotes, pc.multiply(expected, 2))).as_py()


def _arrow_type(kind: Kind) -> "pa.DataType":
    import pyarrow as pa

    types = {"text": pa.string(), "whole": pa.int64(), "number": pa.float64(), "truth": pa.bool_()}
    return types[kind]


def _array(values: list[Any], kind: Kind) -> "pa.Array":
    import pyarrow as pa

    if kind == "number":  # Arrow refuses whole numbers that no double holds exactly
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, _arrow_type(kind))
