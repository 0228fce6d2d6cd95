"""How a local cluster stands, as plain data: what `headrace status -o json` prints."""

import contextlib
from dataclasses import dataclass
from typing import Any

import psutil

from headrace.local.processes import Server, State
from headrace.local.spec import BrokerSpec


@dataclass(frozen=True)
class ServerStatus:
    """One server process. `memory` is its resident memory in bytes."""

    node: str
    port: int
    pid: int | None
    state: State
    memory: int | None


@dataclass(frozen=True)
class BrokerStatus(ServerStatus):
    """One broker, with its id and whether it is a voter of the controller quorum."""

    id: int
    controller: bool


@dataclass(frozen=True)
class ClusterStatus:
    """A cluster and all its servers."""

    name: str
    bootstrap: str
    brokers: tuple[BrokerStatus, ...]
    registry: str | None
    connect: str | None
    services: tuple[ServerStatus, ...]
    data_dir: str
    kafka_version: str

    @property
    def running(self) -> bool:
        """At least one broker runs."""
        return any(broker.state is State.RUNNING for broker in self.brokers)

    @property
    def healthy(self) -> bool:
        """Every server runs."""
        return all(s.state is State.RUNNING for s in (*self.brokers, *self.services))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "bootstrap": self.bootstrap,
            "brokers": [
                {
                    "id": b.id,
                    "pid": b.pid,
                    "port": b.port,
                    "state": b.state.value,
                    "controller": b.controller,
                    "memory": b.memory,
                }
                for b in self.brokers
            ],
            "registry": self.registry,
            "connect": self.connect,
            "services": [
                {"node": s.node, "pid": s.pid, "port": s.port, "state": s.state.value}
                for s in self.services
            ],
            "data_dir": self.data_dir,
            "kafka_version": self.kafka_version,
        }


def server_status(at: Server, port: int) -> ServerStatus:
    """How one server stands now."""
    process = at.find()
    memory = None
    if process is not None:
        with contextlib.suppress(psutil.Error):
            memory = process.memory_info().rss
    return ServerStatus(at.node, port, process.pid if process else None, at.state, memory)


def broker_status(at: Server, broker: BrokerSpec) -> BrokerStatus:
    common = server_status(at, broker.port)
    return BrokerStatus(**vars(common), id=broker.id, controller=broker.controller_port is not None)
