"""Reading a server's log, and keeping it when its cluster is given up."""

import contextlib
import os
import shutil
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from headrace.errors import ClusterError


def tail_log(path: Path, lines: int, *, follow: bool = False) -> Iterator[str]:
    """The last lines of a log; with `follow`, the next ones as they come."""
    if not path.exists():
        raise ClusterError(
            f"there is no log at {path}", hint="the server has not been started yet: `headrace up`"
        )
    file = _open(path)
    try:
        yield from (line.rstrip("\n") for line in deque(file, maxlen=max(0, lines)))
        while follow:
            if line := file.readline():
                yield line.rstrip("\n")
            elif _began_anew(path, file):
                yield from (line.rstrip("\n") for line in file)  # written in the last moment
                file.close()
                file = _open(path)
            else:
                time.sleep(0.2)
    finally:
        file.close()


def _open(path: Path) -> TextIO:
    return path.open(encoding="utf-8", errors="replace")


def _began_anew(path: Path, file: TextIO) -> bool:
    """Whether the log was rolled over (another file has its name) or cut to nothing."""
    try:
        now = path.stat()
    except FileNotFoundError:  # between the old file and the new one
        return False
    return not os.path.samestat(now, os.fstat(file.fileno())) or now.st_size < file.tell()


def keep_logs(cluster: Path, kept: Path) -> None:
    """Copy the logs of a cluster's servers to a folder beside, in place of an earlier failure's."""
    with contextlib.suppress(OSError):  # a full disk must not hide why the start failed
        shutil.rmtree(kept, ignore_errors=True)
        for log in cluster.glob("*/*.log"):
            (kept / log.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, kept / log.parent.name / log.name)
