"""Members of a group on a real cluster: partitions move, and nothing is lost or repeated."""

import asyncio
import secrets

import pytest

import headrace as hr
from headrace.model import TopicPartition
from headrace.observe.events import Assigned, Revoked
from support.consuming import of_kind
from support.handled import send_numbers
from support.waiting import eventually


@pytest.mark.parametrize(
    "assignor",
    [
        "cooperative-sticky",
        pytest.param("range", marks=pytest.mark.long(10)),
        pytest.param("roundrobin", marks=pytest.mark.long(10)),
        "server",
    ],
)
def test_a_second_member_takes_over_partitions_and_nothing_is_lost_or_repeated(
    bootstrap, make_topic, make_group, assignor
):
    topic, group, numbers = make_topic(4), make_group(), []
    send_numbers(bootstrap, topic, 4000, keys=40)
    told: list[list[object]] = [[], []]
    apps = [hr.App(bootstrap, on_event=events.append) for events in told]
    for app in apps:

        @app.consumer(topic, group=group, concurrency=10, assignor=assignor)
        async def handle(value: bytes) -> None:
            await asyncio.sleep(0.002)
            numbers.append(int(value))

    with apps[0].running() as first:
        eventually(lambda: len(numbers) > 100, "the first member is at work")
        with apps[1].running() as second:
            eventually(lambda: len(second.status()[0].partitions) == 2, "two moved", 60)
            eventually(lambda: len(numbers) >= 4000, "all records are handled", 60)
        eventually(lambda: len(first.status()[0].partitions) == 4, "they came back", 60)
    assert sorted(numbers) == list(range(4000))
    assert of_kind(told[0], Revoked)
    assert of_kind(told[1], Assigned)


def test_a_static_member_that_comes_back_moves_nothing(bootstrap, make_topic):
    topic, group = make_topic(4), f"group-{secrets.token_hex(3)}"
    told: list[list[object]] = [[], []]
    apps = [hr.App(bootstrap, on_event=events.append) for events in told]
    for number, app in enumerate(apps):
        app.consumer(topic, group=group, instance_id=f"member-{number}")(lambda value: None)
    with apps[1].running() as other:
        with apps[0].running() as first:
            for running in (first, other):
                eventually(
                    lambda r=running: len(r.status()[0].partitions) == 2, "both have two", 60
                )
            before = first.status()[0].partitions
        told[1].clear()
        with apps[0].running() as first:
            eventually(lambda: len(first.status()[0].partitions) == 2, "it has two again", 60)
            assert first.status()[0].partitions == before
            assert of_kind(told[1], Assigned) == []
            assert of_kind(told[1], Revoked) == []


def test_a_listener_hears_of_partitions_that_come_and_go(app, bootstrap, make_topic, make_group):
    topic, heard = make_topic(2), []
    listener = hr.RebalanceListener(
        assigned=lambda partitions: heard.append(("assigned", sorted(partitions))),
        revoked=lambda partitions: heard.append(("revoked", sorted(partitions))),
    )

    @app.consumer(topic, group=make_group(), listener=listener)
    def handle(_value: bytes) -> None:
        pass

    with app.running() as running:
        running.wait_until_joined()
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert heard == [("assigned", both), ("revoked", both)]
