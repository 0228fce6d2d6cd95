"""Which records must wait for which.

A shard is the queue of records that must stay in order: those of one key, or of the whole
partition. One record of it runs at a time, or one batch; the others wait here.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import repeat
from typing import Generic, Literal, TypeAlias, TypeVar

R = TypeVar("R")
Order: TypeAlias = Literal["key", "partition", "none"]
Key: TypeAlias = Hashable | None

_PARTITION = "partition"  # the only shard, if the order is by partition
_NOBODY: tuple[()] = ()  # waits: a shard that runs its only record needs no queue


class Shards(Generic[R]):
    """The shards of one assigned partition. A shard is known as long as one of its records runs.

    Records without a key are in no order among themselves if the order is by key.

    >>> shards = Shards[int]("key")
    >>> shards.add(["a", "a", "b"], [1, 2, 3])
    [1, 3]
    >>> shards.finish("a"), shards.finish("a")
    (2, None)
    """

    __slots__ = ("_order", "_queues", "_single", "queued")

    def __init__(self, order: Order) -> None:
        self._order = order
        self._queues: dict[Key, deque[R] | tuple[()]] = {}
        self._single = 0  # running records that are a shard of their own
        self.queued = 0  # records that wait

    def add(self, keys: Sequence[Key], records: Sequence[R]) -> list[R]:
        """Take records in; returns those that may run now, the others wait behind them."""
        if self._order == "none":
            self._single += len(records)
            return list(records)
        ready = self._append(self._shards_of(keys, len(records)), records)
        self.queued += len(records) - len(ready)
        return ready

    def _append(self, keys: Iterable[Key], records: Sequence[R]) -> list[R]:
        queues = self._queues
        ready: list[R] = []
        run = ready.append
        for key, record in zip(keys, records, strict=True):
            queue = queues.get(key)
            if queue is None:
                if key is None:
                    self._single += 1
                else:
                    queues[key] = _NOBODY
                run(record)
            elif type(queue) is deque:
                queue.append(record)
            else:
                queues[key] = deque((record,))
        return ready

    def take(self, key: Key, most: int, may_run: Callable[[R], bool] | None = None) -> list[R]:
        """The next records of a running shard, at most so many: they run with the one that runs.

        They are one turn of the shard: `finish` comes once, for all of them. `may_run` is asked
        for each in turn, and the first no ends the batch.
        """
        queue = self._queues.get(_PARTITION if self._order == "partition" else key)
        taken: list[R] = []
        while queue and len(taken) < most and (may_run is None or may_run(queue[0])):
            taken.append(queue.popleft())
        self.queued -= len(taken)
        return taken

    def finish(self, key: Key) -> R | None:
        """What ran of this key's shard is done; returns the next record, which runs from now on."""
        ready = self.finish_many((key,))
        return ready[0] if ready else None

    def finish_many(self, keys: Sequence[Key]) -> list[R]:
        """`finish` for each of these keys; a key that has nothing running is a bug and raises."""
        ready: list[R] = []
        if self._order == "none":
            self._finish_single(len(keys))
            return ready
        queues = self._queues
        run = ready.append
        single = 0
        for key in self._shards_of(keys, len(keys)):
            queue = queues.get(key)
            if queue:
                run(queue.popleft())
            elif queue is not None:
                del queues[key]
            elif key is None:
                single += 1
            else:
                raise ValueError(f"nothing of the key {key!r} runs")
        self.queued -= len(ready)
        if single:
            self._finish_single(single)
        return ready

    @property
    def running(self) -> int:
        """How many turns run: a record, or a batch of a shard."""
        return len(self._queues) + self._single

    def clear(self) -> None:
        """Forget everything."""
        self._queues.clear()
        self._single = self.queued = 0

    def _shards_of(self, keys: Iterable[Key], count: int) -> Iterable[Key]:
        return repeat(_PARTITION, count) if self._order == "partition" else keys

    def _finish_single(self, count: int) -> None:
        if count > self._single:
            raise ValueError(f"{count} records are said to be done, {self._single} run")
        self._single -= count
