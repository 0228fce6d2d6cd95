"""The rows of a batch, kept in files until the batch is written.

Rows change under a stream's eyes: what a query found a moment ago is not what it finds now. A batch
that Spark runs again must have the same rows, or the sink refuses it. So rows are written to a file
as they are found, before Spark hears of the batch, and every attempt reads that file.

Each file is written once, under a name of its own, and is whole when it has that name.
"""

import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa

_ENDING = ".arrow"
_DIGITS = 12


class Stage:
    """A folder of staged batches. The names begin with a number, which grows."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def write(self, after: str | None, batches: "Iterable[pa.RecordBatch]") -> str | None:
        """Keep the rows of the batch that follows another; returns its name, or None if it has
        none."""
        import pyarrow as pa

        number = 1 + (0 if after is None else _number(after))
        name = f"{number:0{_DIGITS}}-{secrets.token_hex(4)}"
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / f"{name}.part"
        rows = 0
        try:
            with unfinished.open("xb") as file:
                writer = None
                for batch in batches:
                    writer = writer or pa.ipc.new_stream(file, batch.schema)
                    writer.write_batch(batch)
                    rows += batch.num_rows
                if writer is not None:
                    writer.close()
                file.flush()
                os.fsync(file.fileno())
            if not rows:
                return None
            unfinished.rename(self._path(name))
        finally:
            unfinished.unlink(missing_ok=True)
        return name

    def read(self, name: str) -> "Iterator[pa.RecordBatch]":
        """A batch's rows, as they were found."""
        import pyarrow as pa

        path = self._path(name)
        try:
            with path.open("rb") as file:
                yield from pa.ipc.open_stream(file)
        except FileNotFoundError as error:
            raise BadInput(
                f"the rows of a batch that was begun are gone: {path}",
                hint="put the file back; or remove the checkpoint, and all rows are sent again",
            ) from error

    def forget_before(self, name: str) -> None:
        """Remove batches that are older than this one, which Spark may yet run again."""
        if not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            if path.name.split("-")[0].isdecimal() and _number(path.name) < _number(name):
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_ENDING}"


def _number(name: str) -> int:
    return int(name.split("-")[0])
