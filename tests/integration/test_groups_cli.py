"""`headrace group`: what it prints, what it moves, what it refuses."""

import signal
import time
from collections.abc import Callable

import pytest

from headrace.clients import Admin, Producer
from headrace.model import TopicPartition
from support.cli import Cli
from support.waiting import eventually

MakeTopic = Callable[..., str]
MakeGroup = Callable[[], str]
RECORDS = 10


@pytest.fixture
def hours(admin: Admin, make_topic: MakeTopic) -> tuple[str, int]:
    """A topic with ten records in one partition, an hour apart, and the time of the first."""
    topic = make_topic()
    first = int(time.time() * 1000) - 20 * 3_600_000
    with Producer(admin.connection) as producer:
        for number in range(RECORDS):
            producer.send(topic, str(number), timestamp=first + number * 3_600_000)
    return topic, first


def commit(admin: Admin, group: str, topic: str, offset: int, partition: int = 0) -> None:
    admin.set_committed(group, {TopicPartition(topic, partition): offset})


def committed(admin: Admin, group: str, topic: str) -> int | None:
    return admin.committed(group).get(TopicPartition(topic, 0))


def test_describe_tells_members_offsets_and_lag(
    headrace: Cli, admin: Admin, make_topic: MakeTopic, make_group: MakeGroup
) -> None:
    """A live group shows who holds what and how far behind it is; `list` shows it too."""
    topic, group = make_topic(partitions=2), make_group()
    with Producer(admin.connection) as producer:
        for number in range(6):
            producer.send(topic, str(number), partition=number % 2)
    with headrace.start("consume", topic, "--group", group, "-o", "ndjson", "--follow") as member:
        for _ in range(6):
            member.line()
        eventually(lambda: sum(admin.committed(group).values()) == 6, "all is committed")
        detail = headrace.json("group", "describe", group)
        listed = {g["name"]: g for g in headrace.json("group", "list")}
        member.process.send_signal(signal.SIGINT)
        member.finish(status=130)
    (who,) = detail["members"]
    assert detail["name"] == group
    assert detail["state"] == "stable"
    assert who.keys() >= {"id", "client_id", "host", "partitions"}
    assert who["host"] == "127.0.0.1"
    assert who["partitions"] == [{"topic": topic, "partition": p} for p in (0, 1)]
    assert detail["offsets"] == [
        {"topic": topic, "partition": p, "committed": 3, "end": 3, "lag": 0} for p in (0, 1)
    ]
    assert listed[group]["state"] == "stable"
    assert listed[group]["members"] == 1


def test_lag_is_what_is_not_yet_committed(
    headrace: Cli, admin: Admin, hours: tuple[str, int], make_group: MakeGroup
) -> None:
    """Without members a group is `empty`, and its lag counts from what it committed."""
    topic, group = hours[0], make_group()
    commit(admin, group, topic, 4)
    detail = headrace.json("group", "describe", group)
    assert (detail["state"], detail["members"]) == ("empty", [])
    assert detail["offsets"] == [
        {"topic": topic, "partition": 0, "committed": 4, "end": RECORDS, "lag": 6}
    ]


def test_a_live_group_is_neither_moved_nor_deleted(
    headrace: Cli, admin: Admin, hours: tuple[str, int], make_group: MakeGroup
) -> None:
    """While a member lives, reset and delete fail with exit 1 and change nothing."""
    topic, group = hours[0], make_group()
    with headrace.start("consume", topic, "--group", group, "-o", "ndjson", "--follow") as member:
        for _ in range(RECORDS):
            member.line()
        eventually(lambda: committed(admin, group, topic) == RECORDS, "all is committed")
        reset = ("group", "reset", group, "--topic", topic, "--to", "earliest")
        for command in (reset, (*reset, "--execute"), ("group", "delete", group, "--yes")):
            refused = headrace.refused(1, *command)
            assert "is live" in refused.error
            assert "stop" in refused.hint
        assert committed(admin, group, topic) == RECORDS
        member.process.send_signal(signal.SIGINT)
        member.finish(status=130)


def test_reset_without_execute_only_shows_the_difference(
    headrace: Cli, admin: Admin, hours: tuple[str, int], make_group: MakeGroup
) -> None:
    """The difference is the same with and without --execute; only with it the group moves."""
    topic, group = hours[0], make_group()
    commit(admin, group, topic, 4)
    command = ("group", "reset", group, "--topic", topic, "--to", "earliest", "-o", "json")
    changes = [{"topic": topic, "partition": 0, "from": 4, "to": 0}]

    shown = headrace(*command)
    assert (shown.json["changes"], shown.json["executed"]) == (changes, False)
    assert "--execute" in shown.hint
    assert committed(admin, group, topic) == 4

    done = headrace(*command, "--execute")
    assert (done.json["changes"], done.json["executed"]) == (changes, True)
    assert done.stderr == ""
    assert committed(admin, group, topic) == 0


def test_reset_goes_where_it_is_told_and_never_outside_the_topic(
    headrace: Cli, admin: Admin, hours: tuple[str, int], make_group: MakeGroup
) -> None:
    """A position, an offset, a time or a shift; what lies outside is moved to the edge."""
    (topic, first), group = hours, make_group()
    expected = {
        ("--to", "latest"): RECORDS,
        ("--to", "7"): 7,
        ("--to", "99"): RECORDS,
        ("--to", f"@{first + 3 * 3_600_000}"): 3,
        ("--shift", "-2"): 2,
        ("--shift", "-100"): 0,
        ("--shift", "100"): RECORDS,
    }
    for option, offset in expected.items():
        commit(admin, group, topic, 4)
        command = ("group", "reset", group, "--topic", topic, *option, "--execute")
        assert headrace.json(*command)["changes"][0]["to"] == offset
        assert committed(admin, group, topic) == offset


def test_a_new_group_can_be_given_its_first_offsets(
    headrace: Cli, admin: Admin, hours: tuple[str, int], make_group: MakeGroup
) -> None:
    """A group that does not exist yet has no `from`, and begins where it was put."""
    topic, group = hours[0], make_group()
    command = ("group", "reset", group, "--topic", topic, "--to", "6", "--execute")
    assert headrace.json(*command)["changes"][0]["from"] is None
    rest = headrace("consume", topic, "--group", group, "-o", "ndjson").lines
    assert [record["value"] for record in rest] == ["6", "7", "8", "9"]


def test_a_reset_that_cannot_be_meant_is_bad_input(
    headrace: Cli, hours: tuple[str, int], make_group: MakeGroup
) -> None:
    """Both or neither of --to and --shift, no such position, nothing to shift: exit 2."""
    reset = ("group", "reset", make_group(), "--topic", hours[0])
    headrace.refused(2, *reset)
    headrace.refused(2, *reset, "--to", "earliest", "--shift", "1")
    assert "'yesterday'" in headrace.refused(2, *reset, "--to", "yesterday").error
    assert "nothing to shift" in headrace.refused(2, *reset, "--shift", "1").error


def test_delete_needs_yes(
    headrace: Cli, admin: Admin, hours: tuple[str, int], make_group: MakeGroup
) -> None:
    """Without --yes the group keeps its offsets; with it, the group is gone."""
    topic, group = hours[0], make_group()
    commit(admin, group, topic, 4)
    assert "--yes" in headrace.refused(2, "group", "delete", group).hint
    assert committed(admin, group, topic) == 4
    gone = headrace.json("group", "delete", group, "--yes")
    assert gone == {"name": group, "deleted": True}
    assert group not in admin.group_names()


def test_an_unknown_group_is_refused(headrace: Cli) -> None:
    """A group that nobody knows is bad input, not an empty answer."""
    for command in (("describe", "nobody"), ("delete", "nobody", "--yes"), ("delete", "nobody")):
        assert "there is no group nobody" in headrace.refused(2, "group", *command).error
