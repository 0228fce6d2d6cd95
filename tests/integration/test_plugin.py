"""The pytest plugin: what it gives, and that it cleans up after tests of every outcome."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.clients import Admin, Producer, Reader
from headrace.local import LocalCluster
from support.home import Home

# A project of somebody else's: no settings, no conftest, nothing but Headrace installed.
PROJECT = """
from headrace.clients import Admin, Producer, Reader

seen = {}


def test_round_trip(kafka_cluster, kafka_topic):
    seen.update(bootstrap=kafka_cluster.bootstrap, topic=kafka_topic)
    with Producer(kafka_cluster.bootstrap) as producer:
        producer.send(kafka_topic, b"order")
    with Reader(kafka_topic, connection=kafka_cluster.bootstrap) as reader:
        assert [r.value for batch in reader.batches() for r in batch] == [b"order"]


def test_same_cluster_other_topic(kafka_cluster, kafka_topic):
    assert kafka_cluster.bootstrap == seen["bootstrap"]
    assert len(Admin(kafka_cluster.bootstrap).brokers()) == 1
    assert not Admin(kafka_cluster.bootstrap).has_topic(seen["topic"])


def test_that_hurts_the_cluster_and_fails(kafka_cluster, kafka_faults, kafka_topic):
    kafka_faults.pause(1)
    raise AssertionError("on purpose")


def test_after_it_all_is_well(kafka_cluster, kafka_topic):
    with Producer(kafka_cluster.bootstrap) as producer:
        producer.send(kafka_topic, b"again").result(30)
"""


def test_a_foreign_project_needs_nothing_but_the_package(home: Home, tmp_path: Path) -> None:
    """One broker by default, a topic a test, faults healed, and nothing left after a failure."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "test_orders.py").write_text(PROJECT)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "project",
        env=home.environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "1 failed, 3 passed" in run.stdout, run.stdout
    assert "on purpose" in run.stdout
    assert home.servers() == []
    assert list((home.path / "clusters").glob("[!.]*")) == []


def test_the_ini_file_says_how_many_brokers(kafka_cluster: LocalCluster, admin: Admin) -> None:
    """`kafka_brokers = "3"` in pyproject.toml gives this session its three."""
    assert [broker.id for broker in admin.brokers()] == [1, 2, 3]
    assert kafka_cluster.status().healthy


def test_make_topic_makes_what_is_asked_for(
    make_topic: Callable[..., str], admin: Admin, request: pytest.FixtureRequest
) -> None:
    """Partitions, copies and settings; names tell the test and never repeat."""
    topic = make_topic(partitions=4, replication=2, configs={"retention.ms": "1000000"})
    other = make_topic()
    found = admin.topic(topic)
    assert [len(p.replicas) for p in found.partitions] == [2] * 4
    settings = {config.name: config.value for config in admin.configs(topic)}
    assert settings["retention.ms"] == "1000000"
    assert topic != other
    assert re.fullmatch(rf"{request.node.name}-[0-9a-f]+", topic)


@pytest.mark.parametrize("odd", ["a b/c", "ünï", "x" * 300])
def test_odd_parameters_make_legal_topics(
    kafka_cluster: LocalCluster, kafka_topic: str, odd: str
) -> None:
    """A parametrized test's name holds anything; its topic works all the same."""
    with Producer(kafka_cluster.bootstrap) as producer:
        producer.send(kafka_topic, odd)
    with Reader(kafka_topic, connection=kafka_cluster.bootstrap) as reader:
        assert [r.value for batch in reader.batches() for r in batch] == [odd.encode()]
