"""Headrace's servers as the operating system sees them, found without Headrace's own help."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil

from headrace.model import Deadline
from support.waiting import eventually

MARK = "-Dheadrace.node="
SESSION_VARIABLE = "TESTS_OF_HEADRACE"  # every server of a test session inherits it


def servers_under(folder: Path) -> list[psutil.Process]:
    """The servers whose files are somewhere under this folder."""
    inside = f"{folder}/"
    return [p for p, command in _servers() if any(inside in word for word in command)]


def servers_of_session(token: str) -> list[psutil.Process]:
    """The servers that were started, by whatever way, from this test session."""
    return [p for p, _ in _servers() if _variables(p).get(SESSION_VARIABLE) == token]


def processes_with(variable: str, value: str) -> list[psutil.Process]:
    """All processes that inherited a variable, of whatever kind they are."""
    found = [p for p in psutil.process_iter() if _variables(p).get(variable) == value]
    return [process for process in found if is_alive(process)]


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


def _servers() -> Iterator[tuple[psutil.Process, list[str]]]:
    for process in psutil.process_iter():
        command = _command_line(process)
        if any(word.startswith(MARK) for word in command):
            yield process, command


def _command_line(process: psutil.Process) -> list[str]:
    """Looked at again while it is empty: Linux shows a running one so for some milliseconds."""
    with contextlib.suppress(psutil.Error):
        for _ in Deadline(0.25).polls(every=0.005):
            line = process.cmdline()
            if line or process.status() == psutil.STATUS_ZOMBIE or not process.exe():
                return line
    return []


def _variables(process: psutil.Process) -> dict[str, str]:
    with contextlib.suppress(psutil.Error):
        return process.environ()
    return {}
