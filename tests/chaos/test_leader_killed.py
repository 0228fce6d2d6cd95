"""Faults 1 and 2: SIGKILL the partition leader, again and again, while producing."""

import random
import sys
from collections.abc import Callable

import pytest

from headrace.clients import Admin
from headrace.local import LocalCluster
from headrace.testing import Faults
from support.chaos import kill_and_return
from support.ledger import Verdict, Writer, judge

PARTITIONS = 3
KILLS = 5


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_though_leaders_are_killed(
    kafka_cluster: LocalCluster,
    admin: Admin,
    make_topic: Callable[..., str],
    kafka_faults: Faults,
    dice: random.Random,
) -> None:
    """Five SIGKILLs under an idempotent acks=all producer, RF 3, min ISR 2.

    Passes when acknowledged minus consumed is empty, each value stands at one offset, and in each
    partition the sequence rises.
    """
    topic = make_topic(PARTITIONS, replication=3, configs={"min.insync.replicas": "2"})
    with Writer(kafka_cluster.bootstrap, topic, PARTITIONS) as writer:
        for number in range(KILLS):
            partition = dice.randrange(PARTITIONS)
            killed, successor = kill_and_return(admin, kafka_faults, topic, partition, writer)
            sys.stdout.write(
                f"kill {number + 1}: partition {partition}, broker {killed} gave way to "
                f"{successor}, {len(writer.acknowledged):,} acknowledged\n"
            )
    assert writer.failed == []
    assert len(writer.acknowledged) > KILLS * 200
    assert judge(kafka_cluster.bootstrap, topic, writer.acknowledged) == Verdict(set(), {}, [])
