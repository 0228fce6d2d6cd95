"""Carries out an offset strategy."""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence

from headrace.clients.consumer import ConsumerClient, OffsetCommit
from headrace.errors import HeadraceError
from headrace.model import Deadline, TopicPartition
from headrace.observe.events import CommitFailed, Event
from headrace.parallel.commit import Auto, GapSafe, OffsetStrategy, PerBatch
from headrace.parallel.engine.desk import Committable, Desk, Work

SECONDS_FOR_LAST = 10.0
SECONDS_BETWEEN_TRIES = 0.2
SECONDS_BETWEEN_PINS = 1.0


class Committer:
    """Commits for one consumer, in the pump's thread alone: an older commit can never overtake the
    last one before a hand-over."""

    def __init__(
        self,
        client: ConsumerClient,
        desk: Desk,
        strategy: OffsetStrategy,
        consumer: str,
        tell: Callable[[Event], None],
    ) -> None:
        self._client = client
        self._desk = desk
        self._strategy = strategy
        self._consumer = consumer
        self._tell = tell
        self._next = time.monotonic()
        # What was sent and not answered. Answers come in order; of a partition that went and came
        # back meanwhile, the first ones are for its earlier assignment.
        self._flying: defaultdict[TopicPartition, deque[Committable]] = defaultdict(deque)

    # --- in the background ---

    def tick(self, now: float) -> None:
        """Commit if the strategy's interval has passed."""
        strategy = self._strategy
        if now < self._next:
            return
        if isinstance(strategy, GapSafe | Auto):
            self._next = now + strategy.interval
            self._send_off(handed_out=isinstance(strategy, Auto))
            return
        self._next = now + SECONDS_BETWEEN_PINS
        with self._desk.lock:
            behind = any(_is_behind(work) for work in self._desk.works.values())
        if behind:
            self.pin()

    def pin(self) -> None:
        """Commit where new partitions begin, so that a crash before the first commit begins there
        again: the end of a topic is another one then."""
        self._send_off()

    def batch_finished(self) -> bool:
        """All that was handed in is finished (`PerBatch`); True if the next batch may start."""
        assert isinstance(self._strategy, PerBatch)
        if self._strategy.sync:
            return self.last(list(self._desk.works.values()))
        if any(self._flying.values()):
            return False  # one batch may run beyond what is committed, not more
        self._send_off()
        return True

    def records_finished(self) -> bool:
        """Commit what has finished meanwhile, then let the next of its shards go (`PerRecord`)."""
        desk = self._desk
        with desk.lock:
            units, desk.unreleased = desk.unreleased or [], []
        if not units:
            return False
        committed = self._commit_records(list(dict.fromkeys(unit[0] for unit in units)))
        with desk.lock:
            if committed:
                desk.release(units)
            else:  # tried again before anything else
                desk.unreleased = units + desk.unreleased
        return committed

    def _commit_records(self, works: list[Work]) -> bool:
        error = self._try(works)
        if error is not None and error.facts.get("code") in _PASSING:
            return False  # heard of by the next poll, or tried again after it
        return error is None or self.last(works)

    def _send_off(self, *, handed_out: bool = False) -> None:
        with self._desk.lock:
            found = self._desk.handed_out() if handed_out else self._changed()
            for work, offset, metadata in found:
                work.sent = (offset, metadata)
        if not found:
            return
        try:
            self._client.commit(self._commits(found), wait=False)
        except HeadraceError as error:
            self._settle(found, error)
        else:
            for commit in found:
                self._flying[commit.work.partition].append(commit)

    def _changed(self) -> list[Committable]:
        return self._desk.committable(self._desk.works.values(), confirmed=False)

    def answered(self, partitions: Sequence[TopicPartition], error: HeadraceError | None) -> None:
        """The broker has answered a commit that nobody waited for."""
        flying = [self._flying[partition] for partition in partitions]
        self._settle([commits.popleft() for commits in flying if commits], error)

    def _settle(self, answered: Sequence[Committable], error: HeadraceError | None) -> None:
        with self._desk.lock:
            for work, offset, metadata in answered:
                if error is not None:  # the next commit covers it
                    work.sent = work.confirmed = None
                elif work.sent == (offset, metadata):
                    work.confirmed = work.sent
        if error is not None and error.facts.get("code") not in _PASSING:
            names = tuple(commit.work.partition for commit in answered)
            self._tell(CommitFailed(self._consumer, names, error.message))
        if isinstance(self._strategy, PerBatch) and self._strategy.on_commit is not None:
            self._strategy.on_commit({c.work.partition: c.offset for c in answered}, error)

    # --- waiting for the answer ---

    def last(
        self,
        works: Iterable[Work],
        serve: Callable[[], None] | None = None,
        seconds: float = SECONDS_FOR_LAST,
    ) -> bool:
        """Commit what is finished of these, and wait; tried again until the deadline. False if it
        is not committed, and may be yet.

        `serve` polls between the tries, where that is possible: a member whose group has just
        moved on must hear of it before it can commit again.
        """
        works = list(works)
        hopeless = _TOO_LATE if serve is not None else _TOO_LATE | _PASSING
        deadline = Deadline(seconds)
        for _ in deadline.polls(SECONDS_BETWEEN_TRIES):
            error = self._try(works)
            if error is None:
                return True
            if deadline.expired or error.facts.get("code") in hopeless:
                names = tuple(work.partition for work in works)
                self._tell(CommitFailed(self._consumer, names, error.message))
                return error.facts.get("code") in _TOO_LATE
            if serve is not None:
                serve()
        return False

    def _try(self, works: Sequence[Work]) -> HeadraceError | None:
        with self._desk.lock:
            found = self._desk.committable(works, confirmed=True)
        if not found:
            return None
        try:
            self._client.commit(self._commits(found), wait=True)
        except HeadraceError as error:
            return error
        with self._desk.lock:
            for work, offset, metadata in found:
                work.sent = work.confirmed = (offset, metadata)
        return None

    def _commits(self, found: Iterable[Committable]) -> list[OffsetCommit]:
        remembers = self._strategy.remembers
        return [
            OffsetCommit(work.partition, offset, metadata if remembers else "")
            for work, offset, metadata in found
        ]


def _is_behind(work: Work) -> bool:
    """Whether its beginning is not committed, or its end beyond the last record: nothing that
    finishes would bring that about."""
    return work.sent is None or (not work.unfinished and work.sent[0] < work.position)


# The group has moved on to another generation, and this member is about to hear of it.
_PASSING = frozenset({"ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH"})
# The group has gone on without this member.
_TOO_LATE = frozenset({"UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"})
