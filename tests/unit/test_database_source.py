"""What the source plans of a SQLite table, and what is refused before it does. No Spark runs."""

import sqlite3
import time

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from headrace.errors import BadInput
from headrace.spark.database.addresses import Address
from headrace.spark.database.positions import Tracking
from headrace.spark.database.source import TableReader
from headrace.spark.database.staging import Stage
from headrace.spark.database.table import TableToRead

DAY = 86_400
ID = Tracking("incrementing", "id")
TIMES = [
    Tracking("timestamp", None, "modified"),
    Tracking("timestamp+incrementing", "id", "modified"),
]


@pytest.fixture
def shop(tmp_path):
    database = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    database.execute("CREATE TABLE t (id INTEGER NOT NULL, title, modified NOT NULL)")
    yield database
    database.close()


@pytest.fixture
def table(tmp_path, shop):
    address = Address.parse(f"sqlite:///{tmp_path / 'shop.db'}")
    return lambda tracking: TableToRead(address, "t", tracking)


@pytest.fixture
def reader(tmp_path, table):
    return lambda tracking: TableReader(table(tracking), Stage(str(tmp_path / "staged")))


def insert(shop, id, modified, title="a"):
    shop.execute("INSERT INTO t VALUES (?, ?, ?)", (id, title, modified))


def values(reader):
    end = reader.latestOffset({}, ReadAllAvailable())
    (part,) = reader.partitions({}, end)
    return [row["value"] for batch in reader.read(part) for row in batch.to_pylist()]


def test_a_text_that_is_none_is_sent_as_base64(shop, reader):
    insert(shop, 1, 1_700_000_000)
    shop.execute("INSERT INTO t VALUES (2, CAST(x'ff41' AS TEXT), 1700000000)")
    assert values(reader(ID)) == [
        b'{"id":1,"title":"a","modified":1700000000}',
        b'{"id":2,"title":"/0E=","modified":1700000000}',
    ]


def test_an_id_that_is_no_whole_number_is_named(shop, reader):
    """SQLite takes a text for a column of whole numbers, and puts it after them."""
    insert(shop, 1, 0)
    insert(shop, "abc", 0)
    complaint = "column 'id' of table 't' holds 'abc', no whole number"
    with pytest.raises(BadInput, match=complaint):
        reader(ID).prepareForTriggerAvailableNow()
    with pytest.raises(BadInput, match=complaint):
        reader(ID).latestOffset({}, ReadAllAvailable())


@pytest.mark.parametrize("tracking", TIMES)
@pytest.mark.parametrize("value", [20240501120000, "20240501120000", 20240501120000000])
def test_digits_that_are_no_count_since_1970_are_refused(value, tracking, shop, table):
    insert(shop, 1, value)
    with pytest.raises(BadInput, match=f"is {value!r}, taken for 2611-") as refusal:
        table(tracking).check()
    assert "'modified' of table 't'" in refusal.value.message
    assert "an ISO text, or seconds or milliseconds since 1970" in refusal.value.hint


@pytest.mark.parametrize("tracking", TIMES)
def test_rows_of_the_future_are_not_refused_if_one_has_come(tracking, shop, table):
    """Nor is an empty table, or a clock that is fast by some hours."""
    assert table(tracking).check() == ["id", "title", "modified"]
    insert(shop, 1, int(time.time()) + DAY // 2)
    assert table(tracking).check()
    insert(shop, 2, int(time.time()) + 9 * DAY)
    assert table(tracking).check()
