"""Headrace: event streams on Apache Kafka for Python, from a real cluster to proven promises.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.clients import (
        Admin,
        Connection,
        Interceptor,
        Producer,
        Reader,
        RoundRobin,
        Sticky,
        ToPartition,
    )
    from headrace.errors import HeadraceError
    from headrace.local import LocalCluster
    from headrace.model import Record, TopicPartition
    from headrace.parallel import (
        App,
        Auto,
        Batch,
        GapSafe,
        PerBatch,
        PerRecord,
        RebalanceListener,
    )
    from headrace.serde import Avro, Bytes, Double, Int, Json, Long, Registry, Serde, Text

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "App",
    "Auto",
    "Avro",
    "Batch",
    "Bytes",
    "Connection",
    "Double",
    "GapSafe",
    "HeadraceError",
    "Int",
    "Interceptor",
    "Json",
    "LocalCluster",
    "Long",
    "PerBatch",
    "PerRecord",
    "Producer",
    "Reader",
    "RebalanceListener",
    "Record",
    "Registry",
    "RoundRobin",
    "Serde",
    "Sticky",
    "Text",
    "ToPartition",
    "TopicPartition",
]

_HOMES = {
    "Admin": "headrace.clients",
    "App": "headrace.parallel",
    "Auto": "headrace.parallel",
    "Avro": "headrace.serde",
    "Batch": "headrace.parallel",
    "Bytes": "headrace.serde",
    "Connection": "headrace.clients",
    "Double": "headrace.serde",
    "GapSafe": "headrace.parallel",
    "HeadraceError": "headrace.errors",
    "Int": "headrace.serde",
    "Interceptor": "headrace.clients",
    "Json": "headrace.serde",
    "LocalCluster": "headrace.local",
    "Long": "headrace.serde",
    "PerBatch": "headrace.parallel",
    "PerRecord": "headrace.parallel",
    "Producer": "headrace.clients",
    "Reader": "headrace.clients",
    "RebalanceListener": "headrace.parallel",
    "Record": "headrace.model",
    "Registry": "headrace.serde",
    "RoundRobin": "headrace.clients",
    "Serde": "headrace.serde",
    "Sticky": "headrace.clients",
    "Text": "headrace.serde",
    "ToPartition": "headrace.clients",
    "TopicPartition": "headrace.model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
