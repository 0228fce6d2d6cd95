"""Files to Kafka to tables: the tables equal what DuckDB makes of the file."""

from headrace.clients import Connection
from headrace.services.generate import write_clickstream
from headrace.services.reconcile_sources import ReconcileOptions, reconcile
from headrace.spark.ingest.job import ingest
from headrace.spark.ingest.options import IngestOptions
from headrace.spark.ingest.schema import CLICKSTREAM as ROWS
from headrace.spark.pipelines import CLICKSTREAM
from headrace.spark.pipelines.runner import StreamOptions, stream
from support.duck import tables_of
from support.lake import table, tuples


def test_the_tables_of_a_file_equal_those_of_duckdb(kafka_cluster, make_topic, tmp_path, spark):
    file, lake, topic = tmp_path / "events.csv", tmp_path / "lake", make_topic(5)
    write_clickstream(file, 20_000, seed=11, bad=0.0)
    connection = Connection(kafka_cluster.bootstrap)
    ingest(IngestOptions([str(file)], topic, ROWS), connection)
    options = StreamOptions(CLICKSTREAM, str(lake), topic=topic, records_per_batch=12_000)
    result = stream(options, connection)
    assert result.batches == 2
    wanted = tables_of(file)
    assert wanted.pop("events") == {(20_000,)} == {(len(table(lake, "events")),)}
    for name, rows in wanted.items():
        assert tuples(lake, name) == rows, name
    account = reconcile(ReconcileOptions(topic, str(lake), full=True), connection)
    assert account.balanced
    assert (account.file_rows, account.table_rows, account.dead_rows) == (20_000, 20_000, 0)
