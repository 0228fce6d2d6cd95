"""Ports are taken only where nobody listens, and where they stay ours."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from headrace.errors import PortInUse
from headrace.local import ports


@pytest.fixture
def listener():
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java's servers do
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def ephemeral_ports() -> range:
    source = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if source.exists():
        first, last = map(int, source.read_text().split())
        return range(first, last + 1)
    return range(49_152, 65_536)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_somebody_listens_on_is_seen(address):
    with socket.socket() as taken:
        taken.bind((address, 0))
        taken.listen()
        assert not ports.is_free(port_of(taken))


def test_a_port_nobody_listens_on_any_more_is_free(listener):
    port = port_of(listener)
    listener.close()
    assert ports.is_free(port)


def test_a_port_is_free_right_after_its_connections_were_closed(listener):
    port = port_of(listener)
    with socket.create_connection(("127.0.0.1", port)), listener.accept()[0] as served:
        served.shutdown(socket.SHUT_RDWR)  # the server's side goes into TIME_WAIT
    listener.close()
    assert ports.is_free(port)


def test_a_taken_port_is_an_error_that_names_port_and_process(listener, monkeypatch):
    monkeypatch.setattr(ports, "SECONDS_TO_LET_GO", 0)
    with pytest.raises(PortInUse) as caught:
        ports.require_free([port_of(listener)])
    assert caught.value.facts == {"port": port_of(listener)}
    assert f"by {psutil.Process().name()} (pid {os.getpid()})" in caught.value.message
    assert "--port" in caught.value.hint


def test_a_server_that_has_just_ended_is_given_a_moment_to_let_go_of_its_port(listener):
    port, soon = port_of(listener), threading.Timer(0.05, listener.close)
    soon.start()
    ports.require_free([port])
    soon.join()
    assert listener.fileno() == -1


def test_free_ports_are_accepted():
    ports.require_free(free := ports.choose_free(3, ()))
    assert len(free) == 3


def test_nobody_is_named_for_a_port_without_a_listener():
    assert ports.by_whom(ports.choose_free(1, ())[0]) == ""


def test_the_usual_ports_are_chosen_where_all_are_free():
    usual = consecutive_free(3)
    assert ports.choose(usual, 3, ()) == [usual, usual + 1, usual + 2]


def consecutive_free(count: int) -> int:
    return next(
        port for port in range(12_000, 19_000) if all(ports.is_free(port + n) for n in range(count))
    )


def test_one_taken_port_among_the_usual_makes_all_fall_back():
    usual = consecutive_free(3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", usual + 2))
        taken.listen()
        chosen = ports.choose(usual, 3, ())
    assert len(set(chosen)) == 3
    assert not {usual, usual + 1, usual + 2} & set(chosen)


def test_ports_of_others_are_left_alone_even_if_nobody_listens():
    usual = consecutive_free(1)
    assert ports.choose(usual, 1, {usual}) != [usual]


def test_free_ports_are_outside_the_range_of_outgoing_connections():
    chosen = ports.choose_free(200, ())
    assert len(set(chosen)) == 200
    assert not set(chosen) & set(ephemeral_ports())
    assert min(chosen) > 1024


def test_no_free_port_at_all_is_an_error(monkeypatch):
    monkeypatch.setattr(ports, "_FREE_RANGE", range(20_000, 20_003))
    with pytest.raises(PortInUse, match="no free port"):
        ports.choose_free(1, {20_000, 20_001, 20_002})


CLAIM = """
import sys
from headrace.local import ports

sys.stdout.write(str(ports.choose(int(sys.argv[1]), 1, ())[0]) + chr(10))
sys.stdout.flush()
sys.stdin.read()
"""


def test_a_port_that_another_process_has_chosen_is_not_chosen_again():
    """Before anybody listens on it, and only as long as that process lives."""
    (port,) = ports.choose_free(1, ())
    ports.release([port])
    command = [sys.executable, "-c", CLAIM, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert int(other.stdout.readline()) == port
        assert ports.is_free(port)
        (instead,) = ports.choose(port, 1, ())
        assert instead != port
        other.kill()
    assert ports.choose(port, 1, ()) == [port]
    ports.release([port, instead])


def test_a_claim_ends_when_the_servers_listen():
    (port,) = ports.choose_free(1, ())
    assert ports.choose(port, 1, ()) != [port]
    ports.release([port])
    assert ports.choose(port, 1, ()) == [port]
    ports.release([port])
