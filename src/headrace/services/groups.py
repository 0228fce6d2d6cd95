"""Groups: list, describe, reset, delete."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.clients import Admin
from headrace.clients.admin import Group, Member
from headrace.errors import BadInput, GroupIsLive, GroupNotFound
from headrace.model import AtOffset, Earliest, Latest, Position, TopicPartition


@dataclass(frozen=True)
class GroupSummary:
    """One line of `group list`."""

    name: str
    state: str
    protocol: str
    members: int


@dataclass(frozen=True)
class GroupOffset:
    """What a group has committed in one partition, and how far the partition goes."""

    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int | None


@dataclass(frozen=True)
class GroupDetail:
    """`group describe`."""

    name: str
    state: str
    protocol: str
    members: tuple[Member, ...]
    offsets: tuple[GroupOffset, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "state": self.state,
            "protocol": self.protocol,
            "members": [
                {
                    "id": member.id,
                    "client_id": member.client_id,
                    "host": member.host,
                    "partitions": [p._asdict() for p in member.partitions],
                }
                for member in self.members
            ],
            "offsets": [asdict(offset) for offset in self.offsets],
        }


@dataclass(frozen=True)
class OffsetChange:
    """One partition of a reset."""

    topic: str
    partition: int
    before: int | None
    after: int

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "from": self.before,
            "to": self.after,
        }


def list_groups(admin: Admin) -> list[GroupSummary]:
    return [
        GroupSummary(group.name, group.state, group.protocol, len(group.members))
        for group in admin.groups(admin.group_names())
    ]


def describe_group(admin: Admin, name: str) -> GroupDetail:
    group = admin.group(name)
    committed = admin.committed(name)
    held = {partition for member in group.members for partition in member.partitions}
    every = sorted({*committed, *held})
    ends = admin.offsets(every, Latest())
    return GroupDetail(
        name=name,
        state=group.state,
        protocol=group.protocol,
        members=group.members,
        offsets=tuple(_offset(p, committed.get(p), ends[p]) for p in every),
    )


def plan_reset(
    admin: Admin, name: str, topic: str, to: Position | None, shift: int | None
) -> list[OffsetChange]:
    """What a reset would change. A new group may be given offsets before its first member."""
    if (to is None) == (shift is None):
        raise BadInput("give either --to or --shift", hint="--to earliest, or --shift -100")
    refuse_if_live(admin, name)
    every = [TopicPartition(topic, p.id) for p in admin.topic(topic).partitions]
    committed = admin.committed(name)
    earliest = admin.offsets(every, Earliest())
    latest = admin.offsets(every, Latest())
    if to is not None:
        wanted = _wanted(admin, every, to)
    else:
        assert shift is not None
        wanted = _shifted(name, every, committed, shift)
    return [
        OffsetChange(
            p.topic, p.partition, committed.get(p), min(max(wanted[p], earliest[p]), latest[p])
        )
        for p in every
        if p in wanted
    ]


def execute_reset(admin: Admin, name: str, changes: list[OffsetChange]) -> None:
    admin.set_committed(name, {TopicPartition(c.topic, c.partition): c.after for c in changes})


def delete_group(admin: Admin, name: str) -> None:
    admin.group(name)
    refuse_if_live(admin, name)
    admin.delete_group(name)


def refuse_if_live(admin: Admin, name: str) -> None:
    """Members keep their own position, so what is changed under them would be overwritten."""
    group = _group_or_none(admin, name)
    if group is not None and group.members:
        clients = ", ".join(sorted({member.client_id for member in group.members}))
        raise GroupIsLive(
            f"group {name} is live: {len(group.members)} member(s) ({clients})",
            hint="stop them, then run this again",
            group=name,
            members=len(group.members),
        )


def _group_or_none(admin: Admin, name: str) -> Group | None:
    try:
        return admin.group(name)
    except GroupNotFound:
        return None


def _offset(at: TopicPartition, committed: int | None, end: int) -> GroupOffset:
    lag = None if committed is None else max(0, end - committed)
    return GroupOffset(at.topic, at.partition, committed, end, lag)


def _wanted(
    admin: Admin, every: list[TopicPartition], to: Position
) -> Mapping[TopicPartition, int]:
    if isinstance(to, AtOffset):
        return dict.fromkeys(every, to.offset)
    return admin.offsets(every, to)


def _shifted(
    name: str, every: list[TopicPartition], committed: Mapping[TopicPartition, int], shift: int
) -> Mapping[TopicPartition, int]:
    moved = {p: committed[p] + shift for p in every if p in committed}
    if not moved:
        raise BadInput(
            f"group {name} has committed nothing in {every[0].topic}, there is nothing to shift",
            hint="use --to earliest, latest or a time",
        )
    return moved
