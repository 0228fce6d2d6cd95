"""`ingest` on a Spark cluster of its own: the package gets there, and each row arrives once."""

import functools
import json
import os
import subprocess
import sys
from collections import Counter

import pytest

import headrace as hr
from headrace.model import Deadline
from headrace.services.clickstream import HEADER, rows
from support.waiting import eventually

pytest.importorskip("pyspark")

from headrace.testing.spark_cluster import SparkCluster

pytestmark = [pytest.mark.processes, pytest.mark.long(60)]
ROWS = 24_000
INGEST = """
import functools, sys
from headrace.cli.main import run
from headrace.spark.ingest import chunks, files

files.plan_chunks = functools.partial(chunks.plan_chunks, size=64 << 10)
sys.exit(run(["ingest", *sys.argv[1:], "-o", "json"]))
"""
WHERE = """
import sys
from headrace.spark import session

def place(_):
    import headrace
    return headrace.__file__

spark = session(master=sys.argv[1])
print(*spark.sparkContext.parallelize(range(2), 2).map(place).collect())
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with SparkCluster(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture
def python(kafka_cluster):
    """Start a program that knows the Kafka cluster."""
    own = {"HEADRACE_BOOTSTRAP": kafka_cluster.bootstrap, "SPARK_LOCAL_IP": "127.0.0.1"}
    start = functools.partial(
        subprocess.Popen, env=os.environ | own, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    started = []

    def run(program, *arguments):
        started.append(start([sys.executable, "-c", program, *map(str, arguments)]))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_the_package_reaches_the_executors(cluster, python):
    """They import what the driver sent, not what happens to be installed beside them."""
    out, err = python(WHERE, cluster.master).communicate(timeout=120)
    assert out.decode().count("headrace.zip/headrace/__init__.py") == 2, err.decode()


@pytest.mark.parametrize("fault", ["none", "an executor is killed"])
def test_every_row_arrives_once_from_a_cluster(
    cluster, python, kafka_cluster, make_topic, tmp_path, fault
):
    topic = make_topic(3)
    some = [raw for raw, _ in rows(ROWS)]
    (tmp_path / "f.csv").write_bytes(HEADER + b"".join(some))
    driver = python(INGEST, tmp_path / "f.csv", "--topic", topic, "--master", cluster.master)
    if fault != "none":
        wait_for_rows(kafka_cluster, topic, driver)
        eventually(cluster.executors, "an executor")[0].kill()
        assert len(sessions(kafka_cluster, topic)) < ROWS
    out, err = driver.communicate(timeout=120)
    assert driver.returncode == 0, err.decode()
    result = json.loads(out)
    assert (result["rows_sent"], result["rows_dead"]) == (ROWS, 0)
    assert Counter(sessions(kafka_cluster, topic)) == Counter(
        raw.rstrip(b"\n").rsplit(b",", 1)[1].decode() for raw in some
    )


def sessions(cluster, topic):
    settings = {"isolation.level": "read_committed"}
    with hr.Reader(topic, connection=cluster.bootstrap, settings=settings) as reader:
        return [json.loads(r.value)["userSession"] for batch in reader.batches() for r in batch]


def wait_for_rows(cluster, topic, driver):
    for _ in Deadline(120).polls(every=0.1):
        if sessions(cluster, topic):
            return
        assert driver.poll() is None, "the driver ended before a row came"
    raise AssertionError("the rows did not come")
