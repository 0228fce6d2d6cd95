"""Topics: create, list, describe, alter, delete; checked before the cluster is asked."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.clients import Admin
from headrace.clients.admin import Partition
from headrace.errors import BadInput, TopicExists
from headrace.model import Earliest, Latest, TopicPartition

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True)
class TopicSummary:
    """One line of `topic list`."""

    name: str
    partitions: int
    replication: int
    under_replicated: int
    internal: bool


@dataclass(frozen=True)
class PartitionDetail:
    """One partition of `topic describe`; offsets are None while it has no leader."""

    id: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    earliest: int | None
    latest: int | None


@dataclass(frozen=True)
class TopicDetail:
    """`topic describe`. `configs` are all settings in force, `overrides` those set on the topic."""

    name: str
    internal: bool
    partitions: tuple[PartitionDetail, ...]
    configs: dict[str, str | None]
    overrides: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def check_topic_name(name: str) -> str:
    if not _LEGAL.fullmatch(name) or name in (".", ".."):
        raise BadInput(
            f"{name!r} cannot be a topic's name",
            hint="use up to 249 letters, digits, dots, dashes and underscores",
            topic=name,
        )
    return name


def create_topic(
    admin: Admin,
    name: str,
    partitions: int = 1,
    replication: int | None = None,
    configs: Mapping[str, str] | None = None,
) -> TopicDetail:
    """Create a topic; says in advance what the cluster could only refuse."""
    check_topic_name(name)
    if partitions < 1:
        raise BadInput(f"a topic cannot have {partitions} partitions", hint="give -p 1 or more")
    if replication is not None:
        alive = len(admin.brokers())
        if not 1 <= replication <= alive:
            raise BadInput(
                f"a replication factor of {replication} needs as many brokers, {alive} are alive",
                hint=f"use -r 1 to {alive}",
                replication=replication,
                brokers=alive,
            )
    if admin.has_topic(name):
        raise TopicExists(
            f"topic {name} is already there",
            hint=f"look at it with `headrace topic describe {name}`, or choose another name",
            topic=name,
        )
    admin.create_topic(name, partitions, replication, configs)
    return describe_topic(admin, name)


def list_topics(admin: Admin, *, internal: bool = False) -> list[TopicSummary]:
    """All topics; internal ones (their names begin with two underscores) on request."""
    names = [n for n in admin.topic_names() if internal or not n.startswith("__")]
    return [
        TopicSummary(
            name=topic.name,
            partitions=len(topic.partitions),
            replication=max((len(p.replicas) for p in topic.partitions), default=0),
            under_replicated=sum(len(p.isr) < len(p.replicas) for p in topic.partitions),
            internal=topic.name.startswith("__"),
        )
        for topic in admin.topics(names)
    ]


def describe_topic(admin: Admin, name: str) -> TopicDetail:
    topic = admin.topic(name)
    led = [TopicPartition(name, p.id) for p in topic.partitions if p.leader is not None]
    earliest = admin.offsets(led, Earliest())
    latest = admin.offsets(led, Latest())
    configs = admin.configs(name)

    def detail(partition: Partition) -> PartitionDetail:
        at = TopicPartition(name, partition.id)
        return PartitionDetail(
            partition.id,
            partition.leader,
            partition.replicas,
            partition.isr,
            earliest.get(at),
            latest.get(at),
        )

    return TopicDetail(
        name=name,
        internal=name.startswith("__"),
        partitions=tuple(detail(p) for p in topic.partitions),
        configs={config.name: config.value for config in configs},
        overrides=tuple(config.name for config in configs if not config.is_default),
    )


def alter_topic(
    admin: Admin, name: str, partitions: int | None, configs: Mapping[str, str]
) -> TopicDetail:
    """Add partitions and change settings; an empty value takes a setting back to its default."""
    if partitions is None and not configs:
        raise BadInput("nothing to alter was given", hint="use -p COUNT or -c NAME=VALUE")
    current = len(admin.topic(name).partitions)
    if partitions is not None and partitions < current:
        raise BadInput(
            f"topic {name} has {current} partitions, they cannot be reduced to {partitions}",
            hint="make a new topic and copy: headrace consume OLD -o ndjson "
            "| headrace produce NEW --input ndjson",
            partitions=current,
        )
    if configs:
        admin.set_configs(name, {key: value or None for key, value in configs.items()})
    if partitions is not None and partitions > current:
        admin.add_partitions(name, partitions)
    return describe_topic(admin, name)


def delete_topic(admin: Admin, name: str) -> None:
    admin.topic(name)  # says so, with a suggestion, if there is none
    admin.delete_topic(name)
