"""A partition from the moment it is assigned to the moment it is taken away.

A partition that comes back is another assignment, with another number. Whoever handles a record
keeps the assignment it came from, so what finishes after the end finds an object that nobody
commits from any more.
"""

from collections.abc import Sequence
from itertools import compress
from typing import Generic, TypeVar

from headrace.parallel.state.codec import LIMIT, Finished, encode
from headrace.parallel.state.shards import Key, Order, Shards
from headrace.parallel.state.tracker import Tracker

R = TypeVar("R")


class Assignment(Generic[R]):
    """One assignment of one partition. It ends in two steps:

    1. `stop`: what waits is forgotten, nothing new starts; what runs may still finish and count.
    2. `revoke`, after the last commit: what finishes now is late and changes nothing.
    """

    __slots__ = ("_limit", "number", "revoked", "shards", "stopped", "tracker")

    def __init__(
        self,
        number: int,
        order: Order,
        position: int,
        finished: Finished = (),
        limit: int = LIMIT,
    ) -> None:
        self.number = number
        self.tracker = Tracker(position, finished, limit)
        self.shards = Shards[R](order)
        self.stopped = False
        self.revoked = False
        self._limit = limit

    def poll(
        self, offsets: Sequence[int], keys: Sequence[Key], records: Sequence[R]
    ) -> Sequence[R]:
        """Take polled records in; returns those that may run now.

        Those that were finished before this assignment are left out. After `stop` none is taken:
        the next owner of the partition gets them.
        """
        if self.stopped:
            return ()
        wanted = self.tracker.new(offsets)
        if wanted is not None:
            keys, records = list(compress(keys, wanted)), list(compress(records, wanted))
        return self.shards.add(keys, records)

    def mark(self, offsets: Sequence[int]) -> None:
        """These are finished: they count for the next commit, unless it is too late."""
        if not self.revoked:
            self.tracker.finish(offsets)

    def release(self, keys: Sequence[Key]) -> Sequence[R]:
        """The turns of these keys' shards are over; returns the records that may run next.

        A key for each record that is finished, or one for each batch of one key.
        """
        return () if self.stopped else self.shards.finish_many(keys)

    def commit(self) -> tuple[int, str]:
        """The offset to commit now, and its metadata."""
        if self.revoked:
            raise ValueError(f"assignment {self.number} is revoked: it has nothing to commit")
        offset, finished = self.tracker.committable()
        return offset, encode(offset, finished, self._limit)

    def stop(self) -> None:
        """Start nothing more, and forget what waits."""
        self.stopped = True
        self.shards.clear()

    def revoke(self) -> None:
        """The partition is somebody else's."""
        self.stop()
        self.revoked = True
