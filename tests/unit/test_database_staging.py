"""Batches that wait in files: whole or not there, kept as long as Spark may ask for them."""

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from headrace.errors import BadInput
from headrace.spark.database.staging import Stage


def batches(*numbers):
    yield from (pa.RecordBatch.from_pydict({"n": [number]}) for number in numbers)


def read(stage, name):
    return [row["n"] for batch in stage.read(name) for row in batch.to_pylist()]


@pytest.fixture
def stage(tmp_path):
    return Stage(str(tmp_path / "staged"))


def names(stage):
    return sorted(path.stem for path in stage.folder.iterdir())


def test_a_batch_comes_back_as_it_was(stage):
    name = stage.write(None, batches(1, 2, 3))
    assert read(stage, name) == [1, 2, 3]
    assert read(stage, name) == [1, 2, 3]


def test_no_rows_no_batch(stage):
    assert stage.write(None, batches()) is None
    assert names(stage) == []


def test_a_batch_that_fails_half_way_leaves_nothing(stage):
    def failing():
        yield from batches(1)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        stage.write(None, failing())
    assert names(stage) == []


def test_a_batch_that_is_planned_anew_does_not_touch_the_other(stage):
    """A driver may die between staging and Spark's note of it."""
    first, second = stage.write(None, batches(1)), stage.write(None, batches(2))
    assert first != second
    assert (read(stage, first), read(stage, second)) == ([1], [2])


def test_older_batches_are_removed_the_last_one_stays(stage):
    first = stage.write(None, batches(1))
    orphan = stage.write(None, batches(9))
    second = stage.write(first, batches(2))
    third = stage.write(second, batches(3))
    stage.forget_before(second)
    assert names(stage) == sorted([second, third])
    for gone in (first, orphan):
        with pytest.raises(BadInput, match="rows of a batch that was begun are gone"):
            read(stage, gone)
