"""What the unit tests share: places of their own, a recording progress, a repository, processes."""

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from headrace.config import Places
from headrace.local.artifacts import Artifact
from headrace.model import Deadline

SLEEP = "import time; time.sleep(60)"


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """Folders, a working folder and an environment of the test's own."""
    for variable in list(os.environ):
        if variable.startswith("HEADRACE_") or variable.lower().endswith("_proxy"):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return Places(tmp_path / "home", tmp_path / "cache")


@pytest.fixture
def wait_until() -> Callable[[Callable[[], object]], None]:
    """Wait for a condition, at most a minute."""

    def wait(condition: Callable[[], object]) -> None:
        for _ in Deadline(60).polls(every=0.01):
            if condition():
                return
        raise AssertionError(f"waited in vain for {condition}")

    return wait


class RecordingProgress:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.warnings: list[str] = []
        self.totals: list[int] = []
        self.advances: list[int] = []
        self.ended = 0

    def step(self, text: str) -> None:
        self.steps.append(text)

    def begin(self, what: str, total: int, unit: str = "bytes") -> None:
        self.totals.append(total)

    def advance(self, amount: int) -> None:
        self.advances.append(amount)

    def end(self) -> None:
        self.ended += 1

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def progress() -> RecordingProgress:
    return RecordingProgress()


class Server(ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True


class Repository:
    """A Maven repository on 127.0.0.1 that can misbehave.

    `faults[path]` is a list of what the next requests for that path get: a status, or `cut`,
    which ends the connection in the middle of the file.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, list[int | str]] = {}
        self.redirects: dict[str, str] = {}
        self.requests: list[tuple[str, str | None]] = []
        self._server = Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def address(self) -> str:
        return f"http://{self.host}/maven2"

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def add(self, name: str, content: bytes, extension: str = "jar") -> Artifact:
        artifact = make_artifact(name, content, extension)
        self.files[artifact.path] = content
        return artifact

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        repository = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                repository._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.removeprefix("/maven2/")
        self.requests.append((path, request.headers.get("Authorization")))
        faults = self.faults.get(path)
        fault = faults.pop(0) if faults else None
        if path in self.redirects:
            request.send_response(302)
            request.send_header("Location", self.redirects[path])
            request.end_headers()
        elif isinstance(fault, int) or path not in self.files:
            request.send_error(fault if isinstance(fault, int) else 404)
        else:
            _send(request, self.files[path], cut=fault == "cut")


def _send(request: BaseHTTPRequestHandler, content: bytes, *, cut: bool) -> None:
    request.send_response(200)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content[: len(content) // 2] if cut else content)


def make_artifact(name: str, content: bytes, extension: str = "jar") -> Artifact:
    digest = hashlib.sha256(content).hexdigest()
    return Artifact("org.example", name, "1.0", "", extension, digest, len(content))


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """A repository that HEADRACE_MAVEN_REPOSITORY points to."""
    server = Repository()
    monkeypatch.setenv("HEADRACE_MAVEN_REPOSITORY", server.address)
    yield server
    server.close()


@pytest.fixture
def run_marked() -> Iterator[Callable[..., psutil.Process]]:
    """Start real processes that carry a mark on their command line; ended after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def run(mark: str, code: str = SLEEP) -> psutil.Process:
        child = subprocess.Popen([sys.executable, "-c", code, mark])
        started.append(child)
        return psutil.Process(child.pid)

    yield run
    for child in started:
        child.kill()
        child.wait()


@pytest.fixture
def run_python() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run code in a fresh interpreter, to its end."""

    def run(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run
