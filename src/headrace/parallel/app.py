"""Consumers declared in one place, checked when they are declared, run together."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from headrace.clients.connection import Connection, resolve
from headrace.config.consumer_settings import Assignor, ConsumerProfile
from headrace.errors import BadInput, ConfigError
from headrace.model import Position
from headrace.observe.events import Event, OnEvent
from headrace.observe.signals import stopping_on_signals
from headrace.parallel.batching import Batch
from headrace.parallel.commit import OffsetStrategy
from headrace.parallel.engine.running import RunningApp
from headrace.parallel.engine.status import ConsumerStatus
from headrace.parallel.options import (
    Assignment,
    ConsumerOptions,
    Executor,
    OnError,
    RebalanceListener,
    check_options,
)
from headrace.parallel.state import Order
from headrace.serde import Serde

H = TypeVar("H", bound=Callable[..., Any])
SECONDS_TO_LOOK = 0.2


class App:
    """A program's consumers.

    >>> app = App("localhost:9092")
    >>> @app.consumer("clicks", group="scoring", order="key", concurrency=1000)
    ... async def score(event: dict) -> None:
    ...     print(event)
    >>> app.run()                                                     # doctest: +SKIP

    `connection` is an address or a `Connection`; without one it is headrace.toml, HEADRACE_*
    variables or the local cluster, looked up when the app starts. `on_event` hears of every
    `headrace.observe.events.Event`.
    """

    def __init__(
        self, connection: Connection | str | None = None, *, on_event: OnEvent | None = None
    ) -> None:
        self._connection = Connection(connection) if isinstance(connection, str) else connection
        self._listeners = [on_event] if on_event is not None else []
        self._running: RunningApp | None = None
        self._asked_to_stop = False
        self.consumers: list[ConsumerOptions] = []

    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        value: Serde[Any] | None = None,
        order: Order = "key",
        concurrency: int | None = None,
        executor: Executor | None = None,
        batch: Batch | None = None,
        offsets: OffsetStrategy | str = "gap-safe",
        start: Position | str = "earliest",
        on_error: OnError = "stop",
        rate: float | None = None,
        buffer_records: int = 50_000,
        buffer_bytes: int = 64 * 1024 * 1024,
        drain: float = 30.0,
        stall_after: float = 60.0,
        profile: ConsumerProfile = "balanced",
        assignor: Assignor = "cooperative-sticky",
        instance_id: str | None = None,
        assignment: Assignment | None = None,
        partitions: Sequence[int] | None = None,
        listener: RebalanceListener | None = None,
        settings: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> Callable[[H], H]:
        """Declare the decorated function as the handler of a topic's records.

        What it handles
            `topics`        a name, several, or a pattern that begins with ^
            `group`         the consumer group whose offsets are kept
            `value`         a serde; without one the first parameter's type hint decides: bytes,
                            str, or JSON of that type
            `start`         where a group without offsets begins: earliest, latest, none (an
                            error), an offset, a time
            `partitions`    read these partitions, instead of sharing all with the group
            `assignment`    a function (instance, instances, partitions) that chooses this
                            instance's partitions, for a fixed number of instances
        How
            `order`         key, partition or none: which records wait for each other
            `concurrency`   how many handlers run at once, 1 to 10,000
            `executor`      thread, async or process; by default as the function is defined
            `batch`         give the handler lists: `Batch(size=100, wait=0.05, same_key=True)`
            `rate`          at most so many records a second
            `on_error`      stop, skip, or a function (record, error) that returns either
        Offsets and the group
            `offsets`       gap-safe, per-record, per-batch, auto, or one of the classes
            `assignor`      cooperative-sticky, range, roundrobin, or server (Kafka's new protocol)
            `instance_id`   a static member: a restart within the session time moves nothing
            `listener`      is told when partitions come and go
            `drain`         seconds that running handlers get when partitions go or the app stops
            `stall_after`   a partition that stands still for so long is reported
        Fetching
            `profile`       balanced, throughput, latency, small
            `buffer_records`, `buffer_bytes`   what is held at most, shared among partitions
            `settings`      any of librdkafka's, over the profile's
        """

        def declare(handler: H) -> H:
            options = check_options(
                handler,
                topics,
                group=group,
                name=name,
                value=value,
                order=order,
                concurrency=concurrency,
                executor=executor,
                batch=batch,
                offsets=offsets,
                start=start,
                on_error=on_error,
                rate=rate,
                buffer_records=buffer_records,
                buffer_bytes=buffer_bytes,
                drain=drain,
                stall_after=stall_after,
                profile=profile,
                assignor=assignor,
                instance_id=instance_id,
                assignment=assignment,
                partitions=partitions,
                listener=listener,
                settings=settings,
            )
            if options.name in {known.name for known in self.consumers}:
                raise ConfigError(
                    f"there are two consumers named {options.name}",
                    hint="give one of them another name=...",
                )
            self.consumers.append(options)
            return handler

        return declare

    def run(self, *, instance: int = 0, instances: int = 1) -> None:
        """Run until `stop`, SIGINT, SIGTERM or a failure, which is raised.

        The first signal drains and commits, the second one only commits. `instance` counts the
        running copies of a program, for `assignment=`.
        """
        if self._running is not None and not self._running.alive:
            self._running = None  # so that `stop` means the one to come
        with stopping_on_signals(self.stop):
            running = self._start(instance=(instance, instances))
            if self._asked_to_stop:  # while it was starting
                running.ensure_stopping()
            try:
                while not running.join(SECONDS_TO_LOOK):
                    pass
            finally:
                running.ensure_stopping()
                running.join()
                self._asked_to_stop = False
        running.raise_error()

    def start(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        instance: int = 0,
        instances: int = 1,
    ) -> RunningApp:
        """Start in the background; the caller stops it. Async handlers run on `loop`, if given."""
        self._asked_to_stop = False
        return self._start(loop, (instance, instances))

    def _start(
        self, loop: asyncio.AbstractEventLoop | None = None, instance: tuple[int, int] = (0, 1)
    ) -> RunningApp:
        if not self.consumers:
            raise BadInput("the app has no consumers", hint="declare one with @app.consumer(...)")
        if self._running is not None and self._running.alive:
            raise BadInput("the app is running already", hint="stop it first")
        self._running = RunningApp(
            self.consumers,
            self._connection or resolve(),
            loop=loop,
            on_event=self._tell,
            instance=instance,
        )
        self._running.start()
        return self._running

    @contextlib.contextmanager
    def running(self, **options: Any) -> Iterator[RunningApp]:
        """Run in the background for the length of a `with` block; a failure is raised at its end.

        >>> with app.running() as running:                            # doctest: +SKIP
        ...     print(running.status()[0].handled)
        """
        running = self.start(**options)
        try:
            yield running
        finally:
            running.ensure_stopping()
            running.join()
        running.raise_error()

    @property
    def has_connection(self) -> bool:
        """Whether the app was told which cluster is meant."""
        return self._connection is not None

    def listen(self, on_event: OnEvent) -> None:
        """Let one more function hear of events."""
        self._listeners.append(on_event)

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)

    def status(self) -> list[ConsumerStatus]:
        """Each consumer at this moment; nothing before the first start."""
        return [] if self._running is None else self._running.status()

    async def serve(self) -> None:
        """Run on the current event loop, beside whatever else it does, until `stop`."""
        running = self.start(loop=asyncio.get_running_loop())
        try:
            while running.alive:
                await asyncio.sleep(SECONDS_TO_LOOK)
        finally:
            running.ensure_stopping()
            await asyncio.to_thread(running.join)
        running.raise_error()

    def stop(self) -> None:
        """Stop in order, from any thread; asked again, without waiting for handlers.

        Asked before `run`, that ends as soon as it has begun.
        """
        if self._running is None:
            self._asked_to_stop = True
        if self._running is not None:  # it may have begun just now
            self._running.stop()
