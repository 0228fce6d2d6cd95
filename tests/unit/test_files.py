"""A file is the old one or the new one; a lock excludes others and dies with its holder."""

import os
import signal
import subprocess
import sys

import pytest

from headrace.errors import ClusterError
from headrace.local import files
from headrace.local.files import exclusive, make_folder, write_atomically
from headrace.observe import Silent

HOLD_THE_LOCK = """
import sys, time
from pathlib import Path
from headrace.local.files import exclusive
from headrace.observe import Silent
with exclusive(Path(sys.argv[1]), "it", Silent()):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(tmp_path / "lock")], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        yield child
        child.kill()


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, "old")
    write_atomically(path, "new ü")
    assert path.read_text("utf-8") == "new ü"
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["file"]


def test_a_text_that_cannot_be_written_leaves_the_old_content(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \udc80")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["file"]


def test_a_full_disk_leaves_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["file"]


def test_content_is_on_the_disk_before_it_takes_the_name(tmp_path, monkeypatch):
    path, seen = tmp_path / "file", []
    path.write_text("old")
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (seen.append(path.read_text()), sync(fd)))
    write_atomically(path, "new")
    assert seen == ["old"]


def test_a_folder_is_made_with_its_parents_and_again_is_harmless(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_file_where_a_folder_is_expected_is_an_error_with_a_next_step(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(ClusterError) as caught:
        make_folder(tmp_path / "a" / "b")
    assert caught.value.facts["path"] == str(tmp_path / "a" / "b")
    assert "HEADRACE_HOME" in caught.value.hint


def test_a_folder_without_permission_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(files.os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(ClusterError, match="not writable"):
        make_folder(tmp_path / "a")


def test_the_lock_excludes_another_process(holder, tmp_path, progress):
    with (
        pytest.raises(ClusterError, match="at work on cluster 'x'"),
        exclusive(tmp_path / "lock", "cluster 'x'", progress, seconds=0.1),
    ):
        pass
    assert progress.steps == ["waiting for another command that is at work on cluster 'x'"]


def test_the_lock_is_freed_when_its_holder_is_killed(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    with exclusive(tmp_path / "lock", "it", Silent(), seconds=60):
        assert holder.wait(timeout=60) == -signal.SIGKILL


def test_the_lock_is_freed_at_the_end_of_the_block(tmp_path, progress):
    for _ in range(2):
        with exclusive(tmp_path / "lock", "it", progress, seconds=0):
            pass
    assert progress.steps == []


def test_the_lock_is_freed_when_the_block_fails(tmp_path, progress):
    with pytest.raises(RuntimeError), exclusive(tmp_path / "lock", "it", progress):
        raise RuntimeError
    with exclusive(tmp_path / "lock", "it", progress, seconds=0):
        assert progress.steps == []


def test_a_process_started_under_the_lock_does_not_keep_it(tmp_path, progress):
    with exclusive(tmp_path / "lock", "it", progress):
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
        )
    try:
        with exclusive(tmp_path / "lock", "it", progress, seconds=0):
            assert child.poll() is None
    finally:
        child.kill()
        child.wait()
