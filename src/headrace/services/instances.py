"""An app of the user's in several processes, watched and stopped together.

Each process tells of itself in JSON lines on a pipe, a few times a second, and hears `stop` on its
standard input. When that ends, because the parent was killed, it stops too.
"""

import importlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.clients import Connection
from headrace.errors import BadInput, HeadraceError, OperationFailed
from headrace.parallel import App

TOLD_EVERY = 0.25
LINES_KEPT = 100


def load_app(reference: str) -> App:
    """The app that `MODULE:APP` names; the current folder is looked in first."""
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise BadInput(
            f"{reference!r} names no app",
            hint="give MODULE:APP, for instance `headrace run shop:app` for app in shop.py",
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.startswith(error.name):
            raise BadInput(
                f"there is no module {module_name}",
                hint=f"run it from the folder that holds {error.name.replace('.', '/')}.py",
            ) from error
        raise BadInput(
            f"{module_name} cannot be imported: {error}", hint="install what it imports"
        ) from error
    except HeadraceError:  # an option of a consumer is wrong: it says so itself
        raise
    except Exception as error:
        raise BadInput(
            f"{module_name} cannot be imported: {type(error).__name__}: {error}",
            hint=f"see where: python -c 'import {module_name}'",
        ) from error
    found = getattr(module, attribute, None)
    if not isinstance(found, App):
        apps = [name for name, value in vars(module).items() if isinstance(value, App)]
        what = f"has no {attribute}" if found is None else f"{attribute} is no headrace.App"
        raise BadInput(
            f"{module_name}: {what}",
            hint=f"there is {module_name}:{apps[0]}" if apps else "make one: app = headrace.App()",
        )
    return found


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
