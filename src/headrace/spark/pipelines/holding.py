"""One writer at a time for the tables of a pipeline."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from headrace.errors import BadInput, OperationFailed

CHECKPOINTS = "_checkpoints"


@contextlib.contextmanager
def held(lake: str, pipeline: str) -> Iterator[None]:
    """Hold a pipeline's tables; the system lets go when the holder dies.

    A lake that is no folder of this machine has no such lock: there, Delta's own transactions are
    what keeps two writers of the same batch apart.
    """
    if "://" in lake:
        yield
        return
    with _file(lake, pipeline) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OperationFailed(
                f"another command writes the tables of pipeline {pipeline} in {lake}",
                hint="stop it, or wait for its end, then run this again",
            ) from None
        yield


def _file(lake: str, pipeline: str) -> IO[str]:
    folder = Path(lake) / CHECKPOINTS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / f"{pipeline}.lock").open("a")
    except OSError as error:
        raise BadInput(
            f"nothing can be written to {lake}: {error.strerror}",
            hint="give --lake a folder that you may write to",
        ) from error
