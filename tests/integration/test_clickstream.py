"""Files to Kafka to tables: the tables equal what DuckDB makes of the file."""

from collections import Counter

import duckdb
import pytest
from deltalake import DeltaTable

from headrace.clients import Connection
from headrace.services.clickstream import rows
from headrace.services.reconcile_sources import ReconcileOptions, reconcile
from headrace.spark.ingest.job import ingest
from headrace.spark.ingest.options import IngestOptions
from headrace.spark.ingest.schema import CLICKSTREAM as ROWS
from headrace.spark.pipelines import CLICKSTREAM
from headrace.spark.pipelines.runner import StreamOptions, stream
from support.duck import tables_of
from support.ingest import line_columns, write_file
from support.lake import table, tuples


@pytest.mark.long(40)
def test_the_tables_of_a_file_equal_those_of_duckdb(kafka_cluster, make_topic, tmp_path, spark):
    """DuckDB is given the good rows only."""
    lake, topic = tmp_path / "lake", make_topic(5)
    made = list(rows(20_000, 11, 0.01))
    good = [raw for raw, kind in made if kind is None]
    file = write_file(tmp_path / "events.csv", [raw for raw, _ in made])
    connection = Connection(kafka_cluster.bootstrap)
    ingest(IngestOptions([str(file)], topic, ROWS), connection)
    options = StreamOptions(CLICKSTREAM, str(lake), topic=topic, records_per_batch=12_000)
    result = stream(options, connection)
    assert result.batches == 2
    wanted = tables_of(write_file(tmp_path / "good.csv", good))
    assert wanted.pop("events") == {(len(good),)} == {(len(table(lake, "events")),)}
    for name, of_duckdb in wanted.items():
        assert tuples(lake, name) == of_duckdb, name
    assert_duckdb_reads(lake, good)
    account = reconcile(ReconcileOptions(topic, str(lake), full=True), connection)
    assert account.balanced
    assert (account.file_rows, account.table_rows) == (20_000, len(good))
    assert account.dead_rows == 20_000 - len(good)


def assert_duckdb_reads(lake, good):
    """Without Spark, as the documentation shows it."""
    events = DeltaTable(str(lake / "events")).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("events", events)
        found = connection.execute("SELECT event_type, count(*) FROM events GROUP BY ALL")
        assert dict(found.fetchall()) == Counter(line_columns(raw)[1] for raw in good)
