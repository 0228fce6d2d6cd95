"""The pytest plugin. Everything heavy is imported inside the fixtures that need it."""

import re
import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.local import LocalCluster
    from headrace.testing.faults import Faults


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("headrace", "a real Kafka cluster for tests")
    group.addoption(
        "--kafka-brokers",
        type=int,
        default=None,
        help="How many brokers the session's cluster has (kafka_brokers in the ini file; 1).",
    )
    parser.addini("kafka_brokers", "How many brokers the session's cluster has.", default="1")


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator["LocalCluster"]:
    """A real cluster for the whole session; stopped and removed at its end."""
    from headrace.local import LocalCluster

    config = request.config
    brokers = config.getoption("--kafka-brokers") or int(config.getini("kafka_brokers"))
    with LocalCluster(brokers) as cluster:
        yield cluster


@pytest.fixture
def make_topic(
    kafka_cluster: "LocalCluster", request: pytest.FixtureRequest
) -> Iterator[Callable[..., str]]:
    """Make topics for this test: `make_topic(partitions=5, replication=3, configs={...})`."""
    from headrace.clients import Admin
    from headrace.errors import HeadraceError

    admin = Admin(kafka_cluster.bootstrap)
    made: list[str] = []
    stem = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:200].strip("-")

    def make(
        partitions: int = 1, replication: int | None = None, configs: dict[str, str] | None = None
    ) -> str:
        name = f"{stem}-{secrets.token_hex(3)}"
        admin.create_topic(name, partitions, replication, configs)
        made.append(name)
        return name

    yield make
    for name in made:
        try:
            admin.delete_topic(name)
        except HeadraceError:  # the test may have removed it, or hurt the cluster for good
            continue


@pytest.fixture
def kafka_topic(make_topic: Callable[..., str]) -> str:
    """A new topic with one partition, for this test alone."""
    return make_topic()


@pytest.fixture
def kafka_faults(kafka_cluster: "LocalCluster") -> Iterator["Faults"]:
    """Kill, stop and pause brokers; afterwards all of them serve again."""
    from headrace.testing.faults import Faults

    faults = Faults(kafka_cluster)
    yield faults
    faults.heal()
