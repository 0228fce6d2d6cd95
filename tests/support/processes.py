"""Headrace's servers as the operating system sees them, found without Headrace's own help."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from support.waiting import eventually

MARK = "-Dheadrace.node="
SESSION_VARIABLE = "TESTS_OF_HEADRACE"  # every server of a test session inherits it


def servers_under(folder: Path) -> list[psutil.Process]:
    """The servers whose files are somewhere under this folder."""
    inside = f"{folder}/"
    return list(_servers(lambda process: any(inside in word for word in process.cmdline())))


def servers_of_session(token: str) -> list[psutil.Process]:
    """The servers that were started, by whatever way, from this test session."""
    return list(_servers(lambda process: process.environ().get(SESSION_VARIABLE) == token))


def kill(processes: list[psutil.Process]) -> None:
    """SIGKILL, and wait until they are gone."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    eventually(lambda: not any(map(is_alive, processes)), f"{processes} are gone")


def is_alive(process: psutil.Process) -> bool:
    """It still holds memory and ports; one that only waits to be reaped does not."""
    try:
        zombie = process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
        return process.is_running() and not zombie
    except psutil.NoSuchProcess:
        return False


def _servers(wanted: Callable[[psutil.Process], bool]) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            marked = any(word.startswith(MARK) for word in process.cmdline())
            if marked and wanted(process):
                yield process
