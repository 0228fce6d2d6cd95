"""Fixtures for tests on a real cluster, and how the suite is run: kinds, slices, where time went.

No fixture costs anything to a test that does not ask for it.
"""

import os
import random
import secrets
import signal
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
from support.kinds import arrange
from support.processes import SESSION_VARIABLE, kill, servers_of_session
from support.slices import keep_slice
from support.time_report import TimeReport

# A machine that is busy with something else is no reason for a property not to hold.
settings.register_profile("headrace", deadline=None, print_blob=True)
settings.load_profile("headrace")

SEED_VARIABLE = "CHAOS_SEED"
# Tests have few rows for Spark. Generating code for them, compiling it well and planning again as
# they are counted takes more time than it saves: with these options the same tests take less than
# half of it. Every Spark of the session inherits them, drivers that tests start as well; set the
# variable to try others. With one compiler Java keeps room for 48 MB of code only, and compiles
# nothing more when it is full.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
    " -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
    " -Dspark.sql.adaptive.enabled=false",
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slice", metavar="SEED", help="A few of the long tests, chosen by SEED.")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background, where a shell has Ctrl-C ignored: programs that tests start
        # would inherit that, and those that a test interrupts would go on.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):  # the workers' reports come to the first process
        whole = config.args_source is not pytest.Config.ArgsSource.ARGS
        fast = "not long" in (config.option.markexpr or "")
        config.pluginmanager.register(TimeReport(judge=whole and fast))


@pytest.hookimpl(tryfirst=True)  # before the workers read which tests belong together
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if seed := config.getoption("--slice"):
        keep_slice(items, seed, config)
    arrange(items)


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
