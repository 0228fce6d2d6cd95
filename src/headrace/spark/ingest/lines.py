"""A chunk's bytes as rows: lines split into columns, each with its number, bad ones with a reason.

The columns stay text here; Spark gives them their types. Whole columns are handled at a time:
only lines with quotes, and lines that are not UTF-8, are looked at one by one.
"""

import csv
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.spark.ingest.chunks import ROW_LINES
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

_STRAY_RETURN = "has a carriage return that ends no line"
# Else a row with quotes could have no column longer than 131,072 characters. The limit is the
# whole process's: it is only ever raised.
csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_BYTES))


class Line(NamedTuple):
    """A row as it stands in the file: one line, or several if a quote spans them."""

    number: int
    raw: bytes
    reason: str | None = None


def lines_of(data: bytes, first_line: int, *, mid_line: bool, width: int) -> Iterator[Line]:
    """The rows of a chunk. Blank lines are no rows."""
    parts = data.split(b"\n")
    if not parts[-1]:
        parts.pop()
    returns = b"\r" in data
    at, count = 0, len(parts)
    while at < count:
        raw, span, reason = parts[at], 1, None
        if at == 0 and mid_line:
            reason = TAKEN_BEFORE
        elif b'"' in raw:
            if raw.count(b'"') % 2:
                span, reason = _quoted_span(parts, at, width)
                raw = b"\n".join(parts[at : at + span])
        elif returns and b"\r" in raw[:-1]:
            reason = _STRAY_RETURN
        if returns:
            raw = raw.removesuffix(b"\r")
        if raw:
            yield Line(first_line + at, raw, reason)
        at += span


def _quoted_span(parts: Sequence[bytes], at: int, width: int) -> tuple[int, str]:
    """How many lines a row has whose quote does not end on its first line."""
    quotes = 0
    for end in range(at, min(at + ROW_LINES, len(parts))):
        quotes += parts[end].count(b'"')
        if end > at and quotes % 2 == 0:
            if _is_row(b"\n".join(parts[at : end + 1]), width):
                return end - at + 1, "has a line end within quotes"
            break
    return 1, "has a quote that does not end"


def _is_row(raw: bytes, width: int) -> bool:
    """Whether lines make one row. Two stray quotes may have good rows between them: these are lines
    that have not the right columns together."""
    try:
        return len(next(csv.reader([raw.decode("utf-8", "replace")], strict=True))) == width
    except csv.Error:
        return False


def split(data: bytes, first_line: int, width: int, *, mid_line: bool = False) -> "Split":
    """All rows of a chunk: those with `width` columns, and the bad ones."""
    rows = Split([], [], [])
    plain = data
    if returns := b"\r" in data:
        plain = data.replace(b"\r\n", b"\n").removesuffix(b"\r")
    quotes = b'"' in data
    if mid_line or b"\r" in plain or (quotes and returns):
        for line in lines_of(data, first_line, mid_line=mid_line, width=width):
            rows.take(line, width)
        return rows
    parts = plain.split(b"\n")
    at = 0
    for odd in [index for index, raw in enumerate(parts) if b'"' in raw] if quotes else ():
        if odd >= at:  # else it belongs to the row before
            rows.take_plain(parts[at:odd], first_line + at)
            # The first row from there on is all that is asked for: it has at most so many lines.
            few = b"\n".join(parts[odd : odd + ROW_LINES])
            line = next(lines_of(few, first_line + odd, mid_line=False, width=width))
            rows.take(line, width)
            at = odd + 1 + line.raw.count(b"\n")
    rows.take_plain(parts[at:], first_line + at)
    return rows


def _quoted_columns(raw: bytes, width: int) -> list[str] | str:
    """The columns of a row with quotes, or what is wrong with it."""
    if len(raw) > MAX_ROW_BYTES:
        return too_large(raw)
    if raw.endswith(b"\r"):  # the csv module would drop it
        return _STRAY_RETURN
    try:
        columns = next(csv.reader([raw.decode()], strict=True))
    except UnicodeDecodeError as error:
        return not_utf8(error)
    except csv.Error as error:
        # No line end is left in the row: only a carriage return can be taken for one.
        return _STRAY_RETURN if "new-line" in str(error) else f"has wrong quotes: {error}"
    return columns if len(columns) == width else _wrong_width(len(columns), width)


class Split(NamedTuple):
    """A chunk's rows, sorted by how they must be read on."""

    good: list[tuple[int, bytes]]
    quoted: list[tuple[int, bytes, list[str]]]
    bad: list[Bad]

    def take_plain(self, lines: Sequence[bytes], first_line: int) -> None:
        """Lines without quotes."""
        self.good.extend([(n, raw) for n, raw in enumerate(lines, first_line) if raw])

    def take(self, line: Line, width: int) -> None:
        number, raw, reason = line
        if reason is not None:
            self.bad.append(Bad(number, raw, reason))
        elif b'"' not in raw:
            self.good.append((number, raw))
        elif isinstance(columns := _quoted_columns(raw, width), str):
            self.bad.append(Bad(number, raw, columns))
        else:
            self.quoted.append((number, raw, columns))

    def batches(self, width: int) -> "Iterator[pa.RecordBatch]":
        """Arrow batches of columns line, raw, reason and the file's own, c0 to cN."""
        import pyarrow as pa

        bad = list(self.bad)
        for start in range(0, len(self.good), BATCH_LINES):
            batch = _fast_batch(self.good[start : start + BATCH_LINES], width, bad)
            if batch.num_rows:
                yield batch
        for start in range(0, len(self.quoted), BATCH_LINES):
            rows = self.quoted[start : start + BATCH_LINES]
            numbers, raws, columns = zip(*rows, strict=True)
            yield batch_of(numbers, raws, None, list(zip(*columns, strict=True)))
        yield from bad_batches(bad, [pa.string()] * width, BATCH_LINES)


def _fast_batch(rows: Sequence[tuple[int, bytes]], width: int, bad: list[Bad]) -> "pa.RecordBatch":
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = _without_odd_rows(rows, bad)
    numbers = [number for number, _ in rows]
    texts = pa.array([raw for _, raw in rows], pa.binary()).cast(pa.string())
    parts = pc.split_pattern(texts, ",")
    fits = pc.equal(pc.list_value_length(parts), width)
    if pc.all(fits).as_py() is False:
        lengths = pc.list_value_length(parts).to_pylist()
        bad.extend(
            Bad(number, raw, _wrong_width(length, width))
            for (number, raw), length in zip(rows, lengths, strict=True)
            if length != width
        )
        parts, texts = parts.filter(fits), texts.filter(fits)
        numbers = [n for n, length in zip(numbers, lengths, strict=True) if length == width]
    columns = [pc.list_element(parts, index) for index in range(width)] if len(parts) else None
    return batch_of(numbers, texts.cast(pa.binary()), None, columns or [[]] * width)


def _without_odd_rows(
    rows: Sequence[tuple[int, bytes]], bad: list[Bad]
) -> Sequence[tuple[int, bytes]]:
    """Leave out what is too large or not UTF-8, with the reason."""
    try:
        whole = b"\n".join(raw for _, raw in rows)
        whole.decode()
        if len(whole) < MAX_ROW_BYTES or max(map(len, (raw for _, raw in rows))) <= MAX_ROW_BYTES:
            return rows
    except UnicodeDecodeError:
        pass
    kept = []
    for number, raw in rows:
        if len(raw) > MAX_ROW_BYTES:
            bad.append(Bad(number, raw, too_large(raw)))
            continue
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            bad.append(Bad(number, raw, not_utf8(error)))
        else:
            kept.append((number, raw))
    return kept


def _wrong_width(found: int, width: int) -> str:
    return f"has {found} columns, not {width}"
