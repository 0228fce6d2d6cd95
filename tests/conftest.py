"""Fixtures for tests on a real cluster. None of them costs anything to a test without one."""

import os
import random
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from headrace.clients import Admin
from headrace.local import LocalCluster
from support.cli import Cli
from support.handled import Members
from support.home import Home
from support.processes import SESSION_VARIABLE, kill, servers_of_session

# A machine that is busy with something else is no reason for a property not to hold.
settings.register_profile("headrace", deadline=None, print_blob=True)
settings.load_profile("headrace")

SEED_VARIABLE = "CHAOS_SEED"

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """At the end of the session, no server that it started still runs."""
    token = secrets.token_hex(8)
    os.environ[SESSION_VARIABLE] = token
    yield
    left = servers_of_session(token)
    shown = [" ".join(process.cmdline())[-300:] for process in left]
    kill(left)
    assert not shown, f"servers were left behind: {shown}"


@pytest.fixture
def headrace(kafka_cluster: LocalCluster, tmp_path: Path) -> Cli:
    """The command line, connected to the session's cluster."""
    return Cli(tmp_path, {"HEADRACE_BOOTSTRAP": kafka_cluster.bootstrap})


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """The command line with a home of its own, for tests that start clusters."""
    own = Home(tmp_path)
    yield own
    own.close()


@pytest.fixture
def admin(kafka_cluster: LocalCluster) -> Admin:
    """The session's cluster, asked without the command line."""
    return Admin(kafka_cluster.bootstrap)


@pytest.fixture
def make_group(admin: Admin) -> Iterator[Callable[[], str]]:
    """Names for groups of this test; the groups are gone after it."""
    made: list[str] = []

    def make() -> str:
        made.append(f"group-{secrets.token_hex(3)}")
        return made[-1]

    yield make
    known = set(admin.group_names()) if made else set()
    for name in known.intersection(made):
        admin.delete_group(name)


@pytest.fixture
def members(
    kafka_cluster: LocalCluster, make_topic: Callable[..., str], tmp_path: Path
) -> Iterator[Members]:
    """A topic of six partitions and members that handle it in processes of their own.

    The group is left to the cluster's end: members that were killed belong to it for a while.
    """
    group = f"group-{secrets.token_hex(3)}"
    found = Members(kafka_cluster.bootstrap, make_topic(6, 3), group, tmp_path)
    yield found
    found.close()


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    """Random, but the same again for the same seed."""
    seed = int(os.environ.get(SEED_VARIABLE) or random.randrange(1 << 32))
    again = f"{SEED_VARIABLE}={seed} {sys.executable} -m pytest '{request.node.nodeid}'"
    sys.stdout.write(f"seed {seed}; to run this again:\n  {again}\n")
    return random.Random(seed)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One Spark session for all tests that need one."""
    from headrace.spark import session

    made = session(config={"spark.driver.memory": "1500m"})
    yield made
    made.stop()
