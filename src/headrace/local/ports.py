"""Choosing ports: the usual ones where they are free, else some that stay ours.

Free ports are taken from below the range that the system hands to outgoing connections
(32768 and up on Linux, 49152 on macOS). A port from that range could be taken by any client
while a killed broker is down, and the broker could not come back.

A chosen port is claimed until a server listens on it: between the choice and that moment another
process, with a HEADRACE_HOME of its own, would find it free too.
"""

import errno
import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

import psutil

from headrace.errors import PortInUse
from headrace.model import Deadline

USUAL_BROKER_PORT = 9092
USUAL_REGISTRY_PORT = 8081
USUAL_CONNECT_PORT = 8083
SECONDS_TO_LET_GO = 2.0
_FREE_RANGE = range(20_000, 32_000)
_claims: dict[int, int] = {}  # by port: the descriptor of its file, which holds the lock


def is_free(port: int) -> bool:
    """Nobody listens on this port, on any local address."""
    for address in ("127.0.0.1", "0.0.0.0"):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno in (errno.EADDRINUSE, errno.EACCES):
                    return False
                raise
    return True


def choose(usual: int, count: int, taken: Collection[int]) -> list[int]:
    """`count` consecutive ports from `usual` on if all are free, else free ones."""
    wanted = list(range(usual, usual + count))
    if not set(wanted) & set(taken) and all(map(is_free, wanted)) and _claim_all(wanted):
        return wanted
    return choose_free(count, taken)


def choose_free(count: int, taken: Collection[int]) -> list[int]:
    """`count` ports that nobody listens on and that are not in `taken`."""
    ports = _free_ports(set(taken))
    return [next(ports) for _ in range(count)]


def _free_ports(taken: set[int]) -> Iterator[int]:
    candidates = list(_FREE_RANGE)
    random.shuffle(candidates)
    yield from (p for p in candidates if p not in taken and is_free(p) and _claim(p))
    raise PortInUse(
        f"no free port from {_FREE_RANGE.start} to {_FREE_RANGE.stop}",
        hint="stop something that listens, or choose ports with --port",
    )


def _claim_all(wanted: list[int]) -> bool:
    claimed = [port for port in wanted if _claim(port)]
    if claimed != wanted:
        release(claimed)
    return claimed == wanted


def _claim(port: int) -> bool:
    """Claim a port among this user's processes; False if it is claimed already.

    The claim is a lock on a file: it ends with the process, however that ends. Where no file can be
    written, ports are chosen without claims.
    """
    folder = Path(tempfile.gettempdir()) / f"headrace-ports-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(folder / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    _claims[port] = descriptor
    return True


def release(claimed: Collection[int]) -> None:
    """Servers listen on these now, or never will."""
    for port in claimed:
        descriptor = _claims.pop(port, None)
        if descriptor is not None:
            os.close(descriptor)


def require_free(ports: Collection[int]) -> None:
    """Raise PortInUse, naming who listens where that can be seen.

    A server that has just ended may hold its port for a moment longer.
    """
    deadline = Deadline(SECONDS_TO_LET_GO)
    for port in ports:
        if not any(is_free(port) for _ in deadline.polls(every=0.1)):
            raise PortInUse(
                f"port {port} is in use{by_whom(port)}",
                hint="stop that process, or choose other ports with --port",
                port=port,
            )


def by_whom(port: int) -> str:
    """` by NAME (pid N)`, where the system lets us see it."""
    try:
        for connection in psutil.net_connections("tcp"):
            at_port = connection.laddr and connection.laddr.port == port
            if at_port and connection.status == psutil.CONN_LISTEN and connection.pid:
                process = psutil.Process(connection.pid)
                return f" by {process.name()} (pid {process.pid})"
    except psutil.Error:
        pass
    return ""
