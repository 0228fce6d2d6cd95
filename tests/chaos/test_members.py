"""Fault 7: members join, leave and are killed at random, for three minutes."""

import random

import pytest

from headrace.local import LocalCluster
from support.churn import churn
from support.handled import Members


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_members_that_come_and_go_for_minutes_never_share_a_key(
    kafka_cluster: LocalCluster, members: Members, dice: random.Random
) -> None:
    result = churn(kafka_cluster, members, dice, seconds=180)
    assert result.lost == set()
    assert result.swapped == []
    assert result.overlapping == []
