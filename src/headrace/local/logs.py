"""Reading a server's log, and keeping it when its cluster is given up."""

import contextlib
import shutil
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import ClusterError


def tail_log(path: Path, lines: int, *, follow: bool = False) -> Iterator[str]:
    """The last lines of a log; with `follow`, the next ones as they come."""
    if not path.exists():
        raise ClusterError(
            f"there is no log at {path}", hint="the server has not been started yet: `headrace up`"
        )
    with path.open(encoding="utf-8", errors="replace") as file:
        yield from (line.rstrip("\n") for line in deque(file, maxlen=max(0, lines)))
        while follow:
            if line := file.readline():
                yield line.rstrip("\n")
            else:
                time.sleep(0.2)
                if path.exists() and path.stat().st_size < file.tell():
                    file.seek(0)  # the log was rolled over


def keep_logs(cluster: Path, kept: Path) -> None:
    """Copy the logs of a cluster's servers to a folder beside, in place of an earlier failure's."""
    with contextlib.suppress(OSError):  # a full disk must not hide why the start failed
        shutil.rmtree(kept, ignore_errors=True)
        for log in cluster.glob("*/*.log"):
            (kept / log.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, kept / log.parent.name / log.name)
