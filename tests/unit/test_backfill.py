"""Backfill without Spark: what a plan says, one writer at a time, and tables that lost files."""

import orjson
import pytest

from headrace.errors import BadInput, OperationFailed
from headrace.services.backfill import BackfillPlan
from headrace.services.delta_tables import (
    Snapshot,
    as_if_forgotten,
    has_table,
    lost_files,
    snapshots,
)
from headrace.services.reconcile_places import Run
from headrace.services.replay import Wish, of_topic
from headrace.spark.pipelines import CLICKSTREAM, Field, Json, Pipeline, Rows, Topic
from headrace.spark.pipelines.holding import held

deltalake = pytest.importorskip("deltalake")
pa = pytest.importorskip("pyarrow")


def test_a_plan_names_ranges_whose_end_is_excluded_and_reads_no_more_than_it_must():
    runs = [Run(0, 5, 9, 5), Run(0, 20, 20, 1), Run(2, 0, 3, 3)]
    plan = BackfillPlan(Wish("clicks", "earliest", "latest", CLICKSTREAM, "lake"), runs, {})
    assert plan.to_json()["ranges"] == [
        {"partition": 0, "from": 5, "to": 10, "records": 5},
        {"partition": 0, "from": 20, "to": 21, "records": 1},
        {"partition": 2, "from": 0, "to": 4, "records": 3},
    ]
    assert (plan.total, plan.is_empty) == (9, False)
    assert plan.hull == {"clicks": {"0": (5, 21), "2": (0, 4)}}
    assert orjson.dumps(plan.to_json())


def test_a_topic_of_several_is_replayed_alone_and_mended_with_the_others():
    source = Topic("alerts", Json(Field("level")), also=("audit",))
    pipeline = Pipeline("alarms", source=source, rows=Rows("alarms"))
    assert of_topic(pipeline, "audit").source.names == ("audit",)
    assert of_topic(pipeline, "audit", alone=False).source.names == ("audit", "alerts")
    assert of_topic(pipeline, "other", alone=False).source.names == ("other",)


def test_one_writer_at_a_time(tmp_path):
    lake = str(tmp_path / "lake")
    with held(lake, "clicks"):
        with held(lake, "orders"):
            pass
        with pytest.raises(OperationFailed, match="another command"), held(lake, "clicks"):
            pass
    with held(lake, "clicks"):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="nothing can be written"), held(f"{tmp_path}/file", "x"):
        pass


def test_a_table_that_lost_a_file_is_read_without_it_and_left_as_it_is(tmp_path):
    path = tmp_path / "lake" / "events"
    for begin in (0, 5):
        rows = pa.table({"n": list(range(begin, begin + 5))})
        deltalake.write_deltalake(str(path), rows, mode="append")
    assert lost_files(path) == []
    gone = sorted(path.glob("*.parquet"))[0]
    gone.unlink()
    assert lost_files(path) == [gone.name]
    with pytest.raises(OperationFailed, match=r"files of table .* are gone") as failed:
        list(Snapshot(path).select("n"))
    assert "--missing" in failed.value.hint
    with as_if_forgotten(str(path.parent), {"events": [gone.name]}) as lake:
        (batch,) = Snapshot(tmp_path / lake / "events").select("n")
        assert len(batch) == 5
    assert lost_files(path) == [gone.name]
    with as_if_forgotten(str(path.parent), {}) as lake:
        assert lake == str(path.parent)


def test_a_log_without_a_commit_is_no_table(tmp_path):
    """Whoever made it died before the first commit."""
    (tmp_path / "rows" / "_delta_log").mkdir(parents=True)
    assert not has_table(tmp_path / "rows")
    assert list(snapshots(str(tmp_path))) == []
