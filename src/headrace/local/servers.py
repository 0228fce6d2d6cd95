"""How each kind of server is prepared and started: broker, registry, Connect worker."""

import contextlib
import os
import secrets
import shutil
import subprocess
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ClusterError, ServerDied
from headrace.local import properties
from headrace.local.artifacts import Artifact, Store, lock_digest, read_lock, require_room
from headrace.local.class_archive import ClassArchive
from headrace.local.files import write_atomically
from headrace.local.java import Java, bundled_java, java_environment
from headrace.local.processes import Server, find_cause, mark
from headrace.local.spec import BrokerSpec, ClusterSpec
from headrace.model import Deadline
from headrace.observe import Progress

# Measured with three brokers under load: 512 MB of heap are never filled on one machine, and the
# serial collector needs the least memory and the fewest threads.
BROKER_HEAP = "384m"
REGISTRY_HEAP = "384m"
CONNECT_HEAP = "256m"
ROOM_FOR_DATA = 100 << 20
REGISTRY_API = "/apis/ccompat/v7"
_BESIDE = "data.new"


@dataclass(frozen=True)
class Kafka:
    """Kafka's jars on the bundled Java, ready to run."""

    java: Java
    jars: Sequence[Path]
    archive: ClassArchive

    @classmethod
    def prepare(cls, cache: Path, progress: Progress) -> "Kafka":
        """Fetch and verify what is needed."""
        artifacts = read_lock("kafka")
        jars = Store(cache, progress=progress).fetch(artifacts, "Apache Kafka")
        java = bundled_java()
        return cls(java, jars, ClassArchive(cache, java, jars, lock_digest(artifacts)))

    def command(self, main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """A command line for one of Kafka's own programs."""
        class_path = os.pathsep.join(map(str, self.jars))
        return [
            str(self.java.executable),
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            *self.archive.options,
            *options,
            "-cp",
            class_path,
            main,
            *arguments,
        ]

    def run(self, main: str, *arguments: str, seconds: float, stdin: str = "") -> str:
        """Run a program to its end; returns what it printed, logging left out."""
        try:
            done = subprocess.run(
                self.command(main, *arguments, options=["-Dlog4j2.level=ERROR", "-Xmx512m"]),
                input=stdin,
                capture_output=True,
                text=True,
                encoding="utf-8",
                timeout=seconds,
                check=True,
                env=java_environment(),
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(
                f"{main} did not end within {seconds:.0f} s", hint="is the cluster healthy?"
            ) from error
        except subprocess.CalledProcessError as error:
            cause = find_cause((error.stderr or error.stdout).splitlines())
            raise ClusterError(f"{main} failed: {cause}", hint="see its arguments") from error
        return done.stdout


def server(folder: Path, spec: ClusterSpec, node: str) -> Server:
    return Server(node, folder / node, mark(spec.cluster_id, node))


def broker_server(folder: Path, spec: ClusterSpec, broker: BrokerSpec) -> Server:
    return server(folder, spec, f"broker-{broker.id}")


def write_broker_files(spec: ClusterSpec, broker: BrokerSpec, at: Server) -> None:
    at.folder.mkdir(parents=True, exist_ok=True)
    settings = properties.broker_properties(spec, broker, at.folder / "data")
    write_atomically(at.folder / "server.properties", properties.render(settings))
    _write_log_settings(at)


def format_data(kafka: Kafka, spec: ClusterSpec, servers: Sequence[Server]) -> None:
    """Give each new broker its data folder, formatted by Kafka's own tool.

    The tool works on a folder beside the real one, which is renamed when it is whole: a data
    folder that exists is a formatted one, whatever happened. Its name is new each time: a tool
    whose caller was killed may still be at work on the one before.
    """
    new = [at for at in servers if not (at.folder / "data").exists()]
    if not new:
        return
    require_room(new[0].folder, ROOM_FOR_DATA * len(new))
    for at in new:
        _sweep(at)
    running: list[_Format] = []
    try:
        running.extend(_start_format(kafka, spec, at) for at in new)
        for each in running:
            each.finish()
    finally:
        for each in running:  # after a signal or a failure of one, the others still run
            each.end()


def _sweep(at: Server) -> None:
    for path in at.folder.glob(f"{_BESIDE}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Format:
    """The tool at work for a broker, on a folder beside its data."""

    at: Server
    beside: Path
    process: "subprocess.Popen[str]"

    def finish(self) -> None:
        output, _ = self.process.communicate()
        if self.process.returncode:
            raise ClusterError(
                f"the data folder of {self.at.node} could not be formatted: "
                f"{find_cause(output.splitlines())}",
                hint="check free space and permissions, then run `headrace up` again",
                node=self.at.node,
            )
        self.beside.rename(self.at.folder / "data")

    def end(self) -> None:
        with self.process:
            self.process.kill()
        _sweep(self.at)


def _start_format(kafka: Kafka, spec: ClusterSpec, at: Server) -> _Format:
    beside = at.folder / f"{_BESIDE}-{secrets.token_hex(4)}"
    broker = next(b for b in spec.brokers if at.node == f"broker-{b.id}")
    settings = properties.broker_properties(spec, broker, beside)
    given = at.folder / f"{beside.name}.properties"
    given.write_text(properties.render(settings))
    process = subprocess.Popen(
        kafka.command(
            "kafka.tools.StorageTool",
            *("format", "-t", spec.cluster_id, "-c", str(given)),
            options=[*_log_option(at), "-XX:TieredStopAtLevel=1"],
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=java_environment(),
    )
    return _Format(at, beside, process)


def spawn_broker(kafka: Kafka, at: Server, *, learn_classes: bool = False) -> None:
    options = [at.mark, f"-Xmx{BROKER_HEAP}", *_common_options(at)]
    if learn_classes:
        options += kafka.archive.learning_options
    at.spawn(
        kafka.command("kafka.Kafka", str(at.folder / "server.properties"), options=options),
        java_environment(),
    )


def spawn_registry(cache: Path, spec: ClusterSpec, at: Server, progress: Progress) -> None:
    (artifact,) = read_lock("registry")
    unpacked = Store(cache, progress=progress).unpack(artifact)
    at.folder.mkdir(parents=True, exist_ok=True)
    java = bundled_java()
    at.spawn(
        [
            str(java.executable),
            at.mark,
            f"-Xmx{REGISTRY_HEAP}",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            *properties.registry_options(spec, at.folder / "registry"),
            "-jar",
            str(unpacked / "quarkus-run.jar"),
        ],
        java_environment(),
    )


def spawn_connect(kafka: Kafka, spec: ClusterSpec, at: Server) -> None:
    at.folder.mkdir(parents=True, exist_ok=True)
    plugins = at.folder / "plugins"
    _lay_out_plugins(kafka, plugins)
    settings = properties.connect_properties(spec, plugins)
    write_atomically(at.folder / "connect.properties", properties.render(settings))
    _write_log_settings(at)
    at.spawn(
        kafka.command(
            "org.apache.kafka.connect.cli.ConnectDistributed",
            str(at.folder / "connect.properties"),
            options=[at.mark, f"-Xmx{CONNECT_HEAP}", *_common_options(at)],
        ),
        java_environment(),
    )


def wait_for_http(at: Server, address: str, seconds: float) -> None:
    """Return once the address answers with success; the registry and Connect speak HTTP."""
    for _ in Deadline(seconds).polls(every=0.2):
        at.require_alive()
        with (
            contextlib.suppress(OSError),
            # No proxy: this never leaves the machine.
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=5),
        ):
            return
    raise ServerDied(
        f"{at.node} did not answer at {address} within {seconds:.0f} s: {at.last_words()}",
        hint=f"read {at.log if at.log.exists() else at.console}",
        node=at.node,
    )


def registry_address(spec: ClusterSpec) -> str:
    """What Confluent-compatible clients take as the registry's address."""
    return f"http://{properties.HOST}:{spec.registry_port}{REGISTRY_API}"


def connect_address(spec: ClusterSpec) -> str:
    return f"http://{properties.HOST}:{spec.connect_port}"


def connect_plugins(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """The connectors that come along: Kafka's own file source and sink."""
    return [artifact for artifact in artifacts if artifact.name == "connect-file"]


def _lay_out_plugins(kafka: Kafka, plugins: Path) -> None:
    """A folder per plugin with its jar, as Connect wants it. Users may add their own beside it."""
    names = {artifact.file_name for artifact in connect_plugins(read_lock("kafka"))}
    for jar in kafka.jars:
        if jar.name in names:
            folder = plugins / jar.stem
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(jar, folder / jar.name)


def _common_options(at: Server) -> list[str]:
    return ["-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true", *_log_option(at)]


def _log_option(at: Server) -> list[str]:
    return [f"-Dlog4j2.configurationFile={at.folder / 'log4j2.properties'}"]


def _write_log_settings(at: Server) -> None:
    settings = properties.log_properties(at.log)
    write_atomically(at.folder / "log4j2.properties", properties.render(settings))
