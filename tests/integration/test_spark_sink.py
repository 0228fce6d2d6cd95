"""`format("headrace")` on Spark: every row exactly once, whatever dies and when."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import headrace as hr

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.ledger import LEDGER_TOPIC

# Fails or kills its own process on the first attempt of each task, where the tests say.
FAULTY = """
import os, signal
from pyspark import TaskContext
from headrace.spark.sink import BatchWriter, KafkaSink

class FaultyWriter(BatchWriter):
    def __init__(self, plan, fault):
        super().__init__(plan)
        self._fault = fault

    def write(self, iterator):
        first = TaskContext.get().attemptNumber() == 0
        done = super().write(self._broken(iterator) if first else iterator)
        if first and self._fault == "killed after the commit":
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    def _broken(self, batches):
        for number, batch in enumerate(batches):
            if number == 1 and self._fault == "fails half way":
                raise RuntimeError("half way")
            if number == 1 and self._fault == "killed half way":
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

class FaultySink(KafkaSink):
    @classmethod
    def name(cls):
        return "faulty"

    def writer(self, schema, overwrite):
        fault = self.options.pop("kafka.fault")
        return FaultyWriter(super().writer(schema, overwrite)._plan, fault)
"""


def numbered(spark, count, partitions=2):
    return spark.range(0, count, 1, partitions).select(F.col("id").cast("string").alias("value"))


def write(table, cluster, topic, kind="headrace", **options):
    writing = table.write.format(kind).option("bootstrap", cluster.bootstrap)
    writing.option("topic", topic).options(**options).mode("append").save()


def records(cluster, topic):
    settings = {"isolation.level": "read_committed"}
    with hr.Reader(topic, connection=cluster.bootstrap, settings=settings) as reader:
        return [record for batch in reader.batches() for record in batch]


def numbers(cluster, topic):
    return sorted(int(record.value) for record in records(cluster, topic))


def test_every_column_arrives_as_it_was(spark, kafka_cluster, make_topic):
    first, second = make_topic(3), make_topic(3)
    moment = time.time_ns() // 1_000_000 - 5_000
    table = spark.sql(
        f"""
        SELECT binary('k') AS key, '{{"id":9007199254740993}}' AS value,
          array(named_struct('key', 'a', 'value', binary('1')),
                named_struct('key', 'a', 'value', CAST(NULL AS BINARY))) AS headers,
          '{first}' AS topic, 2 AS partition, timestamp_millis({moment}) AS timestamp
        UNION ALL SELECT NULL, NULL, NULL, '{second}', NULL, NULL
        """
    ).coalesce(1)
    write(table, kafka_cluster, "elsewhere")
    (full,) = records(kafka_cluster, first)
    assert (full.key, full.value) == (b"k", b'{"id":9007199254740993}')
    assert (full.partition, full.timestamp) == (2, moment)
    assert full.headers == (("a", b"1"), ("a", None))
    (empty,) = records(kafka_cluster, second)
    assert (empty.key, empty.value, empty.headers) == (None, None, ())


@pytest.mark.parametrize("fault", ["fails half way", "killed half way", "killed after the commit"])
def test_a_task_that_dies_is_run_again_and_repeats_nothing(
    spark, kafka_cluster, make_topic, faulty_sink, fault
):
    """SIGKILL is the real thing: Spark sees its Python worker vanish and starts another attempt."""
    topic = make_topic(3)
    write(numbered(spark, 50_000), kafka_cluster, topic, "faulty", **{"kafka.fault": fault})
    assert numbers(kafka_cluster, topic) == list(range(50_000))


@pytest.fixture
def faulty_sink(spark, tmp_path):
    scope: dict[str, type] = {}
    exec(compile(FAULTY, "faulty", "exec"), scope)
    spark.dataSource.register(scope["FaultySink"])


def test_a_job_that_is_run_again_sends_only_what_is_missing(spark, kafka_cluster, make_topic):
    topic = make_topic(3)
    job = f"again-{topic}"
    for _ in range(2):
        write(numbered(spark, 1_000), kafka_cluster, topic, job=job)
    assert numbers(kafka_cluster, topic) == list(range(1_000))
    write(numbered(spark, 1_000), kafka_cluster, topic)  # without a name it is another job
    assert len(records(kafka_cluster, topic)) == 2_000


def test_a_job_whose_pieces_have_changed_is_refused(spark, kafka_cluster, make_topic):
    topic = make_topic(3)
    job = f"changed-{topic}"
    write(numbered(spark, 1_000, partitions=2), kafka_cluster, topic, job=job)
    with pytest.raises(Exception, match="has changed since it was sent"):
        write(numbered(spark, 1_000, partitions=1), kafka_cluster, topic, job=job)
    assert numbers(kafka_cluster, topic) == list(range(1_000))


def test_pieces_by_column_are_known_wherever_they_come(spark, kafka_cluster, make_topic):
    """A piece of the same name is found again though it is in another partition now."""
    topic = make_topic(3)
    table = numbered(spark, 1_000, 1).withColumn("piece", F.expr("string(int(value) div 300)"))
    job = f"pieces-{topic}"
    write(table.where("piece IN ('1', '3')"), kafka_cluster, topic, job=job)
    write(
        table.repartition(4, "piece").sortWithinPartitions("piece"), kafka_cluster, topic, job=job
    )
    assert numbers(kafka_cluster, topic) == list(range(1_000))


def test_pieces_named_by_partition(spark, kafka_cluster, make_topic):
    topic = make_topic(3)
    job = f"named-{topic}"
    table = numbered(spark, 1_000, 4)
    write(table.coalesce(1), kafka_cluster, topic, job=job, pieces='["all"]')
    before = len(records(kafka_cluster, topic))
    write(table.coalesce(1), kafka_cluster, topic, job=job, pieces='["all"]')
    assert len(records(kafka_cluster, topic)) == before == 1_000
    with pytest.raises(Exception, match="partition 3 has no piece: option 'pieces' names 3"):
        write(table, kafka_cluster, topic, job=job, pieces='["a", "b", "c"]')


@pytest.mark.parametrize("pieces", ['["a", "a"]', "a,b", "[1]", '[""]'])
def test_names_of_pieces_that_cannot_be_are_refused(spark, kafka_cluster, pieces):
    with pytest.raises(Exception, match="option 'pieces'"):
        write(numbered(spark, 1), kafka_cluster, "t", job="j", pieces=pieces)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.withColumn("colour", F.lit("red")), "colour"),
        (lambda t: t.withColumn("value", F.lit(5)), "'value' is int"),
        (lambda t: t.withColumnRenamed("value", "key"), "no column 'value'"),
    ],
)
def test_a_table_that_cannot_be_records_is_refused(spark, kafka_cluster, change, message):
    with pytest.raises(Exception, match=message):
        write(change(numbered(spark, 1)), kafka_cluster, "t")


def test_an_unknown_option_and_a_missing_topic_are_refused(spark, kafka_cluster):
    with pytest.raises(Exception, match="'colour' means nothing"):
        write(numbered(spark, 1), kafka_cluster, "t", colour="red")
    with pytest.raises(Exception, match="no topic is given"):
        numbered(spark, 1).write.format("headrace").option(
            "bootstrap", kafka_cluster.bootstrap
        ).mode("append").save()


QUERY = """
    import sys
    from headrace.spark import session

    folder, topic, bootstrap, per_batch = sys.argv[1:]
    spark = session(config={"spark.sql.streaming.numRecentProgressUpdates": "1"})
    query = (
        spark.readStream.schema("value STRING").option("maxFilesPerTrigger", per_batch)
        .text(f"{folder}/in").writeStream.format("headrace")
        .option("topic", topic).option("bootstrap", bootstrap)
        .option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    spark.stop()
"""


def stream(spark, folder, topic, cluster, per_batch=2):
    query = (
        spark.readStream.schema("value STRING")
        .option("maxFilesPerTrigger", per_batch)
        .text(f"{folder}/in")
        .writeStream.format("headrace")
        .option("topic", topic)
        .option("bootstrap", cluster.bootstrap)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def make_files(folder: Path, names, rows=500):
    (folder / "in").mkdir(exist_ok=True)
    for name in names:
        lines = "".join(f"{number}\n" for number in range(name * rows, (name + 1) * rows))
        (folder / "in" / f"{name:03}.txt").write_text(lines)


def test_a_stream_goes_on_where_it_was_and_repeats_nothing(
    spark, kafka_cluster, make_topic, tmp_path
):
    topic = make_topic(3)
    make_files(tmp_path, range(4))
    stream(spark, tmp_path, topic, kafka_cluster)
    make_files(tmp_path, range(4, 6))
    stream(spark, tmp_path, topic, kafka_cluster)
    assert numbers(kafka_cluster, topic) == list(range(3_000))


def test_a_micro_batch_whose_commit_spark_forgot_is_not_sent_again(
    spark, kafka_cluster, make_topic, tmp_path
):
    topic = make_topic(3)
    make_files(tmp_path, range(4))
    stream(spark, tmp_path, topic, kafka_cluster)
    commits = sorted(
        (tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name)
    )
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    stream(spark, tmp_path, topic, kafka_cluster)
    assert numbers(kafka_cluster, topic) == list(range(2_000))


@pytest.mark.long(40)
def test_a_stream_survives_the_death_of_its_driver(spark, kafka_cluster, make_topic, tmp_path):
    """The driver gets SIGKILL as soon as its second micro-batch shows; another one goes on."""
    topic = make_topic(3)
    make_files(tmp_path, range(12))
    arguments = [str(tmp_path), topic, kafka_cluster.bootstrap, "1"]
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(QUERY), *arguments], start_new_session=True
    )
    try:
        wait_for_rows(kafka_cluster, topic, 1_000, driver)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert len(records(kafka_cluster, topic)) < 6_000
    stream(spark, tmp_path, topic, kafka_cluster, per_batch=1)
    assert numbers(kafka_cluster, topic) == list(range(6_000))


def wait_for_rows(cluster, topic, count, driver):
    from headrace.model import Deadline

    for _ in Deadline(120).polls(every=0.1):
        if len(records(cluster, topic)) >= count:
            return
        assert driver.poll() is None, "the driver ended before it was killed"
    raise AssertionError("the rows did not come")


def test_the_ledger_forgets_old_micro_batches(spark, kafka_cluster, make_topic, tmp_path):
    topic = make_topic(1)
    make_files(tmp_path, range(5), rows=10)
    stream(spark, tmp_path, topic, kafka_cluster, per_batch=1)
    query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    last = {}
    for record in records(kafka_cluster, LEDGER_TOPIC):
        job, piece = json.loads(record.key)
        if job == f"query-{query}":
            last[piece] = record.value
    kept = {int(piece.split("/")[0]) for piece, value in last.items() if value is not None}
    assert kept == {3, 4}


def test_kafka_forgets_what_the_ledger_does(spark, kafka_cluster, make_topic, tmp_path, admin):
    """Kafka compacts no segment that is written to, and every task reads all there is."""
    make_files(tmp_path, range(1), rows=10)
    stream(spark, tmp_path, make_topic(1), kafka_cluster, per_batch=1)
    found = {config.name: config.value for config in admin.configs(LEDGER_TOPIC)}
    assert found["cleanup.policy"] == "compact"
    assert int(found["segment.ms"]) <= 600_000
    assert int(found["segment.bytes"]) <= 8 << 20
    assert float(found["min.cleanable.dirty.ratio"]) <= 0.1
