"""The consumers of an app while they run."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from headrace.clients.connection import Connection
from headrace.errors import BadInput, KafkaFailure
from headrace.model import Deadline, Position, TopicPartition, parse_position
from headrace.observe.events import OnEvent
from headrace.parallel.engine.consumer import RunningConsumer
from headrace.parallel.engine.status import ConsumerStatus
from headrace.parallel.options import ConsumerOptions

SECONDS_TO_JOIN = 60.0


class RunningApp:
    """Consumers at work. The failure of one stops all of them."""

    def __init__(
        self,
        declared: Sequence[ConsumerOptions],
        connection: Connection,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        on_event: OnEvent | None = None,
        instance: tuple[int, int] = (0, 1),
    ) -> None:
        self.consumers: list[RunningConsumer] = []
        self._own_loop: _LoopThread | None = None
        if loop is None and any(options.executor == "async" for options in declared):
            self._own_loop = _LoopThread()
            loop = self._own_loop.loop
        self.consumers = [
            RunningConsumer(
                *(options, connection),
                loop=loop,
                on_event=on_event,
                on_failure=self.ensure_stopping,
                instance=instance,
            )
            for options in declared
        ]

    def start(self) -> None:
        if self._own_loop is not None:
            self._own_loop.start()
        started: list[RunningConsumer] = []
        try:
            for consumer in self.consumers:
                consumer.start()
                started.append(consumer)
        except BaseException:
            for consumer in started:
                consumer.stop()
            for consumer in started:
                consumer.join()
            self._end_loop()
            raise

    def stop(self) -> None:
        """Drain, commit, leave; asked again, without waiting for handlers. Returns at once."""
        for consumer in self.consumers:
            consumer.stop()

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the end of all; False if it has not come."""
        deadline = Deadline(seconds) if seconds is not None else None
        while True:
            alive = [consumer for consumer in self.consumers if consumer.alive]
            if not alive:
                self._end_loop()
                return True
            if deadline is not None and deadline.expired:
                return False
            alive[0].join(0.1 if deadline is None else deadline.remaining(0.1))

    def ensure_stopping(self) -> None:
        """Stop what has not been asked to; those that have are not hurried."""
        for consumer in self.consumers:
            if not consumer.stopping:
                consumer.stop()

    @property
    def alive(self) -> bool:
        return any(consumer.alive for consumer in self.consumers)

    def status(self) -> list[ConsumerStatus]:
        """Each consumer at this moment."""
        return [consumer.status() for consumer in self.consumers]

    def wait_until_joined(self, seconds: float = SECONDS_TO_JOIN) -> None:
        """Wait until every consumer was given its partitions, be it none."""
        deadline = Deadline(seconds)
        for consumer in self.consumers:
            while not consumer.wait_until_joined(deadline.remaining(0.1)):
                if consumer.error is not None:
                    raise consumer.error
                if deadline.expired:
                    raise KafkaFailure(
                        f"group {consumer.options.group} gave no partitions within {seconds:.0f} s",
                        hint=f"look at it with `headrace group describe {consumer.options.group}`",
                    )

    def seek(
        self,
        position: Position | str,
        partitions: Sequence[TopicPartition] | None = None,
        *,
        consumer: str | None = None,
    ) -> None:
        """Go on from a position: replay what was handled, or skip what was not.

        Running handlers end first. Of the only consumer, or of the one named.
        """
        where = parse_position(position) if isinstance(position, str) else position
        self._named(consumer).seek(where, partitions)

    def _named(self, name: str | None) -> RunningConsumer:
        found = [c for c in self.consumers if name in (None, c.options.name)]
        if len(found) != 1:
            names = ", ".join(consumer.options.name for consumer in self.consumers)
            raise BadInput(f"which consumer is meant by {name!r}?", hint=f"there are {names}")
        return found[0]

    def raise_error(self) -> None:
        """Raise what stopped a consumer, if something did."""
        for consumer in self.consumers:
            if consumer.error is not None:
                raise consumer.error

    def _end_loop(self) -> None:
        if self._own_loop is not None:
            self._own_loop.end()


class _LoopThread:
    """An event loop on a thread; uvloop's where it is installed."""

    def __init__(self) -> None:
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="headrace-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(_rest(self.loop))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def end(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(10)


async def _rest(loop: asyncio.AbstractEventLoop) -> None:
    others = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
    await asyncio.gather(*others, return_exceptions=True)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return asyncio.new_event_loop()
    loop: Any = uvloop.new_event_loop()
    return loop  # type: ignore[no-any-return]
