"""Plain functions on threads."""

import contextlib
import threading
import time
from collections import deque

from headrace.parallel.engine.crew import Call, Crew, Failed, Pace, Running
from headrace.parallel.engine.desk import Desk, Unit
from headrace.parallel.handlers import refuse_undone

# A chunk is a millisecond's worth; what still lies in it after so long is given to others.
SECONDS_BEFORE_WITHDRAWAL = 0.02


class _Worker:
    """What one thread has in hand. `chunk` and `finished` are touched by the pump as well:
    single operations of a deque need no lock."""

    __slots__ = ("chunk", "current", "finished", "since", "thread")

    def __init__(self) -> None:
        self.chunk: deque[Unit] = deque()
        self.finished: deque[Unit] = deque()
        self.current: Unit | None = None
        self.since = 0.0
        self.thread: threading.Thread | None = None


class ThreadCrew(Crew):
    """Up to `concurrency` threads, started as they are needed."""

    def __init__(
        self, desk: Desk, call: Call, failed: Failed, concurrency: int, name: str = "handler"
    ) -> None:
        super().__init__(desk, call, failed, concurrency)
        self._name = name
        self._pace = Pace()
        self._workers: list[_Worker] = []
        self._idle = 0
        self._closing = False

    def wake(self) -> None:
        with self._desk.lock:
            self._call_in()

    def _call_in(self, *, stuck: bool = False) -> None:
        """As many workers as there is work for; under the lock.

        Handlers that take microseconds gain nothing from a second thread: they would only take
        turns with the interpreter. If the one is stuck, others come after all.
        """
        wanted = -(-self._desk.available // self._pace.chunk)
        if self._pace.fast and not stuck:
            wanted = 0 if len(self._workers) > self._idle else min(wanted, 1)
        if self._idle:
            self._desk.ready.notify(min(wanted, self._idle))
            wanted -= self._idle
        for _ in range(min(wanted, self._concurrency - len(self._workers))):
            worker = _Worker()
            worker.thread = threading.Thread(
                target=self._run, args=(worker,), name=f"headrace-{self._name}", daemon=True
            )
            self._workers.append(worker)
            worker.thread.start()

    def _run(self, worker: _Worker) -> None:
        while self._next_chunk(worker):
            started = time.monotonic()
            count = self._run_chunk(worker)
            if count:
                self._pace.note(count, time.monotonic() - started)

    def _next_chunk(self, worker: _Worker) -> bool:
        """Report what is finished and take more; False when it is time to go."""
        desk = self._desk
        with desk.lock:
            while True:
                now = time.monotonic()
                self._report(worker, now)
                if self._closing:
                    return False
                chunk = self._pace.chunk
                if units := desk.take(chunk, now, 0 if self._others_free() else chunk):
                    worker.chunk.extend(units)
                    worker.since = now
                    if self._idle and not self._pace.fast and desk.available:
                        desk.ready.notify()
                    return True
                self._idle += 1
                desk.ready.wait()
                self._idle -= 1

    def _others_free(self) -> bool:
        return self._idle > 0 or len(self._workers) < self._concurrency

    def _report(self, worker: _Worker, now: float) -> None:
        finished = worker.finished
        if finished:
            self._desk.done([finished.popleft() for _ in range(len(finished))], now)

    def _run_chunk(self, worker: _Worker) -> int:
        chunk, finished, call = worker.chunk, worker.finished, self._call
        count = 0
        while True:
            try:
                unit = chunk.popleft()
            except IndexError:  # all done, or withdrawn
                worker.current = None
                return count
            if unit[0].assignment.stopped:
                self._give_back([unit])
                continue
            worker.current = unit
            count += 1
            try:
                if (returned := call(unit)) is not None:
                    refuse_undone(returned)
            except BaseException as error:
                self._settle(worker, unit, error)
            else:
                finished.append(unit)

    def _settle(self, worker: _Worker, unit: Unit, error: BaseException) -> None:
        if self._failed(unit, error):
            worker.finished.append(unit)
        else:
            with self._desk.lock:
                self._desk.abandon([unit])

    def _give_back(self, units: list[Unit]) -> None:
        with self._desk.lock:
            self._desk.give_back(units)

    def withdraw(self) -> None:
        now = time.monotonic()
        with self._desk.lock:
            stuck = False
            for worker in self._workers:
                self._report(worker, now)
                if self._stuck(worker, now):
                    self._desk.give_back(_emptied(worker.chunk))
                    stuck = stuck or worker.current is not None
            self._call_in(stuck=stuck)

    @staticmethod
    def _stuck(worker: _Worker, now: float) -> bool:
        """Whether its chunk has waited too long, or holds what must not start any more."""
        if now - worker.since > SECONDS_BEFORE_WITHDRAWAL:
            return True
        return any(unit[0].assignment.stopped for unit in tuple(worker.chunk))

    def running(self) -> list[Running]:
        return [
            Running(current, worker.since)
            for worker in list(self._workers)
            if (current := worker.current) is not None
        ]

    def close(self) -> None:
        with self._desk.lock:
            self._closing = True
            self._desk.ready.notify_all()


def _emptied(chunk: deque[Unit]) -> list[Unit]:
    """What was in it, the last first. Its worker may be taking from the other end meanwhile."""
    units = []
    with contextlib.suppress(IndexError):
        while True:
            units.append(chunk.pop())
    return units
