"""Files that are either whole or not there, and a lock between processes."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import ClusterError
from headrace.model import Deadline
from headrace.observe import Progress


def write_atomically(path: Path, text: str) -> None:
    """Write beside, flush to the disk, rename: a power cut leaves the old file or the new one."""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}-", delete=False
    ) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).rename(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def make_folder(path: Path) -> None:
    """Make a folder of Headrace's home, or say why it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if os.access(path, os.W_OK | os.X_OK):
            return
        reason = "it is not writable"
    except OSError as error:
        reason = error.strerror or str(error)
    raise ClusterError(
        f"the folder {path} cannot be used: {reason}",
        hint="set HEADRACE_HOME to a folder you can write to",
        path=str(path),
    )


@contextlib.contextmanager
def exclusive(path: Path, what: str, progress: Progress, seconds: float = 180) -> Iterator[None]:
    """Hold a lock between processes; the system frees it when the holder dies."""
    with path.open("a") as file:
        _wait_for(file.fileno(), what, progress, seconds)
        yield


def _wait_for(descriptor: int, what: str, progress: Progress, seconds: float) -> None:
    told = False
    for _ in Deadline(seconds).polls(every=0.1):
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                progress.step(f"waiting for another command that is at work on {what}")
                told = True
    raise ClusterError(
        f"another command has been at work on {what} for {seconds:.0f} s",
        hint="see what it does with `ps`, end it, and run this again",
    )
