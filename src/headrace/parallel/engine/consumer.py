"""One running consumer: a pump, a desk and a crew."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

from headrace.clients import Admin
from headrace.clients.connection import Connection
from headrace.clients.reader import to_record
from headrace.errors import (
    ConfigError,
    HandlerFailed,
    HeadraceError,
    RegistryError,
    SchemaNotFound,
)
from headrace.model import Position, TopicPartition
from headrace.observe.events import Event, OnEvent, RecordFailed, WorkerDied, tell
from headrace.parallel.engine.bundles import BundleDesk
from headrace.parallel.engine.crew import Crew
from headrace.parallel.engine.desk import Desk, Limits, Unit
from headrace.parallel.engine.loop import LoopCrew
from headrace.parallel.engine.processes import Job, ProcessCrew
from headrace.parallel.engine.pump import Pump
from headrace.parallel.engine.rate import RateLimit
from headrace.parallel.engine.stalls import offsets_of
from headrace.parallel.engine.status import ConsumerStatus
from headrace.parallel.engine.threads import ThreadCrew
from headrace.parallel.handlers import call_for
from headrace.parallel.options import ConsumerOptions


class RunningConsumer:
    """A consumer at work, from `start` to `stop`."""

    def __init__(
        self,
        options: ConsumerOptions,
        connection: Connection,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        on_event: OnEvent | None = None,
        on_failure: Callable[[], None] = lambda: None,
        instance: tuple[int, int] = (0, 1),
    ) -> None:
        self.options = options
        self._connection = connection
        self._on_event = on_event
        self._skipped = 0
        self._last_error: str | None = None
        self._counting = threading.Lock()
        self._desk = _make_desk(options)
        self._crew = self._make_crew(loop)
        self._pump = Pump(
            *(options, connection, self._desk, self._crew, self._tell, on_failure, instance)
        )

    def start(self) -> None:
        """Check that the topics are there, then begin."""
        admin = Admin(self._connection)
        for topic in self.options.topics:
            if not topic.startswith("^"):
                admin.topic(topic)
        self._pump.start()

    def stop(self) -> None:
        """Stop in order; again: at once. Returns immediately, `join` waits."""
        self._pump.stop()

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the end; False if it has not come."""
        return self._pump.join(seconds)

    def wait_until_joined(self, seconds: float) -> bool:
        """Wait until partitions were given, be it none; False if they were not."""
        return self._pump.joined.wait(seconds)

    def seek(self, position: Position, partitions: Sequence[TopicPartition] | None = None) -> None:
        """Go on from a position, in all assigned partitions or in these."""
        self._pump.seek(position, partitions)

    @property
    def error(self) -> BaseException | None:
        """Why it stopped, if nobody asked it to."""
        return self._pump.error

    @property
    def alive(self) -> bool:
        return self._pump.alive

    @property
    def stopping(self) -> bool:
        return self._pump.stopping

    def status(self) -> ConsumerStatus:
        """What it has done and has in hand."""
        with self._desk.lock:
            works = list(self._desk.works.values())
            taken = sum(work.taken for work in works)
            unfinished = sum(work.unfinished for work in works)
            behind = [max(0, work.end - work.done_up_to) for work in works if work.end is not None]
            paused = [work.partition for work in works if work.paused]
            finished, late = self._desk.finished, self._desk.late
        return ConsumerStatus(
            name=self.options.name,
            group=self.options.group,
            state=self._state(),
            partitions=sorted(work.partition for work in works),
            paused=sorted(paused),
            polls=self._pump.feeder.polls,
            polled=self._pump.feeder.polled,
            handled=finished,
            failed=self._skipped,
            in_flight=taken,
            waiting=max(0, unfinished - taken),
            parked=0,
            late=late,
            lag=sum(behind) if behind else None,
            last_error=self._last_error,
        )

    def _state(self) -> str:
        if self._pump.alive:
            return "stopping" if self._pump.stopping else "running"
        return "failed" if self.error is not None else "stopped"

    # --- inside ---

    def _make_crew(self, loop: asyncio.AbstractEventLoop | None) -> Crew:
        options, desk = self.options, self._desk
        if options.executor == "process":
            job = Job(options.handler, options.signature, options.value, options.batch is not None)
            return ProcessCrew(
                *(desk, job, self._failed, options.concurrency),
                *(self._worker_died, self._unable_to_run),
            )
        call = call_for(
            options.handler, options.signature, options.value, batch=options.batch is not None
        )
        if options.executor == "async":
            assert loop is not None, "async handlers need an event loop"
            return LoopCrew(desk, call, self._failed, options.concurrency, loop)
        return ThreadCrew(desk, call, self._failed, options.concurrency, options.name)

    def _tell(self, event: Event) -> None:
        tell(event, self._on_event)

    def _unable_to_run(self, error: HeadraceError) -> None:
        self._pump.fail(error)

    def _worker_died(self, records: int) -> None:
        self._tell(WorkerDied(self.options.name, records))

    def _failed(self, unit: Unit, error: BaseException) -> bool:
        """Decide about a failed unit: True if it counts as finished."""
        where = _where(unit)
        then = self._decide(unit, error)
        with self._counting:
            self._last_error = f"{where}: {_shown(error)}"
            if then == "skip":
                self._skipped += len(offsets_of(unit))
        self._tell(RecordFailed(self.options.name, where, error, then, _shown(error)))
        if then == "skip":
            return True
        failure = HandlerFailed(
            f"{self.options.name} failed on {where}: {_said(error)}",
            hint="the record is not committed: correct the handler and run again, "
            "or go on without such records with on_error='skip'",
            where=where,
        )
        failure.__cause__ = error
        self._pump.fail(failure)
        return False

    def _decide(self, unit: Unit, error: BaseException) -> str:
        choose = self.options.on_error
        if _is_no_records_fault(error):
            return "stop"
        if isinstance(choose, str):
            return choose
        try:
            then = [choose(to_record(message), error) for message in _messages(unit)]
        except BaseException as second:  # sys.exit too: it would only end a worker
            error.add_note(f"on_error itself raised {_shown(second)}")
            return "stop"
        return "skip" if all(answer == "skip" for answer in then) else "stop"


def _make_desk(options: ConsumerOptions) -> Desk:
    limits = Limits(options.buffer_records, options.buffer_bytes)
    rate = None if options.rate is None else RateLimit(options.rate, time.monotonic())
    if options.batch is None:
        return Desk(options.order, options.concurrency, limits, rate)
    return BundleDesk(
        options.order, options.concurrency, limits, rate, options.batch, time.monotonic
    )


def _is_no_records_fault(error: BaseException) -> bool:
    """A registry that is away or refuses us, a handler that cannot be run: all would be skipped."""
    if isinstance(error, SchemaNotFound):
        return False
    return isinstance(error, ConfigError | RegistryError) or (
        isinstance(error, HeadraceError) and error.retryable
    )


def _messages(unit: Unit) -> list[object]:
    return [unit[3]] if isinstance(unit[1], int) else [task[3] for task in unit[1]]


def _where(unit: Unit) -> str:
    offsets = offsets_of(unit)
    if len(offsets) == 1:
        return f"{unit[0].partition}@{offsets[0]}"
    return f"{unit[0].partition}@{offsets[0]} to @{offsets[-1]} ({len(offsets)} records)"


def _said(error: BaseException) -> str:
    return error.message if isinstance(error, HeadraceError) else _shown(error)


def _shown(error: BaseException) -> str:
    """An exception's own text, unless it has none to give."""
    try:
        return repr(error)
    except Exception:
        return type(error).__name__
