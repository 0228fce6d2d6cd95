"""Made-up data into a file that is whole or not there."""

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from itertools import islice
from pathlib import Path
from uuid import uuid4

from headrace.errors import BadInput, OperationFailed
from headrace.observe import Progress, Silent
from headrace.services.clickstream import HEADER, ROW_BYTES, rows

ROWS_AT_ONCE = 10_000
SILENT = Silent()


@dataclass(frozen=True)
class Generated:
    """What was written: `bytes` is the size of the file, `bad` how many of its rows are bad."""

    path: str
    rows: int
    bad: int
    bytes: int
    seed: int


def write_clickstream(
    path: Path, count: int, *, seed: int = 0, bad: float = 0.0, progress: Progress = SILENT
) -> Generated:
    """Write a file of the store's clickstream; a name that ends in .gz is compressed.

    A file that is already there is replaced once the new one is whole.
    """
    made = rows(count, seed, bad)
    _check(path)
    # The size is not known before; counted by rows, the bar ends where it should.
    progress.begin(f"writing {count:,} rows to {path}", count * ROW_BYTES)
    found_bad = 0
    with _whole_or_nothing(path) as file:
        file.write(HEADER)
        while some := list(islice(made, ROWS_AT_ONCE)):
            file.write(b"".join([row for row, _ in some]))
            found_bad += sum(kind is not None for _, kind in some)
            progress.advance(len(some) * ROW_BYTES)
    progress.end()
    return Generated(str(path), count, found_bad, path.stat().st_size, seed)


def _check(path: Path) -> None:
    if str(path) == "-":
        raise BadInput("--out cannot be -", hint="name a file; stdout is for the result")
    if path.is_dir():
        raise BadInput(f"{path} is a folder", hint=f"name a file in it: {path / 'events.csv'}")
    if path.exists() and not path.is_file():  # a device or a pipe would be replaced by a file
        raise BadInput(f"{path} is not a file", hint="name a file, new or to be replaced")
    if not path.parent.is_dir():
        raise BadInput(
            f"the folder {path.parent} does not exist",
            hint=f"make it with `mkdir -p {path.parent}`, or choose another one",
        )


@contextmanager
def _whole_or_nothing(path: Path) -> Iterator[BufferedIOBase]:
    """Write beside, flush to the disk, rename. The dot hides the unfinished file from Spark."""
    beside = path.with_name(f".{path.name}-{uuid4().hex[:8]}")
    try:
        with beside.open("xb") as file:
            if path.suffix == ".gz":
                # No name and no time in the header: the same rows are the same bytes.
                with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                    yield packed
            else:
                yield file
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
    except OSError as error:
        raise OperationFailed(
            f"{path} could not be written: {error.strerror or error}",
            hint="check the folder's permissions and the free space, then run this again",
            path=str(path),
        ) from error
    finally:
        beside.unlink(missing_ok=True)
