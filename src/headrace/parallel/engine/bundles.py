"""The desk of a batch handler: tasks are gathered into bundles of one partition, or of one key.

A bundle is `(work, tasks, keys)`: a key for each turn of a shard that it holds. It is open until it
is full or has waited long enough; then it is ready like any other unit.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappush

from headrace.model import TopicPartition
from headrace.parallel.batching import Batch
from headrace.parallel.engine.desk import Desk, Limits, Payload, Task, Unit, Work
from headrace.parallel.engine.rate import RateLimit
from headrace.parallel.state import Order
from headrace.parallel.state.shards import Key


@dataclass(eq=False)
class _Open:
    """A bundle that still waits for records."""

    work: Work
    group: Key
    due: float
    tasks: list[Task] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)


class BundleDesk(Desk):
    """Gathers what may run into bundles."""

    def __init__(
        self,
        order: Order,
        concurrency: int,
        limits: Limits,
        rate: RateLimit | None,
        batch: Batch,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(order, concurrency, limits, rate)
        self._batch = batch
        self._clock = clock
        self._open: dict[tuple[Work, Key], _Open] = {}

    def ripen(self, now: float) -> float | None:
        """Close the bundles that have waited long enough."""
        # They all wait equally long: those that were opened first are due first.
        while (first := next(iter(self._open.values()), None)) and first.due <= now:
            self._fill(first)
            self._close(first)
        rate = super().ripen(now)
        due = None if first is None else first.due
        return min((moment for moment in (rate, due) if moment is not None), default=None)

    def add(
        self,
        partition: TopicPartition,
        offsets: Sequence[int],
        keys: Sequence[Key],
        messages: Sequence[Payload],
    ) -> None:
        super().add(partition, offsets, keys, messages)
        if work := self.works.get(partition):
            self._top_up(work, keys)

    def take(self, most: int, now: float = 0.0, reserved: int = 0) -> list[Unit]:
        if self._rate is None:
            return super().take(most, now, reserved)
        units: list[Unit] = []  # one by one: only then is it known how many records one costs
        while (free := most - len(units)) > 0:
            more = super().take(1, now, 1 if free <= reserved else 0)
            if not more:
                break
            units += more
        return units

    @property
    def crowded(self) -> bool:
        return True  # a bundle is followed by whatever gathers next

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        partitions = set(partitions)
        super().stop(partitions)
        self._forget(partitions)

    def revoke(self, partitions: Iterable[TopicPartition]) -> list[Work]:
        partitions = set(partitions)
        self._forget(partitions)
        return super().revoke(partitions)

    def _forget(self, partitions: set[TopicPartition]) -> None:
        for place in [place for place in self._open if place[0].partition in partitions]:
            del self._open[place]

    def _admit(self, work: Work, tasks: Sequence[Task]) -> None:
        may_start = work.assignment.tracker.may_start
        for task in tasks:
            if may_start(task[1]):
                self._gather(work, task)
            else:
                heappush(work.held, (task[1], task))
        self._top_up(work, [task[2] for task in tasks])

    def _top_up(self, work: Work, keys: Sequence[Key]) -> None:
        """What waits behind gathered records of these keys joins them."""
        for group in dict.fromkeys(map(self._group, keys)):
            bundle = self._open.get((work, group))
            if bundle is not None:
                self._fill(bundle)
                if len(bundle.tasks) >= self._batch.size or not self._batch.wait:
                    self._close(bundle)

    def _group(self, key: Key) -> Key:
        return key if self._batch.same_key else None

    def _gather(self, work: Work, task: Task) -> None:
        group = self._group(task[2])
        bundle = self._open.get((work, group))
        if bundle is None:
            bundle = _Open(work, group, self._clock() + self._batch.wait)
            self._open[work, group] = bundle
        bundle.tasks.append(task)
        bundle.keys.append(task[2])
        if len(bundle.tasks) >= self._batch.size:
            self._close(bundle)

    def _fill(self, bundle: _Open) -> None:
        """Add what waits in the bundle's shards: it is the same turn."""
        assignment = bundle.work.assignment
        tracker = assignment.tracker
        for key in dict.fromkeys(bundle.keys):
            room = self._batch.size - len(bundle.tasks)
            if room <= 0:
                return
            bundle.tasks += assignment.shards.take(
                key, room, lambda task: tracker.may_start(task[1])
            )

    def _close(self, bundle: _Open) -> None:
        del self._open[bundle.work, bundle.group]
        bundle.tasks.sort(key=lambda task: task[1])  # the partition's order
        bundle.work.ready.append((bundle.work, bundle.tasks, bundle.keys))
        self._line_up(bundle.work)

    def _start(self, work: Work, most: int) -> list[Unit]:
        units = [work.ready.popleft() for _ in range(min(most, len(work.ready)))]
        work.taken += sum(map(self._count, units))
        work.units += len(units)
        return units

    @staticmethod
    def _measure(units: Iterable[Unit]) -> tuple[list[int], int]:
        tasks = [task for _, bundle, _ in units for task in bundle]
        return [task[1] for task in tasks], sum(len(task[3]) for task in tasks)

    @staticmethod
    def _turns(units: Iterable[Unit]) -> list[Key]:
        return [key for _, _, keys in units for key in keys]

    @staticmethod
    def _count(unit: Unit) -> int:
        return len(unit[1])
