"""An app of the user's in several processes, watched and stopped together.

Each process tells of itself in JSON lines on a pipe, a few times a second, and hears `stop` on its
standard input. When that ends, because the parent was killed, it stops too.
"""

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from headrace.clients import Connection
from headrace.errors import HeadraceError, OperationFailed
from headrace.parallel import App
from headrace.services.references import load_named

TOLD_EVERY = 0.25
LINES_KEPT = 100


def load_app(reference: str) -> App:
    """The app that `MODULE:APP` names; the current folder is looked in first."""
    return load_named(
        reference,
        App,
        what="app",
        called="headrace.App",
        example="`headrace run shop:app` for app in shop.py",
        make="app = headrace.App()",
    )


@dataclass
class Told:
    """What an instance has said of itself so far."""

    consumers: list[dict[str, Any]] = field(default_factory=list)
    events: list[tuple[int, str]] = field(default_factory=list)
    error: tuple[str, str] | None = None


class Instance:
    """One process of an app."""

    def __init__(
        self, reference: str, number: int, instances: int, connection: Connection | None
    ) -> None:
        self.number = number
        self._told = Told()
        self._lock = threading.Lock()
        reading, writing = os.pipe()
        environment = dict(os.environ)
        if connection is not None:
            environment["HEADRACE_BOOTSTRAP"] = connection.bootstrap
        self._process = subprocess.Popen(
            [
                sys.executable,
                *("-m", "headrace.services.instance_process"),
                *(reference, str(number), str(instances), str(writing)),
            ],
            stdin=subprocess.PIPE,
            pass_fds=(writing,),
            text=True,
            start_new_session=True,  # Ctrl-C is the parent's to pass on
        )
        os.close(writing)
        self._reader = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._reader.start()

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor) as lines:
            for line in lines:
                said = json.loads(line)
                with self._lock:
                    if "consumers" in said:
                        self._told.consumers = said["consumers"]
                    if "event" in said:
                        self._told.events = [*self._told.events, tuple(said["event"])][-LINES_KEPT:]
                    if "error" in said:
                        self._told.error = tuple(said["error"])

    def status(self) -> list[dict[str, Any]]:
        """Its consumers, as `ConsumerStatus.to_json` tells them."""
        with self._lock:
            return list(self._told.consumers)

    def new_events(self) -> list[tuple[int, str]]:
        """Levels and texts of events since the last call."""
        with self._lock:
            events, self._told.events = self._told.events, []
        return events

    def stop(self) -> None:
        """Ask it to stop; again: without waiting for handlers."""
        if self._process.stdin is not None and self.alive:
            try:
                self._process.stdin.write("stop\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                return

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def join(self, seconds: float) -> bool:
        """Wait for its end; False if it has not come."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._reader.join(5)
        return True

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def failure(self) -> HeadraceError | None:
        """Why it ended, if not in order."""
        status = self._process.poll()
        if not status:
            return None
        with self._lock:
            error = self._told.error
        if error is not None:
            return OperationFailed(f"instance {self.number}: {error[0]}", hint=error[1])
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return OperationFailed(
            f"instance {self.number} {how}",
            hint="nothing is lost: run it again; its finished records are not repeated, "
            "but for those of the last second",
        )
