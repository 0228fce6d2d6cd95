"""Ctrl-C (and SIGTERM, which the command line handles as Ctrl-C) while Spark works.

A KeyboardInterrupt must not be raised in the middle of a call of the JVM. What happened then:
1. The main thread waits for the JVM's answer, and the signal's handler raises.
2. The cleanup calls the JVM on the same connection and reads the answer to the first call.
3. It waits forever for an answer that has been read, or fails with errors that look like defects.
PySpark's own handler is worse: it calls the JVM itself, in the middle of step 1.

So during a call of the JVM the handler only starts to cancel Spark's work, from another thread, and
KeyboardInterrupt is raised when the call has returned.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SECONDS_BETWEEN_CANCELS = 0.1
SECONDS_TO_CANCEL = 20.0  # what Spark does not cancel in this time is not waited for


def _nothing() -> None:
    pass


class _Cancellation:
    """Cancels again and again, as a job may yet begin, until `end`; kills after a while."""

    def __init__(self, cancel: Callable[[], None], kill: Callable[[], None]) -> None:
        self._cancel, self._over = cancel, threading.Event()
        self._timer = threading.Timer(SECONDS_TO_CANCEL, kill)
        self._timer.daemon = True
        self._timer.start()
        threading.Thread(target=self._run, name="spark-cancel", daemon=True).start()

    def end(self) -> None:
        self._over.set()
        self._timer.cancel()

    def _run(self) -> None:
        while not self._over.wait(SECONDS_BETWEEN_CANCELS):
            with contextlib.suppress(Exception):  # Spark may still be starting, or be gone
                self._cancel()


class Interrupts:
    """The main thread's interrupts. `cancel` stops Spark's work, `kill` ends its JVM at once."""

    def __init__(self) -> None:
        self.cancel: Callable[[], None] = _nothing
        self.kill: Callable[[], None] = _nothing
        self._depth = 0
        self._cancellation: _Cancellation | None = None
        self._before: Any = signal.default_int_handler

    def install(self) -> None:
        """Handle SIGINT from now on; outside of `held_back` the handler found here applies."""
        if threading.current_thread() is not threading.main_thread():
            return
        found = signal.signal(signal.SIGINT, self.handle)
        if found != self.handle:
            self._before = found

    def install_again(self) -> None:
        """Handle SIGINT although PySpark has replaced the handler meanwhile."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self.handle)

    def handle(self, number: int, frame: FrameType | None) -> None:
        if not self._depth:
            self._end_cancellation()  # its KeyboardInterrupt is the one that is raised here
            if not callable(self._before):
                raise KeyboardInterrupt
            self._before(number, frame)
        elif self._cancellation is None:
            self._cancellation = _Cancellation(self.cancel, self.kill)
        else:  # a second signal does not wait
            self.kill()
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def held_back(self) -> Iterator[None]:
        """A signal on the main thread cancels, and KeyboardInterrupt is raised at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._raise_held_back()

    def _raise_held_back(self) -> None:
        if self._depth == 0 and self._end_cancellation():
            raise KeyboardInterrupt

    def _end_cancellation(self) -> bool:
        """End it, if there is one; whether there was."""
        cancellation, self._cancellation = self._cancellation, None
        if cancellation is not None:
            cancellation.end()
        return cancellation is not None

    def guard(self, client: Any) -> None:
        """Hold interrupts back during each call that py4j's client makes."""
        send = client.send_command

        def send_command(*arguments: Any, **options: Any) -> Any:
            with self.held_back():
                return send(*arguments, **options)

        client.send_command = send_command


interrupts = Interrupts()


@contextlib.contextmanager
def cancelled_by_ctrl_c(cancel: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C cancels Spark's work and waits for its end; what is committed stays.

    A second Ctrl-C does not wait.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    cancel_before, interrupts.cancel = interrupts.cancel, cancel
    before = signal.signal(signal.SIGINT, interrupts.handle)
    try:
        with interrupts.held_back():
            yield
    finally:
        signal.signal(signal.SIGINT, before)
        interrupts.cancel = cancel_before
