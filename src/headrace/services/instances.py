"""An app of the user's in several processes, watched and stopped together.

Each process tells of itself in JSON lines on a pipe, a few times a second. On its standard input it
hears which cluster is meant, where nobody else sees passwords, and then `stop`. When that ends,
because the parent was killed, it stops too.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

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


def told(connection: Connection) -> dict[str, Any]:
    """A connection as JSON, secrets included."""
    settings = {
        name: [value.get_secret_value(), True] if isinstance(value, SecretStr) else [value, False]
        for name, value in connection.settings.items()
    }
    return {
        "bootstrap": connection.bootstrap,
        "registry": connection.registry,
        "settings": settings,
        "source": connection.source,
    }


def heard(document: dict[str, Any]) -> Connection:
    """The connection that `told` wrote down."""
    settings = {
        name: SecretStr(value) if secret else value
        for name, (value, secret) in document["settings"].items()
    }
    return Connection(**document | {"settings": settings})


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
        self._say(json.dumps(connection and told(connection)))
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
        if self.alive:
            self._say("stop")

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

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
