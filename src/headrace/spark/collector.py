"""Python's garbage collector, kept away from rows.

Rows come and go by the ten thousand and never refer to each other in circles: to look for circles
among them takes a fourth of a task's time. And when a task is over, Spark has its worker look
through all that it ever imported.
"""

import contextlib
import functools
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No collection while a task goes through its rows."""
    _spare_what_is_imported()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@functools.cache
def _spare_what_is_imported() -> None:
    """Once in a process: what lives now stays out of every later collection."""
    gc.freeze()
