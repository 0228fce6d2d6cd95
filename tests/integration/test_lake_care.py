"""Care for tables: few files, the same rows, and pipelines that do not notice."""

import json
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace.cli.main import run
from headrace.clients import Connection
from headrace.services.compaction import compact
from headrace.services.lake_care import care, list_tables
from headrace.services.reconcile_sources import ReconcileOptions, reconcile
from headrace.spark.pipelines import CLICKSTREAM
from headrace.spark.pipelines.lake import Commit, Lake
from headrace.spark.pipelines.runner import StreamOptions, stream
from support.lake import assert_tables, infos, some_events
from support.waiting import eventually

SECONDS = 120


@pytest.fixture
def numbers(spark, tmp_path):
    """A table of ten numbers in four small files."""
    path = tmp_path / "lake" / "numbers"
    for start in range(0, 10, 5):
        add(spark, path, start, start + 5)
    return path


def add(spark, path, start, end):
    rows = spark.range(start, end).selectExpr("id", "0L AS changed")
    rows.write.format("delta").mode("append").save(str(path))


@pytest.mark.long(60)
def test_a_pipeline_goes_on_over_tables_that_are_cared_for(
    kafka_cluster, make_topic, tmp_path, spark, capfd
):
    """Compacted between two batches, and old files removed: every row once, all accounted for."""
    topic, lake = make_topic(3), tmp_path / "lake"
    connection = Connection(kafka_cluster.bootstrap)
    events = some_events(200)

    def batch(some):
        with hr.Producer(kafka_cluster.bootstrap) as producer:
            for event in some:
                producer.send(topic, event.to_json(), headers=[("headrace-row", event.row)])
        options = StreamOptions(
            CLICKSTREAM, str(lake), topic=topic, show_lag=False, records_per_batch=100
        )
        return stream(options, connection)

    batch(events[:150])
    before = {table.table: table for table in list_tables(str(lake))}
    assert before["events"].rows == 150
    assert (before["events"].pipeline, before["events"].files > 1) == ("clickstream", True)
    assert sum(before["events"].offsets[topic].values()) == 150

    arguments = ["lake", "care", "--lake", str(lake), "-o", "json"]
    assert run(arguments) == 0
    planned = json.loads(capfd.readouterr().out)
    assert planned["executed"] is False
    assert {t["table"]: (t["files"], t["small"]) for t in planned["tables"]} == {
        name: (table.files, table.files if table.files > 1 else 0) for name, table in before.items()
    }
    assert {t.table: t for t in list_tables(str(lake))} == before

    assert run([*arguments, "--execute"]) == 0
    done = json.loads(capfd.readouterr().out)
    assert {t["table"]: (t["files"], t["files_after"], t["problem"]) for t in done["tables"]} == {
        name: (table.files, 1, None) for name, table in before.items()
    }
    assert_tables(lake, events[:150])
    said = infos(lake, "events")

    assert batch(events[140:]).rows_out == 50
    assert_tables(lake, events)
    assert infos(lake, "events")[: len(said)] == said

    freed = care(str(lake), keep=timedelta(0), execute=True)
    assert all(table.problem is None for table in freed)
    gone = {table.table: table.removed for table in freed}
    assert gone["events"] >= before["events"].files
    assert len(list((lake / "events").glob("*.parquet"))) == 1
    assert batch(some_events(20, seed=1)).rows_out == 20
    assert_tables(lake, [*events, *some_events(20, seed=1)])
    account = reconcile(ReconcileOptions(topic, str(lake), full=True), connection)
    assert account.balanced, account.findings


def test_a_merge_that_is_overtaken_by_a_compaction_is_made_again(spark, numbers, tmp_path):
    """The batch of a pipeline does not fail: its merge finds the same rows in other files."""
    from pyspark.sql import functions as F  # noqa: N812

    begun, compacted = tmp_path / "begun", tmp_path / "compacted"

    @F.udf("long")
    def wait(number):
        Path(begun).touch()
        end = time.monotonic() + SECONDS
        while not Path(compacted).exists() and time.monotonic() < end:
            time.sleep(0.05)
        return number

    rows = spark.range(5, 12).select(wait("id").alias("id"))
    commit = Commit("app", 1, {"pipeline": "p", "so_far": {}})
    failures = []

    def merge():
        try:
            Lake(spark, str(numbers.parent)).merge(
                "numbers",
                rows,
                "t.id = s.id",
                "WHEN MATCHED THEN UPDATE SET t.changed = t.changed + 1 "
                "WHEN NOT MATCHED THEN INSERT (id, changed) VALUES (s.id, 1)",
                commit,
            )
        except Exception as failure:
            failures.append(failure)

    thread = threading.Thread(target=merge)
    thread.start()
    eventually(begun.exists, "the merge has begun", SECONDS)
    assert compact(numbers)
    compacted.touch()
    thread.join(SECONDS)
    assert failures == []
    found = spark.read.format("delta").load(str(numbers)).collect()
    assert sorted((row.id, row.changed) for row in found) == [(n, n >= 5) for n in range(12)]
    assert sum("OPTIMIZE" in entry for entry in operations(numbers)) == 1
    assert [info["pipeline"] for info in infos(numbers.parent, "numbers")] == ["p"]


def operations(path):
    from deltalake import DeltaTable

    return [commit["operation"] for commit in DeltaTable(path).history()]
