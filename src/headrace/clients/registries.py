"""The schema registry that belongs to a cluster."""

from headrace.clients.connection import Connection
from headrace.errors import ConfigError
from headrace.serde import Registry


def registry_of(connection: Connection) -> Registry:
    """The registry beside a cluster; one that has none is refused."""
    if connection.registry is None:
        raise ConfigError(
            f"there is no schema registry beside the cluster ({connection.source})",
            hint="start one with `headrace up --registry`, or name it: HEADRACE_REGISTRY with "
            "HEADRACE_BOOTSTRAP, or registry in headrace.toml",
        )
    return Registry(connection.registry)
