"""Members of a group whose deeds outlive them: run here, or in a process that can be killed.

Each record's beginning and end stand in a ledger, a file: what a killed process has noted stays.

    with Ledger() as ledger:
        member = Member(stage.connection, topic, group, ledger.path, stuck_on={"7"})
        with MemberProcess(member) as process:
            stage.wait_until(lambda: "7" in ledger.begun(), "it has begun with 7")
            process.kill()
        with member.app().running():
            ...

And what keeps them busy: a `Load`, which sends on a thread of its own while others look on.
"""

import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from headrace.clients import Connection, Producer, Reader
from headrace.labs.scenes.read_offsets import (
    OFFSETS_TOPIC,
    Commit,
    offsets_partition,
    read_commit,
)
from headrace.labs.stage import Stage
from headrace.model import Record, TopicPartition
from headrace.observe.events import OnEvent
from headrace.parallel import App

SECONDS_TO_END = 30.0


class Entry(NamedTuple):
    """A line of the ledger: what happened to which record, where, and when by the clock."""

    what: str
    member: str
    partition: int
    offset: int
    value: str
    at: float


class Ledger:
    """What members have done, line by line; removed after a `with` block. Values are one line."""

    def __init__(self) -> None:
        descriptor, name = tempfile.mkstemp(prefix="headrace-ledger-")
        os.close(descriptor)
        self.path = Path(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.path.unlink(missing_ok=True)

    def entries(self) -> list[Entry]:
        lines = self.path.read_text().splitlines()
        return [
            Entry(what, member, int(partition), int(offset), value, float(at))
            for what, member, partition, offset, value, at in (line.split("\t") for line in lines)
        ]

    def begun(self, member: str | None = None) -> list[str]:
        """The values whose handler was called, as often as it was."""
        return self._values("begun", member)

    def finished(self, member: str | None = None) -> list[str]:
        """The values whose handler returned, as often as it did."""
        return self._values("finished", member)

    def failed(self, member: str | None = None) -> list[str]:
        """The values whose handler raised, as often as it did."""
        return self._values("failed", member)

    def _values(self, what: str, member: str | None) -> list[str]:
        return [e.value for e in self.entries() if e.what == what and member in (None, e.member)]


class _Pen:
    """Writes to a ledger, from any thread: one call of the system for each line."""

    def __init__(self, path: Path, member: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._member = member

    def note(self, what: str, record: Record) -> None:
        value = (record.value or b"").decode()
        fields = (what, self._member, record.partition, record.offset, value, time.time())
        os.write(self._file, ("\t".join(map(str, fields)) + "\n").encode())


@dataclass(frozen=True)
class Member:
    """A consumer of a group and what its handler does: a plain value, for any process.

    `options` are those of `App.consumer`.
    """

    connection: Connection
    topic: str
    group: str
    ledger: Path
    name: str = "member"
    seconds: float = 0.0  # that the handler takes for each record
    fails_on: Collection[str] = frozenset()
    stuck_on: Collection[str] = frozenset()  # values whose handler does not return
    options: Mapping[str, Any] = field(default_factory=dict)

    def app(self, on_event: OnEvent | None = None) -> App:
        """An app with this one consumer, to be run wherever this is called."""
        app = App(self.connection, on_event=on_event)
        declare = app.consumer(self.topic, group=self.group, name=self.name, **self.options)
        declare(self._handler())
        return app

    def _handler(self) -> Callable[[bytes, Record], None]:
        pen = _Pen(self.ledger, self.name)

        def handle(data: bytes, record: Record) -> None:
            pen.note("begun", record)
            time.sleep(self.seconds)
            if data.decode() in self.stuck_on:
                threading.Event().wait()
            if data.decode() in self.fails_on:
                pen.note("failed", record)
                raise ValueError(f"{self.name} cannot handle {data.decode()}")
            pen.note("finished", record)

        return handle


class MemberProcess:
    """A member as a program of its own. It ends with the `with` block, or with this program."""

    def __init__(self, member: Member) -> None:
        # Not forked: the clients of this program have threads, which a fork would lose.
        self._process = multiprocessing.get_context("spawn").Process(
            target=_run, args=(member,), name=member.name
        )

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        """As of `multiprocessing`: the signal that ended it, negative."""
        return self._process.exitcode

    def kill(self) -> None:
        """SIGKILL: it cannot finish, commit or say goodbye."""
        self._process.kill()
        self._process.join()

    def stop(self, seconds: float = SECONDS_TO_END) -> bool:
        """SIGTERM, and wait; whether it ended in that time."""
        self._process.terminate()
        self._process.join(seconds)
        return not self._process.is_alive()


def _run(member: Member) -> None:
    logging.getLogger("headrace").addHandler(logging.NullHandler())  # the terminal is the lab's
    threading.Thread(target=_end_with_parent, daemon=True).start()
    member.app().run()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


class Load:
    """Calls `send` with 0, 1, 2, ... at a steady pace, on a thread of its own, for a `with` block.

    `pace` is in calls a second and may change meanwhile; what came too late is made up for.
    """

    def __init__(self, send: Callable[[int], object], pace: float) -> None:
        self.sent = 0
        self.pace = pace
        self._send = send
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        due = time.perf_counter()
        while not self._stop.wait(max(0.0, due - time.perf_counter())):
            self._send(self.sent)
            self.sent += 1
            due += 1 / self.pace


def by_turns(producer: Producer, topic: str, partitions: int) -> Callable[[int], object]:
    """For a `Load`: sends each number as a record, to the partitions by turns."""
    return lambda number: producer.send(topic, str(number), partition=number % partitions)


def commits_of(stage: Stage, group: str) -> list[Commit]:
    """Every commit of a group that moved it, in order, as it stands in the offsets topic.

    A request that commits three partitions is three of them. The first ones say where the group
    begins: a consumer commits that when it is given a partition for the first time. An offset that
    is committed twice in a row counts once: a consumer that has no answer yet, because the broker
    is slow, commits the same offset again when it needs to be certain.
    """
    partitions = len(stage.admin.topic(OFFSETS_TOPIC).partitions)
    found: list[Commit] = []
    last: dict[TopicPartition, int] = {}
    with Reader(
        OFFSETS_TOPIC,
        connection=stage.connection,
        partition=offsets_partition(group, partitions),
    ) as reader:
        for commit in (c for batch in reader.batches() for c in map(read_commit, batch) if c):
            if commit.group == group and last.get(commit.partition) != commit.offset:
                found.append(commit)
                last[commit.partition] = commit.offset
    return found
