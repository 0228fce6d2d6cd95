"""One moment by which something must have happened, shared along a chain of calls."""

import time
from collections.abc import Callable, Iterator


class Deadline:
    """A point in time that several steps share, so that their waits do not add up.

    >>> deadline = Deadline(5)
    >>> deadline.expired
    False
    >>> 4 < deadline.remaining() <= 5
    True
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    def remaining(self, at_most: float | None = None) -> float:
        """Seconds left, never negative, and no more than `at_most`."""
        left = max(0.0, self._end - self._clock())
        return left if at_most is None else min(left, at_most)

    @property
    def expired(self) -> bool:
        return self._clock() >= self._end

    def polls(self, every: float = 0.05) -> Iterator[None]:
        """Loop until the deadline: at once, then every `every` seconds, and once at the end."""
        while not self.expired:
            yield
            time.sleep(self.remaining(at_most=every))
        yield
