"""Which cluster is meant, and the settings every client of it needs.

First match wins: a profile by name (of headrace.toml, else a local cluster of that name), what
`headrace run` told this process, the variable HEADRACE_BOOTSTRAP, the default profile of
headrace.toml, the running local cluster.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from headrace.config import find_profile_file, load_profile
from headrace.config.profiles import Profile
from headrace.errors import ConfigError
from headrace.local import local_clusters, running_cluster

# librdkafka's own log lines go here; silent unless the application configures logging.
client_logger = logging.getLogger("headrace.kafka")
client_logger.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Connection:
    """A cluster's address and client settings; secrets stay wrapped until a client is made."""

    bootstrap: str
    registry: str | None = None
    settings: Mapping[str, str | int | float | bool | SecretStr] = field(default_factory=dict)
    source: str = "given"

    def client_settings(self, **more: Any) -> dict[str, Any]:
        """What confluent-kafka takes. Names in `more` use underscores for dots."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": "headrace",
            # A broker that comes back is found again within half a second.
            "reconnect.backoff.max.ms": 500,
            "logger": client_logger,
        }
        for name, value in self.settings.items():
            settings[name] = value.get_secret_value() if isinstance(value, SecretStr) else value
        settings.update({name.replace("_", "."): value for name, value in more.items()})
        return settings


_by_default: list[Connection] = []


def use_by_default(connection: Connection) -> None:
    """What is meant in this process whenever no profile is named."""
    _by_default[:] = [connection]


def default_connection() -> Connection | None:
    """What `use_by_default` was given, for processes that this one starts."""
    return _by_default[0] if _by_default else None


def resolve(profile: str | None = None, environment: Mapping[str, str] = os.environ) -> Connection:
    """The connection that is meant; see the module's docstring for the order."""
    if profile is not None:
        return _named(profile, environment)
    if (connection := default_connection()) is not None:
        return connection
    if bootstrap := environment.get("HEADRACE_BOOTSTRAP"):
        return Connection(
            bootstrap, environment.get("HEADRACE_REGISTRY"), source="HEADRACE_BOOTSTRAP"
        )
    if found := load_profile(None):
        return _from_profile(found, str(find_profile_file()), environment)
    return _local(None)


def _named(name: str, environment: Mapping[str, str]) -> Connection:
    if found := load_profile(name):
        return _from_profile(found, f"profile {name!r}", environment)
    if name in {cluster.name for cluster in local_clusters()}:
        return _local(name)
    file = find_profile_file()
    raise ConfigError(
        f"there is no profile and no local cluster {name!r}",
        hint=f"add [profiles.{name}] to {file or 'headrace.toml'}, "
        f"or start it with `headrace up --name {name}`",
        profile=name,
    )


def _from_profile(profile: Profile, source: str, environment: Mapping[str, str]) -> Connection:
    return Connection(
        profile.bootstrap, profile.registry, profile.client_settings(environment), source
    )


def _local(name: str | None) -> Connection:
    status = running_cluster(name)
    return Connection(status.bootstrap, status.registry, source=f"local cluster {status.name!r}")
