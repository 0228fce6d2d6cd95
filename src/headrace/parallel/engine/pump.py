"""The thread that owns the Kafka client: it polls, hands in, commits, pauses, and is a good member.

It never runs a handler, so however long one takes, the group hears from this consumer.
"""

import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from headrace.clients import Admin
from headrace.clients.connection import Connection
from headrace.clients.consumer import ConsumerClient, Trouble
from headrace.errors import BadInput, NoPosition
from headrace.model import Deadline, Position, TopicPartition
from headrace.observe.events import (
    Assigned,
    ClientTrouble,
    Event,
    PositionGone,
    Revoked,
    Stalled,
)
from headrace.parallel.engine.committing import Committer
from headrace.parallel.engine.crew import Crew
from headrace.parallel.engine.desk import Desk, Limits, Work
from headrace.parallel.engine.feeding import make_feeder
from headrace.parallel.engine.positions import Begin, Positions
from headrace.parallel.engine.pressure import Pressure
from headrace.parallel.engine.stalls import find_stalls
from headrace.parallel.options import ConsumerOptions

TICK_SECONDS = 0.1
SHORTEST_WAIT = 0.005
SECONDS_BETWEEN_TROUBLES = 10.0


class Pump:
    """Runs in a thread of its own from `start` to the end of the consumer."""

    def __init__(
        self,
        options: ConsumerOptions,
        connection: Connection,
        desk: Desk,
        crew: Crew,
        tell: Callable[[Event], None],
        on_failure: Callable[[], None],
        instance: tuple[int, int] = (0, 1),
    ) -> None:
        self._options = options
        self._connection = connection
        self._desk = desk
        self._crew = crew
        self._tell = tell
        self._on_failure = on_failure
        self._instance = instance
        self._name = options.name
        self._stop: bool = False
        self._hurry: bool = False
        self.client = ConsumerClient(
            connection,
            _own_settings(options, instance),
            on_committed=lambda partitions, error: self._committer.answered(partitions, error),
            on_trouble=self._on_trouble,
        )
        self._committer = Committer(self.client, desk, options.offsets, self._name, tell)
        self._positions = Positions(
            *(self.client, options.start, self._name, tell, lambda: self._stop),
            remembers=options.offsets.remembers,
        )
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._rebalanced = False
        self._pressure = Pressure(desk, self.client, options.concurrency)
        self.feeder = make_feeder(
            *(options.offsets, self.client, desk, crew, self._committer),
            Limits(options.buffer_records, options.buffer_bytes),
        )
        self._next_tick = 0.0
        self._told_stalls: dict[TopicPartition, float] = {}
        self._trouble_told: dict[str, float] = {}
        self.joined = threading.Event()  # partitions were given, be it none
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"headrace-{self._name}")

    # --- from any thread ---

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Begin to stop. Asked again, it does not wait for handlers any more.

        No lock is taken: a signal's handler may call this in the middle of anything.
        """
        if self._stop:
            self._hurry = True
        self._stop = True

    def fail(self, error: BaseException) -> None:
        """Stop because of this; the first one counts."""
        if self.error is None:
            self.error = error
        self._stop = True
        self._on_failure()

    def join(self, seconds: float | None = None) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def stopping(self) -> bool:
        return self._stop

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def seek(self, position: Position, partitions: Sequence[TopicPartition] | None) -> None:
        """Go on from there; returns when it is done."""
        done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

        def command() -> None:
            try:
                self._seek(position, partitions)
            except BaseException as error:
                done.put(error)
            else:
                done.put(None)

        self._commands.put(command)
        while self.alive:
            try:
                error = done.get(timeout=TICK_SECONDS)
            except queue.Empty:
                continue
            if error is not None:
                raise error
            return
        raise BadInput(f"consumer {self._name} is not running", hint="start it before it seeks")

    # --- the thread ---

    def _run(self) -> None:
        try:
            self._join_group()
            while not self._stop:
                self._turn()
            self._wind_down()
        except BaseException as error:
            self.fail(error)
            self._crew.close()
        finally:
            self._leave()

    def _join_group(self) -> None:
        if self._options.partitions is None and self._options.assignment is None:
            self.client.subscribe(
                self._options.topics, self._on_assigned, self._on_revoked, self._on_lost
            )
            return
        self.client.assign(self._on_assigned(self._chosen_partitions()))

    def _chosen_partitions(self) -> list[TopicPartition]:
        admin = Admin(self._connection)
        every = [
            TopicPartition(topic, partition.id)
            for topic in self._options.topics
            for partition in admin.topic(topic).partitions
        ]
        if self._options.assignment is not None:
            wanted = list(self._options.assignment(*self._instance, every))
        else:
            wanted = list(self._options.partitions or ())
        if unknown := [partition for partition in wanted if partition not in every]:
            raise BadInput(
                f"consumer {self._name} is to read {', '.join(map(str, unknown))}, "
                "and there is no such partition",
                hint=f"there are {', '.join(map(str, every))}",
            )
        return wanted

    def _turn(self) -> None:
        self._obey()
        if self._rebalanced:
            self._set_going()
        wait = self._look()
        if self._pressure.has_enough():
            time.sleep(SHORTEST_WAIT)
        else:
            self.feeder.turn(wait)
            if self.feeder.left_out:
                self._read_again()
        self._pressure.regulate(hold_back=self.feeder.holds_back)
        now = time.monotonic()
        self._committer.tick(now)
        if now >= self._next_tick:
            self._next_tick = now + TICK_SECONDS
            self._tick(now)

    def _set_going(self) -> None:
        """After a rebalance, whose callbacks cannot do this."""
        self._rebalanced = False
        # librdkafka remembers a pause beyond the end of an assignment.
        flowing = [partition for partition, work in self._desk.works.items() if not work.paused]
        if flowing and not self.feeder.holds_back:
            self.client.resume(flowing)

    def _obey(self) -> None:
        while not self._commands.empty():
            self._commands.get()()

    def _look(self) -> float:
        """Wake the crew if something has become ready by itself; returns how long to wait for
        records before the next look."""
        now = time.monotonic()
        with self._desk.lock:
            due = self._desk.ripen(now)
            paused = any(work.paused for work in self._desk.works.values())
            ready = self._desk.available
        if ready:
            self._crew.wake()
        if paused:
            return SHORTEST_WAIT  # to resume in time
        return TICK_SECONDS if due is None else min(TICK_SECONDS, max(SHORTEST_WAIT, due - now))

    # --- a few times a second ---

    def _tick(self, now: float) -> None:
        if not threading.main_thread().is_alive():
            self._stop = True  # the program has ended: so do we, in order
        self._crew.withdraw()
        running = self._crew.running()
        ends = {partition: self.client.end(partition) for partition in self._desk.works}
        with self._desk.lock:
            for partition, offset in self.feeder.ends().items():
                self._desk.reach(partition, offset)
            for partition, work in self._desk.works.items():
                work.end = ends[partition]
            stalls = find_stalls(
                self._desk,
                running,
                self._options.stall_after,
                now,
                self._options.signature.name,
            )
        for stall in stalls:  # again each time the wait has doubled
            if stall.seconds >= self._told_stalls.get(stall.partition, 0.0):
                self._told_stalls[stall.partition] = 2 * stall.seconds
                self._tell(Stalled(self._name, *stall))
        standing = {stall.partition for stall in stalls}
        self._told_stalls = {p: s for p, s in self._told_stalls.items() if p in standing}

    def _on_trouble(self, trouble: Trouble) -> None:
        if trouble.position_gone and trouble.partition is not None:
            self._go_on_after_gap(trouble.partition, trouble.offset)
        elif trouble.fatal:
            self.fail(trouble.error)
        else:
            self._tell_trouble(trouble)

    def _tell_trouble(self, trouble: Trouble) -> None:
        """A broker that is away is heard of by every connection, again and again."""
        kind, now = str(trouble.error.facts.get("code")), time.monotonic()
        if now >= self._trouble_told.get(kind, now):
            self._trouble_told[kind] = now + SECONDS_BETWEEN_TROUBLES
            self._tell(ClientTrouble(self._name, trouble.error.message))

    def _go_on_after_gap(self, partition: TopicPartition, wanted: int) -> None:
        """The offset to go on from is not in the log any more."""
        with self._desk.lock:
            work = self._desk.works.get(partition)
            wanted = work.position if work is not None else wanted
        if work is None:
            return
        if self._options.start is None:
            self.fail(
                NoPosition(
                    f"{partition} has no offset {wanted} any more, and start='none' "
                    f"lets {self._name} choose no other",
                    hint="set the group with `headrace group reset`",
                    partition=str(partition),
                    offset=wanted,
                )
            )
            return
        offset = self._positions.start([partition])[partition]
        if offset < wanted:  # another topic of the same name: what is at hand is of the old one
            with self._desk.lock:
                self._desk.revoke([partition])
            self._assign({partition: Begin(offset)})
        self._restart({partition: offset})
        self._tell(PositionGone(self._name, partition, wanted, offset))

    # --- partitions come and go ---

    def _on_assigned(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        begins = self._positions.begin(partitions)
        self._assign(begins)
        if any(begin.committed is None for begin in begins.values()):
            self._committer.pin()
        self.joined.set()
        if partitions:
            self._tell(Assigned(self._name, tuple(partitions)))
            if self._options.listener.assigned is not None:
                self._options.listener.assigned(partitions)
        return {partition: begin.offset for partition, begin in begins.items()}

    def _assign(self, begins: dict[TopicPartition, Begin]) -> None:
        now = time.monotonic()
        self._rebalanced = True
        self.feeder.look_again()
        with self._desk.lock:
            for partition, (offset, finished, committed) in begins.items():
                self._desk.assign(partition, offset, finished, now, committed)

    def _on_revoked(self, partitions: list[TopicPartition]) -> None:
        self._finish(partitions, self._options.drain)
        self._let_go(partitions, lost=False)

    def _on_lost(self, partitions: list[TopicPartition]) -> None:
        self._let_go(partitions, lost=True)

    def _finish(self, partitions: Sequence[TopicPartition], seconds: float) -> None:
        """Stop these partitions, wait for what runs, commit."""
        with self._desk.lock:
            self._desk.stop(partitions)
            works = [self._desk.works[p] for p in partitions if p in self._desk.works]
        self._crew.withdraw()
        self._wait_for_handlers(works, Deadline(seconds))
        self._committer.last(works)

    def _wait_for_handlers(self, works: Sequence[Work], deadline: Deadline) -> None:
        def idle() -> bool:
            return not any(work.taken for work in works)

        with self._desk.lock:
            while not (idle() or deadline.expired or self._hurry):
                self._desk.wait_for(idle, deadline.remaining(TICK_SECONDS))

    def _let_go(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        self._rebalanced = True
        with self._desk.lock:
            works = self._desk.revoke(partitions)
        self.feeder.forget(partitions)
        if not works:
            return
        unfinished = sum(work.unfinished for work in works)
        names = [work.partition for work in works]
        self._tell(Revoked(self._name, tuple(names), unfinished, lost))
        listener = self._options.listener
        call = listener.lost if lost else listener.revoked
        if call is not None:
            call(names)

    # --- seeking ---

    def _seek(self, position: Position, partitions: Sequence[TopicPartition] | None) -> None:
        with self._desk.lock:
            ours = list(self._desk.works)
        wanted = ours if partitions is None else list(partitions)
        if strange := [p for p in wanted if p not in ours]:
            raise BadInput(
                f"consumer {self._name} does not have {', '.join(map(str, strange))}",
                hint=f"it has {', '.join(map(str, ours)) or 'no partitions'}",
            )
        offsets = self._positions.resolve(wanted, position) if wanted else {}
        self._finish(wanted, self._options.drain)
        with self._desk.lock:
            self._desk.revoke(wanted)
        self._assign({partition: Begin(offset) for partition, offset in offsets.items()})
        self._restart(offsets)
        self._committer.pin()

    def _restart(self, offsets: dict[TopicPartition, int]) -> None:
        with self._desk.lock:
            others = {p: work.position for p, work in self._desk.works.items()}
        self.feeder.forget(self.client.restart(offsets, others))

    def _read_again(self) -> None:
        """What came of these while they came and went was thrown away."""
        partitions, self.feeder.left_out = self.feeder.left_out, set()
        with self._desk.lock:
            works = [self._desk.works[p] for p in partitions if p in self._desk.works]
        self._restart({work.partition: work.position for work in works})

    # --- the end ---

    def _wind_down(self) -> None:
        """Start nothing more, give handlers their time while the group hears from us, commit."""
        deadline = Deadline(self._options.drain)
        with self._desk.lock:
            every = list(self._desk.works)
            self._desk.stop(every)
        self.client.pause(every)
        self._crew.withdraw()
        while not deadline.expired and not self._hurry:
            with self._desk.lock:
                works = list(self._desk.works.values())
            if not any(work.taken for work in works):
                break
            self._wait_for_handlers(works, Deadline(deadline.remaining(TICK_SECONDS)))
            self._serve()
        self._crew.close()
        with self._desk.lock:
            works = list(self._desk.works.values())
        self._committer.last(works, self._serve)
        self._let_go([work.partition for work in works], lost=False)

    def _serve(self) -> None:
        """Let the group hear from us; all is stopped and paused, so no record comes."""
        self.client.poll(1, 0)

    def _leave(self) -> None:
        try:
            self.client.close()
        except Exception as error:
            self.fail(error)


def _own_settings(options: ConsumerOptions, instance: tuple[int, int]) -> dict[str, Any]:
    """The consumer's settings, with names that tell this instance from the others."""
    settings = dict(options.settings)
    number, instances = instance
    suffix = f"-{number}" if instances > 1 else ""
    settings.setdefault("client.id", re.sub(r"[^A-Za-z0-9._-]+", "-", options.name) + suffix)
    if "group.instance.id" in settings:
        settings["group.instance.id"] += suffix
    return settings
