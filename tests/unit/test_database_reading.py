"""A table of SQLite, looked at; where a database is said to be; what a row is as JSON."""

import sqlite3
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from headrace.errors import BadInput, ConfigError
from headrace.spark.database.addresses import Address
from headrace.spark.database.positions import Limits, Position, Tracking
from headrace.spark.database.reading import looking
from headrace.spark.database.values import to_json
from headrace.spark.pipelines import INVOICES, DatabaseTable, Derive, Field, Forward
from headrace.spark.pipelines.databases import find_database, sends_rows_as_they_are

BOTH = Tracking("timestamp+incrementing", "id", "modified")
START = 1_700_000_000


@pytest.fixture
def shop(tmp_path):
    database = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, title, modified TIMESTAMP)")
    database.executemany(
        "INSERT INTO t VALUES (?, ?, ?)", [(2, "b", START), (1, "a", START), (3, "c", START + 1)]
    )
    yield database
    database.close()


@pytest.fixture
def address(tmp_path, shop):
    return Address.parse(f"sqlite:///{tmp_path / 'shop.db'}")


BEGINNING = Position()


def read(address, start=BEGINNING, **limits):
    with looking(address, "t") as database:
        found = database.rows(("title", "modified"), BOTH, start, Limits(**limits))
        return [(row.id, *row.values) for row in found]


def test_rows_come_in_order_from_where_one_is(address):
    a, b, c = (
        (1, "a", "2023-11-14T22:13:20Z"),
        (2, "b", "2023-11-14T22:13:20Z"),
        (3, "c", "2023-11-14T22:13:21Z"),
    )
    assert read(address) == [a, b, c]
    assert read(address, rows=1) == [a]
    assert read(address, Position(START, 1)) == [b, c]
    assert read(address, moment=(START + 1) * 10**6) == [a, b]


def test_a_look_is_of_one_moment(address, shop):
    """What is written while it lasts, the look does not see."""
    shop.execute("PRAGMA journal_mode = wal")  # else the writer would have to wait
    with looking(address, "t") as database:
        shop.execute("INSERT INTO t VALUES (4, 'd', ?)", (START,))
        found = list(database.rows(("title",), BOTH, Position(), Limits()))
        assert len(found) == 3
        assert abs(database.now(BOTH) / 10**6 - datetime.now(UTC).timestamp()) < 60


def test_rows_that_would_never_be_seen_are_refused(address, shop):
    with looking(address, "t") as database:
        database.refuse_nulls(BOTH)
    shop.execute("INSERT INTO t VALUES (4, 'd', NULL)")
    with (
        looking(address, "t") as database,
        pytest.raises(BadInput, match="has rows whose 'modified' is null"),
    ):
        database.refuse_nulls(BOTH)


def test_a_text_that_is_none_is_bytes(address, shop):
    """It stops nothing, unless rows are placed by it."""
    shop.execute("UPDATE t SET title = CAST(x'ff41' AS TEXT) WHERE id = 2")
    assert [title for _, title, _ in read(address)] == ["a", b"\xffA", "c"]
    shop.execute("UPDATE t SET modified = CAST(x'ff41' AS TEXT) WHERE id = 2")
    with pytest.raises(BadInput, match=r"a timestamp is b'\\xffA', which is no time"):
        read(address)
    with (
        looking(address, "t") as database,
        pytest.raises(BadInput, match=r"'title' of table 't' holds b'\\xffA', no whole number"),
    ):
        database.newest_id("title")


def test_a_row_keeps_every_digit():
    row = {
        "whole": 2**63 - 1,
        "amount": Decimal("12345678901234567890.120"),
        "none": Decimal("NaN"),
        "at": datetime(2024, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC),
        "local": datetime(2024, 5, 1, 12),
        "day": date(2024, 5, 1),
        "bytes": b"\xff",
        "nested": {"rate": [Decimal("0.10"), None]},
    }
    assert to_json(list(row), list(row.values())).decode() == (
        '{"whole":9223372036854775807,"amount":12345678901234567890.120,"none":"NaN",'
        '"at":"2024-05-01T12:00:00.250Z","local":"2024-05-01T12:00:00","day":"2024-05-01",'
        '"bytes":"/w==","nested":{"rate":[0.10,null]}}'
    )


# --- definitions ---


def test_where_the_database_is(tmp_path):
    """The nearer word counts; a password may stand only where others do not read it."""
    own = DatabaseTable("t", Field("id", "long"), url="sqlite:///own.db")
    free = DatabaseTable("t", Field("id", "long"))
    given = Address.parse("sqlite:///given.db")
    variables = {"HEADRACE_DATABASE": "postgresql://ann:secret@db/shop", "URL": "sqlite:///file.db"}
    file = tmp_path / "headrace.toml"
    file.write_text('database = "sqlite:///toml.db"')

    def found(table, given=None, environment=variables):
        return str(find_database(table, given, environment, tmp_path))

    assert found(own, given) == "sqlite:///given.db"
    assert found(own) == "sqlite:///own.db"
    assert found(free) == "postgresql://ann@db/shop"
    assert found(free, environment={}) == "sqlite:///toml.db"
    file.write_text('database = { env = "URL" }')
    assert found(free, environment={"URL": "sqlite:///file.db"}) == "sqlite:///file.db"
    file.write_text('database = "postgresql://ann:secret@db/shop"')
    with pytest.raises(ConfigError, match="stands where others can read it"):
        found(free, environment={})
    file.write_text("")
    with pytest.raises(BadInput, match="no database is given"):
        found(free, environment={})


@pytest.mark.parametrize(
    ("arguments", "settings", "complaint"),
    [
        (("",), {}, "a table without a name"),
        (("t",), {}, "a value without fields"),
        (("t", Field("id")), {"mode": "bulk"}, "mode is 'bulk'"),
        (("t", Field("id")), {"delay": "soon"}, "'soon' is no span of time"),
        (("t", Field("id")), {"url": "mysql://db"}, "is no address of a database"),
        (("t", Field("id")), {"url": "postgresql://a:b@db/shop"}, "others can read it"),
        (("what?", Field("id")), {}, "is called 'what\\?'"),
        (("t", Field("id")), {"incrementing": None}, "needs a column for it: incrementing"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_when_it_is_declared(arguments, settings, complaint):
    with pytest.raises(BadInput, match=complaint):
        DatabaseTable(*arguments, **settings)


def test_rows_that_nothing_is_done_to_go_on_as_they_are():
    source = INVOICES.source
    renamed = DatabaseTable("t", Field("id", "long", "number"))
    assert sends_rows_as_they_are(INVOICES)
    assert not sends_rows_as_they_are(Forward("f", source, "t", value=("id",)))
    assert not sends_rows_as_they_are(Forward("f", source, "t", steps=(Derive("x", "1"),)))
    assert not sends_rows_as_they_are(Forward("f", renamed, "t"))
