"""Plain functions on processes, for work that needs a processor.

A process that dies breaks the whole pool, and nobody knows which record did it. So the pool is made
anew and the records that were out run alone, one after the other: the one that kills its process
again is at fault, and fails like one whose handler raised.
"""

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

from headrace.clients.connection import Connection, default_connection, use_by_default
from headrace.clients.reader import to_record
from headrace.errors import HeadraceError, OperationFailed
from headrace.model import Record
from headrace.parallel.engine.crew import Crew, Failed, Pace, Running
from headrace.parallel.engine.desk import Desk, Unit
from headrace.parallel.handlers import Decoder, Handler, Signature, refuse_undone
from headrace.serde import Serde

CHUNK_SECONDS = 0.02  # sending a chunk there and back costs a quarter of a millisecond
CHUNKS_AHEAD = 2  # for each process: one that runs, one that waits in the pipe


@dataclass(frozen=True)
class Job:
    """What a worker process needs to know; sent to it once."""

    handler: Handler
    signature: Signature
    serde: Serde[Any]
    batch: bool


Outcome = BaseException | None


class ProcessCrew(Crew):
    """`concurrency` processes. `died` is told how many records run again, `unable` that processes
    cannot even start: that is no record's fault.

    One thread, the foreman, owns the pool: it alone makes, feeds and replaces it. The pool's
    callbacks only hand over to it, because they may run under the pool's own lock:

    1. A process dies; the pool's manager takes the pool's lock and calls back.
    2. The callback wants a lock of ours, which a thread holds that is about to submit.
    3. That thread waits for the pool's lock: neither goes on, ever.
    """

    def __init__(
        self,
        desk: Desk,
        job: Job,
        failed: Failed,
        concurrency: int,
        died: Callable[[int], None],
        unable: Callable[[HeadraceError], None],
    ) -> None:
        super().__init__(desk, lambda _unit: None, failed, concurrency)
        self._job = job
        self._died = died
        self._unable = unable
        self._pace = Pace(CHUNK_SECONDS)
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()  # for what others than the foreman look at
        self._foreman: threading.Thread | None = None
        self._woken = False
        self._closing = False
        self._out: dict[int, tuple[Sequence[Unit], float]] = {}
        self._suspects: deque[Unit] = deque()
        # --- the foreman's own ---
        self._on_trial = False  # a suspect runs, and nothing beside it
        self._numbers = 0
        self._pool: ProcessPoolExecutor | None = None
        self._ready = False  # the pool has shown that it can run something

    # --- from any thread ---

    def wake(self) -> None:
        with self._lock:
            if self._closing or self._woken:
                return
            self._woken = True
            if self._foreman is None:
                self._foreman = threading.Thread(target=self._work, name="foreman", daemon=True)
                self._foreman.start()
        self._events.put(self._dispatch)

    def withdraw(self) -> None:
        self.wake()

    def running(self) -> list[Running]:
        with self._lock:
            return [Running(unit, since) for units, since in self._out.values() for unit in units]

    def close(self) -> None:
        with self._lock:
            self._closing = True
            suspects = list(self._suspects)
            self._suspects.clear()
        with self._desk.lock:
            self._desk.give_back(suspects)
        self._events.put(self._end_pool)

    # --- the foreman ---

    def _work(self) -> None:
        while not (self._closing and self._pool is None and not self._out):
            act = self._events.get()
            try:
                act()
            except Exception as error:  # nobody else would hear of it, and records would wait
                self._unable(_cannot_go_on(self._job.signature.name, error))

    def _end_pool(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:  # a handler that still runs is not waited for any more
            process.kill()

    def _dispatch(self) -> None:
        self._woken = False
        if self._pool is None and not self._closing:
            self._make_pool()
        while not self._closing and (units := self._next()):
            self._send(units)

    def _make_pool(self) -> None:
        pool = ProcessPoolExecutor(
            self._concurrency,
            # Forking a process with threads and a Kafka client in it is not safe.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_prepare,
            # The handler's module is imported when the job is unpickled: then its clients must know
            # already which cluster is meant.
            initargs=(default_connection(), pickle.dumps(self._job)),
        )
        self._pool, self._ready = pool, False
        try:
            # A process starts when something is submitted and none is idle: so all start now.
            first, *_others = [pool.submit(_run_chunk, []) for _ in range(self._concurrency)]
        except BrokenProcessPool as error:
            self._unable(_cannot_start(self._job.signature.name, error))
        else:
            first.add_done_callback(self._handing_over(self._tried, pool))

    def _handing_over(
        self, act: Callable[..., None], *known: Any
    ) -> "Callable[[Future[Any]], None]":
        """A callback for the pool: it takes no lock."""
        return lambda future: self._events.put(partial(act, *known, future))

    def _tried(self, pool: ProcessPoolExecutor, future: "Future[Any]") -> None:
        if self._closing or pool is not self._pool:
            return
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self._unable(_cannot_start(self._job.signature.name, error))
            return
        self._ready = True
        self._dispatch()

    def _next(self) -> list[Unit]:
        """What to send now, if anything."""
        if not self._ready or self._on_trial or (self._suspects and self._out):
            return []
        with self._lock:
            if self._suspects:
                self._on_trial = True
                return [self._suspects.popleft()]
        free = self._concurrency * CHUNKS_AHEAD - len(self._out)
        if free <= 0:
            return []
        chunk = self._pace.chunk
        with self._desk.lock:
            return self._desk.take(chunk, time.monotonic(), chunk if free == 1 else 0)

    def _send(self, units: list[Unit]) -> None:
        wanted = [unit for unit in units if not unit[0].assignment.stopped]
        if len(wanted) < len(units):
            with self._desk.lock:
                self._desk.give_back([u for u in units if u[0].assignment.stopped])
        if not wanted:
            self._on_trial = False
            return
        self._numbers += 1
        number = self._numbers
        with self._lock:
            self._out[number] = (wanted, time.monotonic())
        payload = [_records(unit, self._job.batch) for unit in wanted]
        pool = self._pool
        assert pool is not None  # it is ready
        try:
            future = pool.submit(_run_chunk, payload)
        except BrokenProcessPool:
            self._on_trial = False  # it has not run: nothing is known of it
            self._recover(number, pool)
            return
        future.add_done_callback(self._handing_over(self._came_back, number, pool))

    def _came_back(
        self, number: int, pool: ProcessPoolExecutor, future: "Future[tuple[float, list[Outcome]]]"
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            self._recover(number, pool)
        else:
            seconds, outcomes = future.result()
            units = self._take_back(number)
            self._on_trial = False
            self._pace.note(len(units), seconds)
            self._report(units, outcomes)
        self._dispatch()

    def _take_back(self, number: int) -> Sequence[Unit]:
        with self._lock:
            units, _ = self._out.pop(number)
        return units

    def _report(self, units: Sequence[Unit], outcomes: Sequence[Outcome]) -> None:
        """Without a lock: a user's `on_error` may take its time, and the pump must not wait."""
        finished: list[Unit] = []
        abandoned: list[Unit] = []
        for unit, error in zip(units, outcomes, strict=True):
            good = error is None or self._failed(unit, error)
            (finished if good else abandoned).append(unit)
        with self._desk.lock:
            self._desk.done(finished, time.monotonic())
            self._desk.abandon(abandoned)

    def _recover(self, number: int, broken: ProcessPoolExecutor) -> None:
        """A process died: a new pool, and one record at a time until the culprit is found."""
        units = self._take_back(number)
        guilty, self._on_trial = self._on_trial, False
        if broken is self._pool and not self._closing:
            broken.shutdown(wait=False)
            self._make_pool()
            others = sum(len(other) for other, _ in self._out.values())
            self._died(others if guilty else others + len(units))
        if guilty and not self._closing:
            self._report(units, [_killed(units[0])])
        else:
            self._suspect(units)

    def _suspect(self, units: Sequence[Unit]) -> None:
        with self._lock:
            closing = self._closing
            if not closing:
                self._suspects.extend(units)
        if closing:
            with self._desk.lock:
                self._desk.give_back(units)


def _records(unit: Unit, batch: bool) -> list[Record]:
    tasks = unit[1] if batch else [unit]
    return [to_record(task[3]) for task in tasks]


def _cannot_start(handler: str, error: BaseException) -> OperationFailed:
    return OperationFailed(
        f"the processes for {handler} cannot start: {error}",
        hint="each imports the handler's module anew: is it importable, and is what starts the app "
        "under `if __name__ == '__main__':`?",
        handler=handler,
    )


def _cannot_go_on(handler: str, error: Exception) -> HeadraceError:
    if isinstance(error, HeadraceError):
        return error
    return OperationFailed(
        f"the processes for {handler} cannot be used: {type(error).__name__}: {error}",
        hint="run again with --debug for all of it",
        handler=handler,
    )


def _killed(unit: Unit) -> OperationFailed:
    return OperationFailed(
        "the worker process died while it handled this record alone",
        hint="did the handler run out of memory, or call os._exit?",
        partition=str(unit[0].partition),
    )


# --- in the worker process ---

_job: Job
_decode: Decoder


def _prepare(connection: Connection | None, pickled: bytes) -> None:
    global _job, _decode
    if connection is not None:
        use_by_default(connection)
    _job = pickle.loads(pickled)
    _decode = Decoder(_job.serde)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to deal with
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _run_chunk(units: list[list[Record]]) -> tuple[float, list[Outcome]]:
    started = time.perf_counter()
    outcomes = [_outcome(records) for records in units]
    return time.perf_counter() - started, outcomes


def _outcome(records: list[Record]) -> Outcome:
    try:
        values = [_decode(r.topic, r.partition, r.offset, r.value) for r in records]
        value, record = (values, records) if _job.batch else (values[0], records[0])
        wanted = (value, record) if _job.signature.wants_record else (value,)
        refuse_undone(_job.handler(*wanted))
    except BaseException as error:  # as on threads, one that exits has failed
        return _sendable(error)
    return None


def _sendable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
