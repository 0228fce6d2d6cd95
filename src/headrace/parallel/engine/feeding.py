"""From the client to the desk: as it comes, record by record, or batch by batch."""

import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

from headrace.clients.consumer import ConsumerClient
from headrace.model import TopicPartition
from headrace.parallel.commit import OffsetStrategy, PerBatch, PerRecord
from headrace.parallel.engine.committing import Committer
from headrace.parallel.engine.crew import Crew
from headrace.parallel.engine.desk import Desk, Limits

POLL_RECORDS = 5_000
POLL_AT_LEAST = 100
SECONDS_FOR_RECORDS = 0.02
SECONDS_FOR_ANSWER = 0.0005
SECONDS_BETWEEN_POLLS = 0.1


class Feeder(ABC):
    """Polls and hands in, as an offset strategy wants it; in the pump's thread."""

    def __init__(
        self, client: ConsumerClient, desk: Desk, crew: Crew, committer: Committer, room: Limits
    ) -> None:
        self._client = client
        self._desk = desk
        self._crew = crew
        self._committer = committer
        self._room = room
        self.polls = self.polled = 0  # how often records came, and how many
        self._forgotten: set[TopicPartition] = set()  # during a poll
        self._ends: dict[TopicPartition, int] = {}
        self.left_out: set[TopicPartition] = set()  # ours, and to be read again from their position

    @abstractmethod
    def turn(self, wait: float) -> None:
        """Poll, for up to so many seconds, and hand in."""

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """These were taken away, or sought elsewhere: what is of them is not wanted any more."""
        self._forgotten.update(partitions)
        for partition in partitions:
            self._ends.pop(partition, None)

    def ends(self) -> dict[TopicPartition, int]:
        """Where partitions ended when all of them was handed in, since the last call."""
        ends, self._ends = self._ends, {}
        return ends

    def look_again(self) -> None:  # noqa: B027
        """Partitions were added, and are not paused."""

    @property
    def holds_back(self) -> bool:
        """Whether all partitions are paused, whatever each of them has at hand."""
        return False

    def _poll(self, seconds: float) -> list[Any]:
        """No more than there is room for: a poll can bring thousands of one partition."""
        with self._desk.lock:
            free = self._room.records - self._desk.unfinished
        most = min(free, POLL_RECORDS, self._room.records // 10)
        return self._consume(max(POLL_AT_LEAST, most), seconds)

    def _consume(self, most: int, seconds: float) -> list[Any]:
        """A poll may take partitions away, and give them back: of what it brought of those, nobody
        knows to which time it belongs."""
        self._forgotten.clear()
        messages, ends = self._client.without_ends(self._client.poll(most, seconds))
        if self._forgotten:
            strange = {_place(message) for message in messages} & self._forgotten
            messages = [message for message in messages if _place(message) not in strange]
            self.left_out |= strange & self._desk.works.keys()
            ends = {place: end for place, end in ends.items() if place not in self._forgotten}
        self._ends |= ends
        return messages

    def _hand_in(self, messages: list[Any]) -> None:
        if not messages:
            return
        self.polls += 1
        self.polled += len(messages)
        runs = list(self._client.runs(messages))
        with self._desk.lock:
            for run in runs:
                self._desk.add(*run)
        self._crew.wake()
        self._client.tell_troubles(messages)  # last: it may begin a partition anew


class StreamFeeder(Feeder):
    """As it comes."""

    def turn(self, wait: float) -> None:
        self._hand_in(self._poll(wait))


class RecordFeeder(Feeder):
    """While handlers run, it waits for them instead of the broker, and commits as they finish."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._desk.unreleased = []

    def turn(self, wait: float) -> None:
        desk = self._desk
        with desk.lock:
            busy = bool(desk.unfinished or desk.unreleased)
            if busy:
                desk.wait_for(lambda: bool(desk.unreleased), min(wait, SECONDS_FOR_RECORDS))
        if self._committer.records_finished():
            self._crew.wake()
        self._hand_in(self._poll(0.0 if busy else wait))


class BatchFeeder(Feeder):
    """A batch is handed in when the one before is finished and committed, or on its way."""

    def __init__(self, strategy: PerBatch, *parts: Any) -> None:
        super().__init__(*parts)
        self._size = strategy.size
        self._waiting: list[Any] = []  # polled, and not handed in
        self._paused = False
        self._polled_at = 0.0

    @property
    def holds_back(self) -> bool:
        return self._paused

    def look_again(self) -> None:
        self._paused = False

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        super().forget(partitions)
        gone = set(partitions)
        self._waiting = [message for message in self._waiting if _place(message) not in gone]

    def ends(self) -> dict[TopicPartition, int]:
        return {} if self._waiting else super().ends()

    def turn(self, wait: float) -> None:
        desk = self._desk
        with desk.lock:
            idle = desk.wait_for(lambda: not desk.unfinished, wait if self._waiting else 0)
        started = idle and self._committer.batch_finished()
        if started:
            batch, self._waiting = self._waiting[: self._size], self._waiting[self._size :]
            self._hand_in(batch)
        self._fill(wait, unanswered=idle and not started)

    def _fill(self, wait: float, *, unanswered: bool) -> None:
        """A batch waits while another one runs. Beyond that a poll only serves the group, and
        brings the answer to a commit; what comes all the same leads to a pause in the end."""
        free = 2 * self._size - len(self._waiting)
        if sum(map(len, self._waiting)) >= self._room.bytes:
            free = -self._size
        if (free <= -self._size) != self._paused:
            self._turn_the_tap()
        if unanswered:
            time.sleep(SECONDS_FOR_ANSWER)
        now = time.monotonic()
        if free > 0 or unanswered or now >= self._polled_at + SECONDS_BETWEEN_POLLS:
            self._polled_at = now
            # Not `+=`: a poll may take partitions away, and `forget` then replaces the list.
            polled = self._consume(max(free, 1), 0.0 if self._waiting else wait)
            self._waiting.extend(polled)

    def _turn_the_tap(self) -> None:
        self._paused = not self._paused
        if self._paused:
            self._client.pause(list(self._desk.works))
        else:
            works = self._desk.works.items()
            self._client.resume([partition for partition, work in works if not work.paused])


def _place(message: Any) -> TopicPartition:
    return TopicPartition(message.topic(), message.partition())


def make_feeder(strategy: OffsetStrategy, *parts: Any) -> Feeder:
    """The feeder that a strategy needs."""
    if isinstance(strategy, PerBatch):
        return BatchFeeder(strategy, *parts)
    return RecordFeeder(*parts) if isinstance(strategy, PerRecord) else StreamFeeder(*parts)
