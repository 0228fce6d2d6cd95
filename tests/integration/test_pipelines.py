"""Pipelines on Spark: tables equal what is worked out without Spark, whatever happens meanwhile."""

import contextlib
import secrets
import shutil
import threading
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import headrace as hr
from headrace import model
from headrace.clients import Connection
from headrace.errors import BadInput, HeadraceError
from headrace.spark.pipelines import (
    CLICKSTREAM,
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
from headrace.spark.pipelines.lake import Lake
from headrace.spark.pipelines.runner import StreamOptions, stream
from support.crash import Crash, dying_after_each_write
from support.ingest import records
from support.lake import (
    START,
    Event,
    assert_tables,
    funnel,
    infos,
    revenue,
    sessions,
    some_events,
    table,
    tuples,
)
from support.streaming import reading


@pytest.fixture
def rig(kafka_cluster, make_topic, tmp_path, spark):
    return Rig(kafka_cluster, make_topic(3), tmp_path / "lake")


class Rig:
    """A topic, a pipeline and its tables."""

    def __init__(self, cluster, topic, lake: Path):
        self.cluster, self.topic, self.lake = cluster, topic, lake
        self.group = f"group-{secrets.token_hex(3)}"

    def send(self, events, partition=None):
        self.send_raw([(event.to_json(), event.row) for event in events], partition)

    def send_raw(self, values, partition=None, headers=()):
        with hr.Producer(self.cluster.bootstrap) as producer:
            for value, row in values:
                named = [] if row is None else [("headrace-row", row)]
                producer.send(
                    self.topic, value, headers=[*headers, *named] or None, partition=partition
                )

    def run(self, pipeline=CLICKSTREAM, on_batch=None, **options):
        wanted = StreamOptions(
            pipeline, str(self.lake), topic=self.topic, group=self.group, **options
        )
        return stream(wanted, Connection(self.cluster.bootstrap), on_batch=on_batch)

    def dead(self):
        return {
            (dict(r.headers)["headrace-partition"], dict(r.headers)["headrace-offset"]): (
                r.value,
                dict(r.headers)["headrace-reason"].decode(),
            )
            for r in records(self.cluster, f"{self.topic}.clickstream.dead")
        }


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
    assert sorted(value or b"" for value, _ in found.values()) == sorted(v or b"" for v, _ in bad)
    for value, reason in bad:
        assert reason in next(why for what, why in found.values() if what == value)
    kept = table(rig.lake, "dead_letters")
    assert {(r["kafka_partition"], r["kafka_offset"], r["value"], r["reason"]) for r in kept} == {
        (int(p), int(o), value, reason) for (p, o), (value, reason) in found.items()
    }

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


def test_a_batch_that_dies_after_any_of_its_writes_is_finished_by_the_next_run(rig, monkeypatch):
    """Each attempt dies after one more table: the next finds it done and goes on."""
    events = some_events(200)
    rig.send(events)
    rig.send(events[:20])
    rig.send_raw([(b"bad", None)])
    rig.run(records_per_batch=100)  # so that there are tables to be merged with
    more = some_events(150, seed=2)
    rig.send([*more, *events[:10], *more[:10]])
    rig.send_raw([(b"worse", None)])

    written = dying_after_each_write(monkeypatch)
    for _ in range(10):
        before = len(written)
        with contextlib.suppress(HeadraceError):
            rig.run()
        if len(written) == before:
            break
    assert written == ["dead_letters", "sessions", "funnel", "revenue", "events"]
    assert_tables(rig.lake, [*events, *more])
    assert sorted(value for value, _ in rig.dead().values()) == [b"bad", b"worse"]
    assert len(table(rig.lake, "dead_letters")) == 2


def test_a_checkpoint_that_is_lost_in_the_middle_of_a_batch(rig, monkeypatch):
    """Derived tables are ahead of the rows then: they are made anew from them."""
    events = some_events(160)
    late = some_events(10, seed=5, start=START - timedelta(days=9))
    rig.send(events[:100])
    rig.run()
    rig.send([*events[100:], *late])
    rig.send_raw([(b"bad", None)])
    original = Lake.append

    def die_before_the_rows(self, table, *rest):
        if table == "events":
            raise Crash
        original(self, table, *rest)

    monkeypatch.setattr(Lake, "append", die_before_the_rows)
    with pytest.raises(HeadraceError):
        rig.run()
    monkeypatch.undo()
    shutil.rmtree(rig.lake / "_checkpoints")
    again = rig.run(records_per_batch=50)  # cut in another way this time
    assert (again.rows_in, again.rows_out) == (71, 70)
    assert {row["row_id"] for row in table(rig.lake, "revenue_late")} == {e.row for e in late}
    assert tuples(rig.lake, "revenue") == revenue(events)
    assert tuples(rig.lake, "funnel") == funnel([*events, *late])
    assert tuples(rig.lake, "sessions") == sessions([*events, *late])
    assert len(table(rig.lake, "dead_letters")) == 1


def test_a_checkpoint_older_than_the_tables_is_refused(rig, tmp_path):
    events = some_events(60)
    rig.send(events[:20])
    rig.run(simple())
    checkpoints = rig.lake / "_checkpoints"
    shutil.copytree(checkpoints, tmp_path / "old")
    rig.send(events[20:40])
    rig.run(simple())
    shutil.rmtree(checkpoints)
    shutil.copytree(tmp_path / "old", checkpoints)
    rig.send(events[40:])
    with pytest.raises(BadInput, match="do not agree"):
        rig.run(simple())
    shutil.rmtree(checkpoints)
    rig.run(simple())
    counts = infos(rig.lake, "clicks")[-1]["so_far"]["counts"]
    assert counts["rows_in"] == counts["rows_dead"] == 60  # they have no pages


def test_a_derived_table_that_is_new_changed_or_deleted_is_made_from_the_rows(rig):
    rig.send_raw([(b'{"page": "%s", "n": 1}' % page, None) for page in (b"a", b"b", b"a")])

    def pages(measures):
        return simple(derived=(Totals("pages", by={"page": "page"}, measures=measures),))

    rig.run(simple())
    rig.send_raw([(b'{"page": "a", "n": 5}', None)])
    rig.run(pages({"clicks": Count()}))
    assert tuples(rig.lake, "pages") == {("a", 3), ("b", 1)}
    rig.run(pages({"clicks": Count(), "n": Sum("n", type="long")}))
    assert tuples(rig.lake, "pages") == {("a", 3, 7), ("b", 1, 1)}
    shutil.rmtree(rig.lake / "pages")
    rig.send_raw([(b'{"page": "b", "n": 2}', None)])
    rig.run(pages({"clicks": Count(), "n": Sum("n", type="long")}))
    assert tuples(rig.lake, "pages") == {("a", 3, 7), ("b", 2, 3)}


def test_another_topic_or_another_pipeline_in_the_same_folder_is_refused(rig, make_topic):
    rig.send_raw([(b'{"page": "a"}', None)])
    rig.run(simple())
    with pytest.raises(BadInput, match="belongs to pipeline 'clicks'"):
        rig.run(Pipeline("others", source=CLICKS, rows=Rows("clicks")))
    rig.topic = make_topic(1)
    with pytest.raises(BadInput, match="come from topic"):
        rig.run(simple())


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


def test_a_checkpoint_that_lost_its_last_commit_or_all_of_itself(rig):
    events = some_events(120)
    rig.send(events[:60])
    rig.run()
    commits = rig.lake / "_checkpoints/clickstream/commits"
    newest = max((p for p in commits.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    newest.unlink()
    (commits / f".{newest.name}.crc").unlink(missing_ok=True)
    again = rig.run()
    assert (again.rows_in, again.rows_out) == (0, 0)
    assert_tables(rig.lake, events[:60])
    shutil.rmtree(rig.lake / "_checkpoints")
    rig.send(events[60:])
    assert rig.run().rows_in == 60  # it goes on where the table ends
    assert_tables(rig.lake, events)


def test_a_topic_that_grows_and_one_that_is_made_again(rig, admin):
    events = some_events(90)
    rig.send(events[:40])
    rig.run()
    admin.add_partitions(rig.topic, 5)
    rig.send(events[40:60], partition=4)
    assert rig.run().rows_in == 20
    assert_tables(rig.lake, events[:60])
    admin.delete_topic(rig.topic)
    admin.create_topic(rig.topic, 5, 3)
    rig.send(events)  # more than before in every partition: offsets alone do not tell
    rig.send(events)
    with pytest.raises(BadInput, match="was deleted and made again"):
        rig.run()
    assert_tables(rig.lake, events[:60])


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


def test_a_topic_that_grows_and_is_made_again_while_the_pipeline_runs(rig, admin):
    events = some_events(90)
    rig.send(events[:40])

    def grow(_batch):
        admin.add_partitions(rig.topic, 5)
        rig.send(events[40:60], partition=4)

    def make_again(_batch):
        admin.delete_topic(rig.topic)
        admin.create_topic(rig.topic, 5, 3)
        rig.send(events)
        rig.send(events)

    after = iter([grow, make_again])
    with pytest.raises(BadInput, match="was deleted and made again"):
        rig.run(every=0.5, on_batch=lambda batch: next(after)(batch))
    assert_tables(rig.lake, events[:60])


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


def test_a_table_of_rows_that_was_deleted_is_not_gone_on_with(rig):
    """The checkpoint would go on in the middle, and all other tables would be emptied."""
    events = some_events(60)
    rig.send(events[:40])
    rig.run()
    shutil.rmtree(rig.lake / "events")
    rig.send(events[40:])
    with pytest.raises(BadInput, match="events is gone, but its batches are done") as caught:
        rig.run()
    assert tuples(rig.lake, "sessions") == sessions(events[:40])
    assert "delete that folder too" in caught.value.hint
    shutil.rmtree(rig.lake / "_checkpoints")
    assert rig.run().rows_in == 60
    assert_tables(rig.lake, events)


@pytest.mark.parametrize("loosened", [False, True])
def test_a_batch_that_is_run_again_with_other_expectations_counts_as_a_whole(rig, loosened):
    """What was written of it before, under the old ones, does not stay."""

    def pipeline(page, *expectations):
        totals = [
            Totals(name, {"page": by}, {"clicks": Count()})
            for name, by in (("first", "page"), ("second", page))
        ]
        return simple(derived=tuple(totals), expectations=expectations)

    strict = Expect("n is not zero", "n <> 0", "drop")
    rig.send_raw([(b'{"page": "a", "n": %d}' % n, None) for n in (0, 1)])
    rig.send_raw([(b"bad", None)])
    with pytest.raises(HeadraceError):
        rig.run(pipeline("1 div (n * (1 - n))", *[strict][: int(loosened)]))
    done = rig.run(pipeline("page", *[] if loosened else [strict]))
    good = 2 if loosened else 1
    assert (done.rows_out, done.rows_dead) == (good, 3 - good)
    assert len(table(rig.lake, "clicks")) == good
    assert tuples(rig.lake, "first") == tuples(rig.lake, "second") == {("a", good)}
    reasons = sorted(row["reason"] for row in table(rig.lake, "dead_letters"))
    unmet = [] if loosened else ["not as expected: n is not zero"]
    assert reasons == [*unmet, "the value is no JSON object"]


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


def replace_time(event, row, time):
    return Event(row, time, "purchase", *list(vars(event).values())[3:])


CLICKS = Topic("clicks", Json(Field("page", required=True), Field("n", "long")))


def simple(drift="rescue", **more):
    value = Json(*CLICKS.value.fields, drift=drift)
    return Pipeline("clicks", source=Topic("clicks", value), rows=Rows("clicks"), **more)


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


def test_a_table_that_no_pipeline_wrote_is_left_alone(rig):
    write_deltalake(str(rig.lake / "pages"), pa.table({"mine": [1, 2]}))
    pipeline = simple(derived=(Totals("pages", {"page": "page"}, {"clicks": Count()}),))
    rig.send_raw([(b'{"page": "a"}', None)])
    with pytest.raises(BadInput, match="pages is a table, but no pipeline's"):
        rig.run(pipeline)
    assert [row["mine"] for row in table(rig.lake, "pages")] == [1, 2]


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


def test_dead_letters_are_sent_once_though_a_table_of_their_batch_is_defined_anew(rig):
    def pipeline(page):
        return simple(derived=(Totals("pages", {"page": page}, {"clicks": Count()}),))

    rig.send_raw([(value, None) for value in (b'{"page": "a", "n": 0}', b"bad")])
    with pytest.raises(HeadraceError):
        rig.run(pipeline("1 div n"))
    done = rig.run(pipeline("page"))
    assert (done.rows_out, done.rows_dead) == (1, 1)
    assert tuples(rig.lake, "pages") == {("a", 1)}
    sent = records(rig.cluster, f"{rig.topic}.clicks.dead")
    assert [record.value for record in sent] == [b"bad"]
