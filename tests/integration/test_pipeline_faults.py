"""Pipelines that are cut short, or find their checkpoint, tables or topic changed meanwhile."""

import contextlib
import shutil
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headrace.errors import BadInput, HeadraceError
from headrace.spark.pipelines import (
    CLICKSTREAM,
    Count,
    Derive,
    Expect,
    Lookup,
    Pipeline,
    Rows,
    Sum,
    Totals,
)
from support.crash import dying_after_each_write, dying_before
from support.ingest import records
from support.lake import (
    START,
    assert_tables,
    funnel,
    infos,
    revenue,
    sessions,
    some_events,
    table,
    tuples,
)
from support.pipelines import CLICKS, Rig, simple
from support.streaming import dying_threads
from support.waiting import eventually


@pytest.fixture
def rig(kafka_cluster, make_topic, tmp_path, spark):
    return Rig(kafka_cluster, make_topic(3), tmp_path / "lake")


@pytest.mark.long(70)
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
    assert sorted(value for *_, value, _ in rig.dead()) == [b"bad", b"worse"]
    assert len(table(rig.lake, "dead_letters")) == 2


def test_a_batch_that_dies_between_the_topic_and_the_table_of_dead_letters(rig, monkeypatch):
    """The next run finds them in the ledger, and sends none of them again."""
    events = some_events(20)
    rig.send(events)
    rig.send_raw([(b"bad", None), (b"worse", None)])
    dying_before(monkeypatch, "dead_letters")
    with pytest.raises(HeadraceError):
        rig.run()
    assert len(rig.dead()) == 2
    monkeypatch.undo()
    assert rig.run().rows_dead == 2
    assert sorted(value for *_, value, _ in rig.dead()) == [b"bad", b"worse"]
    assert len(table(rig.lake, "dead_letters")) == 2
    assert_tables(rig.lake, events)


def by_title(titles, **more):
    """Clicks by the title of their page, which a lookup knows."""
    return simple(
        steps=(Lookup(str(titles), "page", ("title",)),),
        derived=(Totals("titles", {"title": "title"}, {"clicks": Count()}),),
        **more,
    )


@pytest.mark.long(20)
def test_a_lookup_that_changes_between_two_attempts_at_a_batch(rig, monkeypatch, tmp_path):
    """A table that the first attempt has written would not go with those of the second."""
    titles = tmp_path / "titles.csv"
    titles.write_text("page,title\na,Old\n")
    rig.send_raw([(b'{"page": "a"}', None)] * 3)
    rig.run(by_title(titles))
    rig.send_raw([(b'{"page": "a"}', None)] * 2)
    written = dying_after_each_write(monkeypatch)
    with pytest.raises(HeadraceError):
        rig.run(by_title(titles))
    assert written == ["titles"]
    monkeypatch.undo()
    titles.write_text("page,title\na,New\n")
    assert rig.run(by_title(titles)).rows_out == 2
    assert Counter(row["title"] for row in table(rig.lake, "clicks")) == {"Old": 3, "New": 2}
    assert tuples(rig.lake, "titles") == {("Old", 3), ("New", 2)}
    rig.send_raw([(b'{"page": "a"}', None)])
    rig.run(by_title(titles))
    assert tuples(rig.lake, "titles") == {("Old", 3), ("New", 3)}


@pytest.mark.long(20)
def test_a_lookup_that_changes_after_dead_letters_were_sent(rig, monkeypatch, tmp_path):
    """They cannot be taken back from their topic, but tables are of one mind."""
    titles = tmp_path / "titles.csv"
    titles.write_text("page,title\na,Home\n")
    pipeline = by_title(titles, expectations=(Expect("a title", "title is not null"),))
    rig.send_raw([(b'{"page": "%s"}' % page, None) for page in (b"a", b"b", b"c")])
    dying_before(monkeypatch, "dead_letters")
    with pytest.raises(HeadraceError):
        rig.run(pipeline)
    assert len(rig.dead("clicks")) == 2
    monkeypatch.undo()
    titles.write_text("page,title\na,Home\nb,Shop\n")
    done = rig.run(pipeline)
    assert (done.rows_out, done.rows_dead) == (2, 1)
    assert tuples(rig.lake, "titles") == {("Home", 1), ("Shop", 1)}
    assert [row["value"] for row in table(rig.lake, "dead_letters")] == [b'{"page": "c"}']
    assert len(rig.dead("clicks")) == 3


@pytest.mark.long(20)
def test_a_checkpoint_that_is_lost_in_the_middle_of_a_batch(rig, monkeypatch):
    """Derived tables are ahead of the rows then: they are made anew from them."""
    events = some_events(160)
    late = some_events(10, seed=5, start=START - timedelta(days=9))
    rig.send(events[:100])
    rig.run()
    rig.send([*events[100:], *late])
    rig.send_raw([(b"bad", None)])
    dying_before(monkeypatch, "events")
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


@pytest.mark.long(20)
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


@pytest.mark.long(20)
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


@pytest.mark.long(20)
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


@pytest.mark.long(20)
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


def test_a_pipeline_that_is_stopped_in_the_middle_of_a_batch_ends_in_order(rig, spark):
    """Spark looked at the long text of an interrupted batch until its stack was used up."""
    events = some_events(60)
    rig.send(events)
    stop, jobs = threading.Event(), spark.sparkContext.statusTracker()
    asleep = Derive("asleep", "java_method('java.lang.Thread', 'sleep', 600000L)")
    slow = replace(CLICKSTREAM, steps=(*CLICKSTREAM.steps, asleep))

    def stop_at_work():
        eventually(jobs.getActiveJobsIds, "a batch is at work")
        stop.set()

    with dying_threads(spark) as died, ThreadPoolExecutor(1) as other:
        stopped = other.submit(stop_at_work)
        assert rig.run(slow, every=1.0, stop=stop).batches == 0
        stopped.result()
    assert died == []
    assert rig.run().rows_out == len(events)
    assert_tables(rig.lake, events)


@pytest.mark.long(20)
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
@pytest.mark.long(20)
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


def test_a_table_that_no_pipeline_wrote_is_left_alone(rig):
    write_deltalake(str(rig.lake / "pages"), pa.table({"mine": [1, 2]}))
    pipeline = simple(derived=(Totals("pages", {"page": "page"}, {"clicks": Count()}),))
    rig.send_raw([(b'{"page": "a"}', None)])
    with pytest.raises(BadInput, match="pages is a table, but no pipeline's"):
        rig.run(pipeline)
    assert [row["mine"] for row in table(rig.lake, "pages")] == [1, 2]


@pytest.mark.long(20)
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
