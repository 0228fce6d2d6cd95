"""What a batch must not cost: rows made twice, memory that stays, idle cores, files without end."""

from dataclasses import replace

import pytest
from deltalake import DeltaTable

import headrace as hr
from headrace.clients import Connection
from headrace.model import Latest, TopicPartition
from headrace.services.delta_tables import Snapshot
from headrace.spark import reading
from headrace.spark.pipelines import CLICKSTREAM
from headrace.spark.pipelines.keeping import Kept
from headrace.spark.pipelines.lake import Lake
from headrace.spark.pipelines.replaying import read_ranges
from headrace.spark.pipelines.runner import StreamOptions, stream
from support.lake import assert_tables, sessions, some_events, tuples
from support.waiting import eventually


def held(spark):
    return spark.sparkContext._jsc.sc().getPersistentRDDs().size()


@pytest.fixture
def filled(kafka_cluster, make_topic):
    """A topic of 3 partitions with 600 events; one of them twice, and three bad records."""
    topic, events = make_topic(3), some_events(600)
    with hr.Producer(kafka_cluster.bootstrap) as producer:
        for number, event in enumerate([*events, events[0]]):
            row = ("headrace-row", event.row)
            producer.send(topic, event.to_json(), headers=[row], partition=number % 3)
        for partition in range(3):
            producer.send(topic, b"nonsense", partition=partition)
    return topic, events


@pytest.mark.parametrize("local", [True, False])
def test_what_is_kept_is_made_once_and_gone_after_its_release(spark, monkeypatch, tmp_path, local):
    monkeypatch.setattr("headrace.spark.pipelines.keeping.is_local", lambda _spark: local)
    path = tmp_path / "lines.txt"
    path.write_text("one\ntwo\n")
    before, kept = held(spark), Kept()
    rows = kept.keep(spark.read.text(str(path)))
    assert rows.count() == 2
    path.unlink()
    assert {row.value for row in rows.collect()} == {"one", "two"}
    assert held(spark) == before + 1
    kept.release()
    assert held(spark) == before


def test_a_pipeline_keeps_nothing_behind_its_end(filled, kafka_cluster, spark, tmp_path):
    topic, events = filled
    before = held(spark)
    options = StreamOptions(CLICKSTREAM, str(tmp_path / "lake"), topic=topic)
    stream(options, Connection(kafka_cluster.bootstrap))
    assert held(spark) == before
    assert_tables(tmp_path / "lake", events)


@pytest.mark.long(15)
def test_a_small_batch_of_many_partitions_is_one_file(filled, kafka_cluster, spark, tmp_path):
    topic, _ = filled
    alone = replace(CLICKSTREAM, derived=())
    stream(StreamOptions(alone, str(tmp_path), topic=topic), Connection(kafka_cluster.bootstrap))
    for table in ("events", "dead_letters"):
        assert len(DeltaTable(str(tmp_path / table)).file_uris()) == 1


def test_a_long_partition_is_shared_by_tasks(
    filled, kafka_cluster, spark, monkeypatch, tmp_path, admin
):
    monkeypatch.setattr(reading, "_LEAST_RECORDS", 50)
    topic, events = filled
    ends = {
        str(at.partition): (0, end)
        for at, end in admin.offsets([TopicPartition(topic, p) for p in range(3)], Latest()).items()
    }
    connection = Connection(kafka_cluster.bootstrap)
    found = read_ranges(spark, connection, {topic: ends})
    assert found.rdd.getNumPartitions() > 3
    assert found.select("partition", "offset").distinct().count() == 604
    tasks, keep = [], Kept.keep

    def counting(kept, rows):
        tasks.append(rows.rdd.getNumPartitions())
        return keep(kept, rows)

    monkeypatch.setattr(Kept, "keep", counting)
    stream(StreamOptions(CLICKSTREAM, str(tmp_path / "lake"), topic=topic), connection)
    assert tasks[0] > 3
    assert_tables(tmp_path / "lake", events)


@pytest.mark.long(15)
def test_the_size_of_tables_is_told_with_each_batch_without_work_for_spark(
    filled, kafka_cluster, spark, monkeypatch, tmp_path
):
    topic, _ = filled
    told, jobs, ask = [], [], Lake.known_bytes
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()

    def counting(lake, table):
        before = scheduler.numTotalJobs()
        size = ask(lake, table)
        jobs.append(scheduler.numTotalJobs() - before)
        return size

    monkeypatch.setattr(Lake, "known_bytes", counting)
    options = StreamOptions(CLICKSTREAM, str(tmp_path), topic=topic, records_per_batch=300)
    stream(options, Connection(kafka_cluster.bootstrap), on_batch=told.append)
    assert len(told) > 1
    assert sum(jobs) == 0
    tables = ("events", "sessions", "funnel", "revenue", "dead_letters")
    sizes = {name: sum(Snapshot(tmp_path / name).file_sizes()) for name in tables}
    assert told[-1].tables == sizes
    assert told[-1].state == sum(sizes.values()) > told[0].state > 0
    assert not (tmp_path / "revenue_late").exists()


@pytest.fixture
def generated_code(spark):
    """Spark's own figures of the code that it has generated and compiled."""
    if spark.conf.get("spark.sql.codegen.factoryMode") == "NO_CODEGEN":
        pytest.skip("this Spark generates no code: test_generated_code.py runs this with another")
    return spark._jvm.org.apache.spark.metrics.source.CodegenMetrics


def test_batches_of_the_same_hours_run_the_code_that_is_there(
    kafka_cluster, make_topic, generated_code, tmp_path
):
    """Spark writes times that a query names into its code, and would compile it for each batch."""
    topic, events, compiled = make_topic(1), some_events(150, minutes=50), []
    with hr.Producer(kafka_cluster.bootstrap) as producer:
        for event in events:
            producer.send(topic, event.to_json(), headers=[("headrace-row", event.row)])
    pipeline = replace(CLICKSTREAM, derived=CLICKSTREAM.derived[:1])  # both that ask for times
    options = StreamOptions(pipeline, str(tmp_path), topic=topic, records_per_batch=30)
    stream(
        options,
        Connection(kafka_cluster.bootstrap),
        on_batch=lambda _: compiled.append(generated_code.METRIC_COMPILATION_TIME().getCount()),
    )
    assert len(compiled) == 5
    assert compiled[0] > 0
    assert compiled[-1] == compiled[-2]
    assert tuples(tmp_path, "sessions") == sessions(events)


def records_in_memory(spark):
    """How many of Kafka's records Spark's Java holds, after it has swept."""
    jvm, new_array = spark._jvm, spark.sparkContext._gateway.new_array
    java = jvm.java.lang
    server = java.management.ManagementFactory.getPlatformMBeanServer()
    # By reflection: the server's own class is hidden from callers like Py4J.
    kind = java.Class.forName("javax.management.MBeanServer")
    invoke = next(each for each in kind.getMethods() if each.getName() == "invoke")
    signature, arguments = new_array(java.String, 1), new_array(java.Object, 1)
    signature[0], arguments[0] = "[Ljava.lang.String;", new_array(java.String, 0)
    given = new_array(java.Object, 4)
    given[0] = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    given[1], given[2], given[3] = "gcClassHistogram", arguments, signature
    histogram = invoke.invoke(server, given)
    counts = [
        int(line.split()[1])
        for line in histogram.splitlines()
        if "org.apache.kafka.clients.consumer.ConsumerRecord" in line.split()
    ]
    return sum(counts)


def test_records_do_not_stay_in_memory_when_they_are_read(kafka_cluster, make_topic, spark):
    topic = make_topic(1)
    with hr.Producer(kafka_cluster.bootstrap) as producer:
        for number in range(5_000):
            producer.send(topic, b"%d" % number)
    options = reading.committed(Connection(kafka_cluster.bootstrap))
    records = spark.read.format("kafka").options(**options).option("subscribe", topic).load()
    assert records.agg({"value": "max"}).collect()[0][0] is not None
    eventually(lambda: records_in_memory(spark) < 5_000, "the records are gone")
