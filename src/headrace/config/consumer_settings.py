"""A consumer's settings: a profile, what the user gave, and every contradiction named. Pure."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from headrace.errors import ConfigError

ConsumerProfile = Literal["balanced", "throughput", "latency", "small"]
Assignor = Literal["cooperative-sticky", "range", "roundrobin", "server"]

_COMMON: dict[str, Any] = {
    "enable.auto.commit": False,  # the engine commits what is finished
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # the engine decides, and says so
    "allow.auto.create.topics": False,
    "topic.metadata.refresh.interval.ms": 30_000,  # new partitions are found within this time
    # A partition that is new or resumed waits for the end of a fetch that found nothing elsewhere.
    "fetch.wait.max.ms": 100,
    # With its queue full librdkafka waits so long before it fetches again; its default is a second.
    "fetch.queue.backoff.ms": 20,
}

PROFILES: dict[str, dict[str, Any]] = {
    # A record is sent as soon as it is there; a backlog is fetched in large pieces.
    "balanced": {
        **_COMMON,
        "fetch.min.bytes": 1,
        # Compressed: what is fetched can be ten times as much, and small records take twice that.
        "max.partition.fetch.bytes": 262_144,
        "queued.min.messages": 20_000,
        "queued.max.messages.kbytes": 8_192,
    },
    # The broker gathers 64 kB or waits 50 ms: fewer, larger answers.
    "throughput": {
        **_COMMON,
        "fetch.min.bytes": 65_536,
        "fetch.wait.max.ms": 50,
        "max.partition.fetch.bytes": 4_194_304,
        "queued.min.messages": 100_000,
        "queued.max.messages.kbytes": 65_536,
    },
    # Nothing waits for company, neither at the broker nor in TCP; little is fetched ahead.
    "latency": {
        **_COMMON,
        "fetch.min.bytes": 1,
        "fetch.queue.backoff.ms": 1,
        "socket.nagle.disable": True,
        "queued.min.messages": 1_000,
        "queued.max.messages.kbytes": 4_096,
    },
    # For many consumers on little memory: 2 MB fetched ahead, at most.
    "small": {
        **_COMMON,
        "fetch.min.bytes": 1,
        "fetch.max.bytes": 1_048_576,
        "max.partition.fetch.bytes": 262_144,
        "queued.min.messages": 500,
        "queued.max.messages.kbytes": 2_048,
    },
}

# What the engine answers for, and where it is said instead.
_ELSEWHERE = {
    "bootstrap.servers": "the connection",
    "group.id": "group=...",
    "group.instance.id": "instance_id=...",
    "group.protocol": 'assignor="server"',
    "partition.assignment.strategy": "assignor=...",
    "auto.offset.reset": "start=...",
    "enable.auto.commit": "offsets=...",
    "enable.auto.offset.store": "offsets=...",
    "auto.commit.interval.ms": "offsets=...",
    "enable.partition.eof": "nothing: the engine needs it",
}
# With the server's protocol these are the broker's business.
_SERVER_DECIDES = ("session.timeout.ms", "heartbeat.interval.ms")


def consumer_settings(
    profile: str,
    given: Mapping[str, Any],
    *,
    group: str,
    assignor: str = "cooperative-sticky",
    instance_id: str | None = None,
) -> dict[str, Any]:
    """The settings of a profile with the user's own over them; raises ConfigError."""
    _check_choice("consumer profile", profile, get_args(ConsumerProfile))
    _check_choice("assignor", assignor, get_args(Assignor))
    for name in given:
        if name in _ELSEWHERE:
            raise ConfigError(
                f"the setting {name}={given[name]} is not the user's to give",
                hint=f"it is said by {_ELSEWHERE[name]}",
                setting=name,
            )
    settings = PROFILES[profile] | dict(given) | {"group.id": group} | _grouping(assignor, given)
    if instance_id is not None:
        settings["group.instance.id"] = instance_id
    return settings


def _grouping(assignor: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if assignor != "server":
        return {"partition.assignment.strategy": assignor}
    for name in _SERVER_DECIDES:
        if name in given:
            raise ConfigError(
                f'{name}={given[name]} and assignor="server" contradict each other: '
                "with the server's protocol the broker decides it",
                hint=f"leave {name} out, or use another assignor",
                settings=[name, "assignor"],
            )
    return {"group.protocol": "consumer"}


def _check_choice(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise ConfigError(f"there is no {what} {given!r}", hint=f"use {', '.join(known)}")
