"""Which chunks of a file are still to be sent. Chunks are known by content, never by name.

A chunk's name is the SHA-256 of everything from the file's beginning to the chunk's end, with its
start and end. So a file that was renamed or copied has the same chunks, a file that grew has the
old chunks and new ones, and a file that was changed has others. Where a chunk ends depends on the
content alone: whoever plans, whenever, comes to the same chunks.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, NamedTuple

CHUNK_BYTES = 32 << 20
# A row may span this many lines (a quoted newline); no chunk ends within so many lines of a quote.
ROW_LINES = 8
SEARCH_BYTES = 1 << 20
HASH_DIGITS = 32


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
        content, *numbers = name.split("-")
        if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
            return None
        return cls(int(numbers[0]), int(numbers[1]), content)


@dataclass(frozen=True)
class Chunk:
    """Lines of a file: from byte `start` to byte `end`; lines are counted from 1."""

    extent: Extent
    first_line: int
    lines: int
    done: bool
    mid_line: bool = False  # it begins within a line whose first half was taken before


def plan_chunks(file: IO[bytes], known: Iterable[Extent], size: int = CHUNK_BYTES) -> list[Chunk]:
    """All chunks of a file from its beginning to its end, and which of them are done."""
    return list(_plan(_Window(file), _by_start(known), size))


def _by_start(known: Iterable[Extent]) -> dict[int, list[Extent]]:
    found: dict[int, list[Extent]] = {}
    for extent in known:
        found.setdefault(extent.start, []).append(extent)
    return found


def _plan(window: "_Window", known: Mapping[int, list[Extent]], size: int) -> Iterator[Chunk]:
    running = hashlib.sha256()
    start, line, complete = 0, 1, True
    while True:
        data = window.look(size + SEARCH_BYTES)
        if not data:
            return
        length, done = _known_length(data, start, known.get(start, ()), running)
        if not done:
            length = cut(data, size, at_end=len(data) < size + SEARCH_BYTES)
        body = data[:length]
        running.update(body)
        extent = Extent(start, start + length, running.hexdigest()[:HASH_DIGITS])
        lines = body.count(b"\n") + (not body.endswith(b"\n"))
        yield Chunk(extent, line, lines, done, mid_line=not complete)
        complete = body.endswith(b"\n")
        line += lines - (not complete)
        start += length
        window.advance(length)


def _known_length(
    data: bytes, start: int, known: Iterable[Extent], running: "hashlib._Hash"
) -> tuple[int, bool]:
    """How long the chunk is that was sent from here on, if there is one with this content."""
    for extent in sorted(known, reverse=True):
        length = extent.end - start
        if 0 < length <= len(data):
            digest = running.copy()
            digest.update(data[:length])
            if digest.hexdigest()[:HASH_DIGITS] == extent.content:
                return length, True
    return 0, False


def cut(data: bytes, size: int, *, at_end: bool) -> int:
    """Where a chunk of about this size ends: after a line, away from quotes.

    >>> cut(b"one\\ntwo\\nthree\\n", 5, at_end=True)
    8
    """
    if len(data) <= size:
        return len(data)
    position = size
    while (found := data.find(b"\n", position)) >= 0:
        if not _quoted_before(data, found):
            return found + 1
        position = found + 1
    if at_end:
        return len(data)
    # Only quotes for a megabyte, or one endless line: any line's end must do, else any byte.
    return data.find(b"\n", size) + 1 or len(data)


def _quoted_before(data: bytes, newline: int) -> bool:
    begin = newline
    for _ in range(ROW_LINES):
        begin = data.rfind(b"\n", 0, begin)
        if begin < 0:
            break
    return data.find(b'"', max(begin, 0), newline) >= 0


class _Window:
    """A file read forward, with a look ahead."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._held = b""

    def look(self, size: int) -> bytes:
        while len(self._held) < size and (more := self._file.read(size - len(self._held))):
            self._held += more
        return self._held

    def advance(self, length: int) -> None:
        self._held = self._held[length:]
