"""The crew of processes, without Kafka: a record may kill its process, and harms no other."""

import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from headrace.errors import OperationFailed
from headrace.model import TopicPartition
from headrace.parallel.batching import Batch
from headrace.parallel.engine.bundles import BundleDesk
from headrace.parallel.engine.desk import Desk, Limits
from headrace.parallel.engine.processes import Job, ProcessCrew
from headrace.parallel.handlers import read_signature
from headrace.serde import Bytes
from support import crew_handlers
from support.waiting import eventually

A = TopicPartition("clicks", 0)
PLENTY = Limits(1_000_000, 1 << 30)


class Message:
    """What `to_record` asks of a client's message."""

    def __init__(self, partition, offset, value):
        self._partition, self._offset, self._value = partition, offset, value

    def __len__(self):
        return len(self._value)

    def topic(self):
        return self._partition.topic

    def partition(self):
        return self._partition.partition

    def offset(self):
        return self._offset

    def timestamp(self):
        return 1, 0

    def key(self):
        return None

    def value(self):
        return self._value

    def headers(self):
        return None

    def leader_epoch(self):
        return None


class ProcessRig:
    """Worker processes that write a line for each record into a file."""

    def __init__(self, file: Path, concurrency, order, batch):
        self.file = file
        self.others = set(psutil.Process().children(recursive=True))
        if batch is None:
            self.desk = Desk(order, concurrency, PLENTY)
        else:
            self.desk = BundleDesk(order, concurrency, PLENTY, None, batch, lambda: 0.0)
        self.desk.assign(A, 0, (), now=0.0)
        self.failures, self.deaths = {}, []
        self.failing = lambda: None
        handler = crew_handlers.handle if batch is None else crew_handlers.handle_many
        signature = read_signature(handler, batch=batch is not None)
        job = Job(handler, signature, Bytes(), batch is not None)
        self.unable = []
        self.crew = ProcessCrew(
            *(self.desk, job, self.failed, concurrency, self.deaths.append, self.unable.append)
        )

    def failed(self, unit, error):
        self.failing()
        assert unit[1] not in self.failures
        self.failures[unit[1]] = error
        return True

    def feed(self, whats, keys=None):
        with self.desk.lock:
            start = self.desk.works[A].position
            offsets = range(start, start + len(whats))
            messages = [
                Message(A, offset, f"{what}|{self.file}|{offset}".encode())
                for offset, what in zip(offsets, whats, strict=True)
            ]
            self.desk.add(A, offsets, keys or [None] * len(whats), messages)
        self.crew.wake()

    def processes(self):
        """Its workers that live; multiprocessing's resource tracker stays for the whole session."""
        children = psutil.Process().children(recursive=True)
        return [child for child in children if child not in self.others and is_worker(child)]

    @property
    def lines(self):
        return self.file.read_text().split() if self.file.exists() else []

    def locked(self, look):
        with self.desk.lock:
            return look(self.desk)

    def wait_until_done(self):
        eventually(
            lambda: self.locked(lambda desk: not desk.unfinished and not desk.taken),
            "all is done",
            120,
            every=0.005,
        )


@pytest.fixture
def make_process_rig(tmp_path):
    rigs = []

    def make(concurrency=2, order="none", batch=None):
        rigs.append(ProcessRig(tmp_path / "lines", concurrency, order, batch))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.crew.close()
    eventually(lambda: not any(rig.processes() for rig in rigs), "no process is left", every=0.01)


def is_worker(child):
    try:
        return child.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(
            child.cmdline()
        )
    except psutil.NoSuchProcess:
        return False


def test_processes_handle_everything_once_and_a_key_in_order(make_process_rig):
    rig = make_process_rig(order="key")
    rig.feed(["note"] * 300, list("abc") * 100)
    rig.wait_until_done()
    lines = [int(line) for line in rig.lines]
    assert sorted(lines) == list(range(300))
    for key in range(3):
        assert [line for line in lines if line % 3 == key] == list(range(key, 300, 3))
    assert (rig.failures, rig.deaths) == ({}, [])


def test_an_exception_comes_back_from_a_process_as_it_was_or_described(make_process_rig):
    rig = make_process_rig()
    rig.feed(["note", "raise", "odd", "exit", "note"])
    rig.wait_until_done()
    assert sorted(rig.lines) == ["0", "1", "2", "3", "4"]
    assert sorted(rig.failures) == [1, 2, 3]
    assert isinstance(rig.failures[1], ValueError)
    assert rig.failures[1].args == ("1",)
    assert "Odd: 2 and more" in str(rig.failures[2])
    assert isinstance(rig.failures[3], SystemExit)
    assert rig.deaths == []


@pytest.mark.parametrize("what", ["raise", "die"])
def test_nobody_waits_for_what_is_done_about_a_failure(make_process_rig, what):
    """The pump wakes the crew, and must not miss its group's deadline for a slow `on_error`."""
    rig = make_process_rig()
    begun, over = threading.Event(), threading.Event()
    rig.failing = lambda: (begun.set(), over.wait(120))
    rig.feed([what])
    assert begun.wait(60)
    wake = threading.Thread(target=rig.crew.wake, daemon=True)
    wake.start()
    wake.join(30)
    assert not wake.is_alive()
    over.set()
    rig.wait_until_done()
    assert list(rig.failures) == [0]


def test_a_record_that_kills_its_process_fails_and_all_others_are_handled(make_process_rig):
    rig = make_process_rig()
    rig.crew._pace.chunk = 5
    rig.feed(["die" if offset == 7 else "note" for offset in range(40)])
    rig.wait_until_done()
    assert set(map(int, rig.lines)) == set(range(40))
    assert list(rig.failures) == [7]
    assert isinstance(rig.failures[7], OperationFailed)
    assert "process died" in rig.failures[7].message
    assert rig.deaths
    rig.feed(["note"])
    rig.wait_until_done()
    assert "40" in rig.lines


def test_a_suspect_runs_alone(make_process_rig):
    rig = make_process_rig(concurrency=2)
    rig.feed(["die"])
    # For a few milliseconds only; who missed them sees what came of it.
    eventually(lambda: rig.crew._on_trial or rig.failures, "the suspect runs again", every=0.001)
    rig.feed(["note"] * 3)
    rig.wait_until_done()
    assert rig.deaths == [1, 0]  # nothing died with it the second time
    assert sorted(rig.lines) == ["0", "0", "1", "2", "3"]
    assert list(rig.failures) == [0]


def test_a_record_whose_process_died_once_runs_again_and_is_not_blamed(make_process_rig):
    rig = make_process_rig(concurrency=1)
    rig.feed(["die once"])
    rig.wait_until_done()
    assert rig.lines == ["0", "0"]
    assert rig.failures == {}
    assert rig.deaths == [1]


def test_a_record_that_finds_its_process_dead_is_not_blamed(make_process_rig):
    rig = make_process_rig(concurrency=1)
    rig.feed(["note"])
    rig.wait_until_done()
    (worker,) = rig.crew._pool._processes.values()
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: rig.crew._pool._broken, "the pool has noticed", every=0.005)
    rig.feed(["note", "note"])
    rig.wait_until_done()
    assert sorted(rig.lines) == ["0", "1", "2"]
    assert rig.failures == {}


def test_close_ends_processes_whose_handlers_still_run_and_their_records_stay(make_process_rig):
    rig = make_process_rig(concurrency=1)
    rig.feed(["stay"] * 5)
    eventually(lambda: rig.lines, "a handler runs", every=0.005)
    assert 0 in [unit[1] for unit, _ in rig.crew.running()]
    rig.locked(lambda desk: desk.stop([A]))
    rig.crew.close()
    eventually(lambda: not rig.processes(), "the processes end", every=0.005)
    eventually(lambda: rig.locked(lambda desk: not desk.taken), "given back", every=0.005)
    assert rig.locked(lambda desk: (desk.finished, desk.unfinished)) == (0, 5)
    assert rig.failures == {}


def test_a_process_takes_a_bundle_with_its_records(make_process_rig):
    rig = make_process_rig(concurrency=1, batch=Batch(size=3, wait=0))
    rig.feed(["note"] * 6)
    rig.wait_until_done()
    assert sorted(rig.lines) == ["0,1,2", "3,4,5"]


class Poison:
    """Ends whoever unpickles it."""

    def __reduce__(self):
        return (os._exit, (1,))


def test_processes_that_cannot_start_are_no_records_fault():
    desk = Desk("none", 1, PLENTY)
    desk.assign(A, 0, (), now=0.0)
    signature = read_signature(crew_handlers.handle, batch=False)
    failures, unable = [], []
    crew = ProcessCrew(
        desk,
        Job(crew_handlers.handle, signature, Poison(), False),
        lambda unit, error: failures.append(unit) or True,
        1,
        lambda records: None,
        unable.append,
    )
    try:
        with desk.lock:
            desk.add(A, [0], [None], [Message(A, 0, b"x")])
        crew.wake()
        eventually(lambda: unable, "it is told that they cannot start")
    finally:
        crew.close()
    assert "cannot start" in unable[0].message
    assert unable[0].hint
    assert failures == []
    assert desk.finished == 0


def test_the_pump_never_waits_for_the_pool(make_process_rig):
    """A pool that cleans up behind a dead process holds its lock, and calls back meanwhile."""
    rig = make_process_rig()
    rig.feed(["note"])
    rig.wait_until_done()
    with rig.crew._pool._shutdown_lock:
        pump = threading.Thread(
            target=lambda: (rig.feed(["note"]), rig.crew.withdraw(), rig.crew.running()),
            daemon=True,
        )
        pump.start()
        pump.join(30)
        assert not pump.is_alive()
    rig.wait_until_done()
    assert sorted(rig.lines) == ["0", "1"]
