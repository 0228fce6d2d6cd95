"""Who calls a producer's callbacks: one thread at a time, and preferably the sending one.

librdkafka hands out delivery reports to whoever polls it. A background thread that always polls
would fight the sending thread for the interpreter, and halve its speed. So:

- The sending thread polls between records, without waiting.
- A background thread looks after a producer that nobody uses, every 20 ms; while a sending thread
  serves, it only looks every 100 ms whether that is still so.
- When somebody waits for a delivery, the background thread polls attentively: it blocks in
  librdkafka and wakes with the report.

A lock per poll, not per record, keeps it to one thread at a time; the callbacks' own counters
need no lock then.
"""

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

ATTENTION_SECONDS = 1.0
IDLE_SECONDS = 0.02
BUSY_SECONDS = 0.1


class Server:
    """Serves the callbacks of one librdkafka producer."""

    def __init__(self) -> None:
        self._client: Any = None
        self._serving = threading.Lock()
        self._later: deque[Callable[[], None]] = deque()
        self._attend_until = 0.0
        self._wake = threading.Event()
        self._closed = False
        self._rounds = 0  # of serving, by whomever
        self._pause = IDLE_SECONDS
        self._thread: threading.Thread | None = None

    def start(self, client: Any) -> None:
        self._client = client
        self._thread = threading.Thread(
            target=_look_after, args=(weakref.ref(self),), name="headrace-producer", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._closed = True
        self._wake.set()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)

    def serve_if_free(self) -> None:
        """Call the callbacks that are due, unless somebody else does so already."""
        if self._serving.acquire(blocking=False):
            self._poll_and_release(0)

    def serve(self, seconds: float) -> None:
        """Call callbacks, waiting up to so long for the first."""
        if self._serving.acquire(timeout=seconds):
            self._poll_and_release(seconds)

    def flush(self, seconds: float) -> None:
        """Send what lingers, and call callbacks meanwhile."""
        if self._serving.acquire(timeout=seconds):
            try:
                self._client.flush(seconds)
                self._run_later()
            finally:
                self._serving.release()

    def attend(self) -> None:
        """Somebody waits: serve without delay for the next second."""
        self._attend_until = time.monotonic() + ATTENTION_SECONDS
        self._wake.set()

    def later(self, action: Callable[[], None]) -> None:
        """Have something done by the thread that serves next."""
        self._later.append(action)

    def look_once(self) -> bool:
        """One round of the background thread; False when it is over."""
        if time.monotonic() < self._attend_until:
            self.serve(0.05)
        else:
            seen = self._rounds
            self._wake.clear()
            self._wake.wait(self._pause)
            busy = self._rounds != seen  # a sender serves, and needs no rival for the interpreter
            if not busy:
                self.serve_if_free()
            self._pause = BUSY_SECONDS if busy else IDLE_SECONDS
        return not self._closed

    def _poll_and_release(self, seconds: float) -> None:
        try:
            self._client.poll(seconds)
            self._run_later()
            self._rounds += 1
        finally:
            self._serving.release()

    def _run_later(self) -> None:
        while self._later:
            self._later.popleft()()


def _look_after(reference: "weakref.ref[Server]") -> None:
    """The thread's loop. It holds no server between rounds, so that a forgotten one can go."""
    while (server := reference()) is not None and server.look_once():
        del server
