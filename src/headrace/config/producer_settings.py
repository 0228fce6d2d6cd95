"""A producer's settings: a profile, what the user gave, and every contradiction named. Pure."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from headrace.errors import ConfigError

ProducerProfile = Literal["durable", "throughput", "latency", "exactly-once"]

_SAFE: dict[str, Any] = {
    "enable.idempotence": True,  # no duplicates and no swapped records when a send is retried
    "acks": "all",
    "partitioner": "murmur2_random",  # a key goes where the Java client sends it
    "allow.auto.create.topics": False,
    "statistics.interval.ms": 1000,
}

PROFILES: dict[str, dict[str, Any]] = {
    # Nothing acknowledged is lost, order is kept; a short linger makes small batches.
    "durable": {**_SAFE, "linger.ms": 5, "compression.type": "lz4"},
    # Large batches that wait for company: the most records a second, still idempotent.
    "throughput": {
        **_SAFE,
        "linger.ms": 20,
        "batch.size": 512_000,
        "batch.num.messages": 20_000,
        "compression.type": "lz4",
        "queue.buffering.max.messages": 500_000,
    },
    # Each record leaves at once, and TCP does not wait for more either.
    "latency": {
        **_SAFE,
        "linger.ms": 0,
        "compression.type": "none",
        "socket.nagle.disable": True,
    },
    # Records become visible together, when their transaction commits.
    "exactly-once": {
        **_SAFE,
        # With several requests under way, librdkafka can count the first batches of a producer as
        # written though a broker refused them. A commit would not notice.
        "max.in.flight": 1,
        "linger.ms": 5,
        "compression.type": "lz4",
        "transaction.timeout.ms": 60_000,
    },
}

# librdkafka knows some settings by two names.
_ALIASES = {
    "request.required.acks": "acks",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "message.send.max.retries": "retries",
    "max.in.flight.requests.per.connection": "max.in.flight",
    "delivery.timeout.ms": "message.timeout.ms",
}


def producer_settings(
    profile: str, given: Mapping[str, Any], transactional_id: str | None = None
) -> dict[str, Any]:
    """The settings of a profile with the user's own over them; raises ConfigError."""
    if profile not in PROFILES:
        known = ", ".join(get_args(ProducerProfile))
        raise ConfigError(
            f"there is no producer profile {profile!r}", hint=f"use {known}", profile=profile
        )
    settings = PROFILES[profile] | _canonical(given)
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
    _check(profile, settings)
    return settings


def _canonical(given: Mapping[str, Any]) -> dict[str, Any]:
    """One name for each setting; the same one given twice with two values is refused."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        known = _ALIASES.get(name, name)
        if known in found and found[known] != value:
            raise ConfigError(
                f"{known} is given twice: {found[known]!r}, and {value!r} as {name}",
                hint="leave one of them out",
                setting=known,
            )
        found[known] = value
    return found


def _check(profile: str, settings: Mapping[str, Any]) -> None:
    idempotent = _true(settings.get("enable.idempotence"))
    acks = str(settings.get("acks", "all"))
    if idempotent and acks not in ("all", "-1"):
        raise _conflict("enable.idempotence", True, "acks", acks, "acks=all")
    if idempotent and int(settings.get("max.in.flight", 5)) > 5:
        raise _conflict(
            *("enable.idempotence", True, "max.in.flight", settings["max.in.flight"]),
            "at most 5 requests in flight",
        )
    if idempotent and int(settings.get("retries", 1)) == 0:
        raise _conflict("enable.idempotence", True, "retries", 0, "retries of 1 or more")
    transactional = settings.get("transactional.id")
    if transactional and not idempotent:
        raise _conflict(
            *("transactional.id", transactional, "enable.idempotence", False),
            "enable.idempotence=true",
        )
    if profile == "exactly-once" and not transactional:
        raise ConfigError(
            "profile 'exactly-once' needs a transactional id",
            hint="give transactional_id=..., one that this instance alone uses",
            profile=profile,
        )


def _conflict(one: str, value: Any, other: str, other_value: Any, needs: str) -> ConfigError:
    return ConfigError(
        f"{one}={_shown(value)} and {other}={_shown(other_value)} contradict each other: "
        f"{one} needs {needs}",
        hint=f"leave {other} out, or change {one}",
        settings=[one, other],
    )


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _true(value: Any) -> bool:
    return str(value).lower() in ("true", "1", "yes")
