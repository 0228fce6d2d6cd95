"""Headrace: event streams on Apache Kafka for Python, from a real cluster to proven promises.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.clients import Admin, Connection, Producer, Reader
    from headrace.errors import HeadraceError
    from headrace.local import LocalCluster
    from headrace.model import Record, TopicPartition

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "Connection",
    "HeadraceError",
    "LocalCluster",
    "Producer",
    "Reader",
    "Record",
    "TopicPartition",
]

_HOMES = {
    "Admin": "headrace.clients",
    "Connection": "headrace.clients",
    "HeadraceError": "headrace.errors",
    "LocalCluster": "headrace.local",
    "Producer": "headrace.clients",
    "Reader": "headrace.clients",
    "Record": "headrace.model",
    "TopicPartition": "headrace.model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
