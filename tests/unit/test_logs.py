"""A server's log: its last lines, and the next ones as they come."""

from types import SimpleNamespace

import pytest

from headrace.errors import ClusterError
from headrace.local import logs
from headrace.local.logs import keep_logs, tail_log


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(b"one\ntwo\nthr\xffee\n")
    return path


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(50, ["one", "two", "thr�ee"]), (2, ["two", "thr�ee"]), (0, []), (-1, [])],
)
def test_the_last_lines_are_shown(log, lines, expected):
    assert list(tail_log(log, lines)) == expected


def test_a_log_that_is_not_there_is_an_error_with_a_next_step(tmp_path):
    with pytest.raises(ClusterError) as caught:
        list(tail_log(tmp_path / "nosuch", 5))
    assert "headrace up" in caught.value.hint


def test_new_lines_are_followed(log):
    following = tail_log(log, 1, follow=True)
    assert next(following) == "thr�ee"
    with log.open("a") as file:
        file.write("four\n")
    assert next(following) == "four"


def test_a_log_that_was_cut_to_nothing_is_followed_from_its_beginning(log):
    following = tail_log(log, 1, follow=True)
    next(following)
    log.write_text("new\n")
    assert next(following) == "new"


def test_a_log_that_was_rolled_over_is_followed_in_the_new_file_without_repeats(log):
    """1. The log is full. 2. It is renamed. 3. A new file takes its name. 4. Again."""
    following = tail_log(log, 1, follow=True)
    assert next(following) == "thr�ee"
    for number in range(3):
        with log.open("a") as file:
            file.write(f"last {number}\n")
        log.rename(log.with_name("server.log.1"))
        log.write_text(f"first {number}\n" + "longer than the old one was\n" * 9)
        assert [next(following), next(following)] == [f"last {number}", f"first {number}"]
        assert [next(following) for _ in range(9)] == ["longer than the old one was"] * 9


def test_what_was_written_just_before_the_log_was_rolled_over_is_not_missed(log, monkeypatch):
    began_anew = logs._began_anew

    def roll_over_then_look(path, file):
        with path.open("a") as writer:
            writer.write("in the last moment\n")
        path.rename(path.with_name("server.log.1"))
        path.write_text("new\n")
        return began_anew(path, file)

    monkeypatch.setattr(logs, "_began_anew", roll_over_then_look)
    following = tail_log(log, 0, follow=True)
    assert [next(following), next(following)] == ["in the last moment", "new"]


def test_lines_come_once_even_while_the_log_has_no_file(log, monkeypatch):
    pauses = iter([lambda: None, lambda: log.write_text("new\n")])
    monkeypatch.setattr(logs, "time", SimpleNamespace(sleep=lambda seconds: next(pauses)()))
    following = tail_log(log, 1, follow=True)
    next(following)
    log.rename(log.with_name("server.log.1"))
    assert next(following) == "new"


def test_the_logs_of_a_failed_start_are_kept_in_place_of_earlier_ones(tmp_path):
    cluster, kept = tmp_path / "cluster", tmp_path / "kept"
    for folder, content in ((cluster / "broker-1", "new"), (kept / "broker-9", "earlier")):
        folder.mkdir(parents=True)
        (folder / "server.log").write_text(content)
    (cluster / "broker-1" / "data").mkdir()
    keep_logs(cluster, kept)
    assert [path.name for path in kept.iterdir()] == ["broker-1"]
    assert (kept / "broker-1" / "server.log").read_text() == "new"
    assert not (kept / "broker-1" / "data").exists()


def test_logs_that_cannot_be_kept_do_not_hide_why_the_start_failed(tmp_path):
    (tmp_path / "cluster" / "broker-1").mkdir(parents=True)
    (tmp_path / "cluster" / "broker-1" / "server.log").write_text("new")
    (tmp_path / "kept").write_text("a file where a folder is expected")
    keep_logs(tmp_path / "cluster", tmp_path / "kept" / "here")
    assert (tmp_path / "kept").is_file()
