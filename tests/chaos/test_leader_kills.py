"""SIGKILL for the partition leader, five times, while an idempotent producer writes."""

import os
import random

import pytest

from support.ledger import Writer, judge
from support.waiting import eventually

KILLS = 5


@pytest.mark.chaos
def test_nothing_acknowledged_is_lost_repeated_or_swapped(
    kafka_cluster, admin, make_topic, kafka_faults
):
    seed = int(os.environ.get("CHAOS_SEED", random.randrange(10**6)))
    print(f"seed {seed}; again with: CHAOS_SEED={seed} make chaos")  # noqa: T201
    dice = random.Random(seed)
    partitions = 3
    topic = make_topic(partitions, 3, {"min.insync.replicas": "2"})
    with Writer(kafka_cluster.bootstrap, topic, partitions) as writer:
        for _ in range(KILLS):
            before = len(writer.acknowledged)
            eventually(
                lambda b=before: len(writer.acknowledged) > b + dice.randint(100, 900),
                "writing",
                90,
            )
            leader = admin.topic(topic).partitions[dice.randrange(partitions)].leader
            kafka_faults.kill(leader)
            kafka_faults.start(leader)
            eventually(
                lambda: all(len(p.isr) == 3 for p in admin.topic(topic).partitions), "in sync", 90
            )
    verdict = judge(kafka_cluster.bootstrap, topic, writer.acknowledged)
    assert writer.failed == []
    assert (verdict.lost, verdict.repeated, verdict.out_of_order) == (set(), {}, [])
