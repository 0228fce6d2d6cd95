"""A signal cancels Spark's work, and interrupts the main thread only outside calls of the JVM."""

import logging
import os
import signal
import threading

import pytest

from headrace.observe.signals import follows_interrupt
from headrace.spark import interrupts as module
from headrace.spark import jvm
from headrace.spark.interrupts import Interrupts, cancelled_by_ctrl_c
from support.waiting import eventually


class Client:
    """Stands in for py4j's client: the call returns when the JVM's work has been cancelled."""

    def __init__(self):
        self.answers = 0
        self.cancelled = threading.Event()

    def send_command(self, command):
        if command == "work":
            os.kill(os.getpid(), signal.SIGINT)
            self.cancelled.wait(10)
        self.answers += 1
        return command


@pytest.fixture(autouse=True)
def _handler_kept():
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def interrupts(client):
    made = Interrupts()
    made.install()
    made.cancel = client.cancelled.set
    made.guard(client)
    return made


def test_a_call_of_the_jvm_is_cancelled_and_its_answer_read_before_the_interrupt(
    client, interrupts
):
    with pytest.raises(KeyboardInterrupt):
        client.send_command("work")
    assert client.answers == 1


def test_cleanup_after_an_interrupt_can_call_the_jvm(client, interrupts):
    with pytest.raises(KeyboardInterrupt):
        client.send_command("work")
    assert client.send_command("stop") == "stop"


def test_outside_of_calls_the_interrupt_is_raised_at_once(client, interrupts):
    client.send_command("quick")
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    assert not client.cancelled.is_set()


def test_outside_of_calls_the_handler_from_before_applies(client):
    heard = []
    signal.signal(signal.SIGINT, lambda *_arguments: heard.append("before"))
    made = Interrupts()
    made.install()
    made.install_again()
    os.kill(os.getpid(), signal.SIGINT)
    assert heard == ["before"]


def test_sigterm_stops_a_command_whose_sigint_was_ignored_from_the_start():
    """As in the background of a script; the command line hands SIGTERM to the same handler."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    made = Interrupts()
    made.install()
    with pytest.raises(KeyboardInterrupt):
        made.handle(signal.SIGTERM, None)


def test_several_calls_held_back_together_are_interrupted_at_their_end(client, interrupts):
    def work():
        with interrupts.held_back():
            client.send_command("work")
            client.send_command("await its end")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert client.answers == 2


def test_a_second_signal_kills_and_does_not_wait(client, interrupts):
    killed = []
    interrupts.kill = lambda: killed.append(True)
    interrupts.cancel = lambda: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        client.send_command("work")
    assert killed
    assert client.answers == 0


def test_what_cannot_be_cancelled_is_killed_after_a_while(client, interrupts, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_TO_CANCEL", 0.05)
    interrupts.cancel = lambda: None
    interrupts.kill = client.cancelled.set
    with pytest.raises(KeyboardInterrupt):
        client.send_command("work")
    assert client.cancelled.is_set()


def test_cancelling_goes_on_although_it_fails_at_first(client, interrupts):
    """Spark may still be starting when the signal comes."""
    tries = iter([ValueError("no context yet"), None])

    def cancel():
        if failure := next(tries):
            raise failure
        client.cancelled.set()

    interrupts.cancel = cancel
    with pytest.raises(KeyboardInterrupt):
        client.send_command("work")
    assert client.cancelled.is_set()


def test_the_failure_of_cancelled_work_is_a_consequence():
    def work():
        os.kill(os.getpid(), signal.SIGINT)
        assert cancelled.wait(10)
        raise RuntimeError("the job was cancelled")

    cancelled = threading.Event()
    with pytest.raises(KeyboardInterrupt), cancelled_by_ctrl_c(cancelled.set):
        work()


def test_without_a_signal_a_failure_stays_a_failure():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError), cancelled_by_ctrl_c(lambda: None):
        raise RuntimeError("a defect")
    assert signal.getsignal(signal.SIGINT) == before


def test_an_error_is_a_consequence_only_if_an_interrupt_came_first():
    def fail_after(first):
        try:
            raise first
        finally:
            raise ConnectionRefusedError

    with pytest.raises(ConnectionRefusedError) as stopped:
        fail_after(KeyboardInterrupt())
    with pytest.raises(ConnectionRefusedError) as broken:
        fail_after(ValueError())
    assert follows_interrupt(stopped.value)
    assert not follows_interrupt(broken.value)


# --- the JVM ---


@pytest.fixture
def submit(tmp_path, monkeypatch):
    """Makes a program the one that starts Spark's JVM; returns where it writes its pid."""
    pytest.importorskip("pyspark")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)

    def make(text):
        program = tmp_path / "bin" / "spark-submit"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        return tmp_path / "pid"

    return make


def test_a_jvm_that_starts_ignores_signals_and_is_killed_when_the_start_is_interrupted(submit):
    """SIGTERM goes to a whole process group; without this the JVM would be gone first."""
    pid_file = submit(
        'echo $$ > "$SPARK_HOME/pid.new"; mv "$SPARK_HOME/pid.new" "$SPARK_HOME/pid"; exec sleep 60'
    )
    survived = []

    def signal_it():
        eventually(pid_file.exists, "it has started")
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(int(pid_file.read_text()), number)
        threading.Event().wait(0.2)
        survived.append(_runs(int(pid_file.read_text())))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=signal_it).start()
    with pytest.raises(KeyboardInterrupt):
        jvm._launch({})
    assert survived == [True]
    assert not _runs(int(pid_file.read_text()))


def test_a_jvm_that_ends_at_once_is_an_error_with_its_status(submit):
    submit("exit 3")
    with pytest.raises(jvm.OperationFailed, match="status 3"):
        jvm._launch({})


def _runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_py4j_logs_of_a_killed_jvm_is_dropped():
    record = logging.LogRecord("root", 40, "/x/py4j/java_gateway.py", 1, "lost", None, None)
    other = logging.LogRecord("root", 40, "/x/headrace/app.py", 1, "failed", None, None)
    assert not jvm._is_not_of_py4j(record)
    assert jvm._is_not_of_py4j(other)
