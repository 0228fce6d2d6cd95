"""A server is known by its mark, never by a pid; strangers are never signalled."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headrace.errors import ServerDied
from headrace.local.processes import (
    Server,
    State,
    end,
    find_cause,
    find_marked,
    mark,
    wait_for_end,
)
from headrace.local.spec import new_cluster_id

SLEEP = "import time; time.sleep(60)"
SIGNALS = [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT]
START_A_CHILD_AND_FORGET_IT = """
import subprocess, sys, time
node = sys.stdin.readline().strip()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", node])
print(child.pid, flush=True)
time.sleep(60)
"""
FIRST_THREAD_ENDS = """
import ctypes, threading, time
def work():
    print("at work", flush=True)
    time.sleep(60)
threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def server(tmp_path):
    """A server that does not run yet; killed after the test if it does."""
    folder = tmp_path / "broker-1"
    folder.mkdir()
    server = Server("broker-1", folder, mark(new_cluster_id(), "broker-1"))
    yield server
    end([server], signal.SIGKILL, 10)


@pytest.fixture
def stranger():
    """A live process of somebody else."""
    child = subprocess.Popen([sys.executable, "-c", SLEEP])
    yield psutil.Process(child.pid)
    child.kill()
    child.wait()


def command(server: Server, code: str = SLEEP) -> list[str]:
    return [sys.executable, "-c", code, server.mark]


def spawn(server: Server, code: str = SLEEP) -> None:
    server.spawn(command(server, code), os.environ)


def write_pid(server: Server, text: object) -> None:
    (server.folder / "pid").write_text(str(text))


# --- who is who ---


def test_a_strangers_pid_in_the_pid_file_is_not_found(server, stranger):
    write_pid(server, stranger.pid)
    assert server.find() is None
    assert server.state is State.STOPPED


@pytest.mark.parametrize("number", SIGNALS)
def test_a_stranger_is_never_signalled_through_a_pid_file(server, stranger, number):
    write_pid(server, stranger.pid)
    assert server.signal(number) is False
    assert end([server], number, 0) == []
    assert stranger.is_running()
    assert stranger.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)


def test_a_stranger_is_not_taken_for_a_server_by_half_a_mark(server, run_marked):
    for other in (server.mark + "0", server.mark[:-1], f"x{server.mark}", server.mark.upper()):
        write_pid(server, run_marked(other).pid)
        assert server.find() is None


def test_the_same_node_of_another_cluster_is_a_stranger(server, run_marked):
    write_pid(server, run_marked(mark(new_cluster_id(), "broker-1")).pid)
    assert server.find() is None


def test_a_server_without_a_pid_file_is_found_by_its_mark(server, run_marked):
    process = run_marked(server.mark)
    assert server.find() == process
    assert (server.folder / "pid").read_text() == str(process.pid)


def test_a_server_is_found_by_its_mark_behind_a_strangers_pid(server, stranger, run_marked):
    write_pid(server, stranger.pid)
    process = run_marked(server.mark)
    assert server.find() == process
    assert (server.folder / "pid").read_text() == str(process.pid)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=30) | st.integers().map(lambda n: str(n).encode()))
@example(content=b"-1")
@example(content=b"0")
@example(content=b"")
@example(content=b"9" * 40)
def test_any_damaged_pid_file_is_overlooked(server, content):
    (server.folder / "pid").write_bytes(content)
    assert server.find() is None


def test_a_server_is_found_even_if_its_folder_is_gone(server, run_marked):
    process = run_marked(server.mark)
    server.folder.rmdir()
    assert server.find() == process


def test_several_servers_are_found_at_once(run_marked):
    marks = [mark(new_cluster_id(), f"broker-{n}") for n in range(3)]
    processes = [run_marked(each) for each in marks[:2]]
    assert find_marked(marks) == dict(zip(marks, processes, strict=False))


def test_a_mark_tells_cluster_and_node():
    assert mark("abc", "broker-1") == "-Dheadrace.node=abc/broker-1"


# --- starting ---


def test_a_spawned_server_runs_in_a_session_of_its_own(server):
    spawn(server)
    process = server.find()
    assert server.state is State.RUNNING
    assert os.getsid(process.pid) == process.pid  # so Ctrl-C here does not reach it


def test_a_spawned_server_outlives_the_command_that_started_it(server, run_python):
    done = run_python(
        "import os, sys; from pathlib import Path; from headrace.local.processes import Server\n"
        "server = Server('broker-1', Path(sys.argv[1]), sys.argv[2])\n"
        "server.spawn([sys.executable, '-c', sys.argv[3], server.mark], os.environ)",
        *(str(server.folder), server.mark, SLEEP),
    )
    assert done.returncode == 0
    assert server.state is State.RUNNING


def test_a_spawned_server_gets_just_the_environment_given(server, wait_until):
    code = "import os; print(sorted(os.environ)); print('end')"
    server.spawn(command(server, code), {"ONLY": "this"})
    wait_until(lambda: "end" in server.console.read_text())
    assert "ONLY" in server.console.read_text()
    assert "PATH" not in server.console.read_text()


def test_a_server_that_ended_is_told_with_its_last_words(server, wait_until):
    spawn(server, "import sys; sys.exit('ERROR: no more')")
    wait_until(lambda: server.find() is None)
    with pytest.raises(ServerDied, match="ERROR: no more") as caught:
        server.require_alive()
    assert caught.value.facts["node"] == "broker-1"


def test_a_server_that_runs_is_no_reason_to_complain(server):
    spawn(server)
    server.require_alive()
    assert server.find() is not None


# --- stopping and pausing ---


def test_a_server_can_be_paused_and_resumed(server, wait_until):
    spawn(server)
    assert server.signal(signal.SIGSTOP)
    wait_until(lambda: server.state is State.PAUSED)
    assert server.signal(signal.SIGCONT)
    wait_until(lambda: server.state is State.RUNNING)
    assert server.find() is not None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_is_ended_is_stopped_and_leaves_no_zombie(server, number):
    spawn(server)
    process = server.find()
    assert end([server], number, 10) == []
    assert server.state is State.STOPPED
    assert not psutil.pid_exists(process.pid)


def test_a_server_that_does_not_end_is_returned(server, wait_until):
    ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    spawn(server, ignore + "print('ready', flush=True); time.sleep(60)")
    wait_until(lambda: "ready" in server.console.read_text())
    assert end([server], signal.SIGTERM, 0.05) == [server]
    assert server.state is State.RUNNING


def test_a_signal_to_a_server_that_does_not_run_is_told(server):
    assert server.signal(signal.SIGTERM) is False
    assert end([server], signal.SIGTERM, 0) == []


def test_a_dead_child_of_ours_counts_as_stopped(server, run_marked, wait_until):
    process = run_marked(server.mark, code="pass")
    wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE)
    write_pid(server, process.pid)
    assert server.find() is None
    assert server.state is State.STOPPED


def test_a_dead_server_that_its_parent_never_reaps_counts_as_ended(server):
    """A container's first process may reap nobody; a stop must not wait for it."""
    with subprocess.Popen(
        [sys.executable, "-c", START_A_CHILD_AND_FORGET_IT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        pid = int(_ask(parent, server.mark))
        process = psutil.Process(pid)
        assert server.find() == process
        assert end([server], signal.SIGKILL, 60) == []
        assert process.status() == psutil.STATUS_ZOMBIE
        assert server.state is State.STOPPED
        parent.kill()


def test_a_server_whose_first_thread_is_dead_has_not_ended(server, wait_until):
    """1. A signal reaches all threads of Java. 2. The first is dead. 3. Others hold the port."""
    spawn(server, FIRST_THREAD_ENDS)
    # Once its first thread is dead, `find` takes it for one that has ended.
    process = psutil.Process(int((server.folder / "pid").read_text()))
    wait_until(lambda: "at work" in server.console.read_text())
    wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE or sys.platform != "linux")
    assert wait_for_end([process], 0) == [process]
    process.kill()
    assert wait_for_end([process], 60) == []


def _ask(parent: "subprocess.Popen[bytes]", line: str) -> bytes:
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(f"{line}\n".encode())
    parent.stdin.flush()
    return parent.stdout.readline()


# --- what a server says ---


def test_the_last_error_is_the_cause():
    lines = ["INFO up", "ERROR first", "ERROR the cause", "\tat Java.line(12)", "INFO down"]
    assert find_cause(lines) == "ERROR the cause"


def test_without_an_error_the_last_line_is_the_cause():
    assert find_cause(["one", "two "]) == "two"
    assert find_cause([]) == ""


def test_a_server_without_output_left_no_message(server):
    assert server.last_words() == "it left no message"


def test_only_what_was_logged_since_counts(server):
    assert server.log_size() == 0
    assert not server.logged_since(0, "shut")
    server.log.write_bytes(b"shut down completed\n")
    before = server.log_size()
    assert server.logged_since(0, "shut down", "completed")
    assert not server.logged_since(before, "shut down")
    with server.log.open("ab") as log:
        log.write(b"\xff [BrokerServer id=1] shut down completed\n")
    assert server.logged_since(before, "BrokerServer", "completed")
    assert not server.logged_since(before, "BrokerServer", "other")
