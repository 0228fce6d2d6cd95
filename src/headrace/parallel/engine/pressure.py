"""Which partitions are paused because too much of them is at hand."""

import time

from headrace.clients.consumer import ConsumerClient
from headrace.parallel.engine.desk import Desk

ENOUGH_AT_HAND = 10_000
SECONDS_BEFORE_PAUSE = 0.05


class Pressure:
    """Pauses what has too much at hand and resumes what has worked it off."""

    def __init__(self, desk: Desk, client: ConsumerClient, concurrency: int) -> None:
        self._desk = desk
        self._client = client
        self._enough = max(ENOUGH_AT_HAND, 4 * concurrency)
        self._since: float | None = None

    def has_enough(self) -> bool:
        """Whether handlers have more than enough to do for a moment: then polling would only take
        the interpreter from them, and what is full is soon not full any more."""
        desk = self._desk
        with desk.lock:
            works = desk.works
            all_full = bool(works) and len(desk.overfull()) == len(works)
            enough = all_full or desk.unfinished > self._enough
        if not enough:
            self._since = None
        elif self._since is None:
            self._since = time.monotonic()
        return self._only_just()

    def _only_just(self) -> bool:
        return self._since is not None and time.monotonic() - self._since < SECONDS_BEFORE_PAUSE

    def regulate(self, *, hold_back: bool) -> None:
        """Pause and resume; with `hold_back` nothing is resumed."""
        if self._only_just():
            return
        with self._desk.lock:
            full, relieved = self._desk.overfull(), self._desk.relieved()
            for work in full:
                work.paused = True
            for work in relieved:
                work.paused = False
        if full:
            self._client.pause([work.partition for work in full])
        if relieved and not hold_back:
            self._client.resume([work.partition for work in relieved])
