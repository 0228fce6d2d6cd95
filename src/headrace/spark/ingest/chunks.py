"""Which chunks of a file are still to be sent. Chunks are known by content, never by name.

A chunk's name is the SHA-256 of everything from the file's beginning to the chunk's end, with its
start and end. So a file that was renamed or copied has the same chunks, a file that grew has the
old chunks and new ones, and a file that was changed has others. Where a chunk ends depends on the
content alone, and on where a file ended when somebody planned it: whoever plans, whenever, comes to
the same chunks.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple
from zlib import crc32

CHUNK_BYTES = 32 << 20
# A row may span this many lines (a quoted newline). It begins with a line that has an odd number
# of quotes, so that no chunk ends within so many lines of such a line.
ROW_LINES = 8
SEARCH_BYTES = 1 << 20
READ_BYTES = 1 << 20
HASH_DIGITS = 32
_BLANK_FIRST = re.compile(rb"\r?\n|\r\Z")
_BEFORE_BLANK = re.compile(rb"\n(?=\r?\n|\r\Z)")
_NUMBER = "(0|[1-9][0-9]{0,17})"
_NAME = re.compile(f"([0-9a-f]+)-{_NUMBER}-{_NUMBER}")


class Extent(NamedTuple):
    """A chunk's name, taken apart."""

    start: int
    end: int
    content: str

    def __str__(self) -> str:
        return f"{self.content}-{self.start}-{self.end}"

    @classmethod
    def parse(cls, name: str) -> "Extent | None":
        """The extent of a chunk's name; None for names of other things.

        >>> Extent.parse("ab12-0-100")
        Extent(start=0, end=100, content='ab12')
        """
        parts = _NAME.fullmatch(name)
        return parts and cls(int(parts[2]), int(parts[3]), parts[1])


@dataclass(frozen=True)
class Chunk:
    """Lines of a file: from byte `start` to byte `end`; lines are counted from 1."""

    extent: Extent
    first_line: int
    lines: int
    done: bool
    checksum: int  # of its bytes, to know them again when they are read
    mid_line: bool = False  # it begins within a line whose first half was taken before
    blank: int = 0  # lines that are no rows; not counted of what is done


class End(NamedTuple):
    """Where a file ended when it was planned, and what it held up to there."""

    at: int
    content: str


def plan_chunks(
    file: IO[bytes],
    known: Iterable[Extent],
    size: int = CHUNK_BYTES,
    *,
    row_is_line: bool = False,
    ends: Iterable[End] = (),
) -> list[Chunk]:
    """All chunks of a file from its beginning to its end, and which of them are done.

    `row_is_line`: quotes mean nothing to where a row ends, so that any line end will do. `ends`:
    where chunks end that somebody planned and may have sent, or be sending, in part.
    """
    return list(_plan(_Window(file), _by_start(known), size, row_is_line, sorted(ends)))


def _by_start(known: Iterable[Extent]) -> dict[int, list[Extent]]:
    found: dict[int, list[Extent]] = {}
    for extent in sorted(known):
        if extent.end > extent.start:
            found.setdefault(extent.start, []).append(extent)
    return found


def _plan(
    window: "_Window",
    known: Mapping[int, list[Extent]],
    size: int,
    row_is_line: bool,
    ends: Sequence[End],
) -> Iterator[Chunk]:
    running = hashlib.sha256()
    start, line, mid_line = 0, 1, False
    near = size + SEARCH_BYTES
    while True:
        sent = known.get(start, [])
        # Farther than a new chunk reaches, if a longer one was sent when chunks were larger.
        data = window.look(max(near, sent[-1].end - start if sent else 0))
        if not data:
            return
        length, digest = _sent_before(data, start, sent, running)
        done = length > 0
        if not done:
            ended = _where_it_ended(data, start, ends, running)
            there = len(data) if ended is None else ended
            seen = data if there == len(data) <= near else data[: min(there, near)]
            length = cut(seen, size, at_end=there < near, row_is_line=row_is_line)
            digest = _hash_on(running, data, 0, length)
        running = digest
        extent = Extent(start, start + length, running.hexdigest()[:HASH_DIGITS])
        line_ends, whole = data.count(b"\n", 0, length), data[length - 1] == ord("\n")
        checksum = 0 if done else crc32(memoryview(data)[:length])
        blank = 0 if done else blank_lines(data, length)
        yield Chunk(extent, line, line_ends + (not whole), done, checksum, mid_line, blank)
        start, line, mid_line = start + length, line + line_ends, not whole
        window.advance(length)


def blank_lines(data: bytes | bytearray, length: int) -> int:
    """How many lines of the first bytes are empty.

    >>> blank_lines(b"\\none\\n\\r\\n\\ntwo\\n", 12)
    3
    """
    first = _BLANK_FIRST.match(data, 0, length) is not None
    return first + sum(1 for _ in _BEFORE_BLANK.finditer(data, 0, length))


def _sent_before(
    data: bytearray, start: int, sent: Iterable[Extent], running: "hashlib._Hash"
) -> tuple[int, "hashlib._Hash"]:
    """The longest chunk that was sent from here on and is this content: its length, and the hash
    up to its end; else 0.

    Every file that was ever sent has a chunk that starts at 0: the content is hashed once for all
    of them, not once for each.
    """
    found, digest, at = (0, running), running, 0
    for extent in sent:
        length = extent.end - start
        if length > len(data):
            break
        digest, at = _hash_on(digest, data, at, length), length
        if digest.hexdigest()[:HASH_DIGITS] == extent.content:
            found = length, digest
    return found


def _where_it_ended(
    data: bytearray, start: int, ends: Iterable[End], running: "hashlib._Hash"
) -> int | None:
    """How much of this content there was when somebody planned it, if anybody did."""
    digest, at = running, 0
    for end in ends:
        if start < end.at < start + len(data):
            digest, at = _hash_on(digest, data, at, end.at - start), end.at - start
            if digest.hexdigest()[:HASH_DIGITS] == end.content:
                return at
    return None


def _hash_on(digest: "hashlib._Hash", data: bytearray, start: int, end: int) -> "hashlib._Hash":
    """A hash that goes on; the one given stays as it is."""
    digest = digest.copy()
    with memoryview(data) as whole, whole[start:end] as part:  # a slice would be a copy
        digest.update(part)
    return digest


def cut(data: bytes | bytearray, size: int, *, at_end: bool, row_is_line: bool = False) -> int:
    """Where a chunk of about this size ends: after a line, and not within a row of several lines.

    >>> cut(b"one\\ntwo\\nthree\\n", 5, at_end=True)
    8
    """
    if len(data) <= size:
        return len(data)
    for line_end in _line_ends(data, size):
        if row_is_line or not _may_be_within_row(data, line_end):
            return line_end
    if at_end:
        return len(data)
    # Odd quotes for a megabyte: a line end after which they make pairs must do, else any.
    if end := _end_of_pairs(data, size) or data.find(b"\n", size) + 1:
        return end
    # No line end for a megabyte: a long line is left to the next chunk, and a chunk that has
    # nothing but it ends anywhere.
    return data.rfind(b"\n", 0, size) + 1 or len(data)


def _line_ends(data: bytes | bytearray, start: int) -> Iterator[int]:
    """Where lines end, the line end included."""
    while (found := data.find(b"\n", start)) >= 0:
        start = found + 1
        yield start


def _may_be_within_row(data: bytes | bytearray, line_end: int) -> bool:
    begin = line_end - 1
    for _ in range(ROW_LINES):
        begin = data.rfind(b"\n", 0, begin)
        if begin < 0:
            break
    begin += 1
    if data.find(b'"', begin, line_end) < 0:
        return False
    return any(line.count(b'"') % 2 for line in data[begin:line_end].split(b"\n"))


def _end_of_pairs(data: bytes | bytearray, size: int) -> int:
    """The first line end with an even number of quotes before it, or 0."""
    quotes = counted = 0
    for line_end in _line_ends(data, size):
        quotes += data.count(b'"', counted, line_end)
        counted = line_end
        if quotes % 2 == 0:
            return line_end
    return 0


class _Window:
    """A file read forward, with a look ahead."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._held = bytearray()  # grows in place: nothing is held twice

    def look(self, size: int) -> bytearray:
        """The next bytes, at least so many unless the file ends; valid until `advance`."""
        while (missing := size - len(self._held)) > 0:
            more = self._file.read(min(missing, READ_BYTES))
            if not more:
                break
            self._held += more
        return self._held

    def advance(self, length: int) -> None:
        del self._held[:length]
