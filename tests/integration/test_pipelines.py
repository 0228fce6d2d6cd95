"""Pipelines on Spark: tables equal what is worked out without Spark, whatever happens meanwhile."""

import threading
from dataclasses import replace
from datetime import timedelta
from itertools import groupby

import orjson
import pytest

import headrace as hr
from headrace import model
from headrace.errors import BadInput, HeadraceError
from headrace.spark.pipelines import (
    Count,
    Derive,
    Expect,
    Field,
    Greatest,
    Json,
    Latest,
    Least,
    Lookup,
    Pipeline,
    Rows,
    Sum,
    Topic,
    Totals,
    Windows,
)
from support.ingest import records
from support.lake import (
    START,
    Event,
    assert_tables,
    infos,
    revenue,
    some_events,
    table,
    tuples,
)
from support.pipelines import Rig, simple
from support.streaming import reading
from support.warnings import Warnings


@pytest.fixture
def rig(kafka_cluster, make_topic, tmp_path, spark):
    return Rig(kafka_cluster, make_topic(3), tmp_path / "lake")


def test_four_tables_equal_the_reference_over_many_batches(rig, admin):
    events = some_events(600)
    rig.send(events[:400])
    bad = [
        (b"no JSON", "no JSON object"),
        (b'{"eventTime": 1', "no JSON object"),
        (b"\xff\xfe{}", "not UTF-8"),
        (None, "the value is null"),
        (b"[1]", "no JSON object"),
        (events[0].to_json() * 2, "something follows the JSON object"),
        (swapped(events[0], "eventTime", 1_570_000_000_000_000), "eventTime is no time"),
        (swapped(events[0], "eventTime", 2**62), "eventTime is no time"),
        (orjson.dumps({"eventType": "view"}), "eventTime is missing or null"),
        (swapped(events[0], "price", "dear"), "price is no decimal(12,2): dear"),
        (swapped(events[0], "price", -1), "not as expected: a price that is not negative"),
        (swapped(events[0], "eventType", "stare"), "not as expected: a known type of event"),
    ]
    rig.send_raw([(value, f"bad:{number}") for number, (value, _) in enumerate(bad)])
    padded = events[0].to_json() + b"\n"
    rig.send_raw([(padded, events[0].row)], headers=[("trace", b"1")])
    rig.send(events[300:])  # a hundred once more
    first = rig.run(records_per_batch=250)
    assert first.batches >= 3
    assert (first.rows_in, first.rows_out) == (701 + len(bad), 600)
    assert (first.rows_dead, first.duplicates) == (len(bad), 101)
    assert_tables(rig.lake, events)

    found = rig.dead()
    assert sorted(value or b"" for *_, value, _ in found) == sorted(v or b"" for v, _ in bad)
    for value, reason in bad:
        assert reason in next(why for *_, what, why in found if what == value)
    kept = table(rig.lake, "dead_letters")
    names = ("kafka_partition", "kafka_offset", "value", "reason")
    assert {tuple(row[name] for name in names) for row in kept} == set(found)
    assert len(kept) == len(found)

    last = infos(rig.lake, "events")[-1]["so_far"]
    places = [model.TopicPartition(rig.topic, number) for number in range(3)]
    ends = {p.partition: o for p, o in admin.offsets(places, model.Latest()).items()}
    assert {int(p): end for p, (_, end) in last["ranges"][rig.topic].items()} == ends
    assert last["counts"]["rows_in"] == 701 + len(bad)
    committed = {p.partition: o for p, o in admin.committed(rig.group).items()}
    assert committed == ends

    nothing = rig.run()
    assert (nothing.batches, nothing.rows_in) == (0, 0)
    more = some_events(100, seed=1)
    rig.send(more)
    assert rig.run().rows_out == 100
    assert_tables(rig.lake, [*events, *more])


def swapped(event, field, value):
    return orjson.dumps(orjson.loads(event.to_json()) | {field: value})


def test_times_from_the_future_make_nothing_late_and_no_time_is_not_late(rig):
    pipeline = Pipeline(
        "clicks",
        source=Topic("clicks", Json(Field("page"), Field("at", "time"))),
        time="at",
        rows=Rows("clicks"),
        derived=(Totals("pages", {"page": "page"}, {"clicks": Count()}, late="1 hour"),),
    )
    day = 86_400_000
    rig.send_raw([(orjson.dumps({"page": "a", "at": at}), None) for at in (40_000 * day, 2 * day)])
    rig.run(pipeline)
    rig.send_raw([(orjson.dumps({"page": "a", "at": at}), None) for at in (2 * day, None, day)])
    rig.run(pipeline)
    assert tuples(rig.lake, "pages") == {("a", 4)}
    assert [row["at"].day for row in table(rig.lake, "pages_late")] == [2]


@pytest.mark.long(15)
def test_late_rows_are_counted_and_kept_but_not_added(rig):
    new = some_events(50, seed=3, start=START + timedelta(days=3))
    old = some_events(50, seed=4)
    edge = max(event.time for event in new) - timedelta(days=1)
    just = [replace_time(new[0], "just", edge), replace_time(new[0], "late", edge - SECOND)]
    rig.send(new)
    rig.run()
    rig.send([*old, *just])
    rig.run()
    late = [*old, just[1]]
    assert {row["row_id"] for row in table(rig.lake, "revenue_late")} == {e.row for e in late}
    assert tuples(rig.lake, "revenue") == revenue([*new, just[0]])
    assert infos(rig.lake, "events")[-1]["late"] == {"revenue": len(late)}
    assert len(table(rig.lake, "events")) == 102


SECOND = timedelta(seconds=1)


def test_kafka_is_read_once_for_all_tables_of_a_batch(rig, spark):
    rig.send(some_events(90))
    with reading(spark) as read:
        rig.run()
    assert read.records == 90


def test_a_topic_without_records_may_be_read_again_and_again(rig):
    for _ in range(2):
        assert rig.run().rows_in == 0
    rig.send(events := some_events(10))
    assert rig.run().rows_in == 10
    assert_tables(rig.lake, events)


def test_a_record_of_two_megabytes_is_a_row_or_a_dead_letter(rig, admin):
    """A topic may take what the dead letters' topic does not."""
    admin.set_configs(rig.topic, {"max.message.bytes": "3000000"})
    large, bad = b'{"page": "%s", "n": 1}' % (b"x" * 2_000_000), b"{" * 2_000_000
    settings = {"message.max.bytes": 3_000_000}
    with hr.Producer(rig.cluster.bootstrap, settings) as producer:
        for value in (large, bad, b"small"):
            producer.send(rig.topic, value, key=b"k")
    done = rig.run(simple())
    assert (done.rows_out, done.rows_dead) == (1, 2)
    assert len(table(rig.lake, "clicks")[0]["page"]) == 2_000_000
    assert {row["value"] for row in table(rig.lake, "dead_letters")} == {bad, b"small"}
    sent = {
        record.value: dict(record.headers).get("headrace-bytes")
        for record in records(rig.cluster, f"{rig.topic}.clicks.dead")
    }
    assert sent == {bad[:64_000]: b"2000000", b"small": None}


def test_ids_that_are_no_text_are_shown_as_digits(rig):
    rig.send_raw([(b'{"page": "a"}', b"\xff\x00\x01"), (b'{"page": "b"}', "caf\u00e9")])
    rig.run(simple())
    found = {row["page"]: row["row_id"] for row in table(rig.lake, "clicks")}
    assert found == {"a": "FF0001", "b": "caf\u00e9"}


def test_a_lookup_is_read_again_when_it_is_due(rig, tmp_path):
    titles = tmp_path / "titles.csv"
    titles.write_text("page,title\na,Old\n")
    pipeline = simple(
        steps=(Lookup(str(titles), "page", ("title",), refresh="1 second"),),
    )

    def change(_batch):
        titles.write_text("page,title\na,New\n")
        threading.Event().wait(1.1)  # until it is due

    rig.send_raw([(b'{"page": "a", "n": %d}' % n, None) for n in range(60)], partition=0)
    done = rig.run(pipeline, on_batch=change, records_per_batch=30)
    assert done.batches == 2
    found = sorted((row["n"], row["title"]) for row in table(rig.lake, "clicks"))
    assert [title for title, _ in groupby(title for _, title in found)] == ["Old", "New"]


@pytest.mark.long(15)
def test_a_lookup_that_is_away_when_it_is_due_is_used_as_it_was(rig, tmp_path):
    titles, told = tmp_path / "titles.csv", Warnings()
    titles.write_text("page,title\na,Old\n")
    pipeline = simple(steps=(Lookup(str(titles), "page", ("title",), refresh="1 second"),))

    def change_then_remove(batch):
        if batch.batch == 0:
            titles.write_text("page,title\na,New\n")
        else:
            titles.unlink(missing_ok=True)
        threading.Event().wait(1.1)  # until it is due

    rig.send_raw([(b'{"page": "a", "n": %d}' % n, None) for n in range(120)], partition=0)
    done = rig.run(pipeline, change_then_remove, progress=told, records_per_batch=30)
    assert done.batches == 4
    found = sorted((row["n"], row["title"]) for row in table(rig.lake, "clicks"))
    assert [title for title, _ in groupby(title for _, title in found)] == ["Old", "New"]
    assert len(told.warnings) == 2
    assert all(str(titles) in warning for warning in told.warnings)
    rig.send_raw([(b'{"page": "a"}', None)])
    with pytest.raises(HeadraceError, match=r"titles\.csv"):
        rig.run(pipeline)


def replace_time(event, row, time):
    return Event(row, time, "purchase", *list(vars(event).values())[3:])


DRIFTED = (b'{"page": "a", "n": 1}', b'{"page": "b", "colour": "red", "N": 2, "x y": [1]}')


@pytest.mark.parametrize(
    ("drift", "rows"),
    [
        ("rescue", [("a", 1, None), ("b", None, '{"colour":"red","N":"2","x y":"[1]"}')]),
        ("freeze", [("a", 1)]),
    ],
)
def test_fields_that_nobody_declared(rig, drift, rows):
    rig.send_raw([(value, None) for value in DRIFTED])
    rig.run(simple(drift))
    found = table(rig.lake, "clicks")
    names = ("page", "n", "rescued") if drift == "rescue" else ("page", "n")
    assert sorted(tuple(row[name] for name in names) for row in found) == rows
    if drift == "freeze":
        (dead,) = table(rig.lake, "dead_letters")
        assert dead["reason"] == "unknown fields: colour, N, x y"


def test_fields_that_nobody_declared_become_columns(rig):
    pipeline = simple("evolve")
    rig.send_raw([(DRIFTED[0], None)])
    rig.run(pipeline)
    rig.send_raw([(DRIFTED[1], None)])
    rig.run(pipeline)
    rig.send_raw([(b'{"page": "c", "size": 7}', None)])
    rig.run(pipeline)
    found = {row["page"]: row for row in table(rig.lake, "clicks")}
    assert [found[page].get("colour") for page in "abc"] == [None, "red", None]
    assert [found[page].get("size") for page in "abc"] == [None, None, "7"]
    assert orjson.loads(found["b"]["rescued"]) == {"N": "2", "x y": "[1]"}


def test_expectations_warn_and_fail(rig):
    rig.send_raw([(b'{"page": "a", "n": %d}' % n, None) for n in (1, -1, -2)])
    expectations = (Expect("n is positive", "n > 0", "warn"), Expect("small", "n < 9", "fail"))
    pipeline = simple(expectations=expectations)
    rig.run(pipeline)
    assert infos(rig.lake, "clicks")[-1]["unmet"] == {"n is positive": 2}
    assert len(table(rig.lake, "clicks")) == 3
    rig.send_raw([(b'{"page": "a", "n": 9}', None)])
    with pytest.raises(BadInput, match="1 rows do not meet 'small'"):
        rig.run(pipeline)
    assert len(table(rig.lake, "clicks")) == 3


@pytest.mark.long(15)
def test_lookups_windows_and_the_latest(rig, tmp_path):
    titles = tmp_path / "titles.csv"
    titles.write_text("page,title\na,Home\na,Again\nb,Shop\n")
    pipeline = Pipeline(
        "clicks",
        source=Topic("clicks", Json(Field("page"), Field("at", "time"), Field("n", "long"))),
        time="at",
        steps=(Lookup(str(titles), "page", ("title",)), Derive("double", "n * 2")),
        rows=Rows("clicks", ("page", "title", "double")),
        derived=(
            Totals(
                "trend",
                by={"page": "page"},
                measures={
                    "clicks": Count(),
                    "sum": Sum("n", type="long"),
                    "least": Least("n"),
                    "most": Greatest("n"),
                },
                windows=Windows("10 minutes", "5 minutes"),
            ),
            Latest("last", key="page", columns=("n", "title")),
        ),
    )
    minute = 60_000
    for clicks in ([("a", 1, 5), ("b", 2, 7), ("c", 3, 1)], [("a", 0, 9), ("b", 6, 2)]):
        rig.send_raw(
            [
                (orjson.dumps({"page": page, "at": at * minute, "n": n}), None)
                for page, at, n in clicks
            ],
            partition=0,
        )
        rig.run(pipeline)
    rows = table(rig.lake, "clicks")
    assert sorted((r["page"], r["title"], r["double"]) for r in rows if r["page"] != "a") == [
        *(("b", "Shop", 4), ("b", "Shop", 14), ("c", None, 2))
    ]
    assert len(rows) == 5  # a key that is twice in the lookup doubles nothing
    last = {row["page"]: row["n"] for row in table(rig.lake, "last")}
    assert last == {"a": 5, "b": 2, "c": 1}
    trend = {
        (row["page"], row["window_start"].timestamp() / 60): tuple(row.values())[3:]
        for row in table(rig.lake, "trend")
    }
    assert trend[("a", -5.0)] == trend[("a", 0.0)] == (2, 14, 5, 9)
    assert trend[("b", -5.0)] == (1, 7, 7, 7)
    assert trend[("b", 0.0)] == (2, 9, 2, 7)
    assert trend[("b", 5.0)] == (1, 2, 2, 2)
    assert len(trend) == 7


def test_days_as_times_and_times_that_steps_make(rig):
    pipeline = Pipeline(
        "days",
        source=Topic("days", Json(Field("day", "date"))),
        time="day",
        rows=Rows("days"),
        derived=(Totals("per_day", {"day": "day"}, {"rows": Count()}, late="2 days"),),
    )
    for days in (["2024-05-01", "2024-05-09"], ["2024-05-01", "2024-05-08"]):
        rig.send_raw([(orjson.dumps({"day": day}), None) for day in days])
        rig.run(pipeline)
    assert {(f"{day:%d}", n) for day, n in tuples(rig.lake, "per_day")} == {
        ("01", 1),
        ("08", 1),
        ("09", 1),
    }
    never_late = replace(pipeline, derived=(replace(pipeline.derived[0], late=None),))
    rig.run(never_late)
    assert ("01", 2) in {(f"{day:%d}", n) for day, n in tuples(rig.lake, "per_day")}


def test_a_time_that_a_step_makes_and_no_clock_could_show_is_a_dead_letter(rig):
    pipeline = Pipeline(
        "clicks",
        source=Topic("clicks", Json(Field("epoch", "long"))),
        steps=(Derive("at", "timestamp_seconds(epoch)"),),
        time="at",
        rows=Rows("clicks"),
    )
    rig.send_raw([(b'{"epoch": %d}' % epoch, None) for epoch in (1_714_564_800, 1_714_564_800_000)])
    rig.run(pipeline)
    assert [row["epoch"] for row in table(rig.lake, "clicks")] == [1_714_564_800]
    (dead,) = table(rig.lake, "dead_letters")
    assert dead["reason"].startswith("at is no time that a clock could show: ")
