"""SIGINT and SIGTERM, heard for as long as something runs."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


def follows_interrupt(error: BaseException) -> bool:
    """Whether an error was raised while an interrupt was being handled: a consequence of the stop.

    >>> try:
    ...     try:
    ...         raise KeyboardInterrupt
    ...     finally:
    ...         raise ConnectionRefusedError("the server has stopped already")
    ... except OSError as error:
    ...     follows_interrupt(error)
    True
    >>> follows_interrupt(OSError("disk full"))
    False
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, KeyboardInterrupt):
            return True
        seen = seen.__context__
    return False


@contextlib.contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on either signal; afterwards they mean what they meant before.

    Only the main thread can hear signals: on another one nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop()

    kept = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
