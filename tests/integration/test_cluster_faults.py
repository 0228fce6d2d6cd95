"""Real faults on three brokers: work goes on, and nothing acknowledged is lost."""

from collections.abc import Callable

import pytest

from headrace.clients import Admin
from headrace.local import LocalCluster
from headrace.testing import Faults
from support.chaos import kill_and_return
from support.cli import Cli
from support.ledger import Verdict, Writer, judge
from support.waiting import eventually

MakeTopic = Callable[..., str]


def states(headrace: Cli, cluster: LocalCluster) -> dict[int, str]:
    status = headrace.json("status", "--name", cluster.name)
    return {broker["id"]: broker["state"] for broker in status["brokers"]}


def test_work_goes_on_and_nothing_is_lost_when_the_leader_is_killed(
    headrace: Cli,
    kafka_cluster: LocalCluster,
    admin: Admin,
    make_topic: MakeTopic,
    kafka_faults: Faults,
) -> None:
    """SIGKILL for the leader under load: no loss, no duplicate, order kept, copies back to 3.

    While it is dead, produce, consume, describe and status work, and tell the truth about it.
    """
    topic = make_topic(replication=3, configs={"min.insync.replicas": "2"})
    other = make_topic(partitions=3, replication=3)

    def use_the_command_line(dead: int) -> None:
        assert headrace.json("produce", other, stdin="a\nb\nc\n")["sent"] == 3
        assert sorted(r["value"] for r in headrace.json("consume", other)) == ["a", "b", "c"]
        for partition in headrace.json("topic", "describe", other)["partitions"]:
            assert partition["leader"] not in (None, dead)
            assert dead not in partition["isr"]
        assert states(headrace, kafka_cluster)[dead] == "stopped"

    with Writer(kafka_cluster.bootstrap, topic, partitions=1) as writer:
        killed, successor = kill_and_return(
            admin, kafka_faults, topic, 0, writer, meanwhile=use_the_command_line
        )
    assert successor != killed
    assert writer.failed == []
    assert judge(kafka_cluster.bootstrap, topic, writer.acknowledged) == Verdict(set(), {}, [])


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("stop", marks=pytest.mark.long(10)),
        "kill",
        pytest.param("pause", marks=pytest.mark.long(15)),
    ],
)
def test_a_broker_that_was_started_has_its_replicas_in_sync(
    admin: Admin, make_topic: MakeTopic, kafka_faults: Faults, fault: str
) -> None:
    """Otherwise a rolling restart drops below the minimum of in-sync replicas."""
    topic = make_topic(partitions=6, replication=3)

    def in_sync() -> set[tuple[int, ...]]:
        return {tuple(sorted(partition.isr)) for partition in admin.topic(topic).partitions}

    getattr(kafka_faults, fault)(2)
    eventually(lambda: in_sync() == {(1, 3)}, "broker 2 is out of sync")
    kafka_faults.start(2)
    assert in_sync() == {(1, 2, 3)}


def test_a_broker_killed_a_moment_ago_runs_once_it_was_started(
    kafka_cluster: LocalCluster, kafka_faults: Faults
) -> None:
    """The cluster counts the dead one until its session ends; that is not the new one."""
    log = kafka_cluster.log_of("2")
    kafka_faults.kill(2)
    before = log.stat().st_size
    kafka_faults.start(2)
    assert b"Transition from STARTING to STARTED" in log.read_bytes()[before:]


def test_status_tells_a_paused_broker(
    headrace: Cli, kafka_cluster: LocalCluster, kafka_faults: Faults
) -> None:
    """`broker pause` and `resume` do what they say, and print the status."""

    def broker(verb: str, broker_id: int) -> str:
        name = ("--name", kafka_cluster.name)
        after = headrace.json("broker", verb, str(broker_id), *name)
        return {b["id"]: b["state"] for b in after["brokers"]}[broker_id]

    assert broker("pause", 2) == "paused"
    assert states(headrace, kafka_cluster) == {1: "running", 2: "paused", 3: "running"}
    assert broker("resume", 2) == "running"
    assert states(headrace, kafka_cluster) == dict.fromkeys((1, 2, 3), "running")


def test_a_broker_that_is_not_there_is_bad_input(
    headrace: Cli, kafka_cluster: LocalCluster
) -> None:
    """Exit 2, the ids that are there, and nobody is hurt."""
    refused = headrace.refused(2, "broker", "kill", "4", "--name", kafka_cluster.name)
    assert refused.hint == "its brokers are 1, 2, 3"
    assert states(headrace, kafka_cluster) == dict.fromkeys((1, 2, 3), "running")
