"""A real Apache Kafka cluster on this machine.

`up` is a protocol that can be cut at any point and run again:

1. Take the cluster's lock. Two commands at once become one after the other.
2. Read cluster.json, or choose ports and write it. From here on the cluster has an identity.
3. Fetch and verify the jars.
4. Write each broker's settings; format data folders that are not there yet.
5. Start every server that does not run, known by its mark and not by a pid (processes.py).
6. Wait until the cluster counts all its brokers, a record was written to and read from each, and
   every replica is in sync again.
7. Start the registry and the Connect worker, and wait until they answer.

If a step fails, the servers that this call started are stopped, and a cluster that this call made
is removed: nothing is left half done.
"""

import contextlib
import secrets
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from headrace.config import Places
from headrace.errors import (
    ClusterError,
    HeadraceError,
    NoCluster,
    PortInUse,
    ServerDied,
    UnknownBroker,
)
from headrace.local import ports, servers
from headrace.local.files import exclusive, make_folder
from headrace.local.logs import keep_logs
from headrace.local.planning import Plan
from headrace.local.probe import prove_serving, wait_for_brokers, wait_until_in_sync
from headrace.local.processes import Server, State, end
from headrace.local.spec import (
    KAFKA_VERSION,
    BrokerSpec,
    ClusterSpec,
    Owner,
    check_broker_count,
    check_name,
    check_port,
    is_name,
    load,
    require_same_kafka,
    save,
)
from headrace.local.status import ClusterStatus, broker_status, server_status
from headrace.local.stopping import SECONDS_TO_DIE, stop_all, stop_one
from headrace.model import Deadline
from headrace.observe import Progress, Silent

DEFAULT_NAME = "default"
SECONDS_TO_SERVE = 90


class LocalCluster:
    """A Kafka cluster on this machine, from 1 to 9 brokers.

    Without a name it lives as long as the `with` block and leaves nothing behind:

    >>> with LocalCluster(brokers=3) as cluster:          # doctest: +SKIP
    ...     cluster.kill(1)
    ...     cluster.start(1)
    ...     cluster.bootstrap
    '127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094'

    With a name it is the cluster that `headrace up --name NAME` starts, and its data stays.
    """

    def __init__(
        self,
        brokers: int | None = None,
        *,
        name: str | None = None,
        registry: bool = False,
        connect: bool = False,
        port: int | None = None,
        places: Places | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._wanted_brokers = None if brokers is None else check_broker_count(brokers)
        self._short_lived = name is None
        self.name = check_name(name or f"short-lived-{secrets.token_hex(4)}")
        self._registry = registry
        self._connect = connect
        self._port = check_port(port, brokers or 1)
        self._places = places or Places.from_environment()
        self._progress: Progress = progress or Silent()
        self.folder = self._places.clusters / self.name

    # --- the whole cluster ---

    def up(self, *, fresh: bool = False) -> ClusterStatus:
        """Start what does not run; returns once records can be written and read."""
        make_folder(self._places.clusters)
        if self._short_lived:
            sweep(self._places)
        with self._locked():
            if fresh:
                self._remove()
            made_here = load(self.folder) is None
            started: list[Server] = []
            try:
                self._bring_up(started)
            except BaseException as error:
                self._undo(started, made_here, error)
                if isinstance(error, OSError):
                    raise self._storage_error(error) from error
                raise
        return self.status()

    def down(self, *, wipe: bool = False) -> None:
        """Stop all servers in order, at the latest after ten seconds; `wipe` removes the data."""
        if not self.folder.is_dir():
            raise self._not_found()
        with self._locked():
            if wipe:
                self._remove()
            else:
                self._stop_all()

    def status(self) -> ClusterStatus:
        """Every server of the cluster with its pid, port and state."""
        spec = self.spec
        return ClusterStatus(
            name=self.name,
            bootstrap=spec.bootstrap,
            brokers=tuple(broker_status(self._server_of(spec, b), b) for b in spec.brokers),
            registry=servers.registry_address(spec) if spec.registry_port else None,
            connect=servers.connect_address(spec) if spec.connect_port else None,
            services=tuple(server_status(at, port) for at, port in self._side_servers(spec)),
            data_dir=str(self.folder),
            kafka_version=spec.kafka_version,
        )

    @property
    def spec(self) -> ClusterSpec:
        spec = load(self.folder)
        if spec is None:
            raise self._not_found()
        return spec

    @property
    def bootstrap(self) -> str:
        """Addresses for clients."""
        return self.spec.bootstrap

    @property
    def registry(self) -> str | None:
        """The registry's address for Confluent-compatible clients, if there is a registry."""
        spec = self.spec
        return servers.registry_address(spec) if spec.registry_port else None

    @property
    def connect(self) -> str | None:
        """The address of the Connect worker's REST interface, if there is one."""
        spec = self.spec
        return servers.connect_address(spec) if spec.connect_port else None

    def data_folder(self, broker_id: int) -> Path:
        """Where a broker keeps its partitions, a folder each."""
        return self._broker(broker_id).folder / "data"

    def run_tool(self, main: str, *arguments: str, seconds: float = 120, stdin: str = "") -> str:
        """Run one of Kafka's own Java programs to its end; returns what it printed."""
        kafka = servers.Kafka.prepare(self._places.cache, self._progress)
        return kafka.run(main, *arguments, seconds=seconds, stdin=stdin)

    def log_of(self, server: str) -> Path:
        """Where a server logs: a broker's id, `registry` or `connect`."""
        if server.isdigit():
            return self._broker(int(server)).log
        for at, _ in self._side_servers(self.spec):
            if at.node == server:
                return at.log if at.log.exists() else at.console
        raise UnknownBroker(
            f"cluster {self.name!r} has no server {server!r}",
            hint="give a broker's id, or start one with `headrace up --registry --connect`",
        )

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down(wipe=self._short_lived)

    # --- single brokers: the faults ---

    def stop(self, broker_id: int) -> None:
        """Orderly stop: the broker hands its leaderships over first."""
        at = self._broker(broker_id)
        with self._locked():
            if not stop_one(at):
                self._progress.warn(f"{at.node} did not stop in time and was killed")

    def kill(self, broker_id: int) -> None:
        """SIGKILL: what a crash looks like."""
        end([self._broker(broker_id)], signal.SIGKILL, SECONDS_TO_DIE)

    def pause(self, broker_id: int) -> None:
        """SIGSTOP: alive, but silent, as in a long garbage collection or a network cut."""
        self._signal_until(broker_id, signal.SIGSTOP, State.PAUSED)

    def resume(self, broker_id: int) -> None:
        """SIGCONT after a pause."""
        self._signal_until(broker_id, signal.SIGCONT, State.RUNNING)

    def start(self, broker_id: int) -> None:
        """Start a broker that was stopped or killed, or resume a paused one.

        Returns once the broker serves and its replicas are in sync, so that the next broker can be
        stopped without dropping below `min.insync.replicas`.
        """
        at = self._broker(broker_id)
        with self._locked():
            spec = self.spec
            require_same_kafka(spec, self.folder)
            broker = next(b for b in spec.brokers if b.id == broker_id)
            if at.find() is None:
                ports.require_free(broker.ports)
                kafka = servers.Kafka.prepare(self._places.cache, self._progress)
                servers.write_broker_files(spec, broker, at)
                servers.spawn_broker(kafka, at)
            at.signal(signal.SIGCONT)
            if not self._has_quorum(spec):
                self._progress.warn(
                    f"{at.node} runs, but too few controllers do: start another broker as well"
                )
                return
            self._wait_until_serving(spec, [broker], at.require_alive)

    # --- the steps of `up` ---

    def _bring_up(self, started: list[Server]) -> None:
        with exclusive(self._places.clusters / ".ports.lock", "ports", self._progress):
            spec = self._plan().settle(load(self.folder))  # 2
            make_folder(self.folder)
            save(self.folder, spec)
        try:
            kafka = servers.Kafka.prepare(self._places.cache, self._progress)  # 3
            brokers = self._start_brokers(kafka, spec, started)  # 4, 5
            self._progress.step("waiting until records can be written and read")
            self._wait_until_serving(spec, spec.brokers, lambda: _require_all_alive(brokers))  # 6
            self._start_side_servers(kafka, spec, started)  # 7
        finally:
            ports.release(spec.ports)
        kafka.archive.write(self._progress)

    def _plan(self) -> Plan:
        return Plan(
            name=self.name,
            folder=self.folder,
            brokers=self._wanted_brokers,
            port=self._port,
            registry=self._registry,
            connect=self._connect,
            short_lived=self._short_lived,
            taken=_ports_of_others(self._places, self.name),
            progress=self._progress,
        )

    def _start_brokers(
        self, kafka: servers.Kafka, spec: ClusterSpec, started: list[Server]
    ) -> list[Server]:
        all_brokers = [self._server_of(spec, broker) for broker in spec.brokers]
        idle = [at for at in all_brokers if at.find() is None]
        for broker, at in zip(spec.brokers, all_brokers, strict=True):
            if at in idle:
                servers.write_broker_files(spec, broker, at)
            at.signal(signal.SIGCONT)  # a paused broker is to serve again
        if idle:
            brokers = "1 broker" if len(idle) == 1 else f"{len(idle)} brokers"
            self._progress.step(f"starting {brokers} of Kafka {KAFKA_VERSION}")
        servers.format_data(kafka, spec, idle)
        for at in idle:
            started.append(at)
            servers.spawn_broker(kafka, at, learn_classes=at is idle[0])
        return all_brokers

    def _wait_until_serving(
        self, spec: ClusterSpec, brokers: Sequence[BrokerSpec], still_alive: Callable[[], None]
    ) -> None:
        deadline = Deadline(SECONDS_TO_SERVE)
        ids = [broker.id for broker in brokers]
        wait_for_brokers({broker.id: broker.address for broker in brokers}, deadline, still_alive)
        prove_serving(spec.bootstrap, ids, deadline)
        if behind := wait_until_in_sync(spec.bootstrap, ids, deadline):
            self._progress.warn(
                f"the brokers serve, but {behind} replicas are still out of sync: until they catch "
                "up, stopping another broker can block writes"
            )

    def _start_side_servers(
        self, kafka: servers.Kafka, spec: ClusterSpec, started: list[Server]
    ) -> None:
        registry = servers.server(self.folder, spec, "registry")
        connect = servers.server(self.folder, spec, "connect")
        if spec.registry_port and registry.find() is None:
            self._progress.step("starting the schema registry")
            started.append(registry)
            servers.spawn_registry(self._places.cache, spec, registry, self._progress)
        if spec.connect_port and connect.find() is None:
            self._progress.step("starting the Connect worker")
            started.append(connect)
            servers.spawn_connect(kafka, spec, connect)
        if spec.registry_port:
            address = f"{servers.registry_address(spec)}/subjects"
            servers.wait_for_http(registry, address, SECONDS_TO_SERVE)
        if spec.connect_port:
            address = f"{servers.connect_address(spec)}/connectors"
            servers.wait_for_http(connect, address, SECONDS_TO_SERVE)

    def _undo(self, started: Sequence[Server], made_here: bool, error: BaseException) -> None:
        end(started, signal.SIGKILL, SECONDS_TO_DIE)
        if not made_here:
            return
        kept = self._places.home / "last-failure" / self.name
        keep_logs(self.folder, kept)
        self._remove()
        if isinstance(error, HeadraceError):  # the hint may name a log that has moved
            error.hint = error.hint.replace(str(self.folder), str(kept))

    # --- stopping ---

    def _stop_all(self) -> None:
        spec = load(self.folder)
        if spec is None:
            return
        brokers = [(b, self._server_of(spec, b)) for b in spec.brokers]
        stop_all(
            [at for at, _ in self._side_servers(spec)],
            [at for b, at in brokers if b.controller_port is None],
            [at for b, at in brokers if b.controller_port is not None],
        )

    def _remove(self) -> None:
        if not self.folder.is_dir():
            return
        with contextlib.suppress(ClusterError):  # damaged state does not stop a wipe
            self._stop_all()
        shutil.rmtree(self.folder)

    # --- small helpers ---

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # Beside the folder, not in it: a wipe must not remove the lock it holds.
        lock = self._places.clusters / f".{self.name}.lock"
        with exclusive(lock, f"cluster {self.name!r}", self._progress):
            yield

    def _server_of(self, spec: ClusterSpec, broker: BrokerSpec) -> Server:
        return servers.broker_server(self.folder, spec, broker)

    def _broker(self, broker_id: int) -> Server:
        spec = self.spec
        for broker in spec.brokers:
            if broker.id == broker_id:
                return self._server_of(spec, broker)
        known = ", ".join(str(broker.id) for broker in spec.brokers)
        raise UnknownBroker(
            f"cluster {self.name!r} has no broker {broker_id}",
            hint=f"its brokers are {known}",
            broker=broker_id,
        )

    def _require_running(self, broker_id: int) -> Server:
        at = self._broker(broker_id)
        if at.find() is None:
            raise ClusterError(
                f"{at.node} does not run", hint=f"start it with `headrace broker start {broker_id}`"
            )
        return at

    def _signal_until(self, broker_id: int, number: signal.Signals, state: State) -> None:
        """Signals take effect a moment later; return when this one has."""
        at = self._require_running(broker_id)
        at.signal(number)
        for _ in Deadline(SECONDS_TO_DIE).polls(every=0.01):
            if at.state is state:
                return

    def _has_quorum(self, spec: ClusterSpec) -> bool:
        voters = [b for b in spec.brokers if b.controller_port is not None]
        alive = [b for b in voters if self._server_of(spec, b).state is State.RUNNING]
        return len(alive) > len(voters) / 2

    def _side_servers(self, spec: ClusterSpec) -> list[tuple[Server, int]]:
        nodes = (("connect", spec.connect_port), ("registry", spec.registry_port))
        return [(servers.server(self.folder, spec, node), port) for node, port in nodes if port]

    def _not_found(self) -> NoCluster:
        others = ", ".join(cluster.name for cluster in local_clusters(self._places))
        known = f" (there is {others})" if others else ""
        option = "" if self.name == DEFAULT_NAME else f" --name {self.name}"
        return NoCluster(
            f"there is no cluster {self.name!r}{known}",
            hint=f"start it with `headrace up{option}`",
            name=self.name,
        )

    def _storage_error(self, error: OSError) -> ClusterError:
        return ClusterError(
            f"cluster {self.name!r} cannot keep its files in {self.folder}: "
            f"{error.strerror or error}",
            hint="free some space or fix the permissions, or set HEADRACE_HOME to another folder",
            path=str(self.folder),
        )


def local_clusters(places: Places | None = None) -> list[LocalCluster]:
    """All clusters of this machine's Headrace folder, running or not."""
    places = places or Places.from_environment()
    if not places.clusters.is_dir():
        return []
    return [
        LocalCluster(name=folder.name, places=places)
        for folder in sorted(places.clusters.iterdir())
        if (folder / "cluster.json").is_file() and is_name(folder.name)
    ]


def sweep(places: Places) -> None:
    """Stop and remove short-lived clusters whose owner died before it could."""
    for cluster in local_clusters(places):
        with contextlib.suppress(ClusterError):
            owner = cluster.spec.owner
            if owner is not None and not _alive(owner):
                cluster.down(wipe=True)


def running_cluster(name: str | None = None, places: Places | None = None) -> ClusterStatus:
    """The local cluster that is meant when none is named: `default`, else the only one running.

    Short-lived clusters belong to the program that made them and are never meant.
    """
    places = places or Places.from_environment()
    if name is not None:
        status = LocalCluster(name=name, places=places).status()
        if not status.running:
            raise NoCluster(
                f"cluster {name!r} is stopped", hint=f"start it with `headrace up --name {name}`"
            )
        return status
    running: list[ClusterStatus] = []
    for cluster in local_clusters(places):
        with contextlib.suppress(NoCluster):  # its owner may remove it while we look
            if cluster.spec.owner is None and (status := cluster.status()).running:
                running.append(status)
    for status in running:
        if status.name == DEFAULT_NAME or len(running) == 1:
            return status
    if running:
        names = ", ".join(status.name for status in running)
        raise NoCluster(
            f"several local clusters run: {names}", hint="say which with --profile NAME"
        )
    raise NoCluster(
        "no cluster was named and no local one runs",
        hint="start one with `headrace up`, or set HEADRACE_BOOTSTRAP",
    )


def _require_all_alive(brokers: Sequence[Server]) -> None:
    for at in brokers:
        _require_alive(at)


def _require_alive(at: Server) -> None:
    try:
        at.require_alive()
    except ServerDied as error:
        if "Address already in use" in error.message or "BindException" in error.message:
            raise PortInUse(
                f"{at.node} could not open its port: somebody else was faster",
                hint="run `headrace up` again, or choose ports with --port",
                node=at.node,
            ) from error
        raise


def _ports_of_others(places: Places, name: str) -> set[int]:
    """Ports of other clusters that run, those of their dead brokers included."""
    taken: set[int] = set()
    for cluster in local_clusters(places):
        with contextlib.suppress(ClusterError):
            if cluster.name != name and cluster.status().running:
                taken.update(cluster.spec.ports)
    return taken


def _alive(owner: Owner) -> bool:
    try:
        return abs(psutil.Process(owner.pid).create_time() - owner.started) < 2
    except psutil.Error:
        return False
