"""`ingest` whose driver, worker or broker dies: run again, every row is there once."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from headrace.model import Deadline
from support.ingest import SMALL_CHUNK, assert_exact, json_line, lines, records, write_file

pytest.importorskip("pyspark")

INGEST = f"""
import functools, sys
from headrace.cli.main import run
from headrace.spark.ingest import chunks, files

files.plan_chunks = functools.partial(chunks.plan_chunks, size={SMALL_CHUNK})
sys.exit(run(["ingest", *sys.argv[1:]]))
"""


@pytest.mark.parametrize(
    ("how", "format"),
    [
        (signal.SIGKILL, "csv"),
        pytest.param(signal.SIGINT, "csv", marks=pytest.mark.long(40)),
        pytest.param(signal.SIGKILL, "jsonl", marks=pytest.mark.long(50)),
    ],
)
def test_a_run_whose_driver_was_killed_or_stopped_is_finished_by_the_next(
    send, kafka_cluster, topic, tmp_path, small_chunks, how, format
):
    """SIGKILL hits the driver, its JVM and its workers; Ctrl-C ends with 130 and no traceback."""
    file = write_file(tmp_path / "f.csv", some := lines(count := 40_000))
    if format == "jsonl":
        file = write_file(tmp_path / "f.jsonl", map(json_line, some), header=b"")
    driver = subprocess.Popen(
        [sys.executable, "-c", INGEST, str(file), "--topic", topic],
        env=os.environ | {"HEADRACE_BOOTSTRAP": kafka_cluster.bootstrap},
        start_new_session=True,
        stderr=subprocess.PIPE,
    )
    try:
        seen = wait_for_rows(kafka_cluster, topic, driver)
        (os.killpg if how == signal.SIGKILL else os.kill)(driver.pid, how)
        _, told = driver.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert driver.returncode == (130 if how == signal.SIGINT else -how), told.decode()
    assert b"Traceback" not in told, told.decode()
    assert b"error:" not in told, told.decode()
    assert 0 < seen <= len(records(kafka_cluster, topic)) < count
    again = send(file)
    assert again.rows_skipped >= seen
    assert again.rows_sent + again.rows_skipped == count
    assert_exact(kafka_cluster, topic, some)


def wait_for_rows(cluster, topic, driver=None):
    for _ in Deadline(120).polls(every=0.1):
        if seen := len(records(cluster, topic)):
            return seen
        if driver is not None and driver.poll() is not None:
            raise AssertionError(driver.stderr.read().decode())
    raise AssertionError("the rows did not come")


def test_a_worker_killed_in_the_middle_of_a_transaction_costs_nothing(
    send, spark, kafka_cluster, topic, tmp_path, small_chunks
):
    file = write_file(tmp_path / "f.csv", some := lines(count := 40_000))
    with while_rows_come(kafka_cluster, topic, lambda: fail_a_writer(spark, kafka_cluster)):
        result = send(file)
    assert result.rows_sent == count
    assert_exact(kafka_cluster, topic, some)


@contextlib.contextmanager
def while_rows_come(cluster, topic, hurt):
    """Do harm on another thread, as soon as the first rows are visible."""
    faults = []

    def wait_and_hurt():
        try:
            wait_for_rows(cluster, topic)
            hurt()
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=wait_and_hurt)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert not faults, faults


def fail_a_writer(spark, cluster):
    """SIGKILL for workers that talk to brokers until a task failed of it: one that has just done
    its piece is still connected, and nobody misses it."""
    failed = failed_tasks(spark)
    for _ in Deadline(60).polls():
        kill_a_writer(spark, cluster)
        for _ in Deadline(1).polls():
            if failed_tasks(spark) > failed:
                return
    raise AssertionError("workers were killed, and no task failed")


def kill_a_writer(spark, cluster):
    """SIGKILL for a worker that talks to brokers; its parent, which made it, lives on."""
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)
    ports = {int(address.rsplit(":", 1)[1]) for address in cluster.bootstrap.split(",")}
    for _ in Deadline(30).polls(every=0.01):
        for worker in jvm.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if is_worker(worker) and ports & ports_of(worker):
                    worker.kill()
                    return
    raise AssertionError("no worker was found")


def is_worker(process):
    return process.cmdline()[-1:] == ["pyspark.worker"] == process.parent().cmdline()[-1:]


def ports_of(process):
    """The ports to which it is connected."""
    return {other.raddr.port for other in process.net_connections("tcp") if other.raddr}


def failed_tasks(spark):
    tracker = spark.sparkContext.statusTracker()
    jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(None))
    stages = (tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds)
    return sum(stage.numFailedTasks for stage in stages if stage)


def test_a_broker_killed_in_mid_run_costs_nothing(
    send, kafka_cluster, kafka_faults, topic, tmp_path, small_chunks
):
    file = write_file(tmp_path / "f.csv", some := lines(10_000))
    with while_rows_come(kafka_cluster, topic, lambda: kafka_faults.kill(2)):
        result = send(file)
    assert result.rows_sent == 10_000
    assert_exact(kafka_cluster, topic, some)
