"""The command line as its users have it: a process of its own, judged by what it prints."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.waiting import eventually

HEADRACE = str(Path(sys.executable).with_name("headrace"))


@dataclass(frozen=True)
class Done:
    """What one call came to."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one document of `-o json`."""
        return json.loads(self.stdout)

    @property
    def lines(self) -> list[Any]:
        """The documents of `-o ndjson`."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def error(self) -> str:
        """The text after `error: `."""
        return self._line("error: ")

    @property
    def hint(self) -> str:
        """The text after `hint: `."""
        return self._line("hint: ")

    def _line(self, label: str) -> str:
        (found,) = [line for line in self.stderr.splitlines() if line.startswith(label)]
        return found.removeprefix(label)


class Cli:
    """Calls `headrace` in an environment and a folder of the test's own."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder
        kept = ("HEADRACE_CACHE", "HEADRACE_MAVEN_REPOSITORY", "HEADRACE_HOME")
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HEADRACE_") or name in kept
        } | dict(variables)

    def __call__(
        self, *arguments: str, stdin: str | bytes = b"", status: int = 0, seconds: float = 180
    ) -> Done:
        """Run a command to its end and insist on its exit status; a traceback is a failure."""
        running = self.start(*arguments)
        given = stdin.encode() if isinstance(stdin, str) else stdin
        return running.finish(given, status=status, seconds=seconds)

    def json(self, *arguments: str, stdin: str | bytes = b"") -> Any:
        """The document that a command prints with `-o json`."""
        return self(*arguments, "-o", "json", stdin=stdin).json

    def refused(self, status: int, *arguments: str, stdin: str | bytes = b"") -> Done:
        """A command that must fail: no result, one line `error:`, then one line `hint:`."""
        done = self(*arguments, stdin=stdin, status=status)
        assert_refusal(done)
        return done

    def start(self, *arguments: str, stdin: int = subprocess.PIPE) -> "Running":
        """Start a command and go on."""
        process = subprocess.Popen(
            [HEADRACE, *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.environment,
        )
        return Running(process, arguments)

    @contextlib.contextmanager
    def killed(self, *arguments: str) -> Iterator[None]:
        """A command that gets SIGKILL when the block ends, with all that it started; it must not
        have ended by itself."""
        process = subprocess.Popen(
            [HEADRACE, *arguments],
            cwd=self.folder,
            env=self.environment,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.returncode == -signal.SIGKILL

    def with_variables(self, **variables: str) -> "Cli":
        """The same with other variables."""
        return Cli(self.folder, self.environment | variables)


class Running:
    """A command at work; killed, if it still runs, when the `with` block ends."""

    def __init__(self, process: "subprocess.Popen[bytes]", arguments: tuple[str, ...]) -> None:
        self.process = process
        self._arguments = arguments

    def finish(self, stdin: bytes = b"", *, status: int = 0, seconds: float = 180) -> Done:
        """Wait for the end and insist on the exit status."""
        try:
            out, err = self.process.communicate(stdin or None, timeout=seconds)
        except BaseException:
            self.process.kill()
            self.process.communicate()
            raise
        done = Done(self.process.returncode, (out or b"").decode(), err.decode())
        shown = f"headrace {' '.join(self._arguments)}\n{done.stdout[:2000]}\n{done.stderr}"
        assert done.status == status, f"exit {done.status}, not {status}: {shown}"
        assert "Traceback" not in done.stderr, shown
        assert "Exception in thread" not in done.stderr, shown
        return done

    def line(self, seconds: float = 60) -> Any:
        """The next line of output, as JSON, as soon as it is there."""
        found: list[bytes] = []
        assert self.process.stdout is not None
        reader = threading.Thread(
            target=lambda: found.append(self.process.stdout.readline()), daemon=True
        )
        reader.start()
        eventually(lambda: bool(found), f"a line from {self._arguments}", seconds)
        return json.loads(found[0])

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.process.wait()


def assert_refusal(done: Done) -> None:
    """Nothing on stdout; `error: ...` and then `hint: ...` are the last words on stderr."""
    assert done.stdout == ""
    *_, error, hint = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")


def together(*calls: Running, status: int = 0, seconds: float = 180) -> list[Done]:
    """Wait for commands that run at the same time."""
    try:
        return [call.finish(status=status, seconds=seconds) for call in calls]
    finally:
        for call in calls:
            call.__exit__()
