"""What a newcomer's machine has, what it lacks, and the next step for each finding."""

import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from headrace.clients import Admin, Connection, resolve
from headrace.config import Places
from headrace.errors import HeadraceError, NoCluster
from headrace.local import ports, running_cluster
from headrace.local.artifacts import Store, read_lock, require_room
from headrace.local.files import make_folder
from headrace.local.java import bundled_java, system_java
from headrace.local.spec import KAFKA_VERSION


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `hint` is the next step where there is one."""

    check: str
    ok: bool
    detail: str
    hint: str = ""


def examine(profile: str | None = None) -> list[Finding]:
    """Look at everything; nothing is changed and nothing is fetched."""
    places = Places.from_environment()
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("python", _python),
        ("client", _client),
        ("java for the servers", _server_java),
        ("java for spark", _spark_java),
        ("kafka jars", lambda: _jars(places)),
        ("registry archive", lambda: _registry(places)),
        ("data folder", lambda: _folder(places)),
        ("disk", lambda: _disk(places)),
        ("ports", lambda: _ports(places)),
        ("connection", lambda: _connection(profile)),
    ]
    return [_guarded(name, check) for name, check in checks]


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except HeadraceError as error:
        return Finding(name, False, error.message, error.hint)
    except OSError as error:
        return Finding(name, False, str(error), "check HEADRACE_HOME and HEADRACE_CACHE")


def _python() -> Finding:
    running = platform.python_version()
    return Finding("python", sys.version_info >= (3, 11), f"{running} at {sys.executable}")


def _client() -> Finding:
    from confluent_kafka import libversion

    detail = f"confluent-kafka {version('confluent-kafka')}, librdkafka {libversion()[0]}"
    return Finding("client", True, detail)


def _server_java() -> Finding:
    java = bundled_java()
    return Finding("java for the servers", True, f"{java.version}, {java.source}")


def _spark_java() -> Finding:
    java = system_java() or bundled_java()
    return Finding("java for spark", True, f"{java.version}, {java.source}")


def _jars(places: Places) -> Finding:
    artifacts = read_lock("kafka")
    store = Store(places.cache)
    missing = store.missing(artifacts)
    damaged = [artifact.file_name for artifact in missing if store.path(artifact).exists()]
    if damaged:
        detail = f"{len(damaged)} of {len(artifacts)} are damaged: {', '.join(damaged[:3])}"
        return Finding("kafka jars", False, detail, "`headrace up` fetches them anew")
    if missing:
        size = sum(artifact.size for artifact in missing) / 1e6
        detail = f"{len(missing)} of {len(artifacts)} are not here yet ({size:,.0f} MB)"
        return Finding("kafka jars", True, detail, "`headrace up` fetches them")
    return Finding("kafka jars", True, f"all {len(artifacts)} of Kafka {KAFKA_VERSION}, verified")


def _registry(places: Places) -> Finding:
    (artifact,) = read_lock("registry")
    store = Store(places.cache)
    if store.is_unpacked(artifact) or store.has(artifact):
        return Finding("registry archive", True, f"Apicurio {artifact.version}")
    detail = f"Apicurio {artifact.version} is not here yet ({artifact.size / 1e6:,.0f} MB)"
    return Finding("registry archive", True, detail, "`headrace up --registry` fetches it")


def _folder(places: Places) -> Finding:
    make_folder(places.clusters)
    return Finding("data folder", True, str(places.home))


def _disk(places: Places) -> Finding:
    require_room(places.home, 500 << 20)
    free = shutil.disk_usage(places.home).free
    return Finding("disk", True, f"{free / 1e9:,.1f} GB free under {places.home}")


def _ports(places: Places) -> Finding:
    usual = ports.USUAL_BROKER_PORT
    if ports.is_free(usual):
        return Finding("ports", True, f"{usual} is free")
    try:
        status = running_cluster(places=places)
    except NoCluster:
        status = None
    if status is not None and any(broker.port == usual for broker in status.brokers):
        return Finding("ports", True, f"{usual} belongs to cluster {status.name!r}")
    detail = f"{usual} is in use{ports.by_whom(usual)}"
    return Finding("ports", True, detail, "`headrace up` takes other ports by itself")


def _connection(profile: str | None) -> Finding:
    try:
        connection = resolve(profile)
    except NoCluster as error:
        return Finding("connection", True, error.message, error.hint)
    return _reach(connection)


def _reach(connection: Connection) -> Finding:
    where = f"{connection.bootstrap} ({connection.source})"
    try:
        brokers = Admin(connection).brokers()
    except HeadraceError as error:
        return Finding("connection", False, f"{where}: {error.message}", error.hint)
    return Finding("connection", True, f"{where}: {len(brokers)} brokers answer")
