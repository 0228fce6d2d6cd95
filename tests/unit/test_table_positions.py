"""Reading a table row by row, in any mode: nothing is missed, nothing comes twice."""

import itertools
import sqlite3
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput, ConfigError
from headrace.spark.database.moments import SECOND, iso, span_of
from headrace.spark.database.positions import Limits, Position, Row, Tracking, position_of
from support.examples import examples

START = 1_700_000_000 * SECOND
BOTH, TIME, ID = "timestamp+incrementing", "timestamp", "incrementing"


def tracking(mode, delay=0.0):
    return Tracking(mode, "id", "modified", delay)


# --- one look ---


def rows(*places):
    return [Row((), timestamp, id) for timestamp, id in places]


def taken(mode, some, **limits):
    return [(row.timestamp, row.id) for row in tracking(mode).take(some, Limits(**limits))]


def at(seconds):
    return START // SECOND + seconds


def test_a_batch_never_ends_between_two_rows_that_only_a_timestamp_places():
    some = rows((at(0), 1), (at(1), 2), (at(1), 3), (at(1), 4), (at(2), 5))
    assert taken(TIME, some, rows=2) == [(at(0), 1), (at(1), 2), (at(1), 3), (at(1), 4)]
    assert taken(BOTH, some, rows=2) == [(at(0), 1), (at(1), 2)]
    assert taken(ID, some, rows=2) == [(at(0), 1), (at(1), 2)]


@pytest.mark.parametrize("mode", [TIME, BOTH])
def test_a_row_counts_when_the_span_of_its_timestamp_is_over(mode):
    some = rows((at(0), 1), (at(1), 2))
    assert taken(mode, some, moment=START + SECOND - 1) == []
    assert taken(mode, some, moment=START + SECOND) == [(at(0), 1)]
    assert taken(mode, some, moment=START + 2 * SECOND) == [(at(0), 1), (at(1), 2)]


def test_the_delay_is_kept():
    assert tracking(TIME, delay=2.5).settled_by(START) == START - 2_500_000


def test_a_known_id_bounds_what_an_incrementing_look_takes():
    assert taken(ID, rows((None, 1), (None, 2), (None, 3)), id=2) == [(None, 1), (None, 2)]


def test_timestamps_of_several_forms_are_refused():
    """As texts the first comes before the second, as times it does not."""
    mixed = rows(("2024-05-01 12:00:00", 1), ("2024-05-01T11:00:00", 2))
    with pytest.raises(BadInput, match="comes after later ones"):
        taken(BOTH, mixed)


@pytest.mark.parametrize(
    ("mode", "start", "expected"),
    [
        (ID, Position(id=7), (' WHERE "id" > ? ORDER BY "id" LIMIT 5', (7,))),
        (TIME, Position("t"), (' WHERE "modified" > ? ORDER BY "modified"', ("t",))),
        (
            BOTH,
            Position("t", 7),
            (' WHERE ("modified", "id") > (?, ?) ORDER BY "modified", "id" LIMIT 5', ("t", 7)),
        ),
        (BOTH, Position(), (' ORDER BY "modified", "id" LIMIT 5', ())),
    ],
)
def test_what_is_asked_of_the_database(mode, start, expected):
    assert tracking(mode).query(start, 5) == expected


def test_a_position_comes_back_out_of_json():
    assert position_of({}) == Position()
    assert position_of({"id": 2**60 + 1, "rows": 3, "of": "t"}) == Position(None, 2**60 + 1, 3)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"mode": "bulk"}, "mode is 'bulk'"),
        ({"mode": BOTH, "timestamp": "m"}, "needs a column for it: incrementing"),
        ({"mode": TIME, "incrementing": "id"}, "needs a column for it: timestamp"),
        ({"mode": ID, "incrementing": "id", "delay": -1}, "the delay is -1"),
    ],
)
def test_tracking_that_cannot_work_is_refused(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        Tracking(**settings)


# --- what timestamps mean ---


@pytest.mark.parametrize(
    ("value", "length"),
    [
        (1_700_000_000, SECOND),
        (1_700_000_000_000, 1_000),
        (1_700_000_000_000_000, 1),
        (1_700_000_000.0, SECOND),
        ("1700000000", SECOND),
        ("2023-11-14 22:13:20", SECOND),
        ("2023-11-14T22:13:20Z", SECOND),
        ("2023-11-14T23:13:20+01:00", SECOND),
        (datetime(2023, 11, 14, 22, 13, 20), SECOND),
        (datetime(2023, 11, 14, 23, 13, 20, tzinfo=timezone(timedelta(hours=1))), SECOND),
    ],
)
def test_one_moment_in_many_forms(value, length):
    assert span_of(value) == (START, START + length)
    assert iso(value) == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2023-11-14", 86_400),
        ("2023-11-14T22", 3_600),
        ("2023-11-14 22:13", 60),
        ("20231114T2213", 60),
        ("2023-11-14T22:13Z", 60),
        ("2023-11-14T22:13-05:00", 60),
        ("2023-11-14 22-05", 3_600),
        ("2023-11-14 22:13:00", 1),
    ],
)
def test_a_timestamp_lasts_as_long_as_its_text_says(value, seconds):
    begin, end = span_of(value)
    assert end - begin == seconds * SECOND


@pytest.mark.parametrize(
    ("value", "begin", "length", "text"),
    [
        ("2023-11-14 22:13:20.250", 250_000, 1_000, "2023-11-14T22:13:20.250Z"),
        (1_700_000_000.25, 250_000, 1_000, "2023-11-14T22:13:20.250Z"),
        (
            datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC),
            1,
            1,
            "2023-11-14T22:13:20.000001Z",
        ),
    ],
)
def test_fractions_of_a_second(value, begin, length, text):
    assert span_of(value) == (START + begin, START + begin + length)
    assert iso(value) == text


def test_a_day_lasts_a_day():
    span = span_of("2023-11-14")
    assert span.end - span.begin == 86_400 * SECOND


NO_TIMES = [
    *(None, True, "soon", "", 12, 2_460_000.5, b"1700000000", -1),
    *("infinity", "0044-03-15 00:00:00 BC", "9999-12-31T23:59:59-05:00", "9" * 5_000),
]


@pytest.mark.parametrize("value", NO_TIMES)
def test_what_is_no_time_is_refused(value):
    with pytest.raises(BadInput, match="is no time"):
        span_of(value)


# --- a table that changes while it is read ---


@dataclass
class World:
    """A table, its writers, and a stream that reads it in between.

    A writer takes its timestamp when it begins and commits up to `delay` later; the row it changes
    is its own until then.
    """

    mode: str
    unit: int  # of timestamps, in microseconds
    delay: float
    now: int = START
    ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    versions: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    pending: "list[tuple[int, int, int, int]]" = field(default_factory=list)
    position: Position = field(default_factory=Position)
    seen: "list[tuple[int, int]]" = field(default_factory=list)

    def __post_init__(self):
        self.table = sqlite3.connect(":memory:", isolation_level=None)
        self.table.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, modified, version)")
        self.tracking = tracking(self.mode, self.delay)

    def write(self, id, lateness):
        if any(id == other for _, other, *_ in self.pending):
            return
        # As many units as fit: this is what a column of whole seconds or milliseconds holds.
        timestamp = self.now // self.unit
        self.pending.append((self.now + lateness, id, timestamp, next(self.versions)))
        self._commit()

    def insert(self, lateness):
        self.write(next(self.ids), lateness)

    def change(self, lateness):
        committed = [id for (id,) in self.table.execute("SELECT id FROM t ORDER BY id")]
        if committed:
            self.write(committed[lateness % len(committed)], lateness)

    def pass_time(self, time):
        self.now += time
        self._commit()

    def _commit(self):
        for due, *row in sorted(self.pending):
            if due <= self.now:
                self.table.execute("REPLACE INTO t VALUES (?, ?, ?)", row)
        self.pending = [write for write in self.pending if write[0] > self.now]

    def look(self, limit):
        """Read one batch; returns how many rows it had."""
        rest, parameters = self.tracking.query(self.position, limit)
        found = self.table.execute(f"SELECT id, modified, version FROM t{rest}", parameters)
        placed = (Row(values, values[1], values[0]) for values in found)
        limits = Limits(moment=self.tracking.settled_by(self.now), rows=limit)
        batch = list(self.tracking.take(placed, limits))
        self.seen += [(row.values[0], row.values[2]) for row in batch]
        if batch:
            rows = self.position.rows + len(batch)
            self.position = self.tracking.position(batch[-1], rows)
        return len(batch)

    def finish(self):
        """Everything commits and counts, and is read."""
        self.pass_time(round((2 * self.delay + 2) * SECOND) + 2 * self.unit)
        for _ in range(1_000):
            if not self.look(3):
                return
        raise AssertionError("it never comes to an end")

    def there(self):
        return sorted(self.table.execute("SELECT id, version FROM t"))


DELAY = 0.05
lateness = st.sampled_from([0, 0, 1_000, 20_000, round(DELAY * SECOND)])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), lateness),
        st.tuples(st.just("change"), lateness),
        st.tuples(st.just("pass_time"), st.sampled_from([300, 2_000, 15_000, 700_000, SECOND])),
        st.tuples(st.just("look"), st.integers(1, 4)),
    ),
    max_size=60,
)


@examples(400)
@given(steps=steps, mode=st.sampled_from([TIME, BOTH]), unit=st.sampled_from([SECOND, 1_000]))
def test_every_row_is_seen_as_it_is_at_last_and_no_version_twice(steps, mode, unit):
    """Writers are late by up to the delay, timestamps are shared, looks come at any time."""
    world = World(mode, unit, DELAY)
    for name, argument in steps:
        getattr(world, name)(argument)
    world.finish()
    assert len(set(world.seen)) == len(world.seen)
    latest = dict(world.seen)  # the last that was seen of each row
    assert sorted(latest.items()) == world.there()
    for id in latest:
        versions = [version for other, version in world.seen if other == id]
        assert versions == sorted(versions)


@examples(200)
@given(steps=steps)
def test_incrementing_sees_every_row_once_in_order(steps):
    """Ids commit in their order here, as in SQLite; changes are not seen."""
    world = World(ID, SECOND, 0)
    for name, argument in steps:
        getattr(world, name)(argument if name in ("look", "pass_time") else 0)
    world.finish()
    assert [id for id, _ in world.seen] == [id for id, _ in world.there()]
