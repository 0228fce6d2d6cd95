"""Step 2 of `up`: what the cluster is to be, given what is wanted, what is there, what is free."""

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from headrace.errors import BadInput
from headrace.local import ports, servers
from headrace.local.spec import (
    KAFKA_VERSION,
    BrokerSpec,
    ClusterSpec,
    Owner,
    check_port,
    controller_count,
    new_cluster_id,
    require_same_kafka,
)
from headrace.observe import Progress


@dataclass(frozen=True)
class Plan:
    """The wishes of one `up`. `taken` are ports that belong to other clusters."""

    name: str
    folder: Path
    brokers: int | None
    port: int | None
    registry: bool
    connect: bool
    short_lived: bool
    taken: set[int]
    progress: Progress

    def settle(self, existing: ClusterSpec | None) -> ClusterSpec:
        """The cluster as it is to be, with ports that can be used."""
        spec = self._new() if existing is None else self._adapt(existing)
        return self._with_side_ports(spec)

    def _new(self) -> ClusterSpec:
        owner = Owner(os.getpid(), psutil.Process().create_time()) if self.short_lived else None
        return ClusterSpec(
            name=self.name,
            cluster_id=new_cluster_id(),
            kafka_version=KAFKA_VERSION,
            brokers=self._choose_ports(self.brokers or 1),
            fixed_ports=self.port is not None,
            owner=owner,
        )

    def _adapt(self, spec: ClusterSpec) -> ClusterSpec:
        """An existing cluster, checked against what is wanted and what is possible now."""
        require_same_kafka(spec, self.folder)
        if self.brokers not in (None, len(spec.brokers)):
            raise BadInput(
                f"cluster {self.name!r} has {len(spec.brokers)} brokers, not {self.brokers}",
                hint="choose another --name, or give up its data with --fresh",
                brokers=len(spec.brokers),
            )
        running = [b for b in spec.brokers if self._runs(spec, f"broker-{b.id}")]
        moves = self.port is not None and self.port != spec.brokers[0].port
        if not running:
            return self._repaired_ports(spec, moves)
        if moves:
            raise BadInput(
                f"cluster {self.name!r} runs on port {spec.brokers[0].port}",
                hint="stop it with `headrace down` first, then give it the new --port",
            )
        ports.require_free([port for b in spec.brokers if b not in running for port in b.ports])
        return spec

    def _repaired_ports(self, spec: ClusterSpec, moves: bool) -> ClusterSpec:
        """While nothing runs, ports may change: on request, or because a stranger took one."""
        busy = [port for b in spec.brokers for port in b.ports if not ports.is_free(port)]
        if not moves and not busy:
            return spec
        if busy and not moves:
            if spec.fixed_ports:
                ports.require_free(busy)
            self.progress.warn(
                f"port {busy[0]} is in use by somebody else, the cluster moves to other ports"
            )
        return spec.with_(
            brokers=self._choose_ports(len(spec.brokers)), fixed_ports=spec.fixed_ports or moves
        )

    def _choose_ports(self, count: int) -> tuple[BrokerSpec, ...]:
        if self.port is not None:
            check_port(self.port, count)
            client_ports = list(range(self.port, self.port + count))
            ports.require_free(client_ports)
        elif self.short_lived:
            # The usual ports are for the user's own cluster, which may come at any time.
            client_ports = ports.choose_free(count, self.taken)
        else:
            client_ports = ports.choose(ports.USUAL_BROKER_PORT, count, self.taken)
        voters = controller_count(count)
        controller_ports = ports.choose_free(voters, {*self.taken, *client_ports})
        return tuple(
            BrokerSpec(i + 1, client_ports[i], controller_ports[i] if i < voters else None)
            for i in range(count)
        )

    def _with_side_ports(self, spec: ClusterSpec) -> ClusterSpec:
        """Ports of registry and Connect: once wanted, they belong to the cluster."""
        registry, connect = spec.registry_port, spec.connect_port
        if self.registry or registry:
            registry = self._side_port(spec, "registry", registry, ports.USUAL_REGISTRY_PORT)
            spec = spec.with_(registry_port=registry)
        if self.connect or connect:
            connect = self._side_port(spec, "connect", connect, ports.USUAL_CONNECT_PORT)
            spec = spec.with_(connect_port=connect)
        return spec

    def _side_port(self, spec: ClusterSpec, node: str, current: int | None, usual: int) -> int:
        of_brokers = {port for broker in spec.brokers for port in broker.ports}
        if (
            current
            and current not in of_brokers
            and (self._runs(spec, node) or ports.is_free(current))
        ):
            return current
        taken = {*self.taken, *spec.ports}
        if self.short_lived:
            return ports.choose_free(1, taken)[0]
        return ports.choose(usual, 1, taken)[0]

    def _runs(self, spec: ClusterSpec, node: str) -> bool:
        return servers.server(self.folder, spec, node).find() is not None
