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
from headrace.parallel.commit import PerBatch, PerRecord
from headrace.parallel.engine.committing import Committer
from headrace.parallel.engine.crew import Crew
from headrace.parallel.engine.desk import Desk, Work
from headrace.parallel.engine.positions import Begin, Positions
from headrace.parallel.engine.stalls import find_stalls
from headrace.parallel.options import ConsumerOptions

POLL_RECORDS = 5_000
POLL_AT_LEAST = 100
TICK_SECONDS = 0.1
SHORTEST_WAIT = 0.005
SECONDS_FULL_BEFORE_PAUSE = 0.05
ENOUGH_AT_HAND = 10_000
SECONDS_FOR_RECORDS = 0.02
SECONDS_FOR_ANSWER = 0.0005
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
        instance: tuple[int, int] = (0, 1),
    ) -> None:
        self._options = options
        self._connection = connection
        self._desk = desk
        self._crew = crew
        self._tell = tell
        self._instance = instance
        self._name = options.name
        self.client = ConsumerClient(
            connection,
            _own_settings(options, instance),
            on_committed=lambda partitions, error: self._committer.answered(partitions, error),
            on_trouble=self._on_trouble,
        )
        self._committer = Committer(self.client, desk, options.offsets, self._name, tell)
        self._positions = Positions(
            self.client, options.start, self._name, tell, remembers=options.offsets.remembers
        )
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._rebalanced = False
        self._fresh: list[TopicPartition] = []  # assigned, and not surely resumed
        self._lockstep = options.offsets if isinstance(options.offsets, PerBatch) else None
        self._per_record = isinstance(options.offsets, PerRecord)
        if self._per_record:
            desk.unreleased = []
        self._pending: list[Any] = []  # polled, and not handed in before the batch is finished
        self._pending_paused = False
        self._enough = max(ENOUGH_AT_HAND, 4 * options.concurrency)
        self._enough_since: float | None = None
        self._next_tick = 0.0
        self._told_stalls: dict[TopicPartition, float] = {}
        self._trouble_told: dict[str, float] = {}
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self.polls = self.polled = 0  # how often records came, and how many
        self.joined = threading.Event()  # partitions were given, be it none
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"headrace-{self._name}")

    # --- from any thread ---

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Begin to stop. Asked again, it does not wait for handlers any more."""
        if self._stop.is_set():
            self._hurry.set()
            with self._desk.lock:
                self._desk.news.notify_all()
        self._stop.set()

    def hurry(self) -> None:
        """Do not wait for handlers."""
        self._stop.set()
        self.stop()

    def fail(self, error: BaseException) -> None:
        """Stop because of this; the first one counts."""
        if self.error is None:
            self.error = error
        self._stop.set()

    def join(self, seconds: float | None = None) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

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
            while not self._stop.is_set():
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
        if self._has_enough():
            time.sleep(SHORTEST_WAIT)
        elif self._lockstep is not None:
            self._turn_in_lockstep(self._lockstep, wait)
        elif self._per_record:
            self._turn_by_records(wait)
        else:
            self._hand_in(self._poll(wait))
        self._regulate()
        now = time.monotonic()
        self._committer.tick(now)
        if now >= self._next_tick:
            self._next_tick = now + TICK_SECONDS
            self._tick(now)

    def _set_going(self) -> None:
        """After a rebalance, whose callbacks cannot do this."""
        self._rebalanced = False
        if self._fresh:  # librdkafka remembers a pause beyond the end of an assignment
            self.client.resume(self._fresh)
            self._fresh = []
        if self._desk.works:
            self.client.nudge(list(self._desk.works))

    def _poll(self, seconds: float) -> list[Any]:
        """No more than there is room for: a poll can bring thousands of one partition."""
        with self._desk.lock:
            room = self._options.buffer_records - self._desk.unfinished
        most = min(room, POLL_RECORDS, self._options.buffer_records // 10)
        return self.client.poll(max(POLL_AT_LEAST, most), seconds)

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

    def _hand_in(self, messages: list[Any]) -> None:
        if messages:
            self.polls += 1
            self.polled += len(messages)
            runs = list(self.client.runs(messages))
            with self._desk.lock:
                for run in runs:
                    self._desk.add(*run)
            self._crew.wake()

    # --- record by record ---

    def _turn_by_records(self, wait: float) -> None:
        """While handlers run, wait for them instead of the broker, and commit as they finish."""
        desk = self._desk
        with desk.lock:
            busy = bool(desk.unfinished or desk.unreleased)
            if busy:
                desk.wait_for(lambda: bool(desk.unreleased), min(wait, SECONDS_FOR_RECORDS))
        if self._committer.records_finished():
            self._crew.wake()
        self._hand_in(self._poll(0.0 if busy else wait))

    # --- batch by batch ---

    def _turn_in_lockstep(self, strategy: PerBatch, wait: float) -> None:
        desk = self._desk
        with desk.lock:
            idle = desk.wait_for(lambda: not desk.unfinished, wait if self._pending else 0)
        started = idle and self._committer.batch_finished()
        if started:
            batch, self._pending = self._pending[: strategy.size], self._pending[strategy.size :]
            self._hand_in(batch)
        # A batch waits while another one runs. Beyond that a poll only serves the group; what it
        # brings all the same comes to a pause in the end.
        room = 2 * strategy.size - len(self._pending)
        if (room <= -strategy.size) != self._pending_paused:
            self._pending_paused = not self._pending_paused
            self._pause_all() if self._pending_paused else self._resume_all()
        unanswered = idle and not started
        if unanswered:
            time.sleep(SECONDS_FOR_ANSWER)  # which a poll brings
        if room > 0 or unanswered or time.monotonic() >= self._next_tick:
            self._pending += self.client.poll(max(room, 1), 0.0 if self._pending else wait)

    def _pause_all(self) -> None:
        self.client.pause(list(self._desk.works))

    def _resume_all(self) -> None:
        self.client.resume([p for p, work in self._desk.works.items() if not work.paused])

    # --- back-pressure ---

    def _has_enough(self) -> bool:
        """Whether handlers have more than enough to do for a moment: then polling would only take
        the interpreter from them, and what is full is soon not full any more."""
        desk = self._desk
        with desk.lock:
            works = desk.works.values()
            enough = desk.unfinished > self._enough or (
                bool(works) and len(desk.overfull()) == len(works)
            )
        now = time.monotonic()
        if not enough:
            self._enough_since = None
            return False
        if self._enough_since is None:
            self._enough_since = now
        return now - self._enough_since < SECONDS_FULL_BEFORE_PAUSE

    def _regulate(self) -> None:
        """Pause what has too much at hand, resume what has worked it off."""
        if self._only_just_enough():
            return
        with self._desk.lock:
            full, relieved = self._desk.overfull(), self._desk.relieved()
            for work in full:
                work.paused = True
            for work in relieved:
                work.paused = False
        if full:
            self.client.pause([work.partition for work in full])
        if relieved and not self._pending_paused:
            self.client.resume([work.partition for work in relieved])

    def _only_just_enough(self) -> bool:
        since = self._enough_since
        return since is not None and time.monotonic() - since < SECONDS_FULL_BEFORE_PAUSE

    # --- a few times a second ---

    def _tick(self, now: float) -> None:
        if not threading.main_thread().is_alive():
            self._stop.set()  # the program has ended: so do we, in order
        self._crew.withdraw()
        running = self._crew.running()
        ends = {partition: self.client.end(partition) for partition in self._desk.works}
        with self._desk.lock:
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
        self._fresh += begins
        self._rebalanced = True
        self._pending_paused = False  # looked at anew, for all partitions
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
        with self._desk.lock:
            self._desk.wait_for(
                lambda: self._hurry.is_set() or not any(work.taken for work in works),
                deadline.remaining(),
            )

    def _let_go(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        gone = set(partitions)
        self._rebalanced = True
        self._fresh = [partition for partition in self._fresh if partition not in gone]
        with self._desk.lock:
            works = self._desk.revoke(partitions)
        self._pending = [m for m in self._pending if (m.topic(), m.partition()) not in gone]
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
        gone = set(wanted)
        self._pending = [m for m in self._pending if (m.topic(), m.partition()) not in gone]
        self._assign({partition: Begin(offset) for partition, offset in offsets.items()})
        self._restart(offsets)
        self._committer.pin()

    def _restart(self, offsets: dict[TopicPartition, int]) -> None:
        with self._desk.lock:
            others = {p: work.position for p, work in self._desk.works.items()}
        self.client.restart(offsets, others)

    # --- the end ---

    def _wind_down(self) -> None:
        """Start nothing more, give handlers their time while the group hears from us, commit."""
        deadline = Deadline(self._options.drain)
        with self._desk.lock:
            every = list(self._desk.works)
            self._desk.stop(every)
        self.client.pause(every)
        self._crew.withdraw()
        while not deadline.expired and not self._hurry.is_set():
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
