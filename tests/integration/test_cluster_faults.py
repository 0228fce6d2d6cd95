"""Real faults on a cluster of three: nothing acknowledged is lost."""

from headrace.clients import Admin
from headrace.local import LocalCluster, State
from headrace.testing import Faults
from support.ledger import Writer, judge
from support.waiting import eventually


def states(cluster: LocalCluster) -> dict[int, State]:
    return {broker.id: broker.state for broker in cluster.status().brokers}


def in_sync(admin: Admin, topic: str) -> int:
    return len(admin.topic(topic).partitions[0].isr)


def test_the_leader_is_killed_and_nothing_acknowledged_is_lost(
    kafka_cluster: LocalCluster, admin: Admin, make_topic, kafka_faults: Faults
):
    topic = make_topic(1, 3, {"min.insync.replicas": "2"})
    with Writer(kafka_cluster.bootstrap, topic, 1) as writer:
        eventually(lambda: len(writer.acknowledged) > 100, "writing has begun")
        leader = admin.topic(topic).partitions[0].leader
        assert leader is not None
        kafka_faults.kill(leader)
        assert states(kafka_cluster)[leader] is State.STOPPED
        eventually(
            lambda: admin.topic(topic).partitions[0].leader not in (None, leader), "a new leader"
        )
        before = len(writer.acknowledged)
        eventually(lambda: len(writer.acknowledged) > before + 100, "writing goes on", 60)
        kafka_faults.start(leader)
        eventually(lambda: in_sync(admin, topic) == 3, "three copies are in sync", 60)
    verdict = judge(kafka_cluster.bootstrap, topic, writer.acknowledged)
    assert writer.failed == []
    assert verdict.lost == set()
    assert verdict.repeated == {}
    assert verdict.out_of_order == []


def test_a_paused_broker_is_seen_and_resumes(kafka_cluster: LocalCluster, kafka_faults: Faults):
    kafka_faults.pause(2)
    assert states(kafka_cluster)[2] is State.PAUSED
    kafka_faults.start(2)
    assert states(kafka_cluster)[2] is State.RUNNING


def test_a_stopped_broker_is_healed_after_the_test(
    kafka_cluster: LocalCluster, kafka_faults: Faults
):
    kafka_faults.stop(3)
    assert states(kafka_cluster)[3] is State.STOPPED
    kafka_faults.heal()
    assert set(states(kafka_cluster).values()) == {State.RUNNING}
