"""What a local cluster is made of, as plain data: cluster.json in its folder.

The file is the cluster's identity. Its `cluster_id` is random and stands on the command line of
every server of the cluster, so a process is recognised by what it is, never by a pid alone.
"""

import base64
import json
import re
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from headrace.errors import BadInput, ForeignData
from headrace.local.files import write_atomically

KAFKA_VERSION = "4.3.1"
LAYOUT = 1
MAX_BROKERS = 9
FILE_NAME = "cluster.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,47}")


@dataclass(frozen=True)
class BrokerSpec:
    """One broker. Those with a controller port are voters of the controller quorum too."""

    id: int
    port: int
    controller_port: int | None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def ports(self) -> list[int]:
        return [port for port in (self.port, self.controller_port) if port is not None]


@dataclass(frozen=True)
class Owner:
    """The process a short-lived cluster belongs to; when it is gone, so may the cluster be."""

    pid: int
    started: float


@dataclass(frozen=True)
class ClusterSpec:
    """A whole cluster as it should be."""

    name: str
    cluster_id: str
    kafka_version: str
    brokers: tuple[BrokerSpec, ...]
    fixed_ports: bool = False
    registry_port: int | None = None
    connect_port: int | None = None
    owner: Owner | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def replication(self) -> int:
        """What internal topics and new topics get: three copies where there are three brokers."""
        return min(3, len(self.brokers))

    @property
    def ports(self) -> list[int]:
        of_brokers = [port for broker in self.brokers for port in broker.ports]
        return [p for p in (*of_brokers, self.registry_port, self.connect_port) if p is not None]

    def with_(self, **changes: Any) -> Self:
        return replace(self, **changes)


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """A cluster's name becomes a folder's name, so it is kept plain."""
    if not is_name(name):
        raise BadInput(
            f"{name!r} cannot be a cluster's name",
            hint="use up to 48 lower-case letters, digits, dots, dashes and underscores",
            name=name,
        )
    return name


def check_broker_count(count: int) -> int:
    if not 1 <= count <= MAX_BROKERS:
        raise BadInput(
            f"a local cluster has 1 to {MAX_BROKERS} brokers, not {count}",
            hint=f"give --brokers a number from 1 to {MAX_BROKERS}",
            brokers=count,
        )
    return count


def check_port(port: int | None, brokers: int) -> int | None:
    if port is not None and not 1 <= port <= 65_536 - brokers:
        raise BadInput(
            f"{port} cannot be the first of {brokers} ports",
            hint="use one from 1024 to 65000",
            port=port,
        )
    return port


def new_cluster_id() -> str:
    """A Kafka uuid: 16 random bytes in URL-safe base64, not beginning with a dash."""
    while True:
        text = base64.urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def controller_count(brokers: int) -> int:
    """How many brokers are controllers too: an odd number, so that each one adds safety.

    Two controllers need both to be alive, which is worse than one; four survive no more losses
    than three.
    """
    return min(5, brokers if brokers % 2 else brokers - 1)


def save(folder: Path, spec: ClusterSpec) -> None:
    document = {"layout": LAYOUT, **asdict(spec)}
    write_atomically(folder / FILE_NAME, json.dumps(document, indent=2) + "\n")


def load(folder: Path) -> ClusterSpec | None:
    """The cluster in this folder; None if there is none."""
    path = folder / FILE_NAME
    try:
        document = json.loads(path.read_text("utf-8"))
        layout = document.pop("layout")
        if layout == LAYOUT:
            return _from_document(document)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ForeignData(
            f"{path} is damaged: {error}",
            hint=f"remove the folder {folder} to begin anew (its data is lost with it)",
            path=str(path),
        ) from error
    except OSError as error:
        raise ForeignData(
            f"{path} cannot be read: {error.strerror}", hint="check its permissions", path=str(path)
        ) from error
    raise ForeignData(
        f"{folder} was written by another version of Headrace (layout {layout}, not {LAYOUT})",
        hint="use that version, or choose another --name",
        path=str(path),
        layout=layout,
    )


def require_same_kafka(spec: ClusterSpec, folder: Path) -> None:
    """Data of one Kafka version is not handed to another unasked: going back is not possible."""
    if spec.kafka_version != KAFKA_VERSION:
        raise ForeignData(
            f"cluster {spec.name!r} holds data of Kafka {spec.kafka_version}, "
            f"this Headrace runs Kafka {KAFKA_VERSION}",
            hint="choose another --name, or give up its data with --fresh",
            path=str(folder),
            version=spec.kafka_version,
        )


def _from_document(document: dict[str, Any]) -> ClusterSpec:
    brokers = tuple(BrokerSpec(**broker) for broker in document.pop("brokers"))
    owner = document.pop("owner")
    return ClusterSpec(brokers=brokers, owner=Owner(**owner) if owner else None, **document)
