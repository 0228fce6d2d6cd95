"""Server processes that outlive the command, and how they are known again.

A pid file tells where to look; it is never believed. A process is a cluster's server only if its
own command line carries the server's mark, `-Dheadrace.node=CLUSTER_ID/NODE`, with the cluster's
random id in it. So a pid that the system gave to a stranger after a power cut is never signalled,
and a server whose pid file was never written (the command died in between) is still found.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from headrace.errors import ServerDied
from headrace.model import Deadline

# Handles of servers started by this very process. They must be polled, or a dead server would
# stay a zombie for as long as this process lives.
_children: dict[int, "subprocess.Popen[bytes]"] = {}

SECONDS_TO_SHOW = 0.25


class State(StrEnum):
    """A server's process as the system sees it."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


def mark(cluster_id: str, node: str) -> str:
    """The Java option that tells a server from every other process."""
    return f"-Dheadrace.node={cluster_id}/{node}"


@dataclass(frozen=True)
class Server:
    """One server of a cluster: a folder with its files, and the mark on its command line."""

    node: str
    folder: Path
    mark: str

    @property
    def log(self) -> Path:
        """What the server logs, rolled by size."""
        return self.folder / "server.log"

    @property
    def console(self) -> Path:
        """What it printed since it was last started: Java's own complaints end up here."""
        return self.folder / "console.log"

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"

    def find(self) -> psutil.Process | None:
        """The server's process, if it runs."""
        process = self._from_pid_file() or next(iter(find_marked([self.mark]).values()), None)
        if process is not None and self._read_pid() != process.pid:
            with contextlib.suppress(OSError):  # it only makes the next look cheaper
                self._pid_file.write_text(str(process.pid))
        return process

    @property
    def state(self) -> State:
        process = self.find()
        if process is None:
            return State.STOPPED
        try:
            paused = process.status() == psutil.STATUS_STOPPED
        except psutil.Error:
            return State.STOPPED
        return State.PAUSED if paused else State.RUNNING

    def spawn(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the server in a session of its own, so that Ctrl-C here does not reach it."""
        assert self.mark in command
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.console.open("wb") as console:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=dict(environment),
                start_new_session=True,
            )
        _children[child.pid] = child
        self._pid_file.write_text(str(child.pid))

    def require_alive(self) -> None:
        """Raise ServerDied with the server's last words, if it has ended."""
        if self.find() is None:
            raise ServerDied(
                f"{self.node} ended{self._how()} while it was starting: {self.last_words()}",
                hint=f"read {self.log}, then run `headrace doctor`",
                node=self.node,
                log=str(self.log),
            )

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to the server; False if it does not run."""
        process = self.find()
        if process is None:
            return False
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            return False
        return True

    def last_words(self) -> str:
        """The line in its output that says best why it ended."""
        return find_cause(_tail(self.console) + _tail(self.log)) or "it left no message"

    def _how(self) -> str:
        """Its exit status or the signal that ended it, if it was this process's child."""
        child = _children.get(self._read_pid() or 0)
        status = None if child is None else child.poll()
        if status is None:
            return ""
        return f" by signal {-status}" if status < 0 else f" with status {status}"

    def log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def logged_since(self, position: int, *words: str) -> bool:
        """Whether a line with all these words was logged after this position of the log."""
        try:
            with self.log.open("rb") as file:
                file.seek(position)
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return False
        return any(all(word in line for word in words) for line in lines)

    def _read_pid(self) -> int | None:
        try:
            return int(self._pid_file.read_text())
        except (OSError, ValueError):
            return None

    def _from_pid_file(self) -> psutil.Process | None:
        pid = self._read_pid()
        if pid is None:
            return None
        try:
            process = psutil.Process(pid)
            return process if self.mark in _command_line(process) else None
        except (psutil.Error, ValueError):  # a damaged file may hold any number
            return None


def find_marked(marks: Iterable[str]) -> dict[str, psutil.Process]:
    """The live processes that carry one of these marks."""
    wanted = set(marks)
    found: dict[str, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            for known in wanted.intersection(_command_line(process)):
                found[known] = process
        except psutil.Error:
            continue
    return found


def end(servers: Sequence[Server], number: signal.Signals, seconds: float) -> list[Server]:
    """Send the signal, wait until all have ended; those that have not are returned."""
    # The process is looked up before it is signalled: a moment later its command line may be gone
    # while it still holds its ports.
    running = {process: server for server in servers if (process := server.find())}
    for process in running:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    return [running[process] for process in wait_for_end(running, seconds)]


def wait_for_end(processes: Collection[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait until all have ended; those that have not are returned.

    psutil's own wait also waits for a dead process to be reaped by its parent, and that may be a
    program, or a container's first process, that never does.
    """
    alive = list(processes)
    for _ in Deadline(seconds).polls(every=0.02):
        alive = [process for process in alive if not _has_ended(process)]
        if not alive:
            break
    return alive


def _has_ended(process: psutil.Process) -> bool:
    if (child := _children.get(process.pid)) and child.poll() is not None:
        del _children[process.pid]
    try:
        if not process.is_running():
            return True
        # Java's first thread may be dead while the others still hold the ports.
        return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
    except psutil.NoSuchProcess:
        return True


def _command_line(process: psutil.Process) -> list[str]:
    if child := _children.get(process.pid):
        child.poll()
    # Linux now and then shows the command line of a running process as empty, for some
    # milliseconds, and a server must not be taken for dead then. Kernel threads never have one;
    # they are known by having no executable either.
    line: list[str] = []
    for _ in Deadline(SECONDS_TO_SHOW).polls(every=0.002):
        if process.status() == psutil.STATUS_ZOMBIE:
            break
        line = process.cmdline()
        if line or not process.exe():
            break
    return line


def find_cause(lines: Sequence[str]) -> str:
    """The most telling line of a server's output: the last error, else the last line."""
    telling = ("ERROR", "FATAL", "Exception", "Error:", "Could not", "OutOfMemory")
    # Indented lines are the rest of something: a stack trace, a list of settings.
    whole = [line.strip() for line in lines if line.strip() and not line.startswith(("\t", " "))]
    for line in reversed(whole):
        if any(word in line for word in telling):
            return line
    return whole[-1] if whole else ""


def _tail(path: Path, size: int = 16_384) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
