"""The files of a run: which they are, what their chunks are, and whether they have changed."""

import glob
import hashlib
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import BadInput, OperationFailed
from headrace.spark.ingest.chunks import HASH_DIGITS, Chunk, End, Extent, plan_chunks
from headrace.spark.ingest.formats import Format
from headrace.spark.ingest.schema import RowSchema
from headrace.spark.ingest.source import GZIP, ChunkToRead, open_file
from headrace.spark.ledger import FILE_ENTRY, Entry


@dataclass
class FilePlan:
    """A file and its chunks."""

    path: str
    format: Format
    chunks: list[Chunk]
    header: bool

    @property
    def end(self) -> Extent | None:
        return self.chunks[-1].extent if self.chunks else None

    @property
    def length(self) -> int:
        return self.end.end if self.end is not None else 0


def expand(paths: Sequence[str]) -> list[str]:
    """Files, folders and globs as files, each once, by name."""
    found: dict[str, None] = {}
    for given in paths:
        path = Path(given)
        # A glob may be absolute or relative: Path has no one way for both.
        found_here = sorted(glob.glob(given, recursive=True))  # noqa: PTH207
        matches = [path] if path.exists() else [Path(each) for each in found_here]
        if not matches:
            raise BadInput(f"there is no file {given!r}", hint="check the path, or quote the glob")
        for match in matches:
            inside = sorted(match.rglob("*")) if match.is_dir() else [match]
            found |= {
                str(file.resolve()): None
                for file in inside
                if file.is_file() and not file.name.startswith(".")
            }
    if not found:
        raise BadInput(f"there are no files in {', '.join(paths)}", hint="check the path")
    return list(found)


def length_told(path: str) -> int:
    """How long a file's content is, as the file says. A compressed one says so at its end, if it
    is below 4 GB and was not put together of several."""
    try:
        return _length_told(path)
    except OSError:
        return 0  # who reads it will say what is wrong


def _length_told(path: str) -> int:
    with Path(path).open("rb") as file:
        compressed = file.read(len(GZIP)) == GZIP
        size = file.seek(0, os.SEEK_END)
        if not compressed or size < 4:
            return size
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")


def plan_file(
    path: str,
    format: Format,
    known: Iterable[Extent],
    schema: RowSchema,
    ends: Iterable[End] = (),
) -> FilePlan:
    """A file's chunks. The first line of a CSV file may be a header."""
    try:
        with open_file(path) as file:
            chunks = plan_chunks(file, known, row_is_line=format == "jsonl", ends=ends)
        with open_file(path) as file:
            first = file.readline(1 << 16)
    except (OSError, EOFError, zlib.error) as error:
        raise OperationFailed(f"{path} cannot be read: {error}", hint="mend it") from error
    text = first.rstrip(b"\r\n").decode("utf-8-sig", "replace")
    header = format == "csv" and text == ",".join(schema.names)
    return FilePlan(path, format, chunks, header)


def planned_ends(entries: Mapping[str, Entry]) -> list[End]:
    """Where files ended that somebody planned, and pieces that were sent in part: whoever planned
    them may be sending them now, so they must be the same pieces again, though the file grew."""
    files = [entry.facts for name, entry in entries.items() if name.startswith(FILE_ENTRY)]
    begun = [Extent.parse(name) for name, entry in entries.items() if not entry.complete]
    return [
        *(End(facts["size"], facts["content"]) for facts in files),
        *(End(extent.end, extent.content) for extent in begun if extent is not None),
    ]


def missing(plans: Sequence[FilePlan]) -> list[tuple[FilePlan, Chunk]]:
    """Chunks to be sent, each once though two files have it."""
    found: dict[Extent, tuple[FilePlan, Chunk]] = {}
    for plan in plans:
        for chunk in plan.chunks:
            if not chunk.done:
                found.setdefault(chunk.extent, (plan, chunk))
    return list(found.values())


def has_rows(plan: FilePlan, chunk: Chunk) -> bool:
    return chunk.lines - chunk.blank > _header_lines(plan, chunk)


def _header_lines(plan: FilePlan, chunk: Chunk) -> int:
    return int(plan.header and chunk.extent.start == 0)


def to_read(plan: FilePlan, chunk: Chunk) -> ChunkToRead:
    extent = chunk.extent
    return ChunkToRead(
        path=plan.path,
        piece=str(extent),
        start=extent.start,
        end=extent.end,
        first_line=chunk.first_line,
        lines=chunk.lines - chunk.blank,
        mid_line=chunk.mid_line,
        skip_lines=_header_lines(plan, chunk),
        checksum=chunk.checksum,
        format=plan.format,
    )


def refuse_changed(plan: FilePlan, before: Entry) -> None:
    """Refuse a file that does not begin with what it was when it was sent."""
    path, size, content = plan.path, before.facts["size"], before.facts["content"]
    if any((chunk.extent.end, chunk.extent.content) == (size, content) for chunk in plan.chunks):
        return
    if _prefix(path, size) == content:  # no chunk ends there: larger ones were sent before
        return
    raise BadInput(
        f"{path} has changed since it was sent: its first {size:,} bytes are not what they were",
        hint="put the old content back, or send what is changed in it with --changed-is-new",
        path=path,
    )


def begins_with(path: str, size: int, content: str) -> bool:
    """Whether a file is there, and its first bytes are those of a chunk that ends after them."""
    try:
        return _prefix(path, size) == content
    except (OSError, EOFError, zlib.error):
        return False


def _prefix(path: str, size: int) -> str:
    """What the name of a chunk that ends after `size` bytes begins with."""
    digest = hashlib.sha256()
    with open_file(path) as file:
        while size > 0 and (data := file.read(min(size, 1 << 20))):
            digest.update(data)
            size -= len(data)
    return digest.hexdigest()[:HASH_DIGITS]
