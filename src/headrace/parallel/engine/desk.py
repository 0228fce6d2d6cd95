"""Where records wait for a worker: what a consumer has at hand, and who may run next.

No I/O and no lock here: the pump and the crew call it under `Desk.lock`, for many records at once.
What a crew takes and gives back is a *unit*. Its first element is always the `Work` it belongs to:

    a task      (work, offset, key, message)
    a bundle    (work, tasks, keys)              of a batch handler; see `bundles.py`
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heappop, heappush
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

from headrace.model import TopicPartition
from headrace.parallel.engine.rate import RateLimit
from headrace.parallel.state import Assignment, Finished, Order
from headrace.parallel.state.shards import Key


class Payload(Protocol):
    """A client's message: its length is that of its value."""

    def __len__(self) -> int: ...


Task: TypeAlias = tuple["Work", int, Key, Payload]
Unit: TypeAlias = tuple["Work", *tuple[Any, ...]]

_work = itemgetter(0)
RESERVE_FROM = 8  # workers; of fewer, none can be spared for partitions that have nothing to do


class Limits(NamedTuple):
    """How much a consumer holds, shared out among its partitions."""

    records: int
    bytes: int


class Committable(NamedTuple):
    """An offset to be committed for a partition, and its metadata."""

    work: "Work"
    offset: int
    metadata: str


class Work:
    """One assigned partition, with what is ready to run and what is held back."""

    __slots__ = (
        "assignment",
        "bytes",
        "confirmed",
        "end",
        "held",
        "partition",
        "paused",
        "progress_at",
        "ready",
        "sent",
        "taken",
        "units",
        "waits",
    )

    def __init__(
        self,
        partition: TopicPartition,
        assignment: Assignment[Task],
        committed: tuple[int, str] | None,
        now: float,
    ) -> None:
        self.partition = partition
        self.assignment = assignment
        self.sent = committed  # what was last handed to the client to be committed,
        self.confirmed = committed  # and what the broker has surely committed
        self.ready: deque[Unit] = deque()
        self.held: list[tuple[int, Task]] = []  # a heap: the commit's map has no room for them yet
        self.waits = False  # whether it stands in the desk's row of partitions with ready units
        self.taken = 0  # records a crew has,
        self.units = 0  # and in how many units: so many workers it holds
        self.bytes = 0
        self.paused = False
        self.end: int | None = None  # of the partition, as of the last fetch
        self.progress_at = now

    @property
    def unfinished(self) -> int:
        return self.assignment.tracker.unfinished

    @property
    def position(self) -> int:
        """One past the last record that was handed in."""
        return self.assignment.tracker.end

    @property
    def done_up_to(self) -> int:
        """The lowest unfinished offset, else the position."""
        oldest = self.assignment.tracker.oldest
        return self.position if oldest is None else oldest


class Desk:
    """The partitions of one consumer. Everything is called under `lock`.

    `ready` is notified when units can be taken, `news` when units were given back.
    """

    def __init__(
        self, order: Order, concurrency: int, limits: Limits, rate: RateLimit | None = None
    ) -> None:
        self.lock = threading.Lock()
        self.ready = threading.Condition(self.lock)
        self.news = threading.Condition(self.lock)
        self.works: dict[TopicPartition, Work] = {}
        self.finished = 0  # records, since the beginning
        self.late = 0  # records that were finished after their partition was revoked
        self._order = order
        self._concurrency = concurrency
        self._limits = limits
        self._rate = rate
        self._row: deque[Work] = deque()  # partitions that have something ready
        self._numbers = 0
        self._watched: Callable[[], bool] | None = None
        # With a strategy that commits each record: finished units whose successors must wait.
        self.unreleased: list[Unit] | None = None
        self.uncommitted = 0  # units: those, and those that are being committed

    # --- the pump's side ---

    def assign(
        self,
        partition: TopicPartition,
        position: int,
        finished: Finished,
        now: float,
        committed: tuple[int, str] | None = None,
    ) -> Work:
        """A partition is ours, from this position on."""
        self._numbers += 1
        assignment: Assignment[Task] = Assignment(self._numbers, self._order, position, finished)
        work = self.works[partition] = Work(partition, assignment, committed, now)
        return work

    def add(
        self,
        partition: TopicPartition,
        offsets: Sequence[int],
        keys: Sequence[Key],
        messages: Sequence[Payload],
    ) -> None:
        """Polled records of one partition, in order."""
        work = self.works.get(partition)
        if work is None or work.assignment.stopped:
            return
        expected = work.position
        if offsets[0] < expected:  # of an earlier fetch; see DESIGN.md
            known = sum(offset < expected for offset in offsets)
            offsets, keys, messages = offsets[known:], keys[known:], messages[known:]
            if not offsets:
                return
        tracker = work.assignment.tracker
        before = tracker.unfinished
        tasks = list(zip(repeat(work), offsets, keys, messages, strict=False))
        runnable = work.assignment.poll(offsets, keys, tasks)
        if tracker.unfinished - before == len(offsets):
            work.bytes += sum(map(len, messages))
        else:
            work.bytes += sum(
                len(message)
                for offset, message in zip(offsets, messages, strict=True)
                if tracker.is_unfinished(offset)
            )
        self._admit(work, runnable)

    def reach(self, partition: TopicPartition, end: int) -> None:
        """There is no record before this offset that was not handed in."""
        if work := self.works.get(partition):
            work.assignment.tracker.pass_over(end)

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Start nothing more of these."""
        for partition in partitions:
            if work := self.works.get(partition):
                work.assignment.stop()
                work.ready.clear()
                work.held.clear()

    def revoke(self, partitions: Iterable[TopicPartition]) -> list[Work]:
        """These are somebody else's now."""
        works = [self.works.pop(p) for p in partitions if p in self.works]
        for work in works:
            work.assignment.revoke()
            work.ready.clear()
            work.held.clear()
        return works

    def committable(self, works: Iterable[Work], *, confirmed: bool) -> list[Committable]:
        """What has changed since the last commit: the last confirmed one, or the last one sent."""
        found = []
        for work in works:
            if work.assignment.revoked:
                continue
            try:
                offset, metadata = work.assignment.commit()
            except OverflowError:  # only what a forged map named can be too much to write again
                offset, metadata = work.assignment.tracker.committable().offset, ""
            if (work.confirmed if confirmed else work.sent) != (offset, metadata):
                found.append(Committable(work, offset, metadata))
        return found

    def handed_out(self) -> list[Committable]:
        """The position of each partition, whether its records are finished or not."""
        return [
            Committable(work, work.position, "")
            for work in self.works.values()
            if work.sent != (work.position, "")
        ]

    def overfull(self) -> list[Work]:
        """Partitions that hold too much, and are not paused yet.

        While half of the room is free nobody does: a pause costs a fetch. From then on those that
        have more than their share do; and with no room left, all but those that have hardly
        anything, since what fills the room may be stuck.
        """
        used = self._used()
        if used < 0.5:
            return []
        records, most_bytes = self._shares()
        if used >= 1:
            records, most_bytes = -(-records // 4), -(-most_bytes // 4)
        return [
            work
            for work in self.works.values()
            if not work.paused and (work.unfinished >= records or work.bytes >= most_bytes)
        ]

    def _used(self) -> float:
        """Which part of the room is used, by records or by bytes."""
        held = sum(work.bytes for work in self.works.values())
        return max(self.unfinished / self._limits.records, held / self._limits.bytes)

    def relieved(self) -> list[Work]:
        """Paused partitions that have worked off half of their share, once there is room."""
        if self._used() >= 1:
            return []
        records, most_bytes = self._shares()
        return [
            work
            for work in self.works.values()
            if work.paused and work.unfinished * 2 <= records and work.bytes * 2 <= most_bytes
        ]

    def _shares(self) -> tuple[int, int]:
        count = len(self.works) or 1
        return max(1, self._limits.records // count), max(1, self._limits.bytes // count)

    def ripen(self, now: float) -> float | None:
        """Time has passed: what waited for it may be ready. Returns when to look again, if ever."""
        return self._rate.ready_at(now) if self._rate and self._row else None

    # --- the crew's side ---

    def take(self, most: int, now: float = 0.0, reserved: int = 0) -> list[Unit]:
        """Units to run now, at most so many, from all partitions in turn.

        A partition that has its share of the workers is passed over while others wait. `reserved`
        of the units are only for partitions that have less than their share: so the last free
        worker never goes to one that holds all the others.
        """
        row = self._row
        if not row:
            return []
        if len(self.works) <= 1 or self._concurrency < RESERVE_FROM:
            reserved = 0
        most = self._allowed(most, now)
        units: list[Unit] = []
        passed = refused = 0  # if all have their share, they are gone round once more, evenly
        while row and (wanted := most - len(units)) > 0 and refused < len(row):
            work = row[0]
            share = -(-self._concurrency // len(row)) - work.units
            if share <= 0 and passed < len(row):
                row.rotate(-1)
                passed += 1
                continue
            if reserved and work.units >= -(-self._concurrency // len(self.works)):
                wanted -= reserved
            if wanted <= 0:
                row.rotate(-1)
                refused += 1
                continue
            refused = 0
            # Nobody is below its share: each gets an equal part of what is wanted.
            units += self._start(work, min(wanted, max(share, -(-wanted // len(row)))))
            if work.ready:
                row.rotate(-1)
            else:
                row.popleft()
                work.waits = False
        if self._rate is not None:
            self._rate.spend(sum(map(self._count, units)))
        return units

    def _allowed(self, most: int, now: float) -> int:
        if self.unreleased is not None:  # what a crash could repeat: no more than the workers
            running = sum(work.units for work in self.works.values())
            most = min(most, self._concurrency - running - self.uncommitted)
        return most if self._rate is None else self._rate.allowed(most, now)

    def done(self, units: Collection[Unit], now: float) -> None:
        """These are finished; what waited behind them becomes ready, at once or when committed."""
        self.mark(units, now)
        if self.unreleased is None:
            self.release(units)
        else:
            self.unreleased += units
            self.uncommitted += len(units)
            self.news.notify_all()

    def swap(self, unit: Unit, now: float) -> Sequence[Unit]:
        """`done` for a task and `take` for one, at a third of the price if nobody else waits:
        then the only one that can be next is the one behind it."""
        work, offset, key, message = unit
        assignment = work.assignment
        if self.crowded or assignment.stopped or work.held:
            self.done((unit,), now)
            return self.take(1, now)
        assignment.mark((offset,))
        work.bytes -= len(message)
        work.progress_at = now
        self.finished += 1
        following = assignment.release((key,))
        if following and assignment.tracker.may_start(following[0][1]):
            return following
        work.taken -= 1
        work.units -= 1
        self._admit(work, following)
        self._notify()
        return ()

    @property
    def crowded(self) -> bool:
        """Whether who is next is not plain: some wait, or not all may start."""
        return bool(self._row) or self._rate is not None or self.unreleased is not None

    def mark(self, units: Collection[Unit], now: float) -> None:
        """The first half of `done`: these count for the next commit."""
        for work, group in groupby(units, _work):
            of_work = list(group)
            offsets, size = self._measure(of_work)
            work.assignment.mark(offsets)
            work.taken -= len(offsets)
            work.units -= len(of_work)
            work.bytes -= size
            work.progress_at = now
            if work.assignment.revoked:
                self.late += len(offsets)
            else:
                self.finished += len(offsets)
        self._notify()

    def _notify(self) -> None:
        if self._watched is not None and self._watched():
            self.news.notify_all()

    def release(self, units: Collection[Unit]) -> None:
        """The second half of `done`: the next of their shards may run."""
        if self.unreleased is not None:
            self.uncommitted -= len(units)
        for work, group in groupby(units, _work):
            self._admit(work, work.assignment.release(self._turns(group)))
            if work.held:
                self._admit_held(work)

    def give_back(self, units: Iterable[Unit]) -> None:
        """These were taken and not started; they run first if their partition is still ours."""
        for unit in units:
            work = unit[0]
            self._untake(unit)
            if not work.assignment.stopped:
                work.ready.appendleft(unit)
                self._line_up(work)
        self.news.notify_all()

    def abandon(self, units: Iterable[Unit]) -> None:
        """These failed and stay unfinished: neither they nor what waits behind them go on."""
        for unit in units:
            self._untake(unit)
        self.news.notify_all()

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition over the desk holds; False if it never did. One thread at a time.

        Others look at the condition when they report, so that the waiter is not woken in vain.
        """
        self._watched = condition
        try:
            return self.news.wait_for(condition, seconds)
        finally:
            self._watched = None

    # --- looking ---

    @property
    def available(self) -> int:
        """How many units could be taken now, if the rate allows."""
        return sum(len(work.ready) for work in self._row)

    @property
    def taken(self) -> int:
        return sum(work.taken for work in self.works.values())

    @property
    def unfinished(self) -> int:
        return sum(work.unfinished for work in self.works.values())

    # --- inside; a desk of bundles has other ways ---

    def _admit(self, work: Work, tasks: Sequence[Task]) -> None:
        """Tasks whose turn it is."""
        if tasks:
            work.ready.extend(tasks)
            self._line_up(work)

    def _line_up(self, work: Work) -> None:
        if not work.waits:
            work.waits = True
            self._row.append(work)

    def _start(self, work: Work, most: int) -> list[Unit]:
        """Units of one partition; those for which the commit's map has no room are held back."""
        ready = work.ready
        may_start = work.assignment.tracker.may_start
        units: list[Unit] = []
        while ready and len(units) < most:
            unit = ready.popleft()
            if may_start(unit[1]):
                units.append(unit)
            else:
                heappush(work.held, (unit[1], unit))
        work.taken += len(units)
        work.units += len(units)
        return units

    def _untake(self, unit: Unit) -> None:
        unit[0].taken -= self._count(unit)
        unit[0].units -= 1

    def _admit_held(self, work: Work) -> None:
        tracker = work.assignment.tracker
        while work.held and tracker.may_start(work.held[0][0]):
            self._admit(work, [heappop(work.held)[1]])

    @staticmethod
    def _measure(units: Iterable[Unit]) -> tuple[list[int], int]:
        """The offsets of units of one partition, and their bytes."""
        offsets, size = [], 0
        for _, offset, _, message in units:
            offsets.append(offset)
            size += len(message)
        return offsets, size

    @staticmethod
    def _turns(units: Iterable[Unit]) -> list[Key]:
        return [unit[2] for unit in units]

    @staticmethod
    def _count(_unit: Unit) -> int:
        return 1
