"""Which offsets of one assigned partition are finished, and so: what may be committed.

Only unfinished offsets are kept, in a set. Everything else between the first and the last offset
that was polled is finished, or was never there: offsets have gaps (compaction, transactions), and
a gap counts as finished here, as it does for Kafka's own committed offset.

So a million finished records behind a stuck one cost nothing, in memory as in the commit.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from itertools import compress, pairwise
from typing import NamedTuple

from headrace.parallel.state.codec import LIMIT, Finished, always_fits, room

_MOST_STEPS = 1024


class Commit(NamedTuple):
    """What may be committed: everything before `offset` is finished, and `finished` beyond it."""

    offset: int
    finished: Finished


class Tracker:
    """The offsets of one partition, from one assignment to its end.

    `position` is the committed offset, `finished` what its metadata named (`decode`). `limit` is
    how many bytes of metadata a commit may have.

    >>> tracker = Tracker(100)
    >>> tracker.new([100, 101, 102, 105])
    >>> tracker.finish([105, 101])
    >>> tracker.committable()
    Commit(offset=100, finished=(range(101, 102), range(103, 106)))
    """

    __slots__ = (
        "_cleared",
        "_lowest",
        "_ranks",
        "_restored",
        "_room",
        "_starts",
        "_top",
        "_unfinished",
        "end",
        "finished",
        "registered",
    )

    def __init__(self, position: int, finished: Finished = (), limit: int = LIMIT) -> None:
        self.registered = 0  # how many were to be handled, and
        self.finished = 0  # how many of them are
        self._unfinished: set[int] = set()
        self.end = position  # one past the last registered offset
        self._top = position  # one past the highest finished one before `end`
        self._restored = list(finished)  # those that are not wholly before `end`
        self._lowest = position  # no unfinished offset is lower; see `oldest`
        self._room = room(limit)
        self._cleared = position - 1  # up to here everything may start
        # How many were registered before an offset: exact where a step starts, see `_rank`.
        self._starts: list[int] = []
        self._ranks: list[int] = []

    def new(self, offsets: Sequence[int]) -> bytearray | None:
        """Register polled offsets: ascending, beyond all earlier ones, gaps allowed.

        Returns None if all of them have to be handled, else a byte for each, 0 if it was finished
        before (for `itertools.compress`).
        """
        if not offsets:
            return None
        if offsets[0] < self.end:
            raise ValueError(f"offset {offsets[0]} was polled before; {self.end} was expected")
        wanted = self._without_restored(offsets) if self._restored else None
        todo = offsets if wanted is None else list(compress(offsets, wanted))
        self.end = offsets[-1] + 1
        if todo:
            self._register(todo)
        return wanted

    def pass_over(self, end: int) -> None:
        """Nothing more comes before this offset: behind the last record there is a gap.

        >>> tracker = Tracker(100)
        >>> tracker.pass_over(102)
        >>> tracker.committable()
        Commit(offset=102, finished=())
        """
        if end > self.end:
            self.end = end
            self._restored = [run for run in self._restored if run.stop > end]

    def finish(self, offsets: Collection[int]) -> None:
        """These are finished: in any order, each once. Anything else is a bug and raises."""
        unfinished = self._unfinished
        before = len(unfinished)
        unfinished.difference_update(offsets)
        count = before - len(unfinished)
        self.finished += count
        if count != len(offsets):  # before `_top`, which must not rise by an unknown one
            raise ValueError(
                f"of {len(offsets)} offsets from {min(offsets)} to {max(offsets)}, "
                f"{len(offsets) - count} were not registered, or finished before"
            )
        if count and (last := max(offsets)) >= self._top:
            self._top = last + 1

    def committable(self) -> Commit:
        """The lowest unfinished offset, else one past the last, and what is finished beyond it."""
        end, top = self.end, self._top
        holes = sorted([offset for offset in self._unfinished if offset < top])
        runs = [range(low + 1, high) for low, high in pairwise([*holes, top]) if high - low > 1]
        offset = self.oldest
        if offset is None:
            offset = end
        for run in self._restored:
            _append(runs, range(max(run.start, end), run.stop))
        if runs and runs[0].start == offset:  # restored, and nothing is left before it
            offset = runs.pop(0).stop
        return Commit(offset, tuple(runs))

    @property
    def oldest(self) -> int | None:
        """The lowest unfinished offset. Looked for among all only if the last one is finished."""
        unfinished = self._unfinished
        if not unfinished:
            return None
        if self._lowest not in unfinished:
            self._lowest = min(unfinished)
        return self._lowest

    @property
    def unfinished(self) -> int:
        """How many are registered and not finished: at work, waiting or parked."""
        return len(self._unfinished)

    def is_unfinished(self, offset: int) -> bool:
        """Whether it is registered and not finished."""
        return offset in self._unfinished

    def may_start(self, offset: int) -> bool:
        """Whether this offset can be started without the commit's metadata ever overflowing.

        It can if all maps that end with it fit (`always_fits`): it is near the lowest unfinished
        offset, or few are unfinished up to it. Both only get better as others finish, and hold
        for all offsets before one for which they hold; so an answer of yes stands for ever. The
        lowest unfinished offset itself may always start.

        The lowest one is a lower bound, looked up anew before the answer is no.
        """
        if offset <= self._cleared:
            return True
        near = self._lowest + self._room * 8 - 1
        if offset <= near:  # a bit for each offset has room, for all of them up to there
            self._cleared = near
            return True
        if not self._fits(offset):
            stale = self._lowest
            if self.oldest == stale or not self._fits(offset):
                return False
        self._cleared = offset
        return True

    def _fits(self, offset: int) -> bool:
        span = offset - self._lowest + 1
        return always_fits(span, self._rank(offset) - self.finished, self._room)

    def _rank(self, offset: int) -> int:
        """How many were registered up to an offset, itself included: at most so many.

        Within a step offsets are taken to have no gaps, and the next step knows better. If later
        ones are finished already, less the finished ones is too few; but then one of those was
        allowed to start, and so may this one (`_cleared`).
        """
        step = bisect_right(self._starts, offset)
        known = self._ranks[step] if step < len(self._ranks) else self.registered
        if not step:
            return known
        return min(known, self._ranks[step - 1] + offset - self._starts[step - 1] + 1)

    def _register(self, offsets: Sequence[int]) -> None:
        before = len(self._unfinished)
        self._unfinished.update(offsets)
        if not before:
            self._lowest = offsets[0]
            self._starts, self._ranks = [], []
        starts, ranks = self._starts, self._ranks
        if not starts or ranks[-1] + offsets[0] - starts[-1] != self.registered:
            starts.append(offsets[0])
            ranks.append(self.registered)
            if len(starts) > _MOST_STEPS:  # who asks, asks for late ones
                del starts[: _MOST_STEPS // 2], ranks[: _MOST_STEPS // 2]
        self.registered += len(offsets)
        if len(self._unfinished) - before != len(offsets):
            raise ValueError(f"offsets from {offsets[0]} to {offsets[-1]} are not ascending")

    def _without_restored(self, offsets: Sequence[int]) -> bytearray | None:
        """Marks those that were finished before, and forgets the runs that are passed."""
        wanted = None
        last = offsets[-1]
        passed = first = 0
        for run in self._restored:
            if run.start > last:
                break
            first = bisect_left(offsets, run.start, first)
            after = bisect_left(offsets, run.stop, first)
            if after > first:
                wanted = wanted or bytearray(b"\1") * len(offsets)
                wanted[first:after] = bytes(after - first)
                self._top = offsets[after - 1] + 1
            passed += run.stop <= last + 1
        del self._restored[:passed]
        return wanted


def _append(runs: list[range], run: range) -> None:
    """Runs that touch are one."""
    if runs and runs[-1].stop == run.start:
        run = range(runs.pop().start, run.stop)
    runs.append(run)
