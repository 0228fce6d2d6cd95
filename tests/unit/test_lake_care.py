"""Care for tables beside other writers: few files, every row once, whoever comes in between."""

import json
import os
from contextlib import contextmanager
from datetime import timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake

from headrace.cli.main import run
from headrace.errors import OperationFailed
from headrace.services import compaction
from headrace.services.compaction import compact
from headrace.services.delta_tables import Snapshot
from headrace.services.lake_care import care, list_tables


@pytest.fixture
def numbers(tmp_path):
    """A table of four numbers, each in a file of its own."""
    path = tmp_path / "lake" / "numbers"
    add(path, 0, 1, 2, 3)
    return path


def add(path, *numbers):
    for number in numbers:
        write_deltalake(path, pa.table({"id": [number]}), mode="append")


def ids(path):
    return sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist())


def files(path):
    return len(DeltaTable(path).file_uris())


@contextmanager
def in_the_middle(monkeypatch, act):
    """Act once, after the twin is compacted and before its commit is published."""
    publish, acted = compaction._publish, []

    def act_first(*arguments):
        if not acted:
            acted.append(True)
            act()
        publish(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "_publish", act_first)
        yield
    assert acted


def test_another_compaction_in_the_middle_doubles_no_row(numbers, monkeypatch):
    with in_the_middle(monkeypatch, lambda: compact(numbers)):
        assert not compact(numbers)  # the other one has done it all
    assert (ids(numbers), files(numbers)) == ([0, 1, 2, 3], 1)


def test_rows_added_in_the_middle_stay_and_nothing_is_begun_anew(numbers, monkeypatch):
    version = DeltaTable(numbers).version()
    with in_the_middle(monkeypatch, lambda: add(numbers, 4, 5)):
        assert compact(numbers)
    assert DeltaTable(numbers).version() == version + 3
    assert (ids(numbers), files(numbers)) == ([0, 1, 2, 3, 4, 5], 3)


def test_rows_deleted_in_the_middle_do_not_come_back(numbers, monkeypatch):
    with in_the_middle(monkeypatch, lambda: DeltaTable(numbers).delete("id = 2")):
        assert compact(numbers)
    assert (ids(numbers), files(numbers)) == ([0, 1, 3], 1)
    assert [path.name for path in numbers.parent.iterdir()] == ["numbers"]


def test_a_table_that_never_holds_still_is_left_as_it_is(numbers, monkeypatch):
    fresh = iter(range(10, 100))

    def change(*arguments, publish=compaction._publish):
        DeltaTable(numbers).delete(f"id = {ids(numbers)[0]}")
        add(numbers, next(fresh), next(fresh))
        publish(*arguments)

    monkeypatch.setattr(compaction, "_publish", change)
    (done,) = care(str(numbers.parent), execute=True)
    assert "was changed by others" in done.problem
    assert ids(numbers) == list(range(11, 10 + 2 * compaction.ATTEMPTS))
    known = {uri.rpartition("/")[2] for uri in DeltaTable(numbers).file_uris()}
    assert known <= {path.name for path in numbers.glob("*.parquet")}
    with pytest.raises(OperationFailed):
        compact(numbers)


def test_care_shows_first_then_does_and_keeps_what_is_young(numbers):
    lake = str(numbers.parent)
    (plan,) = care(lake)
    assert (plan.files, plan.small, plan.removed, plan.files_after) == (4, 4, 0, None)
    assert (files(numbers), DeltaTable(numbers).version()) == (4, 3)
    (done,) = care(lake, execute=True)
    assert (done.files, done.files_after, done.removed, done.problem) == (4, 1, 0, None)
    assert DeltaTable(numbers, version=3).to_pyarrow_table().num_rows == 4  # still to be asked
    (again,) = care(lake, execute=True)
    assert (again.small, again.files_after) == (0, 1)
    assert DeltaTable(numbers).version() == 4
    (freed,) = care(lake, keep=timedelta(0), execute=True)
    assert freed.removed == 4
    assert len(list(numbers.glob("*.parquet"))) == 1
    assert ids(numbers) == [0, 1, 2, 3]


def test_files_that_no_commit_names_go_when_they_are_old(numbers):
    old, young = numbers / "old.parquet", numbers / "young.parquet"
    for file in (old, young):
        file.write_bytes(b"left by a batch that died")
    os.utime(old, (1, 1))
    (short,) = care(str(numbers.parent), keep=timedelta(hours=2), execute=True)
    assert short.removed == 0  # a batch may have written it and be still at work
    (done,) = care(str(numbers.parent), execute=True)
    assert done.removed == 1
    assert (old.exists(), young.exists()) == (False, True)


def test_deletion_vectors_stay_however_old_they_are(numbers):
    """deltalake does not know that the table's files need them."""
    table = DeltaTable(numbers)
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    vector = numbers / "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"
    vector.write_bytes(b"rows that are deleted")
    os.utime(vector, (1, 1))
    (plan,) = care(str(numbers.parent))
    (done,) = care(str(numbers.parent), execute=True)
    assert (plan.removed, done.removed, done.problem) == (0, 0, None)
    assert vector.exists()


def test_a_table_that_deltalake_does_not_understand_is_a_problem_of_its_own(numbers, capfd):
    strange = numbers.parent / "a_strange_one"
    add(strange, 0, 1)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": []}
    action = {"protocol": {**protocol, "writerFeatures": ["someFeatureToCome"]}}
    (strange / "_delta_log" / f"{2:020}.json").write_text(json.dumps(action))
    for left in (strange / "old.parquet", numbers / "old.parquet"):
        left.write_bytes(b"left by a batch that died")
        os.utime(left, (1, 1))
    broken = numbers.parent / "broken" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / f"{0:020}.json").write_text("no JSON")

    assert run(["lake", "care", "--lake", str(numbers.parent)]) == 1
    assert "cannot" in capfd.readouterr().out
    cared = {table.table: table for table in care(str(numbers.parent), execute=True)}
    assert "someFeatureToCome" in cared["a_strange_one"].problem
    assert "old files of table a_strange_one cannot be removed" in cared["a_strange_one"].problem
    assert "cannot be read" in cared["broken"].problem
    assert (cared["numbers"].problem, cared["numbers"].removed) == (None, 1)


def test_rows_of_files_that_are_gone_are_not_counted(numbers, capfd):
    next(numbers.glob("*.parquet")).unlink()
    with pytest.raises(OperationFailed, match=r"files of table .*numbers are gone"):
        Snapshot(numbers).count()
    (table,) = list_tables(str(numbers.parent))
    assert (table.rows, table.files) == (None, 4)
    assert "numbers are gone (`headrace replay ... --missing`" in table.problem
    assert run(["lake", "list", "--lake", str(numbers.parent)]) == 0
    assert "are gone" in " ".join(capfd.readouterr().out.split())


def test_one_care_at_a_time(numbers, monkeypatch):
    left = numbers.parent / ".care-killed"
    left.mkdir()
    refused = []

    def meanwhile(*_arguments):
        with pytest.raises(OperationFailed, match="another command cares"):
            care(str(numbers.parent), execute=True)
        refused.append(True)
        raise compaction.Overtaken

    monkeypatch.setattr(compaction, "_publish", meanwhile)
    care(str(numbers.parent), execute=True)
    assert refused
    assert not left.exists()


def test_tables_are_listed(numbers):
    (table,) = list_tables(str(numbers.parent))
    assert (table.table, table.rows, table.files, table.version) == ("numbers", 4, 4, 3)
    assert (table.bytes > 0, table.pipeline, table.offsets) == (True, None, {})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("care", "nope"), "has no table 'nope'"),
        (("care", "--keep", "5m"), "files may be needed for longer than 0:05:00"),
        (("care", "--keep", "soon"), "'soon' is no span of time"),
        (("care", "--keep", "1000000000000d"), "'1000000000000d' is too long a span of time"),
        (("list", "--lake", "nowhere"), "there is no folder nowhere"),
    ],
)
def test_what_is_wrong_is_said(numbers, capfd, arguments, complaint):
    command, *rest = arguments
    assert run(["lake", command, "--lake", str(numbers.parent), *rest]) == 2
    assert complaint in capfd.readouterr().err
