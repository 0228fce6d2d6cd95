"""Async functions on one event loop, without a task for each record."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from headrace.parallel.engine.crew import FAST_CHUNK, Call, Crew, Failed, Running
from headrace.parallel.engine.desk import Desk, Unit

SECONDS_TO_HOLD_THE_LOOP = 0.002


class LoopCrew(Crew):
    """Up to `concurrency` coroutines that share one queue, started as they are needed.

    Only the loop's thread touches what is here; `wake` and `withdraw` send word to it.
    """

    def __init__(
        self,
        desk: Desk,
        call: Call,
        failed: Failed,
        concurrency: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(desk, call, failed, concurrency)
        self._loop = loop
        self._local: deque[Unit] = deque()
        self._finished: list[Unit] = []
        self._resting: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_hand: dict[int, tuple[Unit, float]] = {}  # by worker, since when
        self._spare = concurrency // 8
        self._ahead = 0  # how many to take beyond what the workers can start at once
        self._word_sent = self._flush_planned = False
        self._round_at = 0.0  # when the loop last came round to us
        self._closing = False

    def wake(self) -> None:
        if not self._word_sent:
            self._word_sent = True
            self._send_word(self._call_in)

    def withdraw(self) -> None:
        self._send_word(self._withdraw)

    def running(self) -> list[Running]:
        return [Running(*in_hand) for in_hand in list(self._in_hand.values())]

    def close(self) -> None:
        self._closing = True
        self._send_word(self._dismiss)

    def _send_word(self, message: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(message)
        except RuntimeError:  # the loop is closed: nobody is left to hear
            self._closing = True

    # --- in the loop's thread ---

    def _call_in(self) -> None:
        self._word_sent = False
        self._exchange()
        wanted = len(self._local)
        for _ in range(min(wanted, len(self._resting))):
            self._resting.pop().set_result(None)
            wanted -= 1
        for _ in range(min(wanted, self._concurrency - len(self._tasks))):
            task = self._loop.create_task(self._work(len(self._tasks)))
            self._tasks.add(task)

    def _exchange(self) -> None:
        """Report what is finished, take more: one lock for both."""
        self._flush_planned = False
        most = self._concurrency - len(self._in_hand) + self._ahead - len(self._local)
        with self._desk.lock:
            now = time.monotonic()
            if self._finished:
                self._desk.done(self._finished, now)
                self._finished = []
            if most > 0 and not self._closing:
                self._local.extend(self._desk.take(most, now, reserved=1))

    def _flush(self) -> None:
        self._round_at = time.monotonic()
        if self._flush_planned:
            self._call_in()

    async def _work(self, number: int) -> None:
        desk, local, in_hand, call = self._desk, self._local, self._in_hand, self._call
        while not self._closing:
            if not local:
                # If no other has one in hand, handlers do not wait: then large chunks are cheaper.
                # Else few are taken ahead: they lie behind handlers that wait, but one whose turn
                # it is need not go to the desk each time.
                self._ahead = self._spare if in_hand else min(FAST_CHUNK, 2 * self._ahead + 1)
                self._exchange()
                if not local:
                    await self._rest()
                    continue
                if time.monotonic() - self._round_at > SECONDS_TO_HOLD_THE_LOOP:
                    await asyncio.sleep(0)  # handlers that never wait must not hold it
                    continue
            unit = local.popleft()
            if unit[0].assignment.stopped:
                self._give_back([unit])
                continue
            in_hand[number] = (unit, time.monotonic())
            try:
                await call(unit)
            except BaseException as error:
                del in_hand[number]
                self._settle(unit, error)
            else:
                del in_hand[number]
                if local or not in_hand or desk.crowded:
                    self._finish(unit)
                else:
                    with desk.lock:
                        local.extend(desk.swap(unit, time.monotonic()))

    def _finish(self, unit: Unit) -> None:
        self._finished.append(unit)
        if not self._flush_planned:  # once in each round of the loop
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _settle(self, unit: Unit, error: BaseException) -> None:
        if isinstance(error, GeneratorExit) or (self._closing and _cancelled(error)):
            raise error  # the loop ends; the record stays unfinished
        if self._failed(unit, error):
            self._finish(unit)
        else:
            with self._desk.lock:
                self._desk.abandon([unit])

    async def _rest(self) -> None:
        future = self._loop.create_future()
        self._resting.append(future)
        await future

    def _give_back(self, units: list[Unit]) -> None:
        with self._desk.lock:
            self._desk.give_back(units)

    def _withdraw(self) -> None:
        stopped = [unit for unit in self._local if unit[0].assignment.stopped]
        if stopped:
            kept = [unit for unit in self._local if not unit[0].assignment.stopped]
            self._local.clear()
            self._local.extend(kept)
            self._give_back(stopped)
        self._call_in()

    def _dismiss(self) -> None:
        self._exchange()
        local = list(self._local)
        self._local.clear()
        self._give_back(local)
        for future in self._resting:
            future.set_result(None)
        self._resting.clear()


def _cancelled(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError)
