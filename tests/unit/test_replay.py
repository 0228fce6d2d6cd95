"""Replay: positions, ranges within what a topic has, and how ranges are cut into batches."""

import json
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.model import AtOffset, AtTime, Earliest, Latest
from headrace.services import replay as replay_service
from headrace.services.replay import Wish, parse_bound, plan_replay, resolve
from headrace.spark.pipelines import CLICKSTREAM
from headrace.spark.pipelines.accounts import Counts, Replay, Standing, joined
from headrace.spark.pipelines.cutting import Cuts, continued, cut, rest, size

SPANS = st.builds(
    lambda begin, length: (begin, begin + length), st.integers(0, 1000), st.integers(0, 200)
)
RANGES = st.dictionaries(
    st.sampled_from(["clicks", "orders"]),
    st.dictionaries(st.integers(0, 9).map(str), SPANS, min_size=1),
    min_size=1,
)


@given(RANGES, st.integers(1, 100))
def test_batches_cover_a_range_exactly_once_and_keep_to_the_limit(ranges, most):
    at = {topic: {p: begin for p, (begin, _) in places.items()} for topic, places in ranges.items()}
    for batch in cut(ranges, most):
        assert 0 < size(batch) <= most
        for topic, places in ranges.items():
            assert batch[topic].keys() == places.keys()
            for partition, (begin, end) in batch[topic].items():
                assert begin == at[topic][partition] <= end
                at[topic][partition] = end
    assert at == {t: {p: end for p, (_, end) in places.items()} for t, places in ranges.items()}


@given(RANGES, st.integers(1, 100), st.data())
def test_a_run_that_was_cut_short_goes_on_with_the_same_batches(ranges, most, data):
    batches = list(cut(ranges, most))
    done = data.draw(st.integers(0, len(batches)))
    standing = Standing()
    for batch in batches[:done]:
        standing = standing.after(standing.counts, batch, None)
    again = Cuts(ranges, standing.ends, most)
    assert again.batches == batches[done:]
    assert again.open_batch == (batches[done] if done < len(batches) else None)
    if batches:
        assert joined(standing.ranges, rest(ranges, standing.ends)) == ranges


def test_partitions_are_read_side_by_side():
    """One after the other, the rows of the last would all be late."""
    first = next(cut({"clicks": {"0": (0, 1000), "1": (0, 3000)}}, 400))
    assert first == {"clicks": {"0": (0, 100), "1": (0, 300)}}


WANTED = Replay(("earliest", "latest"), {"clicks": {"0": (0, 9)}})


@pytest.mark.parametrize(
    ("begun", "counts"),
    [
        (WANTED, WANTED),
        (
            Replay(("earliest", "latest"), {"clicks": {"0": (0, 5)}}),  # records have come since
            Replay(("earliest", "latest"), {"clicks": {"0": (0, 5)}}),
        ),
        (
            Replay(("0", "9"), {"clicks": {"0": (0, 9)}}),
            Replay(("0", "9"), {"clicks": {"0": (0, 9)}}),
        ),
    ],
)
def test_the_same_replay_goes_on_with_the_range_that_it_began_with(begun, counts):
    told = Standing.from_json(Standing(replay=begun).to_json())
    assert continued(WANTED, told, "lake") == counts
    assert continued(WANTED, None, "lake") == WANTED


@pytest.mark.parametrize(
    ("begun", "complaint"),
    [
        (None, "made by `headrace stream`"),
        (Replay(("0", "5"), {"clicks": {"0": (0, 5)}}), "another replay: of topic clicks, --from"),
        (Replay(("earliest", "latest"), {"orders": {"0": (0, 9)}}), "of topic orders"),
    ],
)
def test_tables_of_others_are_refused(begun, complaint):
    with pytest.raises(BadInput, match=complaint):
        continued(WANTED, Standing(replay=begun), "lake")


def test_a_standing_of_before_there_were_replays_can_be_read():
    document = Standing().to_json()
    del document["replay"]
    assert Standing.from_json(document) == Standing()


# --- positions ---


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", Earliest()),
        ("latest", Latest()),
        ("42", AtOffset(42)),
        ("@1570000000000", AtTime(1_570_000_000_000)),
        ("2019-10-02T07:06:40Z", AtTime(1_570_000_000_000)),
        ("3:100", {3: 100}),
        ("0:100,1:250", {0: 100, 1: 250}),
    ],
)
def test_positions_are_read(text, bound):
    assert parse_bound(text) == bound


@pytest.mark.parametrize("text", ["", "soon", "0:1,0:2", "0:1,", "-1:5", "0:-5", "0:x", "٣:1"])
def test_what_is_no_position_is_refused(text):
    with pytest.raises(BadInput):
        parse_bound(text)


class FakeAdmin:
    """A topic whose partitions have offsets from one to another; records a second apart."""

    def __init__(self, **kept):
        self.kept = {int(name[1:]): span for name, span in kept.items()}

    def topic(self, _name):
        partition = type("Partition", (), {})
        found = []
        for number in self.kept:
            found.append(partition())
            found[-1].id = number
        return type("Topic", (), {"partitions": found})

    def offsets(self, places, position, *, committed=False):
        return {at: self._offset(*self.kept[at.partition], position) for at in places}

    def _offset(self, earliest, end, position):
        match position:
            case Earliest():
                return earliest
            case Latest():
                return end
            case AtTime(timestamp):
                return min(max(timestamp // 1000, earliest), end)


def resolved(begin, end, **kept):
    found = resolve(FakeAdmin(**kept), "clicks", parse_bound(begin), parse_bound(end))
    return dict(found.spans), list(found.notes)


def test_ranges_are_within_what_the_topic_has():
    kept = {"p0": (10, 100), "p1": (0, 50)}
    assert resolved("earliest", "latest", **kept) == ({0: (10, 100), 1: (0, 50)}, [])
    spans, notes = resolved("5", "70", **kept)
    assert spans == {0: (10, 70), 1: (5, 50)}
    assert notes == [
        "offsets 5 to 9 of clicks[0] were removed by retention",
        "clicks[1] ends at 50, not at 70",
    ]
    assert resolved("3", "7", **kept) == (
        {0: (10, 10), 1: (3, 7)},
        ["offsets 3 to 6 of clicks[0] were removed by retention"],
    )
    assert resolved("80", "20", **kept)[0] == {0: (80, 80), 1: (50, 50)}
    spans, notes = resolved("@10000", "@30000", **kept)
    assert spans == {0: (10, 30), 1: (10, 30)}
    assert [note for note in notes if "may have been of that time" in note] == notes
    assert len(notes) == 1


def test_offsets_by_partition_leave_the_others_out():
    kept = {"p0": (0, 100), "p1": (0, 50), "p2": (0, 70)}
    assert resolved("0:10,2:20", "latest", **kept)[0] == {0: (10, 100), 2: (20, 70)}
    assert resolved("earliest", "1:20", **kept)[0] == {1: (0, 20)}
    assert resolved("0:1", "0:5", **kept)[0] == {0: (1, 5)}
    with pytest.raises(BadInput, match="no partition 7"):
        resolved("7:1", "latest", **kept)
    with pytest.raises(BadInput, match="partition 1 is in one of --from and --to only"):
        resolved("0:1", "0:5,1:7", **kept)


# --- what was begun ---


BEGUN = Replay(("0", "9"), {"clicks": {"0": (0, 9)}})
WISH = Wish("clicks", "0", "9", CLICKSTREAM, "")


def say(lake, table, standing):
    """A commit of the pipeline."""
    info = json.dumps({"pipeline": CLICKSTREAM.name, "so_far": standing.to_json()})
    said = CommitProperties(custom_metadata={"userMetadata": info})
    write_deltalake(lake / table, pa.table({"a": [1]}), mode="append", commit_properties=said)


def plan(monkeypatch, lake, records=9):
    monkeypatch.setattr(replay_service, "Admin", lambda _connection: FakeAdmin(p0=(0, 9)))
    monkeypatch.setattr(replay_service, "count", lambda *_: {0: records})
    return plan_replay(replace(WISH, lake=str(lake)), None)


def test_a_replay_that_was_mended_in_its_first_batch_goes_on(tmp_path, monkeypatch):
    derived, *_ = CLICKSTREAM.derived
    counts = Counts(rows_in=4)
    say(tmp_path, derived.name, Standing(counts, {"clicks": {"0": (0, 4)}}, replay=BEGUN))
    say(tmp_path, derived.name, Standing(generation=1))
    found = plan(monkeypatch, tmp_path)
    assert (found.replay, found.done) == (BEGUN, 0)


def test_spark_passes_over_tables_that_were_mended_too():
    pytest.importorskip("pyspark")
    from headrace.spark.pipelines.replaying import begun

    class FakeLake:
        infos: ClassVar = {}

        def last_info(self, table, _pipeline):
            standing = self.infos.get(table)
            return None if standing is None else {"so_far": standing.to_json()}

    first, *_ = CLICKSTREAM.derived
    FakeLake.infos = {first.name: Standing(generation=1)}
    assert begun(CLICKSTREAM, FakeLake()) is None
    FakeLake.infos["dead_letters"] = Standing(replay=BEGUN)
    assert begun(CLICKSTREAM, FakeLake()).replay == BEGUN
    FakeLake.infos = {first.name: Standing(ranges={"clicks": {"0": (0, 4)}})}
    assert begun(CLICKSTREAM, FakeLake()).replay is None  # a stream's


def test_done_is_what_the_table_of_rows_has_and_at_most_all(tmp_path, monkeypatch):
    derived, *_ = CLICKSTREAM.derived
    standing = Standing(Counts(rows_in=4), {"clicks": {"0": (0, 4)}}, replay=BEGUN)
    say(tmp_path, derived.name, standing)
    assert plan(monkeypatch, tmp_path).done == 0  # it comes again
    say(tmp_path, CLICKSTREAM.rows.name, standing)
    assert plan(monkeypatch, tmp_path).done == 4
    assert plan(monkeypatch, tmp_path, records=3).done == 3  # retention took the first
