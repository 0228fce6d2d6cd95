"""Waiting for a condition, with a deadline."""

from collections.abc import Callable
from typing import TypeVar

from headrace.model import Deadline

T = TypeVar("T")


def eventually(
    condition: Callable[[], T], what: str, seconds: float = 60, every: float = 0.05
) -> T:
    """The condition's first true answer; fails when none came in time."""
    for _ in Deadline(seconds).polls(every):
        if answer := condition():
            return answer
    raise AssertionError(f"waited {seconds:.0f} s in vain: {what}")
