"""What the pump asks of a crew, and how a crew tells of a failed record."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from headrace.parallel.engine.desk import Desk, Unit

# Runs a unit: decodes it and calls the handler. Of an async handler it returns an awaitable.
Call: TypeAlias = Callable[[Unit], Any]
# Told of a unit whose handler raised; True if it counts as finished, else the consumer stops.
Failed: TypeAlias = Callable[[Unit, BaseException], bool]

FAST_CHUNK = 128
FAST_SECONDS = 50e-6
CHUNK_SECONDS = 0.001


class Running(NamedTuple):
    """A unit that a worker has in hand."""

    unit: Unit
    since: float


class Crew(ABC):
    """Runs handlers. Takes units from the desk and gives them back; knows nothing of Kafka."""

    def __init__(self, desk: Desk, call: Call, failed: Failed, concurrency: int) -> None:
        self._desk = desk
        self._call = call
        self._failed = failed
        self._concurrency = concurrency

    @abstractmethod
    def wake(self) -> None:
        """Units may be ready. From any thread, without the desk's lock."""

    @abstractmethod
    def withdraw(self) -> None:
        """Give back what was taken and is not started, where it waits for nothing good.

        Called a few times a second, and at once when partitions are stopped.
        """

    @abstractmethod
    def running(self) -> list[Running]:
        """What the workers have in hand now."""

    @abstractmethod
    def close(self) -> None:
        """Take nothing more. Workers that still run a handler are left to end by themselves."""


class Pace:
    """How many units make a worthwhile chunk: a millisecond of handlers, by a moving average.

    >>> pace = Pace()
    >>> pace.chunk
    1
    >>> for _ in range(20):
    ...     pace.note(count=10, seconds=0.0001)
    >>> pace.chunk
    92
    """

    __slots__ = ("_mean", "_seconds", "chunk", "fast")

    def __init__(self, seconds: float = CHUNK_SECONDS) -> None:
        self._seconds = self._mean = seconds
        self.chunk = 1
        self.fast = False

    def note(self, count: int, seconds: float) -> None:
        """So many units took so long together."""
        weight = 0.3
        self._mean += weight * (seconds / count - self._mean)
        self.fast = self._mean < FAST_SECONDS
        self.chunk = max(1, min(FAST_CHUNK, int(self._seconds / max(self._mean, 1e-7))))
