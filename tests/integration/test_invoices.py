"""Rows of a database table to a topic: each version once, whatever happens in between."""

import pytest

pytest.importorskip("pyspark")

from headrace.clients import Connection
from headrace.errors import BadInput, HeadraceError
from headrace.spark.database.addresses import Address
from headrace.spark.pipelines import INVOICES, Field
from headrace.spark.pipelines.runner import StreamOptions, stream
from support.ingest import records
from support.invoices import Invoices, by_id, in_mode, versions_in
from support.waiting import eventually

SECONDS = 240


@pytest.fixture
def invoices(tmp_path):
    made = Invoices(tmp_path / "shop.db")
    yield made
    made.close()


@pytest.fixture
def topic(make_topic):
    return make_topic(3)


@pytest.fixture
def run(spark, kafka_cluster, topic, invoices, tmp_path):
    """Run a pipeline over the table into the topic."""

    def run(pipeline=INVOICES, url=None, **options):
        wanted = StreamOptions(
            pipeline,
            str(tmp_path / "lake"),
            topic=topic,
            database=Address.parse(url or invoices.url),
            dead_topic=f"{topic}.dead",
            **options,
        )
        return stream(wanted, Connection(kafka_cluster.bootstrap))

    return run


@pytest.fixture
def dead(kafka_cluster, topic, admin):
    yield lambda: records(kafka_cluster, f"{topic}.dead")
    admin.delete_topic(f"{topic}.dead")


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param("incrementing", marks=pytest.mark.long(15)),
        pytest.param("timestamp", marks=pytest.mark.long(15)),
        "timestamp+incrementing",
    ],
)
def test_each_version_once_though_batches_end_between_equal_timestamps(
    mode, invoices, run, kafka_cluster, topic, dead
):
    """Three rows share a timestamp and a batch has two; a row is changed; runs are resumed."""
    pipeline = in_mode(mode)
    invoices.insert("a")
    invoices.tick()
    invoices.insert("b", "c", "d")
    assert run(pipeline, records_per_batch=2).rows_out == 4
    assert run(pipeline).batches == 0

    invoices.tick()
    invoices.change(2, "b again")
    invoices.insert("e", "f")
    invoices.delete(3)
    more = run(pipeline, records_per_batch=1)
    changes_seen = mode != "incrementing"
    assert more.rows_out == 2 + changes_seen
    expected = [v for v in invoices.versions if changes_seen or v[1] != "b again"]
    assert versions_in(kafka_cluster, topic) == by_id(expected)
    assert not dead()


def test_values_are_what_the_database_holds(invoices, run, kafka_cluster, topic, dead):
    """To the digit, with nulls; what does not fit its field is a dead letter."""
    invoices.insert("a", "b")
    write = invoices._database.execute
    write("UPDATE invoices SET billedamt = 1234567890123.25, details = 'ä' WHERE id = 1")
    write("UPDATE invoices SET billedamt = 'much' WHERE id = 2")
    done = run()
    assert (done.rows_in, done.rows_out, done.rows_dead) == (2, 1, 1)
    (record,) = records(kafka_cluster, topic)
    assert record.value.decode() == (
        '{"id":1,"title":"a","details":"ä","billedamt":1234567890123.25,'
        '"modified":"2023-11-14T22:13:20Z"}'
    )
    assert dict(record.headers) == {"headrace-row": b"invoices:1@1700000000"}
    (letter,) = dead()
    assert b"billedamt is no decimal(18,2): much" in dict(letter.headers)["headrace-reason"]


def test_rows_that_change_while_a_batch_is_run_again(
    invoices, run, kafka_cluster, topic, tmp_path, dead
):
    """The batch was sent, and Spark did not hear of it. Its rows are changed and deleted meanwhile:
    run again it has the rows that it had, and the sink finds them sent."""
    invoices.insert("a", "b", "c")
    run()
    for file in (tmp_path / "lake/_checkpoints/invoices/commits").iterdir():
        file.unlink()
    invoices.tick()
    invoices.change(1, "a again")
    invoices.delete(2)
    assert run().batches == 2
    assert versions_in(kafka_cluster, topic) == by_id(invoices.versions)


@pytest.mark.long(60)
def test_a_driver_that_is_killed_repeats_nothing_and_misses_nothing(
    headrace, invoices, kafka_cluster, topic, tmp_path, admin
):
    """SIGKILL hits the driver and its JVM between two batches or in one; rows change meanwhile."""
    for number in range(40):
        invoices.insert(f"a{number}", f"b{number}")
        invoices.tick()
    arguments = [
        *("stream", "invoices", "--database", invoices.url, "--topic", topic),
        *("--lake", "lake", "--records-per-batch"),
    ]
    with headrace.killed(*arguments, "3", "--every", "100ms"):
        eventually(lambda: records(kafka_cluster, topic), "some rows", SECONDS)
    assert len(records(kafka_cluster, topic)) < 80
    invoices.change(1, "changed")
    invoices.change(80, "changed too")
    done = headrace(*arguments, "7", "--once", "-o", "json", seconds=SECONDS).json
    assert done["rows_out"] > 0
    found = versions_in(kafka_cluster, topic)
    assert len(set(found)) == len(found)
    # What was changed before it was read is seen as it is now, and only so.
    assert dict(found) == dict(invoices.versions)
    assert set(found) <= set(invoices.versions)
    assert len(found) >= 81  # id 1 was in the first batch
    admin.delete_topic("invoices.invoices.dead")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--database", "mysql://ann:secret@db/shop"), "is no address of a database"),
        (("--database", "postgresql://ann:secret@db/shop"), "stands where others can read it"),
        (("--database", "sqlite:///nope.db"), "there is no file nope.db"),
        ((), "table 'invoices': no database is given"),
    ],
)
def test_a_wrong_database_is_told_before_spark_starts(headrace, topic, arguments, complaint):
    done = headrace.refused(
        2, "stream", "invoices", "--topic", topic, "--lake", "lake", "--once", *arguments
    )
    assert complaint in done.error
    assert "secret" not in done.stderr


def test_what_cannot_be_read_is_refused(invoices, run, tmp_path):
    write = invoices._database.execute
    with pytest.raises(BadInput, match="has no column 'paid'") as refusal:
        run(in_mode("incrementing", fields=(Field("id", "long"), Field("paid"))))
    assert refusal.value.hint == "there are id, title, details, billedamt, modified"
    with pytest.raises(BadInput, match="real-time mode cannot"):
        run(realtime=True)

    invoices.insert("a")
    with pytest.raises(BadInput, match="holds 'a', no whole number"):
        run(in_mode("incrementing", incrementing="title"))
    with pytest.raises(BadInput, match="a timestamp is 'a', which is no time"):
        run(in_mode("timestamp", timestamp="title"))
    with pytest.raises(BadInput, match="rows whose 'details' is null: they would never be seen"):
        run(in_mode("timestamp", timestamp="details"))

    write("ALTER TABLE invoices RENAME TO bills")
    with pytest.raises(BadInput, match="there is no table 'invoices'") as refusal:
        run()
    assert refusal.value.hint == "there are: bills"
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at" * 99)
    with pytest.raises(HeadraceError, match="cannot be read: file is not a database"):
        run(url=f"sqlite:///{tmp_path / 'text.db'}")


def test_a_checkpoint_is_of_one_table_and_mode(invoices, run, dead):
    invoices.insert("a")
    run(in_mode("incrementing"))
    with pytest.raises(BadInput, match="mode incrementing by id, not of"):
        run(in_mode("timestamp"))
