"""Stopping a whole cluster: in order, and without waiting for what cannot come."""

import signal
from collections.abc import Sequence

from headrace.local.processes import Server, end, wait_for_end
from headrace.model import Deadline

SECONDS_TO_STOP = 8
SECONDS_FOR_SIDE_SERVERS = 2
SECONDS_FOR_PLAIN_BROKERS = 3
SECONDS_TO_DIE = 8  # after SIGKILL, on a machine that is busy with something else


def stop_one(server: Server) -> bool:
    """Orderly stop of one server; False if it had to be killed."""
    server.signal(signal.SIGCONT)  # a paused server cannot stop
    if not end([server], signal.SIGTERM, SECONDS_TO_STOP):
        return True
    end([server], signal.SIGKILL, SECONDS_TO_DIE)
    return False


def stop_all(side: Sequence[Server], plain: Sequence[Server], voters: Sequence[Server]) -> None:
    """Stop registry and Connect (they are clients), then plain brokers, then the controllers.

    Plain brokers hand over their leaderships while the quorum stands. The controllers are asked
    all at once: stopped one by one, the last would wait minutes for a quorum that is gone.
    """
    deadline = Deadline(SECONDS_TO_STOP)
    for server in (*side, *plain, *voters):
        server.signal(signal.SIGCONT)
    end(side, signal.SIGTERM, deadline.remaining(at_most=SECONDS_FOR_SIDE_SERVERS))
    end(plain, signal.SIGTERM, deadline.remaining(at_most=SECONDS_FOR_PLAIN_BROKERS))
    _stop_voters(voters, deadline)
    end([*side, *plain, *voters], signal.SIGKILL, SECONDS_TO_DIE)


def _stop_voters(voters: Sequence[Server], deadline: Deadline) -> None:
    """Ask all, and return when each has ended or has nothing left to do.

    1. Each node shuts its broker down: leaderships, log flush, the mark of a clean stop.
    2. Then its controller. The leader of the quorum wants a successor and waits five seconds for
       the votes of nodes that have already ended.
    So a node that has finished 1 while no quorum is left may be ended at once: its data is safe.
    """
    log_ends = {server.node: server.log_size() for server in voters}
    running = {process: server for server in voters if (process := server.find())}
    end(voters, signal.SIGTERM, 0)
    while running and not deadline.expired:
        alive = wait_for_end(running, deadline.remaining(at_most=0.1))
        running = {process: running[process] for process in alive}
        no_quorum = len(running) <= len(voters) / 2
        if no_quorum and all(
            server.logged_since(log_ends[server.node], "[BrokerServer id=", "shut down completed")
            for server in running.values()
        ):
            return
