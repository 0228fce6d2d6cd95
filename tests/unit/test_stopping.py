"""A cluster is stopped in order, in bounded time, and nothing of it is left."""

import os
import signal
import sys
import time

import pytest

from headrace.local import stopping
from headrace.local.processes import Server, State, end, mark
from headrace.local.spec import new_cluster_id
from headrace.local.stopping import stop_all, stop_one

NOTES_ITS_END = """
import signal, sys, time
from pathlib import Path
def ended(*_):
    with Path("../order").open("a") as file:
        file.write(Path.cwd().name + " ")
    sys.exit()
signal.signal(signal.SIGTERM, ended)
Path("ready").touch()
time.sleep(60)
"""
IGNORES = """
import signal, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path("ready").touch()
time.sleep(60)
"""
SHUTS_ITS_BROKER_DOWN_AND_WAITS = """
import signal, time
from pathlib import Path
def ended(*_):
    with Path("server.log").open("a") as log:
        log.write("[BrokerServer id=1] shut down completed\\n")
signal.signal(signal.SIGTERM, ended)
Path("ready").touch()
while True:
    time.sleep(60)
"""


@pytest.fixture
def start(tmp_path, wait_until):
    """Start servers by name; all are killed after the test."""
    cluster_id = new_cluster_id()
    started: list[Server] = []

    def start_one(node: str, code: str) -> Server:
        server = Server(node, tmp_path / node, mark(cluster_id, node))
        started.append(server)
        server.spawn([sys.executable, "-c", code, server.mark], os.environ)
        wait_until((server.folder / "ready").exists)
        return server

    yield start_one
    end(started, signal.SIGKILL, 10)


@pytest.fixture
def patience(monkeypatch):
    """Servers have all the time that a busy machine may need to let them write."""
    names = ("SECONDS_TO_STOP", "SECONDS_FOR_SIDE_SERVERS", "SECONDS_FOR_PLAIN_BROKERS")
    for name in names:
        monkeypatch.setattr(stopping, name, 60)


def test_an_orderly_stop_is_told_from_a_kill(start, monkeypatch, patience):
    orderly, deaf = start("orderly", NOTES_ITS_END), start("deaf", IGNORES)
    assert stop_one(orderly) is True
    monkeypatch.setattr(stopping, "SECONDS_TO_STOP", 0.1)
    assert stop_one(deaf) is False
    assert {orderly.state, deaf.state} == {State.STOPPED}


def test_a_paused_server_is_stopped_in_order(start, tmp_path, patience):
    server = start("paused", NOTES_ITS_END)
    server.signal(signal.SIGSTOP)
    assert stop_one(server) is True
    assert (tmp_path / "order").read_text() == "paused "


def test_stopping_what_does_not_run_is_harmless(tmp_path):
    server = Server("gone", tmp_path, mark(new_cluster_id(), "gone"))
    assert stop_one(server) is True
    stop_all([server], [], [])
    assert server.state is State.STOPPED


def test_side_servers_stop_first_then_plain_brokers_then_controllers(start, tmp_path, patience):
    side, plain, voter = (start(n, NOTES_ITS_END) for n in ("connect", "broker-4", "broker-1"))
    stop_all([side], [plain], [voter])
    assert (tmp_path / "order").read_text() == "connect broker-4 broker-1 "
    assert {server.state for server in (side, plain, voter)} == {State.STOPPED}


def test_a_deaf_cluster_is_gone_after_the_time_to_stop(start, monkeypatch):
    monkeypatch.setattr(stopping, "SECONDS_TO_STOP", 0.3)
    servers = [start(f"broker-{n}", IGNORES) for n in (1, 2, 3)]
    servers[0].signal(signal.SIGSTOP)
    began = time.monotonic()
    stop_all([], [servers[2]], servers[:2])
    assert time.monotonic() - began < 30
    assert {server.state for server in servers} == {State.STOPPED}


def test_controllers_without_a_quorum_are_not_waited_for_once_their_data_is_safe(start, patience):
    first = start("broker-1", NOTES_ITS_END)
    waiting = start("broker-2", SHUTS_ITS_BROKER_DOWN_AND_WAITS)
    began = time.monotonic()
    stop_all([], [], [first, waiting])
    assert time.monotonic() - began < stopping.SECONDS_TO_STOP / 2
    assert {first.state, waiting.state} == {State.STOPPED}


def test_an_earlier_shut_down_in_the_log_does_not_count_as_this_one(start, monkeypatch):
    monkeypatch.setattr(stopping, "SECONDS_TO_STOP", 0.5)
    first, deaf = start("broker-1", NOTES_ITS_END), start("broker-2", IGNORES)
    deaf.log.write_text("[BrokerServer id=2] shut down completed\n")
    began = time.monotonic()
    stop_all([], [], [first, deaf])
    assert time.monotonic() - began >= 0.5  # it was given its time to shut down
    assert deaf.state is State.STOPPED
